/**
 * The envelope: from the bytes of a request to one normal form, by the rules of the outer format. The
 * payload stays opaque and is never copied more than once.
 * Source: interface "DDN envelope", decisions sections 2 and 10.
 */
import type { Did, Uuid } from "./did.ts";

export type DeliveryHint = "standard" | "chunked" | "direct" | "cache";

export type Envelope = {
  readonly messageId: Uuid;
  readonly to: Did;
  readonly timestampMs: number;
  /** As asked for; `null` when the sender named none. */
  readonly ttlMs: number | null;
  readonly hint: DeliveryHint;
  readonly tag: string | null;
  /** Decoded `ciphertext_b64`, or the compact JSON of `payload`. */
  readonly payloadBytes: number;
  /** The decoded encrypted header, flat or from `context`. */
  readonly header: Uint8Array | null;
  readonly chunk: { readonly groupId: Uuid; readonly sequence: number; readonly total: number } | null;
  readonly sender: EnvelopeSender | null;
  /** Compact or not, the sender's own JSON with the names `to` and `timestamp`. */
  readonly bytes: Uint8Array;
};

export type EnvelopeSender = {
  readonly from: Did;
  readonly keyId: string;
  readonly signature: Uint8Array;
  /** The exact bytes that the signature covers. */
  readonly signedBytes: Uint8Array;
};

export type EnvelopeLimits = {
  readonly bodyBytesMax: number;
  readonly unchunkedBytesMax: number;
  readonly chunkBytesMax: number;
  readonly headerBytesMax: number;
  readonly ttlMsMax: number;
  readonly ttlMsDefault: number;
  /** How far ahead of the node's clock a timestamp may lie. */
  readonly futureMsMax: number;
};
