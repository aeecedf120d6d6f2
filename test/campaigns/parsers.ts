/**
 * Every parser of untrusted input against mutated inputs: it answers or refuses, never throws, and
 * what it accepts survives its own round trip.
 *
 * `bun test/campaigns/parsers.ts --inputs 10000000 --seed 1` prints the figures of each parser;
 * `--only json,envelope` runs some of them.
 */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { ClientError } from "../../src/client/base/failure.ts";
import { openPayload } from "../../src/client/mail/unseal.ts";
import { parseSource } from "../../src/config/source.ts";
import { decodeHex, equalBytes, parsePublicKey, utf8 } from "../../src/core/codec/bytes.ts";
import { isAdmissibleKey } from "../../src/core/codec/crypto.ts";
import { parseJson, readJson } from "../../src/core/codec/json.ts";
import { parseDuration, parseTimestamp, renderTimestamp } from "../../src/core/codec/time.ts";
import { isFault } from "../../src/core/fault.ts";
import { decodeDidDocument, encodeDidDocument } from "../../src/core/ledger/document-codec.ts";
import { decodePayload } from "../../src/core/ledger/structures.ts";
import { decodeEnvelope } from "../../src/core/message/envelope.ts";
import { disagreement } from "../support/json-ways.ts";
import { limitsDefault } from "../support/settings.ts";
import { frameAndProofTargets } from "./parser-frames.ts";
import { attack, check, listOf, read, type Target } from "./parser-kit.ts";

const scaleSamples = readdirSync(join(import.meta.dir, "..", "vectors", "scale", "valid"))
  .flatMap((name) => Object.values(read(`scale/valid/${name}`) as Record<string, unknown>))
  .flatMap((value) =>
    typeof value === "string" && /^(0x)?[0-9a-f]{40,}$/.test(value) ? [decodeHex(value)] : [],
  )
  .filter((bytes) => bytes !== null);

const envelopeSamples = [
  "envelope/valid/envelopes.json",
  "envelope/valid/signed.json",
  "envelope/invalid/envelopes.json",
]
  .flatMap(listOf)
  .flatMap(({ envelope }) => (envelope === undefined ? [] : [utf8(JSON.stringify(envelope))]));

/** The first vector of a sealed payload: a whole message. */
const sealed = listOf("sealed/payloads.json")[0] as {
  readonly message_id: string;
  readonly to: string;
  readonly recipient_secret: string;
  readonly additional_data: string;
  readonly content_key: string;
  readonly record_cbor: string;
  readonly payload: { readonly nonce_b64: string };
};

async function opened(payload: unknown): Promise<string> {
  const secret = decodeHex(sealed.recipient_secret) as Uint8Array;
  try {
    await openPayload(payload, { messageId: sealed.message_id, to: sealed.to, chunk: null }, () => [
      secret,
    ]);
    return "accepted";
  } catch (error) {
    if (error instanceof ClientError) return `${error.code} ${error.message}`;
    throw error;
  }
}

const text = (input: Uint8Array): string => new TextDecoder().decode(input);

export const targets: readonly Target[] = [
  {
    name: "envelope",
    samples: envelopeSamples,
    run: (input) => {
      const envelope = decodeEnvelope(input, limitsDefault);
      if (isFault(envelope))
        return `${envelope.code} ${(envelope.extra.errors ?? []).map(({ pointer }) => pointer).join(" ")}`;
      const again = decodeEnvelope(envelope.bytes, limitsDefault);
      check(
        !isFault(again) && equalBytes(again.bytes, envelope.bytes),
        "an envelope decodes to itself",
      );
      return "accepted";
    },
  },
  {
    name: "json",
    samples: [...envelopeSamples, utf8('[1,2.5e3,"\\u00e9",null,true,{"a":{}}]')],
    run: (input) => {
      for (const opaque of [null, "payload"])
        check(disagreement(readJson, input, opaque) === null, "both ways of reading JSON agree");
      const value = parseJson(input);
      if (isFault(value)) return value.detail;
      check(!isFault(parseJson(utf8(JSON.stringify(value)))), "a JSON value reads back");
      return "accepted";
    },
  },
  {
    name: "document blob",
    samples: scaleSamples,
    run: (input) => {
      const document = decodeDidDocument(input);
      if (document === null) return "refused";
      check(
        decodeDidDocument(encodeDidDocument(document)) !== null,
        "a document blob encodes again",
      );
      return "accepted";
    },
  },
  {
    name: "authorization",
    samples: scaleSamples,
    run: (input) => {
      const counters = ["document", "alias", "rootPubkey", "control"] as const;
      const found = counters.filter((counter) => decodePayload(counter, input) !== null);
      return found.length === 0 ? "refused" : `accepted ${found.join(" ")}`;
    },
  },
  {
    name: "sealed payload",
    samples: [utf8(JSON.stringify(sealed.payload))],
    run: (input) => {
      const payload = parseJson(input);
      return isFault(payload) ? "not JSON" : opened(payload);
    },
  },
  {
    // Inside an authentic ciphertext, as a hostile sender makes it.
    name: "sealed record",
    oneOf: 20,
    samples: [decodeHex(sealed.record_cbor) as Uint8Array],
    run: (input) => {
      const nonce = Buffer.from(sealed.payload.nonce_b64, "base64");
      const key = decodeHex(sealed.content_key) as Uint8Array;
      const ciphertext = chacha20poly1305(key, nonce, utf8(sealed.additional_data)).encrypt(input);
      return opened({
        ...sealed.payload,
        ciphertext_b64: Buffer.from(ciphertext).toString("base64"),
      });
    },
  },
  {
    name: "configuration",
    samples: [
      utf8('[server]\nlisten = ["127.0.0.1:1"]\n[stores.main]\nplugin = "lmdb"\npath = "x"\n'),
    ],
    run: (input) => {
      const parsed = parseSource(text(input));
      return parsed.ok ? "accepted" : parsed.problem.message;
    },
  },
  {
    name: "times and keys",
    samples: [
      "2026-07-16T12:00:00Z",
      "1784203200",
      "P1DT2H",
      "1d12h",
      `z${"6Mk".repeat(14)}`,
      "0".repeat(64),
    ].map(utf8),
    run: (input) => {
      const line = text(input);
      const ms = parseTimestamp(line);
      if (ms !== null) check(parseTimestamp(renderTimestamp(ms)) === ms, "a timestamp reads back");
      const key = parsePublicKey(line);
      if (key !== null && !isFault(key)) isAdmissibleKey(key);
      return `${ms !== null} ${parseDuration(line) !== null} ${key !== null && !isFault(key)}`;
    },
  },
  ...frameAndProofTargets,
];

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      inputs: { type: "string", default: "100000" },
      seed: { type: "string", default: "1" },
      only: { type: "string" },
    },
  });
  const chosen = values.only?.split(",") ?? targets.map(({ name }) => name);
  const unknown = chosen.filter((name) => !targets.some((target) => target.name === name));
  if (unknown.length > 0) {
    console.log(
      `no such parser: ${unknown.join()}; there are ${targets.map(({ name }) => name).join()}`,
    );
    process.exit(2);
  }
  for (const target of targets.filter(({ name }) => chosen.includes(name))) {
    const startedMs = performance.now();
    const { inputs, accepted, outcomes } = await attack(
      target,
      Number(values.inputs),
      Number(values.seed),
    );
    const seconds = ((performance.now() - startedMs) / 1_000).toFixed(1);
    console.log(
      `${target.name}: ${inputs} inputs, ${accepted} accepted, ${outcomes} outcomes, 0 failures, ${seconds} s`,
    );
  }
}
