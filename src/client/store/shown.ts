/**
 * What a program sees of the rows of a message: its text as its author left it, reactions, whether
 * it is read, and what became of its copies. A list leaves out rows of another form: earlier
 * versions have stored some of other own devices as they came.
 * Source: docs/client.md "A local store".
 */
import { decodeBase64, decodeUtf8 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { array, custom, isRecord, object, parseValue, text } from "../base/shapes.ts";
import { type GroupRow, upgradeRow } from "../groups/bundles.ts";
import { isTextType } from "../mail/content.ts";
import { keyOfGroup, nameOfGroup, reactionsOf } from "./keys.ts";
import { isRevision, type Revision, revisionOf } from "./revisions.ts";
import type { ConversationRow, Copy, DeliveryState, MessageRow, PlacedFacts } from "./rows.ts";
import type { Table } from "./table.ts";

/** A message as it is stored. */
export type StoredMessage = PlacedFacts & {
  /** Its place in the store. */
  readonly key: string;
  readonly sentAt: Date;
  readonly arrivedAt: Date;
  /** Of text and JSON up to 64 KiB; `null` for other content: read `pieces`. */
  readonly text: string | null;
  /**
   * `elsewhere`: on another device, which reading `pieces` asks for it.
   * `removed`: the store was full.
   */
  readonly content: "whole" | "removed" | "elsewhere";
  /** What its author made of it since: another text, or nothing. */
  readonly revised: "edited" | "deleted" | null;
  /** The last one of each person, without those that were withdrawn. */
  readonly reactions: readonly { readonly from: Did; readonly reaction: string }[];
  readonly isRead: boolean;
  /** `null` for a received message. */
  readonly delivery: {
    readonly state: DeliveryState;
    readonly to: readonly Omit<Copy, "id" | "out">[];
  } | null;
};

/** The least first: a message to several is in the least state of its copies. */
const deliveryStates: readonly DeliveryState[] = [
  "waiting",
  "uncertain",
  "failed",
  "sent",
  "received",
  "read",
];

const shownBody = custom<unknown>((value) => {
  const { is, base64 } = isRecord(value) ? value : {};
  return typeof is === "string" && (is !== "inline" || typeof base64 === "string");
}, "content");
/** What is taken for granted of a message below. */
const messageShape = object({
  conversation: text,
  id: text,
  mediaType: text,
  body: shownBody,
  to: array(object({})),
});

/** Whether a row has what is shown of it. */
export const isReadable = (row: unknown): boolean => parseValue(row, messageShape) !== null;

/** By any id that the group has had here. */
export async function shownGroup(
  table: Table,
  id: string,
): Promise<GroupRow | "unreadable" | null> {
  const named = await table.get<string>(nameOfGroup(table, id));
  const key = named ?? keyOfGroup(table, id);
  const row = await table.get<GroupRow>(key);
  if (row !== null) return upgradeRow(row);
  return (await table.bytes(key)) === null ? null : "unreadable";
}

type Around = Pick<ConversationRow, "readMs" | "arrivedMs"> &
  Pick<StoredMessage, "reactions"> & { readonly revision: Revision | null };

/** The reactions to a message, and the revision of its author. */
export async function aroundMessage(
  table: Table,
  row: MessageRow,
): Promise<Pick<Around, "reactions" | "revision">> {
  const { conversation, id, from: author, verified } = row;
  const rows = await table.scan<MessageRow>({ prefix: reactionsOf(table, conversation, id) });
  const found = rows.filter(([, one]) => isReadable(one));
  const reactions = found.flatMap(([, { from, reaction, targetFrom = null }]) => {
    const isOther = targetFrom !== null && targetFrom !== author;
    return isOther || from === null || reaction === null || reaction === ""
      ? []
      : [{ from, reaction }];
  });
  const own = found.find(([, one]) => one.from === author && isRevision(one))?.[1];
  return {
    reactions,
    revision: own === undefined || verified !== true ? null : revisionOf(own),
  };
}

export function storedMessage(
  key: string,
  row: MessageRow,
  { readMs, arrivedMs: lastMs, reactions, revision }: Around,
): StoredMessage {
  const { arrivedMs, body, to, replyTo, placedMs: _, authorship: __, ...same } = row;
  const said =
    body.is === "inline" && isTextType(row.mediaType)
      ? decodeUtf8(decodeBase64(body.base64) ?? new Uint8Array(0))
      : null;
  const isDeleted = revision?.text === null;
  const isEdited = typeof revision?.text === "string" && said !== null && row.name === "";
  const shown = isEdited ? (revision?.text ?? null) : said;
  const edited = isEdited ? "edited" : null;
  const least = deliveryStates.find((state) => to.some((copy) => copy.state === state)) ?? "sent";
  return {
    ...same,
    key,
    replyTo: typeof replyTo === "string" ? replyTo : null,
    sentAt: new Date(row.sentMs),
    arrivedAt: new Date(arrivedMs),
    text: isDeleted ? null : shown,
    revised: isDeleted ? "deleted" : edited,
    content: body.is === "elsewhere" || body.is === "removed" ? body.is : "whole",
    reactions,
    // Later than the last arrival is only what came by a clock that was ahead.
    isRead: row.isOwn || arrivedMs <= readMs || arrivedMs > lastMs,
    delivery: row.isOwn
      ? {
          state: least,
          to: to.map(({ did, state, code, reason }) => ({ did, state, code, reason })),
        }
      : null,
  };
}
