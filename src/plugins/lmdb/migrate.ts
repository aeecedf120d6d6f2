/**
 * From format 2, that of version 0.1.0, and from format 5 to the current one. The records of the ledger and of receipts are
 * sealed together with their keys. The index of the mailbox names texts by number, and its pages hold arrays; a record holds
 * many claims: both are written again in one transaction. Mail stays as it is. A migration that is interrupted is finished by the next one.
 * Memory: about 500 bytes for each message id.
 */
import { join, resolve } from "node:path";
import type { Database, RootDatabase } from "lmdb";
import { StoreError } from "../../storage/contract.ts";
import { type Claim, claimRecord, claimsPerRecord, encodeTag } from "./claims.ts";
import { dataFile, lockFolder, storeAbsence } from "./folder.ts";
import {
  boundDatabases,
  currentFormat,
  endsOfClaims,
  format2,
  format5,
  formatIn,
  formatKey,
  migratingFormat,
  notOurs,
  openRoot,
  tableBytes,
  tableOf,
} from "./format.ts";
import { checkDataFile } from "./integrity.ts";
import { allPages, later, replayPlace } from "./journal.ts";
import type { Latest } from "./mailbox-index.ts";
import { TextTable } from "./recipients.ts";
import { boundVersion, orderedNumber, Reader, sealedUnder, unsealed, unsealedUnder } from "./records.ts";
import { acked, free, idText, kept, none, RowTable } from "./rows.ts";
import { openDisk, openSpaceGuard } from "./space.ts";

const recordsPerCommit = 1_000;

type Root = RootDatabase<Buffer, Buffer>;
type Table = Database<Buffer, Buffer>;

/** Throws a `StoreError` when the store can't be migrated; then it is as it was, or half-way and still named so. */
export async function migrateLmdb(folder: string): Promise<string> {
  const path = resolve(folder);
  if (storeAbsence(path) !== null) return "does not exist yet; it is made in the current format";
  checkDataFile(join(path, dataFile));
  const lock = lockFolder(path);
  try {
    const root = openRoot(path);
    try {
      return await migrateOpened(root, path);
    } finally {
      await root.close();
    }
  } finally {
    lock.close();
  }
}

async function migrateOpened(root: Root, path: string): Promise<string> {
  const format = formatIn(root, path);
  if (format === currentFormat) return "has the current format";
  if (format === null) throw notOurs(path);
  if (![format2, format5, migratingFormat].includes(format)) {
    throw new StoreError("unavailable", `${path} has a format that can't be migrated`);
  }
  checkRoom(root, join(path, dataFile));
  const meta = tableOf(root, "meta");
  const claims = olderClaims(root);
  let records = claims.length;
  let index: OlderIndex | null = null;
  if (format !== format5) {
    await root.transaction(() => void meta.put(formatKey, Buffer.from(migratingFormat)));
    for (const name of ["table", "receipts"]) records += await bindRecords(root, tableOf(root, name), name);
    index = olderIndex(root);
  }
  await root.transaction(() => {
    rewriteClaims(root, claims);
    if (index !== null) rewriteIndex(root, index);
    meta.put(formatKey, Buffer.from(currentFormat));
  });
  const messages = index === null ? "" : `, ${index.countUsed()} message ids kept`;
  return `was migrated to the current format: ${records} records written again${messages}`;
}

/** Everything but the bodies is written again. Throws `full`, because LMDB must never meet a full disk. */
function checkRoom(root: Root, file: string): void {
  const disk = openDisk(file);
  try {
    const rewritten = [...boundDatabases, "pages", "journal"].reduce(
      (sum, name) => sum + tableBytes(tableOf(root, name)),
      0,
    );
    openSpaceGuard(disk, { floorBytes: 0, reserveBytes: 1024 * 1024 }, () => 0).check("store", rewritten);
  } finally {
    disk.close();
  }
}

/** Up to format 5 the key of a claim is its tag, and its record begins with its end. */
function olderClaims(root: Root): Claim[] {
  return [...tableOf(root, "claims").getRange({})].map(({ key, value }) => {
    const [tag, record] = [Buffer.from(key), Uint8Array.from(value)];
    const content = record[0] === boundVersion ? unsealedUnder(tag, record, "a claim") : unsealed(record, "a claim");
    return { tag: encodeTag(tag.toString("utf16le")), untilMs: new Reader(content, "a claim").u53() };
  });
}

/** Claims that end together share a record, which goes when they have ended. */
function rewriteClaims(root: Root, claims: readonly Claim[]): void {
  empty(tableOf(root, "claims"));
  empty(tableOf(root, endsOfClaims));
  const inOrder = claims.toSorted((a, b) => a.untilMs - b.untilMs);
  for (let at = 0; at < inOrder.length; at += claimsPerRecord) {
    const [key, record] = claimRecord(inOrder.slice(at, at + claimsPerRecord), 1 + at / claimsPerRecord);
    tableOf(root, "claims").put(key, record as Buffer);
  }
}

