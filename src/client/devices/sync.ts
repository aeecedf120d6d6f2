/**
 * Devices of one identity keep one another up to date by sealed messages between their own DIDs, of which nodes know
 * nothing. Each device numbers what happens there and keeps that for 30 days; another that missed a part says how far it
 * is and gets the rest. So a message is acknowledged when the other devices' Caches have it.
 * Source: docs/client.md "Devices".
 */
import type { Did } from "../../core/codec/did.ts";
import { dayMs, minuteMs, secondMs } from "../../core/codec/time.ts";
import type { Client } from "../client.ts";
import { Wakeup } from "../connections.ts";
import { type Content, syncType } from "../content.ts";
import { attempt, backoffMs, ClientError, pause } from "../http.ts";
import type { Identity } from "../keys.ts";
import type { Message } from "../message.ts";
import type { MessageOptions, Sent } from "../send.ts";
import {
  type DeviceFacts,
  type MessageRow,
  markAsked,
  messageById,
  type StoreChange,
  type SyncItem,
  stateChange,
} from "../store/rows.ts";
import { type Batch, logKey, type Table } from "../store/table.ts";
import { giveUp, holderOf, loadPart, stopAsking, takePart } from "./content.ts";
import {
  applyItem,
  type LogPlace,
  loadItem,
  parseSync,
  readHistory,
  type SentItem,
  type SyncMessage,
} from "./items.ts";

/** The device's own DID, opened without a store. */
export type DeviceLink = {
  readonly did: Did;
  readonly client: Client;
  readonly identity: Identity;
  readonly send: (to: string, content: Content, options: MessageOptions) => Promise<Sent>;
  readonly messages: () => AsyncGenerator<Message, void, undefined>;
  readonly close: () => Promise<void>;
};

/** Another device of this identity. */
export type PeerRow = DeviceFacts & {
  readonly addedMs: number;
  /** The last of its items that was applied here, of each mark; the latest is the last one. */
  readonly seen: readonly LogPlace[];
  /** The last of the items here that its Cache took. */
  readonly sent: number;
  /** Where its history goes on; `null` when it has all. */
  readonly history: string | null;
  /** Two copies of its store were heard of since it got the history. */
  readonly isLacking: boolean;
  /** It is being removed: nothing is sent to it or heard from it. */
  readonly isLeaving: boolean;
  /** The root key that was made for its removal: it never had it. */
  readonly unknownRoot?: string;
};

/** How far a device is in this run. */
type Peer = {
  readonly news: Wakeup;
  /** The number up to which it was synced, or could not be. */
  tried: number;
  /** It could not be synced the last time: nobody waits for it. */
  isFailing: boolean;
  askedMs: number;
};

type Changing = { readonly batch?: Batch; readonly since?: PeerRow };
type LogRow = { readonly item: SyncItem; readonly mark: string; readonly atMs: number };

type SyncHost = {
  readonly table: Table;
  readonly nowMs: () => number;
  readonly tell: (change: StoreChange | { readonly type: "store_full" }) => void;
  /** How long a part of large content may take. */
  readonly answerMs: number;
  readonly link: Pick<DeviceLink, "send" | "messages">;
  /** Keys and devices, which are not rows of the store alone. */
  readonly take: (item: Extract<SyncItem, { kind: "keys" | "devices" }>, from: Did) => Promise<void>;
};

/** Beside `syncType`, which wakes nobody: it has a message that somebody wrote, for which a phone may ring. */
const newsType = "application/vnd.waypost.news+json";
const itemsMax = 100;
const contentRetries = 3;
/** Of one message, unless a single item has more. */
const batchBytes = 524_288;
const keptMs = 30 * dayMs;
/** Runs of a device whose places are remembered: each part names the place before it, so few are needed. */
const marksMax = 32;
/** About 64 MiB: an item names a row and does not repeat it. */
const keptItems = 200_000;
/** Of several copies that are missing the first is asked for, and then none for this long. */
const askMs = 5 * secondMs;
/** How long what waits in the own Cache may take after a start, before the others are asked. */
const settleMs = 5 * secondMs;
/** How long a message waits for the others before it is acknowledged. */
export const toldMs = 4 * secondMs;

export const peerKey = (table: Table, did: string): string => `d/${table.name(did)}`;
/** Of a device that was removed: its DID, for good. */
export const removedKey = (table: Table, did: string): string => `x/${table.name(did)}`;
export const peersOf = (table: Table): Promise<PeerRow[]> => table.values<PeerRow>("d/");

