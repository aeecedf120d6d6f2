/**
 * One delivery for one message: repeats in flight wait for the first, repeats after a success answer its
 * result, repeats after a failure try again, and the same id with other content is a conflict. What is
 * remembered survives a restart and ends with the life of the envelope.
 * Source: decisions section 5 "Repeats".
 */
import { utf8 } from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/hash.ts";
import { type Fault, fault } from "../../core/fault.ts";
import type { DeliveryResult } from "../../core/message/delivery.ts";
import type { Envelope } from "../../core/message/envelope.ts";
import { type Receipts, StoreError } from "../../storage/contract.ts";
import type { Log } from "../http/log.ts";

export type Repeats = {
  /** `deliver` runs for the first of all repeats that are in flight together. */
  once(
    message: { readonly envelope: Envelope; readonly expiresAtMs: number; readonly nowMs: number },
    deliver: () => Promise<DeliveryResult>,
  ): Promise<DeliveryResult | Fault>;
  readonly inFlight: number;
};

type Flight = { readonly digest: string; readonly result: Promise<DeliveryResult | Fault> };

/** `result` is `null` after a failure: only the content is held to. */
type Memory = { readonly digest: string; readonly result: DeliveryResult | null };

export function createRepeats(receipts: Receipts, log: Log): Repeats {
  const flights = new Map<string, Flight>();

  const recall = async (key: string, nowMs: number): Promise<Memory | null> => {
    const value = await receipts.get(key, nowMs);
    return value === null ? null : (JSON.parse(new TextDecoder().decode(value)) as Memory);
  };

  /** What was delivered stays delivered, even when it can't be remembered. */
  const remember = async (key: string, memory: Memory, untilMs: number): Promise<void> => {
    try {
      await receipts.put(key, utf8(JSON.stringify(memory)), untilMs);
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      log("warn", "a delivery result could not be remembered; a repeat would be delivered again", {
        error: error.code,
      });
    }
  };

  return {
    async once({ envelope, expiresAtMs, nowMs }, deliver) {
      const key = `relay:${envelope.to}:${envelope.messageId}`;
      const digest = sha256(envelope.bytes).toHex();
      const first = flights.get(key);
      if (first !== undefined) return first.digest === digest ? repeated(await first.result) : conflict();
      const fly = async (): Promise<DeliveryResult | Fault> => {
        const known = await recall(key, nowMs);
        if (known !== null && known.digest !== digest) return conflict();
        if (known?.result) return repeated(known.result);
        const result = await deliver();
        await remember(key, { digest, result: result.success ? result : null }, expiresAtMs);
        return result;
      };
      const result = fly().finally(() => flights.delete(key));
      flights.set(key, { digest, result });
      return result;
    },
    get inFlight() {
      return flights.size;
    },
  };
}

function repeated<T extends DeliveryResult | Fault>(result: T): T {
  if (!("details" in result) || !result.success) return result;
  return { ...result, details: { ...result.details, deduped: true } };
}

function conflict(): Fault {
  return fault("duplicate_conflict", "another envelope with this message_id was sent to this recipient");
}
