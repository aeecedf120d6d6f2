/**
 * What a program sees of its local store: people, conversations, messages and their files, unread
 * counts. It reads the rows each time, because other tabs change them too; every change is an
 * event.
 * Source: docs/client.md "A local store".
 */

import { type Did, isDid } from "../../core/codec/did.ts";
import { weekMs } from "../../core/codec/time.ts";
import { attempt, checkGiven, localError, pause } from "../base/failure.ts";
import { anything, fromZero, parseValue, truth } from "../base/shapes.ts";
import { membersOf } from "../groups/statements.ts";
import { lastsSecondsMax, timerType } from "../mail/content.ts";
import { receiptIdsMax } from "../mail/notes.ts";
import { type Chosen, chosenAt, chosenOf, nextVersion, parseTimer, putChoice } from "./chosen.ts";
import type { Copies } from "./copies.ts";
import { type Body, readBody } from "./files.ts";
import { factsOf, type GroupFacts, groupAt, isEmpty } from "./group-rows.ts";
import { rowsToHandOver } from "./handing-over.ts";
import { type InvitationTerms, makeInvitation } from "./invitations.ts";
import {
  endOf,
  keyOfChosen,
  keyOfConversation,
  keyOfPerson,
  keyOfProfile,
  messagesOf,
  rowsOf,
} from "./keys.ts";
import type { Outbox } from "./outbox.ts";
import type { OwnStore } from "./own-store.ts";
import type { Person } from "./person-shape.ts";
import { personShape } from "./person-shape.ts";
import { type Profile, profileOf, profileWith, putProfile } from "./profiles.ts";
import { revisedTextMax, revisionType } from "./revisions.ts";
import { isConversation } from "./row-shapes.ts";
import {
  type ConversationRow,
  forgetBody,
  type MessageRow,
  messageById,
  messageNamed,
  type ProfileRow,
  putPerson,
  putRemoval,
  removeMessage,
  stateChange,
  unverified,
} from "./rows.ts";
import type { Sending } from "./sending.ts";
import {
  aroundMessage,
  isReadable,
  type StoredMessage,
  shownGroup,
  storedMessage,
} from "./shown.ts";
import type { Batch, Table } from "./table.ts";

export type Conversation = {
  /** A person's DID, the id of a group, or `unverified`. */
  readonly id: string;
  readonly person: Person | null;
  readonly group: GroupFacts | null;
  readonly unread: number;
  readonly last: StoredMessage | null;
} & Chosen;

type Beside = { readonly copies: Copies; readonly sending: Sending };

const draftUnitsMax = 100_000;
/** After so long without a change other devices get what was typed. */
const draftPauseMs = 2_000;
const pageMessages = 50;
const pageMessagesMax = 1_000;

export class LocalStore {
  readonly #own: OwnStore;
  readonly #outbox: Outbox;
  readonly #copies: Copies;
  readonly #sending: Sending;
  readonly #table: Table;

  /** @internal */
  constructor(own: OwnStore, outbox: Outbox, { copies, sending }: Beside) {
    this.#own = own;
    this.#outbox = outbox;
    this.#copies = copies;
    this.#sending = sending;
    this.#table = own.table;
  }

  /** Whether this tab receives and delivers for all. */
  get leads(): boolean {
    return this.#outbox.isLeading;
  }

  // ---------------------------------------------------------------------------------------- people

  async people(): Promise<Person[]> {
    const rows = await this.#table.values<unknown>(rowsOf.people);
    return rows.flatMap((row) => parseValue(row, personShape) ?? []);
  }

  person(did: string): Promise<Person | null> {
    return this.#table.get(keyOfPerson(this.#table, did));
  }

