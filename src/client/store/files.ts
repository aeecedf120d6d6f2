/**
 * Content in a local store: small content is part of its message, the rest lies in sealed pieces beside it. Pieces are
 * written before the message that names them, and marked until then, so that a crash leaves none for ever.
 */
import { concatBytes, decodeBase64, encodeBase64 } from "../../core/codec/bytes.ts";
import { hourMs } from "../../core/codec/time.ts";
import type { Source } from "../content.ts";
import { randomUuid } from "../crypto.ts";
import { localError } from "../http.ts";
import type { FileFacts } from "../seal.ts";
import { type Batch, digits, type Table, withRoom } from "./table.ts";

/** Where content is. `removed`: there was no room for it any more; `elsewhere`: on the device that received it. */
export type Body =
  | { readonly is: "inline"; readonly base64: string }
  | { readonly is: "pieces"; readonly id: string; readonly sizeBytes: number }
  | { readonly is: "removed" | "elsewhere" };

const inlineBytesMax = 65_536;
const pieceBytes = 1_048_576;
/** A file that is written for longer was left by a crash. */
const unfinishedMs = hourMs;

const pieceKey = (id: string, number: number) => `f/${id}/${digits(number)}`;
const piecesOf = (sizeBytes: number) => Math.ceil(sizeBytes / pieceBytes);

/** Takes content in order. `finish` returns where it is, and has the change that saves its message forget the mark. */
export class BodyWriter {
  readonly #table: Table;
  readonly #nowMs: () => number;
  #id: string | null = null;
  #parts: Uint8Array[] = [];
  #held = 0;
  #written = 0;

  constructor(table: Table, nowMs: () => number) {
    this.#table = table;
    this.#nowMs = nowMs;
  }

  async write(data: Uint8Array): Promise<void> {
    this.#parts.push(data);
    this.#held += data.length;
    if (this.#held < pieceBytes) return;
    const all = concatBytes(...this.#parts);
    let from = 0;
    for (; all.length - from >= pieceBytes; from += pieceBytes) await this.#save(all.subarray(from, from + pieceBytes));
    this.#hold(all.slice(from));
  }

  async finish(): Promise<{ readonly body: Body; readonly seal: (batch: Batch) => void }> {
    const rest = concatBytes(...this.#parts);
    if (this.#id === null && rest.length <= inlineBytesMax)
      return { body: { is: "inline", base64: encodeBase64(rest) }, seal: () => undefined };
    if (rest.length > 0) await this.#save(rest);
    const [id, sizeBytes] = [this.#id ?? "", this.#written];
    return { body: { is: "pieces", id, sizeBytes }, seal: (batch) => batch.delete(`t/${id}`) };
  }

  /** Removes what was written of content that is not wanted. */
  async discard(): Promise<void> {
    const id = this.#id;
    if (id === null) return;
    await this.#table.change(async (batch) => {
      deleteBody(batch, { is: "pieces", id, sizeBytes: this.#written });
      batch.delete(`t/${id}`);
    });
  }

  #hold(rest: Uint8Array): void {
    this.#parts = [rest];
    this.#held = rest.length;
  }

  async #save(piece: Uint8Array): Promise<void> {
    const number = piecesOf(this.#written);
    await withRoom(this.#table, piece.length, () =>
      this.#table.change(async (batch) => {
        if (this.#id === null) {
          this.#id = randomUuid();
          batch.put(`t/${this.#id}`, this.#nowMs());
        }
        batch.add(pieceKey(this.#id, number), piece);
      }),
    );
    this.#written += piece.length;
  }
}

/** Copies what will be sent. */
export async function saveSource(table: Table, source: Source, nowMs: () => number) {
  const writer = new BodyWriter(table, nowMs);
  const { sizeBytes } = source.file;
  for (let from = 0; from < sizeBytes; from += pieceBytes)
    await writer.write(await source.read(from, Math.min(from + pieceBytes, sizeBytes)));
  return writer.finish();
}

/** The content in order, one piece in memory. Throws `content_removed`. */
export async function* readBody(table: Table, body: Body): AsyncGenerator<Uint8Array> {
  if (body.is === "inline") yield decodeBase64(body.base64) ?? new Uint8Array(0);
  else if (body.is === "pieces")
    for (let number = 0; number < piecesOf(body.sizeBytes); number++) yield await readPiece(table, body.id, number);
  else if (body.is === "removed") throw removed();
  else throw localError("content_elsewhere", "only the device that received this content has it");
}

async function readPiece(table: Table, id: string, number: number): Promise<Uint8Array> {
  const piece = await table.bytes(pieceKey(id, number));
  if (piece === null) throw removed();
  return piece;
}

const removed = () => localError("content_removed", "the store was full: this content was removed from it");

/** Content that was saved, as a source to send. */
export function bodySource(table: Table, body: Body, file: FileFacts): Source {
  const read = async (from: number, to: number) => {
    if (body.is !== "pieces") {
      for await (const bytes of readBody(table, body)) return bytes.subarray(from, to);
      return new Uint8Array(0);
    }
    const parts: Uint8Array[] = [];
    for (let at = from; at < to; ) {
      const start = Math.floor(at / pieceBytes) * pieceBytes;
      const piece = await readPiece(table, body.id, start / pieceBytes);
      const end = Math.min(to, start + pieceBytes);
      parts.push(piece.subarray(at - start, end - start));
      at = end;
    }
    return concatBytes(...parts);
  };
  return { file, read };
}

export function deleteBody(batch: Batch, body: Body): void {
  if (body.is !== "pieces") return;
  for (let number = 0; number < piecesOf(body.sizeBytes); number++) batch.delete(pieceKey(body.id, number));
}

/** Removes the pieces that a crash left without a message. */
export async function sweepUnfinished(table: Table, nowMs: number): Promise<void> {
  for await (const [key, sinceMs] of table.all<number>("t/")) {
    if (sinceMs > nowMs - unfinishedMs) continue;
    const id = key.slice("t/".length);
    // Each piece goes by itself, until there is none: the mark goes last.
    for (let number = 0; (await table.bytes(pieceKey(id, number))) !== null; number++)
      await table.change(async (batch) => batch.delete(pieceKey(id, number)));
    await table.change(async (batch) => batch.delete(key));
  }
}
