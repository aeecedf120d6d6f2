/**
 * What a fingerprint shows of one person: 100 bits of everything that somebody with a stolen key
 * would have to change. A root key that was replaced shows in the number of the base's key, a
 * method that was removed in the keys that may sign, or have signed since the base.
 * Source: docs/trust.md "Fingerprints", D560.
 */
import { sha256 } from "#sha256";
import { encodeHex, utf8 } from "../../core/codec/bytes.ts";
import { parseMethodKey } from "../../core/ledger/account.ts";
import type { KeyState } from "../../core/ledger/key-proof.ts";

/** 100 bits and 4 more, which no one sees. */
const printBytes = 13;

export function printOf(state: KeyState): Uint8Array {
  const { did, rootKeys, baseRoot } = state;
  const root = encodeHex(rootKeys.at(-1) as Uint8Array);
  const parts = [did, root, String(baseRoot), ...signersOf(state)];
  return sha256(utf8(`svc:fingerprint:v2|${parts.join("|")}`)).slice(0, printBytes);
}

/**
 * In hex, sorted, each once: the keys of `authentication`, and other keys that
 * signed a call since the base.
 */
function signersOf({ document, rootKeys, baseRoot, steps, signatures }: KeyState): string[] {
  const listed = document.verificationMethod
    .filter(({ id }) => document.authentication.includes(id))
    .map(parseMethodKey)
    .flatMap((key) => (key === null ? [] : [encodeHex(key)]));
  const calls = steps.length - 1;
  const called = signatures
    .slice(signatures.length - calls)
    .map(({ publicKey }) => encodeHex(publicKey))
    .filter((key) => key !== encodeHex(rootKeys[baseRoot] as Uint8Array));
  return [...new Set([...listed, ...called])].sort();
}
