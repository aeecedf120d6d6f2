/**
 * Logs in the table of a driver: that of the embedded ledger, and copies that a witness keeps. The
 * ledger appends a batch in the commit of its block, so all nodes over one table have one log.
 *
 *   l/…          the ledger's own log       w/<SHA-256 of the origin>/…   a copy
 *   …head        size, root and number of batches (JSON); of a copy its bytes
 *   …e/<number>  bundle of entries          …t/<level>/<number>   tile of hashes, from level 1
 *   …m/<path>    page of the map            …n                    the last signed note
 *   …u/<batch>   of the last batches: the size before, then each key with its value before
 *
 * Hashes of level 0 follow from the entries. Numbers are 16 hex digits.
 * Source: docs/trust.md "Log".
 */
import {
  concatBytes,
  decodeHex,
  decodeUtf8,
  encodeHex,
  equalBytes,
  utf8,
} from "../core/codec/bytes.ts";
import { sha256 } from "../core/codec/crypto.ts";
import type { Did } from "../core/codec/did.ts";
import { encodeWith } from "../core/codec/scale.ts";
import { recordCodec } from "../core/ledger/account.ts";
import type { Applied } from "../core/ledger/action-rules.ts";
import { aliasesNamed } from "../core/ledger/calls.ts";
import { isSelfCertifying } from "../core/ledger/names.ts";
import {
  encodeBatch,
  encodeOldHead,
  keyOfAlias,
  keyOfDid,
  type LogHead,
  replayEntries,
  valueOfAlias,
  valueOfProof,
  valueOfRecord,
} from "../core/trust/log.ts";
import {
  changeMap,
  type MapChange,
  proveInMap,
  type ReadPage,
  valueInMap,
} from "../core/trust/map.ts";
import {
  decodeBundle,
  encodeBundle,
  hashBytes,
  hashLeaf,
  hashTile,
  nodesOfTiles,
  proveConsistency,
  proveInclusion,
  type ReadTile,
  type TilePlace,
  tileWidth,
  treeRoot,
  verifyConsistency,
  widthOfTile,
} from "../core/trust/tree.ts";
import { StoreError } from "./contract.ts";
import * as records from "./embedded-records.ts";
import type { LogPage, Logs } from "./logs.ts";
import type { OrderedTable, SharedTable, TableChange, TableView } from "./table.ts";

/** The ledger's own log. */
const own = "l/";
const logPrefix = (log: string) => (log === "" ? own : `w/${encodeHex(sha256(utf8(log)))}/`);

const bundleKey = (at: string, index: number) => `${at}e/${records.ordered(index)}`;
const tileKey = (at: string, level: number, index: number) =>
  `${at}t/${level}/${records.ordered(index)}`;
const pageKey = (at: string, path: string) => `${at}m/${path}`;
const undoKey = (at: string, batch: number) => `${at}u/${records.ordered(batch)}`;

type StoredHead = LogHead & { readonly batch: number; readonly bytes?: number };

/** States that a proof can still be made of: at least ten minutes of blocks. */
const undoMax = 256;

function readLogHead(view: TableView, at: string): StoredHead | null {
  const bytes = view.get(`${at}head`);
  if (bytes === null) return null;
  const { root, ...counts } = records.decodeJson<
    Omit<StoredHead, "root"> & { readonly root: string }
  >(bytes, "head of a log");
  return { ...counts, root: decodeHex(root) ?? new Uint8Array(0) };
}

function writeLogHead(view: TableChange, at: string, { root, ...counts }: StoredHead): void {
  view.put(`${at}head`, records.encodeJson({ ...counts, root: encodeHex(root) }));
}

// -------------------------------------------------------------------------------------------- tree

function readEntryBundle(view: TableView, at: string, index: number): Uint8Array[] {
  const bytes = view.get(bundleKey(at, index));
  const entries = bytes === null ? [] : decodeBundle(bytes);
  if (entries === null)
    throw new StoreError("corrupt", "a log has an unreadable bundle of entries");
  return entries;
}

