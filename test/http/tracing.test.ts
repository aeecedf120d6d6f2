/**
 * Traces: the variables, one span for each of the five statements below the span of the request, the caller's trace in
 * requests of the Relay, and a collector that is away.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { ed25519 } from "@noble/curves/ed25519.js";
import { encodeBase64, renderPublicKey, utf8 } from "../../src/core/codec/bytes.ts";
import { createTracer, tracingSettings } from "../../src/nodes/http/tracing.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

type Span = {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
};
type Export = {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly { key: string; value: { stringValue: string } }[] };
    readonly scopeSpans: readonly { readonly spans: readonly Span[] }[];
  }[];
};

const received: Span[] = [];
const services = new Set<string>();
/** Takes OTLP over HTTP in JSON, as a collector does. */
const collector = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  routes: {
    "/v1/traces": {
      POST: async (request) => {
        if (request.headers.get("content-type") !== "application/json") return new Response(null, { status: 415 });
        for (const { resource, scopeSpans } of ((await request.json()) as Export).resourceSpans) {
          for (const { key, value } of resource.attributes) if (key === "service.name") services.add(value.stringValue);
          received.push(...scopeSpans.flatMap(({ spans }) => spans));
        }
        return Response.json({ partialSuccess: {} });
      },
    },
  },
});
afterAll(() => collector.stop(true));

/** What an inbox of a recipient was sent. */
const inboxHeaders: Headers[] = [];
const inbox = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  fetch: (request) => {
    inboxHeaders.push(request.headers);
    return new Response(null, { status: 202 });
  },
});
afterAll(() => inbox.stop(true));

describe("a node with a collector", () => {
  const variables = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SERVICE_NAME", "OTEL_TRACES_SAMPLER_ARG"] as const;
  let nodes: TestNodes;
  let did = "did:svc:traceTesttraceTest2222";
  beforeAll(async () => {
    process.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = `http://127.0.0.1:${collector.port}`;
    process.env["OTEL_SERVICE_NAME"] = "waypost-test";
    // Only requests whose caller asks for it.
    process.env["OTEL_TRACES_SAMPLER_ARG"] = "0";
    nodes = await startTestNodes();
    for (const name of variables) delete process.env[name];
    await register();
  });
  afterAll(() => nodes.stop());
  afterEach(() => {
    received.length = 0;
  });

  const post = (path: string, body: unknown, headers: Record<string, string> = {}): Promise<Response> =>
    fetch(nodes.url + path, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(body),
    });

  const seed = ed25519.utils.randomSecretKey();
  const traceId = "0af7651916cd43dd8448eb211c80319c";
  const traceparent = `00-${traceId}-b7ad6b7169203331-01`;

  async function register(): Promise<void> {
    const headers = { traceparent };
    const timestamp = new Date().toISOString();
    const service = (name: string, type: string, endpoint: string) => ({
      id: `${did}#${name}`,
      type,
      serviceEndpoint: [endpoint],
      authorization: [`${did}#root`],
    });
    const publicKeyMultibase = renderPublicKey(ed25519.getPublicKey(seed));
    const did_document = {
      id: did,
      verificationMethod: [{ id: `${did}#root`, type: "Multikey", controller: did, publicKeyMultibase }],
      authentication: [`${did}#root`],
      service: [
        service("inbox", "SvcInboxService", `http://127.0.0.1:${inbox.port}`),
        service("cache", "SvcCacheService", nodes.url),
      ],
    };
    const signature = encodeBase64(ed25519.sign(utf8(`${did}|${timestamp}`), seed));
    expect((await post("/register-did", { did, timestamp, signature, did_document }, headers)).status).toBe(202);
    for (;;) {
      const status = (await (await fetch(`${nodes.url}/registration-status/${did}`)).json()) as { registered: boolean };
      if (status.registered) return;
      await Bun.sleep(20);
    }
  }

  const envelope = () => ({
    message_id: crypto.randomUUID(),
    to: did,
    timestamp: new Date().toISOString(),
    payload: {},
  });

  async function spansOf(name: string): Promise<Span[]> {
    for (let i = 0; i < 200; i++) {
      const root = received.find((span) => span.name === name);
      if (root !== undefined) return [root, ...received.filter(({ parentSpanId }) => parentSpanId === root.spanId)];
      await Bun.sleep(20);
    }
    throw new Error(`no span ${name}: ${received.map((span) => span.name).join(", ")}`);
  }

  test.each(["/cache/store", "/relay", "/register-did"])(
    "%s has one span for each of the five statements",
    async (path) => {
      if (path !== "/register-did") expect((await post(path, envelope(), { traceparent })).ok).toBe(true);
      else {
        did = "did:svc:traceTesttraceTest3333";
        await register();
      }
      const [root, ...stages] = await spansOf(`POST ${path}`);
      expect(root).toMatchObject({ traceId, parentSpanId: "b7ad6b7169203331" });
      expect(stages.map(({ name }) => name)).toEqual(["decode", "gather", "decide", "commit", "render"]);
      for (const [i, stage] of stages.entries()) {
        expect(BigInt(stage.endTimeUnixNano) >= BigInt(stage.startTimeUnixNano)).toBe(true);
        if (i > 0) expect(stage.startTimeUnixNano).toBe(stages[i - 1]?.endTimeUnixNano ?? "");
        expect(stage.traceId).toBe(traceId);
      }
      expect(Math.abs(Number(BigInt(root?.startTimeUnixNano ?? 0) / 1_000_000n) - Date.now())).toBeLessThan(30_000);
      expect([...services]).toEqual(["waypost-test"]);
    },
  );

  test("the Relay passes the trace on, as the parent of what the destination does", async () => {
    inboxHeaders.length = 0;
    expect((await post("/relay", envelope(), { traceparent })).ok).toBe(true);
    const [root] = await spansOf("POST /relay");
    expect(inboxHeaders.map((headers) => headers.get("traceparent"))).toEqual([`00-${traceId}-${root?.spanId}-01`]);
  });

  test("a request without a trace, or that asks for none, has none", async () => {
    inboxHeaders.length = 0;
    await post("/relay", envelope());
    await post("/relay", envelope(), { traceparent: traceparent.replace(/01$/, "00") });
    expect(inboxHeaders.map((headers) => headers.get("traceparent"))).toEqual([null, null]);
    await Bun.sleep(1_200);
    expect(received).toEqual([]);
  });
});

