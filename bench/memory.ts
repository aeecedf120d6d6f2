/**
 * What memory a node over `lmdb` takes: resident at the start, then while stores come as fast as
 * they are answered, over 64 and over 256 connections, until 500,000 ids are held. `bun
 * bench/memory.ts [--seconds 60] [--ids 500000]`; exits with 1 above the bounds below. Linux only.
 *
 * `--minutes 38` instead sends stores of all lives and sizes, pulls and acknowledgements at an even
 * rate (`--rate`, requests a second), and prints each few minutes the resident memory, the bytes
 * that wait, and the size of the file, which `docs/run.md` bounds.
 */
import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { measureLoad } from "./http-load.ts";
import { cpuSeconds } from "./processor.ts";
import { type Registered, registered } from "./registered.ts";
import { acknowledging, posting, pulling } from "./requests.ts";

const { values: flags } = parseArgs({
  options: {
    seconds: { type: "string", default: "60" },
    ids: { type: "string", default: "500000" },
    connections: { type: "string", default: "64,256" },
    minutes: { type: "string" },
    rate: { type: "string", default: "300" },
    checkout: { type: "string", default: join(import.meta.dir, "..") },
  },
});

/** In MiB. */
const startMax = 100;
const mixedMax = 230;
/** With so many ids held, whose index grows by a quarter at a time. */
const fullSpeedMax = (ids: number) => Math.round(210 + (ids * 140) / 2 ** 20);
/** What `docs/run.md` says of the file: so many times the bytes that wait, and so many MiB. */
const file = { timesMax: 2.5, moreMax: 64 };
/** A mailbox takes only so much of one client network. */
const readersCount = 100;
const mebibyte = 2 ** 20;
/** Of the mixed load: seconds, and bytes of payload. Most are short, few are long. */
const lives = [5, 60, 300, 900, 3_600, 86_400];
const sizes = [200, 200, 1_000, 1_000, 4_000, 16_000, 64_000];

const findings: string[] = [];
const folder = mkdtempSync(join(tmpdir(), "waypost-memory-"));
const server = Bun.spawn(
  [process.execPath, join(import.meta.dir, "http-server.ts"), flags.checkout, "lmdb", folder],
  { stdin: "pipe", stdout: "pipe", stderr: "inherit" },
);
try {
  const url = await firstLine(server.stdout);
  check("at the start", residentMebibytes(), startMax);
  const readers = await Promise.all(Array.from({ length: readersCount }, () => registered(url)));
  if (flags.minutes === undefined) await storeAtFullSpeed(url, readers);
  else await mix(url, readers, Number(flags.minutes));
} finally {
  await server.stdin.end();
  await server.exited;
  rmSync(folder, { recursive: true, force: true });
}
for (const finding of findings) console.error(`✗ ${finding}`);
process.exit(findings.length === 0 ? 0 : 1);

function check(what: string, mebibytes: number, most: number): void {
  console.log(`${what}: ${mebibytes} MiB resident`);
  if (mebibytes > most) findings.push(`${what}: ${mebibytes} MiB, and at most ${most} are right`);
}

async function firstLine(stream: ReadableStream<Uint8Array>): Promise<string> {
  const reader = stream.getReader();
  const { value } = await reader.read();
  reader.releaseLock();
  return new TextDecoder().decode(value).trim();
}

function residentMebibytes(): number {
  const status = readFileSync(`/proc/${server.pid}/status`, "utf8");
  return Math.round(Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1_024);
}

/** The most of many looks until it is ended. */
function watchResident(): () => number {
  let most = 0;
  const timer = setInterval(() => {
    most = Math.max(most, residentMebibytes());
  }, 100);
  return () => {
    clearInterval(timer);
    return most;
  };
}

// -------------------------------------------------------------------------------------- full speed