/** Each tile is read once. */
function tilesOf(view: TableView, at: string): ReadTile {
  const known = new Map<string, Uint8Array>();
  return (level, index) => {
    const name = `${level}/${index}`;
    const tile = known.get(name) ?? readTile(view, at, { level, index });
    known.set(name, tile);
    return tile;
  };
}

function readTile(
  view: TableView,
  at: string,
  { level, index }: { level: number; index: number },
): Uint8Array {
  if (level === 0) return concatBytes(...readEntryBundle(view, at, index).map(hashLeaf));
  return view.get(tileKey(at, level, index)) ?? new Uint8Array(0);
}

/** Writes entries behind those of a log; returns its root. */
function appendEntries(
  view: TableChange,
  at: string,
  size: number,
  entries: readonly Uint8Array[],
): Uint8Array {
  for (let done = 0; done < entries.length; ) {
    const index = Math.floor((size + done) / tileWidth);
    const held = (size + done) % tileWidth;
    const before = held === 0 ? [] : readEntryBundle(view, at, index).slice(0, held);
    const bundle = [...before, ...entries.slice(done, done + tileWidth - before.length)];
    view.put(bundleKey(at, index), encodeBundle(bundle));
    done += bundle.length - before.length;
    if (bundle.length === tileWidth)
      appendHash(view, at, { level: 1, index }, hashTile(concatBytes(...bundle.map(hashLeaf))));
  }
  return treeRoot(nodesOfTiles(tilesOf(view, at)), size + entries.length);
}

/** The hash of a full tile goes to the level above. */
function appendHash(
  view: TableChange,
  at: string,
  { level, index }: { level: number; index: number },
  hash: Uint8Array,
): void {
  const above = Math.floor(index / tileWidth);
  const key = tileKey(at, level, above);
  const held = (index % tileWidth) * hashBytes;
  const before = held === 0 ? null : view.get(key);
  const tile = concatBytes((before ?? new Uint8Array(0)).subarray(0, held), hash);
  view.put(key, tile);
  if (tile.length === tileWidth * hashBytes)
    appendHash(view, at, { level: level + 1, index: above }, hashTile(tile));
}

// --------------------------------------------------------------------------------------------- map

const pagesOf =
  (view: TableView, at: string): ReadPage =>
  (path) =>
    view.get(pageKey(at, path));

function writePages(
  view: TableChange,
  at: string,
  pages: ReadonlyMap<string, Uint8Array | null>,
): void {
  for (const [path, page] of pages) {
    if (page === null) view.remove(pageKey(at, path));
    else view.put(pageKey(at, path), page);
  }
}

const sameValue = (a: Uint8Array | null, b: Uint8Array | null) =>
  a === null || b === null ? a === b : equalBytes(a, b);

// -------------------------------------------------------------------------------- the ledger's own

const filledKey = `${own}filled`;

/** Begins with the first block. `false` for a log that was begun anew and isn't filled. */
export function prepareLog(view: TableChange): boolean {
  if (view.get(records.headKey) !== null) return view.get(filledKey) !== null;
  beginLog(view, null);
  view.put(filledKey, new Uint8Array(1));
  return true;
}

/** Who a block has changed. */
export type Touched = { readonly dids: Set<Did>; readonly aliases: Set<string> };

export const nothingTouched = (): Touched => ({ dids: new Set(), aliases: new Set() });

export function touch(touched: Touched, did: Did, { aliases }: Applied): void {
  touched.dids.add(did);
  for (const alias of [...aliases.removed, ...aliases.set]) touched.aliases.add(alias);
}

export const logHeadKey = `${own}head`;

/**
 * All that a block reads is read before its calls are verified: a run that misses some is repeated.
 * `displaced`: the keys of settled submissions that it forgets.
 */
