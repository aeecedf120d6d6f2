/**
 * The opener of the second version under mutation: it opens what was sealed or refuses with a code,
 * and throws nothing else. `INPUTS=100000 bun test test/property/hybrid.test.ts` is the long form.
 */
import { expect, test } from "bun:test";
import { ClientError } from "../../src/client/base/failure.ts";
import { recordReader } from "../../src/client/mail/unseal.ts";
import { openHybrid } from "../../src/client/mail/unseal-hybrid.ts";
import { chunkPlaceOf } from "../../src/client/net/caches.ts";
import { utf8 } from "../../src/core/codec/bytes.ts";
import { type JsonObject, parseJson } from "../../src/core/codec/json.ts";
import { isFault } from "../../src/core/fault.ts";
import { padRecord, unpadRecord } from "../../src/core/message/sealed.ts";
import { attack, check } from "../campaigns/parser-kit.ts";
import vectors from "../vectors/sealed/hybrid.json";

const opening = vectors.envelopes.filter(({ opens }) => opens !== null);
const seed = Uint8Array.fromHex(vectors.keys[0]?.seed ?? "");
const keyId = vectors.keys[0]?.key_id;

async function opened(envelope: JsonObject): Promise<string> {
  const to = String(envelope["to"] ?? envelope["recipient"]);
  const binding = { messageId: String(envelope["message_id"]), to, chunk: chunkPlaceOf(envelope) };
  const seedsOf = (id: string) => (id === keyId ? [seed] : []);
  try {
    const { data } = await openHybrid(envelope, { binding, seedsOf, reader: recordReader });
    const hex = data.toHex();
    check(
      opening.some(({ opens }) => opens?.data === hex),
      "nothing opens that was not sealed",
    );
    return "accepted";
  } catch (error) {
    if (error instanceof ClientError) return error.code;
    throw error;
  }
}

const inputs = Number(process.env["INPUTS"] ?? 5_000);

test(`${inputs} envelopes, mutated`, async () => {
  const figures = await attack(
    {
      name: "hybrid envelope",
      samples: opening.map(({ envelope }) => utf8(JSON.stringify(envelope))),
      run: (input) => {
        const value = parseJson(input);
        if (isFault(value) || typeof value !== "object" || value === null || Array.isArray(value))
          return "not an object";
        return opened(value);
      },
    },
    inputs,
    1,
  );
  expect(figures.accepted).toBeGreaterThan(0);
}, 600_000);

test("any bytes unpad to what was padded, or to nothing", async () => {
  const figures = await attack(
    {
      name: "padding",
      samples: [new Uint8Array([1, 0x80, 0, 0]), new Uint8Array(40), new Uint8Array([0x80])],
      run: (input) => {
        const record = unpadRecord(input);
        if (record === null) return "no mark";
        check(
          unpadRecord(padRecord(record, Number.POSITIVE_INFINITY))?.toHex() === record.toHex(),
          "it pads to what unpads to it",
        );
        return "accepted";
      },
    },
    100_000,
    1,
  );
  expect([figures.inputs, figures.accepted > 0]).toEqual([100_000, true]);
});
