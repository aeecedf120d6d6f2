/**
 * The rows of a local store, and how messages come into conversations and out of them. Their keys
 * are made in `keys.ts`; what a program sees of them, in `shown.ts`.
 */
import type { Did } from "../../core/codec/did.ts";
import { dayMs } from "../../core/codec/time.ts";
import type { Authorship } from "../mail/authorship.ts";
import type { Reaction, StoreChange } from "../mail/message.ts";
import type { ProfileFacts } from "../mail/notes.ts";
import type { MessageFacts } from "../mail/retrieve.ts";
import { type Body, deleteBody } from "./files.ts";
import {
  deliveryKey,
  keyOfAuthored,
  keyOfConversation,
  keyOfFile,
  keyOfId,
  keyOfPerson,
  lastingKey,
  messagesOf,
  reactionsOf,
  removalKey,
  rowsOf,
  seenKey,
} from "./keys.ts";
import type { Person } from "./person-shape.ts";
import { aheadIn, arrivalOf, keyOfMessage, orderOf, placeAmong, wasAhead } from "./places.ts";
import { isRevision, type Revision, revisionOf } from "./revisions.ts";
import type { Batch, Table } from "./table.ts";

/**
 * A key proof of somebody in Base64, or a head of a log that was believed, by its place in memory.
 */
export type EvidenceRow =
  | { readonly is: "proof"; readonly did: Did; readonly proof: string }
  | { readonly is: "head"; readonly at: string; readonly logKey: string; readonly note: string };

export type DeliveryState = "waiting" | "uncertain" | "failed" | "sent" | "received" | "read";
/**
 * Receipts, the Relay and other devices report on a copy in any order: what was seen of it stays.
 */
export const laterState = (held: DeliveryState, given: DeliveryState): DeliveryState =>
  seen.indexOf(held) > seen.indexOf(given) && seen.includes(given) ? held : given;
const seen: readonly DeliveryState[] = ["sent", "received", "read"];

/** One recipient of an own message. */
export type Copy = {
  readonly did: Did;
  /** The id by which this recipient knows it. */
  readonly id: string;
  readonly state: DeliveryState;
  readonly code: string | null;
  readonly reason: string | null;
  /** Its row in the outbox, as long as it waits there. */
  readonly out: string | null;
};

export type PlacedFacts = MessageFacts & {
  readonly conversation: string;
  readonly isOwn: boolean;
};

export type MessageRow = PlacedFacts & {
  readonly arrivedMs: number;
  /**
   * Where it stands, before one that its sender wrote later and that stands
   * earlier than its own times.
   */
  readonly placedMs?: number;
  readonly reaction: string | null;
  /** The message that a reaction or a revision is for. */
  readonly target: string | null;
  /** Who wrote that, where the reaction says it. */
  readonly targetFrom?: Did | null;
  /**
   * Of its first envelope, in lower hex: distinguishes different messages under one id.
   * Empty for an own message.
   */
  readonly digest: string;
  readonly body: Body;
  readonly to: readonly Copy[];
  /** What shows others who wrote it. */
  readonly authorship?: Authorship;
};

/** What somebody calls themselves (`profiles.ts`). */
export type ProfileRow = ProfileFacts & {
  readonly did: Did;
  readonly atMs: number;
  /**
   * Of the own profile: whether others see what was read, and when this user
   * writes. `null` for others'.
   */
  readonly isOpen: boolean | null;
};

/** A message is named by who wrote it and by its id. */
type MessageName = { readonly author: Did | null; readonly id: string };

export const stateChange = ({ conversation, id }: MessageRow): StoreChange => {
  return { type: "changed", conversation, id, what: "state" };
};

export type DeviceFacts = { readonly did: Did; readonly name: string };

/** A message that was removed: other devices remove it too, and it isn't taken from them again. */
export type RemovalRow = NamedMessage & { readonly untilMs: number };
type NamedMessage = Pick<MessageRow, "id" | "digest"> & Partial<Pick<MessageRow, "from">>;

export type ConversationRow = {
  readonly id: string;
  readonly unread: number;
  /** Arrivals up to this time are read. */
  readonly readMs: number;
  /** Messages up to this time are read: arrivals differ between devices. */
  readonly readAtMs: number;
  readonly arrivedMs: number;
  readonly last: string | null;
  readonly at: number;
  /** The latest time of a message that stands before it: its sender's clock is ahead. */
  readonly aheadMs?: number;
};

/** Of messages whose sender nothing proves. */
export const unverified = "unverified";

type PlacedMessage = { readonly key: string; readonly row: MessageRow };

/** The message with this id, or that has gone out under it; of several the first. */
export async function messageById(
  table: Table,
  id: string,
  from: Pick<Batch, "get"> = table,
): Promise<PlacedMessage | null> {
  return messageAt(keyOfId(table, id), from);
}

/** By its author too, where that is known. */
export const messageNamed = (
  table: Table,
  { author, id }: MessageName,
  from: Pick<Batch, "get"> = table,
): Promise<PlacedMessage | null> =>
  author === null ? messageById(table, id, from) : messageOfAuthor(table, { author, id }, from);

