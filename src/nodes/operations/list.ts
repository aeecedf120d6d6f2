/**
 * A list that operators change, kept in a store of the node, so that it survives a restart and applies to every process
 * on that store. Each process holds it in memory. A change is announced over the bus; a process that missed it reads the
 * list again within ten seconds.
 *
 * Revision n has the head `<name>:<n>`, which names its pages. Whoever sets that record first makes the revision, so of
 * two changes at once the second is decided again. Heads stay, about 100 bytes each, and show which revision is the last;
 * the pages of the one before are removed.
 */
import { utf8 } from "../../core/codec/bytes.ts";
import { dayMs, secondMs } from "../../core/codec/time.ts";
import { errorText, type Fault, fault, isFault } from "../../core/fault.ts";
import type { Bus } from "../../storage/bus.ts";
import { type Receipts, StoreError } from "../../storage/contract.ts";
import type { Log } from "../http/log.ts";

export type ListParts = {
  readonly receipts: Receipts;
  readonly bus: Bus;
  readonly now: () => number;
  readonly log: Log;
};

type ListPlan<T> = {
  /** Of its records. */
  readonly name: string;
  /** What it is called in the log and in refusals. */
  readonly title: string;
  readonly entriesMax: number;
  /** What a process makes of the entries for its checks. */
  readonly index: (entries: readonly T[]) => void;
};

type OperatorList<T> = {
  readonly entries: () => readonly T[];
  /** The next entries out of the present ones; durable when it resolves. */
  readonly change: (decide: (entries: readonly T[]) => readonly T[]) => Promise<Fault | null>;
  /** Reads what other processes have changed. */
  readonly refresh: () => Promise<void>;
  /** Calls back after each change; the result unsubscribes. */
  readonly follow: (changed: () => void) => () => void;
  readonly close: () => void;
};

const readEveryMs = 10 * secondMs;
/** A receipt must have an end; these records have none, so they get 100 years. */
export const keptMs = 36_500 * dayMs;
/** A receipt holds 64 KiB; an entry has at most 1 KiB. */
const pageEntries = 60;

export async function openList<T>(plan: ListPlan<T>, parts: ListParts): Promise<OperatorList<T>> {
  const { receipts, bus, now, log } = parts;
  const { name, title, entriesMax, index } = plan;
  const followers = new Set<() => void>();
  let current: List<T> = { revision: 0, id: "", pages: 0, entries: [] };
  const read = (): Promise<List<T>> => readList<T>(receipts, plan, { from: current.revision, nowMs: now() });
  const apply = (list: List<T>): void => {
    if (list.revision <= current.revision) return;
    current = list;
    index(list.entries);
    for (const changed of followers) changed();
  };
  const refresh = async (): Promise<void> => apply(await read());
  await refresh();
  const refreshLater = (): undefined => {
    refresh().catch((error: unknown) => {
      log("warn", `the ${title} could not be read`, { error: error instanceof StoreError ? error : errorText(error) });
    });
  };
  const subject = `${name}.changed`;
  const subscription = bus.subscribe(subject, refreshLater, { missed: refreshLater });
  const timer = setInterval(refreshLater, readEveryMs);
  timer.unref();
  /** A list that can't be stored would end with this process, and no other would have it: so nothing changes. */
  const unchanged = (error: unknown): Fault => {
    if (!(error instanceof StoreError)) throw error;
    const code = error.code === "full" ? "storage_full" : "service_unavailable";
    return fault(code, `the ${title} is as before, because its store can't store the change: ${error.message}`);
  };
  const change = async (decide: (entries: readonly T[]) => readonly T[]): Promise<Fault | null> => {
    for (;;) {
      const before = await read().catch(unchanged);
      if (isFault(before)) return before;
      const entries = decide(before.entries);
      if (entries.length > entriesMax)
        return fault("invalid_request", `the ${title} can have at most ${entriesMax} entries`);
      const next = await writeList(receipts, name, { entries, before, nowMs: now() }).catch(unchanged);
      // Another process has made the next revision: this change is decided again on it.
      if (next === null) continue;
      if (isFault(next)) return next;
      apply(next);
      bus.publish(subject, utf8(String(next.revision)));
      return null;
    }
  };
  let last: Promise<unknown> = Promise.resolve();
  return {
    entries: () => current.entries,
    change: (decide) => {
      const next = last.then(() => change(decide));
      last = next.catch(() => undefined);
      return next;
    },
    refresh,
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

// ------------------------------------------------------------------------------------------------ storage

type ListHead = { readonly id: string; readonly pages: number };
type List<T> = ListHead & { readonly revision: number; readonly entries: readonly T[] };

const headKey = (name: string, revision: number): string => `${name}:${revision}`;
const pageKey = (name: string, id: string, page: number): string => `${name}:${id}:${page}`;

type From = { readonly from: number; readonly nowMs: number };

/** The last revision, which is `from` or a later one. Throws a `StoreError` when a page of it is lost. */
async function readList<T>(
  receipts: Receipts,
  plan: Pick<ListPlan<T>, "name" | "title">,
  { from, nowMs }: From,
): Promise<List<T>> {
  const { name, title } = plan;
  const revision = await lastRevision(receipts, name, { from, nowMs });
  if (revision === 0) return { revision, id: "", pages: 0, entries: [] };
  const head = await readJson<ListHead>(receipts, headKey(name, revision), nowMs);
  if (head === null) throw new StoreError("corrupt", `the ${title} has lost its head`);
  const keys = Array.from({ length: head.pages }, (_, page) => pageKey(name, head.id, page));
  const pages = await Promise.all(keys.map((key) => readJson<T[]>(receipts, key, nowMs)));
  if (!pages.includes(null)) return { ...head, revision, entries: pages.flatMap((page) => page ?? []) };
  // Its pages were removed, because another process has made a later revision meanwhile.
  if ((await lastRevision(receipts, name, { from: revision, nowMs })) > revision)
    return readList(receipts, plan, { from: revision, nowMs });
  throw new StoreError("corrupt", `the ${title} has lost a page`);
}

/** Each revision up to the last has a head. Cost: one look when `from` is the last one, else two for each doubling. */
async function lastRevision(receipts: Receipts, name: string, { from, nowMs }: From): Promise<number> {
  const exists = async (revision: number) => (await receipts.get(headKey(name, revision), nowMs)) !== null;
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

type Written<T> = { readonly entries: readonly T[]; readonly before: List<T>; readonly nowMs: number };

/** Writes the pages first and the head last; `null` when another process made the revision. */
async function writeList<T>(
  receipts: Receipts,
  name: string,
  { entries, before, nowMs }: Written<T>,
): Promise<List<T> | null> {
  const revision = before.revision + 1;
  const head: ListHead = { id: crypto.randomUUID(), pages: Math.ceil(entries.length / pageEntries) };
  const untilMs = nowMs + keptMs;
  for (let page = 0; page < head.pages; page++) {
    const some = entries.slice(page * pageEntries, (page + 1) * pageEntries);
    await receipts.put(pageKey(name, head.id, page), utf8(JSON.stringify(some)), untilMs);
  }
  const made = await receipts.putIfAbsent(headKey(name, revision), utf8(JSON.stringify(head)), untilMs, nowMs);
  const unused = made === null ? before : head;
  // No list names these pages, so a failed removal does no harm.
  await Promise.allSettled(
    Array.from({ length: unused.pages }, (_, page) => receipts.remove(pageKey(name, unused.id, page))),
  );
  return made === null ? { ...head, revision, entries } : null;
}
