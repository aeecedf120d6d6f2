/**
 * Idempotency of the Relay: one delivery for one message. A repeat that comes before the
 * answer waits for it and gets it too. A repeat after a success gets the same result from a
 * record, at every node that shares the store, because the record is written before the
 * answer. Of what went to the Cache of this process alone, the entry there is the record. A
 * repeat after a failure tries again. Another envelope under the same id (author.ts) is a
 * conflict.
 * Source: rules section 5 ("Repeats"), D87, D320.
 */
import { sha256 } from "../../core/codec/crypto.ts";
import { type Fault, fault, isFault } from "../../core/fault.ts";
import type { DeliveryResult } from "../../core/message/delivery.ts";
import type { Envelope } from "../../core/message/envelope.ts";
import { type Receipts, StoreError } from "../../storage/contract.ts";
import type { Log } from "../http/log.ts";
import { type EnvelopeAuthor, isRepeat, otherContent } from "../parties/author.ts";
import { encodeRecord, readRecord } from "../parties/records.ts";
import type { DeliveredResult } from "./delivery.ts";
import type { DeliveryInFlight } from "./live/registry.ts";

type DeliveryOutcome = DeliveryResult | Fault;

export type Dedup = {
  readonly receipts: Receipts;
  readonly log: Log;
  /** By recipient and message id. */
  readonly inFlight: Map<string, DeliveryInFlight>;
};

type OneDelivery = {
  readonly envelope: Pick<Envelope, "to" | "messageId" | "bytes">;
  readonly author: EnvelopeAuthor;
  /** How often it was forwarded. */
  readonly hops: number;
  readonly nowMs: number;
  /** How long the result is remembered. */
  readonly untilMs: () => number;
  /** Sessions that join wait for the delivery once `begun` was called. */
  readonly deliver: (begun: () => void) => Promise<DeliveredResult | Fault>;
};

/**
 * The outcome of the only delivery of the message: 409 `duplicate_conflict` for another
 * message under its id. One that was forwarded more often than that in flight is a loop,
 * since it is in flight here already: 422 `not_deliverable`.
 */
export function deliverOnce(dedup: Dedup, delivery: OneDelivery): Promise<DeliveryOutcome> {
  const { to, messageId, bytes } = delivery.envelope;
  const key = `relay:${to}:${messageId}`;
  const { author, hops } = delivery;
  // The id of an unsigned envelope belongs to all unsigned ones: no one asks for its bytes.
  const content = { digest: author === null ? "" : sha256(bytes).toHex(), author };
  const first = dedup.inFlight.get(key);
  if (first !== undefined && !repeats(content, first)) return Promise.resolve(otherContent);
  if (first !== undefined)
    return hops > first.hops ? Promise.resolve(cameBack()) : first.outcome.then(asRepeat);
  const delivering = { to, ...content, hops, delaysJoins: false };
  const begun = () => {
    delivering.delaysJoins = true;
  };
  const outcome = deliverUnlessKnown(dedup, delivery, { key, content, begun }).finally(() =>
    dedup.inFlight.delete(key),
  );
  dedup.inFlight.set(key, Object.assign(delivering, { outcome }));
  return outcome;
}

/** Of an envelope: the digest of its bytes when it is signed, and whose it is. */
type SignedContent = { readonly digest: string; readonly author: EnvelopeAuthor };

function repeats(content: SignedContent, known: SignedContent): boolean {
  const isSame = content.digest === known.digest;
  return isRepeat({ isSame, author: known.author }, content.author);
}

type Begun = { readonly key: string; readonly content: SignedContent; readonly begun: () => void };

async function deliverUnlessKnown(
  dedup: Dedup,
  { nowMs, untilMs, deliver }: OneDelivery,
  { key, content, begun }: Begun,
): Promise<DeliveryOutcome> {
  const known = await recordOf(dedup, key, nowMs);
  if (known !== null && !repeats(content, known)) return otherContent;
  if (known?.result) return asRepeat(known.result);
  const delivered = await deliver(begun);
  // The id belongs to the content that another node delivered.
  if (isFault(delivered)) return delivered;
  const { result, isKept } = delivered;
  if (isKept) return isRepeated(result) ? asRepeat(result) : result;
  // A Cache elsewhere has the id already: of another node, which may have sent other
  // content a moment ago.
  const other = isRepeated(result) ? await recordOf(dedup, key, nowMs) : null;
  if (other !== null && !repeats(content, other)) return otherContent;
  await rememberDelivery(
    dedup,
    key,
    { ...content, result: result.success ? result : null },
    untilMs(),
  );
  return result;
}

/** The Cache knew the envelope. */
function isRepeated({ cache_result }: DeliveryResult): boolean {
  return cache_result !== null && "deduped" in cache_result && cache_result.deduped === true;
}

/** A failure is the same for all that wait for it. */
function asRepeat(outcome: DeliveryOutcome): DeliveryOutcome {
  if (isFault(outcome) || !outcome.success) return outcome;
  return { ...outcome, details: { ...outcome.details, deduped: true } };
}

const cameBack = () => fault("not_deliverable", "the envelope has come back to this Relay");

/** After a failure there is no result, and the id belongs to the author of the content. */
type DeliveryRecord = SignedContent & { readonly result: DeliveryResult | null };

const recordOf = ({ receipts }: Dedup, key: string, nowMs: number) =>
  readRecord<DeliveryRecord>(receipts, key, nowMs);

/** What was delivered stays delivered, even when it can't be remembered. */
async function rememberDelivery(
  { receipts, log }: Dedup,
  key: string,
  record: DeliveryRecord,
  untilMs: number,
): Promise<void> {
  try {
    await receipts.put(key, encodeRecord(record), untilMs);
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    const loss =
      "a delivery result could not be stored; a repeated request would be delivered again";
    log("warn", loss, { error });
  }
}
