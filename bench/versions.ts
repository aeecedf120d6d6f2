/**
 * Whether a node stores an envelope of the second version for the processor time of one of the
 * first with as many bytes: `bun bench/versions.ts` has one node take both, in turns, over `lmdb`
 * or another `--driver`. It prints the first version's time divided by the second's, in the median
 * of the turns, and ends with 1 when that is below 0.95.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { sealPayload } from "../src/client/mail/seal.ts";
import { plan } from "../test/support/send-plan.ts";
import { measureLoad } from "./http-load.ts";
import { cpuSeconds } from "./processor.ts";
import { registered } from "./registered.ts";

const { values } = parseArgs({
  options: {
    driver: { type: "string", default: "lmdb" },
    turns: { type: "string", default: "101" },
  },
});
const [ratioMin, connections, requestsMax] = [0.95, 64, 1_000];
/** As a message of 1 KB has them: the place of the KEM's output, and of the ciphertext. */
const [encBytes, plainBytes] = [1_120, 1_472];

const random = (bytes: number) => crypto.getRandomValues(new Uint8Array(bytes)).toBase64();

function hybridPayload(): object {
  return {
    profile: "svc:sealed:xwing-hkdf-sha256-chacha20poly1305:v2",
    key_id: "0123456789abcdef0123456789abcdef",
    enc_b64: random(encBytes),
    ciphertext_b64: random(plainBytes),
  };
}

/** The members of a payload that was sealed, with a ciphertext of another length. */
async function curvePayload(ciphertextBytes: number): Promise<object> {
  const binding = { messageId: plan.id, to: plan.to, chunk: null };
  const entropy = { ephemeralSecret: new Uint8Array(32).fill(1), nonce: new Uint8Array(12) };
  const data = new Uint8Array(10);
  const { recipient, file } = plan;
  const sealed = await sealPayload({ binding, file, data, recipient, entropy });
  return { ...sealed, ciphertext_b64: random(ciphertextBytes) };
}

/** Requests whose bodies have as many bytes, white space at the end included. */
function posting(to: string, payload: object, bytes: number): () => Buffer<ArrayBuffer> {
  const timestamp = new Date().toISOString();
  const bodyOf = () =>
    JSON.stringify({ message_id: crypto.randomUUID(), to, timestamp, ttl: "1h", payload });
  const head = `POST /cache/store HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: ${bytes}\r\n\r\n`;
  return () => Buffer.from(head + bodyOf().padEnd(bytes));
}

async function startNode(place: string) {
  const script = join(import.meta.dir, "http-server.ts");
  const checkout = join(import.meta.dir, "..");
  const child = Bun.spawn([process.execPath, script, checkout, values.driver, place], {
    stdin: "pipe",
    stdout: "pipe",
    stderr: "inherit",
  });
  const first = await child.stdout.getReader().read();
  return { child, url: new TextDecoder().decode(first.value).trim() };
}

const folder = mkdtempSync(join(tmpdir(), "waypost-versions-"));
const { child, url } = await startNode(join(folder, "node"));
const second = hybridPayload();
const lengthOf = (payload: object) => JSON.stringify(payload).length;
const shortest = await curvePayload(3);
// Base64 has four characters for three bytes; what is left is white space.
const more = Math.floor((lengthOf(second) - lengthOf(shortest)) / 4) * 3;
const first = await curvePayload(3 + more);
/** Of the members around it. */
const aroundBytes = 256;
const bytes = lengthOf(second) + aroundBytes;

/** In a new mailbox, since one network has a small part of each. */
async function microsOf(payload: object): Promise<number> {
  const { did } = await registered(url);
  const request = posting(did, payload, bytes);
  const before = cpuSeconds(child.pid);
  const { answers } = await measureLoad({
    url,
    connections,
    durationMs: 60_000,
    requestsMax,
    request,
  });
  return ((cpuSeconds(child.pid) - before) * 1e6) / answers;
}

const ratios: number[] = [];
for (let turn = -1; turn < Number(values.turns); turn++) {
  const micros: number[] = [];
  // Each goes first in every other turn; the turn before the first one warms up.
  const order = turn % 2 === 0 ? [first, second] : [second, first];
  for (const payload of order) micros.push(await microsOf(payload));
  const [ofFirst = 0, ofSecond = 1] = turn % 2 === 0 ? micros : micros.toReversed();
  if (turn >= 0) ratios.push(ofFirst / ofSecond);
}
await child.stdin.end();
await child.exited;
rmSync(folder, { recursive: true, force: true });
const median = ratios.toSorted((a, b) => a - b)[Math.floor(ratios.length / 2)] ?? 0;
console.log(
  `${bytes} bytes over ${values.driver}: ${median.toFixed(2)} in the median of ${ratios.length}`,
);
process.exit(median < ratioMin ? 1 : 0);
