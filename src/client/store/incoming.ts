/**
 * What arrives, into the local store: saved before it is acknowledged, once however often
 * it is offered, and handed over to a program once. Receipts and reactions change the
 * messages that they name.
 * Source: docs/client.md "A local store", rules section 10 ("Receiving").
 */

import type { Did } from "../../core/codec/did.ts";
import { hourMs, secondMs } from "../../core/codec/time.ts";
import { attempt, Wakeup } from "../base/failure.ts";
import { placeOf } from "../groups/bundles.ts";
import { groupType, typingType } from "../mail/content.ts";
import { keptName, keptType } from "../mail/kept-names.ts";
import {
  createMessage,
  essenceOf,
  isNoteOf,
  jsonIn,
  type Message,
  type MessageActions,
  reactionIn,
} from "../mail/message.ts";
import { type Note, parseNote } from "../mail/notes.ts";
import { type ReadMessage, type Recipient, readChunks, readMessage } from "../mail/retrieve.ts";
import type { Sent } from "../mail/send.ts";
import { offeredUntilMs, type PendingMessage } from "../net/caches.ts";
import { trustOf } from "../trust/trust.ts";
import { Arriving, type Run } from "./arriving.ts";
import { putTimer, timerIn } from "./chosen.ts";
import type { Copies } from "./copies.ts";
import {
  type Body,
  deleteBody,
  saveContent,
  sweepUnfinished,
  type Write,
  wholeBody,
} from "./files.ts";
import {
  type Examined,
  type Heard,
  hearBundle,
  inlineJson,
  isOther,
  lineIn,
  newsOf,
} from "./group-hearing.ts";
import { conversationOf, groupAt, isEmpty, markMisfiled } from "./group-rows.ts";
import type { GroupTalk } from "./group-talk.ts";
import { type HandedRow, HandingOver } from "./handing-over.ts";
import { acceptInvited } from "./invitations.ts";
import { keyOfPerson, rowsOf, seenKey } from "./keys.ts";
import type { OwnStore, StoreNews } from "./own-store.ts";
import { takePass } from "./passes.ts";
import type { Person } from "./person-shape.ts";
import { putProfile } from "./profiles.ts";
import { Handed } from "./queue.ts";
import type { Inbox, OpenedMessage } from "./receiver.ts";
import { revisionIn } from "./revisions.ts";
import {
  type MessageRow,
  placeMessage,
  putPerson,
  type RemovalRow,
  reactionRow,
  unverified,
} from "./rows.ts";
import type { Sending } from "./sending.ts";
import type { Batch, Table } from "./table.ts";

/** Whether own devices have what is here. */
type Synced = {
  readonly isSyncing: boolean;
  readonly synced: () => Promise<void>;
};

/** How long a message waits for own devices before it is acknowledged. */
export const devicesWaitMs = 4 * secondMs;

type Beside = {
  readonly sending: Sending;
  readonly talk: GroupTalk;
  readonly copies: Copies;
  /** `null` while there are no other ones. */
  readonly devices: { readonly sync: Synced | null };
  /** Who signed what is saved is accepted. */
  readonly acceptsRequests?: boolean;
};

/** What comes with a message, and what is done when it is saved. */
type Context = {
  readonly data: Uint8Array;
  /** Of what it says of a group. */
  readonly judged: Examined | null;
  readonly after: (() => Promise<void>)[];
  /** The mark of the message that its author sent before it. */
  readonly follows: string | null;
};

/** Who surely sent a message. */
type By = { readonly sender: Did; readonly person: Person | null };

export class Incoming {
  readonly #own: OwnStore;
  readonly #sending: Sending;
  readonly #copies: Copies;
  readonly #talk: GroupTalk;
  readonly #devices: Beside["devices"];
  /** What becomes of a person whose signed message is saved. */
  readonly #met: Partial<Person>;
  readonly #table: Table;
  readonly #arriving: Arriving;
  readonly #toHandOver: HandingOver;
  readonly #handed = new Handed();
  readonly #news = new Wakeup();

  constructor(own: OwnStore, { sending, copies, talk, devices, acceptsRequests = false }: Beside) {
    this.#own = own;
    this.#sending = sending;
    this.#copies = copies;
    this.#talk = talk;
    this.#devices = devices;
    this.#met = acceptsRequests ? { isKnown: true } : {};
    this.#table = own.table;
    this.#arriving = new Arriving(own);
    this.#toHandOver = new HandingOver(own);
  }

