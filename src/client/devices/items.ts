/**
 * What own devices send each other: rows of the store, by the first letter of their keys. They
 * merge by their content, so what comes again changes nothing. Own devices have all keys and are
 * trusted with the identity itself. Content is an ordinary file, named by the digest of its
 * message, which it answers. Of other people, and of groups that they have made, nothing counts but
 * what these have signed. A row of another form is left out: it may be of a thief's device.
 * Source: docs/client.md "Devices".
 */

import { type Did, isDid } from "../../core/codec/did.ts";
import { isRecord, type Of, parseValue, type Shape } from "../base/shapes.ts";
import { chosenMs, type HeardTimes, isReached, presentMs } from "../base/times.ts";
import type { GroupRow } from "../groups/bundles.ts";
import { contentType, groupType, measured, type Source } from "../mail/content.ts";
import type { StoreChange } from "../mail/message.ts";
import type { ReadMessage } from "../mail/retrieve.ts";
import { type ChosenRow, chosenAt, mergeChosen, presentChoices } from "../store/chosen.ts";
import { type Body, bodyReader } from "../store/files.ts";
import { groupAt } from "../store/group-rows.ts";
import {
  digits,
  factKinds,
  factsKey,
  historyOf,
  keyOfChosen,
  keyOfConversation,
  keyOfFile,
  keyOfId,
  keyOfPerson,
  messageKinds,
  messageOfDelivery,
  messagesFrom,
  messagesOf,
  numberInKey,
  removalKey,
  rowKind,
} from "../store/keys.ts";
import { putPass } from "../store/passes.ts";
import type { Person } from "../store/person-shape.ts";
import { orderOf } from "../store/places.ts";
import { putProfile } from "../store/profiles.ts";
import { rowShapes } from "../store/row-shapes.ts";
import * as rows from "../store/rows.ts";
import type { Batch, Table } from "../store/table.ts";
import { sealedSize } from "./content.ts";

type Rows = { readonly [Is in keyof typeof rowShapes]: Of<(typeof rowShapes)[Is]> };

export type Item = { [Is in keyof Rows]: { readonly is: Is; readonly row: Rows[Is] } }[keyof Rows];

/** A row of another device; `null` for one of another form, of which nothing is stored. */
export function parseItem(json: unknown): Item | null {
  const { is, row: given } = isRecord(json) ? json : {};
  if (typeof is !== "string" || !Object.hasOwn(rowShapes, is)) return null;
  const shape: Shape<unknown> = rowShapes[is as Item["is"]];
  const row = parseValue(given, shape);
  return row === null ? null : ({ is, row } as Item);
}

/**
 * All rows that there are, in this order. No keys: a removed device could ask for them whom
 * an older copy still knows.
 */
export async function queueHistory(table: Table, did: Did, signal: AbortSignal): Promise<void> {
  const history = historyOf(table, did);
  const [last] = await table.scan({ prefix: history, limit: 1, isReverse: true });
  // Behind what is being sent now, whose places end when it is sent.
  let number = last === undefined ? 0 : numberInKey(last[0]) + 1;
  await table.sweep(history, () => true, signal);
  const queue = async (kinds: readonly string[]) => {
    for (const prefix of kinds)
      for await (const page of table.pages(prefix))
        await table.change(async (batch) => {
          for (const [key] of page) batch.put(`${history}${digits(number++)}`, key);
        });
  };
  await queue(factKinds);
  await table.change(async (batch) => batch.put(`${history}${digits(number++)}`, factsKey));
  await queue(messageKinds);
}

/** A row as others get it; `null` when it was removed meanwhile. */
export async function loadItem(table: Table, key: string): Promise<Item | null> {
  if (key === factsKey) return { is: "f", row: {} };
  const is = rowKind(key) as Item["is"];
  const row = await table.get<rows.MessageRow>(is === "v" ? messageOfDelivery(key) : key);
  // Of devices and keys heads speak (`ring.ts`).
  if (row === null || !(is in takers)) return null;
  if (is === "v") return { is, row: { id: row.id, from: row.from, to: row.to } };
  // What this device can't judge, others have to examine as well when it can.
  if (is === "g") {
    const group = await table.get<GroupRow>(key);
    return group === null ? null : { is, row: { ...group, waiting: [], owed: [] } };
  }
  if (is !== "m" || row.body.is !== "pieces") return { is, row } as Item;
  const at = (await table.meta()).deviceDid as Did;
  return { is, row: { ...row, body: { is: "elsewhere", at } } };
}

type Taking = HeardTimes & { readonly table: Table; readonly batch: Batch };
type Takers = {
  readonly [Is in keyof Rows]?: (at: Taking, row: Rows[Is]) => Promise<StoreChange | null>;
};

