/**
 * What the log of a ledger says: its entries, the batches that they make, and the proof
 * that a client gets of one key. An entry is one of
 *
 *   key, value    64 bytes: what a DID or an alias is from here on; a value of zeros removes it
 *   map root      32 bytes: ends a batch, and covers what all keys are after it
 *   old head      40 bytes, only the first entry: size (u64, big endian) and root of the log that
 *                 this one continues
 *
 * Source: docs/trust.md "Log".
 */
import { sha256 } from "#sha256";
import { concatBytes, equalBytes, utf8 } from "../codec/bytes.ts";
import type { Did } from "../codec/did.ts";
import {
  type Decoded,
  decodeWith,
  encodeWith,
  fixedBytes,
  option,
  structure,
  text,
  vector,
} from "../codec/scale.ts";
import { changeMap, type MapChange, type MapLeaf, type ReadPage } from "./map.ts";
import { type NoteKey, noteBytesMax, renderVerifierKey } from "./note.ts";
import { hashBytes, treeProofMax } from "./tree.ts";

const taggedHash = (domain: string, content: Uint8Array): Uint8Array =>
  sha256(concatBytes(utf8(`svc:log:${domain}:v1|`), content));

export const keyOfDid = (did: Did): Uint8Array => taggedHash("did", utf8(did));
/** `alias` is in normal form. */
export const keyOfAlias = (alias: string): Uint8Array => taggedHash("alias", utf8(alias));
/** Of a self-certifying DID, by the bytes of its key proof. */
export const valueOfProof = (proof: Uint8Array): Uint8Array => taggedHash("proof", proof);
/** Of another DID, by the SCALE of its record. */
export const valueOfRecord = (record: Uint8Array): Uint8Array => taggedHash("record", record);
export const valueOfAlias = (holder: Did): Uint8Array => taggedHash("holder", utf8(holder));

// ----------------------------------------------------------------------------------------- entries

/** Entries of one batch at most, its root included. */
export const batchEntriesMax = 4_096;

const noValue = new Uint8Array(hashBytes);

/** The entries of one batch: key and value of each change, then the root of the map after them. */
export function encodeBatch(changes: readonly MapChange[], root: Uint8Array): Uint8Array[] {
  return [...changes.map(({ key, value }) => concatBytes(key, value ?? noValue)), root];
}

export type LogHead = { readonly size: number; readonly root: Uint8Array };

const oldHeadBytes = 8 + hashBytes;

/** The entry with which a log continues one that was lost: the size in 8 bytes, then the root. */
export function encodeOldHead({ size, root }: LogHead): Uint8Array {
  const bytes = new Uint8Array(oldHeadBytes);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(size));
  bytes.set(root, 8);
  return bytes;
}

/** `null` for an entry of another length, or with a size above 2^53 - 1. */
export function decodeOldHead(entry: Uint8Array): LogHead | null {
  if (entry.length !== oldHeadBytes) return null;
  const size = new DataView(entry.buffer, entry.byteOffset).getBigUint64(0);
  return size > BigInt(Number.MAX_SAFE_INTEGER)
    ? null
    : { size: Number(size), root: entry.slice(8) };
}

type Replayed = {
  readonly pages: ReadonlyMap<string, Uint8Array | null>;
  readonly mapRoot: Uint8Array;
  /** What changed, in order. */
  readonly changes: readonly MapChange[];
};

/**
 * The map after whole batches from entry `first`; `null` when an entry is none, or a batch
 * names another root.
 */
export function replayEntries(
  read: ReadPage,
  entries: readonly Uint8Array[],
  first: number,
): Replayed | null {
  const pages = new Map<string, Uint8Array | null>();
  const readLast: ReadPage = (path) => (pages.has(path) ? (pages.get(path) ?? null) : read(path));
  const changes: MapChange[] = [];
  let [batch, mapRoot]: [Map<string, MapChange>, Uint8Array | null] = [new Map(), null];
  for (const [i, entry] of entries.entries()) {
    mapRoot = null;
    if (entry.length === oldHeadBytes && first + i === 0) continue;
    if (entry.length === 2 * hashBytes) {
      const [key, value] = [entry.slice(0, hashBytes), entry.slice(hashBytes)];
      batch.set(key.join(), { key, value: equalBytes(value, noValue) ? null : value });
      continue;
    }
    const changed = changeMap(readLast, [...batch.values()]);
    if (entry.length !== hashBytes || !equalBytes(entry, changed.root)) return null;
    for (const [path, page] of changed.pages) pages.set(path, page);
    changes.push(...batch.values());
    [batch, mapRoot] = [new Map(), entry];
  }
  return mapRoot === null ? null : { pages, mapRoot, changes };
}

// ------------------------------------------------------------------------------------------- names

const restarted = /\/[2-9]$|\/[1-9]\d{1,5}$/;

/**
 * The name of the first log of a row that was begun anew after losses: `name`, `name/2`,
 * `name/3`.
 */
export const firstName = (name: string): string => name.replace(restarted, "");

/** The name of the log that continues one. */
export function nextName(name: string): string {
  return `${firstName(name)}/${nameSuffix(name) + 1}`;
}

const nameSuffix = (name: string): number => Number(restarted.exec(name)?.[0].slice(1) ?? 1);

/** Whether a log of this name continues one of the other name. */
export function isLaterName(name: string, other: string): boolean {
  return firstName(name) === firstName(other) && nameSuffix(name) > nameSuffix(other);
}

/** The genesis hash of a ledger that names its log; `seed` is drawn once. */
export function genesisOfLog(key: NoteKey, seed: Uint8Array): Uint8Array {
  return taggedHash("genesis", concatBytes(utf8(`${renderVerifierKey(key)}|`), seed));
}

// ----------------------------------------------------------------------------------------- answers

const hash = fixedBytes(hashBytes);
const treeProof = vector(hash, treeProofMax);
/** What a Directory answers about one key: `GET /log/entry/{key}`. */
const logEntryCodec = structure({
  /**
   * The log's key as a `vkey`, and what the ledger's genesis hash covers as well; `null` on
   * an older ledger.
   */
  logKey: text(512),
  genesisSeed: option(hash),
  /** The checkpoint with its cosignatures. */
  note: text(noteBytesMax),
  /** The last entry of the tree, and that it is. */
  mapRoot: hash,
  inclusion: treeProof,
  /** The key in the map. */
  siblings: vector(hash, 256),
  leaf: option(structure<MapLeaf>({ key: hash, value: hash })),
  /** Between the size that the client names and that of the note; empty without one. */
  consistency: treeProof,
  /** The old head, with its inclusion as first entry, in a log that continues one. */
  restart: option(structure({ oldHead: fixedBytes(oldHeadBytes), inclusion: treeProof })),
});

export type LogEntry = Decoded<typeof logEntryCodec>;
export const encodeLogEntry = (entry: LogEntry): Uint8Array => encodeWith(logEntryCodec, entry);
export const decodeLogEntry = (bytes: Uint8Array): LogEntry | null =>
  decodeWith(logEntryCodec, bytes);
