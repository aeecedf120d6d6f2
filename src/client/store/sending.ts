/**
 * What an identity with a local store says: a message is safe there, with its copies in the
 * outbox, before `send` returns.
 * Source: docs/client.md "A local store" and "People and groups".
 */
import { encodeBase64, utf8 } from "../../core/codec/bytes.ts";
import { type Did, isDid, normalizeAlias } from "../../core/codec/did.ts";
import { Mutex } from "../../core/std/order.ts";
import { attempt, ClientError, isTemporary, localError } from "../base/failure.ts";
import { placeOf } from "../groups/bundles.ts";
import { membersOf, stateDigest } from "../groups/statements.ts";
import { randomUuid } from "../keys/crypto.ts";
import {
  bytesSource,
  type Content,
  groupType,
  isNote,
  type JsonContent,
  mentionsMax,
  parseMediaType,
  profileType,
  type Relations,
  reactionContent,
  reactionType,
  receiptType,
  type Source,
  shareType,
  sourceOf,
  timerType,
  typingType,
} from "../mail/content.ts";
import { parseReaction, type StoreChange } from "../mail/message.ts";
import { planFor } from "../mail/plan.ts";
import type { MessageFacts } from "../mail/retrieve.ts";
import { type MessageOptions, type Sent, sendPlan } from "../mail/send.ts";
import { findName } from "../trust/client.ts";
import { loadAlias, type NameTrust, trustOf } from "../trust/trust.ts";
import { type ChosenRow, parseTimer, putTimer } from "./chosen.ts";
import { type Body, copySource, saveContent } from "./files.ts";
import { inlineJson } from "./group-hearing.ts";
import { groupAt } from "./group-rows.ts";
import {
  copyIdOf,
  keyOfChosen,
  keyOfConversation,
  keyOfId,
  keyOfPerson,
  keyOfProfile,
} from "./keys.ts";
import { choicesOf, enqueue, type Outbox, type OutRow, outFile } from "./outbox.ts";
import type { OwnStore } from "./own-store.ts";
import type { Person } from "./person-shape.ts";
import { arrivalOf, keyOfMessage } from "./places.ts";
import { parseRevision, revisionType } from "./revisions.ts";
import {
  type ConversationRow,
  type Copy,
  type MessageRow,
  messageById,
  messageNamed,
  type ProfileRow,
  placeMessage,
  putPerson,
  reactionRow,
} from "./rows.ts";
import type { Batch, Table } from "./table.ts";

type FoundRecipient = {
  readonly did: Did;
  readonly alias: string | null;
  readonly name: NameTrust | null;
};

/** To how many typing is sent, and when again. */
const [typingMax, typingAgainMs] = [16, 10_000];

export class Sending {
  readonly #own: OwnStore;
  readonly #outbox: Outbox;
  /** Whether receipts are asked for unless a message says otherwise. */
  readonly #asksReceipts: boolean;
  readonly #typedMs = new Map<string, number>();
  readonly #adding = new Mutex();

  constructor(own: OwnStore, outbox: Outbox, asksReceipts: boolean) {
    this.#own = own;
    this.#outbox = outbox;
    this.#asksReceipts = asksReceipts;
  }

