/** A file to send: hashed once, then read by ranges. One that changed meanwhile is not sent. */
import { open, stat } from "node:fs/promises";
import { basename } from "node:path";
import { ifThere } from "../../app/files.ts";
import { localError } from "../../client/base/failure.ts";
import { measured, type Source } from "../../client/mail/content.ts";

/**
 * Reads the file once to hash it. Throws `local` errors `no_file` and, then
 * or later, `file_changed`.
 */
export async function fileSource(path: string, mediaType: string): Promise<Source> {
  const facts = await ifThere(stat(path));
  if (facts === null) throw localError("no_file", `there is no file ${path}`);
  if (!facts.isFile()) throw localError("no_file", `${path} is not a file`);
  return measured({ name: basename(path), mediaType, sizeBytes: facts.size }, async (from, to) => {
    const now = await stat(path).catch(() => null);
    if (now?.size !== facts.size || now.mtimeMs !== facts.mtimeMs) throw fileChanged(path);
    return readRange(path, from, to);
  });
}

async function readRange(path: string, from: number, to: number): Promise<Uint8Array> {
  const bytes = new Uint8Array(to - from);
  const handle = await open(path, "r");
  try {
    for (let at = 0; at < bytes.length; ) {
      const { bytesRead } = await handle.read(bytes, at, bytes.length - at, from + at);
      if (bytesRead === 0) throw fileChanged(path);
      at += bytesRead;
    }
    return bytes;
  } finally {
    await handle.close();
  }
}

function fileChanged(path: string) {
  return localError("file_changed", `${path} changed while it was being sent`);
}
