/**
 * HPKE in base mode with X-Wing, HKDF-SHA256 and ChaCha20-Poly1305, for one message: by hand, because packages can't seal the
 * same bytes again, and a transfer that is resumed must. Everything is bound by `info`; the additional data is empty.
 * Source: RFC 9180 sections 5 and 6.1; draft-ietf-hpke-pq (KEM 0x647A).
 */
import { chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { hpkeKeys } from "./hpke-keys.ts";
import { decapsulate, encapsulate, type XwingSecret } from "./xwing.ts";

/** Of the cipher, at the end of the ciphertext. */
export const tagBytes = 16;

/** The same randomness (64 bytes), key, `info` and text give the same bytes. Throws for what is not a public key. */
export async function hpkeSeal(
  recipient: { readonly publicKey: Uint8Array; readonly randomness: Uint8Array },
  info: Uint8Array,
  plain: Uint8Array,
): Promise<{ readonly enc: Uint8Array; readonly ciphertext: Uint8Array }> {
  const { enc, shared } = await encapsulate(recipient.publicKey, recipient.randomness);
  const { key, nonce } = hpkeKeys(shared, info);
  return { enc, ciphertext: chacha20poly1305(key, nonce).encrypt(plain) };
}

type Sealed = { readonly enc: Uint8Array; readonly ciphertext: Uint8Array };

/** With `key` and `nonce` of this one message. `null` when it was sealed to another key, bound to something else, or changed. */
export async function hpkeOpen(
  { enc, ciphertext }: Sealed,
  secret: XwingSecret,
  info: Uint8Array,
): Promise<Record<"plain" | "key" | "nonce", Uint8Array> | null> {
  try {
    const { key, nonce } = hpkeKeys(await decapsulate(enc, secret), info);
    return { plain: chacha20poly1305(key, nonce).decrypt(ciphertext), key, nonce };
  } catch {
    return null;
  }
}
