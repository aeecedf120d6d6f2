/** Rows of messages that last for a time, which `lasting.ts` ends. */
import type { MessageFacts } from "../mail/retrieve.ts";
import { lastingKey } from "./keys.ts";
import type { Batch, Table } from "./table.ts";

export type LifeRow = Pick<MessageFacts, "id" | "from">;

/** Of a message whose life begins later. */
export function putLife(
  table: Table,
  batch: Batch,
  { id, from, lastsSeconds }: MessageFacts,
): void {
  if ((lastsSeconds ?? 0) > 0)
    batch.put(lastingKey(table, `${from} ${id}`), { id, from } satisfies LifeRow);
}
