/**
 * The envelope: every rule by its vectors, the normal form byte by byte, time, ttl and the sender's
 * key.
 */

import { describe, expect, test } from "bun:test";
import { ed25519 } from "@noble/curves/ed25519.js";
import {
  decodeHex,
  decodeUtf8,
  encodeHex,
  equalBytes,
  renderPublicKey,
  utf8,
} from "../../../../src/core/codec/bytes.ts";
import { verifyEd25519 } from "../../../../src/core/codec/crypto.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { hourMs, minuteMs } from "../../../../src/core/codec/time.ts";
import { isFault } from "../../../../src/core/fault.ts";
import type { DidDocument } from "../../../../src/core/ledger/account.ts";
import {
  appliedTtlMs,
  checkEnvelopeTime,
  decodeEnvelope,
  type Envelope,
  type EnvelopeLimits,
  renderEnvelopeLimits,
  verifySender,
} from "../../../../src/core/message/envelope.ts";
import { limitsDefault } from "../../../support/settings.ts";
import invalidEnvelopes from "../../../vectors/envelope/invalid/envelopes.json";
import validEnvelopes from "../../../vectors/envelope/valid/envelopes.json";
import signedEnvelopes from "../../../vectors/envelope/valid/signed.json";

type Vector = {
  name: string;
  envelope?: Record<string, unknown>;
  text?: string;
  limits?: Partial<EnvelopeLimits>;
  facts?: Record<string, unknown>;
  code?: string;
  pointer?: string;
};
const decode = (vector: Vector) =>
  decodeEnvelope(utf8(vector.text ?? JSON.stringify(vector.envelope)), {
    ...limitsDefault,
    ...vector.limits,
  });

function accepted(outcome: Envelope | { code: string; detail: string }): Envelope {
  if (isFault(outcome)) throw new Error(`${outcome.code}: ${outcome.detail}`);
  return outcome as Envelope;
}

/** The normal form in the members of the vectors. */
const factsOf = (envelope: Envelope) => ({
  message_id: envelope.messageId,
  to: envelope.to,
  timestamp_ms: envelope.timestampMs,
  ttl_ms: envelope.ttlMs,
  delivery_hint: envelope.hint,
  tag: envelope.tag,
  payload_bytes: envelope.payloadBytes,
  header_hex: envelope.header?.toHex() ?? null,
  chunk:
    envelope.chunk === null
      ? null
      : {
          message_group_id: envelope.chunk.groupId,
          sequence_number: envelope.chunk.sequence,
          total_chunks: envelope.chunk.total,
        },
  from: envelope.sender?.from ?? null,
});

const base = (validEnvelopes as Vector[])[0]?.envelope as Record<string, unknown>;
const timeMs = Date.parse("2026-07-16T12:00:00Z");

