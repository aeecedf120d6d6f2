/**
 * The second version of sealing as one part, loaded with the first recipient who publishes bundles, or the first message in
 * it: of several parts, what they share with a page that says hello would be cut into more files.
 */
import { sha256 } from "#sha256";
import { encodeHex } from "../../core/codec/bytes.ts";
import { Turns } from "../base/turns.ts";
import { bundleKey } from "../trust/bundles.ts";
import { type HybridInput, sealHybrid } from "./seal-hybrid.ts";
import type { SendPlan } from "./send.ts";
import { openHybrid } from "./unseal-hybrid.ts";

/** Bytes for a purpose, out of the seed of a plan. */
type Derive = (plan: SendPlan, purpose: string, length: number) => Uint8Array;

/** One chunk of a plan: the same one is sealed to the same bytes. A full chunk is not padded. */
function sealPart(
  plan: SendPlan,
  part: Pick<HybridInput, "binding" | "file" | "data" | "outer">,
  derive: Derive,
) {
  const { binding, data } = part;
  const { recipient, chunkBytes, sealedBytesMax } = plan;
  const isFull = binding.chunk !== null && data.length === chunkBytes;
  const key = encodeHex(sha256(recipient.publicKey));
  const randomness = derive(plan, `kem:${binding.chunk?.sequence ?? 0}:${key}`, 64);
  const payloadBytesMax = isFull ? 0 : (sealedBytesMax ?? Number.POSITIVE_INFINITY);
  return turns.run(() => sealHybrid({ ...part, recipient, randomness, payloadBytesMax }));
}

/** Of the whole page: copies for a group of 64 are sealed at once. */
const turns = new Turns();

const open: typeof openHybrid = (envelope, opening) =>
  turns.run(() => openHybrid(envelope, opening));

export const hybrid = { sealPart, open, bundleKey } as const;
