/**
 * The routes of every node, and the description of the interface: it is complete, a body as it
 * describes it is taken, and every code in it is in the catalogue.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { parseDuration } from "../../src/core/codec/time.ts";
import { faultCodes } from "../../src/core/fault.ts";
import { dashboardRoute } from "../../src/nodes/dashboard/dashboard.ts";
import type { InterfaceDescription } from "../../src/nodes/http/openapi.ts";
import type { Answer, Call } from "../../src/nodes/http/route.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { sampleOf } from "../support/samples.ts";

let nodes: TestNodes;
let description: InterfaceDescription;
beforeAll(async () => {
  nodes = await startTestNodes();
  description = (await (await fetch(`${nodes.url}/openapi.json`)).json()) as InterfaceDescription;
});
afterAll(() => nodes.stop());

const read = async (path: string): Promise<Record<string, unknown>> =>
  (await (await fetch(nodes.url + path)).json()) as Record<string, unknown>;

describe("the routes of every node", () => {
  test("health, readiness and limits answer", async () => {
    expect(await read("/healthz")).toMatchObject({ status: "ok" });
    expect(await read("/readyz")).toEqual({ status: "ready", checks: { "store main": "ok" } });
    expect(await read("/limits")).toMatchObject({
      max_http_body_bytes: 26_214_400,
      max_unchunked_bytes: 16_777_216,
      max_chunk_bytes: 2_097_152,
      max_header_bytes: 4_096,
      default_ttl: "PT24H",
      max_ttl: "PT48H",
      max_clock_skew_seconds: 300,
    });
  });

  test("a node says what it is", async () => {
    expect(await read("/node")).toMatchObject({
      roles: ["directory", "relay", "cache"],
      version: expect.stringMatching(/^\d+\.\d+\.\d+$/),
      relay_endpoints: expect.any(Array),
      cache_endpoints: [expect.any(String)],
      event_proof_key: null,
    });
  });

  test("the catalogue of refusals is complete and each code can be asked for", async () => {
    const { problems } = (await read("/problems")) as {
      problems: { code: string; status: number; title: string }[];
    };
    expect(problems.map(({ code }) => code)).toEqual([...faultCodes]);
    for (const problem of problems)
      expect(await read(`/problems/${problem.code}`)).toEqual(problem);
    expect((await fetch(`${nodes.url}/problems/nothing`)).status).toBe(404);
  });

  test("metrics count requests by route and not by path", async () => {
    await fetch(`${nodes.url}/problems/one`);
    await fetch(`${nodes.url}/problems/two`);
    const text = await (await fetch(`${nodes.url}/metrics`)).text();
    expect(text).toContain(
      'waypost_http_requests_total{method="GET",route="/problems/:code",status="404"}',
    );
    expect(text).not.toContain("/problems/one");
    expect(text).toContain("waypost_http_request_seconds_bucket");
    expect(text).toContain('waypost_mailbox_entries{store="main"} 0');
  });
});

describe("the description", () => {
  /** The endpoint tables of the interface, and the extensions. */
  const promised: readonly (readonly [method: string, path: string])[] = [
    ["post", "/register-did"],
    ["get", "/registration-status/{did}"],
    ["get", "/dids/{did}/nonces"],
    ["put", "/dids/{did}/document/proof"],
    ["put", "/dids/{did}/document/verification-methods/{methodId}"],
    ["delete", "/dids/{did}/document/verification-methods/{methodId}"],
    ["delete", "/dids/{did}/document/key-agreements/{keyAgreementId}"],
    ["put", "/dids/{did}/root-pubkey"],
    ["post", "/dids/{did}/aliases"],
    ["delete", "/dids/{did}/aliases/{alias}"],
    ["put", "/dids/{did}/alias"],
    ["put", "/dids/{did}/delivery-policy-links"],
    ["put", "/delivery-policies/personas/{personaDid}"],
    ["get", "/delivery-policies/recipients/{did}"],
    ["post", "/relay"],
    ["post", "/relay/{recipientDid}"],
    ["post", "/cache/store"],
    ["get", "/cache/messages/{did}"],
    ["post", "/cache/ack"],
    ["get", "/cache/chunks/{did}/{messageGroupId}"],
    ["post", "/register-did/prepare"],
    ["post", "/dids/{did}/prepare"],
    ["post", "/dids/{did}/document/verification-methods"],
    ["post", "/dids/{did}/document/key-agreements"],
    ["put", "/dids/{did}/document/key-agreements/{keyAgreementId}"],
    ["post", "/dids/{did}/document/services"],
    ["put", "/dids/{did}/document/services/{serviceId}"],
    ["delete", "/dids/{did}/document/services/{serviceId}"],
    ["post", "/dids/{did}/document/authentication"],
    ["delete", "/dids/{did}/document/authentication/{methodId}"],
    ["patch", "/dids/{did}/aliases/{alias}"],
    ["post", "/dids/{did}/deactivate"],
    ["delete", "/dids/{did}"],
    ["get", "/resolve/{did}"],
    ["get", "/aliases/{alias}"],
    ["put", "/delivery-policies/recipients/{did}"],
    ["get", "/submissions/{txHash}"],
    ["get", "/cache/summary/{did}"],
    ["get", "/cache/summary/{did}/{deviceId}"],
    ["get", "/cache/message/{did}/{messageId}"],
    ["get", "/healthz"],
    ["get", "/node"],
    ["get", "/readyz"],
    ["get", "/metrics"],
    ["get", "/openapi.json"],
    ["get", "/limits"],
    ["get", "/problems"],
  ];
  /** Names of path values may differ between us and the documents. */
  const anonymous = (path: string): string => path.replace(/\{[^}]+\}/g, "{}");

  test("every promised route is there", () => {
    const there = new Set(
      Object.entries(description.paths).flatMap(([path, methods]) =>
        Object.keys(methods).map((method) => `${method} ${anonymous(path)}`),
      ),
    );
    const missing = promised
      .map(([method, path]) => `${method} ${anonymous(path)}`)
      .filter((one) => !there.has(one));
    expect(missing).toEqual([]);
  });

  const operations = () =>
    Object.entries(description.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
    );

  test("every value of a path has an example that the route takes for one", async () => {
    for (const { path, method, operation } of operations()) {
      const values = operation.parameters.filter((one) => one.in === "path");
      const filled = values.reduce((text, { name, schema }) => {
        const [example = ""] = schema.examples ?? [];
        expect({ path, name, example }).not.toEqual({ path, name, example: "" });
        expect(example).toMatch(new RegExp(schema.pattern ?? "."));
        return text.replace(`{${name}}`, encodeURIComponent(example));
      }, path);
      if (method !== "get" || values.length === 0 || "101" in operation.responses) continue;
      const { status } = await fetch(nodes.url + filled);
      expect({ filled, status: [200, 401, 404].includes(status) ? "read" : status }).toEqual({
        filled,
        status: "read",
      });
    }
  });

  test("reads of the Cache require the six headers of the proof, and accept others", () => {
    const headersOf = (path: string, required: boolean): string[] =>
      (description.paths[path]?.get?.parameters ?? [])
        .filter((one) => one.in === "header" && one.required === required)
        .map((one) => one.name);
    const proof = [
      "X-Service-Id",
      "X-Cache-Endpoint",
      "X-Key-Id",
      "X-Timestamp",
      "X-Nonce",
      "X-Signature",
    ];
    const paths = Object.keys(description.paths).filter(
      (path) =>
        /^\/cache\/\w+\/\{did\}/.test(path) &&
        // Everyone may read a key bundle.
        path !== "/cache/keys/{did}" &&
        description.paths[path]?.get !== undefined,
    );
    expect(paths.length).toBe(5);
    for (const path of paths) expect(headersOf(path, true)).toEqual(proof);
    expect(headersOf("/cache/messages/{did}", false)).toEqual(["X-Device-Id"]);
  });

  test("a DeliveryResult names the copies that are kept and all that its details may hold", () => {
    type Shape = { readonly properties?: Record<string, Shape>; readonly anyOf?: readonly Shape[] };
    const { schema } =
      description.paths["/relay"]?.post?.responses["202"]?.content?.["application/json"] ?? {};
    const { cache_result, details } = (schema as Shape | undefined)?.properties ?? {};
    const receipts = cache_result?.anyOf?.flatMap((one) => Object.keys(one.properties ?? {}));
    expect(receipts).toContain("copies");
    expect(Object.keys(details?.properties ?? {}).sort()).toEqual(["channel", "deduped"]);
  });

  test("a life in short or ISO-8601 form meets the schema of an envelope, and other texts don't", () => {
    type Text = { readonly pattern: string; readonly minLength: number; readonly format: string };
    const content = description.paths["/cache/store"]?.post?.requestBody?.content;
    const { schema } = (content?.["application/json"] ?? {}) as {
      schema: { properties: Record<string, Text> };
    };
    const { ttl } = schema.properties;
    if (ttl === undefined) throw new Error("an envelope has a life");
    // What other tools call a duration is ISO-8601 alone.
    expect(["duration", "date", "time"]).not.toContain(ttl.format);
    const meets = (text: string) =>
      text.length >= ttl.minLength && new RegExp(ttl.pattern, "u").test(text);
    for (const text of ["24h", "1d12h", "1w", "90m", "3600s", "PT24H", "P1DT12H", "P1W", "PT1M30S"])
      expect([text, meets(text), parseDuration(text) !== null]).toEqual([text, true, true]);
    for (const text of ["", "24", "h", "1.5h", "P", "24H", "1h1d", "-1h", "P1M", "1 h"])
      expect([text, meets(text), parseDuration(text) !== null]).toEqual([text, false, false]);
  });

  test("every answer says what it brings, and every operation which credential it takes", () => {
    const { securitySchemes } = description.components;
    expect(description.security).toEqual([]);
    const taken = new Map<string, string>();
    for (const { operation } of operations()) {
      for (const [status, { content }] of Object.entries(operation.responses))
        if (status !== "101")
          expect([operation.operationId, status, Object.keys(content ?? {}).length]).toEqual([
            operation.operationId,
            status,
            1,
          ]);
      for (const name of operation.security.flatMap(Object.keys)) {
        expect(Object.keys(securitySchemes)).toContain(name);
        taken.set(operation.operationId, name);
      }
      const names = operation.parameters.map((one) => one.name);
      const isSigned = names.includes("X-Signature") || names.includes("Svc-Invitation");
      expect([operation.operationId, operation.security.length > 0]).toEqual([
        operation.operationId,
        isSigned,
      ]);
    }
    expect(taken.get("cacheMessages")).toBe("cacheProof");
    expect(new Set(taken.values()).size).toBe(3);
    const proof = description.paths["/dids/{did}/proof"]?.get?.responses["200"]?.content;
    expect(Object.keys(proof ?? {})).toEqual(["application/octet-stream"]);
  });

  test("operations have names of their own, and an answer", () => {
    const ids = operations().map(({ operation }) => operation.operationId);
    expect(new Set(ids).size).toBe(ids.length);
    for (const { operation } of operations()) {
      expect(Object.keys(operation.responses).some((status) => /^(2|101$)/.test(status))).toBe(
        true,
      );
    }
  });

  test("every refusal belongs to its status and to the catalogue", async () => {
    const { problems } = (await read("/problems")) as {
      problems: { code: string; status: number }[];
    };
    const statusOf = new Map(problems.map(({ code, status }) => [code, String(status)]));
    for (const { operation } of operations()) {
      for (const [status, response] of Object.entries(operation.responses)) {
        for (const code of response["x-codes"] ?? [])
          expect([code, statusOf.get(code)]).toEqual([code, status]);
      }
    }
  });

  test("a body as it is described is not refused for its shape", async () => {
    const refused: string[] = [];
    for (const { path, method, operation } of operations()) {
      const content = Object.values(operation.requestBody?.content ?? {})[0];
      if (content === undefined) continue;
      // Of the members that only one of several forms has, those of one form.
      const also = ["to", "timestamp", "document", "root_pubkey"];
      // Any action can be prepared, with the members of its own.
      const action = path.endsWith("}/prepare") ? { action: "deactivate_did" } : {};
      const example = { ...(sampleOf(content.schema, also) as object), ...action };
      const filled = path.replace(/\{([^}]+)\}/g, (_all, name: string) =>
        encodeURIComponent(valueFor(name, example)),
      );
      const response = await fetch(nodes.url + filled, {
        method: method.toUpperCase(),
        headers: { "content-type": "application/json" },
        body: JSON.stringify(example),
      });
      const { code, message } = (await response.json()) as { code?: string; message?: string };
      if (shapeCodes.has(code ?? "")) refused.push(`${method} ${filled}: ${code} ${message}`);
    }
    expect(refused).toEqual([]);
  });
});

