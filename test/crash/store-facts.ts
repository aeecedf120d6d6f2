/**
 * The common knowledge of the crash test and its child: every member of entry or receipt `n`
 * follows from `n`.
 */
import type { MailboxEntry } from "../../src/storage/contract.ts";
import { bytesOf, did, entry } from "../conformance/samples.ts";

export const recipientsMax = 5;
export const crashTimes = { nowMs: 10_000, expiresAtMs: 1_000_000 };

export function crashEntry(n: number): MailboxEntry {
  const size = n % 50 === 0 ? 70_000 : 40 + ((n * 37) % 900);
  const { nowMs, expiresAtMs } = crashTimes;
  return entry(n, {
    recipient: did(n % recipientsMax),
    storedAtMs: nowMs,
    expiresAtMs,
    envelope: bytesOf(n, size),
  });
}

export function crashReceipt(n: number): Uint8Array {
  return bytesOf(n, 1 + (n % 300));
}
