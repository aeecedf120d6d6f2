/**
 * A child that writes is killed at random moments, again and again on the same store. After each kill
 * everything that was answered is there, nothing that was acknowledged is back, and nothing is there
 * that was never begun or is not whole. A driver that answers too early is caught by the same rig.
 */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Uuid } from "../../src/core/codec/did.ts";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import type { Store } from "../../src/storage/contract.ts";
import { testEnvironment } from "../conformance/kit.ts";
import { optionsOf } from "../conformance/options.ts";
import { did, id, listAll, pageOf } from "../conformance/samples.ts";
import { crashEntry, crashReceipt, crashTimes, recipientsMax } from "./store-facts.ts";

const kills = 60;
const base = mkdtempSync(join(tmpdir(), "waypost-crash-"));
afterAll(() => rmSync(base, { recursive: true, force: true }));

/** What the child said: numbers it began or finished, by what it did with them. */
class Said {
  readonly sets = new Map<string, Set<number>>();
  last = 0;

  add(line: string): void {
    const [tense, what, number] = line.split(" ");
    if (number === undefined) return;
    this.of(`${tense} ${what}`).add(Number(number));
    this.last = Math.max(this.last, Number(number));
  }

  of(key: string): Set<number> {
    const set = this.sets.get(key) ?? new Set();
    this.sets.set(key, set);
    return set;
  }
}

type Run = { readonly path: string; readonly seed: number; readonly mode: "safe" | "unsafe"; readonly lifeMs: number };

/** Lets a child write for so long after it is ready, kills it, and takes down what it said. */
async function killedWriter({ path, seed, mode, lifeMs }: Run, said: Said): Promise<void> {
  const script = join(import.meta.dir, "store-writer.ts");
  const child = Bun.spawn([process.execPath, script, path, String(said.last + 1), String(seed), mode], {
    stdout: "pipe",
    stderr: "inherit",
  });
  let text = "";
  let isReady = false;
  const decoder = new TextDecoder();
  for await (const chunk of child.stdout) {
    text += decoder.decode(chunk, { stream: true });
    if (!isReady && text.startsWith("ready\n")) {
      isReady = true;
      setTimeout(() => child.kill("SIGKILL"), lifeMs);
    }
  }
  await child.exited;
  expect(child.signalCode).toBe("SIGKILL");
  // A last line without its end was not said whole.
  for (const line of text.split("\n").slice(0, -1)) said.add(line);
}

async function openStore(path: string): Promise<Store> {
  return lmdbPlugin.open(optionsOf(lmdbPlugin, { path, reserve_bytes: 1024 * 1024 }), testEnvironment());
}

/** Everything that is wrong with the store after what was said. */
async function findings(store: Store, said: Said): Promise<string[]> {
  return [...(await mailboxFindings(store, said)), ...(await recordFindings(store, said))];
}

async function mailboxFindings(store: Store, said: Said): Promise<string[]> {
  const wrong: string[] = [];
  const mailbox = store.capabilities.mailbox!;
  const numbers = new Map<Uuid, number>([...said.of("try store")].map((n) => [id(n), n]));
  const found = new Set<number>();
  let bytes = 0;
  for (let r = 0; r < recipientsMax; r++) {
    for (const one of await listAll(mailbox, did(r), pageOf({ nowMs: crashTimes.nowMs }))) {
      const n = numbers.get(one.messageId);
      bytes += one.envelope.length;
      if (n === undefined || n % recipientsMax !== r) wrong.push(`phantom ${one.messageId}`);
      else if (found.has(n)) wrong.push(`doubled ${n}`);
      else if (!Buffer.from(one.envelope).equals(crashEntry(n).envelope)) wrong.push(`not whole ${n}`);
      if (n !== undefined) found.add(n);
    }
  }
  const stats = await mailbox.stats(crashTimes.nowMs);
  if (stats.entries !== found.size || stats.bytes !== bytes) wrong.push(`stats ${JSON.stringify(stats)}`);
  for (const n of said.of("did store")) {
    const { state } = await mailbox.message(did(n % recipientsMax), id(n), crashTimes.nowMs);
    if (said.of("did ack").has(n)) {
      if (state !== "acked" || found.has(n)) wrong.push(`acknowledged ${n} is ${state}`);
    } else if (said.of("try ack").has(n)) {
      if ((state === "active") !== found.has(n) || !["active", "acked"].includes(state)) wrong.push(`${n} is ${state}`);
    } else if (state !== "active" || !found.has(n)) wrong.push(`answered ${n} is ${state}`);
  }
  return wrong;
}

async function recordFindings(store: Store, said: Said): Promise<string[]> {
  const wrong: string[] = [];
  const { replay, receipts } = store.capabilities;
  const { nowMs, expiresAtMs } = crashTimes;
  for (const n of said.of("did claim")) {
    if (await replay!.claim(`tag ${n}`, expiresAtMs, nowMs)) wrong.push(`claim ${n} was free`);
  }
  for (const n of said.of("did put")) {
    const value = await receipts!.get(`key ${n}`, nowMs);
    if (said.of("did forget").has(n)) {
      if (value !== null) wrong.push(`forgotten receipt ${n} is back`);
    } else if (value === null) {
      if (!said.of("try forget").has(n)) wrong.push(`receipt ${n} is lost`);
    } else if (!Buffer.from(value).equals(crashReceipt(n))) wrong.push(`receipt ${n} is not whole`);
  }
  return wrong;
}

describe("a writer killed at random", () => {
  test(`loses nothing that was answered, over ${kills} kills of one store`, async () => {
    const path = join(base, "safe");
    const said = new Said();
    for (let round = 0; round < kills; round++) {
      const lifeMs = Math.random() < 0.3 ? Math.random() * 20 : Math.random() * 250;
      await killedWriter({ path, seed: round, mode: "safe", lifeMs }, said);
      const store = await openStore(path);
      expect(await findings(store, said)).toEqual([]);
      await store.close();
    }
    // The rig did see work of every kind, and kills between beginning and answering.
    for (const kind of ["did store", "did ack", "did claim", "did put", "did forget"]) {
      expect(said.of(kind).size).toBeGreaterThan(kills);
    }
    expect(said.of("try store").size).toBeGreaterThan(said.of("did store").size);
  }, 120_000);

  test("is noticed when it answers before the commit", async () => {
    const wrong: string[] = [];
    for (let round = 0; round < 20 && wrong.length === 0; round++) {
      const path = join(base, `unsafe ${round}`);
      const said = new Said();
      await killedWriter({ path, seed: round, mode: "unsafe", lifeMs: 20 + Math.random() * 60 }, said);
      const store = await openStore(path);
      wrong.push(...(await findings(store, said)));
      await store.close();
    }
    expect(wrong).not.toEqual([]);
  }, 60_000);
});
