/**
 * Sending: chunks that can be built again byte by byte, envelopes that a node accepts, repeats with the
 * same bytes and the agreed pauses, and chunk sets that go on where they stopped.
 */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ed25519, x25519 } from "@noble/curves/ed25519.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { findUnfinished, saveProgress } from "../../../src/cli/files/outbox.ts";
import { fileSource } from "../../../src/cli/files/source.ts";
import { ClientError, endpoint } from "../../../src/client/http.ts";
import { postEnvelope, retryingDefault } from "../../../src/client/relay.ts";
import { openPayload } from "../../../src/client/seal.ts";
import { buildEnvelope, chunkCount, groupIdOf, type SendPlan, sendPlan } from "../../../src/client/send.ts";
import type { Did } from "../../../src/core/codec/did.ts";
import { renderPublicKey } from "../../../src/core/codec/public-key.ts";
import { isFault } from "../../../src/core/fault.ts";
import type { DidDocument } from "../../../src/core/ledger/document.ts";
import { decodeEnvelope, verifySender } from "../../../src/core/message/envelope.ts";
import { limitsDefault } from "../../support/settings.ts";

const scratch = mkdtempSync(join(tmpdir(), "waypost-send-"));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

const to = "did:svc:1111111111111111111111" as Did;
const from = "did:svc:2222222222222222222222" as Did;
const secret = new Uint8Array(32).fill(4);
const seed = new Uint8Array(32).fill(5);
const content = new Uint8Array(2_500).map((_, i) => i & 0xff);
const plan: SendPlan = {
  seed: new Uint8Array(32).fill(1),
  to,
  recipient: { keyId: `${to}#x25519-1`, publicKey: x25519.getPublicKey(secret) },
  file: { name: "photo.jpg", mediaType: "image/jpeg", sizeBytes: content.length, sha256: sha256(content) },
  chunkBytes: 1_000,
  timestamp: "2026-07-16T12:00:00.000Z",
  ttl: "24h",
  tag: "news",
  hint: null,
  sender: { did: from, keyId: `${from}#root`, seed },
};
const source = { file: plan.file, read: async (a: number, b: number) => content.subarray(a, b) };

function decoded(body: Uint8Array) {
  const envelope = decodeEnvelope(body, limitsDefault);
  if (isFault(envelope)) throw new Error(envelope.detail);
  return envelope;
}

describe("chunks", () => {
  test("are the same bytes when they are built again, and no two alike", () => {
    const chunks = [0, 1, 2].map((i) => buildEnvelope(plan, i, content.subarray(i * 1_000, (i + 1) * 1_000)));
    const again = buildEnvelope(plan, 1, content.subarray(1_000, 2_000));
    expect(again).toEqual(chunks[1] as typeof again);
    expect(new Set(chunks.map(({ messageId }) => messageId)).size).toBe(3);
    const payloads = chunks.map(({ body }) => JSON.parse(new TextDecoder().decode(body)).payload);
    for (const member of ["ephemeral_x25519_b64", "nonce_b64"]) {
      expect(new Set(payloads.map((payload) => payload[member])).size).toBe(3);
    }
  });

  test("are envelopes that a node accepts, signed by their sender, in one group", () => {
    const envelope = decoded(buildEnvelope(plan, 2, content.subarray(2_000)).body);
    expect(envelope.chunk).toEqual({
      groupId: groupIdOf(plan) as NonNullable<typeof envelope.chunk>["groupId"],
      sequence: 2,
      total: 3,
    });
    expect([envelope.to, envelope.hint, envelope.tag, envelope.ttlMs]).toEqual([to, "chunked", "news", 86_400_000]);
    const document: DidDocument = {
      id: from,
      verificationMethod: [
        {
          id: `${from}#root`,
          type: "Multikey",
          controller: from,
          publicKeyMultibase: renderPublicKey(ed25519.getPublicKey(seed)),
        },
      ],
      authentication: [`${from}#root`],
      keyAgreement: [],
      service: [],
    };
    expect(envelope.sender !== null && verifySender(envelope.sender, document)).toBe(true);
  });

  test("open to the data of their place", () => {
    const { messageId, body } = buildEnvelope(plan, 1, content.subarray(1_000, 2_000));
    const binding = { messageId, to, chunk: { groupId: groupIdOf(plan), sequence: 1, total: 3 } };
    const opened = openPayload(JSON.parse(new TextDecoder().decode(body)).payload, binding, () => [secret]);
    expect(opened.data).toEqual(content.slice(1_000, 2_000));
    expect(opened.file).toEqual(plan.file);
  });

  test("an empty file and one of exactly one chunk are one envelope without a group", () => {
    for (const sizeBytes of [0, 1_000]) {
      const single = { ...plan, file: { ...plan.file, sizeBytes } };
      expect(chunkCount(single)).toBe(1);
      const envelope = decoded(buildEnvelope(single, 0, new Uint8Array(sizeBytes)).body);
      expect([envelope.chunk, envelope.hint]).toEqual([null, "standard"]);
    }
    expect(chunkCount({ ...plan, file: { ...plan.file, sizeBytes: 1_001 } })).toBe(2);
  });

  test("more chunks than a group may have are refused", () => {
    expect(() => chunkCount({ file: { ...plan.file, sizeBytes: 65_536 }, chunkBytes: 1 })).toThrow(ClientError);
  });
});

