/**
 * Files that arrive in runs of chunks: each run is saved and then acknowledged, so that a file
 * larger than the mailbox flows through it. Only of people who are known, because what is saved so
 * far has no whole that could be verified. Pieces, the place of the next chunk and what was seen
 * are written in one change, so a crash between two runs loses and repeats nothing.
 * Source: docs/client.md "A local store".
 */
import { sha256 } from "#sha256";
import { concatBytes, decodeHex, encodeHex, equalBytes } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { hourMs } from "../../core/codec/time.ts";
import { randomUuid } from "../keys/crypto.ts";
import {
  namedMarks,
  type OpenedChunk,
  openChunk,
  type ReadMessage,
  type Recipient,
  readOf,
} from "../mail/retrieve.ts";
import { type EnvelopeCopy, offeredUntilMs, type PendingMessage } from "../net/caches.ts";
import { type Body, deleteBody, inlineBody, pieceBytes, readBody } from "./files.ts";
import { arrivingKey, keyOfPerson, pieceKey, rowsOf, seenKey } from "./keys.ts";
import type { OwnStore } from "./own-store.ts";
import type { Person } from "./person-shape.ts";
import type { Batch, Table } from "./table.ts";

type ArrivingRow = {
  /** The first chunk that is not here. */
  readonly next: number;
  readonly body: { readonly is: "pieces"; readonly id: string; readonly sizeBytes: number };
  /** What the first chunk says of the whole, with the file's SHA-256 in hex. */
  readonly whole: Omit<OpenedChunk, "file" | "data" | "digest" | "mark">;
  readonly file: Omit<OpenedChunk["file"], "sha256"> & { readonly sha256: string };
  readonly digests: readonly string[];
  readonly messageIds: readonly string[];
  /** When no Cache can offer the rest. */
  readonly untilMs: number;
};

/** What a run has brought. */
export type Run = {
  /** To acknowledge. */
  readonly copies: readonly EnvelopeCopy[];
  readonly digests: ReadonlySet<string>;
  /** The message, when this was the last run. */
  readonly read: ReadMessage | null;
};

/** Puts the rows of a message that is whole. */
type Filing = (batch: Batch, read: ReadMessage, body: Body) => Promise<void>;

/** At once: more of somebody's files wait in the Cache. */
const arrivingMax = 16;
/** Read and saved in one change. */
const runBytesMax = 8 * 1_048_576;

export class Arriving {
  readonly #own: OwnStore;
  readonly #table: Table;

  constructor(own: OwnStore) {
    this.#own = own;
    this.#table = own.table;
  }

