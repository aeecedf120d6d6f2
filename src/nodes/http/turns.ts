/**
 * Turns at something that keeps the event loop for milliseconds: one for each of its iterations, so that a hundred
 * clients who take long answers do not make everybody else wait for all of them.
 * Cost: nothing while one asks at a time.
 */
export type Turns = { take(): Promise<void> | undefined };

export function createTurns(): Turns {
  const waiting: (() => void)[] = [];
  let taken = false;
  const pass = (): void => {
    const next = waiting.shift();
    if (next === undefined) {
      taken = false;
      return;
    }
    next();
    setImmediate(pass);
  };
  return {
    take() {
      if (taken) return new Promise((resolve) => waiting.push(resolve));
      taken = true;
      setImmediate(pass);
      return undefined;
    },
  };
}
