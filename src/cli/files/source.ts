/** A file to send: hashed once, then read by ranges. One that changed meanwhile is not sent. */
import { open, stat } from "node:fs/promises";
import { basename } from "node:path";
import { sha256 } from "#sha256";
import { ifThere } from "../../app/files.ts";
import type { Source } from "../../client/content.ts";
import { localError } from "../../client/http.ts";

const readBytes = 1_048_576;

/** Reads the file once to hash it. Throws `local` errors `no_file` and, later, `file_changed`. */
export async function fileSource(path: string, mediaType: string): Promise<Source> {
  const facts = await ifThere(stat(path));
  if (facts === null) throw localError("no_file", `there is no file ${path}`);
  if (!facts.isFile()) throw localError("no_file", `${path} is not a file`);
  const hash = sha256.create();
  for (let from = 0; from < facts.size; from += readBytes) {
    hash.update(await readRange(path, from, Math.min(from + readBytes, facts.size)));
  }
  const file = { name: basename(path), mediaType, sizeBytes: facts.size, sha256: new Uint8Array(hash.digest()) };
  const read = async (from: number, to: number) => {
    const now = await stat(path).catch(() => null);
    if (now?.size !== facts.size || now.mtimeMs !== facts.mtimeMs) throw changed(path);
    return readRange(path, from, to);
  };
  return { file, read };
}

async function readRange(path: string, from: number, to: number): Promise<Uint8Array> {
  const bytes = new Uint8Array(to - from);
  const handle = await open(path, "r");
  try {
    for (let at = 0; at < bytes.length; ) {
      const { bytesRead } = await handle.read(bytes, at, bytes.length - at, from + at);
      if (bytesRead === 0) throw changed(path);
      at += bytesRead;
    }
    return bytes;
  } finally {
    await handle.close();
  }
}

function changed(path: string) {
  return localError("file_changed", `${path} changed while it was being sent`);
}
