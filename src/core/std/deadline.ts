/**
 * Waiting for a promise, but not for ever: the one race of a promise against a timer. It is the only timer
 * in the core, which is otherwise free of clocks.
 */

/** What `withDeadline` answers when time runs out. */
export const late: unique symbol = Symbol("late");

/** A longer delay makes a timer fire at once (the platform keeps it in 32 bits). About 24.8 days. */
const timerMsMax = 2 ** 31 - 1;

/**
 * The value of `work`, or `late` after `timeoutMs` (0 and below: at the next turn of the event loop). A rejection in
 * time passes through; one that comes after the deadline is swallowed, because nobody waits for it any more. The work
 * itself goes on: whoever can stop it stops it on `late`. The timer never outlives the call.
 */
export async function withDeadline<T>(work: PromiseLike<T>, timeoutMs: number): Promise<T | typeof late> {
  const { promise: deadline, resolve } = Promise.withResolvers<typeof late>();
  const timer = setTimeout(() => resolve(late), Math.min(Math.max(0, timeoutMs), timerMsMax));
  try {
    return await Promise.race([work, deadline]);
  } finally {
    clearTimeout(timer);
  }
}