const shapeCodes = new Set([
  "invalid_json",
  "invalid_request",
  "invalid_did",
  "path_body_mismatch",
  "action_mismatch",
  "not_found",
]);

/** The value of the path that a body must repeat. */
function valueFor(name: string, example: unknown): string {
  const body = example as Record<string, unknown>;
  if (name === "alias") return String(body["alias"] ?? body["old_alias"] ?? "alice");
  if (/(^did|Did|^tag)$/.test(name))
    return String(body["did"] ?? body["to"] ?? "did:svc:1111111111111111111111");
  const component = body["verification_method"] ?? body["key_agreement"] ?? body["service"];
  return String(
    (component as { id?: string } | undefined)?.id ?? body["id"] ?? `${String(body["did"])}#key`,
  );
}

test("a ledger that can't be read is 502 for each route of the Directory, and no other's", () => {
  const said = Object.values(description.paths).flatMap((methods) =>
    Object.values(methods).map(({ operationId, tags, responses }) => ({
      operationId,
      isOfLedger: tags.includes("Directory") || operationId === "limits",
      codes: responses["502"]?.["x-codes"] ?? [],
    })),
  );
  expect(said.some(({ isOfLedger }) => isOfLedger)).toBe(true);
  for (const { operationId, isOfLedger, codes } of said)
    expect([operationId, codes.includes("chain_unavailable")]).toEqual([operationId, isOfLedger]);
});

test("the status page runs its own script and style, and nothing else", async () => {
  const { handle } = dashboardRoute();
  const answer = (await handle({} as Call)) as Answer;
  const policy = answer.headers?.["content-security-policy"] ?? "";
  expect(policy).not.toContain("unsafe");
  const html = String(answer.body?.content);
  for (const element of ["script", "style"]) {
    const found = [...html.matchAll(new RegExp(`<${element}[^>]*>([^]*?)</${element}>`, "g"))];
    expect(found.length).toBe(1);
    const digest = new Bun.CryptoHasher("sha256").update(found[0]?.[1] ?? "").digest("base64");
    expect(policy).toContain(`${element}-src 'sha256-${digest}';`);
  }
  expect(html).not.toMatch(/ (?:style|on[a-z]+)="/);
});
