/**
 * Sealing in the second version as one part, loaded with the first recipient who publishes bundles: of several parts, what
 * they share with a page that says hello would be cut into more files. What opens (`open-hybrid.ts`) comes with the first
 * message.
 */
import { sha256 } from "#sha256";
import { encodeHex } from "../../core/codec/bytes.ts";
import { bundleKey } from "../trust/bundles.ts";
import { pageTurns } from "./page-turns.ts";
import { type HybridInput, sealHybrid } from "./seal-hybrid.ts";
import type { SendPlan } from "./send.ts";

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
  return pageTurns.run(() => sealHybrid({ ...part, recipient, randomness, payloadBytesMax }));
}

export const hybrid = { sealPart, bundleKey } as const;
