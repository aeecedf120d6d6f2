/**
 * The HTTP server on a real socket: raw and hostile requests, the reasons that end a connection,
 * drain and upgrades. Source of the cases: rules section 9 and the measured behavior of the server.
 */
import { afterAll, describe, expect, test } from "bun:test";
import { connect } from "node:net";
import type { WebSocketHandler } from "bun";
import { parseDid } from "../../src/core/codec/did.ts";
import { isFault } from "../../src/core/fault.ts";
import { isLoopbackListener, parseListenAddress } from "../../src/core/message/address.ts";
import { type Route, spliced } from "../../src/nodes/http/route.ts";
import { listen } from "../../src/nodes/http/server.ts";
import { echo, jsonType, listenForTest, testApp, testRoute } from "../support/app.ts";
import { pause } from "../support/wait.ts";
import { sendOnce, sendRaw } from "./raw.ts";

const seen: string[] = [];
const routes: Route[] = [
  testRoute({
    path: "/dids/:did/nonces",
    handle: (call) => {
      seen.push(call.params["did"] as string);
      const did = parseDid(call.params["did"] as string);
      return isFault(did) ? did : { status: 200, json: { did } };
    },
  }),
  testRoute({ path: "/nonces", handle: () => ({ status: 200, json: "another route" }) }),
  testRoute({ path: "/summary/:did", handle: () => ({ status: 200, json: "another route" }) }),
  testRoute({ path: "/summary/:did/:device", handle: () => ({ status: 200, json: "two values" }) }),
  testRoute({
    method: "POST",
    path: "/echo",
    bodyBytesMax: 200_000,
    handle: (call) => ({ status: 200, json: { bytes: call.body.length } }),
  }),
];

const main = testApp(routes, { server: { body_deadline: 400 } });
const server = listenForTest(main.app);
afterAll(() => server.stop());

const get = (
  path: string,
  headers = "Host: waypost.invalid\r\nConnection: close\r\n",
): Promise<Awaited<ReturnType<typeof sendRaw>>> =>
  sendRaw(server.url, `GET ${path} HTTP/1.1\r\n${headers}\r\n`);
const codeOf = (body: string): unknown =>
  body === "" ? null : (JSON.parse(body) as { code?: unknown }).code;

describe("paths as sent", () => {
  test.each([
    ["/dids/../nonces", "invalid_request"],
    ["/dids/%2e%2e/nonces", "invalid_request"],
    ["/dids/%2E./nonces", "invalid_request"],
    ["/x/../nonces", "not_found"],
    ["/x/%2e%2e/nonces", "not_found"],
    ["/./nonces", "not_found"],
    ["/x\\..\\nonces", "not_found"],
    ["/summary/a/..\\b", "invalid_request"],
    ["/dids/did:svc:a%2Fb/nonces", "invalid_did"],
    ["/dids/did:svc:a%00/nonces", "invalid_request"],
    ["/dids/did:svc:a%ff/nonces", "invalid_request"],
    ["/dids/%/nonces", "invalid_request"],
    ["/dids/did:svc:a%252Fb/nonces", "invalid_did"],
    ["/dids/did:svc:a%23b/nonces", "invalid_did"],
    ["//nonces", "not_found"],
    ["/nonces/", "not_found"],
    ["/%6eonces", "not_found"],
  ])("%s is refused", async (path, code) => {
    const answer = await get(path);
    expect(codeOf(answer.body)).toBe(code);
    expect(answer.status).toBe(code === "not_found" ? 404 : 400);
  });

  test("no dot segment has reached a handler", () => {
    expect(seen.some((value) => value.startsWith("."))).toBe(false);
  });

  test("an encoded DID in either case of hex is the same DID", async () => {
    const did = "did:svc:2NEpo7TZRRrLZSi2U";
    for (const path of [did, did.replaceAll(":", "%3A"), did.replaceAll(":", "%3a")]) {
      expect(JSON.parse((await get(`/dids/${path}/nonces`)).body)).toEqual({ did });
    }
  });
});

