/**
 * The HTTP pipeline without a socket: routing, decoding of path values, the two renderings of refusals, bodies
 * under their cap, capacity, the mapping of failures, and what log and metrics hold.
 */
import { describe, expect, test } from "bun:test";
import { fault } from "../../../../src/core/fault.ts";
import { clientAddress, isProxyNetwork } from "../../../../src/core/message/client-address.ts";
import { createLog, maskAddress } from "../../../../src/nodes/http/log.ts";
import { createMetrics } from "../../../../src/nodes/http/metrics.ts";
import type { Route } from "../../../../src/nodes/http/route.ts";
import { StoreError } from "../../../../src/storage/contract.ts";
import { testApp, testLimits, testRoute } from "../../../support/app.ts";

const echo: Route = testRoute({ path: "/things/:id", handle: (call) => ({ status: 200, json: call.params }) });
const take: Route = testRoute({
  method: "POST",
  path: "/things",
  bodyBytesMax: 100,
  handle: (call) => ({ status: 200, json: { bytes: call.body.length, requestId: call.requestId } }),
});
const relay: Route = testRoute({
  method: "POST",
  path: "/relay",
  bodyBytesMax: 100,
  faults: "delivery",
  handle: () => fault("policy_denied", "no"),
});

const json = { "content-type": "application/json" };
const post = (body: BodyInit, headers: Record<string, string> = json): RequestInit => ({
  method: "POST",
  body,
  headers,
});

async function codeOf(response: Response): Promise<string> {
  return ((await response.json()) as { code: string }).code;
}

describe("routing", () => {
  test("a path value is percent-decoded exactly once", async () => {
    const { ask } = testApp([echo]);
    expect(await (await ask("/things/did%3Asvc%3aabc%252F")).json()).toEqual({ id: "did:svc:abc%2F" });
  });

  test("an encoded slash or NUL reaches the handler and matches no other route", async () => {
    const { ask } = testApp([echo, testRoute({ path: "/things/:id/more", handle: () => ({ status: 204 }) })]);
    expect(await (await ask("/things/a%2Fmore")).json()).toEqual({ id: "a/more" });
    expect(await (await ask("/things/a%00")).json()).toEqual({ id: "a\0" });
  });

  test("an escape that is no UTF-8 is invalid_request", async () => {
    const { ask } = testApp([echo]);
    for (const value of ["%ff", "%", "%zz", "a%C3"])
      expect(await codeOf(await ask(`/things/${value}`))).toBe("invalid_request");
  });

  test("an unknown path is not_found as problem+json", async () => {
    const { ask } = testApp([echo]);
    const response = await ask("/nothing", { headers: { "x-request-id": "abc.1" } });
    expect(response.status).toBe(404);
    expect(response.headers.get("content-type")).toBe("application/problem+json");
    expect(await response.json()).toEqual({
      type: "/problems/not_found",
      title: "No such resource",
      status: 404,
      detail: "there is no such route",
      code: "not_found",
      request_id: "abc.1",
      error: "not_found",
      message: "there is no such route",
    });
  });

  test("a wrong method is 405 and names the allowed ones", async () => {
    const { ask } = testApp([echo, take]);
    const response = await ask("/things/x", { method: "DELETE" });
    expect([response.status, response.headers.get("allow"), await codeOf(response)]).toEqual([
      405,
      "GET, HEAD",
      "method_not_allowed",
    ]);
    expect((await ask("/things")).headers.get("allow")).toBe("POST");
  });

  test("a trailing slash is another path", async () => {
    const { ask } = testApp([take]);
    expect((await ask("/things/", post("{}"))).status).toBe(404);
  });

  test("everything under /relay is refused with a DeliveryResult", async () => {
    const { ask } = testApp([relay]);
    for (const [path, init, code, status] of [
      ["/relay", post("{}"), "policy_denied", 403],
      ["/relay", {}, "method_not_allowed", 405],
      ["/relay/a/b/c", {}, "not_found", 404],
      ["/relay", post("{}", {}), "unsupported_media_type", 415],
    ] as const) {
      const response = await ask(path, init);
      const body = (await response.json()) as Record<string, unknown>;
      expect(response.status).toBe(status);
      expect(body).toMatchObject({ success: false, delivery_mode: "failed", http_status: status, code, ndr: null });
      expect(Object.keys(body)).toHaveLength(10);
    }
  });

  test("HEAD answers as GET without a body", async () => {
    const { ask } = testApp([echo]);
    const response = await ask("/things/a", { method: "HEAD" });
    expect([response.status, await response.text()]).toEqual([200, ""]);
  });
});

