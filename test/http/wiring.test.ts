/**
 * Each role of a process works on the store that its section of the configuration names, and under
 * its own limits. The compiler can't notice a swap in `app/nodes.ts`, because the stores of all
 * roles have one type; so each role gets a store that writes down its calls, and limits that no
 * other role has.
 */
import { afterEach, beforeEach, expect, test } from "bun:test";
import { join } from "node:path";
import { ed25519 } from "@noble/curves/ed25519.js";
import { change, signOwnerUpdate } from "../../src/client/identity/change.ts";
import { memoryKeys, memoryStore, Waypost } from "../../src/client/package.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { freePort } from "../support/executable.ts";
import { keyPair, methodOf } from "../support/identity.ts";
import { registerAt, relayAt, startTestNodes, type TestNodes } from "../support/nodes.ts";
import { waiting } from "../support/people.ts";
import { calls } from "../support/recording-plugin.ts";
import { until } from "../support/wait.ts";

const plugin = join(import.meta.dir, "../support/recording-plugin.ts");
const storeOf = (name: string) => ({ plugin, name, block_time_ms: 50 });

let nodes: TestNodes;
beforeEach(async () => {
  const own = `http://127.0.0.1:${freePort()}`;
  nodes = await startTestNodes({
    server: { listen: [own.slice("http://".length)], drain_timeout: "2s" },
    stores: {
      ledger: storeOf("ledger"),
      records: storeOf("records"),
      results: storeOf("results"),
      mail: storeOf("mail"),
    },
    directory: {
      enabled: true,
      ledger: "ledger",
      store: "records",
      unsigned_updates: "allow",
      rate_limit_loopback: false,
    },
    limits: { body_bytes_max: 30_000_000 },
    relay: { ...relayAt(own), store: "results" },
    cache: { enabled: true, store: "mail", public_endpoints: [own] },
  });
  calls.length = 0;
});
afterEach(() => nodes.stop());

/**
 * The capabilities that were called since the last time, each once, but for the looks that a timer
 * begins.
 */
function taken(): string[] {
  const asked = calls.splice(0).filter((call) => !call.endsWith("receipts.scan"));
  return [...new Set(asked.map((call) => call.replace(/\.\w+$/, "")))].sort();
}

const open = () => Waypost.open({ url: nodes.url, keys: memoryKeys() });

test("a registration, a send and a receipt reach the stores of their roles and no other", async () => {
  const alice = await open();
  // A Cache keeps the key bundle of who is new.
  const bundled = ["mail: receipts", "mail: replay"];
  expect(taken()).toEqual(["ledger: ledger", ...bundled, "records: receipts"]);
  const bob = await open();
  taken();
  await alice.send(bob.did, "hi");
  const written = taken();
  expect(written).toContain("mail: mailbox");
  expect(written).toContain("results: receipts");
  expect(written.filter((name) => name.startsWith("records:"))).toEqual([]);
  for await (const message of bob.messages()) {
    expect(message.text).toBe("hi");
    break;
  }
  const read = taken();
  // The proof of the live session counts at the Relay, those of the reads at the Cache.
  expect(read).toContain("results: replay");
  expect(read).toContain("mail: replay");
  // The Directory notes on which day its members were seen.
  const noted = new Set(["records: receipts"]);
  expect(read.filter((name) => name.startsWith("records:") && !noted.has(name))).toEqual([]);
  await alice.close();
  await bob.close();
});

test("a read claims its nonce at the Cache, and a signed policy at the Directory", async () => {
  const bob = await Waypost.open({ url: nodes.url, keys: memoryKeys(), store: memoryStore() });
  taken();
  await bob.receiveWaiting();
  const claimed = taken().filter((name) => name.endsWith("replay"));
  expect(claimed).toContain("mail: replay");
  // A live session that opens meanwhile claims its own at the Relay.
  expect(claimed).not.toContain("records: replay");
  await bob.close();

  const seed = ed25519.utils.randomSecretKey();
  const did = "did:svc:3vQB7B6MrGQZaxCuFg4oh1" as Did;
  const root = keyPair(seed);
  const method = methodOf(did, "root", root);
  const document = { id: did, verificationMethod: [method], authentication: [method.id] };
  await registerAt(nodes.url, { did, root, label: "root" }, document);
  taken();
  const links = { recipient_policy: did };
  const update = await signOwnerUpdate(
    { extrinsic: "set_delivery_policy_links", did, value: links },
    { keyId: method.id, seed },
    { nowMs: Date.now(), genesisHash: null },
  );
  const { method: verb, path, body, headers } = update;
  const answer = await fetch(`${nodes.url}${path}`, {
    method: verb,
    body: body as Uint8Array<ArrayBuffer>,
    headers: { ...headers, "content-type": "application/json" },
  });
  expect(answer.status).toBe(202);
  expect(taken()).toContain("records: replay");
});

test("what a deleted DID leaves at the Cache is removed from the store of the Cache", async () => {
  const gone = await open();
  const { identity, client, did } = gone;
  taken();
  const signer = { keyId: "root", seed: identity.rootSeed };
  await change(client, { action: "delete_did", did }, { signer, waiting });
  const removed = () => calls.filter((call) => call.endsWith("receipts.remove"));
  await until(() => removed().some((call) => call.startsWith("mail:")));
  expect(calls.some((call) => call.startsWith("mail: mailbox"))).toBe(true);
  await gone.close();
});

test("a process that takes envelopes names their largest body, not that of the Directory's routes", async () => {
  const limits = (await (await fetch(`${nodes.url}/limits`)).json()) as Record<string, unknown>;
  expect(limits["max_http_body_bytes"]).toBe(30_000_000);
});
