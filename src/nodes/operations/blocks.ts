/**
 * The operator's block list of DIDs, senders and client networks, changed with `waypost block`. It is kept in a store
 * of the node, so it survives a restart and applies to every process on that store. Each process holds it as sets
 * in memory, so a check costs a look-up. A change is announced over the bus; a process that missed it reads
 * the list again within ten seconds.
 */
import { utf8 } from "../../core/codec/bytes.ts";
import { type Did, isDid } from "../../core/codec/did.ts";
import { dayMs, secondMs } from "../../core/codec/time.ts";
import { errorText, type Fault, fault, isFault } from "../../core/fault.ts";
import {
  type Address,
  type Network,
  networkHolds,
  parseAddress,
  parseNetwork,
  unmapAddress,
} from "../../core/message/address.ts";
import { blocksMax } from "../../core/schema/schema.ts";
import type { Bus } from "../../storage/bus.ts";
import { type Receipts, StoreError } from "../../storage/contract.ts";
import type { Log } from "../http/log.ts";

/** `did` is blocked as sender and as recipient, `sender` as sender alone. */
type BlockKind = "did" | "sender" | "network";

type Block = {
  /** A DID, or a network such as `203.0.113.0/24`. */
  readonly subject: string;
  readonly kind: BlockKind;
  readonly sinceMs: number;
  readonly reason: string | null;
};

export type BlockChange = {
  readonly add: readonly Omit<Block, "sinceMs">[];
  /** Subjects. */
  readonly remove: readonly string[];
};

export type Blocks = {
  readonly list: () => readonly Block[];
  /** The number of entries that were added or replaced, and removed; durable when it resolves. */
  readonly change: (change: BlockChange) => Promise<{ added: number; removed: number } | Fault>;
  /** 403 `policy_denied` when sender or recipient is blocked. The sender's signature has been verified. */
  readonly checkParties: (to: Did, from: Did | null) => Fault | null;
  /** 403 `policy_denied` for a client of a blocked network. */
  readonly checkClient: (client: string) => Fault | null;
  /** 403 `policy_denied` for a DID that is blocked altogether. */
  readonly checkDid: (did: Did) => Fault | null;
  /** Calls back after each change, so that sessions and streams from before are checked again; the result unsubscribes. */
  readonly follow: (changed: () => void) => () => void;
  readonly close: () => void;
};

const subject = "blocks.changed";
const readEveryMs = 10 * secondMs;
/** A receipt must have an end; this list has none, so it gets 100 years. */
const keptMs = 36_500 * dayMs;
/** A receipt holds 64 KiB; an entry has at most 160 bytes of subject and 800 of reason. */
const pageEntries = 60;

type BlocksParts = {
  readonly receipts: Receipts;
  readonly bus: Bus;
  readonly now: () => number;
  readonly log: Log;
};

export async function openBlocks(parts: BlocksParts): Promise<Blocks> {
  const { receipts, bus, now, log } = parts;
  const followers = new Set<() => void>();
  let sets = setsOf(await readList(receipts, { from: 0, nowMs: now() }));
  const apply = (list: List): void => {
    if (list.revision <= sets.revision) return;
    sets = setsOf(list);
    for (const changed of followers) changed();
  };
  const read = (): Promise<List> => readList(receipts, { from: sets.revision, nowMs: now() });
  const refresh = async (): Promise<void> => apply(await read());
  const refreshLater = (): void => {
    refresh().catch((error: unknown) => {
      log("warn", "the block list could not be read", {
        error: error instanceof StoreError ? error : errorText(error),
      });
    });
  };
  const subscription = bus.subscribe(
    subject,
    () => {
      refreshLater();
      return undefined;
    },
    { missed: refreshLater },
  );
  const timer = setInterval(refreshLater, readEveryMs);
  timer.unref();
  let last: Promise<unknown> = Promise.resolve();
  const change = async (wanted: BlockChange): Promise<{ added: number; removed: number } | Fault> => {
    for (;;) {
      const before = await read().catch(unchanged);
      if (isFault(before)) return before;
      const planned = decideBlocks(before.blocks, wanted, now());
      if (planned.blocks.length > blocksMax)
        return fault("invalid_request", `the block list can have at most ${blocksMax} entries`);
      const next = await writeList(receipts, { blocks: planned.blocks, before }, now()).catch(unchanged);
      // Another process has made the next revision: this change is decided again on it.
      if (next === null) continue;
      if (isFault(next)) return next;
      apply(next);
      bus.publish(subject, utf8(String(next.revision)));
      return { added: planned.added, removed: planned.removed };
    }
  };
  return {
    list: () => sets.blocks,
    change: (wanted) => {
      const next = last.then(() => change(wanted));
      last = next.catch(() => undefined);
      return next;
    },
    checkParties: (to, from) => checkParties(sets, to, from),
    checkClient: (client) => checkClient(sets, client),
    checkDid: (did) => (sets.recipients.has(did) ? fault("policy_denied", "this node does not serve the DID") : null),
    follow: (changed) => {
      followers.add(changed);
      return () => followers.delete(changed);
    },
    close: () => {
      clearInterval(timer);
      subscription.unsubscribe();
    },
  };
}