describe("decodeEnvelope", () => {
  test.each(validEnvelopes as Vector[])("accepts $name", (vector) => {
    const envelope = accepted(decode(vector));
    if (vector.facts !== undefined) expect(factsOf(envelope)).toEqual(vector.facts as never);
  });

  test("bounds size and depth of the payload, and nothing else in it", () => {
    const members = Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`member${i}`, i]));
    const numbers = Array.from({ length: 5_000 }, (_, i) => i);
    const text = JSON.stringify({ ...base, payload: { members, numbers } });
    for (const envelope of [text, JSON.stringify(JSON.parse(text), null, 2)])
      expect(accepted(decode({ name: "wide", text: envelope })).payloadBytes).toBeGreaterThan(
        20_000,
      );
    const deep = JSON.parse("[".repeat(31) + "]".repeat(31));
    const refused = [{ payload: { deep } }, { tag: numbers }, { context: { payload: numbers } }];
    for (const change of refused) {
      const outcome = decode({ name: "bounded", envelope: { ...base, ...change } });
      expect([change, isFault(outcome) && outcome.code]).toEqual([change, "invalid_json"]);
    }
  });

  test.each(invalidEnvelopes as Vector[])("refuses $name", (vector) => {
    const outcome = decode(vector);
    expect(isFault(outcome) && outcome.code).toBe(vector.code as never);
    if (!isFault(outcome) || vector.pointer === undefined) return;
    expect(outcome.extra.errors?.map((error) => error.pointer)).toContain(vector.pointer);
  });

  test("names every broken rule at once", () => {
    const outcome = decode({
      name: "",
      envelope: { to: "x", timestamp: 1, payload: [], colour: 1 },
    });
    expect(
      isFault(outcome) && outcome.extra.errors?.map((error) => error.pointer).toSorted(),
    ).toEqual(["/colour", "/message_id", "/payload", "/timestamp", "/to"]);
  });

  test("names at once all members that an empty body lacks", () => {
    const outcome = decode({ name: "", envelope: {} });
    if (!isFault(outcome)) throw new Error("it is accepted");
    expect(outcome.detail).toBe("/message_id: is missing; 3 more in errors");
    expect(outcome.extra.errors?.toSorted((a, b) => (a.pointer < b.pointer ? -1 : 1))).toEqual(
      ["message_id", "payload", "timestamp", "to"].map((name) => ({
        pointer: `/${name}`,
        message: "is missing",
      })),
    );
    const alternates = decode({
      name: "",
      envelope: { recipient: base.to, created_at: base.timestamp },
    });
    expect(
      isFault(alternates) && alternates.extra.errors?.map(({ pointer }) => pointer).toSorted(),
    ).toEqual(["/message_id", "/payload"]);
  });

  test("bounds its report about a body of unknown members", () => {
    const names = Array.from({ length: 200 }, (_, i) => [`${i}${"x".repeat(200)}`, 1]);
    const outcome = decode({ name: "", envelope: { ...base, ...Object.fromEntries(names) } });
    expect(isFault(outcome) && JSON.stringify(outcome).length).toBeLessThan(8_000);
  });

  test("points at the parent of an unknown name that is too long to repeat", () => {
    const pointerOf = (name: string) => {
      const outcome = decode({ name: "", envelope: { ...base, [name]: 1 } });
      return isFault(outcome) ? outcome.extra.errors?.map((error) => error.pointer) : [];
    };
    expect(pointerOf(`${"x".repeat(126)}😀`)).toEqual([`/${"x".repeat(126)}😀`]);
    expect(pointerOf(`${"x".repeat(127)}😀`)).toEqual([""]);
  });

  test("keeps the bytes of the sender without a copy when the names are already normal", () => {
    const body = utf8(` ${JSON.stringify(base, null, 2)}\n`);
    expect(accepted(decodeEnvelope(body, limitsDefault)).bytes).toBe(body);
  });

  test("replaces the alternate names where they stand and nothing else", () => {
    const text = `{ "recip\\u0069ent" : "${base["to"]}", "payload": {"recipient":"€","created_at": 1.50},\n"created_at":"2026-07-16T12:00:00Z","message_id":"${base["message_id"]}","tag":"created_at\\u003a"}`;
    const envelope = accepted(decodeEnvelope(utf8(text), limitsDefault));
    expect(decodeUtf8(envelope.bytes)).toBe(
      `{ "to" : "${base["to"]}", "payload": {"recipient":"€","created_at": 1.50},\n"timestamp":"2026-07-16T12:00:00Z","message_id":"${base["message_id"]}","tag":"created_at\\u003a"}`,
    );
    expect(accepted(decodeEnvelope(envelope.bytes, limitsDefault)).bytes).toBe(envelope.bytes);
  });
});

