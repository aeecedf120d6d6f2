/**
 * The arrangement of the nodes of tests. One process over memory, unless the environment says
 * otherwise:
 *
 * - `WAYPOST_TEST_STORE=lmdb`: over LMDB where the test would use memory;
 * - `WAYPOST_TEST_POSTGRES=<url>` and `WAYPOST_TEST_NATS=<url>`: every test node that has all three
 *   kinds becomes three nodes over one schema and one bus, each with two of the kinds, behind a
 *   router that picks any node with the kind of the path.
 *
 * `test/campaigns/arrangements.ts` runs the tests of whole nodes in the last two arrangements.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ServerWebSocket } from "bun";
import { checkConfig } from "../../src/config/config.ts";
import type { Config, ConfigInput } from "../../src/config/schema.ts";
import { postgresPlugin } from "../../src/plugins/postgres/postgres.ts";
import { freePort } from "./executable.ts";

const { env } = process;
const postgresUrl = env["WAYPOST_TEST_POSTGRES"];
const natsUrl = env["WAYPOST_TEST_NATS"];

export type Arranged = {
  /** Over another store than the test names. */
  readonly isOther: boolean;
  /** In the order in which they start. */
  readonly configs: readonly Config[];
  /** Started when all nodes run; the answer ends it. */
  readonly route: (() => Promise<() => Promise<void>>) | null;
  readonly end: () => void;
};

/** The nodes that stand for the one that a test asks for. */
export async function arrange(input: ConfigInput, memory: boolean): Promise<Arranged> {
  const spreads = memory && postgresUrl !== undefined && natsUrl !== undefined && isWhole(input);
  if (spreads) return spread(input, postgresUrl, natsUrl);
  if (!memory || env["WAYPOST_TEST_STORE"] !== "lmdb")
    return { isOther: false, configs: [checked(input)], route: null, end: () => undefined };
  const path = mkdtempSync(join(tmpdir(), "waypost-test-"));
  const stores = { main: { ...input.stores?.["main"], plugin: "lmdb", path } };
  const end = () => rmSync(path, { recursive: true, force: true });
  return { isOther: true, configs: [checked({ ...input, stores })], route: null, end };
}

function checked(input: ConfigInput): Config {
  const result = checkConfig(input);
  if (!result.ok) throw new Error(JSON.stringify(result.problems));
  return result.config;
}

/** One that a plain router can stand for. */
function isWhole({ server, directory, relay, cache, bus }: ConfigInput): boolean {
  const enabled = [directory, relay, cache].every((section) => section?.enabled === true);
  const isPlain =
    server?.admin_listen === undefined && server?.tls_cert_file === undefined && bus === undefined;
  return enabled && isPlain && server?.listen?.length === 1 && !server.listen[0]?.endsWith(":0");
}

async function spread(input: ConfigInput, database: string, nats: string): Promise<Arranged> {
  const schema = `test_${crypto.randomUUID().replaceAll("-", "")}`;
  const block_time_ms = input.stores?.["main"]?.["block_time_ms"] ?? 1_000;
  const main = { plugin: "postgres", urls: [database], schema, block_time_ms, connections: 4 };
  const parsed = postgresPlugin.parseOptions({
    urls: [database],
    schema,
    block_time_ms,
    connections: 4,
  });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.problems));
  await postgresPlugin.migrate?.(parsed.options);
  const bus = { plugin: "nats" as const, servers: [nats], subject_prefix: schema };
  const kinds = ["directory", "relay", "cache"] as const;
  const placed = kinds.map((without) => ({ without, address: `127.0.0.1:${freePort()}` }));
  const configs = placed.map(({ without, address }) => {
    const parts = Object.fromEntries(
      kinds.map((kind) => [kind, { ...input[kind], enabled: kind !== without }]),
    );
    const away = without === "directory" ? { recipients: "ledger:main" } : {};
    const server = { ...input.server, ...away, listen: [address], trusted_proxies: ["127.0.0.1"] };
    return checked({ ...input, ...parts, server, stores: { main }, bus });
  });
  const urls = placed.map(({ address }) => `http://${address}`);
  const route = () => startRouter(input.server?.listen?.[0] ?? "", urls);
  return { isOther: true, configs, route, end: () => undefined };
}

