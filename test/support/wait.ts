/**
 * How tests wait. What must come is a condition that is asked again until it holds: a slow machine
 * takes longer, and the test's limit ends it. Only what must not come, and the pace of a fake, take
 * a fixed time, and say why.
 */

/** The first answer that is neither null nor undefined nor false. */
export async function until<T>(ask: () => Awaitable<T | null | undefined | false>): Promise<T> {
  for (const look = looking(5); ; await look.pause()) {
    const answer = await ask();
    if (answer !== null && answer !== undefined && answer !== false) return answer;
  }
}

/**
 * Pauses between looks: of `leastMs`, and longer than the look took, so that looking leaves time
 * for what it waits for.
 */
export function looking(leastMs: number): { readonly pause: () => Promise<void> } {
  let beganMs = performance.now();
  const pause = async (): Promise<void> => {
    const tookMs = performance.now() - beganMs;
    await Bun.sleep(Math.min(Math.max(leastMs, 3 * tookMs), 300));
    beganMs = performance.now();
  };
  return { pause };
}

type Awaitable<T> = T | Promise<T>;

/** A fixed time. `reason` says what would happen in it, or whose pace it is. */
export function pause(ms: number, reason: string): Promise<void> {
  if (reason.length < 10) throw new Error("a fixed time needs its reason");
  return Bun.sleep(ms);
}
