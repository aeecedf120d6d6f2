/**
 * `waypost storage backup` and `restore`: copies of the stores in a folder or a bucket. A copy has
 * its name only when it is whole and verified.
 */
import * as fs from "node:fs";
import { dirname, join, resolve } from "node:path";
import { failed, failedInResult } from "../app/failure.ts";
import { isSystemError, syncFolder } from "../app/files.ts";
import type { FileMaintenance } from "../storage/contract.ts";
import {
  fetchBackup,
  parseBucketPlace,
  removeOldBackups,
  sendBackup,
  timeName,
} from "./buckets.ts";
import {
  chosenSteps,
  type From,
  type Maintained,
  maintained,
  type Options,
  reportEach,
} from "./chosen-stores.ts";
import { readConfig } from "./config.ts";

/** Plugins whose stores hold nothing that could be lost with this machine. */
const leftOutFor: Readonly<Record<string, string>> = {
  memory: "nothing to copy: it is in memory",
  chain: "nothing to copy: it is on the chain",
};

type LeftOut = { readonly name: string; readonly result: string; readonly isLost: boolean };

/** The chosen stores that a copy lacks, and why. */
async function leftOutOf(
  options: Options,
  copied: readonly Maintained<FileMaintenance>[],
): Promise<LeftOut[]> {
  const { stores } = await readConfig(options.config);
  const others = (await chosenSteps(options)).filter(
    ({ name }) => !copied.some((one) => one.name === name),
  );
  return others.map(({ name, maintenance }) => {
    const harmless = leftOutFor[stores[name]?.plugin ?? ""];
    const why =
      maintenance === null
        ? "its plugin has no backup"
        : "it is in a database, which has its own tools";
    return {
      name,
      result: harmless ?? `LEFT OUT: ${why}`,
      isLost: harmless === undefined,
    };
  });
}

/**
 * The folder has its name only when every store in it is whole, verified and synced. Stores that
 * are left out are named, and fail the command unless `--store` names the others.
 */
export async function backup(options: BackupOptions): Promise<void> {
  const place = parseBucketPlace(options.to);
  if (place === null && options.keep !== undefined) throw failed("--keep is for a bucket");
  if (place === null) return backupInto(options, {});
  const time = timeName(Date.now());
  await inScratch(options.scratch, (scratch) => {
    const folder = join(scratch, time);
    return backupInto(
      { ...options, to: folder },
      {
        shownAs: `${options.to}/${time}`,
        finish: async () => {
          await sendBackup(place, folder, time);
          if (options.keep !== undefined) await removeOldBackups(place, options.keep);
        },
      },
    );
  });
}

type BackupOptions = Options & {
  readonly to: string;
  readonly keep?: number;
  readonly scratch: string;
};

/** A folder of its own, removed at the end. */
async function inScratch(parent: string, work: (folder: string) => Promise<void>): Promise<void> {
  const folder = fs.mkdtempSync(join(resolve(parent), "waypost-backup-"));
  try {
    await work(folder);
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
}

type Sending = {
  /** Place of the copy in what is reported, instead of the folder. */
  readonly shownAs?: string;
  /** What comes after the folder is whole. */
  readonly finish?: () => Promise<void>;
};

async function backupInto(
  options: Options & { readonly to: string },
  { shownAs, finish: further }: Sending,
): Promise<void> {
  const folder = resolve(options.to);
  const stores = await maintained(options);
  const leftOut = await leftOutOf(options, stores);
  const refuseDone = () => {
    if (fs.existsSync(folder))
      throw failed(`${folder} exists already: name a new folder with --to`);
  };
  refuseDone();
  const partial = `${folder}.partial`;
  fs.mkdirSync(dirname(folder), { recursive: true, mode: 0o700 });
  try {
    fs.mkdirSync(partial, { mode: 0o700 });
  } catch (error) {
    if (!isSystemError(error, "EEXIST")) throw error;
    throw failed(
      `${partial} exists: another backup is at work, or one was interrupted; then remove it`,
    );
  }
  try {
    refuseDone();
    const copy = async ({ name, work }: Maintained<FileMaintenance>) =>
      (await work.backup(join(partial, name))).replace(partial, shownAs ?? folder);
    const finish = async () => {
      await syncFolder(partial);
      fs.renameSync(partial, folder);
      await syncFolder(dirname(folder));
      await further?.();
    };
    await reportEach(options, stores, copy, {
      after: finish,
      others: leftOut.map(({ name, result }) => ({ name, result })),
    });
  } finally {
    fs.rmSync(partial, { recursive: true, force: true });
  }
  const lost = leftOut.filter(({ isLost }) => isLost).map(({ name }) => name);
  if (lost.length === 0) return;
  const copied = stores.map(({ name }) => name).join(" ");
  throw failedInResult(
    `the backup lacks ${lost.join(", ")}: copy it by other means, and name the others with --store ${copied}`,
  );
}

export async function restoreStore(options: RestoreOptions): Promise<void> {
  const place = parseBucketPlace(options.from);
  if (place === null) return restoreFrom(options);
  await inScratch(options.scratch, async (scratch) => {
    await fetchBackup(place, scratch);
    await restoreFrom({ ...options, from: scratch });
  });
}

type RestoreOptions = From & { readonly scratch: string };

async function restoreFrom(options: From): Promise<void> {
  const folder = resolve(options.from);
  const stores = await maintained(options);
  const missing = stores.find(({ name }) => !fs.existsSync(join(folder, name)));
  if (missing !== undefined) throw failed(`${folder} has no backup of the store "${missing.name}"`);
  await reportEach(options, stores, ({ name, work }) => work.restore(join(folder, name)));
}
