/**
 * Work that news call for: it runs one at a time, and news that come while it runs, at whatever moment,
 * make it run once more. So however fast a node sends news, one question of a kind is with it.
 */

/** `work` must not throw. */
export function singly(work: () => Promise<void>): () => void {
  let isRunning = false;
  let again = false;
  const run = async (): Promise<void> => {
    isRunning = true;
    do {
      again = false;
      await work();
    } while (again);
    isRunning = false;
  };
  return () => {
    if (isRunning) again = true;
    else void run();
  };
}
