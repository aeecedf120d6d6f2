/**
 * HPKE in base mode with X-Wing, HKDF-SHA256 and ChaCha20-Poly1305, for one message: by
 * hand, because packages can't seal the same bytes again, and a transfer that is resumed
 * must. Everything is bound by `info`; the additional data is empty. Who seals or opens many
 * takes turns (`pageTurns`).
 * Source: RFC 9180 sections 4 to 6.1; draft-ietf-hpke-pq (KEM 0x647A).
 */
import { chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { expand, extract } from "@noble/hashes/hkdf.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { concatBytes, utf8 } from "../../core/codec/bytes.ts";
import { Mutex } from "../../core/std/order.ts";
import { decapsulate, encapsulate, type XwingSecret } from "./xwing.ts";

/** Of the cipher, at the end of the ciphertext. */
export const tagBytes = 16;

/**
 * The same randomness (64 bytes), key, `info` and text give the same bytes. Throws for
 * what is not a public key.
 */
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

/**
 * With `key` and `nonce` of this one message. `null` when it was sealed to another key, bound to
 * something else, or changed.
 */
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

// -------------------------------------------------------------------------------- the key schedule

/** "HPKE" and the numbers of KEM, KDF and AEAD. */
const suite = concatBytes(utf8("HPKE"), Uint8Array.of(0x64, 0x7a, 0, 1, 0, 3));
const none = new Uint8Array(0);
const [keyBytes, nonceBytes] = [32, 12];

function labeledExtract(suiteId: Uint8Array, salt: Uint8Array, label: string, input: Uint8Array) {
  return extract(sha256, concatBytes(utf8("HPKE-v1"), suiteId, utf8(label), input), salt);
}

function labeledExpand(
  suiteId: Uint8Array,
  secret: Uint8Array,
  { label, info, length }: { readonly label: string; readonly info: Uint8Array; length: number },
): Uint8Array {
  const labeled = concatBytes(
    Uint8Array.of(length >> 8, length & 0xff),
    utf8("HPKE-v1"),
    suiteId,
    utf8(label),
    info,
  );
  return expand(sha256, secret, labeled, length);
}

/** Key and nonce of the first message. Another suite is only for its published examples. */
export function hpkeKeys(shared: Uint8Array, info: Uint8Array, suiteId: Uint8Array = suite) {
  const context = concatBytes(
    Uint8Array.of(0),
    labeledExtract(suiteId, none, "psk_id_hash", none),
    labeledExtract(suiteId, none, "info_hash", info),
  );
  const secret = labeledExtract(suiteId, shared, "secret", none);
  return {
    key: labeledExpand(suiteId, secret, { label: "key", info: context, length: keyBytes }),
    nonce: labeledExpand(suiteId, secret, {
      label: "base_nonce",
      info: context,
      length: nonceBytes,
    }),
  };
}

// ------------------------------------------------------------------------------------------- turns

/** Two frames of a page are 33 ms. */
const workMsMax = 20;

/**
 * Turns of work that would hold a page up: one after the other, and after some milliseconds of them
 * whatever else waits comes first. Sealing a message for a group of 64 takes about 100 ms of the
 * processor, and a page drops frames after 50.
 */
class Turns {
  readonly #one = new Mutex();
  /** When other work last had its turn. */
  #sinceMs = Number.NEGATIVE_INFINITY;

  /** The result of the work, or what it throws. */
  run<T>(work: () => Promise<T>): Promise<T> {
    return this.#one.run(async () => {
      if (performance.now() - this.#sinceMs > workMsMax) {
        // A timer lets the page draw and take input; a promise does not.
        await new Promise((resolve) => setTimeout(resolve));
        this.#sinceMs = performance.now();
      }
      return work();
    });
  }
}

/** Of the whole page: copies for a group are sealed, and what has come is opened, at once. */
export const pageTurns = new Turns();