  /**
   * Changes what is known of a person; `isKnown` accepts a stranger's request. `invitation`:
   * theirs, which goes to them sealed, ahead of the next message, and accepts this user there.
   */
  async savePerson(
    did: string,
    change: Partial<Pick<Person, "name" | "isBlocked" | "isKnown" | "invitation">>,
  ): Promise<Person> {
    if (!isDid(did)) throw localError("invalid_argument", `not a DID: ${did}`);
    const { name, isBlocked, isKnown = name !== undefined, invitation } = change;
    const person = await this.#table.change(async (batch) => {
      const { setMs = 0 } = (await batch.get<Person>(keyOfPerson(this.#table, did))) ?? {};
      const saved = await putPerson(this.#table, batch, did, {
        setMs: Math.max(this.#own.arrivalMs(), setMs + 1),
        ...(name === undefined ? {} : { name }),
        ...(isBlocked === undefined ? {} : { isBlocked }),
        ...(invitation === undefined ? {} : { invitation }),
        ...(isKnown || change.isKnown === false ? { isKnown } : {}),
      });
      batch.log(keyOfPerson(this.#table, did));
      return saved;
    });
    this.#own.announce({ type: "changed", conversation: did, id: null, what: "person" });
    return person;
  }

  /** A secret for somebody who is to be accepted unasked; they bring it back by `savePerson`. */
  invitation({
    untilMs = this.#own.nowMs() + weekMs,
    isOnce = true,
  }: Partial<InvitationTerms> = {}): string {
    return makeInvitation(this.#own.identity.secrets.rootSeed, { untilMs, isOnce });
  }

  /** What somebody calls themselves, or the own profile. */
  async profile(did: string = this.#own.did): Promise<Profile> {
    return profileOf(await this.#table.get(keyOfProfile(this.#table, did)));
  }

  /** Changes the own profile, which goes to each person ahead of the next message to them. */
  async saveProfile(change: Partial<Profile>): Promise<void> {
    const { did, nowMs } = this.#own;
    const before = await this.#table.get<ProfileRow>(keyOfProfile(this.#table, did));
    const profile = await profileWith(before, change);
    const atMs = Math.max(nowMs(), (before?.atMs ?? 0) + 1);
    await this.#table.change((batch) => putProfile(this.#table, batch, { ...profile, did, atMs }));
    this.#own.announce({ type: "changed", conversation: did, id: null, what: "person" });
  }

  // --------------------------------------------------------------------------------- conversations

  /** The latest first. */
  async conversations(): Promise<Conversation[]> {
    const rows = await this.#talks();
    rows.sort((a, b) => b.at - a.at);
    const shown = await Promise.all(rows.map((row) => this.#conversation(row)));
    return shown.filter((one) => one !== null);
  }

  /** `null` where its group can't be read. */
  async #conversation({ id, last, unread, at }: ConversationRow): Promise<Conversation | null> {
    const lastRow = last === null ? null : await this.#table.get<MessageRow>(last);
    const [view = null] = lastRow === null ? [] : await this.#views(id, [[last ?? "", lastRow]]);
    const group = isDid(id) ? null : await shownGroup(this.#table, id);
    if (group === "unreadable") return null;
    const isShown = group !== null && !isEmpty(group);
    return {
      id,
      person: await this.person(id),
      group: isShown ? factsOf(group, this.#own.did) : null,
      unread,
      last: view,
      ...chosenOf(await chosenAt(this.#table, id), at),
    };
  }

  async #talks(): Promise<ConversationRow[]> {
    const rows = await this.#table.values<ConversationRow>(rowsOf.conversations);
    return rows.filter(({ id }) => isConversation(id));
  }

  /**
   * A page of a conversation, the oldest message first; it ends before the message `before`, or
   * with the last one. Has 50 messages unless `limit` says otherwise, 1,000 at most.
   */
  async messages(
    conversation: string,
    options: { readonly before?: StoredMessage; readonly limit?: number } = {},
  ): Promise<StoredMessage[]> {
    checkGiven(options, { before: anything, limit: fromZero });
    const { before, limit = pageMessages } = options;
    const prefix = messagesOf(this.#table, conversation);
    const page = {
      prefix,
      to: before?.key ?? endOf(prefix),
      limit: Math.min(limit, pageMessagesMax),
      isReverse: true,
    };
    const rows = await this.#table.scan<MessageRow>(page);
    return this.#views(conversation, rows.reverse());
  }

  /** Two people may give a message the same name: then `author` says whose is meant. */
  async message(id: string, author: Did | null = null): Promise<StoredMessage | null> {
    const found = await messageNamed(this.#table, { author, id });
    if (found === null) return null;
    const [view = null] = await this.#views(found.row.conversation, [[found.key, found.row]]);
    return view;
  }

  /**
   * The message that this one answers, for a quotation. `null` when it isn't in the same
   * conversation: who knows the id of a message elsewhere can name it. What nothing proves quotes
   * nothing.
   */
  async answered({
    replyTo,
    replyFrom = null,
    conversation,
  }: StoredMessage): Promise<StoredMessage | null> {
    if (replyTo === null || conversation === unverified) return null;
    const found = await this.message(replyTo, replyFrom);
    return found?.conversation === conversation ? found : null;
  }

  /** Without those that can't be read. */
  async #views(
    conversation: string,
    rows: readonly (readonly [key: string, row: MessageRow])[],
  ): Promise<StoredMessage[]> {
    const place = keyOfConversation(this.#table, conversation);
    const { readMs = 0, arrivedMs = Infinity } =
      (await this.#table.get<ConversationRow>(place)) ?? {};
    const readable = rows.filter(([, row]) => isReadable(row));
    return Promise.all(
      readable.map(async ([key, row]) => {
        const around = await aroundMessage(this.#table, row);
        return storedMessage(key, row, { readMs, arrivedMs, ...around });
      }),
    );
  }

  /** Over all conversations that are not muted. */
  async unread(): Promise<number> {
    let sum = 0;
    for (const { id, unread } of await this.#talks()) {
      if (unread === 0) continue;
      const isMuted = (await chosenAt(this.#table, id))?.isMuted?.value ?? false;
      sum += isMuted ? 0 : unread;
    }
    return sum;
  }

  // --------------------------------------------------------------------------------------- choices

  /** Of one conversation, also before anything was said in it. */
  async chosen(conversation: string): Promise<Chosen> {
    const place = keyOfConversation(this.#table, conversation);
    const row = await this.#table.get<ConversationRow>(place);
    return chosenOf(await chosenAt(this.#table, conversation), row?.at ?? 0);
  }

  /** Pins, mutes or puts away a conversation, on all own devices. */
  async choose(
    conversation: string,
    choice: Partial<Pick<Chosen, "isPinned" | "isMuted" | "isArchived">>,
  ): Promise<void> {
    checkGiven(choice, { isPinned: truth, isMuted: truth, isArchived: truth });
    const nowMs = this.#own.arrivalMs();
    await this.#table.change(async (batch) => {
      await putChoice(this.#table, batch, conversation, { choice, nowMs });
      batch.log(keyOfChosen(this.#table, conversation));
    });
    this.#own.announce({ type: "changed", conversation, id: null, what: "chosen" });
  }

  /**
   * How long what is said from now on lasts, in seconds, for all who are in the conversation; 0:
   * until it is deleted. In a group its admin sets it. Throws `not_admin`.
   */
  async setTimer(conversation: string, seconds: number): Promise<void> {
    const { did, nowMs } = this.#own;
    const group = isDid(conversation) ? null : await groupAt(this.#table, conversation);
    if (!isDid(conversation) && group?.state.maker !== did)
      throw localError("not_admin", "only the admin of a group sets how long its messages last");
    const version = nextVersion(await chosenAt(this.#table, conversation), nowMs());
    const timer = { v: 1, seconds, version };
    if (parseTimer(timer) === null)
      throw localError("invalid_argument", `messages last at most ${lastsSecondsMax} seconds`);
    const to =
      group === null ? [conversation] : membersOf(group.state).filter((one) => one !== did);
    const about = { mediaType: timerType, receipt: false };
    await this.#sending.send(to, timer, group === null ? about : { ...about, group: conversation });
    this.#own.announce({ type: "changed", conversation, id: null, what: "chosen" });
  }

  /** What was typed in a conversation and not sent, here or on another device; else empty. */
  async draft(conversation: string): Promise<string> {
    return (await chosenAt(this.#table, conversation))?.draft?.value ?? "";
  }

  /** Kept until it is replaced; an empty text removes it. At most 100,000 code units. */
  async saveDraft(conversation: string, text: string): Promise<void> {
    if (text.length > draftUnitsMax)
      throw localError("too_large", `a draft has at most ${draftUnitsMax} code units`);
    const before = (await chosenAt(this.#table, conversation))?.draft?.value ?? "";
    if (text === before) return;
    const nowMs = this.#own.arrivalMs();
    await this.#table.change((batch) =>
      putChoice(this.#table, batch, conversation, { choice: { draft: text }, nowMs }),
    );
    void this.#shareDraft(conversation, text);
  }

  /** Not each letter is said to other devices. */
  async #shareDraft(conversation: string, text: string): Promise<void> {
    if (text !== "") await pause(draftPauseMs, this.#own.signal);
    if (this.#own.signal.aborted) return;
    await attempt(() =>
      this.#table.change(async (batch) => {
        const now = (await chosenAt(this.#table, conversation, batch))?.draft?.value;
        if (now === text) batch.log(keyOfChosen(this.#table, conversation));
      }),
    );
  }

  /** All that has arrived. Known people who ask for receipts get one if the profile is open. */
  async markRead(conversation: string): Promise<void> {
    const before = await this.#table.change(async (batch) => {
      const place = keyOfConversation(this.#table, conversation);
      const row = await batch.get<ConversationRow>(place);
      if (row === null || row.unread === 0) return null;
      batch.put(place, { ...row, unread: 0, readMs: row.arrivedMs, readAtMs: row.at });
      batch.log(place);
      return row;
    });
    if (before === null) return;
    this.#own.announce({ type: "changed", conversation, id: null, what: "read" });
    if ((await this.profile()).isOpen) await this.#tellRead(before);
  }

  /** Of what came after the mark before and was there when this one was set. */
  async #tellRead({ id, readMs, arrivedMs: untilMs }: ConversationRow): Promise<void> {
    const page = { prefix: messagesOf(this.#table, id), limit: receiptIdsMax, isReverse: true };
    const read = new Map<Did, string[]>();
    for (const [, row] of await this.#table.scan<MessageRow>(page)) {
      const { from, isOwn, verified, wantsReceipt, arrivedMs } = row;
      const isAsked =
        !isOwn && wantsReceipt && verified === true && arrivedMs > readMs && arrivedMs <= untilMs;
      if (isAsked && from !== null) read.set(from, [...(read.get(from) ?? []), row.id]);
    }
    for (const [from, ids] of read) await this.#sending.wereRead(from, ids);
  }

  // --------------------------------------------------------------------------------------- content

  /**
   * The content in order, in pieces of at most 1 MiB, of which one is in memory. Throws
   * `content_removed`, or `content_elsewhere` after another device was asked for it.
   */
  async *pieces(message: StoredMessage): AsyncGenerator<Uint8Array> {
    const row = await this.#table.get<MessageRow>(message.key);
    if (row?.body.is === "elsewhere") this.#own.announce({ type: "want", key: message.key });
    yield* readBody(this.#table, row?.body ?? { is: "removed" });
  }

  /** The content as a file, which a browser may keep on disk. */
  async file(message: StoredMessage): Promise<File> {
    const parts: Blob[] = [];
    for await (const piece of this.pieces(message)) parts.push(new Blob([piece.slice()]));
    return new File(parts, message.name === "" ? "message" : message.name, {
      type: message.mediaType,
    });
  }

  /**
   * Gives each message that was received and not handed over yet to `work`, and counts it as handed
   * over when that returns. One that fails holds up no other; the first failure is thrown at the
   * end.
   */
  async *handOver<T>(work: (message: StoredMessage) => Promise<T>): AsyncGenerator<T> {
    const failures: unknown[] = [];
    for (const [place, { key }] of await rowsToHandOver(this.#table)) {
      const row = await this.#table.get<MessageRow>(key);
      const views = row === null ? [] : await this.#views(row.conversation, [[key, row]]);
      try {
        const done = await Promise.all(views.map(work));
        await this.#table.change(async (batch) => batch.delete(place));
        yield* done;
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }

  // -------------------------------------------------------------------------------------- removing

  /** Removes a message here, and keeps it from being sent when it waits for that. */
  async remove(message: StoredMessage): Promise<void> {
    await this.#table.change((batch) => this.#remove(batch, message.key));
    this.#own.announce({
      type: "changed",
      conversation: message.conversation,
      id: message.id,
      what: "removed",
    });
  }

  async removeConversation(conversation: string): Promise<void> {
    for await (const [key] of this.#table.all<MessageRow>(messagesOf(this.#table, conversation)))
      await this.#table.change((batch) => this.#remove(batch, key));
    await this.saveDraft(conversation, "");
    this.#own.announce({ type: "changed", conversation, id: null, what: "removed" });
  }

  async #remove(batch: Batch, key: string): Promise<void> {
    const row = await batch.get<MessageRow>(key);
    if (row === null) return;
    await removeMessage(this.#table, batch, key);
    putRemoval(this.#table, batch, row, this.#own.nowMs());
  }

  // --------------------------------------------------------------------------------------- sending

  /** Changes an own text for all who have it, up to 16,000 code units: `not_own`, `too_large`. */
  async edit(message: StoredMessage, text: string): Promise<void> {
    if (text.length > revisedTextMax)
      throw localError("too_large", `a changed text has at most ${revisedTextMax} code units`);
    const row = await this.#table.get<MessageRow>(message.key);
    if (row?.isOwn !== true || message.text === null || row.name !== "")
      throw localError("not_own", "only an own text can be changed");
    await this.#revise(row, { text });
  }

  /** Takes an own message back from all, for good. What waits is not sent. Throws `not_own`. */
  async deleteForAll(message: StoredMessage): Promise<void> {
    const row = await this.#table.get<MessageRow>(message.key);
    if (row?.isOwn !== true) throw localError("not_own", "only an own message can be taken back");
    if (row.to.every(({ out }) => out !== null)) await this.remove(message);
    // Parts of what waits may have left.
    await this.#revise(row, { deleted: true });
  }

  async #revise({ id, group, to }: MessageRow, change: Readonly<Record<string, unknown>>) {
    const options = { mediaType: revisionType, receipt: false };
    const about = group === null ? options : { ...options, group };
    const recipients = to.map(({ did }) => did);
    await this.#sending.send(recipients, { v: 1, to: id, ...change }, about);
  }

  /** Sends a `failed` or `uncertain` message anew: who has it already sees it once. */
  async resend(id: string): Promise<void> {
    const found = await messageById(this.#table, id);
    if (found === null) throw localError("no_message", `no stored message has the id ${id}`);
    await this.#copies.resend(found.key);
  }

  async usage(): Promise<{ readonly bytes: number; readonly bytesMax: number }> {
    return { bytes: (await this.#table.meta()).bytes, bytesMax: this.#table.driver.bytesMax };
  }
}

/** Of the oldest message, which stays. `false`: there is none. */
export async function removeOldestFile(own: OwnStore): Promise<boolean> {
  const { table } = own;
  const [oldest] = await table.scan<string>({ prefix: rowsOf.files, limit: 1 });
  if (oldest === undefined) return false;
  const [place, key] = oldest;
  const removed = await table.change(async (batch) => {
    const row = await batch.get<MessageRow>(key);
    batch.delete(place);
    if (row?.body.is !== "pieces") return null;
    forgetBody(batch, row);
    batch.put(key, { ...row, body: { is: "removed" } satisfies Body });
    return row;
  });
  if (removed !== null) own.announce(stateChange(removed));
  return true;
}
