/**
 * Envelopes that a live session brought, on disk until their file is complete: acknowledging one over
 * the session means that no Cache will have it, so it is synced first. One file for each envelope, in a
 * folder of the identity's own; what has expired is dropped when the folder is opened.
 */
import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { readText, removeIfThere, sweepLeftovers, writeDurably } from "../cli/files/files.ts";
import { isRecord } from "./http.ts";
import { chunkOf, type Held } from "./retrieve.ts";

/** More than this are refused, and then go to the Cache. */
const piecesMax = 100_000;

export type Pieces = {
  readonly held: () => Held[];
  readonly has: (messageId: string) => boolean;
  /** `false` when there are too many; true means synced. */
  readonly put: (piece: {
    messageId: string;
    expiresAtMs: number;
    envelope: Record<string, unknown>;
  }) => Promise<boolean>;
  readonly remove: (messageIds: readonly string[]) => Promise<void>;
};

export async function openPieces(folder: string, nowMs: number): Promise<Pieces> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await sweepLeftovers(folder, nowMs);
  const index = new Map<string, Held>();
  for (const file of (await readdir(folder)).filter((name) => name.endsWith(".json"))) {
    const path = join(folder, file);
    const piece = await readPiece(path);
    if (piece === null || piece.expiresAtMs <= nowMs) await removeIfThere(path);
    else index.set(file.slice(0, -".json".length), heldPiece(path, piece));
  }
  return {
    held: () => [...index.values()],
    has: (messageId) => index.has(messageId),
    put: async ({ messageId, expiresAtMs, envelope }) => {
      if (index.size >= piecesMax) return false;
      const path = join(folder, `${messageId}.json`);
      await writeDurably(path, JSON.stringify({ expires_at_ms: expiresAtMs, envelope }));
      index.set(messageId, heldPiece(path, { messageId, expiresAtMs, envelope }));
      return true;
    },
    remove: async (messageIds) => {
      for (const messageId of messageIds) {
        if (index.delete(messageId)) await removeIfThere(join(folder, `${messageId}.json`));
      }
    },
  };
}

type Piece = { readonly messageId: string; readonly expiresAtMs: number; readonly envelope: Record<string, unknown> };

/** Keeps what places the piece in memory, and leaves its payload on disk. */
function heldPiece(path: string, piece: Piece): Held {
  const { messageId, expiresAtMs, envelope } = piece;
  const local = async () => (await readPiece(path).catch(() => null))?.envelope ?? null;
  return { messageId, expiresAtMs, chunk: chunkOf(envelope), at: [], local };
}

/** `null` when it is no piece. Throws when it can't be read: nobody else may have it, so it must not be taken for none. */
async function readPiece(path: string): Promise<Piece | null> {
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
