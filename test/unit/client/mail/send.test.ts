/** Chunks that can be built again byte by byte, as envelopes that a node accepts. */

import { afterEach, describe, expect, jest, test } from "bun:test";
import { ed25519 } from "@noble/curves/ed25519.js";
import { ClientError, retryTemporary } from "../../../../src/client/base/failure.ts";
import { withAuthor } from "../../../../src/client/mail/content.ts";
import { buildEnvelope, chunkCount } from "../../../../src/client/mail/send.ts";
import { openPayload } from "../../../../src/client/mail/unseal.ts";
import { renderPublicKey } from "../../../../src/core/codec/bytes.ts";
import { verifyEd25519 } from "../../../../src/core/codec/crypto.ts";
import { isFault } from "../../../../src/core/fault.ts";
import type { DidDocument } from "../../../../src/core/ledger/account.ts";
import { decodeEnvelope, verifySender } from "../../../../src/core/message/envelope.ts";
import { clientCode } from "../../../support/client-code.ts";
import { content, from, plan, readerSecret, senderSeed, to } from "../../../support/send-plan.ts";
import { limitsDefault } from "../../../support/settings.ts";

function decoded(body: Uint8Array) {
  const envelope = decodeEnvelope(body, limitsDefault);
  if (isFault(envelope)) throw new Error(envelope.detail);
  return envelope;
}

describe("chunks", () => {
  test("have the same bytes when they are built again, and no two are equal", async () => {
    const chunks = await Promise.all(
      [0, 1, 2].map((i) => buildEnvelope(plan, i, content.subarray(i * 1_000, (i + 1) * 1_000))),
    );
    const again = await buildEnvelope(plan, 1, content.subarray(1_000, 2_000));
    expect(again).toEqual(chunks[1] as typeof again);
    expect(new Set(chunks.map(({ messageId }) => messageId)).size).toBe(3);
    const payloads = chunks.map(({ body }) => JSON.parse(new TextDecoder().decode(body)).payload);
    for (const member of ["ephemeral_x25519_b64", "nonce_b64"]) {
      expect(new Set(payloads.map((payload) => payload[member])).size).toBe(3);
    }
  });

  test("are envelopes that a node accepts, signed by their sender, in one group", async () => {
    const envelope = decoded((await buildEnvelope(plan, 2, content.subarray(2_000))).body);
    expect(envelope.chunk).toEqual({
      groupId: plan.id as NonNullable<typeof envelope.chunk>["groupId"],
      sequence: 2,
      total: 3,
    });
    expect([envelope.to, envelope.hint, envelope.tag, envelope.ttlMs]).toEqual([
      to,
      "chunked",
      "news",
      86_400_000,
    ]);
    const document: DidDocument = {
      id: from,
      verificationMethod: [
        {
          id: `${from}#root`,
          type: "Multikey",
          controller: from,
          publicKeyMultibase: renderPublicKey(ed25519.getPublicKey(senderSeed)),
        },
      ],
      authentication: [`${from}#root`],
      keyAgreement: [],
      service: [],
    };
    expect(
      envelope.sender !== null && (await verifySender(envelope.sender, document, verifyEd25519)),
    ).toBe(true);
  });

  test("open to their part of the data", async () => {
    const { messageId, body } = await buildEnvelope(plan, 1, content.subarray(1_000, 2_000));
    const binding = { messageId, to, chunk: { groupId: plan.id, sequence: 1, total: 3 } };
    const opened = await openPayload(
      JSON.parse(new TextDecoder().decode(body)).payload,
      binding,
      () => [readerSecret],
    );
    expect(opened.data).toEqual(content.slice(1_000, 2_000));
    expect(opened.file).toEqual({
      ...plan.file,
      mediaType: withAuthor(plan.file.mediaType, plan.sender?.did ?? null),
    });
  });

  test("an empty file and one of exactly one chunk are one envelope without a group", async () => {
    for (const sizeBytes of [0, 1_000]) {
      const single = { ...plan, file: { ...plan.file, sizeBytes } };
      expect(chunkCount(single)).toBe(1);
      const envelope = decoded((await buildEnvelope(single, 0, new Uint8Array(sizeBytes))).body);
      expect([envelope.chunk, envelope.hint]).toEqual([null, "standard"]);
    }
    expect(chunkCount({ ...plan, file: { ...plan.file, sizeBytes: 1_001 } })).toBe(2);
  });

  test("more chunks than a group may have are refused", async () => {
    expect(() => chunkCount({ file: { ...plan.file, sizeBytes: 65_536 }, chunkBytes: 1 })).toThrow(
      ClientError,
    );
  });
});

describe("repeats", () => {
  afterEach(() => {
    jest.useRealTimers();
  });
  /** Work that always fails, and how often it was tried within so many milliseconds. */
  function failing(extra: ClientError["extra"]) {
    jest.useFakeTimers();
    let attempts = 0;
    const work = async () => {
      attempts++;
      throw new ClientError("refused", "away", "away", { status: 503, ...extra });
    };
    const within = async (ms: number) => {
      for (let n = 0; n < 20; n++) await Promise.resolve();
      for (let passedMs = 0; passedMs < ms; passedMs += 250) {
        jest.advanceTimersByTime(250);
        for (let n = 0; n < 20; n++) await Promise.resolve();
      }
      return attempts;
    };
    return { work, within };
  }

  test("come after about one, two and four seconds, three times by default", async () => {
    const { work, within } = failing({});
    const ended = clientCode(() => retryTemporary(work, {}));
    expect([
      await within(250),
      await within(750),
      await within(2_000),
      await within(4_000),
    ]).toEqual([1, 2, 3, 4]);
    expect(await ended).toBe("away");
  });

  test("come no sooner than the node asks, unless it asks for more than a minute", async () => {
    const { work, within } = failing({ retryAfterMs: 60_000 });
    const asked = clientCode(() => retryTemporary(work, { retries: 1 }));
    expect([await within(59_750), await within(250)]).toEqual([1, 2]);
    expect(await asked).toBe("away");
    const patient = failing({ retryAfterMs: 61_000 });
    const ended = clientCode(() => retryTemporary(patient.work, { retries: 1 }));
    expect(await patient.within(1_000)).toBe(2);
    expect(await ended).toBe("away");
  });

  test("end at an abort, with the failure of the last attempt", async () => {
    const { work, within } = failing({ retryAfterMs: 60_000 });
    const stop = new AbortController();
    const ended = clientCode(() => retryTemporary(work, { signal: stop.signal }));
    expect(await within(0)).toBe(1);
    stop.abort();
    expect([await ended, await within(0)]).toEqual(["away", 1]);
  });
});
