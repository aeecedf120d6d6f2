/**
 * The documentation of signed operations: every one shows the exact text of an example, and the example verifies; the
 * node's own decoders accept the proofs among them.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { decodeBase64, decodeHex, parsePublicKey, utf8 } from "../../src/core/codec/bytes.ts";
import { verifyEd25519 } from "../../src/core/codec/crypto.ts";
import { isFault } from "../../src/core/fault.ts";
import { decodeEnvelope, verifySender } from "../../src/core/message/envelope.ts";
import { decideRetrievalProof, decodeRetrievalProof, retrievalHeaders } from "../../src/core/message/proof.ts";
import { exampleDid, exampleDocument, exampleTime } from "../../src/core/schema/schema.ts";
import type { SignedExample } from "../../src/core/schema/signing.ts";
import type { DescribedOperation, InterfaceDescription } from "../../src/nodes/http/openapi.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { presented } from "../support/presented.ts";
import { limitsDefault } from "../support/settings.ts";

let nodes: TestNodes;
let description: InterfaceDescription;
let operations: DescribedOperation[];
beforeAll(async () => {
  nodes = await startTestNodes();
  description = (await (await fetch(`${nodes.url}/openapi.json`)).json()) as InterfaceDescription;
  operations = Object.values(description.paths).flatMap((methods) => Object.values(methods));
});
afterAll(() => nodes.stop());

const signedOf = (id: string): SignedExample => {
  const signed = operations.find(({ operationId }) => operationId === id)?.["x-signed-text"];
  if (signed === undefined) throw new Error(`${id} is not signed`);
  return signed;
};
const exampleMs = Date.parse(exampleTime);

describe("/openapi.json", () => {
  test("names the servers and every scheme that an operation needs", () => {
    expect(description.servers.length).toBeGreaterThan(0);
    const needed = new Set(operations.flatMap(({ security }) => (security ?? []).flatMap((one) => Object.keys(one))));
    expect([...needed].sort()).toEqual(Object.keys(description.components.securitySchemes).sort());
  });

  test("shows a signed text that verifies at every operation that is signed", () => {
    const signed = operations.filter((operation) => operation["x-signed-text"] !== undefined);
    const ids = signed.map(({ operationId }) => operationId);
    for (const id of ["register", "replace_document", "AddService", "UpdateRootPubkey", "add_alias", "set_alias"])
      expect(ids).toContain(id);
    for (const id of ["relay", "relayTo", "cacheStore", "cacheMessages", "cacheStream", "cacheAck"])
      expect(ids).toContain(id);
    for (const { operationId, security, requestBody, ...operation } of signed) {
      const { hex, text, public_key_multibase, signature_b64 } = operation["x-signed-text"] as SignedExample;
      const message = decodeHex(hex) as Uint8Array;
      const key = parsePublicKey(public_key_multibase) as Uint8Array;
      const verifies = verifyEd25519(decodeBase64(signature_b64) as Uint8Array, message, key);
      expect([operationId, verifies, security?.length !== 0]).toEqual([operationId, true, true]);
      if (text !== null) expect(utf8(text)).toEqual(message);
      // Where the body carries the signature, its example carries this one.
      const body = Object.values(requestBody?.content ?? {})[0]?.example as Record<string, unknown> | undefined;
      const carried = body?.["signature"] ?? body?.["signature_b64"];
      if (carried !== undefined) expect([operationId, carried]).toEqual([operationId, signature_b64]);
    }
  });

  test("every operation that needs the headers of a proof says what they sign", () => {
    const bare = operations.filter(
      (operation) =>
        operation.parameters.some(({ name, required }) => name === "X-Signature" && required) &&
        operation["x-signed-text"] === undefined,
    );
    expect(bare).toEqual([]);
  });

  test("the example of a retrieval is a proof that the example's document authorizes", async () => {
    const { headers = {} } = signedOf("cacheMessages");
    const values = {
      serviceId: headers["X-Service-Id"] ?? null,
      endpoint: headers["X-Cache-Endpoint"] ?? null,
      keyId: headers["X-Key-Id"] ?? null,
      timestamp: headers["X-Timestamp"] ?? null,
      nonce: headers["X-Nonce"] ?? null,
      signature: headers["X-Signature"] ?? null,
    };
    const endpoints = ["https://cache.example"];
    const names = { names: retrievalHeaders, serviceType: "SvcCacheService" } as const;
    const rule = {
      operation: "pull",
      did: exampleDid,
      deviceId: "",
      subject: "*",
      endpoints,
      skewMs: 1,
      ...names,
    } as const;
    const proof = decodeRetrievalProof(presented(retrievalHeaders, values), rule, exampleMs);
    if (isFault(proof)) throw new Error(proof.detail);
    const subject = { did: exampleDid, document: exampleDocument, deactivated: false };
    expect(isFault(await decideRetrievalProof(proof, subject))).toBe(false);
  });

  test("the example of a signed envelope is signed by its sender", async () => {
    const { body } = signedOf("cacheStore");
    const envelope = decodeEnvelope(utf8(JSON.stringify(body)), limitsDefault);
    if (isFault(envelope) || envelope.sender === null) throw new Error("not a signed envelope");
    expect(await verifySender(envelope.sender, exampleDocument)).toBe(true);
  });
});

describe("the page", () => {
  const read = async (path: string): Promise<string> => (await fetch(nodes.url + path)).text();

  test("/docs shows a request of every signed operation with its signed text, and every scheme", async () => {
    const page = await read("/docs");
    for (const scheme of Object.keys(description.components.securitySchemes)) expect(page).toContain(`id="${scheme}"`);
    for (const { operationId } of operations) expect(page).toContain(`id="${operationId}"`);
    expect(page).toContain("X-Signature: ");
    expect(page).toContain("svc:cache:retrieval-proof:v1\noperation=ack\n");
  });

  test("every problem has a remedy", async () => {
    const { problems } = (await (await fetch(`${nodes.url}/problems`)).json()) as {
      problems: Record<string, string>[];
    };
    for (const { code, remedy } of problems) expect([code, (remedy ?? "").length > 10]).toEqual([code, true]);
  });
});