test("what a collector does not take is dropped and counted, within bounds, and said once", async () => {
  const lines: string[] = [];
  const tracer = createTracer(
    { url: "http://127.0.0.1:1/v1/traces", headers: {}, serviceName: "x", sampledShare: 1 },
    { version: "0", now: Date.now, log: (_level, message) => lines.push(message) },
  );
  for (let i = 0; i < 3_000; i++) tracer.begin("/x", "GET", new Headers())?.end(200);
  await tracer.close();
  expect(tracer.dropped()).toBeGreaterThan(900);
  expect(lines).toEqual(["the trace collector does not answer"]);
});

describe("a collector that takes connections and never answers", () => {
  const held: { end(): unknown }[] = [];
  const silent = Bun.listen({
    hostname: "127.0.0.1",
    port: 0,
    socket: { open: (socket) => void held.push(socket), data: () => {} },
  });
  afterAll(() => {
    for (const socket of held) socket.end();
    silent.stop(true);
  });

  test("delays no request and not the end of the node, and what it does not take is counted", async () => {
    process.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = `http://127.0.0.1:${silent.port}`;
    const nodes = await startTestNodes({
      server: { listen: ["127.0.0.1:0"] },
      stores: { main: { plugin: "memory" } },
      directory: { enabled: true },
    });
    delete process.env["OTEL_EXPORTER_OTLP_ENDPOINT"];
    let slowestMs = 0;
    const ask = async (): Promise<void> => {
      const beganMs = performance.now();
      expect((await fetch(`${nodes.url}/limits`)).status).toBe(200);
      slowestMs = Math.max(slowestMs, performance.now() - beganMs);
    };
    // More than may wait: 2,048 spans, and 512 that are on their way.
    for (let i = 0; i < 60; i++) await Promise.all(Array.from({ length: 50 }, ask));
    const dropped = async () =>
      Number(/^waypost_trace_spans_dropped (\d+)$/m.exec(await (await fetch(`${nodes.url}/metrics`)).text())?.[1]);
    // Spans go out once a second.
    for (let i = 0; i < 100 && held.length === 0; i++) await Bun.sleep(50);
    expect(held.length).toBe(1);
    expect(await dropped()).toBeGreaterThan(300);
    expect(slowestMs).toBeLessThan(4_000);
    const beganMs = performance.now();
    await nodes.stop();
    expect(performance.now() - beganMs).toBeLessThan(4_000);
  }, 60_000);
});

describe("the variables", () => {
  test.each([
    [{}, null],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: "http://c:4318", OTEL_SDK_DISABLED: "true" }, null],
    [
      { OTEL_EXPORTER_OTLP_ENDPOINT: "nowhere" },
      "OTEL_EXPORTER_OTLP_ENDPOINT: nowhere/v1/traces is not an http or https URL",
    ],
    [
      { OTEL_EXPORTER_OTLP_ENDPOINT: "http://c:4317", OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" },
      "OTEL_EXPORTER_OTLP_PROTOCOL: only http/json is supported, not grpc",
    ],
    [
      { OTEL_EXPORTER_OTLP_ENDPOINT: "http://c", OTEL_TRACES_SAMPLER_ARG: "2" },
      "OTEL_TRACES_SAMPLER_ARG: must be from 0 to 1",
    ],
  ])("%j", (env, settings) => expect(tracingSettings(env)).toEqual(settings));

  test("name the collector, its headers and the share", () => {
    const env = {
      OTEL_EXPORTER_OTLP_ENDPOINT: "http://c:4318/",
      OTEL_EXPORTER_OTLP_HEADERS: "authorization=Bearer%20x,a=b",
      OTEL_TRACES_SAMPLER_ARG: "0.25",
    };
    expect(tracingSettings(env)).toEqual({
      url: "http://c:4318/v1/traces",
      headers: { authorization: "Bearer x", a: "b" },
      serviceName: "waypost",
      sampledShare: 0.25,
    });
  });

  test("of a caller's trace must have the form, else the request begins a trace", async () => {
    const settings = { url: "http://127.0.0.1:1/v1/traces", headers: {}, serviceName: "x", sampledShare: 1 };
    const tracer = createTracer(settings, { version: "0", now: Date.now, log: () => {} });
    const traceOf = (traceparent: string | null) => {
      const headers = new Headers(traceparent === null ? {} : { traceparent });
      return tracer.begin("/x", "GET", headers)?.traceparent.split("-")[1];
    };
    const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const trace = "0af7651916cd43dd8448eb211c80319c";
    expect(traceOf(good)).toBe(trace);
    expect(traceOf(good.replace(/01$/, "00"))).toBeUndefined();
    const bad = [
      null,
      "",
      "x",
      good.toUpperCase(),
      good.replace("0af7651916cd43dd8448eb211c80319c", "0".repeat(32)),
      `ff${good.slice(2)}`,
    ];
    for (const text of bad) expect(traceOf(text)).toMatch(/^(?!0af7|0{32})[0-9a-f]{32}$/);
    await tracer.close();
  });
});
