/**
 * Proof of work over a body: a nonce such that a hash of both begins with a number of zero bits. It needs no state and
 * no challenge of one node, so that every process behind an address can ask for it and check it; a body that was
 * accepted once is accepted again as itself, so that its work is worth nothing for another one.
 * Source: D152.
 */

import { sha256 } from "#sha256";
import { encodeHex, utf8 } from "../codec/bytes.ts";

/** More would take a client minutes. */
export const workBitsMax = 26;

const nonceForm = /^[A-Za-z0-9_-]{1,64}$/;

/** Whether SHA-256 of `svc:register-work:v1|<SHA-256 of the body in hex>|<nonce>` begins with `bits` zero bits. */
export function verifyWork(body: Uint8Array, nonce: string, bits: number): boolean {
  return nonceForm.test(nonce) && zeroBits(sha256(utf8(`${workPrefix(body)}${nonce}`))) >= bits;
}

function workPrefix(body: Uint8Array): string {
  return `svc:register-work:v1|${encodeHex(sha256(body))}|`;
}

function zeroBits(hash: Uint8Array): number {
  const at = hash.findIndex((byte) => byte !== 0);
  return at < 0 ? hash.length * 8 : at * 8 + Math.clz32(hash[at] as number) - 24;
}

/**
 * A nonce for a body among `count` decimal numbers from `first` on, or `null`. With n bits one of 2^n nonces does; a
 * try costs one short hash. The caller searches in slices, so that others can run in between.
 */
export function searchWork(
  body: Uint8Array,
  bits: number,
  { first, count }: { readonly first: number; readonly count: number },
): string | null {
  const prefix = workPrefix(body);
  for (let number = first; number < first + count; number++) {
    const nonce = String(number);
    if (zeroBits(sha256(utf8(`${prefix}${nonce}`))) >= bits) return nonce;
  }
  return null;
}
