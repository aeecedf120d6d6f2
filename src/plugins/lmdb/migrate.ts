/**
 * From format 2 to format 3: the records of the ledger, of claims and of receipts are sealed together with
 * their keys. Mail stays as it is. A migration that is interrupted is finished by the next one.
 */
import { join, resolve } from "node:path";
import type { Database, RootDatabase } from "lmdb";
import { StoreError } from "../../storage/contract.ts";
import { dataFile, storeAbsence, takeLock } from "./folder.ts";
import { currentMark, formatKey, markIn, migratingMark, notOurs, olderMark, openRoot } from "./format.ts";
import { checkDataFile } from "./integrity.ts";
import { boundVersion, sealedUnder, unsealed } from "./records.ts";

const recordsPerCommit = 1_000;
const boundTables = ["table", "claims", "receipts"] as const;

/** Throws a `StoreError` when the store can't be migrated; then it is as it was, or half-way and still named so. */
export async function migrateLmdb(folder: string): Promise<string> {
  const path = resolve(folder);
  if (storeAbsence(path) !== null) return "does not exist yet; it is made in the current format";
  checkDataFile(join(path, dataFile));
  const lock = takeLock(path);
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

async function migrateOpened(root: RootDatabase<Buffer, Buffer>, path: string): Promise<string> {
  const mark = markIn(root, path);
  if (mark === currentMark) return "has the current format";
  if (mark !== olderMark && mark !== migratingMark) {
    throw mark === null ? notOurs(path) : new StoreError("unavailable", `${path} has a format that can't be migrated`);
  }
  const table = (name: string) => root.openDB<Buffer, Buffer>({ name, encoding: "binary", keyEncoding: "binary" });
  const meta = table("meta");
  await root.transaction(() => void meta.put(formatKey, Buffer.from(migratingMark)));
  let records = 0;
  for (const name of boundTables) records += await bindRecords(root, table(name), name);
  await root.transaction(() => void meta.put(formatKey, Buffer.from(currentMark)));
  return `was migrated to the current format: ${records} records were sealed anew, and mail was kept`;
}

async function bindRecords(
  root: RootDatabase<Buffer, Buffer>,
  table: Database<Buffer, Buffer>,
  name: string,
): Promise<number> {
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
