/**
 * Devices of one identity keep one another up to date by sealed messages between their own DIDs, of
 * which nodes know nothing. Each device numbers the rows that change there; another that missed
 * some says up to where it has them and gets the rest. A new one gets all rows, and so does one
 * whose store is an older copy. A message is acknowledged when the other devices' Caches have it.
 * Source: docs/client.md "Devices".
 */

import type { Did } from "../../core/codec/did.ts";
import { dayMs, minuteMs, secondMs } from "../../core/codec/time.ts";
import { Waiters } from "../../core/std/bounded.ts";
import { inOrder } from "../../core/std/order.ts";
import { attempt, backoffMs, ClientError, isTemporary, pause, Wakeup } from "../base/failure.ts";
import { isInteger, isRecord } from "../base/shapes.ts";
import type { Identity } from "../keys/keys.ts";
import { type Content, contentType, type JsonContent, syncType } from "../mail/content.ts";
import { jsonIn } from "../mail/message.ts";
import type { MessageFacts, ReadMessage } from "../mail/retrieve.ts";
import type { MessageOptions, Sent } from "../mail/send.ts";
import { type Body, saveContent, type Write, wholeBody } from "../store/files.ts";
import { devicesWaitMs } from "../store/incoming.ts";
import type { OwnStore } from "../store/own-store.ts";
import { type MessageRow, messageById, stateChange } from "../store/rows.ts";
import type { Batch, Table } from "../store/table.ts";
import type { Client } from "../trust/client.ts";
import { ContentOpener, sealedContent } from "./content.ts";
import { hearPart, type Part } from "./facts.ts";
import { type Item, pieceSource, queueHistory, takeContent } from "./items.ts";
import { batchBytes, peersOf, Replica } from "./replica.ts";

/** How far a device is in this run. */
type SyncPeer = {
  readonly news: Wakeup;
  /** Its Cache has what was logged up to this number. */
  taken: number;
  /** Sending to it failed the last time: nothing waits for it. */
  isFailing: boolean;
  /** It is about to be asked for what is missing. */
  isAsking: boolean;
  /** When it was last asked, by the monotonic clock. */
  askedMs: number;
  /** Up to where it may have received in this run, in addition to what is known to be sent. */
  tried: number[];
};

/** Writes content, and what its message says of itself. */
type WriteRead = (data: Uint8Array, facts: MessageFacts) => Promise<void>;
export type Fill = (write: WriteRead) => Promise<ReadMessage>;

/** Between the DIDs of own devices. */
export type DeviceMail = {
  readonly send: (to: Did, content: Content, options: MessageOptions) => Promise<Sent>;
  /** Reads messages until the signal; `take` has stored what it returns. */
  readonly receive: (
    take: (fill: Fill) => Promise<ReadMessage>,
    signal: AbortSignal,
  ) => Promise<void>;
};

/** It sends to own devices, and receives from them. */
export type DeviceLink = DeviceMail & {
  readonly did: Did;
  readonly client: Client;
  readonly identity: Identity;
  /** Calls back when its DID has another key bundle. */
  readonly onBundle: (call: () => void) => void;
  readonly close: () => Promise<void>;
  readonly lock: () => Promise<void>;
};

/** How devices speak under their keyring (`ring.ts`). */
export type Speech = {
  /** Not to who is missing in a replacement that waits for the proof. */
  readonly mayTell: (did: Did) => Promise<boolean>;
  readonly stamp: () => Promise<string>;
  /** Whether this device has the secret of a published key, in hex. */
  readonly holds: (publicKey: string) => Promise<boolean>;
  readonly seal: (to: Did, said: SyncMessage, acked: string) => Promise<JsonContent>;
  /**
   * `said` is `null` when it doesn't count, and waits when it is early; `theirs` is
   * empty when it can't be read.
   */
  readonly open: (
    from: Did,
    json: unknown,
  ) => Promise<{ readonly said: unknown; readonly theirs: string; readonly isEarly: boolean }>;
  /** The proof shows new keys that this device lacks so far. */
  readonly isBehind: () => Promise<boolean>;
  /** Seals the content of a message on its way to a device, or opens what comes from one. */
  readonly contentKey: (
    way: { readonly to: Did } | { readonly from: Did },
    message: Pick<MessageRow, "id" | "digest">,
  ) => Uint8Array;
};