function empty(table: Table): void {
  for (const key of [...table.getKeys({})].map((one) => Buffer.from(one))) table.remove(key);
}

async function bindRecords(root: Root, table: Table, name: string): Promise<number> {
  let [records, start] = [0, Buffer.of(0)];
  for (;;) {
    const found = [...table.getRange({ start, limit: recordsPerCommit })].map(({ key, value }) => ({
      key: Buffer.from(key),
      record: Uint8Array.from(value),
    }));
    const older = found.filter(({ record }) => record[0] !== boundVersion);
    // Checked before anything is written: a damaged record must not get a new checksum.
    const sealed = older.map(({ key, record }) => ({
      key,
      record: sealedUnder(key, unsealed(record, `a record of table "${name}"`)),
    }));
    await root.transaction(() => {
      for (const { key, record } of sealed) table.put(key, record as Buffer);
    });
    records += sealed.length;
    const last = found.at(-1);
    if (last === undefined || found.length < recordsPerCommit) return records;
    start = Buffer.concat([last.key, Buffer.of(0)]);
  }
}

// --------------------------------------------------------------------------------- the index of format 2

const operations = { stored: 1, acked: 2, cut: 3, dropped: 4, moved: 5 } as const;
const noPreview = 0xffff;

function olderIndex(root: Root): OlderIndex {
  const index = new OlderIndex();
  for (const { key, value } of tableOf(root, "pages").getRange({})) {
    index.read(Uint8Array.from(value), `index page ${orderedNumber(Buffer.from(key))}`, true);
  }
  for (const { key, value } of tableOf(root, "journal").getRange({})) {
    index.read(Uint8Array.from(value), `journal record ${orderedNumber(Buffer.from(key))}`, false);
  }
  return index;
}

function rewriteIndex(root: Root, index: OlderIndex): void {
  empty(tableOf(root, "pages"));
  empty(tableOf(root, "journal"));
  for (const [key, record] of allPages(index, index.latest)) tableOf(root, "pages").put(key, record as Buffer);
}

class OlderIndex {
  readonly rows = new RowTable();
  readonly texts = new TextTable(() => {});
  latest: Latest = { nowMs: 0, arrival: 0 };

  countUsed(): number {
    let used = 0;
    for (let slot = 0; slot < this.rows.slots; slot++) if (this.rows.isUsed(slot)) used++;
    return used;
  }

  /** A page is a record of rows; a journal record names before each row or slot what happened to it. */
  read(record: Uint8Array, what: string, isPage: boolean): void {
    const reader = new Reader(unsealed(record, what), what);
    this.latest = later(this.latest, { nowMs: reader.u53(), arrival: reader.u53() });
    // A recipient is spelled out once in a record and numbered from then on.
    const recipients: string[] = [];
    while (!reader.done) {
      const code = isPage ? operations.stored : reader.u8();
      const slot = reader.u32();
      if (code === operations.stored) this.readRow(reader, slot, recipients);
      else if (code === operations.moved) replayPlace(this.rows, slot, reader);
      else if (code === operations.acked || code === operations.cut || code === operations.dropped) {
        if (!this.rows.isUsed(slot)) continue;
        this.rows.status[slot] = code === operations.dropped ? free : code === operations.cut ? kept : acked;
      } else throw new StoreError("corrupt", `${what} holds an unknown operation`);
    }
  }

  private readRow(reader: Reader, slot: number, recipients: string[]): void {
    const { rows } = this;
    rows.reserve(slot + 1);
    rows.status[slot] = reader.u8();
    rows.behavior[slot] = reader.u8();
    const number = reader.u32();
    if (number === recipients.length) recipients.push(textOf(reader, reader.u16()));
    rows.recipient[slot] = this.texts.add(recipients[number]!);
    rows.id.set(reader.words(), 4 * slot);
    rows.arrival[slot] = reader.u53();
    rows.expiresAtMs[slot] = reader.u53();
    rows.keptUntilMs.set(slot, reader.u53());
    rows.envelopeBytes[slot] = reader.u32();
    const preview = reader.u16();
    rows.previewBytes.set(slot, preview === noPreview ? none : preview);
    replayPlace(rows, slot, reader);
    const flags = reader.u8();
    const chunk =
      (flags & 1) === 0 ? null : { id: idText(reader.words()), sequence: reader.u32(), total: reader.u32() };
    rows.group.set(slot, chunk === null ? none : this.texts.add(chunk.id));
    rows.sequence.set(slot, chunk?.sequence ?? 0);
    rows.total.set(slot, chunk?.total ?? 0);
    const labels = Array.from({ length: (flags & 2) === 2 ? reader.u8() : 0 }, () => textOf(reader, reader.u8()));
    rows.labels[slot] = labels.length === 0 ? none : this.texts.add(labels.join(" "));
  }
}

function textOf(reader: Reader, bytes: number): string {
  return new TextDecoder().decode(reader.bytes(bytes));
}
