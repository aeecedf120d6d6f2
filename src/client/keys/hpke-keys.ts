/**
 * The key schedule of HPKE in base mode, with HKDF-SHA256: from a shared secret and what it is bound to, to key and nonce.
 * Source: RFC 9180 sections 4 and 5.1.
 */
import { expand, extract } from "@noble/hashes/hkdf.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { concatBytes, utf8 } from "../../core/codec/bytes.ts";

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
