/**
 * The answers of a Cache, as this client relies on them (`answers.ts`). Apart from the others, because only a program that
 * receives loads them.
 * Source: interface "Cache".
 */
import * as z from "zod/mini";
import { integer, record, text } from "./answers.ts";

const entry = z.object({ message_id: text, envelope: record });
export const messagesShape = z.object({ count: integer, messages: z.array(entry), next_cursor: z.optional(text) });
export const summaryShape = z.object({
  count: integer,
  messages: z.array(
    z.object({
      message_id: text,
      expires_at: text,
      message_group_id: z.optional(text),
      sequence_number: z.optional(integer),
      total_chunks: z.optional(integer),
    }),
  ),
  next_cursor: z.optional(text),
});
export const messageStateShape = z.object({
  state: text,
  message: z.nullable(entry),
});
export const ackShape = z.object({ acked: integer, message_ids: z.array(text) });

export type CachedEntry = z.infer<typeof entry>;