describe("the normal form", () => {
  test.each([
    ["recipient", "to"],
    ["created_at", "timestamp"],
  ] as const)("has no %s left when only that name is the alternate one", (alternate, normal) => {
    const text = JSON.stringify(base).replace(`"${normal}"`, `"${alternate}"`);
    const envelope = accepted(decodeEnvelope(utf8(text), limitsDefault));
    expect(decodeUtf8(envelope.bytes)).toBe(JSON.stringify(base));
  });

  test("reads a sequence number of minus zero as zero", () => {
    const members = {
      ...base,
      message_group_id: base["message_id"],
      sequence_number: 7,
      total_chunks: 9,
      delivery_hint: "chunked",
    };
    const text = JSON.stringify(members).replace(":7,", ":-0,");
    const envelope = accepted(decodeEnvelope(utf8(text), limitsDefault));
    expect(Object.is(envelope.chunk?.sequence, 0)).toBe(true);
  });
});

describe("checkEnvelopeTime", () => {
  const envelope = (members: Record<string, unknown> = {}) =>
    accepted(decode({ name: "", envelope: { ...base, ...members } }));
  const codeAt = (nowMs: number, members: Record<string, unknown> = {}) =>
    checkEnvelopeTime(envelope(members), nowMs, limitsDefault)?.code ?? "in time";

  test("refuses timestamps beyond the allowed skew in the future", () => {
    expect(codeAt(timeMs - 5 * minuteMs)).toBe("in time");
    expect(codeAt(timeMs - 5 * minuteMs - 1)).toBe("envelope_invalid");
  });

  test("refuses an envelope older than its ttl, which is 24 h by default", () => {
    expect(codeAt(timeMs + 24 * hourMs - 1)).toBe("in time");
    expect(codeAt(timeMs + 24 * hourMs)).toBe("message_expired");
    expect(codeAt(timeMs + 1_000, { ttl: "1s" })).toBe("message_expired");
  });

  test("caps a ttl above the node's maximum instead of refusing it", () => {
    expect(codeAt(timeMs + 48 * hourMs - 1, { ttl: "30d" })).toBe("in time");
    expect(codeAt(timeMs + 48 * hourMs, { ttl: "30d" })).toBe("message_expired");
  });

  test("applies the smallest of request, policy and node", () => {
    const applied = (ttl: string | null, policyTtlMs: number | null) =>
      appliedTtlMs(envelope(ttl === null ? {} : { ttl }), limitsDefault, policyTtlMs);
    expect(applied(null, null)).toBe(24 * hourMs);
    expect(applied("1h", null)).toBe(hourMs);
    expect(applied("30d", null)).toBe(48 * hourMs);
    expect(applied("30d", 72 * hourMs)).toBe(48 * hourMs);
    expect(applied(null, 6_000)).toBe(6_000);
    expect(applied("1s", 6_000)).toBe(1_000);
  });
});

type Signed = {
  name: string;
  envelope: Record<string, unknown>;
  signed_text: string;
  public_key_hex: string;
};

function documentOf(signed: Signed, change: Partial<DidDocument> = {}): DidDocument {
  const id = signed.envelope["from"] as Did;
  const methodId = signed.envelope["sender_key_id"] as string;
  const publicKeyMultibase = renderPublicKey(decodeHex(signed.public_key_hex) as Uint8Array);
  const method = { id: methodId, type: "Multikey", controller: id, publicKeyMultibase };
  return {
    id,
    verificationMethod: [method],
    authentication: [methodId],
    keyAgreement: [],
    service: [],
    ...change,
  };
}