describe("bodies", () => {
  const { ask } = testApp([take, echo]);

  test.each([
    ["too many bytes", "x".repeat(101), json, "too_large"],
    ["no content type", "{}", {}, "unsupported_media_type"],
    ["another content type", "{}", { "content-type": "text/plain" }, "unsupported_media_type"],
    ["another charset", "{}", { "content-type": "application/json; charset=latin1" }, "unsupported_media_type"],
    ["a content encoding", "{}", { ...json, "content-encoding": "gzip" }, "unsupported_media_type"],
  ])("a body with %s is refused and ends the connection", async (_name, body, headers, code) => {
    const response = await ask("/things", post(body, headers));
    expect(await codeOf(response)).toBe(code);
    expect(response.headers.get("connection")).toBe("close");
  });

  test("a streamed body counts as it arrives", async () => {
    const pieces = (count: number): ReadableStream =>
      new ReadableStream({
        start(controller) {
          for (let i = 0; i < count; i++) controller.enqueue(new Uint8Array(50));
          controller.close();
        },
      });
    expect(await (await ask("/things", post(pieces(2)))).json()).toMatchObject({ bytes: 100 });
    expect(await codeOf(await ask("/things", post(pieces(3))))).toBe("too_large");
  });

  test("a body that stalls is refused at the deadline", async () => {
    const slow = testApp([take], { limits: { ...testLimits, bodyDeadlineMs: 20 } });
    const response = await slow.ask("/things", post(new ReadableStream({ start: () => undefined })));
    expect(await codeOf(response)).toBe("invalid_request");
  });

  test("parameters of the content type are taken when they say UTF-8", async () => {
    for (const type of ["application/json; charset=utf-8", "Application/JSON;charset=UTF-8", "application/json;"]) {
      expect((await ask("/things", post("{}", { "content-type": type }))).status).toBe(200);
    }
  });

  test("no body at all needs no content type", async () => {
    expect((await ask("/things", { method: "POST" })).status).toBe(200);
  });

  test("a body on a route without one is refused", async () => {
    const route = testApp([testRoute({ method: "DELETE", path: "/x", handle: () => ({ status: 204 }) })]);
    expect(await codeOf(await route.ask("/x", { method: "DELETE", body: "{}", headers: json }))).toBe(
      "invalid_request",
    );
  });
});

describe("failures", () => {
  const throwing = (error: unknown, parts: Partial<Route> = {}): Route =>
    testRoute({
      path: "/x",
      handle: () => {
        throw error;
      },
      ...parts,
    });

  test.each([
    ["an unreachable store", new StoreError("unavailable", "/srv/secret"), {}, 503, "service_unavailable"],
    [
      "an unreachable ledger",
      new StoreError("unavailable", "no"),
      { unavailable: "chain_unavailable" },
      502,
      "chain_unavailable",
    ],
    ["a full store", new StoreError("full", "no"), {}, 507, "storage_full"],
    ["a closed store", new StoreError("closed", "no"), {}, 503, "shutting_down"],
    ["a corrupt store", new StoreError("corrupt", "/srv/secret"), {}, 500, "internal_error"],
    ["a bug", new TypeError("secret of 10.0.0.1"), {}, 500, "internal_error"],
  ] as const)("%s has its one code", async (_name, error, parts, status, code) => {
    const { ask } = testApp([throwing(error, parts)]);
    const response = await ask("/x");
    const text = await response.text();
    expect(response.status).toBe(status);
    expect(JSON.parse(text)).toMatchObject({ code });
    expect(text).not.toContain("secret");
  });

  test("a bug is logged with its stack and the request id", async () => {
    const { ask, lines } = testApp([throwing(new TypeError("boom"))]);
    await ask("/x", { headers: { "x-request-id": "the-id" } });
    const line = lines.find((one) => one.level === "error");
    expect(line?.fields).toMatchObject({ request_id: "the-id", route: "/x" });
    expect(String(line?.fields["error"])).toContain("pipeline.test.ts");
  });

  test("a handler that rejects later is a bug as well", async () => {
    const { ask } = testApp([testRoute({ path: "/x", handle: async () => Promise.reject(new Error("late")) })]);
    expect((await ask("/x")).status).toBe(500);
  });
});

