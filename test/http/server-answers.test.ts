/** Long answers to clients that read them slowly, break off, or never read. */
import { afterEach, expect, spyOn, test } from "bun:test";
import { connect, type Socket } from "node:net";
import { spliced } from "../../src/nodes/http/route.ts";
import { StoreError } from "../../src/storage/contract.ts";
import {
  echo,
  jsonType,
  listenForTest,
  type serverSettings,
  take,
  testApp,
  testRoute,
} from "../support/app.ts";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const mebibyte = 1024 * 1024;
/** More than the kernel keeps for a connection whose other side does not read. */
const jsonBytes = new Uint8Array(16 * mebibyte).fill(0x20);
jsonBytes[0] = 0x31;

function* fourParts() {
  for (let at = 0; at < 16 * mebibyte; at += 4 * mebibyte)
    yield jsonBytes.subarray(at, at + 4 * mebibyte);
}

function serve(server: Partial<typeof serverSettings>) {
  const routes = [
    testRoute({ path: "/long", handle: () => spliced([jsonBytes]) }),
    testRoute({
      path: "/parts",
      handle: () => ({ status: 200, jsonParts: { bytes: 4 * mebibyte, parts: fourParts() } }),
    }),
    testRoute({ path: "/short", handle: () => spliced([jsonBytes.subarray(0, 64 * 1024)]) }),
  ];
  const { app } = testApp(routes, {
    server: { trusted_proxies: ["127.0.0.1"], ...server },
  });
  const { url, stop } = listenForTest(app);
  cleanups.push(stop);
  return { app, url };
}

/** Asks and reads nothing. */
function askWithoutReading(url: string, client = "192.0.2.1", path = "/long"): Socket {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  cleanups.push(() => socket.destroy());
  socket.on("error", () => undefined);
  socket.pause();
  socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: ${client}\r\n\r\n`);
  return socket;
}

test("a long answer arrives whole, and then counts no more", async () => {
  const { app, url } = serve({});
  const response = await fetch(`${url}/long`);
  expect(response.headers.get("content-type")).toBe("application/json");
  expect(Buffer.from(await response.bytes()).equals(jsonBytes)).toBe(true);
  expect(app.waitingAnswerBytes()).toBe(0);
});

test("HEAD of a long answer holds nothing", async () => {
  const { app, url } = serve({});
  expect((await fetch(`${url}/long`, { method: "HEAD" })).status).toBe(200);
  expect(app.waitingAnswerBytes()).toBe(0);
});

test("beyond what may wait for clients a long answer is 503, a short one is not, until one goes away", async () => {
  const { app, url } = serve({ body_bytes_in_flight: 40 * mebibyte, body_deadline: 20_000 });
  const unread = [askWithoutReading(url, "192.0.2.1"), askWithoutReading(url, "192.0.2.2")];
  while (app.waitingAnswerBytes() < 32 * mebibyte) await Bun.sleep(2);
  const refused = await fetch(`${url}/long`);
  expect([refused.status, refused.headers.get("retry-after")]).toEqual([503, "1"]);
  expect((await fetch(`${url}/short`)).status).toBe(200);
  unread[0]?.destroy();
  while (app.waitingAnswerBytes() > 16 * mebibyte) await Bun.sleep(2);
  expect((await (await fetch(`${url}/long`)).bytes()).length).toBe(jsonBytes.length);
});

test("an answer in parts takes room for its largest part, until it is read or its client has gone", async () => {
  const { app, url } = serve({ body_bytes_in_flight: 9 * mebibyte, body_deadline: 20_000 });
  const unread = [
    askWithoutReading(url, "192.0.2.1", "/parts"),
    askWithoutReading(url, "192.0.2.2", "/parts"),
  ];
  while (app.waitingAnswerBytes() < 8 * mebibyte) await Bun.sleep(2);
  expect((await fetch(`${url}/parts`)).status).toBe(503);
  for (const socket of unread) socket.destroy();
  while (app.waitingAnswerBytes() > 0) await Bun.sleep(2);
  expect(Buffer.from(await (await fetch(`${url}/parts`)).bytes()).equals(jsonBytes)).toBe(true);
  expect(app.waitingAnswerBytes()).toBe(0);
});

test("one client that takes nothing leaves half of the room to others", async () => {
  const { app, url } = serve({ body_bytes_in_flight: 40 * mebibyte, body_deadline: 20_000 });
  askWithoutReading(url, "192.0.2.1");
  while (app.waitingAnswerBytes() < 16 * mebibyte) await Bun.sleep(2);
  const again = await fetch(`${url}/long`, { headers: { "x-forwarded-for": "192.0.2.1" } });
  expect(again.status).toBe(503);
  expect((await (await fetch(`${url}/long`)).bytes()).length).toBe(jsonBytes.length);
});

test("a failure before the first part is answered with its status, a later one cuts the answer off", async () => {
  function* failingAfter(parts: number) {
    for (let i = 0; i < parts; i++) yield jsonBytes.subarray(0, mebibyte);
    throw new StoreError("unavailable", "test");
  }
  const failing = (path: string, parts: number) =>
    testRoute({
      path,
      handle: () => ({ status: 200, jsonParts: { bytes: mebibyte, parts: failingAfter(parts) } }),
    });
  const { app } = testApp([failing("/at-once", 0), failing("/later", 1)]);
  const { url, stop } = listenForTest(app);
  cleanups.push(stop);
  expect((await fetch(`${url}/at-once`)).status).toBe(503);
  const cut = await fetch(`${url}/later`);
  expect(cut.status).toBe(200);
  expect(await cut.bytes().catch(() => "cut")).toBe("cut");
  expect(app.waitingAnswerBytes()).toBe(0);
});

test("an answer that is not taken in time is cut off", async () => {
  const { app, url } = serve({ body_deadline: 300 });
  const socket = askWithoutReading(url);
  while (app.waitingAnswerBytes() === 0) await Bun.sleep(2);
  while (app.waitingAnswerBytes() > 0) await Bun.sleep(2);
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  let size = 0;
  socket.on("data", (bytes) => {
    size += bytes.length;
  });
  socket.resume();
  await closed;
  expect(size).toBeLessThan(jsonBytes.length);
});

test("what long answers leave behind is collected while they go out, and when they are refused", async () => {
  using collect = spyOn(Bun, "gc").mockReturnValue(undefined as never);
  const { app, url } = serve({ body_bytes_in_flight: 9 * mebibyte, body_deadline: 20_000 });
  // Each passes 16 MiB, of which memory had three copies: collected after every 64 MiB.
  for (let n = 0; n < 4; n++) await (await fetch(`${url}/parts`)).bytes();
  const passed = collect.mock.calls.length;
  expect(passed).toBeGreaterThanOrEqual(2);
  askWithoutReading(url, "192.0.2.1", "/parts");
  askWithoutReading(url, "192.0.2.2", "/parts");
  while (app.waitingAnswerBytes() < 8 * mebibyte) await Bun.sleep(2);
  for (let n = 0; n < 12; n++) expect((await fetch(`${url}/parts`)).status).toBe(503);
  expect(collect.mock.calls.length).toBeGreaterThanOrEqual(passed + 2);
});

test("each answer is reported with the length of the request's body, for the collector", async () => {
  const lengths: number[] = [];
  const { ask } = testApp([take, echo], { answered: (bodyBytes) => lengths.push(bodyBytes) });
  await ask("/things", { method: "POST", body: "x".repeat(40), headers: jsonType });
  await ask("/things/1");
  expect(lengths).toEqual([40, 0]);
});