/**
 * Unlike `syncType`, which wakes no one: it has a message that somebody wrote,
 * for which a phone may ring.
 */
const newsType = "application/vnd.waypost.news+json";
/** Up to how many changes it may have heard are remembered. */
const triedMax = 100;
const messageBytesMax = 2 * batchBytes;
/** Larger content is sent when it is opened. */
const contentBytesMax = 8_388_608;
const wantRetries = 3;
/** Parts that come together are missed together. */
const askMs = secondMs;
/** By so much nodes let a message be signed ahead of their clocks. */
const postdatedMs = 5 * minuteMs;
/** Messages that wait for the new keys of this identity. */
const earlyMax = 100;
/** How long what waits in the own Cache may take after a start, before the others are asked. */
const settleMs = 5 * secondMs;

const isPart = (value: unknown): value is Part =>
  Array.isArray(value) && value.length === 2 && value.every(isInteger);
const isMark = (item: unknown): boolean => isRecord(item) && item["is"] === "f";

export class Sync {
  /** All that this device must know before it files anything is here. */
  onFacts: () => void = () => undefined;
  readonly #own: OwnStore;
  readonly #mail: DeviceMail;
  readonly #speech: Speech;
  readonly #table: Table;
  readonly #replica: Replica;
  readonly #signal: AbortSignal;
  readonly #peers = new Map<Did, SyncPeer>();
  readonly #hearing = inOrder<Did>();
  /**
   * What was said under keys of which the proof shows that they were replaced. Beyond the
   * bound it is asked for again.
   */
  readonly #early: { readonly did: Did; readonly said: unknown; readonly sentMs: number }[] = [];
  readonly #progress = new Waiters();
  #logged: number;