/** A Relay that answers as told, and keeps what it was sent. */
function scriptedRelay(answers: readonly { status: number; success?: boolean; code?: string }[]) {
  const bodies: Uint8Array[] = [];
  const paths: string[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: async (request) => {
      const answer = answers[Math.min(bodies.length, answers.length - 1)] ?? { status: 500 };
      bodies.push(new Uint8Array(await request.arrayBuffer()));
      paths.push(new URL(request.url).pathname);
      const { status, success = status < 300, code = success ? "cached" : "x" } = answer;
      return Response.json({ success, code, delivery_mode: "cache", message: "" }, { status });
    },
  });
  return { bodies, paths, at: endpoint(`http://127.0.0.1:${server.port}`, 5_000), stop: () => server.stop(true) };
}

describe("handing over to the Relay", () => {
  const body = new TextEncoder().encode("{}");
  const envelope = { recipient: to, body };
  const quick = { retries: 0, delaysMs: [1] };

  test("pauses are 1, 2, 4 and then 8 seconds, three times by default", () => {
    expect(retryingDefault).toEqual({ retries: 3, delaysMs: [1_000, 2_000, 4_000, 8_000] });
  });

  test("a passing failure is repeated with the same bytes", async () => {
    const relay = scriptedRelay([429, 502, 503, 507, 202].map((status) => ({ status })));
    const delays: number[] = [];
    const onRetry = (_: number, __: string, delayMs: number) => delays.push(delayMs);
    const report = await postEnvelope(relay.at, envelope, { retries: 5, delaysMs: [1, 2, 3], onRetry });
    relay.stop();
    expect(report.code).toBe("cached");
    expect(delays).toEqual([1, 2, 3, 3]);
    expect(relay.bodies).toEqual(Array.from({ length: 5 }, () => body));
    expect(relay.paths[0]).toBe(`/relay/${encodeURIComponent(to)}`);
  });

  const final: [name: string, answer: { status: number; success?: boolean; code?: string }][] = [
    ["a refusal", { status: 403, code: "policy_denied" }],
    ["an internal error", { status: 500, code: "internal_error" }],
    ["a time-out behind the Relay", { status: 504, code: "upstream_timeout" }],
    ["a 2xx that reports no success", { status: 200, success: false, code: "not_deliverable" }],
  ];
  for (const [name, answer] of final) {
    test(`${name} is not repeated`, async () => {
      const relay = scriptedRelay([answer]);
      const error = await postEnvelope(relay.at, envelope, { ...quick, retries: 3 }).catch((cause: unknown) => cause);
      relay.stop();
      expect(relay.bodies.length).toBe(1);
      expect(error instanceof ClientError ? [error.code, error.status] : error).toEqual([answer.code, answer.status]);
    });
  }

  test("without retries left the last failure is told", async () => {
    const relay = scriptedRelay([{ status: 503, code: "service_unavailable" }]);
    const error = await postEnvelope(relay.at, envelope, quick).catch((cause: unknown) => cause);
    relay.stop();
    expect(error instanceof ClientError && error.code).toBe("service_unavailable");
    const gone = await postEnvelope(relay.at, envelope, quick).catch((cause: unknown) => cause);
    expect(gone instanceof ClientError && gone.kind).toBe("unreachable");
  });

  test("an interrupted set goes on where it stopped, with the bytes it would have had", async () => {
    const relay = scriptedRelay([{ status: 202 }, { status: 403, code: "policy_denied" }, { status: 202 }]);
    const options = { relay: relay.at, retrying: quick };
    let delivered = 0;
    const onDelivered = () => {
      delivered++;
    };
    await sendPlan(plan, source, { ...options, from: 0, onDelivered }).catch(() => undefined);
    expect(delivered).toBe(1);
    const sent = await sendPlan(plan, source, { ...options, from: delivered, onDelivered });
    relay.stop();
    expect([sent.chunks, sent.messageIds.length, delivered]).toEqual([3, 2, 3]);
    expect(relay.bodies[2]).toEqual(relay.bodies[1] as Uint8Array);
  });
});

