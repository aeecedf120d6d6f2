/**
 * One node for the HTTP benchmark in a process of its own: Directory, Relay and Cache as `serve`
 * composes them, over one driver, on a free port of the loopback interface, with no pace and wide
 * quotas. Says its URL on the first line of its output, counts its objects for each line of its
 * input, and ends when that does. Usage: `bun bench/http-server.ts <checkout>
 * <memory|lmdb|postgres|bare> <folder or database> [bus] [endpoint]`. `bare` is not a node: it
 * parses bodies and answers 202. Nodes behind one name have the endpoint of the first.
 */
import { heapStats } from "bun:jsc";
import { createServer } from "node:net";
import { join, resolve } from "node:path";

const [checkout = ".", driver = "memory", place = ".bench", bus, endpoint] = process.argv.slice(2);
const running = driver === "bare" ? startBare() : await startNode();
console.log(running.url);
// Each line on the input asks for the objects that live, by kind; its end ends the node.
for await (const _ of Bun.stdin.stream()) console.log(JSON.stringify(heapStats().objectTypeCounts));
await running.stop();
process.exit(0);

type Running = { readonly url: string; readonly stop: () => Promise<void> };

function startBare(): Running {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: async (request) => {
      const body: unknown =
        request.body === null ? null : JSON.parse(decoder.decode(await request.bytes()));
      return Response.json({ read: body !== null }, { status: 202 });
    },
  });
  return { url: `http://127.0.0.1:${server.port}`, stop: () => server.stop(true) };
}

async function startNode(): Promise<Running> {
  // Another checkout of the same program: its modules are loaded by path.
  const source = join(resolve(checkout), "src");
  const compose: typeof import("../src/app/compose.ts") = await import(
    join(source, "app/compose.ts")
  );
  const config: typeof import("../src/config/config.ts") = await import(
    join(source, "config/config.ts")
  );
  const checked = config.checkConfig(settings(`127.0.0.1:${await freePort()}`));
  if (!checked.ok) throw new Error(JSON.stringify(checked.problems));
  return compose.startNodes(checked.config, {
    // What a node logs by default is written like this, so that lines cost what they cost.
    log: await logOf(source),
    onFatal: (reason) => {
      throw new Error(reason);
    },
  });
}

async function logOf(source: string): Promise<import("../src/nodes/http/log.ts").Log> {
  const logging: typeof import("../src/nodes/http/log.ts") = await import(
    join(source, "nodes/http/log.ts")
  );
  const level = process.env["BENCH_LOG_LEVEL"] === "info" ? "info" : "warn";
  const write = (text: string) =>
    new Promise<void>((done) => process.stderr.write(text, () => done()));
  return logging.createLog({ level, now: Date.now, write }).log;
}

function settings(address: string): import("../src/config/schema.ts").ConfigInput {
  const url = endpoint ?? `http://${address}`;
  const wide = 1_000_000;
  const places = { lmdb: { path: place }, postgres: { urls: [place] } };
  const where = driver === "lmdb" || driver === "postgres" ? places[driver] : {};
  return {
    server: {
      listen: [address],
      drain_timeout: "2s",
      log_level: process.env["BENCH_LOG_LEVEL"] === "info" ? "info" : "warn",
    },
    stores: { main: { plugin: driver, ...where, block_time_ms: driver === "postgres" ? 500 : 50 } },
    ...(bus === undefined ? {} : { bus: { plugin: "nats", servers: [bus] } }),
    directory: { enabled: true, unsigned_updates: "allow", rate_limit_loopback: false },
    relay: {
      enabled: true,
      public_id: "bench",
      public_endpoints: [url],
      allow_http: true,
      allow_private: ["127.0.0.0/8"],
      rate_limit_loopback: false,
      recipient_rate: wide,
    },
    cache: {
      enabled: true,
      public_endpoints: [url],
      recipient_entries_max: wide,
      recipient_bytes_max: "4GiB",
      stranger_share: 100,
    },
  };
}

/** The node must know its URL before it listens. */
function freePort(): Promise<number> {
  return new Promise((found) => {
    const server = createServer();
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => found(typeof address === "object" && address !== null ? address.port : 0));
    });
  });
}
