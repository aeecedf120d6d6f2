/**
 * A text by which two people compare their keys: both see the same. 20 characters for each person, 100 bits, of its DID
 * and the root key in force.
 * Source: docs/trust.md "Fingerprints".
 */
import { sha256 } from "#sha256";
import { concatBytes, encodeBase32, utf8 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";

const digitsEach = 20;
const groupDigits = 5;

type FingerprintSubject = { readonly did: Did; readonly rootKey: Uint8Array };

/** Groups of five, the person with the lesser DID first. */
export function fingerprintOf(a: FingerprintSubject, b: FingerprintSubject): string {
  const both = a.did < b.did ? [a, b] : [b, a];
  const text = both.map(digitsOf).join("");
  return (text.match(new RegExp(`.{${groupDigits}}`, "g")) ?? []).join(" ");
}

function digitsOf({ did, rootKey }: FingerprintSubject): string {
  return encodeBase32(sha256(concatBytes(utf8(`svc:fingerprint:v1|${did}|`), rootKey))).slice(
    0,
    digitsEach,
  );
}
