/** Files that are written whole or not at all, and synced before anything relies on them. */
import { constants, existsSync } from "node:fs";
import { link, mkdir, open, readFile, rename, unlink } from "node:fs/promises";
import { dirname } from "node:path";

/** Syncs a folder, so that the names in it survive the death of the machine. */
export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, constants.O_RDONLY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** A new file with a name of its own next to `path`, synced. */
export async function writeBeside(path: string, content: string | Uint8Array): Promise<string> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const temporary = `${path}.${crypto.randomUUID()}.tmp`;
  const handle = await open(temporary, "wx", 0o600);
  try {
    await handle.writeFile(content);
    await handle.sync();
  } catch (error) {
    // A full disk would get one for each try.
    await unlink(temporary);
    throw error;
  } finally {
    await handle.close();
  }
  return temporary;
}

/**
 * Replaces or creates a file: a reader sees the old one or the new one. The folder is made,
 * mode 0700.
 */
export async function writeDurably(path: string, content: string | Uint8Array): Promise<void> {
  await rename(await writeBeside(path, content), path);
  await syncFolder(dirname(path));
}

const spareBytes = 4_096;

/**
 * The same for up to 4 KiB, also on a disk without room: the content goes into the block of
 * a second file, `<path>.spare`, that was made while there was room; then both exchange
 * their names, by way of `<path>.former`.
 */
export async function writeInTurn(path: string, content: string): Promise<void> {
  const [spare, former] = [`${path}.spare`, `${path}.former`];
  if (!existsSync(spare) && existsSync(former)) await rename(former, spare);
  if (!existsSync(spare)) await createDurably(spare, new Uint8Array(spareBytes));
  const handle = await open(spare, "r+");
  try {
    await handle.write(content, 0);
    await handle.truncate(Buffer.byteLength(content));
    await handle.sync();
  } finally {
    await handle.close();
  }
  await removeIfThere(former);
  await ifThere(link(path, former));
  await rename(spare, path);
  await syncFolder(dirname(path));
  await ifThere(rename(former, spare));
}

/** Creates a file that must not exist yet; `false` when it does. */
export async function createDurably(path: string, content: string | Uint8Array): Promise<boolean> {
  const temporary = await writeBeside(path, content);
  try {
    if (!(await succeeds(link(temporary, path), "EEXIST"))) return false;
  } finally {
    await unlink(temporary);
  }
  await syncFolder(dirname(path));
  return true;
}

export function isSystemError(error: unknown, ...codes: readonly string[]): boolean {
  return error instanceof Error && "code" in error && codes.includes(String(error.code));
}

/** `null` when there is no such file or folder. */
export async function ifThere<T>(work: Promise<T>): Promise<T | null> {
  return work.catch((error: unknown) => {
    if (isSystemError(error, "ENOENT")) return null;
    throw error;
  });
}

/** `false` when the work fails with one of the codes. */
export async function succeeds(
  work: Promise<unknown>,
  ...codes: readonly string[]
): Promise<boolean> {
  return work.then(
    () => true,
    (error: unknown) => {
      if (isSystemError(error, ...codes)) return false;
      throw error;
    },
  );
}

export const readText = (path: string): Promise<string | null> => ifThere(readFile(path, "utf8"));

export async function removeIfThere(path: string): Promise<void> {
  await ifThere(unlink(path));
}