  /**
   * One message, with a copy for each recipient. Resolves when it is safe in the store; throws for
   * a recipient that isn't known.
   */
  send(
    targets: readonly string[],
    content: Content,
    options: MessageOptions,
    within: Within | null = null,
  ): Promise<Sent[]> {
    if (this.#own.signal.aborted) throw localError("closed", "close() was called");
    return this.#adding.run(() => this.#add(targets, content, options, within));
  }

  async #add(
    targets: readonly string[],
    content: Content,
    options: MessageOptions,
    within: Within | null,
  ): Promise<Sent[]> {
    const people = new Map<Did, FoundRecipient>();
    for (const to of targets) {
      const found = await this.find(to, options);
      people.set(found.did, found);
    }
    const { table, nowMs } = this.#own;
    const id = randomUuid();
    const named = options.mediaType === reactionType ? await this.#reactionIn(content) : content;
    const group = within ?? (await this.#groupOf(options.group ?? null));
    const conversation = group?.place ?? [...people.keys()][0] ?? "";
    const relations = await this.#relationsOf(id, options, { group, conversation });
    const source = await sourceOf(named, options, relations);
    const recipients = [...people.values()];
    const here = group === null ? options : { ...options, group: group.place };
    const draft = { id, source, content: named, options: here, recipients, within };
    const { saved } = await saveContent(table, nowMs, {
      fill: (write) => copySource(source, write),
      rows: (batch, body) => this.#put(batch, draft, body),
    });
    if (saved?.change) this.#own.announce(saved.change);
    return (saved?.places ?? []).map((place, i) =>
      this.#sent(place, draft, draft.recipients[i] as FoundRecipient),
    );
  }

  /**
   * A message has one name, in whichever envelopes it goes out; one to a group
   * has one for each member.
   */
  async #relationsOf(
    id: string,
    { replyTo = null, replyFrom, receipt, mediaType = "", ...remarks }: MessageOptions,
    { group, conversation }: Addressed,
  ): Promise<Relations> {
    const { mentions = [], isForwarded = false } = remarks;
    if (mentions.length > mentionsMax)
      throw localError("invalid_argument", `a message calls at most ${mentionsMax} members`);
    const wantsReceipt = receipt ?? this.#asksReceipts;
    const answered = { author: replyFrom ?? null, id: replyTo };
    const author = await this.#authorIn(conversation, answered);
    const name = isNote(mediaType) ? null : id;
    const state = group?.digest ?? null;
    const { table } = this.#own;
    const chosen = keyOfChosen(table, conversation);
    const row = isWords(mediaType) ? await table.get<ChosenRow>(chosen) : null;
    const said = { mentions, isForwarded, lastsSeconds: row?.timer?.seconds ?? 0 };
    const about = { replyTo, replyFrom: author, group: group?.id ?? null, state };
    return { id: name, ...about, wantsReceipt, ...said };
  }