export class Sync {
  readonly #host: SyncHost;
  readonly #table: Table;
  readonly #signal: AbortSignal;
  readonly #peers = new Map<Did, Peer>();
  /** What other devices were asked for, each time anew. */
  readonly #asked = new Map<string, object>();
  #logged: number;
  #waiting: (() => void)[] = [];

  constructor(host: SyncHost, logged: number, signal: AbortSignal) {
    this.#host = host;
    this.#table = host.table;
    this.#signal = signal;
    this.#logged = logged;
    this.#table.onLogged = (number) => {
      this.#logged = Math.max(this.#logged, number);
      for (const { news } of this.#peers.values()) news.wake();
    };
  }

  /** Until the signal: what others send is applied, what happens here is sent. */
  async run(): Promise<void> {
    const receiving = this.#receive();
    await this.refresh();
    for (const key of await this.#table.values<string>("w/")) void attempt(() => this.want(key));
    await Promise.all([receiving, this.#askAll()]);
  }

  /** After devices were added or removed. */
  async refresh(): Promise<void> {
    const peers = (await peersOf(this.#table)).filter(({ isLeaving }) => !isLeaving);
    for (const did of this.#peers.keys()) if (!peers.some((peer) => peer.did === did)) this.#peers.delete(did);
    for (const { did } of peers) {
      if (this.#peers.has(did)) this.#peers.get(did)?.news.wake();
      else void this.#tellLoop(did);
    }
    this.#progress();
  }

  // --------------------------------------------------------------------------------------------------- telling

  get isSyncing(): boolean {
    return this.#isBehind(this.#logged);
  }

  #isBehind(number: number): boolean {
    return [...this.#peers.values()].some(({ tried, isFailing }) => tried < number && !isFailing);
  }

  /** Resolves when every device's Cache has what was logged until now, refused it, or takes longer than 4 s. */
  async synced(): Promise<void> {
    const number = this.#logged;
    const untilMs = performance.now() + toldMs;
    while (this.#isBehind(number) && performance.now() < untilMs && !this.#signal.aborted)
      await Promise.race([new Promise<void>((resolve) => this.#waiting.push(resolve)), pause(toldMs, this.#signal)]);
  }

  #progress(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }

  async #tellLoop(did: Did): Promise<void> {
    const peer: Peer = { news: new Wakeup(), tried: 0, isFailing: false, askedMs: Number.NEGATIVE_INFINITY };
    this.#peers.set(did, peer);
    for (let failures = 0; !this.#signal.aborted && this.#peers.get(did) === peer; ) {
      const logged = this.#logged;
      const woken = peer.news.next(failures === 0 ? minuteMs : backoffMs(failures), this.#signal);
      const result = await attempt(() => this.#tellOnce(did, peer));
      peer.isFailing = result instanceof ClientError;
      if (result === true) {
        failures = 0;
        continue;
      }
      // Nothing is left for it, or it can't be synced now: the log keeps it, and nobody waits.
      failures = result instanceof ClientError ? failures + 1 : 0;
      peer.tried = logged;
      this.#progress();
      await woken;
    }
  }

  /** Sends the next part of history or log. `false` when there is none. */
  async #tellOnce(did: Did, state: Peer): Promise<boolean> {
    const peer = await this.#table.get<PeerRow>(peerKey(this.#table, did));
    if (peer === null || peer.isLeaving) return false;
    if (peer.history !== null) {
      const { items, next } = await readHistory(this.#table, peer.history);
      const history = await this.#load(items.map(({ item }) => item));
      if (history.length > 0) await this.#send(did, { v: 1, history });
      // What did not fit is first in the next part.
      await this.#change(did, { history: items[history.length]?.place ?? next }, { since: peer });
      return true;
    }
    const rows = await this.#table.scan<LogRow>({ prefix: "y/", from: logKey(peer.sent + 1), limit: itemsMax });
    const [first] = rows;
    if (first === undefined) return false;
    const from = numberOf(first[0]);
    const { mark } = first[1];
    // Another mark, or what a clock has removed, ends a part.
    const end = rows.findIndex(([key, row], i) => row.mark !== mark || numberOf(key) !== from + i);
    const items = await this.#load(rows.slice(0, end < 0 ? rows.length : end).map(([, { item }]) => item));
    const after = await placeOf(this.#table, from - 1);
    // Keys are logged with the mark of the device that they are not for: it is read again behind them.
    const now = await this.#table.get<PeerRow>(peerKey(this.#table, did));
    if (now === null || now.isLeaving) return false;
    await this.#send(did, { v: 1, mark, from, after, items });
    const sent = from + items.length - 1;
    await this.#change(did, { sent }, { since: peer });
    state.tried = Math.max(sent, state.tried);
    this.#progress();
    return true;
  }

  /** As many as fit one message, at least one. */
  async #load(items: readonly SyncItem[]): Promise<SentItem[]> {
    const loaded: SentItem[] = [];
    let bytes = 0;
    for (const item of items) {
      const one = await loadItem(this.#table, item);
      bytes += JSON.stringify(one).length;
      if (loaded.length > 0 && bytes > batchBytes) break;
      loaded.push(one);
    }
    return loaded;
  }

  /** `retries` where nothing else repeats it. */
  async #send(did: Did, message: SyncMessage, retries = 0): Promise<void> {
    const items = "items" in message ? message.items : [];
    const hasNews = items.some((item) => item.kind === "message" && !item.row.isOwn);
    const mediaType = hasNews ? newsType : syncType;
    await this.#host.link.send(did, message, { mediaType, receipt: false, retries });
  }

  /** With `since`: unless it was set back meanwhile. */
  #change(did: Did, change: Partial<PeerRow>, { batch, since }: Changing = {}): Promise<void> {
    const work = async (within: Batch) => {
      const row = await within.get<PeerRow>(peerKey(this.#table, did));
      const isMoved = since !== undefined && (row?.sent !== since.sent || row.history !== since.history);
      if (row !== null && !isMoved) within.put(peerKey(this.#table, did), { ...row, ...change });
    };
    return batch === undefined ? this.#table.change(work) : work(batch);
  }

  // ------------------------------------------------------------------------------------------------- hearing

  async #receive(): Promise<void> {
    for await (const message of this.#host.link.messages()) {
      const { from, verified } = message;
      const peer =
        from === null || verified !== true ? null : await this.#table.get<PeerRow>(peerKey(this.#table, from));
      const isSync = [syncType, newsType].includes(message.mediaType) && peer?.isLeaving === false;
      const parsed = !isSync ? null : parseSync(await attempt(async () => message.json()));
      // What only the store keeps from being applied comes again.
      const result = parsed === null || peer === null ? null : await attempt(() => this.#hear(peer.did, parsed));
      if (!(result instanceof ClientError)) await attempt(() => message.ack());
    }
  }

  async #hear(did: Did, message: SyncMessage): Promise<void> {
    const peer = await this.#table.get<PeerRow>(peerKey(this.#table, did));
    if (peer === null) return;
    if ("history" in message) {
      for (const item of message.history) await this.#apply(did, item, null);
      return;
    }
    if ("have" in message) {
      const places = message.have.map(async ({ mark, number }) =>
        (await placeOf(this.#table, number))?.mark === mark ? number : 0,
      );
      const sent = Math.max(0, ...(await Promise.all(places)));
      if (sent >= peer.sent) return;
      await this.#change(did, { sent });
      this.#peers.get(did)?.news.wake();
      return;
    }
    // Its reader asks again when nothing comes.
    if ("want" in message) {
      const { want } = message;
      const part = async () => this.#send(did, { v: 1, part: await loadPart(this.#table, want) }, contentRetries);
      await attempt(part);
      return;
    }
    if ("part" in message) {
      const taken = await attempt(() => takePart(this.#table, message.part));
      const found = await messageById(this.#table, message.part.id);
      if (taken instanceof ClientError) return found === null ? undefined : this.#stopAsking(found.key, taken);
      return taken === null ? undefined : this.want(taken.key, taken.isFit ? { holder: did } : { lacking: did });
    }
    await this.#hearPart(peer, message);
  }

  async #hearPart(peer: PeerRow, { mark, from, after, items }: Extract<SyncMessage, { items: unknown }>) {
    const { did, seen } = peer;
    const seenOf = (one: string) => seen.find((place) => place.mark === one)?.number ?? 0;
    // What is missing before it is asked for, unless the other device has forgotten it.
    if (after !== null && after.number > seenOf(after.mark)) return this.#ask(peer);
    const known = seenOf(mark);
    if (from + items.length - 1 <= known) return;
    // It goes on from another place than the last one here: two copies of its store do, and lack what the other did.
    const last = seen.at(-1);
    const before = known < from ? after : { mark, number: known };
    const isApart = last !== undefined && (before === null ? from === 1 : !isSame(last, before));
    const isLacking = isApart || peer.isLacking;
    // Once for each run: two that run at once would get it again and again.
    if (isLacking && known === 0) {
      await this.#change(did, { history: "", isLacking: false });
      this.#peers.get(did)?.news.wake();
    } else if (isApart) await this.#change(did, { isLacking });
    const others = seen.filter((place) => place.mark !== mark).slice(1 - marksMax);
    for (const [i, item] of items.entries())
      if (from + i > known) await this.#apply(did, item, [...others, { mark, number: from + i }]);
  }

  async #apply(did: Did, item: SentItem, seen: PeerRow["seen"] | null): Promise<void> {
    const mark = async (batch: Batch) => (seen === null ? undefined : this.#change(did, { seen }, { batch }));
    if (item.kind === "keys" || item.kind === "devices") await this.#host.take(item, did);
    const change = await applyItem(this.#host, item, mark);
    if (change !== null) this.#host.tell(change);
  }

  /** Asks for the rest of content that another device has: `holder`, or the next one after that which lacks it. */
  async want(key: string, { holder, lacking }: { readonly holder?: Did; readonly lacking?: Did } = {}): Promise<void> {
    const row = await this.#table.get<MessageRow>(key);
    if (row?.body.is !== "elsewhere") return this.#ended(key);
    const devices = (await peersOf(this.#table)).filter(({ isLeaving }) => !isLeaving).map(({ did }) => did);
    const asked = holder ?? holderOf(row.body.at, devices, lacking);
    if (asked === null) {
      await giveUp(this.#table, key);
      return this.#ended(key);
    }
    if (await markAsked(this.#table, key, true)) this.#host.tell(stateChange(row));
    void this.#awaitPart(key);
    const want = { id: row.id, digest: row.digest, from: row.body.sizeBytes };
    const sent = await attempt(() => this.#send(asked, { v: 1, want }, contentRetries));
    if (sent instanceof ClientError) await this.#stopAsking(key, sent);
  }

  /** The other device may be away, or its answer was lost. What comes later is taken all the same. */
  async #awaitPart(key: string): Promise<void> {
    const turn = {};
    this.#asked.set(key, turn);
    await pause(this.#host.answerMs, this.#signal);
    if (this.#asked.get(key) === turn && !this.#signal.aborted) await this.#stopAsking(key, null);
  }

  async #stopAsking(key: string, why: ClientError | null): Promise<void> {
    const isFull = why?.code === "store_full";
    await attempt(() => stopAsking(this.#table, key, isFull));
    if (isFull) this.#host.tell({ type: "store_full" });
    await this.#ended(key);
  }

  /** It came, it is nowhere, or it may be asked for again. */
  async #ended(key: string): Promise<void> {
    this.#asked.delete(key);
    const row = await this.#table.get<MessageRow>(key);
    if (row !== null) this.#host.tell(stateChange(row));
  }

  /** What a Cache didn't keep so long is asked for. */
  async #askAll(): Promise<void> {
    await pause(settleMs, this.#signal);
    if (this.#signal.aborted) return;
    for (const peer of await peersOf(this.#table)) await attempt(() => this.#ask(peer));
  }

  async #ask({ did, seen }: PeerRow): Promise<void> {
    const peer = this.#peers.get(did);
    if (peer === undefined || performance.now() - peer.askedMs < askMs) return;
    peer.askedMs = performance.now();
    await this.#send(did, { v: 1, have: seen });
  }

  /** Forgets items that are older than 30 days, or too many. */
  async sweep(): Promise<void> {
    const oldMs = this.#host.nowMs() - keptMs;
    for (;;) {
      const rows = await this.#table.scan<{ atMs: number }>({ prefix: "y/", limit: itemsMax });
      const over = rows.filter(([key, { atMs }]) => atMs < oldMs || numberOf(key) <= this.#logged - keptItems);
      if (over.length === 0) return;
      await this.#table.change(async (batch) => {
        for (const [key] of over) batch.delete(key);
      });
    }
  }
}

/** Of an item in the own log; `null` for one that is forgotten. */
export async function placeOf(table: Table, number: number): Promise<LogPlace | null> {
  const row = await table.get<LogRow>(logKey(number));
  return row === null ? null : { mark: row.mark, number };
}

const isSame = (one: LogPlace, other: LogPlace) => one.mark === other.mark && one.number === other.number;

const numberOf = (key: string): number => Number(key.slice("y/".length));