/** The same, of one author: only the author's own messages can have the same name. */
async function messageOfAuthor(
  table: Table,
  { author, id }: { readonly author: Did; readonly id: string },
  from: Pick<Batch, "get"> = table,
): Promise<PlacedMessage | null> {
  const found = await messageById(table, id, from);
  return found?.row.from === author ? found : messageAt(keyOfAuthored(table, author, id), from);
}

async function messageAt(place: string, from: Pick<Batch, "get">): Promise<PlacedMessage | null> {
  const key = await from.get<string>(place);
  const row = key === null ? null : await from.get<MessageRow>(key);
  return key === null || row === null ? null : { key, row };
}

/** The place by its id; by author and id where an earlier message of somebody else has that. */
async function putId(table: Table, batch: Batch, { id, from }: MessageRow, key: string) {
  const first = await messageById(table, id, batch);
  if (first === null) batch.put(keyOfId(table, id), key);
  else if (from === null || first.row.from === from) return;
  else if ((await batch.get(keyOfAuthored(table, from, id))) === null)
    batch.put(keyOfAuthored(table, from, id), key);
}

/** No Cache or log of another device keeps a message for longer. */
export const seenMs = 30 * dayMs;

/** A message that was removed, or one that is here, isn't taken from another device again. */
export const seenKeyOf = (table: Table, { digest, id }: NamedMessage) =>
  seenKey(table, digest === "" ? id : digest);

/** Removes a message for good, here and, when it is logged, on other devices. */
export function putRemoval(table: Table, batch: Batch, removed: NamedMessage, nowMs: number) {
  const { id, digest, from = null } = removed;
  const untilMs = nowMs + seenMs;
  const seen = seenKeyOf(table, { id, digest });
  batch.put(seen, untilMs);
  batch.put(removalKey(seen), { id, digest, from, untilMs } satisfies RemovalRow);
  batch.log(removalKey(seen));
}

/**
 * A reaction or a revision in the place of an earlier one by the same person. One that is made here
 * is later than that, whatever the clock says; after a deletion comes nothing.
 */
export async function putReaction(
  table: Table,
  batch: Batch,
  given: MessageRow,
  isMade = false,
): Promise<string> {
  const { conversation, target, from } = given;
  const place = `${reactionsOf(table, conversation, target ?? "")}${table.name(from ?? "")}`;
  const key = isRevision(given) ? `${place}${revisionEnd}` : place;
  const before = await batch.get<MessageRow>(key);
  if (before !== null && revisionOf(before)?.text === null) return key;
  const row =
    isMade && before !== null
      ? { ...given, sentMs: Math.max(given.sentMs, before.sentMs + 1) }
      : given;
  if (before === null || before.sentMs <= row.sentMs) batch.put(key, row);
  const meant = { author: from, id: target ?? "" };
  const about = isRevision(given) ? await messageNamed(table, meant, batch) : null;
  if (about !== null) await wipeDeleted(table, batch, about);
  return key;
}

/**
 * Names the message by its own name, also where the reaction names an envelope
 * under which it has gone out.
 */
export async function reactionRow(
  table: Table,
  batch: Pick<Batch, "get">,
  row: MessageRow,
  { to, author, reaction }: Reaction,
): Promise<MessageRow> {
  const found = await messageNamed(table, { author, id: to }, batch);
  const meant = found?.row.conversation === row.conversation ? found.row : null;
  return { ...row, reaction, target: meant?.id ?? to, targetFrom: meant?.from ?? author };
}

/** Behind the place of a reaction by the same person. */
const revisionEnd = "/v";

/** The revision of a message by its author. */
async function revisionTo(
  table: Table,
  from: Pick<Batch, "get">,
  { conversation, id, from: author }: MessageRow,
): Promise<Revision | null> {
  const place = `${reactionsOf(table, conversation, id)}${table.name(author ?? "")}${revisionEnd}`;
  const row = await from.get<MessageRow>(place);
  return row === null ? null : revisionOf(row);
}

/**
 * Of a message that its author took back nothing is kept but its place,
 * whichever of the two came first.
 */
async function wipeDeleted(
  table: Table,
  batch: Batch,
  { key, row }: { readonly key: string; readonly row: MessageRow },
): Promise<void> {
  if (row.verified !== true || (await revisionTo(table, batch, row))?.text !== null) return;
  forgetBody(batch, row);
  const { authorship: _, ...left } = row;
  batch.put(key, { ...left, name: "", body: { is: "removed" } satisfies Body });
}

/**
 * A reaction next to the message that it is for, any other message in its
 * conversation; and for own devices.
 */
export async function placeMessage(
  table: Table,
  batch: Batch,
  row: MessageRow,
  isMade = false,
): Promise<string> {
  const key = await (row.target === null
    ? addMessage(table, batch, row)
    : putReaction(table, batch, row, isMade));
  batch.log(key);
  return key;
}

/**
 * Adds a message to its conversation: its row, its place by id, and the new
 * count. Returns the row's key.
 */
