/**
 * Content that is too large for the log of devices stays where it is, and is asked for when it is opened: one part after the
 * other, so that little of it waits in Caches and an interruption costs one part.
 * Source: docs/client.md "Devices".
 */
import { decodeBase64, encodeBase64 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { type Body, pieceBytes, putPieces, readRange } from "../store/files.ts";
import { forgetBody, keyOfFile, keyOfId, type MessageRow, orderOf } from "../store/rows.ts";
import { type Table, withRoom } from "../store/table.ts";

/** Of which message, and how much of its content is there already. */
export type Want = { readonly id: string; readonly digest: string; readonly from: number };
/** `null`: the device that was asked lacks it. */
export type Part = Want & { readonly content: string | null };

const partBytes = 4 * pieceBytes;

export async function loadPart(table: Table, want: Want): Promise<Part> {
  const key = await table.get<string>(keyOfId(table, want.id));
  const row = key === null ? null : await table.get<MessageRow>(key);
  if (row?.digest !== want.digest || row.body.is !== "pieces") return { ...want, content: null };
  const to = Math.min(want.from + partBytes, row.body.sizeBytes);
  return { ...want, content: encodeBase64(await readRange(table, row.body, want.from, to)) };
}

/** Returns the message, and whether it has more content now; `null` for a part that is not missing, or of no message. */
export async function takePart(
  table: Table,
  { id, digest, from, content }: Part,
): Promise<{ readonly key: string; readonly isFit: boolean } | null> {
  const bytes = decodeBase64(content ?? "") ?? new Uint8Array(0);
  const take = () =>
    table.change(async (batch) => {
      const key = await batch.get<string>(keyOfId(table, id));
      const row = key === null ? null : await batch.get<MessageRow>(key);
      if (key === null || row?.digest !== digest || row.body.is !== "elsewhere") return null;
      if (row.body.sizeBytes !== from) return null;
      const sizeBytes = from + bytes.length;
      const isWhole = sizeBytes === row.sizeBytes;
      const isFit = bytes.length > 0 && (isWhole || (sizeBytes < row.sizeBytes && sizeBytes % pieceBytes === 0));
      if (!isFit) return { key, isFit };
      putPieces(batch, row.body.id, from, bytes);
      const body: Body = isWhole ? { is: "pieces", id: row.body.id, sizeBytes } : { ...row.body, sizeBytes };
      batch.put(key, { ...row, body });
      if (isWhole) batch.put(keyOfFile({ at: orderOf(row), id: body.id }), key);
      return { key, isFit };
    });
  return withRoom(table, bytes.length, take);
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