export function fetchBlock(
  view: TableView,
  {
    pending,
    displaced,
  }: { readonly pending: readonly records.PendingCall[]; readonly displaced: readonly string[] },
): void {
  const calls = pending.flatMap(({ call }) => (call === null ? [] : [call]));
  let index = Math.floor((readLogHead(view, own)?.size ?? 0) / tileWidth);
  const keys = calls.flatMap((call) => [keyOfDid(call.did), ...aliasesNamed(call).map(keyOfAlias)]);
  for (const key of keys) valueInMap(pagesOf(view, own), key);
  view.get(bundleKey(own, index));
  for (let level = 1; index > 0; level++) {
    index = Math.floor(index / tileWidth);
    view.get(tileKey(own, level, index));
  }
  view.prefetch([
    ...displaced,
    ...pending.map(({ txHash }) => records.submissionKey(txHash)),
    ...calls.flatMap(records.keysOfCall),
  ]);
}

/** In the commit of the block. */
export function appendTouched(view: TableChange, { dids, aliases }: Touched): void {
  const ofDid = (did: Did) => ({ key: keyOfDid(did), value: valueOfDid(view, did) });
  const ofAlias = (alias: string) => {
    const holder = records.readHolder(view, alias);
    return { key: keyOfAlias(alias), value: holder === null ? null : valueOfAlias(holder) };
  };
  appendBatch(view, [...[...dids].map(ofDid), ...[...aliases].map(ofAlias)]);
}

/** None for a DID that is gone or deactivated: who shows it as active contradicts the log. */
function valueOfDid(view: TableView, did: Did): Uint8Array | null {
  const { record } = records.accountOf(view.get(records.accountKey(did)));
  if (record === null || record.deactivated) return null;
  const proof = isSelfCertifying(did) ? view.get(records.keyProofKey(did)) : null;
  return proof === null ? valueOfRecord(encodeWith(recordCodec, record)) : valueOfProof(proof);
}

const fillStep = 256;

/** Logs what a ledger holds that had no log, or whose log begins anew. */
export async function fillLog(table: OrderedTable | SharedTable): Promise<void> {
  for (let after: string | null = ""; after !== null; )
    after = await table.commit((view) => fillSome(view, after ?? ""));
}

/** Some records behind the key `after`; the last of them, or `null` at the end. */
function fillSome(view: TableChange, after: string): string | null {
  if (view.get(filledKey) !== null) return null;
  if (view.get(`${own}head`) === null) beginLog(view, null);
  const isOfDids = !after.startsWith(records.aliasKey(""));
  const prefix = isOfDids ? records.accountKey("" as Did) : records.aliasKey("");
  const page = view.range(prefix, { after, limit: fillStep });
  const names = page.map(([key]) => key.slice(prefix.length));
  appendTouched(view, {
    dids: new Set(isOfDids ? (names as Did[]) : []),
    aliases: new Set(isOfDids ? [] : names),
  });
  const last = page.at(-1)?.[0];
  if (last !== undefined) return last;
  if (isOfDids) return records.aliasKey("");
  view.put(filledKey, new Uint8Array(1));
  return null;
}

/** Removes some of the log; whether that was all of it. */
function forgetLog(view: TableChange): boolean {
  const page = view.range(own, { limit: fillStep });
  for (const [key] of page) view.remove(key);
  return page.length < fillStep;
}

/** A new log begins with the map without keys; one that continues another names its head before. */
function beginLog(view: TableChange, oldHead: LogHead | null): void {
  const entries = [
    ...(oldHead === null ? [] : [encodeOldHead(oldHead)]),
    ...encodeBatch([], changeMap(() => null, []).root),
  ];
  writeLogHead(view, own, {
    size: entries.length,
    root: appendEntries(view, own, 0, entries),
    batch: 0,
  });
}

/** Appends what differs from the map, as one batch; nothing when nothing does. */
function appendBatch(view: TableChange, wanted: readonly MapChange[]): void {
  const head = readLogHead(view, own);
  if (head === null || wanted.length === 0) return;
  const readPage = pagesOf(view, own);
  const before = wanted.map(({ key }) => ({ key, value: valueInMap(readPage, key) }));
  const changes = wanted.filter(({ value }, i) => !sameValue(value, before[i]?.value ?? null));
  if (changes.length === 0) return;
  const { root, pages } = changeMap(readPage, changes);
  writePages(view, own, pages);
  const undo = before.filter(({ key }) => changes.some((change) => change.key === key));
  writeBatch(view, head, { entries: encodeBatch(changes, root), undo });
}