describe("the sender signature", () => {
  test.each(signedEnvelopes as Signed[])("covers the written text: $name", async (signed) => {
    const { sender } = accepted(decode({ name: "", envelope: signed.envelope }));
    if (sender === null) throw new Error("no sender");
    expect(decodeUtf8(sender.signedBytes)).toBe(signed.signed_text);
    expect(
      ed25519.verify(
        sender.signature,
        utf8(signed.signed_text),
        decodeHex(signed.public_key_hex) as Uint8Array,
      ),
    ).toBe(true);
    expect(await verifySender(sender, documentOf(signed), verifyEd25519)).toBe(true);
  });

  test("is verified beside the event loop with the key that the document gives", async () => {
    const signed = (signedEnvelopes as Signed[])[0] as Signed;
    const { sender } = accepted(decode({ name: "", envelope: signed.envelope }));
    if (sender === null) throw new Error("no sender");
    const changed = documentOf({
      ...signed,
      public_key_hex: encodeHex(ed25519.getPublicKey(new Uint8Array(32).fill(99))),
    });
    expect(await verifySender(sender, documentOf(signed), verifyEd25519)).toBe(true);
    expect(await verifySender(sender, changed, verifyEd25519)).toBe(false);
    expect(await verifySender(sender, null, verifyEd25519)).toBe(false);
  });

  test("needs a key that the sender's document lists in authentication", async () => {
    const signed = (signedEnvelopes as Signed[])[0] as Signed;
    const { sender } = accepted(decode({ name: "", envelope: signed.envelope }));
    if (sender === null) throw new Error("no sender");
    const other = "did:svc:3333333333333333333333";
    const document = documentOf(signed);
    expect(await verifySender(sender, null, verifyEd25519)).toBe(false);
    expect(await verifySender(sender, documentOf(signed, { id: other }), verifyEd25519)).toBe(
      false,
    );
    expect(
      await verifySender(sender, documentOf(signed, { authentication: [] }), verifyEd25519),
    ).toBe(false);
    expect(
      await verifySender(sender, documentOf(signed, { verificationMethod: [] }), verifyEd25519),
    ).toBe(false);
    const agreement = document.verificationMethod.map((method) => ({
      ...method,
      type: "X25519KeyAgreementKey2020",
    }));
    expect(
      await verifySender(
        sender,
        documentOf(signed, { verificationMethod: agreement }),
        verifyEd25519,
      ),
    ).toBe(false);
  });

  test("becomes invalid with any change of what it covers", async () => {
    const signed = (signedEnvelopes as Signed[])[1] as Signed;
    const changes: Record<string, unknown> = {
      message_id: "0190b3b4-0000-7000-8000-000000000002",
      to: "did:svc:3333333333333333333333",
      timestamp: "2026-07-16T12:00:00.000Z",
      ttl: "1d",
      tag: "orderz",
      sequence_number: 2,
      total_chunks: 4,
      payload: { ciphertext_b64: "aGVsbG8=", more: 1 },
      header_key_id: "other",
    };
    for (const [name, value] of Object.entries(changes)) {
      const { sender } = accepted(
        decode({ name: "", envelope: { ...signed.envelope, [name]: value } }),
      );
      expect(
        sender !== null && (await verifySender(sender, documentOf(signed), verifyEd25519)),
        name,
      ).toBe(false);
    }
  });

  test("is valid whatever the order of members and the white space", async () => {
    const signed = (signedEnvelopes as Signed[])[1] as Signed;
    const turned = Object.fromEntries(Object.entries(signed.envelope).reverse());
    const { sender } = accepted(
      decodeEnvelope(utf8(JSON.stringify(turned, null, 3)), limitsDefault),
    );
    expect(sender !== null && (await verifySender(sender, documentOf(signed), verifyEd25519))).toBe(
      true,
    );
  });
});

test("limits are answered by their names", () => {
  expect(renderEnvelopeLimits(limitsDefault)).toEqual({
    max_http_body_bytes: 26_214_400,
    max_unchunked_bytes: 16_777_216,
    max_chunk_bytes: 2_097_152,
    max_header_bytes: 4_096,
    default_ttl: "PT24H",
    max_ttl: "PT48H",
    max_clock_skew_seconds: 300,
  });
});

test("equal envelopes have equal bytes after decoding twice", () => {
  const body = utf8(JSON.stringify({ ...base, recipient: base["to"], to: undefined }));
  const first = accepted(decodeEnvelope(body, limitsDefault));
  const second = accepted(decodeEnvelope(first.bytes, limitsDefault));
  expect(equalBytes(first.bytes, second.bytes)).toBe(true);
});

