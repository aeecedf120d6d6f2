/**
 * An identity with a local store: what arrives is saved and acknowledged, what is sent waits in the store until the Relay
 * has it. In every tab; the one that leads receives and delivers.
 * Source: docs/client.md "A local store".
 */
import { type Did, isDid, normalizeAlias } from "../core/codec/did.ts";
import { hourMs } from "../core/codec/time.ts";
import { inOrder } from "../core/std/order.ts";
import { attempt, ClientError, isTemporary, localError, pause } from "./base/failure.ts";
import { Devices, type DevicesHost, linkOf } from "./devices/devices.ts";
import { randomUuid } from "./keys/crypto.ts";
import {
  type Content,
  groupType,
  isNote,
  type Relations,
  reactionType,
  receiptType,
  type Source,
  sourceOf,
  typingType,
} from "./mail/content.ts";
import {
  type Message,
  parseReaction,
  type StoreChange,
  type WaypostEvent,
} from "./mail/message.ts";
import { planSend } from "./mail/plan.ts";
import { parseMediaType } from "./mail/retrieve.ts";
import { type MessageOptions, type SendPlan, type Sent, sendPlan } from "./mail/send.ts";
import type { StoreDriver } from "./store/driver.ts";
import { type Body, copySource, saveContent } from "./store/files.ts";
import { Groups, putChange } from "./store/groups.ts";
import { Incoming, type StoreNews } from "./store/incoming.ts";
import { keyOfConversation } from "./store/keys.ts";
import { enqueue, Outbox, type OutNews, type OutRow, outFile } from "./store/outbox.ts";
import { enqueueProfile } from "./store/profiles.ts";
import type { PollResult, Receiver, ReceiverStorage } from "./store/receiver.ts";
import {
  arrivalOf,
  type ConversationRow,
  type Copy,
  keyOfMessage,
  type MessageRow,
  placeMessage,
  putPerson,
} from "./store/rows.ts";
import { LocalStore, removeOldestFile } from "./store/store.ts";
import { type Batch, Table } from "./store/table.ts";
import { joinTabs, type Tabs } from "./store/tabs.ts";
import { find } from "./trust/client.ts";
import { cachesOf } from "./trust/readers.ts";
import { loadAlias, type NameTrust, type TrustDemand, trustOf } from "./trust/trust.ts";

/** What the session needs of its identity. */
type SessionHost = Omit<
  DevicesHost,
  "table" | "tell" | "leading" | "reconnect" | "failed" | "openLink"
> & {
  readonly did: Did;
  readonly driver: StoreDriver;
  readonly storeKey: Uint8Array;
  readonly trust: TrustDemand | null;
  readonly isByHand: boolean;
  readonly emit: (event: WaypostEvent) => void;
  readonly sender: () => Promise<NonNullable<SendPlan["sender"]>>;
  readonly forgetSender: () => void;
  readonly relationsOf: (options: MessageOptions) => Relations;
  readonly send: (to: Did, content: Content, options: MessageOptions) => Promise<Sent>;
  readonly receiver: (storage: ReceiverStorage) => Promise<Receiver>;
  readonly openDevice: () => Promise<Parameters<typeof linkOf>>;
};

type Recipient = {
  readonly did: Did;
  readonly alias: string | null;
  readonly name: NameTrust | null;
};
type News = StoreNews | OutNews | { readonly type: "want"; readonly key: string };
type Waiter = {
  readonly resolve: (sent: Sent) => void;
  readonly reject: (error: ClientError) => void;
};

/** To how many typing is sent, and when again. */
const [typingMax, typingAgainMs] = [16, 10_000];

