/**
 * Content in a local store: small content is part of its message, the rest lies in sealed pieces
 * next to it. Pieces are written before the message that names them, and marked until then, so that
 * a crash leaves none for ever.
 */
import { concatBytes, decodeBase64, encodeBase64 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { hourMs } from "../../core/codec/time.ts";
import { attempt, ClientError, localError } from "../base/failure.ts";
import { randomUuid } from "../keys/crypto.ts";
import type { Source } from "../mail/content.ts";
import type { FileFacts } from "../mail/seal.ts";
import { pieceKey, rowsOf, unfinishedIdOf, unfinishedKey } from "./keys.ts";
import type { Batch, Table } from "./table.ts";

/**
 * Where content is. `elsewhere`: on another device, which had it first; `removed`: there was
 * no room for it any more.
 */
export type Body =
  | { readonly is: "inline"; readonly base64: string }
  | { readonly is: "pieces"; readonly id: string; readonly sizeBytes: number }
  | { readonly is: "elsewhere"; readonly at: Did }
  | { readonly is: "removed" };

const inlineBytesMax = 65_536;
export const pieceBytes = 1_048_576;
/** A file that is written for longer was left by a crash. */
const unfinishedMs = hourMs;

const piecesOf = (sizeBytes: number) => Math.ceil(sizeBytes / pieceBytes);

export type Write = (data: Uint8Array) => Promise<void>;

type Saving<W, T> = {
  /** Gives the content to `write`, in order. */
  readonly fill: (write: Write) => Promise<W>;
  /** Puts the rows that name the content; with `null` it is not kept. */
  readonly rows: (batch: Batch, body: Body, filled: W) => Promise<T | null>;
};

/**
 * Saves content and the rows that name it, which come with the end of the content in one change.
 */
export async function saveContent<W, T>(
  table: Table,
  nowMs: () => number,
  { fill, rows }: Saving<W, T>,
): Promise<{ readonly filled: W; readonly saved: T | null }> {
  const id = randomUuid();
  let [held, sizeBytes]: [Uint8Array, number] = [new Uint8Array(0), 0];
  const savePiece = async (piece: Uint8Array) => {
    await table.add(async (batch) => {
      if (sizeBytes === 0) batch.put(unfinishedKey(id), nowMs());
      batch.putBytes(pieceKey(id, piecesOf(sizeBytes)), piece);
    });
    sizeBytes += piece.length;
  };
  const result = await attempt(async () => {
    const filled = await fill(async (data) => {
      held = concatBytes(held, data);
      for (; held.length >= pieceBytes; held = held.subarray(pieceBytes))
        await savePiece(held.subarray(0, pieceBytes));
    });
    const isInline = sizeBytes === 0 && held.length <= inlineBytesMax;
    if (!isInline && held.length > 0) await savePiece(held);
    const body: Body = isInline
      ? { is: "inline", base64: encodeBase64(held) }
      : { is: "pieces", id, sizeBytes };
    const saved = await table.add(async (batch) => {
      const put = await rows(batch, body, filled);
      if (put !== null && !isInline) batch.delete(unfinishedKey(id));
      return put;
    });
    return { filled, saved };
  });
  const isKept = !(result instanceof ClientError) && result.saved !== null;
  const discard = async (batch: Batch) => {
    deleteBody(batch, { is: "pieces", id, sizeBytes });
    batch.delete(unfinishedKey(id));
  };
  if (!isKept && sizeBytes > 0) await attempt(() => table.change(discard));
  if (result instanceof ClientError) throw result;
  return result;
}

/** Writes what will be sent. */
export async function copySource({ file, read }: Source, write: Write): Promise<void> {
  for (let from = 0; from < file.sizeBytes; from += pieceBytes)
    await write(await read(from, Math.min(from + pieceBytes, file.sizeBytes)));
}

/** Of content that is small; `null` for what stays in pieces. */
export async function inlineBody(table: Table, body: Body): Promise<Body | null> {
  if (body.is !== "pieces" || body.sizeBytes > inlineBytesMax) return null;
  return { is: "inline", base64: encodeBase64(await wholeBody(table, body)) };
}

/** All of the content, in memory. */
export async function wholeBody(table: Table, body: Body): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  for await (const piece of readBody(table, body)) parts.push(piece);
  return concatBytes(...parts);
}

/** The content in order, one piece in memory. Throws `content_removed`. */
export async function* readBody(table: Table, body: Body): AsyncGenerator<Uint8Array> {
  if (body.is === "inline") yield decodeBase64(body.base64) ?? new Uint8Array(0);
  else if (body.is === "pieces")
    for (let number = 0; number < piecesOf(body.sizeBytes); number++)
      yield await readPiece(table, body.id, number);
  else if (body.is === "removed") throw removed();
  else
    throw localError(
      "content_elsewhere",
      "another device has this content: it comes when that is connected",
    );
}

async function readPiece(table: Table, id: string, number: number): Promise<Uint8Array> {
  const piece = await table.bytes(pieceKey(id, number));
  if (piece === null) throw removed();
  return piece;
}

const removed = () =>
  localError("content_removed", "this content was removed, since a store was full");

/** Content that was saved, as a source to send. */
export function bodySource(table: Table, body: Body, file: FileFacts): Source {
  return { file, read: bodyReader(table, body) };
}

/**
 * Reads any part of the content. A piece has many parts, so the last one is kept: who reads in
 * order opens each once, with 6 ms for a MiB in a page.
 */
export function bodyReader(table: Table, body: Body): Source["read"] {
  let last: { readonly number: number; readonly piece: Uint8Array } | null = null;
  const pieceOf = async (id: string, number: number): Promise<Uint8Array> => {
    if (last?.number === number) return last.piece;
    const piece = await readPiece(table, id, number);
    last = { number, piece };
    return piece;
  };
  return async (from, to) => {
    if (body.is !== "pieces") return (await wholeBody(table, body)).subarray(from, to);
    const parts: Uint8Array[] = [];
    for (let number = Math.floor(from / pieceBytes); number * pieceBytes < to; number++) {
      const piece = await pieceOf(body.id, number);
      const start = number * pieceBytes;
      parts.push(piece.subarray(Math.max(0, from - start), to - start));
    }
    return concatBytes(...parts);
  };
}

export function deleteBody(batch: Batch, body: Body): void {
  if (!("id" in body)) return;
  for (let number = 0; number < piecesOf(body.sizeBytes); number++)
    batch.delete(pieceKey(body.id, number));
}

/** Removes the pieces that a crash left without a message. */
export async function sweepUnfinished(table: Table, nowMs: number): Promise<void> {
  for await (const [key, sinceMs] of table.all<number>(rowsOf.unfinished)) {
    if (sinceMs > nowMs - unfinishedMs) continue;
    const id = unfinishedIdOf(key);
    // Each piece goes by itself, until there is none: the mark goes last.
    for (let number = 0; (await table.bytes(pieceKey(id, number))) !== null; number++)
      await table.change(async (batch) => batch.delete(pieceKey(id, number)));
    await table.change(async (batch) => batch.delete(key));
  }
}
