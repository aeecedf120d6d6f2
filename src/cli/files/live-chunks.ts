/**
 * Envelopes that a live session brought, on disk until their file is complete: acknowledging one over
 * the session means that no Cache will have it, so it is synced first. One file for each envelope, in a
 * folder of the identity's own; what has expired is dropped when the folder is opened.
 */
import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { chunkOf, type HeldEnvelope } from "../../client/retrieve.ts";
import { isRecord } from "../../client/shape.ts";
import { readText, removeIfThere, sweepLeftovers, writeDurably } from "./files.ts";

/** More than this are refused, and then go to the Cache. */
const chunksKeptMax = 100_000;

export type LiveChunks = {
  readonly held: () => HeldEnvelope[];
  readonly has: (messageId: string) => boolean;
  /** `false` when there are too many; true means synced. */
  readonly put: (chunk: {
    messageId: string;
    expiresAtMs: number;
    envelope: Record<string, unknown>;
  }) => Promise<boolean>;
  readonly remove: (messageIds: readonly string[]) => Promise<void>;
};

export async function openLiveChunks(folder: string, nowMs: number): Promise<LiveChunks> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await sweepLeftovers(folder, nowMs);
  const index = new Map<string, HeldEnvelope>();
  for (const file of (await readdir(folder)).filter((name) => name.endsWith(".json"))) {
    const path = join(folder, file);
    const chunk = await readChunkFile(path);
    if (chunk === null || chunk.expiresAtMs <= nowMs) await removeIfThere(path);
    else index.set(file.slice(0, -".json".length), heldChunk(path, chunk));
  }
  return {
    held: () => [...index.values()],
    has: (messageId) => index.has(messageId),
    put: async ({ messageId, expiresAtMs, envelope }) => {
      if (index.size >= chunksKeptMax) return false;
      const path = join(folder, `${messageId}.json`);
      await writeDurably(path, JSON.stringify({ expires_at_ms: expiresAtMs, envelope }));
      index.set(messageId, heldChunk(path, { messageId, expiresAtMs, envelope }));
      return true;
    },
    remove: async (messageIds) => {
      for (const messageId of messageIds) {
        if (index.delete(messageId)) await removeIfThere(join(folder, `${messageId}.json`));
      }
    },
  };
}

type StoredEnvelope = {
  readonly messageId: string;
  readonly expiresAtMs: number;
  readonly envelope: Record<string, unknown>;
};

/** Keeps what places the chunk in memory, and leaves its payload on disk. */
function heldChunk(path: string, chunk: StoredEnvelope): HeldEnvelope {
  const { messageId, expiresAtMs, envelope } = chunk;
  const local = async () => (await readChunkFile(path).catch(() => null))?.envelope ?? null;
  return { messageId, expiresAtMs, chunk: chunkOf(envelope), at: [], local };
}

/** `null` when it is no chunk. Throws when it can't be read: nobody else may have it, so it must not be taken for none. */
async function readChunkFile(path: string): Promise<StoredEnvelope | null> {
  const text = await readText(path);
  try {
    const json: unknown = JSON.parse(text ?? "");
    if (!isRecord(json) || !isRecord(json["envelope"]) || typeof json["expires_at_ms"] !== "number") return null;
    const { envelope, expires_at_ms: expiresAtMs } = json;
    return { messageId: String(envelope["message_id"]).toLowerCase(), expiresAtMs, envelope };
  } catch {
    return null;
  }
}