const takers: Takers = {
  p: takePerson,
  b: takeProfile,
  j: async ({ table, batch, nowMs }, row) => {
    await putPass(table, batch, row, nowMs);
    return null;
  },
  // Its signatures are examined first (`store/group-talk.ts`).
  g: async () => null,
  m: takeMessage,
  v: takeDelivery,
  r: async ({ table, batch, ...heard }, row) => {
    await rows.putReaction(table, batch, { ...row, sentMs: presentMs(row.sentMs, heard) });
    return { type: "changed", conversation: row.conversation, id: row.target, what: "state" };
  },
  c: takeRead,
  q: takeRemoval,
  w: takeChosen,
  z: async () => null,
};

/**
 * Takes what another device sends, and returns what changed. Nothing is passed on. `saidMs` is
 * the time of its message.
 */
export function applyItem(
  table: Table,
  { is, row }: Item,
  nowMs: number,
  saidMs: number = nowMs,
): Promise<StoreChange | null> {
  return table.change(async (batch) => {
    batch.isEcho = true;
    const take = takers[is] as
      | ((at: Taking, row: unknown) => Promise<StoreChange | null>)
      | undefined;
    const change = await take?.({ table, batch, nowMs, saidMs }, row);
    return change ?? null;
  });
}

/** The own one is this user's choice; of a person's, what they sign later counts. */
async function takeProfile(
  { table, batch, ...heard }: Taking,
  row: rows.ProfileRow,
): Promise<StoreChange | null> {
  if (row.isOpen === null && !isReached(row.atMs, heard.nowMs)) return null;
  const isTaken = await putProfile(table, batch, { ...row, atMs: chosenMs(row.atMs, heard) });
  return isTaken ? personChange(row.did) : null;
}

const personChange = (did: Did): StoreChange => ({
  type: "changed",
  conversation: did,
  id: null,
  what: "person",
});

/** What this user changed later stays, and the later claim. */
async function takePerson(
  { table, batch, ...heard }: Taking,
  { claimed: said, ...rest }: Person,
): Promise<StoreChange> {
  const present = presentPerson(rest, heard);
  const isSaid = said !== undefined && isReached(said.atMs, heard.nowMs);
  const given: Person = isSaid
    ? { ...present, claimed: { ...said, atMs: chosenMs(said.atMs, heard) } }
    : present;
  const held = await batch.get<Person>(keyOfPerson(table, given.did));
  const { name, isKnown, isBlocked, setMs = 0, claimed } = held ?? given;
  const chosen = setMs > (given.setMs ?? 0) ? { name, isKnown, isBlocked, setMs } : {};
  const isClaimLater = claimed !== undefined && claimed.atMs > (given.claimed?.atMs ?? 0);
  await rows.putPerson(table, batch, given.did, {
    ...given,
    ...chosen,
    ...(isClaimLater ? { claimed } : {}),
  });
  return personChange(given.did);
}

function presentPerson(person: Person, heard: HeardTimes): Person {
  const { setMs, toldMs } = person;
  return {
    ...person,
    ...(setMs === undefined ? {} : { setMs: chosenMs(setMs, heard) }),
    ...(toldMs === undefined ? {} : { toldMs: presentMs(toldMs, heard) }),
  };
}

async function takeMessage(
  { table, batch, nowMs }: Taking,
  given: rows.MessageRow,
): Promise<StoreChange | null> {
  // What waits there waits in that device's outbox.
  const row: rows.MessageRow = {
    ...given,
    // A clock there that was ahead puts nothing behind what comes.
    arrivedMs: Math.min(given.arrivedMs, nowMs),
    to: given.to.map((copy): rows.Copy => ({ ...copy, out: null })),
  };
  const { conversation, id } = row;
  const held = await rows.messageNamed(table, { author: row.from, id }, batch);
  if (held?.row.digest === row.digest) {
    putCopies({ table, batch }, held, row.to);
    // That device knew already that it belongs to a group.
    const { group } = row;
    const isMoved = group !== null && held.row.group === null;
    if (isMoved) await rows.moveMessage(table, batch, held.key, { conversation, group });
    return null;
  }
  const seen = rows.seenKeyOf(table, row);
  // A change of a group that meant nothing here was heard from that device before.
  const isChange = row.mediaType.startsWith(groupType);
  const hidden = isChange ? removalKey(seen) : seen;
  if ((await batch.get(hidden)) !== null) return null;
  // The identity's Caches may offer it here too.
  if (!row.isOwn) batch.put(seen, nowMs + rows.seenMs);
  const key = await rows.addMessage(table, batch, row, nowMs);
  if (row.group === null)
    for (const { did } of row.to) await rows.putPerson(table, batch, did, { isKnown: true });
  if (!row.isOwn && row.verified === true && row.from !== null)
    await rows.putPerson(table, batch, row.from, {});
  for (const copy of row.to) if (copy.id !== id) batch.put(keyOfId(table, copy.id), key);
  return { type: "changed", conversation, id, what: "message" };
}

