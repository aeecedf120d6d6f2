/**
 * The state of a store at one moment, for a process beside the one that has it open: a reader of LMDB pins
 * the transaction, so that none of its pages is used again, and the file is read page by page.
 * While it is open, the store can't reuse the space that becomes free: it grows instead.
 */
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { StoreError } from "../../storage/contract.ts";
import { DamagedFile, DataFile } from "./data-file.ts";
import { dataFile } from "./folder.ts";
import { currentMark, openRoot } from "./format.ts";
import { checkDataFile, damaged, markOf } from "./integrity.ts";

const attemptsMax = 100;
type Root = ReturnType<typeof openRoot>;

export type Snapshot = { readonly file: DataFile; readonly close: () => Promise<void> };

export async function openSnapshot(folder: string): Promise<Snapshot> {
  const path = resolve(folder);
  const data = join(path, dataFile);
  if (!existsSync(data)) throw new StoreError("unavailable", `${path} holds no store`);
  // LMDB maps the file, so it must not be cut short. The tables are checked by whoever reads them.
  checkDataFile(data, 0);
  const root = openRoot(path, { readOnly: true });
  try {
    for (let attempt = 0; attempt < attemptsMax; attempt++) {
      const before = transactionOf(data);
      const pin = root.useReadTransaction();
      const file = DataFile.open(data);
      // Nothing was committed between the two looks: the pinned transaction is the one that the file shows.
      if (file.transaction === before) {
        if (markOf(file) !== currentMark) throw otherFormat(path);
        return { file, close: () => released(root, pin, file) };
      }
      file.close();
      pin.done();
      await Bun.sleep(1);
    }
    throw new StoreError("unavailable", `${path} is written to all the time: try again`);
  } catch (error) {
    await root.close();
    throw error instanceof DamagedFile ? damaged(data, error) : error;
  }
}

async function released(root: Root, pin: { done(): void }, file: DataFile): Promise<void> {
  file.close();
  pin.done();
  await root.close();
}

function transactionOf(data: string): bigint {
  const file = DataFile.open(data);
  file.close();
  return file.transaction;
}

function otherFormat(path: string): StoreError {
  return new StoreError("unavailable", `${path} is no store of the current format: see \`waypost storage migrate\``);
}
