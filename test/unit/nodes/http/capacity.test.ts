/** How much a node takes at once: requests, bodies and their bytes, by client and in all, and what becomes of the rest. */
import { describe, expect, test } from "bun:test";
import { fault } from "../../../../src/core/fault.ts";
import { codeOf, echo, jsonType, post, take, testApp, testLimits, testRoute } from "../../../support/app.ts";

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
    post("x".repeat(size), { ...jsonType, "x-forwarded-for": client });

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
      headers: { ...jsonType, "content-length": String(64 << 10) },
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
