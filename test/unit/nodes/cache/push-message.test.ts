/**
 * The content and the authorization of pushes: the vector of RFC 8291, and what another
 * implementation makes of them.
 */

import { expect, test } from "bun:test";
import { createECDH, randomBytes } from "node:crypto";
import { openPushKey } from "../../../../src/app/keys.ts";
import { utf8 } from "../../../../src/core/codec/bytes.ts";
import {
  deviceKey,
  encryptPush,
  parseBase64url,
  pushAuthorization,
} from "../../../../src/nodes/cache/push-message.ts";
import { openPush, vapidClaims } from "../../../support/push-service.ts";
import { scratchPaths } from "../../../support/scratch.ts";

const pathOf = scratchPaths("push-key");
const bytes = (text: string): Uint8Array => parseBase64url(text) ?? new Uint8Array(0);

// RFC 8291, section 5 and appendix A.
const p256dh =
  "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const sender =
  "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8";
const message =
  "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN";

test("the example of RFC 8291 comes out byte for byte", async () => {
  const point = bytes(sender);
  const [x, y] = [point.subarray(1, 33), point.subarray(33)].map((part) =>
    Buffer.from(part).toString("base64url"),
  );
  const jwk = { kty: "EC", crv: "P-256", x: x ?? "", y: y ?? "" };
  const how = { name: "ECDH", namedCurve: "P-256" };
  const d = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw";
  const keys = {
    publicKey: await crypto.subtle.importKey("jwk", jwk, how, true, []),
    privateKey: await crypto.subtle.importKey("jwk", { ...jwk, d }, how, true, ["deriveBits"]),
  };
  const target = {
    endpoint: "https://push.example",
    p256dh: bytes(p256dh),
    auth: bytes("BTBZMqHH6r4Tts7J_aSIgg"),
  };
  const content = utf8("When I grow up, I want to be a watermelon");
  const made = await encryptPush(target, content, {
    keys,
    salt: bytes("DGv6ra1nlYgDCS1FRnbzlw"),
    padTo: 0,
  });
  expect(made.toBase64({ alphabet: "base64url", omitPadding: true })).toBe(message);
});

test("another implementation opens every content, and all have one length", async () => {
  const pair = createECDH("prime256v1");
  pair.generateKeys();
  const auth = randomBytes(16);
  const target = {
    endpoint: "https://push.example",
    p256dh: new Uint8Array(pair.getPublicKey()),
    auth,
  };
  const lengths = new Set<number>();
  for (const text of [
    "",
    "x",
    "é".repeat(512),
    JSON.stringify({ waypost: { id: "a".repeat(64), token: "t".repeat(22) } }),
  ]) {
    const made = Buffer.from(await encryptPush(target, utf8(text)));
    expect(openPush(made, pair, auth)).toBe(text);
    lengths.add(made.length);
  }
  expect([...lengths]).toEqual([1_382]);
});

test("a key that is not on the curve is none", async () => {
  const wrong = new Uint8Array(65).fill(1);
  wrong[0] = 4;
  expect([await deviceKey(wrong), await deviceKey(new Uint8Array(3))]).toEqual([null, null]);
  expect(await deviceKey(bytes(p256dh))).not.toBeNull();
});

test("the key of a file signs for the origin of the endpoint, and stays when it is opened again", async () => {
  const file = pathOf();
  const [key, same] = await Promise.all([openPushKey(file, () => {}), openPushKey(file, () => {})]);
  const again = await openPushKey(file, () => {});
  expect([same.publicKey, again.publicKey]).toEqual([key.publicKey, key.publicKey]);
  const nowMs = Date.parse("2026-07-16T12:00:00Z");
  const claims = {
    endpoint: "https://push.example:8443/wake/1?a=b",
    contact: "mailto:a@b.example",
    nowMs,
  };
  const authorization = await pushAuthorization(again, claims);
  expect(vapidClaims(new Headers({ authorization }))).toEqual({
    key: key.publicKey,
    claims: {
      aud: "https://push.example:8443",
      exp: nowMs / 1_000 + 43_200,
      sub: "mailto:a@b.example",
    },
  });
});

test("a file with something else is refused", async () => {
  const file = pathOf();
  await Bun.write(file, "00".repeat(32));
  await expect(openPushKey(file, () => {})).rejects.toThrow("P-256");
});
