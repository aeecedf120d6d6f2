/**
 * The curves of the SDK, by WebCrypto and in JavaScript: both give the same keys and bytes, and
 * accept the signatures that the nodes accept, over the edge vectors.
 */
import { describe, expect, test } from "bun:test";
import { ed25519, x25519 } from "@noble/curves/ed25519.js";
import {
  ed25519PublicKey,
  signEd25519,
  verifySignature,
  x25519PublicKey,
  x25519SharedSecret,
} from "../../../../src/client/keys/crypto.ts";
import { curvesInJavaScript } from "../../../../src/client/keys/curves-fallback.ts";
import {
  isAdmissibleKey,
  verifyEd25519 as verifyAtNode,
} from "../../../../src/core/codec/crypto.ts";
import signatures from "../../../vectors/ed25519/signatures.json";

const secrets = Array.from({ length: 20 }, (_, i) =>
  crypto.getRandomValues(new Uint8Array(32)).fill(i, 0, 4),
);
const message = new TextEncoder().encode("Meet me at noon.");

describe("the curves of the SDK", () => {
  test("have the keys, signatures and shared secrets of another implementation", async () => {
    for (const secret of secrets) {
      expect(await ed25519PublicKey(secret)).toEqual(ed25519.getPublicKey(secret));
      expect(await signEd25519(message, secret)).toEqual(ed25519.sign(message, secret));
      expect(await x25519PublicKey(secret)).toEqual(x25519.getPublicKey(secret));
      const theirs = x25519.getPublicKey(secrets[0] as Uint8Array);
      expect(await x25519SharedSecret(secret, theirs)).toEqual(
        x25519.getSharedSecret(secret, theirs),
      );
      expect(await curvesInJavaScript.publicKey(secret)).toEqual(await ed25519PublicKey(secret));
      expect(await curvesInJavaScript.sign(message, secret)).toEqual(
        await signEd25519(message, secret),
      );
    }
  });

  test("refuse an agreement with a point of small order", async () => {
    const small = [new Uint8Array(32), Uint8Array.of(1, ...new Uint8Array(31))];
    for (const point of small)
      expect(x25519SharedSecret(secrets[0] as Uint8Array, point)).rejects.toThrow();
  });

  test("accept the signatures of admissible keys that nodes accept, and no others", async () => {
    for (const { class: name, signature, message: text, public_key: key } of signatures) {
      const [s, m, k] = [signature, text, key].map((hex) => Uint8Array.fromHex(hex)) as [
        Uint8Array,
        Uint8Array,
        Uint8Array,
      ];
      const expected = isAdmissibleKey(k) && verifyAtNode(s, m, k);
      expect([name, await verifySignature(s, m, k)]).toEqual([name, expected]);
      if (isAdmissibleKey(k))
        expect([name, await curvesInJavaScript.verify(s, m, k)]).toEqual([name, expected]);
    }
  });
});