describe("heads that can't be trusted", () => {
  test.each([
    ["two Host headers", "Host: a\r\nHost: b\r\n"],
    ["a Host that is not a host", "Host: a b/../c\r\n"],
  ])("%s are refused", async (_name, headers) => {
    const answer = await get("/nonces", headers);
    expect([answer.status, answer.closed]).toEqual([400, true]);
  });

  test("a request without Host is refused and breaks nothing", async () => {
    const answer = await sendRaw(server.url, "GET /nonces HTTP/1.0\r\n\r\n");
    expect([answer.status, codeOf(answer.body)]).toEqual([400, "invalid_request"]);
  });

  test("a short host name finds its route", async () => {
    expect((await get("/nonces", "Host: h\r\n")).status).toBe(200);
  });
});

describe("malformed requests", () => {
  const long = "x".repeat(20_000);
  test.each([
    [
      "both ways of framing",
      "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
    [
      "two lengths",
      "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    ],
    ["a signed length", "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: +2\r\n\r\n{}"],
    [
      "an unknown transfer coding",
      "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, identity\r\n\r\nabc",
    ],
    [
      "a broken chunk",
      "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    ],
    ["NUL in a header", "GET /nonces HTTP/1.1\r\nHost: h\r\nX-A: a\0b\r\n\r\n"],
    ["a folded header", "GET /nonces HTTP/1.1\r\nHost: h\r\nX-A: a\r\n b\r\n\r\n"],
    ["a space before the colon", "GET /nonces HTTP/1.1\r\nHost : h\r\n\r\n"],
    ["lines without CR", "GET /nonces HTTP/1.1\nHost: h\n\n"],
    ["HTTP/0.9", "GET /nonces\r\n\r\n"],
    ["a space in the path", "GET /non ces HTTP/1.1\r\nHost: h\r\n\r\n"],
    ["a header of 20 KB", `GET /nonces HTTP/1.1\r\nHost: h\r\nX-A: ${long}\r\n\r\n`],
    ["a path of 20 KB", `GET /${long} HTTP/1.1\r\nHost: h\r\n\r\n`],
    ["300 headers", `GET /nonces HTTP/1.1\r\nHost: h\r\n${"X-A: b\r\n".repeat(300)}\r\n`],
  ])("%s ends in a refusal", async (_name, raw) => {
    const answer = await sendRaw(server.url, raw);
    expect(answer.all.startsWith("HTTP/1.1 2")).toBe(false);
    expect(
      answer.status === 0 || (answer.status >= 400 && answer.status < 500) || answer.status === 505,
    ).toBe(true);
    expect((await get("/nonces")).status).toBe(200);
  });

  test("2,000 damaged requests leave the server as it was, and none is a bug", async () => {
    const whole = `POST /echo HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 12\r\nConnection: close\r\n\r\n{"a":"b%c d"}`;
    let seed = 7;
    const next = (below: number): number => {
      seed = (Math.imul(seed, 1_103_515_245) + 12_345) & 0x7fffffff;
      return seed % below;
    };
    const damaged = (): Uint8Array => {
      const bytes = Buffer.from(whole);
      for (let i = next(4) + 1; i > 0; i--) bytes[next(bytes.length)] = next(256);
      return bytes.subarray(0, next(10) === 0 ? next(bytes.length) : bytes.length);
    };
    const bugs: string[] = [];
    const client = async (): Promise<void> => {
      for (let i = 0; i < 50; i++) {
        const answer = await sendOnce(server.url, damaged());
        if (answer.includes("HTTP/1.1 500")) bugs.push(answer);
      }
    };
    await Promise.all(Array.from({ length: 40 }, client));
    expect(bugs).toEqual([]);
    expect(main.lines.filter((line) => line.level === "error")).toEqual([]);
    expect((await get("/nonces")).status).toBe(200);
  }, 120_000);
});

describe("bodies on the wire", () => {
  const post = (
    headers: string,
    body: string | Uint8Array = "",
  ): Promise<Awaited<ReturnType<typeof sendRaw>>> =>
    sendRaw(
      server.url,
      Buffer.concat([
        Buffer.from(
          `POST /echo HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n${headers}\r\n`,
        ),
        Buffer.from(body),
      ]),
    );

  test("an announced length over the cap is refused at once with a body of ours", async () => {
    const answer = await post("Content-Length: 10000000000\r\n", "{");
    expect([answer.status, codeOf(answer.body), answer.closed]).toEqual([413, "too_large", true]);
  });

  test("a chunked body is cut at the cap", async () => {
    const chunk = `${(65_536).toString(16)}\r\n${"x".repeat(65_536)}\r\n`;
    const answer = await post("Transfer-Encoding: chunked\r\n", chunk.repeat(4));
    expect([answer.status, codeOf(answer.body), answer.closed]).toEqual([413, "too_large", true]);
  });

  test("a chunked body under the cap arrives whole", async () => {
    const answer = await post(
      "Transfer-Encoding: chunked\r\n",
      "5\r\nabcde\r\n3\r\nfgh\r\n0\r\n\r\n",
    );
    expect(JSON.parse(answer.body)).toEqual({ bytes: 8 });
  });

  test("a long body of known length arrives whole", async () => {
    const answer = await post("Content-Length: 150000\r\n", "x".repeat(150_000));
    expect(JSON.parse(answer.body)).toEqual({ bytes: 150_000 });
  });

  test("a body that stops coming is refused at the deadline", async () => {
    for (const length of [10, 150_000]) {
      const answer = await post(`Content-Length: ${length}\r\n`, "abc");
      expect([answer.status, codeOf(answer.body), answer.closed]).toEqual([
        400,
        "invalid_request",
        true,
      ]);
    }
  });

  test("a client that writes megabytes before it reads gets the answer that refused them", async () => {
    for (const type of ["application/json", "text/plain"]) {
      const answer = await new Promise<string>((resolve) => {
        const { hostname, port } = new URL(server.url);
        let text = "";
        const socket = connect(Number(port), hostname, () => {
          socket.pause();
          socket.write(
            `POST /echo HTTP/1.1\r\nHost: h\r\nContent-Type: ${type}\r\nContent-Length: ${16 << 20}\r\n\r\n`,
          );
          socket.write(Buffer.alloc(16 << 20, 0x20), () => socket.resume());
        });
        socket.on("data", (bytes) => {
          text += bytes;
        });
        socket.on("error", (error) => resolve(String(error)));
        socket.on("close", () => resolve(text));
      });
      expect(answer.slice(0, 12)).toBe(type === "text/plain" ? "HTTP/1.1 415" : "HTTP/1.1 413");
    }
  });

  test("after an early refusal the rest of the body is not taken for a request", async () => {
    const inner = "GET /nonces HTTP/1.1\r\nHost: h\r\n\r\n";
    const raw = `POST /echo HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nContent-Length: ${inner.length}\r\n\r\n${inner}`;
    const answer = await sendRaw(server.url, raw);
    expect([answer.status, answer.all.match(/HTTP\/1\.1 /g)?.length]).toEqual([415, 1]);
  });
});

test("HEAD answers as GET without a body", async () => {
  const listener = listenForTest(testApp([echo]).app);
  const response = await fetch(`${listener.url}/things/a`, { method: "HEAD" });
  expect([response.status, await response.text()]).toEqual([200, ""]);
  expect(response.headers.get("content-length")).toBe(String('{"id":"a"}'.length));
  await listener.stop();
});

test("HEAD has the length of a longer answer, which no packet would hold", async () => {
  for (const bytes of [30_000, 100_000]) {
    const long = testRoute({ path: "/long", handle: () => spliced(["x".repeat(bytes)]) });
    const listener = listenForTest(testApp([long]).app);
    const response = await fetch(`${listener.url}/long`, { method: "HEAD" });
    expect([response.status, response.headers.get("content-length")]).toEqual([200, String(bytes)]);
    await listener.stop();
  }
});

describe("the end of a listener", () => {
  test("drain finishes what is in flight, refuses what is new, and is over in time", async () => {
    const opened = Promise.withResolvers<void>();
    const hold = testRoute({
      path: "/hold",
      handle: () => opened.promise.then(() => ({ status: 200, json: "done" })),
    });
    const { app } = testApp([hold]);
    const listener = listenForTest(app);
    const first = fetch(`${listener.url}/hold`);
    while (app.inFlight().requests === 0) await Bun.sleep(1);
    const stopped = listener.stop();
    await expect(fetch(`${listener.url}/hold`)).rejects.toThrow();
    opened.resolve();
    expect(await (await first).json()).toBe("done");
    await stopped;
  });

  test("drain finishes what a client has asked for who has left", async () => {
    const opened = Promise.withResolvers<void>();
    let isDone = false;
    const handle = () =>
      opened.promise.then(() => {
        isDone = true;
        return { status: 200, json: "done" };
      });
    const { app } = testApp([testRoute({ path: "/hold", handle })]);
    const listener = listen({ app, address: "127.0.0.1:0" });
    const left = new AbortController();
    const first = fetch(`${listener.url}/hold`, { signal: left.signal }).catch(() => "left");
    while (app.inFlight().requests === 0) await Bun.sleep(1);
    left.abort();
    expect(await first).toBe("left");
    const drained = listener.drain(60_000).then(() => isDone);
    await pause(50, "it would end without the request");
    opened.resolve();
    expect(await drained).toBe(true);
  });

  test("drain ends a request that never ends", async () => {
    const { app } = testApp([
      testRoute({ path: "/hold", handle: () => new Promise(() => undefined) }),
    ]);
    const listener = listen({ app, address: "127.0.0.1:0" });
    const first = fetch(`${listener.url}/hold`).catch(() => "cut");
    while (app.inFlight().requests === 0) await Bun.sleep(1);
    await listener.drain(50);
    expect(await first).toBe("cut");
  });
});

test("an upgrade goes to the sessions and everything else to the routes", async () => {
  const upgrading = testRoute({
    path: "/ws/:device",
    handle: (call) => ({ status: call.upgrade({ greeting: `hello ${call.client}` }) ? 101 : 426 }),
  });
  const { app } = testApp([...routes, upgrading]);
  const websocket: WebSocketHandler<{ readonly greeting: string }> = {
    open: (socket) => {
      socket.send(socket.data.greeting);
    },
    message: () => undefined,
  };
  const listener = listen({ app, address: "127.0.0.1:0", websocket });
  const socket = new WebSocket(`${listener.url.replace("http", "ws")}/ws/a`);
  const greeting = await new Promise((resolve) =>
    socket.addEventListener("message", (event) => resolve(event.data)),
  );
  expect(greeting).toBe("hello 127.0.0.1");
  expect((await fetch(`${listener.url}/ws/a`)).status).toBe(426);
  expect((await fetch(`${listener.url}/nonces`)).status).toBe(200);
  socket.close();
  await listener.drain(500);
});

test("an address that is in use can't be listened on again", () => {
  const address = server.url.slice("http://".length);
  expect(() => listen({ app: main.app, address })).toThrow();
});

test("a Unix socket can be listened on", async () => {
  const path = `${process.env["TMPDIR"] ?? "/tmp"}/waypost-${process.pid}.sock`;
  const { app } = testApp(routes);
  const listener = listen({ app, address: `unix:${path}` });
  expect((await fetch("http://localhost/nonces", { unix: path })).status).toBe(200);
  await listener.drain(100);
});

test("a client that resets its connection does not pass for one of a Unix socket", async () => {
  const clients = new Map<string, number>();
  const route = testRoute({
    method: "POST",
    path: "/count",
    bodyBytesMax: 100,
    handle: (call) => {
      clients.set(call.client, (clients.get(call.client) ?? 0) + 1);
      return { status: 204 };
    },
  });
  const tested = testApp([route]);
  const listener = listenForTest(tested.app);
  const port = Number(new URL(listener.url).port);
  const text =
    "POST /count HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
  for (let i = 0; i < 300; i++) {
    const socket = await Bun.connect({
      hostname: "127.0.0.1",
      port,
      socket: { data: () => undefined },
    });
    socket.write(text);
    socket.terminate();
  }
  expect(
    (await fetch(`${listener.url}/count`, { method: "POST", headers: jsonType, body: "{}" }))
      .status,
  ).toBe(204);
  expect([...clients.keys()]).toEqual(["127.0.0.1"]);
  await listener.stop();
});

test("addresses to listen on are read strictly", () => {
  expect(parseListenAddress("127.0.0.1:7400")).toEqual({ hostname: "127.0.0.1", port: 7400 });
  expect(parseListenAddress("[::1]:0")).toEqual({ hostname: "::1", port: 0 });
  expect(parseListenAddress("unix:/run/w.sock")).toEqual({ unix: "/run/w.sock" });
  for (const bad of ["7400", "a:b", "a:70000", "unix:", "http://a:1", "::1:80"])
    expect(parseListenAddress(bad)).toBeNull();
  for (const near of ["127.0.0.1:1", "[::1]:1", "localhost:1", "unix:/a"])
    expect(isLoopbackListener(near)).toBe(true);
  for (const far of ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.org:1"])
    expect(isLoopbackListener(far)).toBe(false);
});
