/**
 * What own devices tell one another: items, numbered by the device where something happened, and applied by the others in
 * that order, each once. Messages and profiles stand in the log by their place, and are read when an item is sent.
 * Source: docs/client.md "Devices".
 */
import { decodeBase64, encodeBase64 } from "../../core/codec/bytes.ts";
import { type Did, isDid } from "../../core/codec/did.ts";
import { isInteger, isRecord } from "../answers.ts";
import { randomUuid } from "../crypto.ts";
import { type Body, saveContent, wholeBody } from "../store/files.ts";
import { mergeGroups } from "../store/group-rules.ts";
import { keyOfGroup } from "../store/groups.ts";
import { applyProfile } from "../store/profiles.ts";
import {
  addMessage,
  type ConversationRow,
  type Copy,
  type GroupRow,
  keyOfConversation,
  keyOfId,
  keyOfPerson,
  laterState,
  type MessageRow,
  messageById,
  messagesOf,
  type Person,
  type ProfileRow,
  putPerson,
  putReaction,
  removeMessage,
  type StoreChange,
  type SyncItem,
  seenKeyOf,
  seenMs,
} from "../store/rows.ts";
import { type Batch, digits, type Table } from "../store/table.ts";
import type { Part, Want } from "./content.ts";

/** As it is sent: with its row, and a message also with its content. */
export type SentItem =
  | Exclude<SyncItem, { readonly key: string }>
  | { readonly kind: "message" | "reaction"; readonly row: MessageRow; readonly content: string | null }
  | { readonly kind: "person"; readonly row: Person }
  | { readonly kind: "profile"; readonly row: ProfileRow }
  | { readonly kind: "group"; readonly row: GroupRow }
  | { readonly kind: "delivery"; readonly id: string; readonly to: readonly Copy[] }
  | { readonly kind: "nothing" };

/** By the first letter of its key, in the order in which a new device gets them. */
const kindOf = { p: "person", b: "profile", g: "group", m: "message", r: "reaction" } as const;

/** Larger content stays on the device that has it (`content.ts`). */
const contentBytesMax = 8_388_608;

/** Reads what an item names; `nothing` when it was removed meanwhile. */
export async function loadItem(table: Table, item: SyncItem): Promise<SentItem> {
  if (!("key" in item)) return item;
  const row = await table.get<MessageRow & ProfileRow & GroupRow>(item.key);
  if (row === null) return { kind: "nothing" };
  if (item.kind === "delivery") return { kind: "delivery", id: row.id, to: row.to };
  const kind = kindOf[item.key.slice(0, 1) as keyof typeof kindOf];
  if (kind !== "message" && kind !== "reaction") return { kind, row } as SentItem;
  const { body } = row;
  const isSent = body.is === "inline" || (body.is === "pieces" && body.sizeBytes <= contentBytesMax);
  const content = isSent ? encodeBase64(await wholeBody(table, body)) : null;
  const at = body.is === "elsewhere" ? body.at : ((await table.meta()).deviceDid as Did);
  const none: Body = body.is === "removed" ? body : { is: "elsewhere", id: "", sizeBytes: 0, at };
  return { kind, row: { ...row, body: none }, content };
}

type MessageItem = Extract<SentItem, { readonly content: string | null }>;

/** By its kind: what else an item contains is another program's. */
const isMessageItem = (item: SentItem): item is MessageItem => item.kind === "message" || item.kind === "reaction";

type Applying = { readonly table: Table; readonly nowMs: () => number };

/**
 * Applies an item of another device; one that was applied before changes nothing. Returns what changed. Own devices are
 * trusted with the identity itself; the shape is checked so that a mistake of theirs damages no row.
 */
export async function applyItem({ table, nowMs }: Applying, item: SentItem): Promise<StoreChange | null> {
  if (!isMessageItem(item)) return table.change((batch) => applySmall({ table, nowMs }, batch, item));
  const content = item.content === null ? null : decodeBase64(item.content);
  const { saved } = await saveContent(table, nowMs, {
    fill: async (write) => (content === null ? undefined : write(content)),
    rows: (batch, written) => {
      const given = item.row.body;
      const none: Body = given.is === "elsewhere" ? { ...given, id: randomUuid(), sizeBytes: 0 } : { is: "removed" };
      return applyRow({ table, nowMs }, batch, {
        ...item,
        row: { ...item.row, body: content === null ? none : written },
      });
    },
  });
  return saved;
}