  /**
   * Saves the chunks that follow what is here; `null` when none does, or the sender isn't known.
   */
  async take(message: PendingMessage, recipient: Recipient, file: Filing): Promise<Run | null> {
    const key = arrivingKey(this.#table, `${message.groupId} ${message.total}`);
    const held = await this.#table.get<ArrivingRow>(key);
    if (held === null && (await this.#isFull())) return null;
    const begun = held ?? (await this.#begin(message, recipient));
    if (begun === null) return null;
    const { row, chunks, copies } = await this.#run(begun, message, recipient);
    const isWhole = row.next === message.total;
    const digests = new Set(row.digests);
    if (chunks.length === 0 && !isWhole)
      return copies.length === 0 ? null : { copies, digests, read: null };
    await this.#table.add(async (batch) => {
      await this.#append(batch, begun.body, chunks);
      const { length } = begun.digests;
      for (const name of [...row.digests.slice(length), ...row.messageIds.slice(length)])
        batch.put(seenKey(this.#table, name), row.untilMs);
      batch.put(key, row);
    });
    const read = isWhole ? await this.#finish(key, row, { message, file }) : null;
    return { copies, digests, read };
  }

  async #isFull(): Promise<boolean> {
    const rows = await this.#table.scan({ prefix: rowsOf.arriving, limit: arrivingMax });
    return rows.length >= arrivingMax;
  }

  /** From the first chunk, of a verified sender who is known. */
  async #begin(message: PendingMessage, recipient: Recipient): Promise<ArrivingRow | null> {
    const [first] = message.parts;
    if (first?.[0]?.chunk?.sequence !== 0) return null;
    const {
      file,
      data: _,
      digest: __,
      mark: ___,
      ...whole
    } = await openChunk(first, recipient, null);
    const { from } = whole;
    const person =
      from?.verified === true
        ? await this.#table.get<Person>(keyOfPerson(this.#table, from.did as Did))
        : null;
    if (person?.isKnown !== true || person.isBlocked) return null;
    return {
      next: 0,
      body: { is: "pieces", id: randomUuid(), sizeBytes: 0 },
      whole,
      file: { ...file, sha256: encodeHex(file.sha256) },
      digests: [],
      messageIds: [],
      untilMs: offeredUntilMs(message, this.#own.nowMs()) + hourMs,
    };
  }

  /** Opens what follows, and finds the copies of what is here. */
  async #run(held: ArrivingRow, message: PendingMessage, recipient: Recipient) {
    const whole = { ...held.whole, file: fileOf(held) };
    const chunks: Uint8Array[] = [];
    const copies: EnvelopeCopy[] = [];
    let row = held;
    let bytes = 0;
    for (const part of message.parts) {
      const sequence = part[0]?.chunk?.sequence ?? -1;
      if (sequence < row.next) copies.push(...part);
      if (sequence > row.next || bytes > runBytesMax) break;
      if (sequence !== row.next) continue;
      const { data, digest, from } = await openChunk(part, recipient, whole);
      if (from?.verified !== true) break;
      chunks.push(data);
      copies.push(...part);
      bytes += data.length;
      const { body, digests, messageIds } = row;
      row = {
        ...row,
        next: row.next + 1,
        body: { ...body, sizeBytes: body.sizeBytes + data.length },
        digests: [...digests, digest],
        messageIds: [...messageIds, part[0]?.messageId ?? ""],
      };
    }
    return { row, chunks, copies };
  }

  /** Behind what is there: the last piece is filled first. */
  async #append(batch: Batch, body: ArrivingRow["body"], chunks: readonly Uint8Array[]) {
    const begun = body.sizeBytes % pieceBytes;
    let number = Math.floor(body.sizeBytes / pieceBytes);
    const before = begun === 0 ? null : await this.#table.bytes(pieceKey(body.id, number));
    const bytes = concatBytes(before ?? new Uint8Array(0), ...chunks);
    for (let from = 0; from < bytes.length; from += pieceBytes, number++)
      batch.putBytes(pieceKey(body.id, number), bytes.subarray(from, from + pieceBytes));
  }

  /** The message, unless its content is not what its sender measured; that is forgotten. */
  async #finish(
    key: string,
    row: ArrivingRow,
    { message, file }: { readonly message: PendingMessage; readonly file: Filing },
  ): Promise<ReadMessage | null> {
    const { body, whole, digests, messageIds } = row;
    const hash = sha256.create();
    for await (const piece of readBody(this.#table, body)) hash.update(piece);
    const facts = fileOf(row);
    const isSame = body.sizeBytes === facts.sizeBytes && equalBytes(hash.digest(), facts.sha256);
    const said = readOf(message, { ...whole, file: facts });
    const marks = namedMarks(said, whole.type);
    const { seenUntilMs } = whole;
    const read: ReadMessage = {
      ...said,
      messageIds,
      digests: new Set(digests),
      ...(marks === null ? {} : { marks }),
      seenUntilMs,
    };
    await this.#table.add(async (batch) => {
      batch.delete(key);
      const small = isSame ? await inlineBody(this.#table, body) : null;
      if (!isSame || small !== null) deleteBody(batch, body);
      if (isSame) await file(batch, read, small ?? body);
    });
    return isSame ? read : null;
  }

  /** Forgets what can't become whole any more. */
  async sweep(): Promise<void> {
    const nowMs = this.#own.nowMs();
    for await (const [key, { untilMs, body }] of this.#table.all<ArrivingRow>(rowsOf.arriving))
      if (untilMs < nowMs)
        await this.#table.change(async (batch) => {
          deleteBody(batch, body);
          batch.delete(key);
        });
  }
}

const fileOf = ({ file }: ArrivingRow): OpenedChunk["file"] => ({
  ...file,
  sha256: decodeHex(file.sha256) ?? new Uint8Array(0),
});