export class StoreSession {
  readonly store: LocalStore;
  readonly incoming: Incoming;
  readonly devices: Devices;
  readonly groups: Groups;
  /** Names the live sessions of this device. */
  readonly device: string;
  readonly #host: SessionHost;
  readonly #table: Table;
  readonly #tabs: Tabs;
  readonly #outbox: Outbox;
  readonly #stop = new AbortController();
  readonly #closed = Promise.withResolvers<void>();
  readonly #waiters = new Map<string, Waiter>();
  readonly #typedMs = new Map<string, number>();
  readonly #adding = inOrder<"">();
  #receiver: Receiver | null = null;
  #work: Promise<unknown> = Promise.resolve();
  readonly #leading = Promise.withResolvers<void>();
  readonly #withDevices = Promise.withResolvers<void>();

  private constructor(host: SessionHost, table: Table, tabs: Tabs) {
    this.#host = host;
    this.device = table.name("device").slice(0, 8);
    this.#table = table;
    this.#tabs = tabs;
    tabs.onNews = (news) => this.#hear(news as News);
    const { did, nowMs, send, sender, forgetSender, client } = host;
    const { signal } = this.#stop;
    const base = { table, did, nowMs, tell: (news: News) => this.#tell(news) };
    table.makeRoom = async (isNews) => {
      if (host.driver.bytesMax < Infinity && (await removeOldestFile(base))) return true;
      if (isNews) base.tell({ type: "store_full" });
      return false;
    };
    const devices = {
      ...{ ...host, ...base, leading: this.#leading.promise },
      reconnect: () => this.reconnect(),
      failed: (error: ClientError) => host.emit({ type: "failed", what: "devices", error }),
      openLink: async () => linkOf(...(await host.openDevice())),
    };
    this.devices = new Devices(devices, signal);
    this.incoming = new Incoming({ ...base, send, sync: () => this.devices.sync });
    this.#withDevices.promise.catch(() => undefined);
    const plan = (row: OutRow, source: Source) => this.#plan(row, source);
    this.#outbox = new Outbox({ ...base, relay: client.relay, plan, sender, forgetSender }, signal);
    this.store = new LocalStore({
      ...base,
      leads: () => this.#outbox.isLeading,
      resend: (key) => this.#outbox.resend(key),
      sendReceipt: (to, read) => this.#sendReceipt(to, read),
      want: (key) => base.tell({ type: "want", key }),
    });
    this.groups = new Groups({
      ...base,
      messages: (id, page) => this.store.messages(id, page),
      find: async (to) => (await this.#find(to, {})).did,
      send: (members, content, options) => this.send(members, content, options),
    });
  }

  static async open(host: SessionHost): Promise<StoreSession> {
    const table = await Table.open(host.driver, host.storeKey, host.nowMs);
    const tabs = await joinTabs(host.driver, table.place);
    return new StoreSession(host, table, tabs);
  }

  /** For a backup. */
  get table(): Table {
    return this.#table;
  }

  async isSettled(): Promise<boolean> {
    return (await this.#table.meta()).isSettled;
  }

  async settled(): Promise<void> {
    if (await this.isSettled()) return;
    await this.#table.change(async (batch) => {
      batch.meta = { isSettled: true };
    });
  }

  async #sendReceipt(to: Did, read: readonly string[]): Promise<void> {
    if (await this.listensTo(to))
      await attempt(() =>
        this.send([to], { v: 1, read }, { mediaType: receiptType, receipt: false }),
      );
  }

  /** Nobody else learns that this user is here: no receipt, no typing. */
  async listensTo(did: Did): Promise<boolean> {
    const person = await this.store.person(did);
    return person?.isKnown === true && !person.isBlocked;
  }

  // ------------------------------------------------------------------------------------------------ leading

  /** Receives and delivers as soon as this tab leads. */
  start(): void {
    this.#work = this.#tabs.leading
      .then(() => this.#lead())
      .catch((error: unknown) => {
        // A bug, or a store that fails altogether: the program hears of it instead of waiting for ever.
        const cause = error instanceof ClientError ? error : localError("unusable", String(error));
        this.#host.emit({ type: "failed", what: "store", error: cause });
        this.#withDevices.reject(cause);
        if (!(error instanceof ClientError)) throw error;
      });
  }

  async #lead(): Promise<void> {
    const { signal } = this.#stop;
    if (signal.aborted) return;
    const { known } = this.#host.client;
    known.sentMs = Math.max(known.sentMs, (await this.#table.meta()).sentMs);
    await this.#outbox.lead();
    this.#host.emit({ type: "leading" });
    this.#leading.resolve();
    // First, so that nothing is acknowledged of which they could be informed before.
    await this.devices.start();
    this.#withDevices.resolve();
    await Promise.all([this.#receive(), this.#sweep()]);
  }

  async #receive(): Promise<void> {
    if (this.#host.isByHand) return;
    // Nothing is handed over here. It ends with `close`, by throwing what is a bug, or to connect with new keys.
    while (!this.#stop.signal.aborted) {
      const receiver = await this.#host.receiver(this.incoming.storage);
      this.#receiver = receiver;
      if (this.#stop.signal.aborted) return;
      receiver.start();
      await receiver.next().finally(() => receiver.stop());
    }
  }

  async #sweep(): Promise<void> {
    for (const { signal } = this.#stop; !signal.aborted; await pause(hourMs, signal))
      await attempt(() => this.incoming.sweep(signal));
  }

  /** Saves what waits in the Caches, as soon as the other devices can get it. */
  async receiveWaiting(): Promise<PollResult> {
    const { client, identity, receiver } = this.#host;
    await Promise.race([this.#withDevices.promise, this.#closed.promise]);
    const receiving = await receiver(this.incoming.storage);
    return receiving.poll(await cachesOf(client, identity())).finally(() => receiving.stop());
  }

  /** With the keys of now. */
  reconnect(): void {
    void this.#receiver?.stop();
  }

  /** A connection is back. */
  retry(): void {
    this.#outbox.retry();
  }

  async *messages(): AsyncGenerator<Message, void, undefined> {
    await Promise.race([this.#tabs.leading, this.#closed.promise]);
    yield* this.incoming.messages(this.#stop.signal);
  }

  async close(): Promise<void> {
    if (this.#stop.signal.aborted) return;
    this.#stop.abort();
    this.#closed.resolve();
    await this.#receiver?.stop();
    await this.devices.end("close");
    await Promise.race([this.#tabs.leading.then(() => this.#work), pause(0, this.#stop.signal)]);
    await this.#outbox.ended();
    await this.#table.close();
    this.#tabs.close();
  }

  // ------------------------------------------------------------------------------------------------ sending

  /**
   * One message, with a copy for each recipient. Resolves when it is safe in the store; throws for a recipient that
   * isn't known.
   */
  send(targets: readonly string[], content: Content, options: MessageOptions): Promise<Sent[]> {
    if (this.#stop.signal.aborted) throw localError("closed", "close() was called");
    return this.#adding("", () => this.#add(targets, content, options));
  }

  async #add(
    targets: readonly string[],
    content: Content,
    options: MessageOptions,
  ): Promise<Sent[]> {
    const people = new Map<Did, Recipient>();
    for (const to of targets) {
      const found = await this.#find(to, options);
      people.set(found.did, found);
    }
    const source = await sourceOf(content, options, this.#host.relationsOf(options));
    const draft = { id: randomUuid(), source, content, options, recipients: [...people.values()] };
    const { saved } = await saveContent(this.#table, this.#host.nowMs, {
      fill: (write) => copySource(source, write),
      rows: (batch, body) => this.#put(batch, draft, body),
    });
    if (saved?.change) this.#tell(saved.change);
    return (saved?.places ?? []).map((place, i) => this.#sending(place, draft, i));
  }

  /** The rows of a message, of its copies, and of their recipients. */
  async #put(
    batch: Batch,
    draft: Draft,
    body: Body,
  ): Promise<{ places: string[]; change: StoreChange | null }> {
    const { id, source, content, options, recipients } = draft;
    const { ttl, tag, hint, chunkBytes, trust, anonymous } = options;
    const nowMs = this.#host.nowMs();
    const conversation = options.group ?? recipients[0]?.did ?? "";
    const before = await batch.get<ConversationRow>(keyOfConversation(this.#table, conversation));
    const atMs = before === null ? nowMs : arrivalOf(before, nowMs);
    const row = ownRow(draft, {
      conversation,
      from: this.#host.did,
      sentMs: atMs,
      arrivedMs: atMs,
      body,
    });
    if (row.mediaType === groupType) await this.#changeGroup(batch, row, content);
    const key = isShown(row) ? keyOfMessage(this.#table, row) : null;
    const given = Object.entries({ ttl, tag, hint, chunkBytes, trust, anonymous });
    const chosen: OutRow["options"] = Object.fromEntries(
      given.filter(([, one]) => one !== undefined),
    );
    const copies: Copy[] = [];
    for (const { did, alias } of recipients) {
      if (!isNote(row.mediaType))
        await this.#meet(batch, row, { did, alias, nowMs, options: chosen });
      const out = { did, id, key, file: outFile(source.file), body, options: chosen };
      const place = await enqueue(this.#table, batch, out, nowMs);
      copies.push({ did, id, state: "waiting", code: null, reason: null, out: place });
    }
    const places = copies.map(({ out }) => out ?? "");
    const reaction = row.mediaType === reactionType ? parseReaction(content) : null;
    if (key === null && reaction === null) return { places, change: null };
    const said =
      reaction === null ? { to: copies } : { reaction: reaction.reaction, target: reaction.to };
    await placeMessage(this.#table, batch, { ...row, ...said }, true);
    const what = reaction === null ? "message" : "state";
    return { places, change: { type: "changed", conversation, id: reaction?.to ?? id, what } };
  }

  /** Who is written to is known, but not each member of a group, and gets the own profile first. */
  async #meet(
    batch: Batch,
    { group }: MessageRow,
    {
      did,
      alias,
      ...sending
    }: Omit<Recipient, "name"> & Pick<OutRow, "options"> & { readonly nowMs: number },
  ): Promise<void> {
    const facts = {
      ...(group === null ? { isKnown: true } : {}),
      ...(alias === null ? {} : { alias }),
    };
    const person = await putPerson(this.#table, batch, did, facts);
    if (sending.options.anonymous !== true)
      await enqueueProfile(this.#table, batch, person, { own: this.#host.did, ...sending });
  }

  /** By the same rules as the changes of others. Throws `group_changed`. */
  async #changeGroup(batch: Batch, { conversation }: MessageRow, json: Content): Promise<void> {
    const { did } = this.#host;
    const change = { id: conversation, from: did, own: did, isKnown: false, json };
    if (!(await putChange(this.#table, batch, change)))
      throw localError("group_changed", "another device of this identity has changed the group");
  }

  /** Says at once that somebody writes, or has stopped, to those who are known and listen; kept nowhere. */
  async typing(conversation: string, isTyping: boolean): Promise<void> {
    const { did: own, nowMs, client } = this.#host;
    const group = isDid(conversation) ? null : await this.groups.get(conversation);
    const others = isDid(conversation)
      ? [conversation]
      : (group?.members ?? []).filter((did) => did !== own);
    const sinceMs = nowMs() - (this.#typedMs.get(conversation) ?? 0);
    const isNews = isTyping ? sinceMs >= typingAgainMs : this.#typedMs.delete(conversation);
    if (!isNews || others.length > typingMax || !(await this.store.profile()).isOpen) return;
    if (isTyping) this.#typedMs.set(conversation, nowMs());
    const relations = { replyTo: null, group: group?.id ?? null, wantsReceipt: false };
    const source = await sourceOf({ v: 1, typing: isTyping }, { mediaType: typingType }, relations);
    const options = { ttl: "30s", hint: "direct" } as const;
    const send = async (did: Did) => {
      if (!(await this.listensTo(did))) return;
      const plan = await planSend(client, did, source.file, {
        ...options,
        sender: await this.#host.sender(),
      });
      await sendPlan(plan, source, { relay: client.relay, retries: 0 });
    };
    await Promise.all(others.map((did) => attempt(() => send(did))));
  }

  /** What `send` returns: nothing is sent so far. */
  #sending(place: string, { id, options, recipients }: Draft, i: number): Sent {
    const { did, name } = recipients[i] as Recipient;
    const delivered = new Promise<Sent>((resolve, reject) =>
      this.#waiters.set(place, { resolve, reject }),
    );
    // A program need not wait for it.
    delivered.catch(() => undefined);
    if (options.onProgress !== undefined) this.#outbox.progress.set(place, options.onProgress);
    this.#tell({ type: "out", place });
    const recipient = { did, trust: trustOf(did), name };
    return { id, chunks: 0, groupId: null, messageIds: [], last: null, recipient, delivered };
  }

  /** An alias that can't be looked up now is what it was. */
  async #find(to: string, options: MessageOptions): Promise<Recipient> {
    if (typeof to !== "string")
      throw localError("invalid_argument", "a recipient is a DID or an alias");
    if (isDid(to)) return { did: to, alias: null, name: null };
    const { client, trust } = this.#host;
    const alias = normalizeAlias(to);
    const found = await attempt(() => find(client, to, options.trust ?? trust));
    if (!(found instanceof ClientError)) return { ...found, alias };
    const remembered =
      alias === null || !isTemporary(found) ? null : await loadAlias(client.known.memory, alias);
    if (remembered === null) throw found;
    return { did: remembered, alias, name: "remembered" };
  }

  async #plan({ did, id, options }: OutRow, source: Source): Promise<SendPlan> {
    const sender = options.anonymous === true ? null : await this.#host.sender();
    const trust = options.trust ?? this.#host.trust;
    return planSend(this.#host.client, did, source.file, { ...options, trust, sender, id });
  }

  // -------------------------------------------------------------------------------------------------- news

  /** To the program here and in the other tabs. */
  #tell(news: News): void {
    this.#hear(news);
    this.#tabs.tell(news);
  }

  #hear(news: News): void {
    if (news.type === "want") void attempt(async () => this.devices.sync?.want(news.key));
    else if (news.type !== "out") this.#host.emit(news);
    else if (news.sent === undefined && news.error === undefined) this.#outbox.wake(news.place);
    else this.#settle(news);
  }

  #settle({ place, sent, error }: OutNews): void {
    const waiter = this.#waiters.get(place);
    this.#waiters.delete(place);
    if (error !== undefined) waiter?.reject(localError(error.code, error.message));
    else if (sent !== undefined) waiter?.resolve(sent);
  }
}

type Draft = {
  readonly id: string;
  readonly source: Source;
  readonly content: Content;
  readonly options: MessageOptions;
  readonly recipients: readonly Recipient[];
};

/** Receipts and reactions are no messages of their own. */
const isShown = ({ mediaType }: MessageRow): boolean =>
  !isNote(mediaType) && mediaType !== reactionType;

function ownRow(
  { id, source, options }: Draft,
  place: Pick<MessageRow, "conversation" | "from" | "sentMs" | "arrivedMs" | "body">,
): MessageRow {
  const { name, sizeBytes, mediaType } = source.file;
  return {
    ...place,
    id,
    isOwn: true,
    verified: true,
    trust: place.from === null ? null : trustOf(place.from),
    distrusted: null,
    name,
    mediaType: parseMediaType(mediaType).plain,
    sizeBytes,
    replyTo: options.replyTo ?? null,
    group: options.group ?? null,
    wantsReceipt: false,
    messageIds: [id],
    reaction: null,
    target: null,
    digest: "",
    to: [],
  };
}