/** A list that can't be stored would end with this process, and no other would have it: so nothing changes. */
function unchanged(error: unknown): Fault {
  if (!(error instanceof StoreError)) throw error;
  const code = error.code === "full" ? "storage_full" : "service_unavailable";
  return fault(code, `the block list is as before, because its store can't store the change: ${error.message}`);
}

// ------------------------------------------------------------------------------------------------ decide

/** Later entries of a subject replace earlier ones. */
function decideBlocks(
  blocks: readonly Block[],
  { add, remove }: BlockChange,
  nowMs: number,
): { readonly blocks: readonly Block[]; readonly added: number; readonly removed: number } {
  const bySubject = new Map(blocks.map((block) => [block.subject, block]));
  let removed = 0;
  for (const one of remove) if (bySubject.delete(one)) removed += 1;
  for (const one of add) bySubject.set(one.subject, { ...one, sinceMs: nowMs });
  return { blocks: [...bySubject.values()], added: add.length, removed };
}

/** What a subject can be: a network in its one form, a DID, or 400 `invalid_request`. */
export function parseBlockSubject(text: string): { readonly subject: string; readonly isNetwork: boolean } | Fault {
  if (isDid(text)) return { subject: text, isNetwork: false };
  if (parseNetwork(text) !== null) return { subject: normalNetwork(text), isNetwork: true };
  return fault("invalid_request", "a subject must be a DID, an IP address, or a network such as 192.0.2.0/24");
}

/** `192.0.2.7` for `192.0.2.7/32`, and IPv6 in its shortest form, so that a network is found however it is written. */
function normalNetwork(text: string): string {
  const [address = "", bits] = text.split("/");
  const isIpv6 = address.includes(":");
  const plain = isIpv6 ? new URL(`http://[${address}]`).hostname.slice(1, -1) : address;
  return bits === undefined || bits === (isIpv6 ? "128" : "32") ? plain : `${plain}/${bits}`;
}

type Sets = {
  readonly revision: number;
  readonly blocks: readonly Block[];
  readonly recipients: ReadonlySet<string>;
  readonly senders: ReadonlySet<string>;
  readonly networks: readonly Network[];
};

function setsOf({ blocks, revision }: Pick<List, "blocks" | "revision">): Sets {
  const subjects = (...kinds: BlockKind[]): string[] =>
    blocks.filter(({ kind }) => kinds.includes(kind)).map((block) => block.subject);
  return {
    revision,
    blocks,
    recipients: new Set(subjects("did")),
    senders: new Set(subjects("did", "sender")),
    networks: subjects("network")
      .map(parseNetwork)
      .filter((network) => network !== null),
  };
}

function checkParties({ recipients, senders }: Sets, to: string, from: string | null): Fault | null {
  if (recipients.has(to)) return fault("policy_denied", "this node does not serve the recipient");
  if (from !== null && senders.has(from)) return fault("policy_denied", "this node does not serve the sender");
  return null;
}

