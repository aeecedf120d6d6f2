/**
 * What an identity has received into its local store, as files: each once and whole, also when
 * the process is killed. Until the store counts a message as handed over, its file has a second
 * name, which says that the file is there. On a file system without links, a crash at that
 * moment writes the file twice.
 */
import { mkdir, open, readdir, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { sha256 } from "#sha256";
import { ifThere, removeIfThere } from "../../app/files.ts";
import type { StoredMessage } from "../../client/store/shown.ts";
import type { Waypost } from "../../client/waypost.ts";
import { encodeHex, utf8 } from "../../core/codec/bytes.ts";
import { placeFile, safeFileName } from "./files.ts";

export type ReceivedFile = {
  readonly message: StoredMessage;
  readonly path: string;
  readonly sha256: string;
};

/**
 * Writes what was not handed over yet into `folder`, which is made when it is not there. Without
 * other devices, which may want it, a message leaves the store for its file.
 */
export async function* receivedFiles(me: Waypost, folder: string): AsyncGenerator<ReceivedFile> {
  const place = resolve(folder);
  // Different for each recipient, none the beginning of another.
  const prefix = `.waypost-${me.did.slice("did:svc:".length)}-`;
  const isAlone = (await me.devices.list()).every(({ isThis }) => isThis);
  await mkdir(place, { recursive: true });
  const files = me.store.handOver(async (message) =>
    message.content === "whole" ? writePart(me, message, { place, prefix }) : null,
  );
  for await (const written of files) {
    if (written === null) continue;
    const { temporary, file, message } = written;
    await removeIfThere(temporary);
    if (isAlone) await me.store.remove(message);
    if (file !== null) yield { message, ...file };
  }
  // What a crash left was handed over before it.
  for (const name of await readdir(place))
    if (name.startsWith(prefix) && name.endsWith(".part")) await removeIfThere(join(place, name));
}

type PartName = { readonly place: string; readonly prefix: string };
type Written = {
  readonly message: StoredMessage;
  readonly temporary: string;
  /** `null` when it had its name already. */
  readonly file: Omit<ReceivedFile, "message"> | null;
};

async function writePart(
  me: Waypost,
  message: StoredMessage,
  { place, prefix }: PartName,
): Promise<Written> {
  const temporary = join(
    place,
    `${prefix}${encodeHex(sha256(utf8(message.key))).slice(0, 32)}.part`,
  );
  if (((await ifThere(stat(temporary)))?.nlink ?? 0) > 1) return { message, temporary, file: null };
  const hash = sha256.create();
  const handle = await open(temporary, "w", 0o600);
  try {
    for await (const piece of me.store.pieces(message)) {
      hash.update(piece);
      await handle.writeFile(piece);
    }
    await handle.sync();
  } catch (error) {
    await removeIfThere(temporary);
    throw error;
  } finally {
    await handle.close();
  }
  const path = await placeFile(temporary, place, safeFileName(message.name));
  return { message, temporary, file: { path, sha256: encodeHex(hash.digest()) } };
}