async function applyRow(
  { table, nowMs }: Applying,
  batch: Batch,
  { kind, row: given }: MessageItem,
): Promise<StoreChange | null> {
  // What waits there waits in that device's outbox.
  const row: MessageRow = { ...given, to: given.to.map((copy): Copy => ({ ...copy, out: null })) };
  const { conversation, id } = row;
  if (kind === "reaction") {
    await putReaction(table, batch, row);
    return { type: "changed", conversation, id: row.target, what: "state" };
  }
  const held = await messageById(table, id, batch);
  if (held?.row.digest === row.digest) {
    putCopies(table, batch, held, row.to);
    return null;
  }
  if ((await batch.get(seenKeyOf(table, row))) !== null) return null;
  // The identity's Caches may offer it here too.
  if (!row.isOwn) batch.put(seenKeyOf(table, row), nowMs() + seenMs);
  await addMessage(table, batch, row);
  if (row.group === null) for (const { did } of row.to) await putPerson(table, batch, did, { isKnown: true });
  if (!row.isOwn && row.verified === true && row.from !== null) await putPerson(table, batch, row.from, {});
  for (const copy of row.to)
    if (copy.id !== id) batch.put(keyOfId(table, copy.id), await batch.get(keyOfId(table, id)));
  return { type: "changed", conversation, id, what: "message" };
}

async function applySmall(
  { table, nowMs }: Applying,
  batch: Batch,
  item: Exclude<SentItem, MessageItem>,
): Promise<StoreChange | null> {
  if (item.kind === "person") {
    const { did } = item.row;
    await putPerson(table, batch, did, await laterFacts(table, batch, item.row));
    return { type: "changed", conversation: did, id: null, what: "person" };
  }
  if (item.kind === "profile") {
    await applyProfile(table, batch, item.row);
    return { type: "changed", conversation: item.row.did, id: null, what: "person" };
  }
  if (item.kind === "group") {
    const key = keyOfGroup(table, item.row.id);
    batch.put(key, mergeGroups(await batch.get<GroupRow>(key), item.row));
    return { type: "changed", conversation: item.row.id, id: null, what: "group" };
  }
  if (item.kind === "read") return applyRead(table, batch, item);
  if (item.kind !== "delivery" && item.kind !== "removed") return null;
  // Also of one that another device tells of later.
  if (item.kind === "removed") batch.put(seenKeyOf(table, item), nowMs() + seenMs);
  const found = await messageById(table, item.id, batch);
  if (found === null) return null;
  const { key, row } = found;
  const { conversation, id } = row;
  if (item.kind === "removed") {
    await removeMessage(table, batch, key);
    return { type: "changed", conversation, id, what: "removed" };
  }
  putCopies(table, batch, found, item.to);
  return { type: "changed", conversation, id, what: "state" };
}

/** A receipt that this device heard of first stays. */
function putCopies(
  table: Table,
  batch: Batch,
  { key, row }: { readonly key: string; readonly row: MessageRow },
  given: readonly Copy[],
): void {
  const to = given.map((copy): Copy => {
    const held = row.to.find((one) => one.did === copy.did);
    const state = held === undefined ? copy.state : laterState(held.state, copy.state);
    return { ...copy, state, out: held?.out ?? null };
  });
  batch.put(key, { ...row, to });
  for (const copy of to) batch.put(keyOfId(table, copy.id), key);
}

/** What this user changed later than the other device knows stays, and the later claim. */
async function laterFacts(table: Table, batch: Batch, given: Person): Promise<Partial<Person>> {
  const held = await batch.get<Person>(keyOfPerson(table, given.did));
  if (held === null) return given;
  const { name, isKnown, isBlocked, setMs = 0 } = held;
  const chosen = setMs > (given.setMs ?? 0) ? { name, isKnown, isBlocked, setMs } : {};
  const isClaimLater = held.claimed !== undefined && held.claimed.atMs > (given.claimed?.atMs ?? 0);
  return { ...given, ...chosen, ...(isClaimLater ? { claimed: held.claimed } : {}) };
}

/** Read marks go by the time of the message that was last: arrivals differ between devices. */
async function applyRead(
  table: Table,
  batch: Batch,
  { conversation, atMs }: Extract<SyncItem, { readonly kind: "read" }>,
): Promise<StoreChange | null> {
  const place = keyOfConversation(table, conversation);
  const row = await batch.get<ConversationRow>(place);
  if (row === null) return null;
  const prefix = messagesOf(table, conversation);
  let unread = 0;
  let firstMs = row.arrivedMs + 1;
  for await (const [, one] of table.all<MessageRow>(prefix, `${prefix}${digits(atMs + 1)}`)) {
    if (one.isOwn || one.arrivedMs <= row.readMs) continue;
    unread++;
    firstMs = Math.min(firstMs, one.arrivedMs);
  }
  batch.put(place, { ...row, readMs: Math.max(row.readMs, firstMs - 1), unread });
  return { type: "changed", conversation, id: null, what: "read" };
}