describe("capacity", () => {
  const gate = () => {
    const opened = Promise.withResolvers<void>();
    const hold = testRoute({ path: "/hold", handle: () => opened.promise.then(() => ({ status: 200 })) });
    const ack = testRoute({ path: "/ack", capacity: "reserved", handle: () => ({ status: 200 }) });
    return { open: opened.resolve, routes: [hold, ack] };
  };

  test("over capacity a request is refused late, with Retry-After, while the reserved capacity is left", async () => {
    const { open, routes } = gate();
    const { ask } = testApp(routes, { limits: { ...testLimits, requestsMax: 1, refusalDelayMs: 40 } });
    const first = ask("/hold");
    const startedMs = performance.now();
    const refused = await ask("/hold");
    expect(performance.now() - startedMs).toBeGreaterThanOrEqual(35);
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([503, "1"]);
    expect((await ask("/ack")).status).toBe(200);
    open();
    expect((await first).status).toBe(200);
    expect((await ask("/hold")).status).toBe(200);
  });

  test("when too many refusals are held back, the next is instant and ends the connection", async () => {
    const { open, routes } = gate();
    const limits = { ...testLimits, requestsMax: 1, delayedRefusalsMax: 1, refusalDelayMs: 5_000 };
    const { ask } = testApp(routes, { limits });
    void ask("/hold");
    void ask("/hold");
    const refused = await ask("/hold");
    expect([refused.status, refused.headers.get("connection")]).toEqual([503, "close"]);
    open();
  });

  test("one client network has at most half of the requests in work, and others go on", async () => {
    const { open, routes } = gate();
    const { ask } = testApp(routes, { ...proxied, limits: { ...testLimits, requestsMax: 4 } });
    const as = (client: string) => ask("/hold", { headers: { "x-forwarded-for": client } });
    const begun = [as("2001:db8::1"), as("2001:db8::2")];
    expect((await as("2001:db8::3")).status).toBe(503);
    begun.push(as("2001:db8:0:1::1"));
    open();
    for (const one of begun) expect((await one).status).toBe(200);
    expect((await as("2001:db8::3")).status).toBe(200);
  });

  const proxied = { trustedProxies: ["192.0.2.7"] };
  const postAs = (client: string, size: number): RequestInit =>
    post("x".repeat(size), { ...json, "x-forwarded-for": client });

  test("bodies in flight are bounded in bytes, for one client to half of them, and given back", async () => {
    const opened = Promise.withResolvers<void>();
    const handle = () => opened.promise.then(() => ({ status: 200 }));
    const hold = testRoute({ method: "POST", path: "/hold", bodyBytesMax: 100, handle });
    const { ask, app } = testApp([hold], { ...proxied, limits: { ...testLimits, bodyBytesMax: 250 } });
    const begun = [ask("/hold", postAs("192.0.2.1", 100))];
    while (app.inFlight().bodyBytes < 100) await Bun.sleep(1);
    expect((await ask("/hold", postAs("192.0.2.1", 30))).status).toBe(503);
    begun.push(ask("/hold", postAs("192.0.2.2", 100)));
    while (app.inFlight().bodyBytes < 200) await Bun.sleep(1);
    expect((await ask("/hold", postAs("192.0.2.3", 60))).status).toBe(503);
    opened.resolve();
    for (const one of begun) expect((await one).status).toBe(200);
    expect(app.inFlight()).toEqual({ requests: 0, reading: 0, bodyBytes: 0, delayedRefusals: 0 });
    expect((await ask("/hold", postAs("192.0.2.1", 100))).status).toBe(200);
  });

  test("bodies of reserved capacity have a bound of their own", async () => {
    const opened = Promise.withResolvers<void>();
    const handle = () => opened.promise.then(() => ({ status: 200 }));
    const shared = { method: "POST", bodyBytesMax: 100, handle } as const;
    const routes = [
      testRoute({ path: "/hold", ...shared }),
      testRoute({ path: "/ack", capacity: "reserved", ...shared }),
    ];
    const { ask, app } = testApp(routes, { ...proxied, limits: { ...testLimits, bodyBytesMax: 400 } });
    const begun = Array.from({ length: 4 }, (_, i) => ask("/hold", postAs(`192.0.2.${i}`, 100)));
    while (app.inFlight().bodyBytes < 400) await Bun.sleep(1);
    for (const client of ["192.0.2.1", "192.0.2.2"]) begun.push(ask("/ack", postAs(client, 50)));
    while (app.inFlight().bodyBytes < 500) await Bun.sleep(1);
    expect((await ask("/ack", postAs("192.0.2.3", 50))).status).toBe(503);
    opened.resolve();
    for (const one of begun) expect((await one).status).toBe(200);
    expect(app.inFlight().bodyBytes).toBe(0);
  });

  test("bodies that are announced and do not come hold no bytes that others need", async () => {
    const limits = { ...testLimits, bodyBytesMax: 256 << 10, bodyDeadlineMs: 300 };
    const route = testRoute({ method: "POST", path: "/big", bodyBytesMax: 64 << 10, handle: () => ({ status: 200 }) });
    const { ask, app } = testApp([route], { limits });
    const announced = (): RequestInit => ({
      ...post(new ReadableStream({ start: () => undefined })),
      headers: { ...json, "content-length": String(64 << 10) },
    });
    const stuck = Array.from({ length: 8 }, () => ask("/big", announced()));
    while (app.inFlight().reading < 8) await Bun.sleep(1);
    expect((await ask("/big", post("x".repeat(32 << 10)))).status).toBe(200);
    for (const one of stuck) expect((await one).status).toBe(400);
  });

  test("who is too fast is refused before his body is read, and the connection ends", async () => {
    const paces: string[] = [];
    let read = 0;
    const route = testRoute({
      method: "POST",
      path: "/paced",
      bodyBytesMax: 100,
      rateLimit: ({ client }) => (paces.push(client) > 1 ? fault("rate_limited", "slower") : null),
      handle: () => ({ status: 200 }),
    });
    const { ask } = testApp([route]);
    expect((await ask("/paced", post("{}"))).status).toBe(200);
    const body = new ReadableStream({ pull: () => void read++ }, { highWaterMark: 0 });
    const refused = await ask("/paced", post(body));
    expect([refused.status, refused.headers.get("connection"), refused.headers.get("retry-after")]).toEqual([
      429,
      "close",
      "1",
    ]);
    expect([read, paces]).toEqual([0, ["192.0.2.7", "192.0.2.7"]]);
  });

  test("bodies that arrive slowly take no place in work, and are bounded by themselves", async () => {
    // One client gets half of the four.
    const limits = { ...testLimits, requestsMax: 1, readingMax: 4, bodyDeadlineMs: 200 };
    const { ask, app } = testApp([take, echo], { limits });
    const slow = (): Promise<Response> => ask("/things", post(new ReadableStream({ start: () => undefined })));
    const stuck = [slow(), slow()];
    while (app.inFlight().reading < 2) await Bun.sleep(1);
    expect((await ask("/things/a")).status).toBe(200);
    expect((await slow()).status).toBe(503);
    for (const one of stuck) expect((await one).status).toBe(400);
    expect((await ask("/things", post("{}"))).status).toBe(200);
  });

  test("a draining app refuses with shutting_down", async () => {
    const { ask, app } = testApp([echo]);
    app.startDraining();
    const response = await ask("/things/a");
    expect([response.status, await codeOf(response)]).toEqual([503, "shutting_down"]);
  });
});

