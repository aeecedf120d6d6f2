/**
 * Idempotency: one delivery for one message. A repeated request waits for the first while that is in flight, answers
 * its result after a success, and tries again after a failure; the same id with other content is a conflict. The
 * record survives a restart and ends with the life of the envelope, or soon for a network that fills the store with
 * results. It is written after the answer, because a
 * delivered message is already safe at its destination.
 * Source: rules section 5 "Repeats".
 */
import { utf8 } from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/crypto.ts";
import { secondMs } from "../../core/codec/time.ts";
import { type Fault, fault, isFault } from "../../core/fault.ts";
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
  /** Results that are being written. */
  remembering: number;
};

/** A result, and its JSON text, which is both answered and remembered. */
export type Delivered = { readonly result: DeliveryResult; readonly text: string };

type InFlight = { readonly digest: string; readonly delivered: Promise<Delivered | Fault> };

/** What is remembered of a message. `result` is `null` after a failure: only the content is compared. */
type Remembered = { readonly digest: string; readonly result: DeliveryResult | null };

type DedupParts = { readonly receipts: Receipts; readonly log: Log; readonly counting?: Counting };

/** Beyond this a delivery waits until its result is written, so that a slow store slows down those who fill it. */
const rememberingMax = 256;

export function createDedup({ receipts, log, counting = ownCounting }: DedupParts): Dedup {
  const deliveries = counting.share("deliveries", Number.POSITIVE_INFINITY, { clientMax: 1 });
  return { receipts, log, inFlight: new Map(), deliveries, remembering: 0 };
}

type DedupMessage = {
  readonly envelope: Envelope;
  readonly nowMs: number;
  /** How long the result is remembered; asked once there is one. */
  readonly untilMs: () => number;
};

/** Runs `deliver` once for all requests of one message that are in flight together. 409 `duplicate_conflict`. */
export function deliverOnce(
  dedup: Dedup,
  message: DedupMessage,
  deliver: () => Promise<DeliveryResult>,
): Promise<Delivered | Fault> {
  const { envelope } = message;
  const key = `relay:${envelope.to}:${envelope.messageId}`;
  const digest = sha256(envelope.bytes).toHex();
  const first = dedup.inFlight.get(key);
  if (first !== undefined)
    return first.digest === digest ? first.delivered.then(repeated) : Promise.resolve(conflict());
  const delivered = deliverFirst(dedup, { key, digest, message }, deliver);
  dedup.inFlight.set(key, { digest, delivered });
  return delivered;
}

/** The key stays in flight until the result is stored, which the answer does not wait for, or until there is none. */
async function deliverFirst(
  dedup: Dedup,
  { key, digest, message }: { readonly key: string; readonly digest: string; readonly message: DedupMessage },
  deliver: () => Promise<DeliveryResult>,
): Promise<Delivered | Fault> {
  const isAlone = dedup.deliveries.take(key, 1) || (await waitForOthers(dedup, key));
  const end = (): void => {
    dedup.inFlight.delete(key);
    if (isAlone) dedup.deliveries.give(key, 1);
  };
  let remembering: Promise<void> | null = null;
  try {
    const known = parseRemembered(await dedup.receipts.get(key, message.nowMs));
    if (known !== null && known.digest !== digest) return conflict();
    if (known?.result) return repeated({ result: known.result, text: "" });
    const result = await deliver();
    const text = JSON.stringify(result);
    const what = `{"digest":"${digest}","result":${result.success ? text : "null"}}`;
    remembering = remember(dedup, { key, what, untilMs: message.untilMs() }, end);
    if (dedup.remembering > rememberingMax) await remembering;
    return { result, text };
  } finally {
    if (remembering === null) end();
  }
}

const othersPollMs = 20;
/** Longer than any delivery. */
const othersMsMax = 60 * secondMs;

/** Waits until another thread has ended its delivery of the same message. `false`: it did not end in time. */
async function waitForOthers({ deliveries }: Dedup, key: string): Promise<boolean> {
  const endsAtMs = performance.now() + othersMsMax;
  while (!deliveries.take(key, 1)) {
    if (performance.now() > endsAtMs) return false;
    await Bun.sleep(othersPollMs);
  }
  return true;
}

function parseRemembered(value: Uint8Array | null): Remembered | null {
  return value === null ? null : (JSON.parse(new TextDecoder().decode(value)) as Remembered);
}

/** What was delivered stays delivered, even when it can't be remembered. Never rejects but for a bug. */
async function remember(
  dedup: Dedup,
  { key, what, untilMs }: { readonly key: string; readonly what: string; readonly untilMs: number },
  end: () => void,
): Promise<void> {
  dedup.remembering += 1;
  try {
    await dedup.receipts.put(key, utf8(what), untilMs);
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    dedup.log("warn", "a delivery result could not be stored; a repeated request would be delivered again", {
      error: error.code,
    });
  } finally {
    dedup.remembering -= 1;
    end();
  }
}

/** The first result again, with `deduped` in its details. */
function repeated(first: Delivered | Fault): Delivered | Fault {
  if (isFault(first) || !first.result.success) return first;
  const { result } = first;
  const again = { ...result, details: { ...result.details, deduped: true } };
  return { result: again, text: JSON.stringify(again) };
}

function conflict(): Fault {
  return fault("duplicate_conflict", "another envelope with this message_id was sent to this recipient");
}