async function takeDelivery(
  { table, batch }: Taking,
  { id, from: author = null, to }: Rows["v"],
): Promise<StoreChange | null> {
  const held = await rows.messageNamed(table, { author, id }, batch);
  if (held === null) return null;
  putCopies({ table, batch }, held, to);
  return { type: "changed", conversation: held.row.conversation, id: held.row.id, what: "state" };
}

type KeyedRow = { readonly key: string; readonly row: rows.MessageRow };

/** A receipt that this device heard of first stays. */
function putCopies(
  { table, batch }: Pick<Taking, "table" | "batch">,
  { key, row }: KeyedRow,
  given: readonly rows.Copy[],
): void {
  const to = given.map((copy): rows.Copy => {
    const held = row.to.find((one) => one.did === copy.did);
    const state = held === undefined ? copy.state : rows.laterState(held.state, copy.state);
    return { ...copy, state, out: held?.out ?? null };
  });
  batch.put(key, { ...row, to });
  for (const copy of to) batch.put(keyOfId(table, copy.id), key);
}

/** Also of a message that another device sends later. */
async function takeRemoval(
  { table, batch, nowMs }: Taking,
  removal: rows.RemovalRow,
): Promise<StoreChange | null> {
  rows.putRemoval(table, batch, removal, nowMs);
  const { from: author = null, id } = removal;
  const held = await rows.messageNamed(table, { author, id }, batch);
  if (held === null) return null;
  await rows.removeMessage(table, batch, held.key);
  return { type: "changed", conversation: held.row.conversation, id: held.row.id, what: "removed" };
}

/** Read marks go by the time of the message that was last: arrivals differ between devices. */
async function takeRead(
  { table, batch, ...heard }: Taking,
  { id, readAtMs: givenMs }: Rows["c"],
): Promise<StoreChange | null> {
  const readAtMs = presentMs(givenMs, heard);
  const place = keyOfConversation(table, id);
  const row = await batch.get<rows.ConversationRow>(place);
  if (row === null || readAtMs === 0) return null;
  const prefix = messagesOf(table, id);
  let unread = 0;
  let firstMs = row.arrivedMs + 1;
  for await (const [, one] of table.all<rows.MessageRow>(
    prefix,
    messagesFrom(table, id, readAtMs + 1),
  )) {
    if (one.isOwn || one.arrivedMs <= row.readMs) continue;
    unread++;
    firstMs = Math.min(firstMs, one.arrivedMs);
  }
  const readMs = Math.max(row.readMs, firstMs - 1);
  batch.put(place, { ...row, readMs, readAtMs: Math.max(row.readAtMs, readAtMs), unread });
  return { type: "changed", conversation: id, id: null, what: "read" };
}

/**
 * Words that are not sent, and other choices: of each the later one. Of a group's timer
 * its admin's word counts.
 */
async function takeChosen(
  { table, batch, ...heard }: Taking,
  given: ChosenRow,
): Promise<StoreChange> {
  const { id } = given;
  const held = (await chosenAt(table, id, batch)) ?? { id };
  const group = isDid(id) ? null : await groupAt(table, id, batch);
  const makers = group === null ? [] : [group.state, ...(group.former ?? [])];
  const { timer, ...choices } = presentChoices(given, heard);
  const isForeign = timer !== undefined && makers.every(({ maker }) => maker !== timer.by);
  const isTaken = timer !== undefined && (group === null || !isForeign);
  const counting = isTaken ? { ...choices, timer } : choices;
  batch.put(keyOfChosen(table, id), mergeChosen(held, counting, heard.nowMs));
  return { type: "changed", conversation: id, id: null, what: "chosen" };
}

/** `null` when it is not in a file of this store. */
export async function pieceSource(
  table: Table,
  { body, digest, sizeBytes }: rows.MessageRow,
): Promise<Source | null> {
  if (body.is !== "pieces") return null;
  const file = { name: digest, mediaType: contentType, sizeBytes };
  return measured(file, bodyReader(table, body));
}

/** The message that lacked this content; `null` when there is none. */
export async function takeContent(
  table: Table,
  batch: Batch,
  body: Body,
  { replyTo, name, sizeBytes }: ReadMessage,
): Promise<rows.MessageRow | null> {
  const { key, row } = (await rows.messageById(table, replyTo ?? "", batch)) ?? {
    key: "",
    row: null,
  };
  if (
    row?.body.is !== "elsewhere" ||
    row.digest !== name ||
    sealedSize(row.sizeBytes) !== sizeBytes
  )
    return null;
  batch.put(key, { ...row, body });
  if (body.is === "pieces") batch.put(keyOfFile({ at: orderOf(row), id: body.id }), key);
  return row;
}