describe("who calls", () => {
  test("a forwarded address counts only from a trusted proxy, read from the right", () => {
    const of = clientAddress(["10.0.0.0/8", "2001:db8::/32", "unix"]);
    expect(of("198.51.100.1", "203.0.113.9")).toBe("203.0.113.9");
    expect(of("1.1.1.1, 198.51.100.1, 10.2.3.4", "10.0.0.1")).toBe("198.51.100.1");
    expect(of("198.51.100.1, nonsense", "10.0.0.1")).toBe("10.0.0.1");
    expect(of("198.51.100.1", "::ffff:10.0.0.1")).toBe("198.51.100.1");
    expect(of("198.51.100.1", "2001:db8::7")).toBe("198.51.100.1");
    expect(of("198.51.100.1", null)).toBe("198.51.100.1");
    expect(clientAddress([])("198.51.100.1", "10.0.0.1")).toBe("10.0.0.1");
  });

  test("networks of proxies are checked", () => {
    for (const good of ["10.0.0.1", "10.0.0.0/8", "::1", "2001:db8::/32", "unix"])
      expect(isProxyNetwork(good)).toBe(true);
    for (const bad of ["10.0.0", "10.0.0.0/33", "::/129", "a", "10.0.0.0/8/8", "10.0.0.0/x"]) {
      expect(isProxyNetwork(bad)).toBe(false);
    }
  });

  test("a request id of the right form is kept, any other replaced", async () => {
    const { ask } = testApp([take]);
    const answered = async (id: string): Promise<string | null> =>
      (await ask("/things", { ...post("{}"), headers: { ...json, "x-request-id": id } })).headers.get("x-request-id");
    expect(await answered("A.b_c-1")).toBe("A.b_c-1");
    for (const bad of ["a b", "ü", "x".repeat(65), "a/b"]) {
      expect(await answered(bad).catch(() => "refused by the client")).not.toBe(bad);
    }
  });
});

