/**
 * Passes: what a Cache accepts of what a recipient gave, against a second computation and by what
 * must not pass.
 */
import { expect, test } from "bun:test";
import { createHmac } from "node:crypto";
import { utf8 } from "../../../../src/core/codec/bytes.ts";
import { sha256 } from "../../../../src/core/codec/crypto.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { dayMs } from "../../../../src/core/codec/time.ts";
import {
  isValidPass,
  makePass,
  type PassRule,
  parseShownPass,
  passName,
  passPeriod,
  showPass,
} from "../../../../src/core/message/pass.ts";

const secret = new Uint8Array(32).fill(1);
const other = new Uint8Array(32).fill(2);
const namingKey = new Uint8Array(32).fill(3);
const bob = "did:svc:bob" as Did;
const envelope = utf8('{"to":"did:svc:alice"}');
const nowMs = Date.UTC(2026, 10, 28);
const period = passPeriod(nowMs);
const pass = makePass({ secret, namingKey }, bob, period);
const rule: PassRule = { secrets: [secret], revoked: new Set() };

const accepts = (text: string | null, changed: Partial<PassRule> = {}, shownMs = nowMs) => {
  const shown = parseShownPass(text);
  return (
    shown !== null && isValidPass(shown, { ...rule, ...changed }, { envelope, nowMs: shownMs })
  );
};

test("a pass is what the documented lines say, by another implementation", () => {
  const hmac = (key: Uint8Array, ...parts: Uint8Array[]) =>
    createHmac("sha256", key).update(Buffer.concat(parts)).digest();
  const name = hmac(namingKey, utf8("did:svc:bob\n2026-Q4")).subarray(0, 6);
  const lastDay = Date.UTC(2027, 2, 31) / dayMs;
  const id = Buffer.concat([Buffer.of(lastDay >> 8, lastDay & 255), name]);
  const key = hmac(secret, utf8("svc:pass-key:v1|"), id);
  const proof = hmac(key, utf8("svc:pass:v1|"), sha256(envelope)).subarray(0, 16);
  expect(showPass(pass, envelope)).toBe(Buffer.concat([id, proof]).toString("base64url"));
  expect(passName(pass.id)).toBe(id.toString("hex"));
});

test("a pass counts for its envelope, under the secret in force and the one before", () => {
  const text = showPass(pass, envelope);
  expect(accepts(text)).toBe(true);
  expect(accepts(text, { secrets: [other, secret] })).toBe(true);
  expect(accepts(text, { secrets: [other] })).toBe(false);
  expect(accepts(showPass(pass, utf8("{}")))).toBe(false);
  expect(accepts(text, { revoked: new Set([passName(pass.id)]) })).toBe(false);
});

test("a pass counts through its last day, and its last day can't be moved", () => {
  const text = showPass(pass, envelope);
  const lastMs = period.lastDay * dayMs;
  expect(accepts(text, {}, lastMs + dayMs - 1)).toBe(true);
  expect(accepts(text, {}, lastMs + dayMs)).toBe(false);
  const later = { id: Uint8Array.of(0xff, 0xff, ...pass.id.subarray(2)), key: pass.key };
  expect(accepts(showPass(later, envelope))).toBe(false);
});

test("no changed bit of a shown pass is accepted", () => {
  const bytes = Buffer.from(showPass(pass, envelope), "base64url");
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const changed = Buffer.from(bytes);
    changed[bit >> 3] = (changed[bit >> 3] as number) ^ (1 << (bit & 7));
    expect(accepts(changed.toString("base64url"))).toBe(false);
  }
});

test.each(["", "A", "A".repeat(31), "A".repeat(33), "+".repeat(32), `${"A".repeat(31)}=`, null])(
  "%p is no pass",
  (text) => {
    expect(parseShownPass(text)).toBeNull();
  },
);

test("one person has one name a quarter, and another one the next", () => {
  const of = (person: string, at: number) =>
    passName(makePass({ secret, namingKey }, person as Did, passPeriod(at)).id).slice(4);
  const next = Date.UTC(2027, 0, 1);
  expect(of("did:svc:bob", nowMs)).toBe(of("did:svc:bob", next - 1));
  expect(of("did:svc:bob", nowMs)).not.toBe(of("did:svc:bob", next));
  expect(of("did:svc:bob", nowMs)).not.toBe(of("did:svc:carol", nowMs));
});
