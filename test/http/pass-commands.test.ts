/**
 * Commands and passes: what `waypost receive` got, `waypost send` shows, and gives where the
 * mailbox of the identity has passes; an anonymous message does neither.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileKeys } from "../../src/cli/files/files.ts";
import { fileStore, storePath } from "../../src/cli/files/store.ts";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { readMessage, recipientOf } from "../../src/client/mail/retrieve.ts";
import { listPending } from "../../src/client/net/caches.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { cachesOf } from "../../src/client/trust/caches.ts";
import { Waypost } from "../../src/client/waypost.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { executable } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { waiting } from "../support/people.ts";
import { scratchPaths } from "../support/scratch.ts";

const paths = scratchPaths("pass-commands");
const keys = paths();
const note = `${paths()}.txt`;
writeFileSync(note, "hello");
let nodes: TestNodes;
beforeAll(async () => {
  const limits = { cache: { recipient_entries_max: 400, rate_limit_loopback: false } };
  nodes = await startTestNodes({}, limits);
});
afterAll(() => nodes.stop());

const main = await executable();
const open = (options: Partial<WaypostOptions> = {}) =>
  Waypost.open({ url: nodes.url, keys: memoryKeys(), waiting, ...options });

async function waypost(...words: string[]): Promise<{ code: number; said: string }> {
  const given = [...words, "--keys", keys, "--url", nodes.url, "--json"];
  const child = Bun.spawn([main, ...given], { stdout: "pipe", stderr: "pipe" });
  const [out, errors] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  return { code: await child.exited, said: out + errors };
}

/** Where a note ends that a command sends: its code. */
async function sends(as: string, to: string, ...more: string[]): Promise<string> {
  const given = ["--as", as, "--to", to, "--file", note, "--retries", "0", "--hint", "cache"];
  const { said } = await waypost("send", ...given, ...more);
  return String((JSON.parse(said.trim().split("\n").at(-1) ?? "") as { code: string }).code);
}

const receives = (as: string, ...more: string[]) =>
  waypost("receive", "--as", as, "--out", join(keys, "in"), ...more);

/** Until newcomers find no room in the mailbox. */
async function flood(did: string): Promise<void> {
  for (;;) {
    const envelope = {
      message_id: crypto.randomUUID(),
      to: did,
      timestamp: new Date().toISOString(),
      payload: { ciphertext_b64: "aGVsbG8=" },
    };
    const answer = await fetch(`${nodes.url}/cache/store`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(envelope),
    });
    if (answer.status === 507) return;
  }
}

/** The mailbox has passes. */
const isTold = (did: Did) => async () =>
  (await nodes.stores.capability("cache.store", "receipts").get(`passes:${did}`, Date.now())) !==
  null;
async function until(holds: () => Promise<boolean>): Promise<void> {
  while (!(await holds())) await Bun.sleep(20);
}

test("a pass that came by `receive` is shown by `send`, and not by `send --anonymous`", async () => {
  const bob = await open({ store: memoryStore() });
  await until(isTold(bob.did));
  for (const name of ["alice", "carol"]) await (await open({ keys: fileKeys(keys), name })).close();
  const { did: alice } = await open({ keys: fileKeys(keys), name: "alice" });
  await (await bob.send(alice, "a pass for you")).delivered;
  await bob.close();
  expect((await receives("alice")).code).toBe(0);
  await flood(bob.did);
  expect(await sends("alice", bob.did)).toBe("cached");
  expect(await sends("alice", bob.did, "--anonymous")).toBe("mailbox_full");
  expect(await sends("carol", bob.did)).toBe("mailbox_full");
}, 60_000);

test("where the mailbox has passes, `receive --accept` counts who is accepted, and `send` gives", async () => {
  const store = () => fileStore(storePath(keys, "dave"), { bytesMax: Infinity });
  const dave = await open({ keys: fileKeys(keys), name: "dave", store: store() });
  await until(isTold(dave.did));
  await dave.close();
  const passes = async () => {
    const kept = nodes.stores.capability("cache.store", "receipts");
    const text = new TextDecoder().decode(
      (await kept.get(`passes:${dave.did}`, Date.now())) ?? new Uint8Array(),
    );
    return (JSON.parse(text) as { passes: number }).passes;
  };
  expect(await passes()).toBe(0);
  const erin = await open({ store: memoryStore() });
  await (await erin.send(dave.did, "may I?")).delivered;
  expect((await receives("dave", "--accept")).code).toBe(0);
  expect(await passes()).toBe(1);
  await flood(dave.did);
  // Accepted, but so far without a pass.
  const { delivered } = await erin.send(dave.did, "hello?", { hint: "cache" });
  expect(await sends("dave", erin.did)).toBe("cached");
  // It comes through as soon as the pass has come.
  expect((await delivered)?.last?.code).toBe("cached");
  await erin.close();
}, 60_000);

test("an anonymous message brings no pass, by which its author would be known again", async () => {
  const [bob, alice] = [await open({ store: memoryStore() }), await open()];
  await until(isTold(bob.did));
  const passOf = async (anonymous: boolean) => {
    await (await bob.send(alice.did, "hello", { anonymous, hint: "cache" })).delivered;
    const { pending } = await listPending(await cachesOf(alice.client, alice.identity));
    const recipient = recipientOf(alice.client, alice.identity);
    const read = await Promise.all(pending.map((message) => readMessage(message, recipient)));
    return read.find(({ from }) => (from === null) === anonymous)?.pass ?? null;
  };
  expect(await passOf(true)).toBeNull();
  expect(await passOf(false)).toMatch(/^[A-Za-z0-9_-]{54}$/);
  await Promise.all([bob.close(), alice.close()]);
}, 60_000);