describe("log and metrics", () => {
  test("a request's line holds the network of the client and no more of its address", async () => {
    const { ask, lines } = testApp([echo]);
    await ask("/things/very-private");
    expect(lines[0]?.fields).toMatchObject({
      client: "192.0.2.0/24",
      method: "GET",
      route: "/things/:id",
      status: 200,
    });
    expect(JSON.stringify(lines)).not.toContain("very-private");
  });

  test.each([
    ["192.0.2.77", "192.0.2.0/24"],
    ["::ffff:192.0.2.77", "192.0.2.0/24"],
    ["2001:db8:1:2::3", "2001:db8:1::/48"],
    ["2001:db8::1", "2001:db8:0::/48"],
    ["::1", "0:0:0::/48"],
    ["unix", "unix"],
  ])("%s is masked as %s", (address, masked) => expect(maskAddress(address)).toBe(masked));

  test("a log whose reader is stuck drops lines and says how many", async () => {
    const stuck = Promise.withResolvers<void>();
    const written: string[] = [];
    const sink = createLog({
      level: "info",
      now: () => 0,
      write: async (text) => {
        written.push(text);
        await stuck.promise;
      },
    });
    sink.log("debug", "not at this level");
    sink.log("info", "first");
    void sink.flush();
    for (let i = 0; i < 3_000; i++) sink.log("info", "x".repeat(1_000));
    stuck.resolve();
    await sink.flush();
    expect(written[0]).toBe('{"time":"1970-01-01T00:00:00.000Z","level":"info","message":"first"}\n');
    const last = JSON.parse(written.join("").trimEnd().split("\n").at(-1) as string) as { dropped: number };
    expect(last.dropped).toBeGreaterThan(1_900);
  });

  test("metrics render in the text format", async () => {
    const metrics = createMetrics();
    const counter = metrics.counter({ name: "things_total", help: "Things.", labels: ["kind"] });
    counter.add(['a"b']);
    counter.add(['a"b'], 2);
    metrics.gauge({ name: "held", help: "Held." }, () => 7);
    metrics.gauge({ name: "broken", help: "Fails." }, () => Promise.reject(new Error("x")));
    metrics.histogram({ name: "seconds", help: "Time.", labels: [] }, [1, 2]).observe([], 1.5);
    expect(await metrics.render()).toBe(
      [
        "# HELP waypost_things_total Things.",
        "# TYPE waypost_things_total counter",
        'waypost_things_total{kind="a\\"b"} 3',
        "# HELP waypost_held Held.",
        "# TYPE waypost_held gauge",
        "waypost_held 7",
        "# HELP waypost_broken Fails.",
        "# TYPE waypost_broken gauge",
        "# HELP waypost_seconds Time.",
        "# TYPE waypost_seconds histogram",
        'waypost_seconds_bucket{le="1"} 0',
        'waypost_seconds_bucket{le="2"} 1',
        'waypost_seconds_bucket{le="+Inf"} 1',
        "waypost_seconds_sum 1.5",
        "waypost_seconds_count 1",
        "",
      ].join("\n"),
    );
  });
});
