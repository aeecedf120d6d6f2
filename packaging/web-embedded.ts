/** Takes the place of `web.ts` in the executable, which holds the app as `packWeb` packed it. */
import { readFileSync } from "node:fs";
import type { WebFiles } from "./web.ts";

declare const WEB_ARCHIVE: string;

export async function webFiles(): Promise<WebFiles> {
  const bytes = Bun.zstdDecompressSync(readFileSync(WEB_ARCHIVE));
  const files: WebFiles = new Map();
  let at = bytes.indexOf("\n") + 1;
  const list: readonly [string, string, number][] = JSON.parse(bytes.toString("utf8", 0, at));
  for (const [path, contentType, length] of list) {
    files.set(path, { contentType, bytes: bytes.subarray(at, at + length) });
    at += length;
  }
  return files;
}
