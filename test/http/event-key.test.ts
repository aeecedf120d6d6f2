/**
 * The key of event proofs is rotated: receipts are signed with the new key after a restart, the
 * former public key stays published with its end, and receipts from before still verify by what the
 * node publishes.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ed25519 } from "@noble/curves/ed25519.js";
import { type RunningNodes, startNodes } from "../../src/app/compose.ts";
import { checkConfig } from "../../src/config/config.ts";
import {
  decodeBase64,
  encodeBase64,
  parsePublicKey,
  renderPublicKey,
  utf8,
} from "../../src/core/codec/bytes.ts";
import { encodeEventProof } from "../../src/core/message/proof.ts";
import { executable, freePort, scratchFolder } from "../support/executable.ts";

const folder = scratchFolder();
afterAll(folder.remove);
const file = join(folder.path, "signing.key");
const url = `http://127.0.0.1:${freePort()}`;

const checked = checkConfig({
  server: { listen: [url.slice("http://".length)], drain_timeout: "2s" },
  stores: { main: { plugin: "memory", block_time_ms: 20 } },
  directory: { enabled: true },
  cache: { enabled: true, public_endpoints: [url], signing_key_file: file },
});
if (!checked.ok) throw new Error(JSON.stringify(checked.problems));
const { config } = checked;

let nodes: RunningNodes;
const seed = ed25519.utils.randomSecretKey();
const did = "did:svc:eventKeyTesteventKey22";
beforeAll(async () => {
  writeFileSync(file, `${ed25519.utils.randomSecretKey().toHex()}\n`, { mode: 0o600 });
  await start();
});
async function start(): Promise<void> {
  nodes = await startNodes(structuredClone(config), {
    log: () => undefined,
    onFatal: (reason) => {
      throw new Error(reason);
    },
  });
  await register();
}
async function restart(): Promise<void> {
  await nodes.stop();
  await start();
}
afterAll(() => nodes.stop());

const post = (path: string, body: unknown): Promise<Response> =>
  fetch(url + path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });

async function register(): Promise<void> {
  const timestamp = new Date().toISOString();
  const did_document = {
    id: did,
    verificationMethod: [
      {
        id: `${did}#root`,
        type: "Multikey",
        controller: did,
        publicKeyMultibase: renderPublicKey(ed25519.getPublicKey(seed)),
      },
    ],
    authentication: [`${did}#root`],
    service: [
      {
        id: `${did}#cache`,
        type: "SvcCacheService",
        serviceEndpoint: [url],
        authorization: [`${did}#root`],
      },
    ],
  };
  const signature = encodeBase64(ed25519.sign(utf8(`${did}|${timestamp}`), seed));
  expect((await post("/register-did", { did, timestamp, signature, did_document })).status).toBe(
    202,
  );
  for (;;) {
    const status = (await (await fetch(`${url}/registration-status/${did}`)).json()) as {
      registered: boolean;
    };
    if (status.registered) return;
    await Bun.sleep(20);
  }
}

type Receipt = {
  readonly message_id: string;
  readonly proof: { readonly timestamp: string; readonly signature: string };
};

async function stored(): Promise<Receipt> {
  const reply = await post("/cache/store", {
    message_id: crypto.randomUUID(),
    to: did,
    timestamp: new Date().toISOString(),
    payload: {},
  });
  expect(reply.status).toBe(202);
  return (await reply.json()) as Receipt;
}

type Node = {
  readonly event_proof_key: string;
  readonly previous_event_proof_keys: readonly {
    readonly key: string;
    readonly valid_until: string;
  }[];
};
const published = async (): Promise<Node> => (await (await fetch(`${url}/node`)).json()) as Node;

/** Whether the receipt was signed by the key, as a client finds out. */
function isSignedBy(key: string, { message_id, proof }: Receipt): boolean {
  const publicKey = parsePublicKey(key);
  if (publicKey === null) throw new Error(`${key} is not a key`);
  const text = encodeEventProof({
    eventType: "delivery",
    messageId: message_id as Parameters<typeof encodeEventProof>[0]["messageId"],
    timestamp: proof.timestamp,
    recipientDid: did as Parameters<typeof encodeEventProof>[0]["recipientDid"],
    reason: null,
    endpoint: url,
  });
  return ed25519.verify(decodeBase64(proof.signature) ?? new Uint8Array(), text, publicKey);
}

async function rotate(...flags: string[]): Promise<Record<string, string>> {
  const child = Bun.spawn([await executable(), "key", "rotate", file, "--json", ...flags], {
    stdout: "pipe",
  });
  const text = await new Response(child.stdout).text();
  expect(await child.exited).toBe(0);
  return JSON.parse(text) as Record<string, string>;
}

test("a rotated key signs after the restart, and the former one stays published until its end", async () => {
  const before = await published();
  const early = await stored();
  expect(before.previous_event_proof_keys).toEqual([]);
  expect(isSignedBy(before.event_proof_key, early)).toBe(true);

  const rotated = await rotate("--overlap", "7d");
  expect(rotated["previous"]).toBe(before.event_proof_key);
  expect(isSignedBy(before.event_proof_key, await stored())).toBe(true);

  await restart();
  const after = await published();
  const late = await stored();
  expect(after.event_proof_key).toBe(rotated["public_key"] ?? "");
  expect([
    isSignedBy(after.event_proof_key, late),
    isSignedBy(before.event_proof_key, late),
  ]).toEqual([true, false]);
  const [previous] = after.previous_event_proof_keys;
  expect(previous).toEqual({
    key: before.event_proof_key,
    valid_until: rotated["valid_until"] ?? "",
  });
  expect(isSignedBy(previous?.key ?? "", early)).toBe(true);
  const days = (Date.parse(previous?.valid_until ?? "") - Date.now()) / 86_400_000;
  expect(days).toBeGreaterThan(6.9);
  expect(days).toBeLessThan(7.1);
  expect(statSync(file).mode & 0o077).toBe(0);
});

test("each further rotation keeps the former ones, and what is over is no longer published", async () => {
  const first = await published();
  await rotate();
  await restart();
  const second = await published();
  expect(second.previous_event_proof_keys.map(({ key }) => key)).toEqual([
    ...first.previous_event_proof_keys.map(({ key }) => key),
    first.event_proof_key,
  ]);
  writeFileSync(
    `${file}.previous`,
    readFileSync(`${file}.previous`, "utf8").replaceAll(/20\d\d-/g, "2020-"),
  );
  await restart();
  expect((await published()).previous_event_proof_keys).toEqual([]);
});
