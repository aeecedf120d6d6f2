/**
 * Content that is too large for the log of devices stays where it is, and is asked for when it is opened: one part after the
 * other, so that little of it waits in Caches and an interruption costs one part.
 * Source: docs/client.md "Devices".
 */
import { decodeBase64, encodeBase64 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { deleteBody, pieceBytes, putPieces, readRange } from "../store/files.ts";
import { keyOfFile, type MessageRow, messageById, orderOf } from "../store/rows.ts";
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

/** `false` for a part that doesn't go on with what is here. */
export async function takePart(table: Table, { id, digest, from, content }: Part): Promise<boolean> {
  const bytes = decodeBase64(content ?? "") ?? new Uint8Array(0);
  if (bytes.length === 0) return false;
  // For the beginning of what has no room as a whole nothing else is removed.
  const missing = ((await messageById(table, id))?.row.sizeBytes ?? 0) - from;
  return withRoom(table, Math.max(bytes.length, missing), () =>
    table.change(async (batch) => {
      const { key, row } = (await messageById(table, id, batch)) ?? { key: "", row: null };
      if (row?.digest !== digest || row.body.is !== "elsewhere" || row.body.sizeBytes !== from) return false;
      const { body } = row;
      const sizeBytes = from + bytes.length;
      const isWhole = sizeBytes === row.sizeBytes;
      if (!isWhole && (sizeBytes > row.sizeBytes || sizeBytes % pieceBytes !== 0)) return false;
      putPieces(batch, body.id, from, bytes);
      batch.put(key, { ...row, body: isWhole ? { is: "pieces", id: body.id, sizeBytes } : { ...body, sizeBytes } });
      if (isWhole) batch.put(keyOfFile({ at: orderOf(row), id: body.id }), key);
      return true;
    }),
  );
}

/** Devices in the order in which they are asked: the one that had it first, then each of the others. */
export const holdersOf = (at: Did, devices: readonly Did[]): Did[] =>
  devices.toSorted((a, b) => (a === at ? -1 : b === at ? 1 : a < b ? -1 : 1));

/** Removes the parts that came. When it `isGone`, no device has the content. */
export async function dropParts(table: Table, key: string, { isGone }: { readonly isGone: boolean }): Promise<void> {
  await table.change(async (batch) => {
    const row = await batch.get<MessageRow>(key);
    if (row?.body.is !== "elsewhere") return;
    deleteBody(batch, row.body);
    batch.put(key, { ...row, body: isGone ? { is: "removed" } : { ...row.body, sizeBytes: 0 } });
  });
}