type LogBatch = { readonly entries: readonly Uint8Array[]; readonly undo: readonly MapChange[] };

function writeBatch(view: TableChange, head: StoredHead, { entries, undo }: LogBatch): void {
  const batch = head.batch + 1;
  view.put(
    undoKey(own, batch),
    concatBytes(utf8(records.ordered(head.size)), ...encodeBatch(undo, new Uint8Array(0))),
  );
  if (batch > undoMax) view.remove(undoKey(own, batch - undoMax));
  const root = appendEntries(view, own, head.size, entries);
  writeLogHead(view, own, { size: head.size + entries.length, root, batch });
}

type Undone = { readonly read: ReadPage; readonly changes: readonly MapChange[] };

/** The map as of `size`, and what was undone for it; `null`: too long ago, or no batch's end. */
function undoTo(view: TableView, head: StoredHead, size: number): Undone | null {
  const undone = new Map<string, MapChange>();
  let at = head.size;
  for (let { batch } = head; at > size; batch--) {
    const undo = view.get(undoKey(own, batch));
    if (undo === null) return null;
    const leaves = undo.subarray(16);
    for (let from = 0; from < leaves.length; from += 2 * hashBytes) {
      const [key, value] = [
        leaves.slice(from, from + hashBytes),
        leaves.slice(from + hashBytes, from + 2 * hashBytes),
      ];
      undone.set(encodeHex(key), { key, value: value.some(Boolean) ? value : null });
    }
    at = Number.parseInt(decodeUtf8(undo.subarray(0, 16)) ?? "", 16);
  }
  if (at !== size) return null;
  const [read, changes] = [pagesOf(view, own), [...undone.values()]];
  if (changes.length === 0) return { read, changes };
  return { read: over(read, changeMap(read, changes).pages), changes };
}

function over(read: ReadPage, pages: ReadonlyMap<string, Uint8Array | null>): ReadPage {
  return (path) => (pages.has(path) ? (pages.get(path) ?? null) : read(path));
}

/**
 * Puts the entries that were signed in the place of those behind `from`, then a batch that says
 * what the store holds: what only the lost entries knew is gone. `false`: another root, or a gap.
 */
function adopt(view: TableChange, from: number, { entries, signed }: Lost): boolean {
  const head = readLogHead(view, own);
  const base = head === null || head.size < from ? null : undoTo(view, head, from);
  if (head === null || base === null || from + entries.length !== signed.size) return false;
  const replayed = replayEntries(base.read, entries, from);
  if (replayed === null || !equalBytes(appendEntries(view, own, from, entries), signed.root))
    return false;
  const keys = new Map(
    [...base.changes, ...replayed.changes].map(({ key }) => [encodeHex(key), key]),
  );
  const valuesIn = (read: ReadPage) =>
    [...keys.values()].map((key) => ({ key, value: valueInMap(read, key) }));
  const present = valuesIn(pagesOf(view, own));
  const { root } = changeMap(pagesOf(view, own), present);
  // No state before this one can be proven any more: its numbers are skipped.
  const undo = valuesIn(over(base.read, replayed.pages));
  writeBatch(
    view,
    { ...signed, batch: head.batch + undoMax },
    { entries: encodeBatch(present, root), undo },
  );
  return true;
}

type Lost = { readonly entries: readonly Uint8Array[]; readonly signed: LogHead };

// -------------------------------------------------------------------------------------------- logs

const noteKey = (log: string) => `${logPrefix(log)}n`;
const readNote = (view: TableView, log: string) =>
  decodeUtf8(view.get(noteKey(log)) ?? new Uint8Array(0)) ?? "";

