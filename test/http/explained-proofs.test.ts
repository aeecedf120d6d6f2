/**
 * In development, every refusal of a signature shows what the node verified: proofs of retrieval,
 * acknowledgement, live session, and the sender's signature on an envelope. Elsewhere none does. A
 * proof for another endpoint names the right one at every node.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import type { Reader } from "../../src/client/net/reader.ts";
import { cachesOf } from "../../src/client/trust/caches.ts";
import { liveEndpoints } from "../../src/client/trust/readers.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { encodeBase64 } from "../../src/core/codec/bytes.ts";
import {
  encodeRetrievalProof,
  encodeSenderText,
  type RetrievalOperation,
} from "../../src/core/message/proof.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

const forged = encodeBase64(new Uint8Array(64).fill(1));
const group = "7f1c1f1e-8a54-4a0c-9d0e-0d5f6b1f2a3b";

let shown: TestNodes;
let silent: TestNodes;
let me: Waypost;
let reader: Reader;
let live: Reader;

beforeAll(async () => {
  [shown, silent] = await Promise.all([
    startTestNodes({}, { server: { show_signed_text: true } }),
    startTestNodes(),
  ]);
  me = await Waypost.open({ url: shown.url, keys: memoryKeys() });
  const [cache] = await cachesOf(me.client, me.identity);
  const [relay] = await liveEndpoints(me.client, me.identity);
  if (cache === undefined || relay === undefined) throw new Error("no endpoints");
  [reader, live] = [cache.reader, relay];
});
afterAll(async () => {
  await Promise.all([shown.stop(), silent.stop()]);
});

/** A proof with a wrong signature, and the text that a node verifies for it. */
function forge(of: Reader, operation: RetrievalOperation, subject: string, endpoint = of.at.url) {
  const values = { timestamp: new Date().toISOString(), nonce: crypto.randomUUID() };
  const claims = {
    operation,
    did: of.did,
    deviceId: operation === "connect" ? subject : "",
    serviceId: of.serviceId,
    endpoint,
    keyId: of.signer.keyId,
    ...values,
    subject,
  };
  const headers = {
    "X-Service-Id": of.serviceId,
    "X-Cache-Endpoint": endpoint,
    "X-Key-Id": of.signer.keyId,
    "X-Timestamp": values.timestamp,
    "X-Nonce": values.nonce,
    "X-Signature": forged,
  };
  return { text: new TextDecoder().decode(encodeRetrievalProof(claims)), headers, values };
}

type Reply = { readonly status: number; readonly body: Record<string, unknown> };

async function ask(path: string, init: RequestInit = {}): Promise<Reply> {
  const response = await fetch(`${shown.url}${path}`, init);
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
}

const post = (url: string, body: object) =>
  fetch(url, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });

describe("a refused signature is shown in development", () => {
  const reads: [RetrievalOperation, subject: string, path: string][] = [
    ["pull", "*", "/cache/messages/:did"],
    ["summary", "*", "/cache/summary/:did"],
    ["chunks", group, `/cache/chunks/:did/${group}`],
    ["pull_message", group, `/cache/message/:did/${group}`],
  ];
  for (const [operation, subject, path] of reads) {
    test(`of ${operation}`, async () => {
      const { text, headers } = forge(reader, operation, subject);
      const { status, body } = await ask(path.replace(":did", reader.did), { headers });
      expect([status, body["code"], body["signed_text"]]).toEqual([401, "proof_invalid", text]);
    });
  }

  test("of an acknowledgement", async () => {
    const { text, values } = forge(reader, "ack", group);
    const answer = await post(`${shown.url}/cache/ack`, {
      did: reader.did,
      message_ids: [group],
      service_id: reader.serviceId,
      cache_endpoint: reader.at.url,
      key_id: reader.signer.keyId,
      ...values,
      signature_b64: forged,
    });
    expect([answer.status, ((await answer.json()) as Reply["body"])["signed_text"]]).toEqual([
      401,
      text,
    ]);
  });

  test("of a live session, with its proof in headers", async () => {
    const { text, headers } = forge(live, "connect", "phone");
    const upgrade = { Upgrade: "websocket", Connection: "Upgrade", "Sec-WebSocket-Version": "13" };
    const key = { "Sec-WebSocket-Key": btoa("0123456789abcdef") };
    const { status, body } = await ask(`/ws/${me.did}/phone`, {
      headers: { ...headers, ...upgrade, ...key },
    });
    expect([status, body["code"], body["signed_text"]]).toEqual([401, "proof_invalid", text]);
  });

  test("of a live session, with its proof in the first frame", async () => {
    const { text, values } = forge(live, "connect", "phone");
    const socket = new WebSocket(`${shown.url.replace("http", "ws")}/ws/${me.did}/phone`);
    const frames: unknown[] = [];
    socket.onmessage = ({ data }) => frames.push(JSON.parse(String(data)));
    socket.onopen = () =>
      socket.send(
        JSON.stringify({
          type: "auth",
          service_id: live.serviceId,
          endpoint: live.at.url,
          key_id: live.signer.keyId,
          ...values,
          signature_b64: forged,
        }),
      );
    const code = await new Promise<number>((resolve) => {
      socket.onclose = (event) => resolve(event.code);
    });
    expect([code, frames]).toEqual([
      4401,
      [
        {
          type: "refused",
          code: "proof_invalid",
          detail: "the signature of the proof does not verify",
          signed_text: text,
        },
      ],
    ]);
  });

  for (const path of ["/relay", "/cache/store"]) {
    test(`of the sender at ${path}`, async () => {
      const envelope = {
        message_id: crypto.randomUUID(),
        to: me.did,
        timestamp: new Date().toISOString(),
        payload: { ciphertext_b64: "AAAA" },
        from: me.did,
        sender_key_id: `${me.did}#root`,
        sender_signature: forged,
      };
      const text = new TextDecoder().decode(encodeSenderText(envelope));
      const body = (await (await post(`${shown.url}${path}`, envelope)).json()) as Reply["body"];
      expect([body["code"], body["signed_text"]]).toEqual(["sender_signature_invalid", text]);
    });
  }
});

test("a proof for another endpoint is refused with the right one", async () => {
  const { headers } = forge(reader, "pull", "*", "https://cache.elsewhere");
  const { status, body } = await ask(`/cache/messages/${me.did}`, { headers });
  expect([status, body["code"]]).toEqual([403, "proof_not_authorized"]);
  expect(body["detail"]).toBe(
    `the proof is made for https://cache.elsewhere, and this node is ${shown.url}`,
  );
});

test("a node that is not in development shows nothing", async () => {
  const other = await Waypost.open({ url: silent.url, keys: memoryKeys() });
  const [cache] = await cachesOf(other.client, other.identity);
  if (cache === undefined) throw new Error("no Cache");
  const { headers } = forge(cache.reader, "pull", "*");
  const answer = await fetch(`${silent.url}/cache/messages/${other.did}`, { headers });
  const body = (await answer.json()) as Reply["body"];
  expect([answer.status, body["code"], "signed_text" in body]).toEqual([
    401,
    "proof_invalid",
    false,
  ]);
});
