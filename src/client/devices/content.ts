/**
 * Content that is too large for the log of devices stays where it is, and is asked for when it is opened: one part after the
 * other, so that little of it waits in Caches and an interruption costs one part.
 * Source: docs/client.md "Devices".
 */
import { decodeBase64, encodeBase64 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { deleteBody, pieceBytes, putPieces, readRange } from "../store/files.ts";
import { askedKey, forgetBody, keyOfFile, type MessageRow, markAsked, messageById, orderOf } from "../store/rows.ts";
import { type Table, withRoom } from "../store/table.ts";

/** Of which message, and how much of its content is there already. */
export type Want = { readonly id: string; readonly digest: string; readonly from: number };
/** `null`: the device that was asked lacks it. */
export type Part = Want & { readonly content: string | null };

const partBytes = 4 * pieceBytes;

export async function loadPart(table: Table, want: Want): Promise<Part> {
  const { row } = (await messageById(table, want.id)) ?? {};
  const body = row?.digest === want.digest ? row.body : null;
  if (body?.is !== "pieces") return { ...want, content: null };
  const to = Math.min(want.from + partBytes, body.sizeBytes);
  return { ...want, content: encodeBase64(await readRange(table, body, want.from, to)) };
}

/** Returns the message, and whether it has more content now; `null` for a part that is not missing, or of no message. */
export async function takePart(
  table: Table,
  { id, digest, from, content }: Part,
): Promise<{ readonly key: string; readonly isFit: boolean } | null> {
  const bytes = decodeBase64(content ?? "") ?? new Uint8Array(0);
  const take = () =>
    table.change(async (batch) => {
      const found = await messageById(table, id, batch);
      if (found?.row.digest !== digest) return null;
      const { key, row } = found;
      const { body } = row;
      if (body.is !== "elsewhere" || body.sizeBytes !== from) return null;
      const sizeBytes = from + bytes.length;
      const isWhole = sizeBytes === row.sizeBytes;
      const isFit = bytes.length > 0 && (isWhole || (sizeBytes < row.sizeBytes && sizeBytes % pieceBytes === 0));
      if (!isFit) return { key, isFit };
      putPieces(batch, body.id, from, bytes);
      batch.put(key, { ...row, body: isWhole ? { is: "pieces", id: body.id, sizeBytes } : { ...body, sizeBytes } });
      if (isWhole) {
        batch.put(keyOfFile({ at: orderOf(row), id: body.id }), key);
        batch.delete(askedKey(body));
      }
      return { key, isFit };
    });
  if (bytes.length === 0) return take();
  // For the beginning of what has no room as a whole nothing else is removed.
  const missing = ((await messageById(table, id))?.row.sizeBytes ?? 0) - from;
  return withRoom(table, Math.max(bytes.length, missing), take);
}

/** The device to ask: the one that had it first, then each of the others. `null` when all lack it. */
export function holderOf(at: Did, devices: readonly Did[], lacking?: Did): Did | null {
  const others = devices.filter((did) => did !== at).sort();
  const holders = devices.includes(at) ? [at, ...others] : others;
  return holders[lacking === undefined ? 0 : holders.indexOf(lacking) + 1] ?? null;
}

/** No device has the content any more. */
export async function giveUp(table: Table, key: string): Promise<void> {
  await table.change(async (batch) => {
    const row = await batch.get<MessageRow>(key);
    if (row?.body.is !== "elsewhere") return;
    forgetBody(batch, row);
    batch.put(key, { ...row, body: { is: "removed" } });
  });
}

/** It did not come, and may be asked for again. Without room nothing of it is kept. */
export async function stopAsking(table: Table, key: string, isFull: boolean): Promise<void> {
  if (isFull)
    await table.change(async (batch) => {
      const row = await batch.get<MessageRow>(key);
      if (row?.body.is !== "elsewhere") return;
      deleteBody(batch, row.body);
      batch.put(key, { ...row, body: { ...row.body, sizeBytes: 0 } });
    });
  await markAsked(table, key, false);
}
