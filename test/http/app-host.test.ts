/**
 * The host of the chat app: it answers with the app's files, each with the headers that keep
 * everything else out of its origin, and with nothing of the nodes; other hosts have nothing of the
 * app.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { webFiles } from "#web";
import { packWeb } from "../../packaging/web.ts";
import { freePort } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { sendRaw } from "./raw.ts";

const host = "chat.example.org";
const port = freePort();
const url = `http://127.0.0.1:${port}`;
let nodes: TestNodes;
let paths: string[];

beforeAll(async () => {
  paths = [...(await webFiles()).keys()];
  nodes = await startTestNodes({
    server: {
      listen: [`127.0.0.1:${port}`],
      app: host,
      drain_timeout: "2s",
      cors_origins: ["https://other.example"],
    },
    directory: { enabled: true, rate_limit_loopback: false },
    relay: {
      enabled: true,
      public_endpoints: ["https://relay.example.org/r"],
      rate_limit_loopback: false,
    },
    cache: { enabled: true, public_endpoints: ["https://cache.example.org"] },
  });
}, 60_000);
afterAll(() => nodes.stop());

const ask = (path: string, init: BunFetchRequestInit & { host?: string } = {}) =>
  fetch(url + path, {
    ...init,
    headers: { host: init.host ?? host, connection: "close", ...init.headers },
  });

/** Everything that the policy names, in its order. */
const policyFor = (connects: string) =>
  `default-src 'none'; script-src 'self'; style-src 'self'; worker-src 'self'; manifest-src 'self'; img-src 'self' blob:; media-src blob:; connect-src ${connects}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types worker`;
const ofNodes =
  "https://relay.example.org wss://relay.example.org https://cache.example.org wss://cache.example.org";

function headersOf({ headers }: Response, names: readonly string[]): Record<string, string | null> {
  return Object.fromEntries(names.map((name) => [name, headers.get(name)]));
}
const guards = {
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "permissions-policy": "camera=(self), microphone=(self), geolocation=()",
  "access-control-allow-origin": null,
};

