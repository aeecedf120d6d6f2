/** Key bundles of a person of `cache-node.ts`, and of whoever else has a DID and a key that signs. */
import { ed25519 } from "@noble/curves/ed25519.js";
import type { Did } from "../../src/core/codec/did.ts";
import { dayMs } from "../../src/core/codec/time.ts";
import {
  bundleKeyBytes,
  bundleKeyId,
  encodeBundleText,
  type KeyBundle,
} from "../../src/core/message/bundle.ts";

type BundleMaker = { readonly did: Did; readonly seed: Uint8Array; readonly keyId: string };

/** A key that parses, filled with a number of at most 12. */
export const bundleKey = (fill: number): Uint8Array => new Uint8Array(bundleKeyBytes).fill(fill);

/** Signed by the maker; valid for seven days where `change` says nothing else. */
export function bundleOf(
  { did, seed, keyId }: BundleMaker,
  issuedAtMs: number,
  change: Partial<Omit<KeyBundle, "signature">> = {},
): KeyBundle {
  const publicKey = change.publicKey ?? bundleKey(7);
  const unsigned = {
    did,
    keyId: bundleKeyId(publicKey),
    publicKey,
    issuedAtMs,
    notAfterMs: issuedAtMs + 7 * dayMs,
    signer: keyId,
    ...change,
  };
  return { ...unsigned, signature: ed25519.sign(encodeBundleText(unsigned), seed) };
}