  /**
   * Who wrote what is answered, as far as it is said or here. Of another conversation
   * nothing is said to this one.
   */
  async #authorIn(
    conversation: string,
    { author, id }: { readonly author: Did | null; readonly id: string | null },
  ): Promise<Did | null> {
    if (author !== null || id === null) return author;
    const found = await messageById(this.#own.table, id);
    return found?.row.conversation === conversation ? found.row.from : null;
  }

  /** What is sent to a group names it as its admin now does; here it stays where it was. */
  async #groupOf(group: string | null): Promise<AddressedGroup | null> {
    if (group === null) return null;
    const row = await groupAt(this.#own.table, group);
    if (row === null) return { id: group, place: group, digest: null };
    return { id: row.state.id, place: placeOf(row), digest: stateDigest(row.state) };
  }

  /** With who wrote the message, as far as it is here. */
  async #reactionIn(content: Content): Promise<Content> {
    const said = parseReaction(content);
    if (said === null) return content;
    const { to, reaction } = said;
    const { row } = (await messageNamed(this.#own.table, { author: said.author, id: to })) ?? {};
    const author = said.author ?? row?.from ?? null;
    return reactionContent(row?.id ?? to, reaction, author);
  }

  /** What `send` returns: nothing is sent so far. */
  #sent(place: string, { id, options }: Draft, { did, name }: FoundRecipient): Sent {
    const { onProgress, signal } = options;
    const delivered = this.#outbox.follow(place, {
      name,
      ...(onProgress === undefined ? {} : { onProgress }),
      ...(signal === undefined ? {} : { signal }),
    });
    const recipient = { did, trust: trustOf(did), name };
    return { id, chunks: 0, groupId: null, messageIds: [], last: null, recipient, delivered };
  }

  /** The rows of a message, of its copies, and of their recipients. */
  async #put(
    batch: Batch,
    draft: Draft,
    body: Body,
  ): Promise<{ places: string[]; change: StoreChange | null }> {
    const { id, source, content, options, recipients } = draft;
    const { table } = this.#own;
    const nowMs = this.#own.arrivalMs();
    const conversation = options.group ?? recipients[0]?.did ?? "";
    const before = await batch.get<ConversationRow>(keyOfConversation(table, conversation));
    const atMs = before === null ? nowMs : arrivalOf(before, nowMs);
    const row = ownRow(draft, {
      conversation,
      from: this.#own.did,
      sentMs: atMs,
      arrivedMs: atMs,
      body,
    });

    if (draft.within !== null) return this.#putState(batch, row, { draft, within: draft.within });
    const key = isShown(row) ? keyOfMessage(table, row) : null;
    const chosen = choicesOf(options);

    const copies: Copy[] = [];
    for (const { did, alias } of recipients) {
      if (!isNote(row.mediaType)) await this.#meet(batch, row, { did, alias, options });
      const envelope = row.group === null ? id : copyIdOf(table, id, did);
      const out = { did, id: envelope, key, file: outFile(source.file), body, options: chosen };
      const place = await enqueue(table, batch, out, nowMs);
      const copy = { did, id: envelope, state: "waiting", code: null, reason: null } as const;
      copies.push({ ...copy, out: place });
    }
    const places = copies.map(({ out }) => out ?? "");

    const timer = row.mediaType === timerType ? parseTimer(content) : null;
    if (timer !== null) {
      const given = { ...timer, by: this.#own.did };
      await putTimer(table, batch, conversation, { given, nowMs });
    }

    const reaction = row.mediaType === reactionType ? parseReaction(content) : null;
    const revision = row.mediaType === revisionType ? parseRevision(content) : null;
    if (key === null && reaction === null && revision === null) return { places, change: null };
    const meant = revision === null ? {} : { target: revision.to, targetFrom: row.from };
    const placed =
      reaction === null
        ? { ...row, to: copies, ...meant }
        : await reactionRow(table, batch, row, reaction);

    const at = await placeMessage(table, batch, placed, true);
    for (const copy of copies)
      if (placed.target === null && copy.id !== id) batch.put(keyOfId(table, copy.id), at);
    const what = placed.target === null ? "message" : "state";
    return { places, change: { type: "changed", conversation, id: placed.target ?? id, what } };
  }

  /** Who is written to is known, but not each member of a group, and gets the own profile first. */
  async #meet(
    batch: Batch,
    { group }: MessageRow,
    { did, alias, options }: Omit<FoundRecipient, "name"> & { readonly options: MessageOptions },
  ): Promise<void> {
    const { table, did: own } = this.#own;
    const facts = {
      ...(group === null ? { isKnown: true } : {}),
      ...(alias === null ? {} : { alias }),
    };
    const person = await putPerson(table, batch, did, facts);
    if (options.anonymous === true) return;
    const ahead = { own, nowMs: this.#own.nowMs(), options: choicesOf(options) };
    await enqueueProfile(table, batch, person, ahead);
  }

  /** What is said of a group's state, with the change that it is about. Throws `group_changed`. */
  async #putState(
    batch: Batch,
    row: MessageRow,
    { draft, within }: { readonly draft: Draft; readonly within: Within },
  ): Promise<{ places: string[]; change: StoreChange | null }> {
    const { table, nowMs } = this.#own;
    const { id, source, options, recipients } = draft;
    const { put, line } = within;
    if (put !== null && !(await put(batch)))
      throw localError("group_changed", "another device of this identity has changed the group");
    const places: string[] = [];
    for (const { did, alias } of recipients) {
      await this.#meet(batch, row, { did, alias, options });
      const envelope = copyIdOf(table, id, did);
      const facts = { did, id: envelope, key: null, file: outFile(source.file), body: row.body };
      const out = { ...facts, options: choicesOf(options) };
      places.push(await enqueue(table, batch, out, nowMs()));
    }
    const { conversation } = row;
    if (line !== null) await placeMessage(table, batch, { ...row, body: inlineJson(line) }, true);
    const what = line === null ? "group" : "message";
    return { places, change: put === null ? null : { type: "changed", conversation, id, what } };
  }

  /** An alias that can't be looked up now is what it was. */
  async find(to: string, options: Pick<MessageOptions, "trust"> = {}): Promise<FoundRecipient> {
    if (typeof to !== "string")
      throw localError("invalid_argument", "a recipient is a DID or an alias");
    if (isDid(to)) return { did: to, alias: null, name: null };
    const { client, trust } = this.#own.identity;
    const alias = normalizeAlias(to);
    const found = await attempt(() => findName(client, to, options.trust ?? trust));
    if (!(found instanceof ClientError)) return { ...found, alias };
    const remembered =
      alias === null || !isTemporary(found) ? null : await loadAlias(client.known.memory, alias);
    if (remembered === null) throw found;
    return { did: remembered, alias, name: "remembered" };
  }

  // --------------------------------------------------------------------------- receipts and typing

  /**
   * Says that a message has arrived, of a guardian's share always. Only to a verified sender who is
   * known: others can't make this identity send.
   */
  async acked({ id, from, verified, wantsReceipt, mediaType }: MessageFacts): Promise<void> {
    const isSaid = this.#asksReceipts || mediaType === shareType;
    if (!isSaid || !wantsReceipt || verified !== true || from === null) return;
    const said = await attempt(() => this.#sendReceipt(from, { v: 1, delivered: [id] }));
    if (said instanceof ClientError && !this.#own.signal.aborted)
      this.#own.identity.emit({ type: "failed", what: "receipt", error: said });
  }

  /** Says that messages were read. */
  async wereRead(by: Did, read: readonly string[]): Promise<void> {
    await attempt(() => this.#sendReceipt(by, { v: 1, read }));
  }

  async #sendReceipt(to: Did, receipt: Readonly<Record<string, unknown>>): Promise<void> {
    if (await this.listensTo(to))
      await this.send([to], receipt, { mediaType: receiptType, receipt: false });
  }

  /**
   * Whether this user has accepted somebody: only they learn that the user is here (receipts,
   * typing), and become known to the own mailboxes.
   */
  async listensTo(did: Did): Promise<boolean> {
    const { table } = this.#own;
    const person = await table.get<Person>(keyOfPerson(table, did));
    return person?.isKnown === true && !person.isBlocked;
  }

  /**
   * Says at once that somebody writes, or has stopped, to those who are known
   * and listen; kept nowhere.
   */
  async typing(conversation: string, isTyping: boolean): Promise<void> {
    const { did: own, nowMs, table } = this.#own;
    const group = isDid(conversation) ? null : await groupAt(table, conversation);
    const members = group === null ? [] : membersOf(group.state);
    const others = isDid(conversation) ? [conversation] : members.filter((did) => did !== own);

    const sinceMs = nowMs() - (this.#typedMs.get(conversation) ?? 0);
    const isNews = isTyping ? sinceMs >= typingAgainMs : this.#typedMs.delete(conversation);
    const profile = await table.get<ProfileRow>(keyOfProfile(table, own));
    if (!isNews || others.length > typingMax || profile?.isOpen !== true) return;

    if (isTyping) this.#typedMs.set(conversation, nowMs());
    const relations = { replyTo: null, group: group?.state.id ?? null, wantsReceipt: false };
    const source = await sourceOf({ v: 1, typing: isTyping }, { mediaType: typingType }, relations);
    await Promise.all(others.map((did) => attempt(() => this.#type(did, source))));
  }

  async #type(did: Did, source: Source): Promise<void> {
    if (!(await this.listensTo(did))) return;
    const { identity } = this.#own;
    const brief = { id: randomUuid(), ttl: "30s", hint: "direct" } as const;
    const plan = await planFor(identity, did, source.file, brief);
    await sendPlan(plan, source, { relay: identity.client.relay, retries: 0 });
  }
}

type Addressed = { readonly group: AddressedGroup | null; readonly conversation: string };

type AddressedGroup = {
  readonly id: string;
  /** Of its conversation. */
  readonly place: string;
  /** Of the state that this identity has of it. */
  readonly digest: string | null;
};

/** What a device says of a group's state. */
type Within = AddressedGroup & {
  /** Written in one change with the copies, unless it answers `false`. */
  readonly put: ((batch: Batch) => Promise<boolean>) | null;
  /** For the own history. */
  readonly line: JsonContent | null;
};

type Draft = {
  readonly id: string;
  readonly source: Source;
  readonly content: Content;
  readonly options: MessageOptions;
  readonly recipients: readonly FoundRecipient[];
  readonly within: Within | null;
};

/**
 * The longest: a profile is sent once, also to somebody who is away while shorter messages expire.
 */
const profileTtl = "30d";

type Ahead = { readonly own: Did; readonly nowMs: number; readonly options: OutRow["options"] };

/** Ahead of a message to somebody who doesn't have it, and with that message's options. */
async function enqueueProfile(
  table: Table,
  batch: Batch,
  { did, toldMs = 0, invitation = null }: Person,
  { own, nowMs, options }: Ahead,
): Promise<void> {
  const row = await batch.get<ProfileRow>(keyOfProfile(table, own));
  const { name = "", picture = "", atMs = 0 } = row ?? {};
  const isEmpty = name === "" && picture === "" && toldMs === 0;
  if (invitation === null && (row === null || atMs <= toldMs || isEmpty)) return;

  const brought = invitation === null ? {} : { invitation };
  const content = utf8(JSON.stringify({ v: 1, name, picture, ...brought }));
  const { file } = bytesSource("", profileType, content);
  const body = { is: "inline", base64: encodeBase64(content) } as const;
  const out = { did, id: randomUuid(), key: null, file: outFile(file), body };
  await enqueue(table, batch, { ...out, options: { ...options, ttl: profileTtl } }, nowMs);

  const gone = invitation === null ? {} : { invitation: null };
  await putPerson(table, batch, did, { toldMs: atMs, ...gone });
}

/** Receipts, reactions and revisions are no messages of their own. */
const isShown = ({ mediaType }: MessageRow): boolean =>
  !isNote(mediaType) && ![reactionType, revisionType, groupType].includes(mediaType);

/** What a person says, which lasts as long as the conversation has it. */
const isWords = (mediaType: string): boolean =>
  !isNote(mediaType) && ![reactionType, revisionType, groupType, timerType].includes(mediaType);

function ownRow(
  { id, source, options }: Draft,
  place: Pick<MessageRow, "conversation" | "from" | "sentMs" | "arrivedMs" | "body">,
): MessageRow {
  const { name, sizeBytes, mediaType } = source.file;
  const { mentions = [], isForwarded = false, lastsSeconds = 0 } = parseMediaType(mediaType);
  return {
    ...place,
    ...(mentions.length > 0 ? { mentions } : {}),
    ...(isForwarded ? { isForwarded } : {}),
    ...(lastsSeconds > 0 ? { lastsSeconds } : {}),
    id,
    isOwn: true,
    verified: true,
    trust: place.from === null ? null : trustOf(place.from),
    distrusted: null,
    name,
    mediaType: parseMediaType(mediaType).plain,
    sizeBytes,
    replyTo: options.replyTo ?? null,
    replyFrom: parseMediaType(mediaType).replyFrom ?? null,
    group: options.group ?? null,
    wantsReceipt: false,
    messageIds: [id],
    reaction: null,
    target: null,
    digest: "",
    to: [],
  };
}