describe("the app's host", () => {
  test("has the page, its parts and nothing else", () => {
    const kinds = paths.map((path) => path.replace(/-[a-z0-9]{8}\./, "-#."));
    expect(new Set(kinds.filter((path) => !/^\/[\w-]+-#\.js$/.test(path)))).toEqual(
      new Set(["/", "/app-#.css", "/worker.js", "/app.webmanifest", "/icon.svg", "/icon-512.png"]),
    );
  });

  test("is small: 91 KB before the first paint and 233 KB in all, as gzip, and 200 KB in the executable", async () => {
    const files = await webFiles();
    const sentBytes = async (path: string) =>
      (
        await (
          await ask(path, { headers: { "accept-encoding": "gzip" }, decompress: false })
        ).bytes()
      ).length;
    const packed = async (all: Iterable<string>) =>
      (await Promise.all([...all].map(sentBytes))).reduce((sum, bytes) => sum + bytes, 0);
    // What the page names, and what that imports before it runs.
    const first = new Set(["/"]);
    for (const path of first) {
      const text = new TextDecoder().decode(files.get(path)?.bytes);
      const names =
        path === "/"
          ? /(?:src|href)="(\/[^"]+\.(?:js|css))"/g
          : /(?:from|import)"\.(\/[\w-]+\.js)"/g;
      for (const [, name] of text.matchAll(names)) first.add(name ?? "");
    }
    const bytes = [await packed(first), await packed(files.keys()), (await packWeb()).length];
    const sizes = bytes.map((one) => one / 1024);
    console.log(`the app: ${sizes.map((size) => size.toFixed(1)).join(", ")} KB`);
    expect(sizes.map((size, i) => size <= ([91, 233, 200][i] ?? 0))).toEqual([true, true, true]);
  });

  test("sends each file with its media type, every guard, and the policy of pages; the worker alone may fetch from its own host", async () => {
    for (const path of paths) {
      const response = await ask(path, { headers: { origin: "https://page.example" } });
      const isWorker = path === "/worker.js";
      expect([path, response.status, headersOf(response, Object.keys(guards))]).toEqual([
        path,
        200,
        guards,
      ]);
      expect(response.headers.get("content-security-policy")).toBe(
        policyFor(isWorker ? "'self'" : ofNodes),
      );
      const type = response.headers.get("content-type")?.split(";")[0] ?? "";
      expect(type).toMatch(
        /^(text\/(html|javascript|css)|image\/(png|svg\+xml)|application\/manifest\+json)$/,
      );
      expect(response.headers.get("cache-control")).toBe(
        /-[a-z0-9]{8}\.(js|css)$/.test(path) ? "public, max-age=31536000, immutable" : "no-cache",
      );
      expect((await response.bytes()).length).toBeGreaterThan(10);
    }
  });

  test("names the nodes in the page, and the digest of every file as it is served in the worker", async () => {
    const page = await (await ask("/")).text();
    const facts =
      /name="waypost-node" content="([^"]*)"/.exec(page)?.[1]?.replaceAll("&quot;", '"') ?? "";
    expect(JSON.parse(facts)).toMatchObject({
      directoryUrl: "https://relay.example.org/r",
      relayUrl: "https://relay.example.org/r",
      cacheUrl: "https://cache.example.org",
    });
    const worker = await (await ask("/worker.js")).text();
    const files: Record<string, string> = JSON.parse(
      /^self\.files=(\{.*?\});/.exec(worker)?.[1] ?? "{}",
    );
    expect(Object.keys(files).sort()).toEqual(paths.filter((path) => path !== "/worker.js").sort());
    for (const [path, digest] of Object.entries(files)) {
      const bytes = await (await ask(path)).bytes();
      expect(new Bun.CryptoHasher("sha256").update(bytes).digest("base64")).toBe(digest);
    }
  });

  test("answers HEAD without a body, and compresses for those who take it", async () => {
    const script = paths.find((path) => path.startsWith("/main-")) ?? "";
    const head = await ask(script, { method: "HEAD" });
    expect([head.status, (await head.bytes()).length]).toEqual([200, 0]);
    expect(head.headers.get("content-security-policy")).toBe(policyFor(ofNodes));
    const [packed, plain] = await Promise.all(
      ["gzip, br", "identity"].map((encoding) =>
        ask(script, { headers: { "accept-encoding": encoding }, decompress: false } as RequestInit),
      ),
    );
    expect([
      packed?.headers.get("content-encoding"),
      plain?.headers.get("content-encoding"),
    ]).toEqual(["gzip", null]);
    const unpacked = Bun.gunzipSync(await (packed as Response).bytes());
    expect(Buffer.compare(unpacked, await (plain as Response).bytes())).toBe(0);
  });

  test("refuses other methods, other paths and every way around them, with the same guards", async () => {
    const cases: [string, string, number][] = [
      ["POST", "/", 405],
      ["DELETE", "/worker.js", 405],
      ["GET", "/limits", 404],
      ["GET", "/healthz", 404],
      ["GET", "/metrics", 404],
      ["GET", "/openapi.json", 404],
      ["GET", "/node", 404],
      ["POST", "/relay", 404],
      ["GET", "/cache/messages/did:svc:1111111111111111111111", 404],
      ["GET", "/app.html", 404],
      ["GET", "/main.tsx", 404],
    ];
    for (const [method, path, status] of cases) {
      const response = await ask(path, { method, ...(method === "POST" ? { body: "{}" } : {}) });
      expect([method, path, response.status, headersOf(response, Object.keys(guards))]).toEqual([
        method,
        path,
        status,
        guards,
      ]);
      expect(response.headers.get("content-security-policy")).toBe(policyFor(ofNodes));
    }
  });

  test("names its node to a program, which was given the app's address, wherever its page is", async () => {
    const response = await ask("/limits", { headers: { accept: "application/json" } });
    expect([response.status, response.headers.get("access-control-allow-origin")]).toEqual([
      421,
      "*",
    ]);
    expect(await response.json()).toMatchObject({
      code: "not_a_node",
      detail: expect.stringContaining("https://relay.example.org/r, https://cache.example.org"),
    });
  });

  test.each([
    "/../limits",
    "/./limits",
    "/%2e%2e/limits",
    "/..%2flimits",
    "/\\..\\limits",
    "/icon.svg/../healthz",
    "/%00",
  ])("leads nowhere by %s", async (path) => {
    const answer = (
      await sendRaw(url, `GET ${path} HTTP/1.1\r\nhost: ${host}\r\nconnection: close\r\n\r\n`)
    ).all;
    expect(answer).toMatch(/^HTTP\/1\.1 40[04] /);
    expect(answer).not.toContain("body_bytes_max");
  });

  test("opens no live session", async () => {
    const head = "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13";
    const key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==";
    const path = "/ws/did:svc:1111111111111111111111/phone";
    const answer = (
      await sendRaw(url, `GET ${path} HTTP/1.1\r\nhost: ${host}\r\n${head}\r\n${key}\r\n\r\n`)
    ).all;
    expect(answer).toMatch(/^HTTP\/1\.1 404 /);
  });

  test("is the same in capitals, and is no other port and no part of a name", async () => {
    expect((await ask("/", { host: "Chat.Example.ORG" })).status).toBe(200);
    for (const other of [
      `${host}:8080`,
      `a.${host}`,
      `${host}.evil.example`,
      "127.0.0.1",
      `x${host}`,
      `${host}.`,
    ])
      expect([other, (await ask("/", { host: other })).status]).toEqual([other, 404]);
  });
});

describe("other hosts", () => {
  test("have every route of the nodes and no file of the app", async () => {
    expect((await ask("/limits", { host: "relay.example.org" })).status).toBe(200);
    for (const path of paths)
      expect([path, (await ask(path, { host: "relay.example.org" })).status]).toEqual([path, 404]);
  });

  test("let pages of the app read them, whatever other origins the operator allows", async () => {
    for (const [origin, allowed] of [
      ["https://chat.example.org", "https://chat.example.org"],
      ["https://other.example", "https://other.example"],
      ["https://page.example", null],
    ] as const) {
      const { headers } = await ask("/limits", { host: "relay.example.org", headers: { origin } });
      expect([origin, headers.get("access-control-allow-origin")]).toEqual([origin, allowed]);
    }
  });
});