  /** What the receiver reads is stored when it returns. */
  get saved(): Inbox {
    return {
      isSaved: true,
      // A message of which own devices are not synced yet is read again, and
      // acknowledged after that.
      has: async (digest) => this.#devices.sync?.isSyncing !== true && (await this.#has(digest)),
      waitMs: devicesWaitMs,
      read: (version, recipient) => this.#read(version, recipient),
      takeRun: (message, recipient) => this.#takeRun(message, recipient),
      acked: async (_version, { data: _, ...facts }) => void this.#sending.acked(facts),
      accepts: (sender) => this.#sending.listensTo(sender),
      handed: this.#handed,
      send: this.#send,
    };
  }

  /** Messages are saved when the program acknowledges them. */
  get byHand(): Inbox {
    const saveByHand = async (version: PendingMessage, { data, ...read }: OpenedMessage) => {
      await this.#save(version, async (write) => {
        await write(data);
        return read;
      });
      void this.#sending.acked(read);
    };
    const has = (digest: string) => this.#has(digest);
    const accepts = (sender: Did) => this.#sending.listensTo(sender);
    const given = { accepts, handed: this.#handed, send: this.#send };
    return { isSaved: false, has, read: readMessage, acked: saveByHand, ...given };
  }

  readonly #send: MessageActions["send"] = async (to, content, options) =>
    (await this.#sending.send([to], content, options))[0] as Sent;

  async #takeRun(message: PendingMessage, recipient: Recipient): Promise<Run | null> {
    const news: StoreNews[] = [];
    const run = await this.#arriving.take(message, recipient, async (batch, read, body) => {
      const isNamed = read.marks !== undefined;
      if (isNamed && !(await this.#see(batch, message, read))) return deleteBody(batch, body);
      await takePass(this.#table, batch, read, this.#own.arrivalMs());
      const data = body.is === "inline" ? await wholeBody(this.#table, body) : new Uint8Array(0);
      const context = { data, judged: null, after: [], follows: read.follows ?? null };
      news.push(
        ...(await this.#add(batch, messageRow(read, body, this.#own.arrivalMs()), context)),
      );
    });
    for (const one of news) this.#own.announce(one);
    if (news.length > 0) this.#news.wake();
    if (run !== null && run.read !== null) await this.#devices.sync?.synced();
    return run;
  }

  async #has(text: string): Promise<boolean> {
    return (await this.#table.bytes(seenKey(this.#table, text))) !== null;
  }

  async #read(version: PendingMessage, recipient: Recipient) {
    const read = await this.#save(version, (write) => readChunks(version, recipient, write));
    return { ...read, data: new Uint8Array(0) };
  }

  /** Saves a message; one that was saved before changes nothing. */
  async #save(
    version: PendingMessage,
    fill: (write: Write) => Promise<ReadMessage>,
  ): Promise<ReadMessage> {
    const { nowMs } = this.#own;
    let judged: Examined | null = null;
    const after: Context["after"] = [];
    const judging = async (write: Write): Promise<ReadMessage> => {
      const parts: Uint8Array[] = [];
      const read = await fill(async (data) => {
        if (parts.length === 0) parts.push(data);
        await write(data);
      });
      judged = await this.#judge(read, parts[0] ?? new Uint8Array(0));
      return read;
    };
    const rows = async (
      batch: Batch,
      body: Body,
      read: ReadMessage,
    ): Promise<readonly StoreNews[] | null> => {
      // Nothing of typing is stored.
      if (essenceOf(read) !== typingType && !(await this.#see(batch, version, read))) return null;
      await takePass(this.#table, batch, read, this.#own.arrivalMs());
      const data = body.is === "inline" ? await wholeBody(this.#table, body) : new Uint8Array(0);
      const context = { data, judged, after, follows: read.follows ?? null };
      return this.#add(batch, messageRow(read, body, this.#own.arrivalMs()), context);
    };
    const { filled, saved } = await saveContent(this.#table, nowMs, { fill: judging, rows });
    for (const news of saved ?? []) this.#own.announce(news);
    for (const work of after) void attempt(work);
    if (saved !== null) this.#news.wake();
    await this.#devices.sync?.synced();
    return filled;
  }

  /** The signatures of what a verified member says of a group, before anything is changed. */
  async #judge(
    { from, verified, group, mediaType }: ReadMessage,
    data: Uint8Array,
  ): Promise<Examined | null> {
    if (!isGroupChange({ mediaType }) || verified !== true) return null;
    if (from === null || group === null) return null;
    const person = await this.#table.get<Person>(keyOfPerson(this.#table, from));
    if (person?.isBlocked === true) return null;
    return this.#talk.judging.examine(group, from, jsonIn(data));
  }

  /** `false` when all of its envelopes were saved before. */
  async #see(
    batch: Batch,
    version: PendingMessage,
    { digests, marks = digests, messageIds, seenUntilMs = 0 }: ReadMessage,
  ): Promise<boolean> {
    const nowMs = this.#own.nowMs();
    let isNew = false;
    for (const digest of marks) isNew ||= (await batch.get(seenKey(this.#table, digest))) === null;
    const untilMs = Math.max(offeredUntilMs(version, nowMs) + hourMs, seenUntilMs);
    for (const text of [...digests, ...marks, ...messageIds])
      batch.put(seenKey(this.#table, text), untilMs);
    return isNew;
  }

  async #add(batch: Batch, given: MessageRow, context: Context): Promise<readonly StoreNews[]> {
    const { from, verified } = given;
    const { data } = context;
    const note = isNoteOf(given) ? parseNote(essenceOf(given), jsonIn(data)) : null;
    const reaction = reactionIn(given, data);
    const revision = revisionIn(given, data);
    const timer = timerIn(given, data);

    const sender = verified === true ? from : null;
    const person =
      sender === null ? null : await batch.get<Person>(keyOfPerson(this.#table, sender));

    // A note, a revision, a timer or a change of a group counts only from its proven author.
    const isBound = note !== null || revision !== null || timer !== null || isGroupChange(given);
    const isDropped = person?.isBlocked === true || (sender === null && isBound);
    const ofSender = async () =>
      sender === null ? given : this.#inGroup(batch, given, { ...context, sender, person });
    const row = isDropped ? null : await ofSender();
    if (row === null || note !== null) deleteBody(batch, given.body);
    if (row === null) return [];

    if (note !== null)
      return sender === null ? [] : this.#note(batch, note, { row, sender, person });
    if (timer !== null && sender !== null) {
      const choice = { given: { ...timer, by: sender }, nowMs: this.#own.nowMs() };
      if (!(await putTimer(this.#table, batch, row.conversation, choice))) return [];
    }
    if (sender !== null) await putPerson(this.#table, batch, sender, this.#met);

    const isReaction = reaction !== null && row.conversation !== unverified;
    const placed = isReaction
      ? await reactionRow(this.#table, batch, row, reaction)
      : { ...row, ...(revision === null ? {} : { target: revision.to, targetFrom: sender }) };
    const key = await placeMessage(this.#table, batch, placed);

    const isInGroup = given.group !== null && !isGroupChange(given) && sender !== null;
    if (isInGroup) await this.#markMisfiled(batch, given.group, row, key);
    const handed: HandedRow = { key, atMs: row.arrivedMs, mark: row.digest };
    await this.#toHandOver.add(batch, handed, context.follows);

    const { conversation } = row;
    const what = placed.target === null ? "message" : "state";
    return [{ type: "changed", conversation, id: placed.target ?? row.id, what }];
  }

  /**
   * With the conversation of what names a group. `null` for what belongs nowhere, such as a change
   * that counts for nothing.
   */
  async #inGroup(
    batch: Batch,
    row: MessageRow,
    { judged, after, sender, person }: By & Context,
  ): Promise<MessageRow | null> {
    const { group, state: digest = null } = row;
    if (group === null) return isGroupChange(row) ? null : row;
    const { did: own } = this.#own;
    const said = { from: sender, own, isKnown: person?.isKnown === true };
    after.push(() => this.#talk.answer({ group, from: sender, digest }));
    if (isGroupChange(row)) return judged === null ? null : this.#hear(batch, row, judged, after);
    const conversation = await conversationOf(this.#table, batch, { ...said, group });
    if (conversation === null) return null;
    return { ...row, conversation, group: conversation === sender ? null : conversation };
  }

  /** The row that shows what changed, by who signed it; `null` when nothing did. */
  async #hear(
    batch: Batch,
    row: MessageRow,
    said: Examined,
    after: Context["after"],
  ): Promise<MessageRow | null> {
    const { did: own, nowMs } = this.#own;
    const root = await this.#talk.root();
    const id = row.group ?? "";
    const makers = said.statements.map(({ one }) => one.statement.maker);
    const maker = makers[0] ?? said.from;
    const person = await batch.get<Person>(keyOfPerson(this.#table, maker));
    const isKnown = person?.isKnown === true || maker === own;
    const listener = { own, root, isKnown, nowMs: nowMs() };
    const heard = await hearBundle(this.#table, batch, { id, said }, listener);
    if (heard === null) return null;
    const { before, after: now } = heard;
    if (now.waiting.length > 0) after.push(async () => this.#talk.hearSoon());
    if (!isOther(before, now)) return null;
    after.unshift(() => this.#talk.heard(before, now));
    const conversation = placeOf(now);
    after.unshift(async () =>
      this.#own.announce({ type: "changed", conversation, id: null, what: newsOf(heard, own) }),
    );
    return shownRow({ ...row, conversation, group: conversation }, heard);
  }

  /** The state of a group may say later that its sender is in it. */
  async #markMisfiled(
    batch: Batch,
    group: string | null,
    row: MessageRow,
    key: string,
  ): Promise<void> {
    if (group === null) return;
    const state = await groupAt(this.#table, group, batch);
    const place = state === null ? group : placeOf(state);
    const isOpen = row.conversation !== place || state === null || isEmpty(state);
    if (isOpen) markMisfiled(this.#table, batch, group, key);
  }

  async #note(
    batch: Batch,
    note: Note,
    { row, sender, person }: By & { readonly row: MessageRow },
  ): Promise<readonly StoreNews[]> {
    if (note.is === "receipt") return this.#receipt(batch, sender, note);
    if (note.is === "typing") {
      const { conversation } = row;
      const isHeard = person?.isKnown === true || conversation !== sender;
      const { isTyping } = note;
      return isHeard ? [{ type: "typing", from: sender, conversation, isTyping }] : [];
    }
    // The own profile is not what came in a message to oneself.
    if (note.is === "nothing" || sender === this.#own.did) return [];
    const { name, picture, invitation } = note;
    if (person?.isKnown !== true && typeof invitation === "string")
      await acceptInvited(this.#own, batch, sender, invitation);
    const profile = {
      did: sender,
      name,
      picture,
      atMs: Math.min(row.sentMs, row.arrivedMs),
      isOpen: null,
    };
    if (!(await putProfile(this.#table, batch, profile))) return [];
    return [{ type: "changed", conversation: sender, id: null, what: "person" }];
  }

  async #receipt(
    batch: Batch,
    from: Did,
    { state, ids }: Extract<Note, { is: "receipt" }>,
  ): Promise<readonly StoreNews[]> {
    const changes = await this.#copies.received(batch, from, state, ids);
    return [...changes, { type: state === "read" ? "read" : "receipt", from, messageIds: ids }];
  }

  // ---------------------------------------------------------------------------------- handing over

  /**
   * Each message once, also across runs, in its sender's order. One in whose loop the
   * program died comes again.
   */
  async *messages(signal: AbortSignal): AsyncGenerator<Message, void, undefined> {
    while (!signal.aborted) {
      this.#news.begin();
      const next = await this.#toHandOver.next();
      if (typeof next === "number") {
        await this.#news.next(next, signal);
        continue;
      }
      const [place, { key }] = next;
      const row = await this.#table.get<MessageRow>(key);
      try {
        if (row === null) continue;
        const data = row.body.is === "removed" ? null : await wholeBody(this.#table, row.body);
        yield createMessage(row, data, { ack: async () => undefined, send: this.#send });
      } finally {
        await this.#table.change(async (batch) => batch.delete(place));
      }
    }
  }

  /** Forgets what has expired. */
  async sweep(signal: AbortSignal): Promise<void> {
    const nowMs = this.#own.nowMs();
    await this.#table.sweep<number>(rowsOf.seen, (untilMs) => untilMs < nowMs, signal);
    await this.#table.sweep<RemovalRow>(rowsOf.removals, ({ untilMs }) => untilMs < nowMs, signal);
    await this.#toHandOver.sweep(signal);
    await sweepUnfinished(this.#table, nowMs);
    await this.#arriving.sweep();
  }
}

const isGroupChange = ({ mediaType }: Pick<MessageRow, "mediaType">): boolean =>
  mediaType.startsWith(groupType);

/** What the history of a group shows of what was heard. `null`: nothing. */
function shownRow(row: MessageRow, { before, after }: Heard): MessageRow | null {
  const { maker } = after.state;
  const line = lineIn(before?.state ?? null, after.state);
  if (line === null) return null;
  const [gone] = Object.entries(after.state.left).filter(
    ([did, version]) => before?.state.left[did] !== version,
  );
  const isLeaving = gone !== undefined && before !== null;
  const from = (isLeaving ? gone[0] : maker) as Did;
  const json = isLeaving ? { v: 2, left: gone[1] } : line;
  return { ...row, from, verified: true, trust: trustOf(from), body: inlineJson(json) };
}

function messageRow(read: ReadMessage, body: Body, nowMs: number): MessageRow {
  const { digests, marks = digests, seenUntilMs: _, pass: __, follows: ___, ...rest } = read;
  const { authorship = null, ...facts } = rest;
  const { from, verified, group, name, mediaType } = facts;
  const [digest = ""] = verified === true ? marks : digests;
  return {
    ...facts,
    name: keptName(name),
    mediaType: keptType(mediaType),
    conversation: from !== null && verified === true ? (group ?? from) : unverified,
    isOwn: false,
    arrivedMs: nowMs,
    reaction: null,
    target: null,
    digest,
    body,
    to: [],
    ...(authorship === null ? {} : { authorship }),
  };
}