/** Cost: nothing while no network is listed; else a look at each of them, about 20 ns. */
function checkClient({ networks }: Sets, client: string): Fault | null {
  if (networks.length === 0) return null;
  const address: Address | null = unmapAddress(parseAddress(client));
  if (address === null || !networks.some((network) => networkHolds(network, address))) return null;
  return fault("policy_denied", "this node does not serve the client's network");
}

// ------------------------------------------------------------------------------------------------ storage

// Revision n of the list has the head `operator-blocks:<n>`, which names its pages. Whoever sets that record first makes
// the revision, so of two changes at once the second is decided again. Heads stay, about 100 bytes each, and show which
// revision is the last; the pages of the one before are removed.

type BlockListHead = { readonly id: string; readonly pages: number };
type List = BlockListHead & { readonly revision: number; readonly blocks: readonly Block[] };

const headKey = (revision: number): string => `operator-blocks:${revision}`;
const pageKey = (id: string, page: number): string => `operator-blocks:${id}:${page}`;

/** The last revision, which is `from` or a later one. Throws a `StoreError` when a page of it is lost. */
async function readList(receipts: Receipts, { from, nowMs }: { from: number; nowMs: number }): Promise<List> {
  const revision = await lastRevision(receipts, from, nowMs);
  if (revision === 0) return { revision, id: "", pages: 0, blocks: [] };
  const head = await readJson<BlockListHead>(receipts, headKey(revision), nowMs);
  if (head === null) throw new StoreError("corrupt", "the block list has lost its head");
  const keys = Array.from({ length: head.pages }, (_, page) => pageKey(head.id, page));
  const pages = await Promise.all(keys.map((key) => readJson<Block[]>(receipts, key, nowMs)));
  if (!pages.includes(null)) return { ...head, revision, blocks: pages.flatMap((page) => page ?? []) };
  // Its pages were removed, because another process has made a later revision meanwhile.
  if ((await lastRevision(receipts, revision, nowMs)) > revision) return readList(receipts, { from: revision, nowMs });
  throw new StoreError("corrupt", "the block list has lost a page");
}

/** Each revision up to the last has a head. Cost: one look when `from` is the last one, else two for each doubling. */
async function lastRevision(receipts: Receipts, from: number, nowMs: number): Promise<number> {
  const exists = async (revision: number) => (await receipts.get(headKey(revision), nowMs)) !== null;
  let last = from;
  let step = 1;
  while (await exists(last + step)) {
    last += step;
    step *= 2;
  }
  for (let half = step / 2; half >= 1; half /= 2) if (await exists(last + half)) last += half;
  return last;
}

async function readJson<T>(receipts: Receipts, key: string, nowMs: number): Promise<T | null> {
  const value = await receipts.get(key, nowMs);
  return value === null ? null : (JSON.parse(new TextDecoder().decode(value)) as T);
}

type Written = { readonly blocks: readonly Block[]; readonly before: List };

/** Writes the pages first and the head last; `null` when another process made the revision. */
async function writeList(receipts: Receipts, { blocks, before }: Written, nowMs: number): Promise<List | null> {
  const revision = before.revision + 1;
  const head: BlockListHead = { id: crypto.randomUUID(), pages: Math.ceil(blocks.length / pageEntries) };
  const untilMs = nowMs + keptMs;
  for (let page = 0; page < head.pages; page++) {
    const entries = blocks.slice(page * pageEntries, (page + 1) * pageEntries);
    await receipts.put(pageKey(head.id, page), utf8(JSON.stringify(entries)), untilMs);
  }
  const made = await receipts.putIfAbsent(headKey(revision), utf8(JSON.stringify(head)), untilMs, nowMs);
  const unused = made === null ? before : head;
  // No list names these pages, so a failed removal does no harm.
  await Promise.allSettled(
    Array.from({ length: unused.pages }, (_, page) => receipts.remove(pageKey(unused.id, page))),
  );
  return made === null ? { ...head, revision, blocks } : null;
}