describe("the payload is opaque", () => {
  const code = (payload: unknown) => {
    const members = {
      message_id: messageIdText,
      to: toText,
      timestamp: "2026-07-16T12:00:00Z",
      payload,
    };
    const decoded = decodeEnvelope(utf8(JSON.stringify(members)), limitsDefault);
    return isFault(decoded) ? decoded.code : "accepted";
  };
  const messageIdText = "0190b3b4-0000-7000-8000-000000000001";
  const toText = "did:svc:1111111111111111111111";
  const many = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, i) => [`m${i}`, i]));

  test("accepts any number of members and values inside it", () => {
    expect(code(many(300))).toBe("accepted");
    expect(code({ list: Array.from({ length: 5_000 }, (_, i) => i) })).toBe("accepted");
    expect(code({ deep: [many(1_000), { list: new Array(50_000).fill("") }] })).toBe("accepted");
  });

  test("bounds its depth, and its size outside of strings", () => {
    const nested = (depth: number): unknown => (depth === 0 ? {} : [nested(depth - 1)]);
    expect(code({ a: nested(29) })).toBe("accepted");
    expect(code({ a: nested(30) })).toBe("invalid_json");
    expect(code({ list: new Array(140_000).fill(1) })).toBe("too_large");
    expect(code({ text: "[1,2],".repeat(100_000) })).toBe("accepted");
  });

  test("counts what is inside its brackets, under each spelling of its name, and no white space around it", () => {
    const sent = (members: string) => {
      const body = `{"message_id":"${messageIdText}","to":"${toText}","timestamp":"1784203200",${members}}`;
      const decoded = decodeEnvelope(utf8(body), limitsDefault);
      return isFault(decoded) ? decoded.code : "accepted";
    };
    const spaces = " ".repeat(300_000);
    const [small, large] = [
      `{"list":[${"1,".repeat(6_000)}1]}`,
      `{"list":[${"1,".repeat(140_000)}1]}`,
    ];
    expect(sent(`"payload":${spaces}${small}${spaces}`)).toBe("accepted");
    expect(sent(`"payload"${spaces}:${small},${spaces}"ttl":"1h"`)).toBe("accepted");
    expect(sent(`"pay\\u006coad":${small}`)).toBe("accepted");
    expect(sent(`"pay\\u006coad":${large}`)).toBe("too_large");
    expect(sent(`"payload":{"a":1${spaces}}`)).toBe("too_large");
    // Another member behind it is bounded by values again.
    expect(sent(`"payload":${small},"tag":[${"1,".repeat(6_000)}1]`)).toBe("invalid_json");
  });

  test("refuses inside it what two parsers could understand differently", () => {
    const text = (payload: string) => {
      const body = `{"message_id":"${messageIdText}","to":"${toText}","timestamp":"1784203200","payload":${payload}}`;
      const decoded = decodeEnvelope(utf8(body), limitsDefault);
      return isFault(decoded) ? decoded.code : "accepted";
    };
    expect(text('{"a":1,"a":1}')).toBe("invalid_json");
    expect(text('{"b":{"__proto__":1}}')).toBe("invalid_json");
    expect(text('{"a":9007199254740993}')).toBe("envelope_invalid");
  });

  test("keeps the bounds outside of it", () => {
    const outside = {
      message_id: messageIdText,
      to: toText,
      timestamp: "1784203200",
      payload: {},
      ...many(300),
    };
    expect(isFault(decodeEnvelope(utf8(JSON.stringify(outside)), limitsDefault))).toBe(true);
    const list = `{"payload":{"list":[${"1,".repeat(9)}1]},"tag":[${"1,".repeat(4_100)}1]}`;
    const decoded = decodeEnvelope(utf8(list), limitsDefault);
    expect(isFault(decoded) && decoded.code).toBe("invalid_json");
  });
});
