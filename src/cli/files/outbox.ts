/**
 * Files that this machine sends. A file is hashed once and then read by ranges; a file that changed meanwhile is not sent.
 * An unfinished chunk set is on disk, with its seed and the number of delivered chunks, so that the next send continues it
 * instead of starting a second set. It is removed once the set is complete.
 */
import { open, readdir, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { sha256 } from "#sha256";
import { ifThere, readText, removeIfThere, writeDurably } from "../../app/files.ts";
import type { Source } from "../../client/content.ts";
import { localError } from "../../client/http.ts";
import { parsePlan, renderPlan, type SavedPlan, type SendPlan, type UnsignedPlan } from "../../client/send.ts";
import { equalBytes } from "../../core/codec/bytes.ts";
import { parseDuration, parseTimestamp } from "../../core/codec/time.ts";
import { sweepLeftovers } from "./files.ts";

type Unfinished = SavedPlan & { readonly path: string };

export function outboxFolder(keysFolder: string): string {
  return join(keysFolder, ".state", "outbox");
}

/** Written again after each chunk; the caller removes the file when all is sent. */
export async function saveOutgoing(folder: string, plan: SendPlan, delivered: number): Promise<string> {
  const path = join(folder, `${plan.id}.json`);
  await writeDurably(path, renderPlan(plan, delivered));
  return path;
}

/**
 * The unfinished set for the same file, recipient and sender, if it has not expired. It keeps the key that it was sealed to:
 * all chunks of a set need the same one, and a recipient that has replaced its key keeps the old secret for longer than
 * the set lives. Expired sets are removed.
 */
export async function findUnfinished(folder: string, wanted: SendPlan, nowMs: number): Promise<Unfinished | null> {
  await sweepLeftovers(folder, nowMs);
  let found: Unfinished | null = null;
  for (const file of (await ifThere(readdir(folder))) ?? []) {
    if (!file.endsWith(".json")) continue;
    const path = join(folder, file);
    const state = parsePlan((await readText(path)) ?? "");
    if (state === null) continue;
    if (endsMs(state.plan) <= nowMs) await removeIfThere(path);
    else if (isSameSend(state, wanted)) found = { ...state, path };
  }
  return found;
}

function endsMs(plan: UnsignedPlan): number {
  return (parseTimestamp(plan.timestamp) ?? 0) + (parseDuration(plan.ttl) ?? 0);
}

function isSameSend({ plan, senderKeyId }: SavedPlan, wanted: SendPlan): boolean {
  const { file, recipient } = plan;
  const same = (["to", "chunkBytes", "ttl", "tag", "hint"] as const).every((name) => plan[name] === wanted[name]);
  const sameFile = (["name", "mediaType", "sizeBytes"] as const).every((name) => file[name] === wanted.file[name]);
  const sameKeys = recipient.keyId === wanted.recipient.keyId && senderKeyId === (wanted.sender?.keyId ?? null);
  return same && sameFile && sameKeys && equalBytes(file.sha256, wanted.file.sha256);
}

// ------------------------------------------------------------------------------------------- file to send

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
