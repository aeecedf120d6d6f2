/**
 * How many objects a node makes for a store, by kind: `bun bench/objects.ts [lmdb|memory] [checkout]`. The collector is off,
 * so the numbers are the same in each run; processor time follows them, and an async function is five objects. Prints
 * those of which a store makes one or more.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { measureLoad } from "./http-load.ts";
import { registered } from "./registered.ts";

const [driver = "lmdb", checkout = join(import.meta.dir, "..")] = process.argv.slice(2);
/** Compiled code makes fewer objects. */
const warmStores = 20_000;
const countedStores = 640;

const folder = mkdtempSync(join(tmpdir(), "waypost-objects-"));
const server = Bun.spawn(
  [process.execPath, join(import.meta.dir, "http-server.ts"), checkout, driver, folder],
  { stdin: "pipe", stdout: "pipe", stderr: "inherit", env: { ...process.env, BUN_JSC_useGC: "0" } },
);
try {
  const lines = linesOf(server.stdout);
  const url = await nextLine(lines);
  const { did: to } = await registered(url);
  const count = async (): Promise<Record<string, number>> => {
    server.stdin.write("count\n");
    await server.stdin.flush();
    return JSON.parse(await nextLine(lines)) as Record<string, number>;
  };
  await storeMany(url, to, warmStores);
  const before = await count();
  await storeMany(url, to, countedStores);
  const after = await count();
  const made = Object.entries(after).map(([kind, number]): [string, number] => [
    kind,
    (number - (before[kind] ?? 0)) / countedStores,
  ]);
  for (const [kind, each] of made.toSorted(([, a], [, b]) => b - a))
    if (each >= 0.95) console.log(each.toFixed(1).padStart(6), kind);
} finally {
  await server.stdin.end();
  await server.exited;
  rmSync(folder, { recursive: true, force: true });
}

async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of stream) {
    const parts = (text + decoder.decode(chunk)).split("\n");
    text = parts.pop() ?? "";
    yield* parts;
  }
}

async function nextLine(lines: AsyncGenerator<string>): Promise<string> {
  const { value, done } = await lines.next();
  if (done === true) throw new Error("the node ended");
  return value;
}

async function storeMany(url: string, to: string, requestsMax: number): Promise<void> {
  const ciphertext_b64 = crypto.getRandomValues(new Uint8Array(1_024)).toBase64();
  const timestamp = new Date().toISOString();
  const request = (): Buffer<ArrayBuffer> => {
    const ids = { message_id: crypto.randomUUID(), to, timestamp, ttl: "1h" };
    const body = JSON.stringify({ ...ids, payload: { ciphertext_b64 } });
    const type = "content-type: application/json";
    const head = `POST /cache/store HTTP/1.1\r\nhost: bench\r\n${type}\r\ncontent-length: ${body.length}`;
    return Buffer.from(`${head}\r\n\r\n${body}`);
  };
  await measureLoad({ url, connections: 64, durationMs: 60_000, requestsMax, request });
}
