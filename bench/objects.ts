/**
 * How many objects a node makes for a store or for a page of ten, by kind: `bun bench/objects.ts
 * [lmdb|memory] [checkout] [store|messages]`. The collector is off, so the numbers are the same in
 * each run; processor time follows them, and an async function is five objects. Prints those of
 * which an answer makes one or more.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { measureLoad } from "./http-load.ts";
import { registered } from "./registered.ts";
import { posting, pulling } from "./requests.ts";

const here = join(import.meta.dir, "..");
const [driver = "lmdb", checkout = here, path = "store"] = process.argv.slice(2);
/** Compiled code makes fewer objects. */
const warmAnswers = 20_000;
const countedAnswers = 640;
const pageEntries = 10;

const folder = mkdtempSync(join(tmpdir(), "waypost-objects-"));
const server = Bun.spawn(
  [process.execPath, join(import.meta.dir, "http-server.ts"), checkout, driver, folder],
  { stdin: "pipe", stdout: "pipe", stderr: "inherit", env: { ...process.env, BUN_JSC_useGC: "0" } },
);
try {
  const lines = linesOf(server.stdout);
  const url = await nextLine(lines);
  const reader = await registered(url);
  const store = posting("/cache/store", reader.did);
  const load = { url, connections: 64, durationMs: 60_000 };
  if (path === "messages")
    await measureLoad({ ...load, connections: 1, requestsMax: pageEntries, request: store });
  const request = path === "messages" ? pulling(reader) : store;
  const count = async (): Promise<Record<string, number>> => {
    server.stdin.write("count\n");
    await server.stdin.flush();
    return JSON.parse(await nextLine(lines)) as Record<string, number>;
  };
  await measureLoad({ ...load, requestsMax: warmAnswers, request });
  const before = await count();
  await measureLoad({ ...load, requestsMax: countedAnswers, request });
  const after = await count();
  const made = Object.entries(after).map(([kind, number]): [string, number] => [
    kind,
    (number - (before[kind] ?? 0)) / countedAnswers,
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
