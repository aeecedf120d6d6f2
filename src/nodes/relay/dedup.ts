/**
 * Idempotency: one delivery for one message. Repeats in flight wait for the first, repeats after a
 * success answer its result, repeats after a failure try again, and the same id with other content is a
 * conflict. What is remembered survives a restart and ends with the life of the envelope.
 * Source: rules section 5 "Repeats".
 */
import { utf8 } from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/hash.ts";
import { secondMs } from "../../core/codec/time.ts";
import { type Fault, fault } from "../../core/fault.ts";
import type { DeliveryResult } from "../../core/message/delivery.ts";
import type { Envelope } from "../../core/message/envelope.ts";
import { type Receipts, StoreError } from "../../storage/contract.ts";
import { type Counting, ownCounting } from "../counting.ts";
import type { FairShare } from "../http/capacity.ts";
import type { Log } from "../http/log.ts";

export type Dedup = {
  readonly receipts: Receipts;
  readonly log: Log;
  readonly inFlight: Map<string, InFlight>;
  /** The messages that any worker thread of the process is delivering. */
  readonly deliveries: FairShare;
};

type InFlight = { readonly digest: string; readonly result: Promise<DeliveryResult | Fault> };

/** What is remembered of a message. `result` is `null` after a failure: only the content is compared. */
type Remembered = { readonly digest: string; readonly result: DeliveryResult | null };

export type DedupParts = { readonly receipts: Receipts; readonly log: Log; readonly counting?: Counting };

export function createDedup({ receipts, log, counting = ownCounting }: DedupParts): Dedup {
  const deliveries = counting.share("deliveries", Number.POSITIVE_INFINITY, { clientMax: 1 });
  return { receipts, log, inFlight: new Map(), deliveries };
}

export type DedupMessage = { readonly envelope: Envelope; readonly expiresAtMs: number; readonly nowMs: number };

/** Runs `deliver` for the first of all repeats that are in flight together. 409 `duplicate_conflict`. */
export async function deliverOnce(
  dedup: Dedup,
  message: DedupMessage,
  deliver: () => Promise<DeliveryResult>,
): Promise<DeliveryResult | Fault> {
  const { envelope } = message;
  const key = `relay:${envelope.to}:${envelope.messageId}`;
  const digest = sha256(envelope.bytes).toHex();
  const first = dedup.inFlight.get(key);
  if (first !== undefined) return first.digest === digest ? repeated(await first.result) : conflict();
  const result = deliverFirst(dedup, { key, digest, message }, deliver).finally(() => dedup.inFlight.delete(key));
  dedup.inFlight.set(key, { digest, result });
  return result;
}

async function deliverFirst(
  dedup: Dedup,
  { key, digest, message }: { readonly key: string; readonly digest: string; readonly message: DedupMessage },
  deliver: () => Promise<DeliveryResult>,
): Promise<DeliveryResult | Fault> {
  const isAlone = await waitForOthers(dedup, key);
  try {
    const known = await recall(dedup, key, message.nowMs);
    if (known !== null && known.digest !== digest) return conflict();
    if (known?.result) return repeated(known.result);
    const result = await deliver();
    await remember(dedup, key, { digest, result: result.success ? result : null }, message.expiresAtMs);
    return result;
  } finally {
    if (isAlone) dedup.deliveries.give(key, 1);
  }
}

const othersPollMs = 20;
/** Longer than any delivery. */
const othersMsMax = 60 * secondMs;

/** Another thread that delivers the same message ends first, so that its result is found. `false`: it did not in time. */
async function waitForOthers({ deliveries }: Dedup, key: string): Promise<boolean> {
  const endsAtMs = performance.now() + othersMsMax;
  while (!deliveries.take(key, 1)) {
    if (performance.now() > endsAtMs) return false;
    await Bun.sleep(othersPollMs);
  }
  return true;
}

async function recall({ receipts }: Dedup, key: string, nowMs: number): Promise<Remembered | null> {
  const value = await receipts.get(key, nowMs);
  return value === null ? null : (JSON.parse(new TextDecoder().decode(value)) as Remembered);
}

/** What was delivered stays delivered, even when it can't be remembered. */
async function remember({ receipts, log }: Dedup, key: string, what: Remembered, untilMs: number): Promise<void> {
  try {
    await receipts.put(key, utf8(JSON.stringify(what)), untilMs);
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    log("warn", "a delivery result could not be remembered; a repeat would be delivered again", {
      error: error.code,
    });
  }
}

function repeated<T extends DeliveryResult | Fault>(result: T): T {
  if (!("details" in result) || !result.success) return result;
  return { ...result, details: { ...result.details, deduped: true } };
}

function conflict(): Fault {
  return fault("duplicate_conflict", "another envelope with this message_id was sent to this recipient");
}