describe("the state of a set on its way", () => {
  const nowMs = Date.parse(plan.timestamp) + 1_000;

  test("is found again for the same file, recipient and sender, and for no other", async () => {
    const folder = join(scratch, "outbox");
    await saveProgress(folder, plan, 2);
    const wanted = { ...plan, seed: new Uint8Array(32), timestamp: "2026-07-16T12:00:30.000Z" };
    const found = await findUnfinished(folder, wanted, nowMs);
    expect(found?.delivered).toBe(2);
    const resumed = { ...(found?.plan ?? plan), sender: plan.sender };
    expect(buildEnvelope(resumed, 2, content.subarray(2_000))).toEqual(buildEnvelope(plan, 2, content.subarray(2_000)));
    const others: SendPlan[] = [
      { ...wanted, to: from },
      { ...wanted, sender: null },
      { ...wanted, chunkBytes: 999 },
      { ...wanted, tag: null },
      { ...wanted, file: { ...plan.file, sha256: new Uint8Array(32) } },
      { ...wanted, recipient: { ...plan.recipient, keyId: `${plan.to}#other` } },
    ];
    for (const other of others) expect(await findUnfinished(folder, other, nowMs)).toBeNull();
    // A recipient that has replaced its key holds the old secret: the set goes on as it began, byte for byte.
    const rotated = { ...wanted, recipient: { ...plan.recipient, publicKey: new Uint8Array(32) } };
    expect((await findUnfinished(folder, rotated, nowMs))?.plan.recipient).toEqual(plan.recipient);
  });

  test("is thrown away when its messages have expired", async () => {
    const folder = join(scratch, "expired");
    await saveProgress(folder, plan, 2);
    expect(await findUnfinished(folder, plan, nowMs + 25 * 3_600_000)).toBeNull();
    expect(readdirSync(folder)).toEqual([]);
  });
});

describe("a file to send", () => {
  test("is measured and hashed, and read by ranges", async () => {
    const path = join(scratch, "photo.jpg");
    writeFileSync(path, content);
    const { file, read } = await fileSource(path, "image/jpeg");
    expect(file).toEqual(plan.file);
    expect(await read(1_000, 2_000)).toEqual(content.slice(1_000, 2_000));
    writeFileSync(path, content.subarray(1));
    const error = await read(0, 10).catch((cause: unknown) => cause);
    expect(error instanceof ClientError && error.code).toBe("file_changed");
  });
  test("must be a file", async () => {
    for (const path of [join(scratch, "absent"), scratch]) {
      const error = await fileSource(path, "").catch((cause: unknown) => cause);
      expect(error instanceof ClientError && error.code).toBe("no_file");
    }
  });
});
