/**
 * The rig of the crash test and of the storage campaigns: a child that writes and prints what it
 * begins and what was answered, and the comparison of a store with that output.
 */
import { join } from "node:path";
import type { Uuid } from "../../src/core/codec/did.ts";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import type { Store } from "../../src/storage/contract.ts";
import { testEnvironment } from "../conformance/kit.ts";
import { optionsOf } from "../conformance/options.ts";
import { did, id, listAll, pageOf } from "../conformance/samples.ts";
import { crashEntry, crashReceipt, crashTimes, recipientsMax } from "./store-facts.ts";

/** What the child said: numbers it began or finished, by what it did with them. */
export class Said {
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

export type Run = {
  readonly path: string;
  readonly seed: number;
  readonly mode: "safe" | "unsafe";
  readonly lifeMs: number;
  readonly environment?: Readonly<Record<string, string>>;
};

/** Lets a child write for so long after it is ready, kills it, and takes down what it said. */
export async function killedWriter(run: Run, said: Said): Promise<void> {
  const ended = await writerEnded(run, said);
  if (ended !== "SIGKILL") throw new Error(`the writer ended with ${ended}`);
}

/** The same, for a writer that may end by itself: answers its signal or its exit code. */
export async function writerEnded(
  { path, seed, mode, lifeMs, environment }: Run,
  said: Said,
): Promise<string> {
  const script = join(import.meta.dir, "store-writer.ts");
  const child = Bun.spawn(
    [process.execPath, script, path, String(said.last + 1), String(seed), mode],
    {
      stdout: "pipe",
      stderr: "inherit",
      env: { ...process.env, ...environment },
    },
  );
  const lifetime = setTimeout(() => child.kill("SIGKILL"), lifeMs + 30_000);
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
  clearTimeout(lifetime);
  // A last line without its end was not said whole.
  for (const line of text.split("\n").slice(0, -1)) said.add(line);
  return String(child.signalCode ?? child.exitCode);
}

export async function openStore(path: string): Promise<Store> {
  return lmdbPlugin.open(
    optionsOf(lmdbPlugin, { path, reserve_bytes: 8 * 1024 * 1024 }),
    testEnvironment(),
  );
}

/** Everything that is wrong with the store after what was said. */
export async function findings(store: Store, said: Said): Promise<string[]> {
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
      else if (!Buffer.from(one.envelope).equals(crashEntry(n).envelope))
        wrong.push(`not whole ${n}`);
      if (n !== undefined) found.add(n);
    }
  }
  const stats = await mailbox.stats(crashTimes.nowMs);
  if (stats.entries !== found.size || stats.bytes !== bytes)
    wrong.push(`stats ${JSON.stringify(stats)}`);
  for (const n of said.of("did store")) {
    const { state } = await mailbox.message(did(n % recipientsMax), id(n), crashTimes.nowMs);
    if (said.of("did ack").has(n)) {
      if (state !== "acked" || found.has(n)) wrong.push(`acknowledged ${n} is ${state}`);
    } else if (said.of("try ack").has(n)) {
      if ((state === "active") !== found.has(n) || !["active", "acked"].includes(state))
        wrong.push(`${n} is ${state}`);
    } else if (state !== "active" || !found.has(n)) wrong.push(`answered ${n} is ${state}`);
  }
  return wrong;
}

async function recordFindings(store: Store, said: Said): Promise<string[]> {
  const wrong: string[] = [];
  const { mailbox, replay, receipts } = store.capabilities;
  const { nowMs, expiresAtMs } = crashTimes;
  for (const n of said.of("try proof")) {
    // This claim is over at once, so that it is in no one's way later.
    const isClaimed = !(await replay!.claim(`proof ${n}`, nowMs, nowMs));
    const { state } = await mailbox!.message(did(n % recipientsMax), id(n), nowMs);
    if (isClaimed !== (state === "acked"))
      wrong.push(`${n} is ${state}, its proof ${isClaimed ? "claimed" : "free"}`);
  }
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
