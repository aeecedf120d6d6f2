/**
 * Content between devices is an ordinary file, named by the digest of its message, which it answers. Small content comes
 * right behind its message, large content when it is opened.
 * Source: docs/client.md "Devices".
 */
import { contentType, measured, type Source } from "../content.ts";
import type { ReadMessage } from "../retrieve.ts";
import { type Body, readRange } from "../store/files.ts";
import { keyOfFile, type MessageRow, messageById, orderOf } from "../store/rows.ts";
import type { Batch, Table } from "../store/table.ts";

/** `null` when it is not in a file of this store. */
export async function contentOf(table: Table, { body, digest, sizeBytes }: MessageRow): Promise<Source | null> {
  if (body.is !== "pieces") return null;
  const file = { name: digest, mediaType: contentType, sizeBytes };
  return measured(file, (from, to) => readRange(table, body, from, to));
}

/** The message that lacked this content; `null` when there is none. */
export async function takeContent(
  table: Table,
  batch: Batch,
  body: Body,
  { replyTo, name, sizeBytes }: ReadMessage,
): Promise<MessageRow | null> {
  const { key, row } = (await messageById(table, replyTo ?? "", batch)) ?? { key: "", row: null };
  if (row?.body.is !== "elsewhere" || row.digest !== name || row.sizeBytes !== sizeBytes) return null;
  batch.put(key, { ...row, body });
  if (body.is === "pieces") batch.put(keyOfFile({ at: orderOf(row), id: body.id }), key);
  return row;
}