  /** `logged`: the number of the last change so far. */
  constructor(own: OwnStore, mail: DeviceMail, speech: Speech, logged: number) {
    this.#own = own;
    this.#mail = mail;
    this.#speech = speech;
    this.#table = own.table;
    this.#signal = own.signal;
    this.#logged = logged;
    this.#replica = new Replica(own, speech.mayTell);
    this.#table.onLogged = (number) => {
      this.#logged = Math.max(this.#logged, number);
      for (const { news } of this.#peers.values()) news.wake();
    };
    own.signal.addEventListener("abort", () => this.#progress.release());
  }

  /** Until the signal: what others send is applied, what happens here is sent. */
  async run(): Promise<void> {
    await this.refresh();
    await this.#mail.receive((fill) => this.#take(fill), this.#signal);
  }

  /** The others could not seal to this device: by what it asks they learn that they can now. */
  greet(): void {
    for (const did of this.#peers.keys()) this.#ask(did, 0);
  }

  /** After devices were added or removed. */
  async refresh(): Promise<void> {
    const all = await peersOf(this.#table);
    const isTold = await Promise.all(all.map(({ did }) => this.#speech.mayTell(did)));
    const peers = all.filter(({ isLeaving }, i) => !isLeaving && isTold[i] === true);
    for (const did of this.#peers.keys())
      if (!peers.some((peer) => peer.did === did)) this.#peers.delete(did);
    for (const { did } of peers) {
      if (this.#peers.has(did)) this.#peers.get(did)?.news.wake();
      else void this.#tellLoop(did);
    }
    this.#progress.release();
    await this.#hearEarly();
  }

  // --------------------------------------------------------------------------------------- telling

  get isSyncing(): boolean {
    return this.#isBehind(this.#logged);
  }

  #isBehind(number: number): boolean {
    return [...this.#peers.values()].some(({ taken, isFailing }) => taken < number && !isFailing);
  }

  /**
   * Resolves when every device's Cache has what was logged until now, refused it,
   * or takes longer than 4 s.
   */
  async synced(): Promise<void> {
    const number = this.#logged;
    const untilMs = performance.now() + devicesWaitMs;
    while (this.#isBehind(number) && performance.now() < untilMs && !this.#signal.aborted)
      await this.#progress.wait(untilMs - performance.now());
  }

  async #tellLoop(did: Did): Promise<void> {
    const peer: SyncPeer = {
      news: new Wakeup(),
      taken: 0,
      isFailing: false,
      isAsking: false,
      askedMs: Number.NEGATIVE_INFINITY,
      tried: [],
    };
    this.#peers.set(did, peer);
    // What a Cache didn't keep so long is asked for.
    this.#ask(did, settleMs);
    for (let failures = 0; !this.#signal.aborted && this.#peers.get(did) === peer; ) {
      peer.news.begin();
      const result = await attempt(() => this.#tellOnce(did, peer));
      peer.isFailing = result instanceof ClientError;
      this.#progress.release();
      failures = peer.isFailing ? failures + 1 : 0;
      if (result === false) await attempt(() => this.#tellOfKeys(did));
      // The log keeps what can't be sent now.
      if (result !== true)
        await peer.news.next(failures === 0 ? minuteMs : backoffMs(failures), this.#signal);
    }
  }

  /**
   * Who has not acknowledged this keyring is told at each start, by what it is
   * asked then, and once a day.
   */
  async #tellOfKeys(did: Did): Promise<void> {
    const row = await this.#replica.peer(did);
    const nowMs = this.#own.nowMs();
    if (row === null || (row.acked ?? "") === (await this.#speech.stamp())) return;
    const { toldMs } = row;
    if (toldMs !== undefined && nowMs - toldMs < dayMs) return;
    await this.#replica.change(did, (one) => ({ ...one, toldMs: nowMs }));
    // The start has asked already.
    if (toldMs !== undefined) this.#ask(did, 0);
  }

  /** Sends what it is offered. `false` when it has everything. */
  async #tellOnce(did: Did, state: SyncPeer): Promise<boolean> {
    const logged = this.#logged;
    const offer = await this.#replica.offer(did);
    if (offer === null || offer.at === null) state.taken = logged;
    // New keys are not for a device that is removed meanwhile.
    if (offer === null || (await this.#replica.peer(did)) === null) return false;
    const { items, after, at, part } = offer;
    const tried = state.tried.filter((one) => one > after).slice(-triedMax);
    if (at !== null) state.tried = [...tried, at];
    if (part !== null) await this.#send(did, { v: 1, items, part });
    if (at !== null) await this.#send(did, { v: 1, items, after, at, tried });
    for (const row of offer.messages) await this.#giveContent(did, row, contentBytesMax);
    await this.#replica.acknowledge(did, offer);
    return true;
  }

  /** `retries` where nothing else repeats it. */
  async #send(did: Did, message: SyncMessage, retries = 0): Promise<void> {
    const items = "at" in message ? message.items : [];
    const hasNews = items.some(({ is, row }) => is === "m" && !row.isOwn);
    const { acked = "" } = (await this.#replica.peer(did)) ?? {};
    const sealed = await this.#speech.seal(did, message, acked);
    await this.#mail.send(did, sealed, {
      mediaType: hasNews ? newsType : syncType,
      receipt: false,
      retries,
    });
  }

  async #giveContent(did: Did, row: MessageRow | null, bytesMax: number): Promise<void> {
    if (row === null || row.sizeBytes > bytesMax) return;
    const sent = await attempt(async () => {
      const source = await pieceSource(this.#table, row);
      if (source === null) return;
      const sealed = await sealedContent(this.#speech.contentKey({ to: did }, row), source);
      await this.#mail.send(did, sealed, { replyTo: row.id, receipt: false, retries: 0 });
    });
    // What was removed, or is too much for its Cache, stays where it is.
    if (sent instanceof ClientError && isTemporary(sent)) throw sent;
  }

  // --------------------------------------------------------------------------------------- hearing

  /** A message from anybody: applied when a device sent it, and then acknowledged. */
  async #take(fill: Fill): Promise<ReadMessage> {
    const heard: { did?: Did; json?: unknown; sentMs?: number } = {};
    const content: { opener?: ContentOpener } = {};
    const rows = async (batch: Batch, body: Body, { from, verified, ...read }: ReadMessage) => {
      if (from === null || verified !== true) return null;
      if (read.mediaType === contentType) {
        const isWhole = content.opener?.isBroken === false;
        const isPeer = isWhole && (await this.#replica.peer(from)) !== null;
        return isPeer ? takeContent(this.#table, batch, body, { from, verified, ...read }) : null;
      }
      // One that is not a device so far may bring a head that lists it.
      if ([syncType, newsType].includes(read.mediaType) && read.sizeBytes <= messageBytesMax)
        Object.assign(heard, {
          ...{ did: from, sentMs: read.sentMs },
          json: jsonIn(await wholeBody(this.#table, body)),
        });
      return null;
    };
    const opened = (write: Write) => this.#fillOpened(fill, write, content);
    const { filled, saved } = await saveContent(this.#table, this.#own.nowMs, {
      fill: opened,
      rows,
    });
    if (saved !== null) this.#own.announce(stateChange(saved));
    const { did, json, sentMs = 0 } = heard;
    if (did !== undefined) await this.#hearing(did, () => this.#hear(did, json, sentMs));
    return filled;
  }

  /**
   * Content is written as it is opened; what this device can't open is dropped, and asked
   * for when somebody reads it.
   */
  async #fillOpened(
    fill: Fill,
    write: Write,
    content: { opener?: ContentOpener },
  ): Promise<ReadMessage> {
    const filled = await fill(async (data, facts) => {
      if (facts.mediaType !== contentType || facts.from === null) return write(data);
      const message = { id: facts.replyTo ?? "", digest: facts.name };
      content.opener ??= new ContentOpener(this.#speech.contentKey({ from: facts.from }, message));
      await write(content.opener.push(data));
    });
    const rest = content.opener?.end();
    if (rest !== undefined) await write(rest);
    return filled;
  }

  async #hear(did: Did, json: unknown, sentMs: number): Promise<void> {
    const { said, theirs, isEarly } = await this.#speech.open(did, json);
    await this.#hearOfKeys(did, theirs);
    if (!isEarly) return this.#hearSaid(did, said, sentMs);
    if (this.#early.length < earlyMax) this.#early.push({ did, said, sentMs });
  }

  /** What came before the new keys did. */
  async #hearEarly(): Promise<void> {
    if (this.#early.length === 0 || (await this.#speech.isBehind())) return;
    for (const { did, said, sentMs } of this.#early.splice(0))
      void this.#hearing(did, async () => {
        if ((await this.#replica.peer(did)) === null) await this.#applyRemoved(said, sentMs);
        else await this.#hearSaid(did, said, sentMs);
      });
  }

  /**
   * Of a device that was removed: what it had passed on, and no choice later than
   * one that was made since.
   */
  async #applyRemoved(said: unknown, sentMs: number): Promise<void> {
    const items = isRecord(said) && Array.isArray(said["items"]) ? said["items"] : [];
    for (const item of items) await this.#apply(item as Item, sentMs - postdatedMs);
  }

  async #hearSaid(did: Did, said: unknown, sentMs: number): Promise<void> {
    const { seen = null } = (await this.#replica.peer(did)) ?? {};
    const { v, items, after = seen, at = null, ...more } = isRecord(said) ? said : {};
    const { tried, have, want, part, lacks } = more;
    if (v !== 1 || seen === null) return;
    const isKnown =
      !isInteger(after) || after >= seen || (Array.isArray(tried) && tried.includes(seen));
    if (isInteger(have)) {
      await this.#goTo(did, have);
      if (!isKnown) this.#ask(did, askMs);
    }
    if (typeof lacks === "string") await this.#giveKeys(did, lacks);
    if (isRecord(want)) await this.#give(did, String(want["id"]), want["digest"]);
    if (!Array.isArray(items) || !isInteger(after) || (isInteger(at) && at <= seen)) return;
    if (after > seen) return this.#ask(did, askMs);
    // It does not know what it has sent: its store is an older copy, which
    // lacks that, and what it got.
    if (!isKnown) await queueHistory(this.#table, did, this.#signal);
    for (const item of items) await this.#apply(item, sentMs);
    if (isInteger(at)) await this.#replica.change(did, (row) => ({ ...row, seen: at }));
    if (isPart(part) && (await hearPart(this.#table, part, items.some(isMark)))) this.onFacts();
    this.#peers.get(did)?.news.wake();
  }

  async #goTo(did: Did, have: number): Promise<void> {
    const peer = this.#peers.get(did);
    const sent = await this.#replica.request(did, have, peer?.tried ?? []);
    if (sent !== null && have < sent) peer?.tried.push(sent);
    peer?.news.wake();
  }

  /**
   * Who knows another keyring receives this one, or sends its own: at once when it says something
   * new, and then once a minute.
   */
  async #hearOfKeys(did: Did, theirs: string): Promise<void> {
    const [row, peer] = [await this.#replica.peer(did), this.#peers.get(did)];
    if (row === null || peer === undefined) return;
    const isNew = theirs !== (row.acked ?? "");
    if (isNew) await this.#replica.change(did, (one) => ({ ...one, acked: theirs }));
    if (theirs === (await this.#speech.stamp())) return;
    if (!isNew && performance.now() - peer.askedMs < minuteMs) return;
    this.#ask(did, askMs);
  }

  /** One that can't be applied is left out. */
  async #apply(item: unknown, sentMs: number): Promise<void> {
    try {
      const change = await this.#replica.apply(item, sentMs);
      if (change !== null) this.#own.announce(change);
    } catch (error) {
      if (error instanceof ClientError) throw error;
    }
  }

  /** All keys go with the next message, as to a device that knows none. */
  async #giveKeys(did: Did, publicKey: string): Promise<void> {
    if (!(await this.#speech.holds(publicKey))) return;
    await this.#replica.change(did, (row) => ({ ...row, acked: "" }));
    this.#ask(did, 0);
  }

  /** Asks all others for the secret of a published key. */
  async askForKey(publicKey: string): Promise<void> {
    const asked = [...this.#peers.keys()].map(async (did) => {
      const row = await this.#replica.peer(did);
      const tried = this.#peers.get(did)?.tried ?? [];
      if (row === null) return;
      const { seen: have, sent: after } = row;
      await this.#send(did, { v: 1, have, after, tried, lacks: publicKey }, wantRetries);
    });
    await Promise.allSettled(asked);
  }

  async #give(did: Did, id: string, digest: unknown): Promise<void> {
    const { row } = (await messageById(this.#table, id)) ?? { row: null };
    // Who wants it asks again when nothing comes.
    if (row?.digest === digest)
      void attempt(() => this.#giveContent(did, row, Number.POSITIVE_INFINITY));
  }

  /** Asks for content: the device that had it first, or all when that was removed. */
  async want(key: string): Promise<void> {
    const row = await this.#table.get<MessageRow>(key);
    if (row?.body.is !== "elsewhere") return;
    const { id, digest, body } = row;
    const dids = this.#peers.has(body.at) ? [body.at] : [...this.#peers.keys()];
    await Promise.all(
      dids.map((did) => this.#send(did, { v: 1, want: { id, digest } }, wantRetries)),
    );
  }

  /**
   * Says how far this device is: once, where several parts come that don't follow.
   * Again until it could be sent.
   */
  #ask(did: Did, waitMs: number): void {
    const peer = this.#peers.get(did);
    if (peer === undefined || peer.isAsking) return;
    peer.isAsking = true;
    peer.askedMs = performance.now();
    void this.#askLoop(did, peer, waitMs);
  }

  async #askLoop(did: Did, peer: SyncPeer, waitMs: number): Promise<void> {
    await pause(waitMs, this.#signal);
    peer.isAsking = false;
    for (let failures = 1; !this.#signal.aborted && this.#peers.get(did) === peer; failures++) {
      const sent = await attempt(async () => {
        const row = await this.#replica.peer(did);
        if (row === null) return;
        await this.#send(did, { v: 1, have: row.seen, after: row.sent, tried: peer.tried });
      });
      // Nothing else would make the other device send what this one lacks.
      if (!(sent instanceof ClientError)) return;
      await pause(backoffMs(failures), this.#signal);
    }
  }
}

/**
 * What a device says, before it is sealed. Changes follow `after` and lead to `at`, and the other
 * may have heard up to one of `tried`; rows of its history stand alone. `have`: how far it has the
 * other's changes; `lacks`: a published key whose secret it lacks.
 */
type SyncMessage =
  | Readonly<{ v: 1; items: readonly Item[]; after: number; at: number; tried: readonly number[] }>
  | { readonly v: 1; readonly items: readonly Item[]; readonly part: Part }
  | Readonly<{ v: 1; have: number; after: number; tried: readonly number[]; lacks?: string }>
  | { readonly v: 1; readonly want: Pick<MessageRow, "id" | "digest"> };
