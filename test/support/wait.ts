/**
 * How tests wait. What must come is a condition that is asked again until it holds: a slow machine takes longer, and the
 * test's limit ends it. Only what must not come, and the pace of a fake, take a fixed time, and say why.
 */

/** The first answer that is neither null nor undefined nor false. */
export async function until<T>(ask: () => Awaitable<T | null | undefined | false>): Promise<T> {
  for (;;) {
    const answer = await ask();
    if (answer !== null && answer !== undefined && answer !== false) return answer;
    await Bun.sleep(5);
  }
}

type Awaitable<T> = T | Promise<T>;

/** A fixed time. `reason` says what would happen in it, or whose pace it is. */
export function pause(ms: number, reason: string): Promise<void> {
  if (reason.length < 10) throw new Error("a fixed time needs its reason");
  return Bun.sleep(ms);
}