async function storeAtFullSpeed(url: string, readers: readonly Registered[]): Promise<void> {
  const requests = readers.map(({ did }) => posting("/cache/store", did));
  let next = 0;
  const request = () => requests[next++ % requests.length]!();
  let held = 0;
  const numbers = flags.connections.split(",").map(Number);
  for (const [i, connections] of numbers.entries()) {
    const isLast = i === numbers.length - 1;
    const end = watchResident();
    const cpuBefore = cpuSeconds(server.pid);
    const { answers, perSecond } = await measureLoad({
      url,
      connections,
      durationMs: Number(flags.seconds) * 1_000,
      request,
    });
    held += answers;
    // The last are held at the end of the whole, however slow the machine is.
    if (isLast && held < Number(flags.ids)) {
      const requestsMax = Number(flags.ids) - held;
      held += (await measureLoad({ url, connections, durationMs: 6e5, requestsMax, request }))
        .answers;
    }
    const micros = ((cpuSeconds(server.pid) - cpuBefore) * 1e6) / answers;
    const what = `${connections} connections, ${Math.round(perSecond)} stores/s of ${Math.round(micros)} µs, ${held} ids held`;
    check(`${what}, at most`, end(), fullSpeedMax(held));
  }
}

// ------------------------------------------------------------------------------------ a mixed load

type Waiting = { readonly reader: Registered; readonly id: string };

async function mix(url: string, readers: readonly Registered[], minutes: number): Promise<void> {
  const waiting: Waiting[] = [];
  const pulls = readers.map((reader) => pulling(reader));
  const some = <T>(list: readonly T[]): T => list[Math.floor(Math.random() * list.length)]!;
  const store = (): Buffer<ArrayBuffer> => {
    const reader = some(readers);
    const id = crypto.randomUUID();
    waiting.push({ reader, id });
    return bodyOf(reader.did, id, { ttl: `${some(lives)}s`, bytes: some(sizes) });
  };
  // Half of what was stored is acknowledged, in any order; it may have expired before.
  const acknowledge = (): Buffer<ArrayBuffer> => {
    const { reader, id } = waiting.splice(Math.floor(Math.random() * waiting.length), 1)[0]!;
    return acknowledging(reader, () => [id])();
  };
  const request = (): Buffer<ArrayBuffer> => {
    const kind = Math.random();
    if (kind < 0.3 && waiting.length > 1_000) return acknowledge();
    return kind < 0.4 ? some(pulls)() : store();
  };
  const beganMs = performance.now();
  const lapMs = Math.min(120_000, (minutes * 60_000) / 4);
  while (performance.now() - beganMs < minutes * 60_000) {
    const end = watchResident();
    await evenly({ url, durationMs: lapMs, request });
    const most = end();
    const alive = await bytesWaiting(url);
    const bytes = statSync(join(folder, "data.mdb")).size;
    const after = ((performance.now() - beganMs) / 60_000).toFixed(1);
    const sizesNow = `${mebibytesOf(bytes)} MiB of file for ${mebibytesOf(alive)} that wait`;
    check(`after ${after} minutes, ${sizesNow}, at most`, most, mixedMax);
    if (bytes > file.timesMax * alive + file.moreMax * mebibyte)
      findings.push(`after ${after} minutes: ${sizesNow}`);
  }
}

function mebibytesOf(bytes: number): number {
  return Math.round(bytes / mebibyte);
}

function bodyOf(to: string, id: string, { ttl, bytes }: { ttl: string; bytes: number }) {
  const payload = { ciphertext_b64: Buffer.alloc(bytes, id).toString("base64") };
  const timestamp = new Date().toISOString();
  const body = JSON.stringify({ message_id: id, to, timestamp, ttl, payload });
  const head = `POST /cache/store HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: ${body.length}`;
  return Buffer.from(`${head}\r\n\r\n${body}`);
}

type Lap = {
  readonly url: string;
  readonly durationMs: number;
  readonly request: () => Buffer<ArrayBuffer>;
};

/** So many requests a second, ten times a second some of them. */
async function evenly({ url, durationMs, request }: Lap): Promise<void> {
  const endsAtMs = performance.now() + durationMs;
  for (let dueMs = performance.now(); performance.now() < endsAtMs; dueMs += 100) {
    await Bun.sleep(Math.max(0, dueMs - performance.now()));
    const requestsMax = Math.round(Number(flags.rate) / 10);
    await measureLoad({ url, connections: 16, durationMs: 60_000, requestsMax, request });
  }
}

/** Of envelopes, as the node counts them. */
async function bytesWaiting(url: string): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(/^waypost_mailbox_bytes\S* (\S+)/m.exec(text)?.[1]);
}