/** The capability over a table. */
export function openLogs(table: OrderedTable | SharedTable): Logs {
  const read = <T>(work: (view: TableView) => T): Promise<T> =>
    "get" in table ? Promise.resolve().then(() => work(table)) : table.read(work);
  const proving = <T>(
    log: string,
    size: number,
    prove: (tiles: ReadTile, view: TableView, head: StoredHead) => T | null,
  ) =>
    read((view) => {
      const head = readLogHead(view, logPrefix(log));
      return head === null || size > head.size
        ? null
        : prove(tilesOf(view, logPrefix(log)), view, head);
    });
  return {
    head: (log) => read((view) => readLogHead(view, logPrefix(log))),
    genesisSeed: () => read((view) => view.get(records.genesisSeedKey)?.slice() ?? null),
    tile: (log, place) =>
      proving(log, 0, (tiles, view, { size }) =>
        readPlace(view, { at: logPrefix(log), place, size, tiles }),
      ),
    inclusion: (log, index, size) =>
      proving(log, size, (tiles) =>
        index < size ? proveInclusion(nodesOfTiles(tiles), index, size) : null,
      ),
    consistency: (log, from, to) =>
      proving(log, to, (tiles) =>
        from <= to ? proveConsistency(nodesOfTiles(tiles), from, to) : null,
      ),
    inMap: (key, size) =>
      proving("", size, (_, view, head) => {
        const then = undoTo(view, head, size);
        return then === null ? null : proveInMap(then.read, key);
      }),
    copiedBytes: (log) => read((view) => readLogHead(view, logPrefix(log))?.bytes ?? 0),
    copy: async (log, batches) => {
      const refused = new StoreError("corrupt", "the entries are not part of the log");
      try {
        return await table.commit((view) => {
          const copied = copyEntries(view, logPrefix(log), batches);
          // Whatever an attempt has written goes with the commit.
          if (copied === null) throw refused;
          return copied;
        });
      } catch (error) {
        if (error === refused) return null;
        throw error;
      }
    },
    adopt: (from, entries, signed) =>
      table.commit((view) => {
        // Whatever an attempt has written goes with the commit.
        if (!adopt(view, from, { entries, signed }))
          throw new StoreError("corrupt", "the entries don't lead to the head that was signed");
      }),
    restart: async (lost) => {
      // A crash in between leaves no log: the next start makes one, and the node asks again.
      while (!(await table.commit(forgetLog)));
      await table.commit((view) => beginLog(view, lost));
      await fillLog(table);
    },
    note: (log) => read((view) => readNote(view, log)),
    keepNote: (log, before, note) =>
      table.commit((view) => {
        const isBefore = readNote(view, log) === before;
        if (isBefore) view.put(noteKey(log), utf8(note));
        return isBefore;
      }),
  };
}

type Reading = {
  readonly at: string;
  readonly place: TilePlace;
  readonly size: number;
  readonly tiles: ReadTile;
};

function readPlace(
  view: TableView,
  { at, place: { level, index, width }, size, tiles }: Reading,
): Uint8Array | null {
  if (width > widthOfTile(level === "entries" ? 0 : level, index, size)) return null;
  if (level === "entries") return encodeBundle(readEntryBundle(view, at, index).slice(0, width));
  return tiles(level, index).slice(0, width * hashBytes);
}

const rowBytes = (key: string, page: Uint8Array | null) => (page ? key.length + page.length : 0);

function copyEntries(
  view: TableChange,
  at: string,
  { after, entries, within }: LogPage,
): LogHead | null {
  const { size, bytes = 0 } = readLogHead(view, at) ?? { size: 0 };
  const replayed = size === after ? replayEntries(pagesOf(view, at), entries, size) : null;
  if (replayed === null) return null;
  let held = bytes + concatBytes(...entries).length;
  for (const [path, page] of replayed.pages) {
    const key = pageKey(at, path);
    held += rowBytes(key, page) - rowBytes(key, view.get(key));
  }
  writePages(view, at, replayed.pages);
  const copied = { size: size + entries.length, root: appendEntries(view, at, size, entries) };
  if (!verifyConsistency(copied, within, within.proof)) return null;
  writeLogHead(view, at, { ...copied, batch: 0, bytes: held });
  return copied;
}
