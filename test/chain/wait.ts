/** Waits of the chain tests: one that takes minutes hangs, and says for what. */
import { late, withDeadline } from "../../src/core/std/bounded.ts";

/** A machine with a load of 30 needs a fifth of it for the longest wait. */
export const hangMs = 180_000;

export async function inTime<T>(what: string, work: Promise<T>): Promise<T> {
  const outcome = await withDeadline(work, hangMs);
  if (outcome === late) throw new Error(`waited too long for ${what}`);
  return outcome;
}