export async function addMessage(
  table: Table,
  batch: Batch,
  { placedMs: _, ...given }: MessageRow,
  nowMs = given.arrivedMs,
): Promise<string> {
  const place = keyOfConversation(table, given.conversation);
  const none = {
    id: given.conversation,
    unread: 0,
    readMs: 0,
    readAtMs: 0,
    arrivedMs: 0,
    last: null,
    at: 0,
  };
  const before = (await batch.get<ConversationRow>(place)) ?? none;
  const arrived = { ...given, arrivedMs: arrivalOf(before, given.arrivedMs, nowMs) };
  const placedMs = await placeAmong(table, batch, before, arrived);
  const row: MessageRow = placedMs === null ? arrived : { ...arrived, placedMs };
  const readMs = wasAhead(before, nowMs)
    ? Math.min(before.readMs, row.arrivedMs - 1)
    : before.readMs;
  const key = keyOfMessage(table, row);
  batch.put(key, row);
  await putId(table, batch, row, key);
  if (row.body.is === "pieces" && !row.isOwn)
    batch.put(keyOfFile({ at: orderOf(row), id: row.body.id }), key);
  batch.put(place, {
    ...before,
    readMs,
    unread: before.unread + (row.isOwn ? 0 : 1),
    arrivedMs: row.arrivedMs,
    ...aheadIn(before, row),
    ...(before.last === null || key > before.last ? { last: key, at: orderOf(row) } : {}),
  });
  await wipeDeleted(table, batch, { key, row });
  putLife(table, batch, row);
  return key;
}

/** Of a message that lasts for a time, whose life begins later (`lasting.ts`). */
export type LifeRow = Pick<MessageFacts, "id" | "from">;

function putLife(table: Table, batch: Batch, { id, from, lastsSeconds }: MessageFacts): void {
  if ((lastsSeconds ?? 0) > 0)
    batch.put(lastingKey(table, `${from} ${id}`), { id, from } satisfies LifeRow);
}

/** Changes a person, who is known from now on if they were written to. */
export async function putPerson(
  table: Table,
  batch: Batch,
  did: Did,
  change: Partial<Person>,
): Promise<Person> {
  const key = keyOfPerson(table, did);
  const before = await batch.get<Person>(key);
  const person = {
    did,
    name: "",
    alias: null,
    isKnown: false,
    isBlocked: false,
    ...before,
    ...change,
  };
  if (
    before === null ||
    Object.entries(change).some(([name, value]) => Reflect.get(before, name) !== value)
  )
    batch.put(key, person);
  return person;
}

/** To another conversation, with its content. */
export async function moveMessage(
  table: Table,
  batch: Batch,
  key: string,
  to: Pick<MessageRow, "conversation" | "group">,
): Promise<void> {
  const row = await batch.get<MessageRow>(key);
  if (row === null) return;
  const moved = { ...row, ...to };
  if (row.target !== null) batch.delete(key);
  else await takeOut(table, batch, key, row);
  const place = await placeMessage(table, batch, moved);
  const toHandOver = await table.scan<{ readonly key: string }>({ prefix: rowsOf.toHandOver });
  for (const [at, one] of toHandOver) if (one.key === key) batch.put(at, { ...one, key: place });
}

/** With its content, its reactions, and what waits of it in the outbox. */
export async function removeMessage(table: Table, batch: Batch, key: string): Promise<void> {
  const row = await batch.get<MessageRow>(key);
  if (row === null) return;
  for (const { out } of row.to) if (out !== null) batch.delete(out);
  for (const [reaction] of await table.scan({
    prefix: reactionsOf(table, row.conversation, row.id),
  }))
    batch.delete(reaction);
  forgetBody(batch, row);
  await takeOut(table, batch, key, row);
}

/** Out of its conversation. */
async function takeOut(table: Table, batch: Batch, key: string, row: MessageRow): Promise<void> {
  batch.delete(key);
  batch.delete(deliveryKey(key));
  const places = [row.id, ...row.to.map((copy) => copy.id)].map((id) => keyOfId(table, id));
  if (row.from !== null) places.push(keyOfAuthored(table, row.from, row.id));
  for (const one of places) if ((await batch.get<string>(one)) === key) batch.delete(one);
  const place = keyOfConversation(table, row.conversation);
  const conversation = await batch.get<ConversationRow>(place);
  if (conversation === null) return;
  const isUnread = !row.isOwn && row.arrivedMs > conversation.readMs;
  const prefix = messagesOf(table, row.conversation);
  let [last, left]: [string | null, MessageRow | null] = [null, null];
  for (const [other] of await table.scan<MessageRow>({ prefix, limit: 100, isReverse: true })) {
    // One change may take several out.
    left = await batch.get<MessageRow>(other);
    last = left === null ? null : other;
    if (left !== null) break;
  }
  const unread = Math.max(0, conversation.unread - (isUnread ? 1 : 0));
  if (left === null) batch.delete(place);
  else batch.put(place, { ...conversation, unread, last, at: orderOf(left) });
}

export function forgetBody(batch: Batch, row: MessageRow): void {
  deleteBody(batch, row.body);
  if (!("id" in row.body)) return;
  batch.delete(keyOfFile({ at: orderOf(row), id: row.body.id }));
}