// ------------------------------------------------------------------------------------------ router

type Place = { readonly path: RegExp; readonly url: string };

/** The routes of a node as it describes them itself. */
async function placesOf(url: string): Promise<Place[]> {
  const { paths } = (await (await fetch(`${url}/openapi.json`)).json()) as {
    readonly paths: object;
  };
  return Object.keys(paths).map((path) => ({
    path: new RegExp(`^${path.replace(/\{\w+\}/g, "[^/]*")}$`),
    url,
  }));
}

/** Anyone who puts nodes of several kinds behind one name has to say what all of them say. */
async function mergedFrom(urls: readonly string[], path: string): Promise<Record<string, unknown>> {
  const merged: Record<string, unknown> = {};
  for (const url of urls)
    for (const [name, value] of Object.entries(
      (await (await fetch(`${url}${path}`)).json()) as object,
    )) {
      const known = merged[name];
      merged[name] =
        Array.isArray(known) && Array.isArray(value) ? [...new Set([...known, ...value])] : value;
    }
  return merged;
}

/** Proofs of a session are in its first frame, so its address is all that passes on. */
type Tunnel = { readonly url: string; there: WebSocket | null };

/** Answers at the address of the test as one of the nodes does that have the route. */
async function startRouter(address: string, urls: readonly string[]): Promise<() => Promise<void>> {
  const [hostname, port] = address.split(":");
  const places = (await Promise.all(urls.map(placesOf))).flat();
  const pick = (path: string): string => {
    // A session is not in the description: it is at the Relay.
    const route = path.startsWith("/ws/") ? "/relay" : path;
    const having = places.filter((place) => place.path.test(route));
    const able = having.length > 0 ? having.map(({ url }) => url) : urls;
    return able[Math.floor(Math.random() * able.length)]!;
  };
  const server = Bun.serve<Tunnel>({
    hostname: hostname ?? "",
    port: Number(port),
    idleTimeout: 60,
    async fetch(request, listener) {
      const { pathname, search } = new URL(request.url);
      if (pathname === "/limits" || pathname === "/node")
        return Response.json(await mergedFrom(urls, pathname));
      const headers = Object.fromEntries(request.headers);
      headers["x-forwarded-for"] ??= "127.0.0.1";
      const url = `${pick(pathname)}${pathname}${search}`;
      if (headers["upgrade"] === "websocket") {
        const data: Tunnel = { url: url.replace("http", "ws"), there: null };
        return listener.upgrade(request, { data })
          ? undefined
          : new Response(null, { status: 400 });
      }
      const { method, signal } = request;
      const body = method === "GET" || method === "HEAD" ? null : await request.arrayBuffer();
      return fetch(url, { method, headers, body, signal, redirect: "manual", decompress: false });
    },
    websocket: {
      open: openTunnel,
      message: passOn,
      close: closeTunnel,
      maxPayloadLength: 64 * 1024 ** 2,
    },
  });
  return async () => {
    await server.stop(true);
  };
}

function openTunnel(here: ServerWebSocket<Tunnel>): void {
  const there = new WebSocket(here.data.url);
  there.binaryType = "arraybuffer";
  there.onmessage = ({ data }) => void here.send(data as string | ArrayBuffer);
  there.onclose = ({ code, reason }) => here.close(code === 1006 ? 1011 : code, reason);
  here.data.there = there;
}

function passOn({ data: { there } }: ServerWebSocket<Tunnel>, message: string | Buffer): void {
  const given = typeof message === "string" ? message : new Uint8Array(message);
  if (there?.readyState === WebSocket.OPEN) there.send(given);
  else there?.addEventListener("open", () => there.send(given));
}

function closeTunnel({ data: { there } }: ServerWebSocket<Tunnel>): void {
  there?.close();
}