const historyOrder = [...Object.keys(kindOf), "c"];

type History = {
  readonly items: readonly { readonly place: string; readonly item: SyncItem }[];
  readonly next: string | null;
};

/** Everything that a new device gets, from a place on: a page of it, and the place after it. */
export async function readHistory(table: Table, from: string): Promise<History> {
  const [part = ""] = from;
  for (const prefix of historyOrder.slice(Math.max(0, historyOrder.indexOf(part)))) {
    const page = await table.scan<ConversationRow>({
      prefix: `${prefix}/`,
      ...(prefix === part ? { from } : {}),
      limit: 50,
    });
    if (page.length === 0) continue;
    const items = page.flatMap(([place, { id, unread, at }]): History["items"] => {
      if (prefix !== "c") return [{ place, item: { kind: "row", key: place } }];
      return unread > 0 ? [] : [{ place, item: { kind: "read", conversation: id, atMs: at } }];
    });
    return { items, next: `${page.at(-1)?.[0]}!` };
  }
  return { items: [], next: null };
}

/** Where an item stands in the log of its device: copies of a store have other items under one number. */
export type LogPlace = { readonly mark: string; readonly number: number };

/** Before the first item. */
export const logStart: LogPlace = { mark: "", number: 0 };

/**
 * What a device sends. Items of its log are for who has it up to `after`, or for everybody without `after`, and lead to
 * `at`; those of the history lead nowhere. `have` is how far it has the other's log, `null` when it lacks all that
 * there is. `want` and `part` are of large content.
 */
export type SyncMessage =
  | {
      readonly v: 1;
      readonly items: readonly SentItem[];
      readonly after: LogPlace | null;
      readonly at: LogPlace | null;
    }
  | { readonly v: 1; readonly have: LogPlace | null }
  | { readonly v: 1; readonly want: Want }
  | { readonly v: 1; readonly part: Part };

const hasDid = ({ row }: Record<string, unknown>) => isRecord(row) && isDid(String(row["did"]));
const areTexts = (...all: readonly unknown[]) => all.every((one) => typeof one === "string");
const areCopies = (to: unknown) =>
  Array.isArray(to) && to.every((one) => isRecord(one) && areTexts(one["id"], one["did"]));
const isMessage = ({ row, content }: Record<string, unknown>) =>
  isRecord(row) &&
  isRecord(row["body"]) &&
  areCopies(row["to"]) &&
  areTexts(row["conversation"], row["id"], row["digest"], content ?? "");
const shapes: Readonly<Record<SentItem["kind"], (item: Record<string, unknown>) => boolean>> = {
  ...{ message: isMessage, reaction: isMessage, person: hasDid, profile: hasDid },
  read: ({ conversation, atMs }) => areTexts(conversation) && isInteger(atMs),
  removed: ({ id, digest }) => areTexts(id, digest),
  keys: ({ text }) => areTexts(text),
  nothing: () => true,
  delivery: ({ id, to }) => areTexts(id) && areCopies(to),
  group: ({ row }) => isRecord(row) && areTexts(row["id"]) && isRecord(row["members"]) && isRecord(row["left"]),
  devices: ({ added, removed }) => Array.isArray(added) && Array.isArray(removed) && areTexts(...removed),
};
const isItem = (one: unknown): one is SentItem =>
  isRecord(one) && Object.hasOwn(shapes, String(one["kind"])) && shapes[one["kind"] as SentItem["kind"]](one);

/** `null` for anything else. */
export function parseSync(json: unknown): SyncMessage | null {
  if (!isRecord(json) || json["v"] !== 1) return null;
  const { items, after, at, have, want, part } = json;
  if (have === null || isPlace(have)) return { v: 1, have };
  if (isWant(want)) return { v: 1, want };
  if (isWant(part)) return { v: 1, part: { ...part, content: typeof part.content === "string" ? part.content : null } };
  const isPart = Array.isArray(items) && items.every(isItem);
  const arePlaces = [after, at].every((one) => one === null || isPlace(one));
  return isPart && arePlaces ? { v: 1, items, after: after as LogPlace | null, at: at as LogPlace | null } : null;
}

export const isPlace = (one: unknown): one is LogPlace =>
  isRecord(one) && typeof one["mark"] === "string" && isInteger(one["number"]);

const isWant = (one: unknown): one is Want & { readonly content?: unknown } =>
  isRecord(one) && typeof one["id"] === "string" && typeof one["digest"] === "string" && isInteger(one["from"]);
