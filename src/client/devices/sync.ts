/**
 * Devices of one identity keep one another up to date by sealed messages between their own DIDs, of which nodes know
 * nothing. Each device numbers what happens there and keeps that for 30 days; another that missed a part says how far it
 * is and gets the rest, or all that there is where the log doesn't reach back so far. Items merge by their content, so what
 * comes again changes nothing. A message is acknowledged when the other devices' Caches have it.
 * Source: docs/client.md "Devices".
 */
import type { Did } from "../../core/codec/did.ts";
import { dayMs, hourMs, minuteMs, secondMs } from "../../core/codec/time.ts";
import { Waiters } from "../../core/std/bounded.ts";
import type { Client } from "../client.ts";
import { Wakeup } from "../connections.ts";
import { type Content, syncType } from "../content.ts";
import { attempt, backoffMs, ClientError, pause } from "../http.ts";
import type { Identity } from "../keys.ts";
import type { Message } from "../message.ts";
import type { MessageOptions, Sent } from "../send.ts";
import { type DeviceFacts, type MessageRow, type StoreChange, type SyncItem, stateChange } from "../store/rows.ts";
import { logKey, type Table } from "../store/table.ts";
import { dropParts, holdersOf, loadPart, type Part, takePart, type Want } from "./content.ts";
import {
  applyItem,
  type LogPlace,
  loadItem,
  logStart,
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
  readonly lock: () => Promise<void>;
};

/** Another device of this identity. */
export type PeerRow = DeviceFacts & {
  readonly addedMs: number;
  /** The last of its items that was applied here. */
  readonly seen: LogPlace;
  /** The last of the items here that its Cache took; `null` when it gets all of the log, wherever it is. */
  readonly sent: LogPlace | null;
  /** Where its history goes on; `null` when it has all. */
  readonly history: string | null;
  /** It is being removed: nothing is sent to it or heard from it. */
  readonly isLeaving: boolean;
};

/** How far a device is in this run. */
type Peer = {
  readonly news: Wakeup;
  /** The number up to which it was synced, or could not be. */
  tried: number;
  /** It could not be synced the last time: nobody waits for it. */
  isFailing: boolean;
  /** It is about to be asked for what is missing. */
  isAsking: boolean;
  /** When it last named a place that this store does not have. */
  strayedMs: number;
};

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
/** About 64 MiB: an item names a row and does not repeat it. */
const keptItems = 200_000;
/** Parts that come together are missed together. */
const askMs = secondMs;
/** How long what waits in the own Cache may take after a start, before the others are asked. */
const settleMs = 5 * secondMs;
/** Two copies of a store that run at once send all that they have once in this time. */
const strayMs = hourMs;
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
  /** Messages whose content is being fetched, by their keys. */
  readonly #fetching = new Set<string>();
  /** Of which device a part was asked, by its message, and who waits for it. */
  readonly #wanted = new Map<string, Want & { readonly did: Did; readonly resolve: (part: Part) => void }>();
  readonly #progress = new Waiters();
  #logged: number;

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
    this.#signal.addEventListener("abort", () => this.#progress.release());
    await this.refresh();
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
    this.#progress.release();
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
      await this.#progress.wait(untilMs - performance.now());
  }

  #synced(peer: Peer, number: number): void {
    peer.tried = Math.max(peer.tried, number);
    this.#progress.release();
  }

  async #tellLoop(did: Did): Promise<void> {
    const begun = { tried: 0, isFailing: false, isAsking: false, strayedMs: Number.NEGATIVE_INFINITY };
    const peer: Peer = { news: new Wakeup(), ...begun };
    this.#peers.set(did, peer);
    for (let failures = 0; !this.#signal.aborted && this.#peers.get(did) === peer; ) {
      const logged = this.#logged;
      peer.news.begin();
      const result = await attempt(() => this.#tellOnce(did, peer));
      peer.isFailing = result instanceof ClientError;
      if (result === true) {
        failures = 0;
        continue;
      }
      // Nothing is left for it, or it can't be synced now: the log keeps it, and nobody waits.
      failures = result instanceof ClientError ? failures + 1 : 0;
      this.#synced(peer, logged);
      await peer.news.next(failures === 0 ? minuteMs : backoffMs(failures), this.#signal);
    }
  }

  /** Sends the next part of the log, or of the history when there is none. `false` when it has both. */
  async #tellOnce(did: Did, state: Peer): Promise<boolean> {
    const peer = await this.#table.get<PeerRow>(peerKey(this.#table, did));
    if (peer === null || peer.isLeaving) return false;
    const from = (peer.sent?.number ?? 0) + 1;
    const rows = await this.#table.scan<LogRow>({ prefix: "y/", from: logKey(from), limit: itemsMax });
    if (rows[0] === undefined) {
      this.#synced(state, from - 1);
      return peer.history !== null && this.#tellHistory(peer, peer.history);
    }
    const first = numberOf(rows[0][0]);
    if (peer.sent !== null && first > from) {
      // What is forgotten may be missing there.
      await this.#change(did, { history: "", sent: null }, peer);
      return true;
    }
    // What a clock has removed ends a part.
    const end = rows.findIndex(([key], i) => numberOf(key) !== first + i);
    const items = await this.#load(rows.slice(0, end < 0 ? rows.length : end).map(([, { item }]) => item));
    const sent = { mark: rows[items.length - 1]?.[1].mark ?? "", number: first + items.length - 1 };
    // Keys are logged with the mark of the device that they are not for: it is read again behind them.
    const now = await this.#table.get<PeerRow>(peerKey(this.#table, did));
    if (now === null || now.isLeaving) return false;
    await this.#send(did, { v: 1, items, after: peer.sent, at: sent });
    await this.#change(did, { sent }, peer);
    this.#synced(state, sent.number);
    return true;
  }

  async #tellHistory(peer: PeerRow, from: string): Promise<true> {
    const { items, next } = await readHistory(this.#table, from);
    const history = await this.#load(items.map(({ item }) => item));
    if (history.length > 0) await this.#send(peer.did, { v: 1, items: history, after: null, at: null });
    // What did not fit is first in the next part.
    await this.#change(peer.did, { history: items[history.length]?.place ?? next }, peer);
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
    const items = "items" in message && message.at !== null ? message.items : [];
    const hasNews = items.some((item) => item.kind === "message" && !item.row.isOwn);
    const mediaType = hasNews ? newsType : syncType;
    await this.#host.link.send(did, message, { mediaType, receipt: false, retries });
  }

  /** With `since`: unless it was set back meanwhile. */
  #change(did: Did, change: Partial<PeerRow>, since?: PeerRow): Promise<void> {
    return this.#table.change(async (batch) => {
      const row = await batch.get<PeerRow>(peerKey(this.#table, did));
      const isMoved = since && (row?.sent?.number !== since.sent?.number || row?.history !== since.history);
      if (row !== null && !isMoved) batch.put(peerKey(this.#table, did), { ...row, ...change });
    });
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
    if ("have" in message) return this.#goBack(peer, message.have);
    if ("want" in message) {
      const { want } = message;
      const part = async () => this.#send(did, { v: 1, part: await loadPart(this.#table, want) }, contentRetries);
      // Its reader asks again when nothing comes.
      await attempt(part);
      return;
    }
    if ("part" in message) {
      const wanted = this.#wanted.get(message.part.id);
      // Who was asked before may answer again.
      if (wanted?.did === did && wanted.from === message.part.from) wanted.resolve(message.part);
      // Over a slow line it comes late: who asks again goes on behind it.
      if (wanted === undefined) await attempt(() => takePart(this.#table, message.part));
      return;
    }
    const { items, after, at } = message;
    const isBehind = ({ mark, number }: LogPlace) => mark === peer.seen.mark && number <= peer.seen.number;
    if (at !== null && isBehind(at)) return;
    // What is missing before it is asked for.
    if (after !== null && !isBehind(after)) return this.#ask(did);
    for (const item of items) await this.#apply(did, item);
    if (at !== null) await this.#change(did, { seen: at });
  }

  /**
   * Another device has this log up to a place, and lacks what follows; with `null` it lacks all that there is. A place that
   * isn't here was forgotten, or this store was set back and lacks what its later copy has sent there.
   */
  async #goBack({ did, sent }: PeerRow, have: LogPlace | null): Promise<void> {
    const state = this.#peers.get(did);
    if (state === undefined) return;
    const isHere = have !== null && (await placeOf(this.#table, have.number))?.mark === have.mark;
    if (isHere && sent !== null && have.number >= sent.number) return;
    if (have !== null && !isHere) {
      if (performance.now() - state.strayedMs < strayMs) return;
      state.strayedMs = performance.now();
      await this.#send(did, { v: 1, have: null });
    }
    await this.#change(did, isHere ? { sent: have } : { history: "", sent: null });
    state.news.wake();
  }

  async #apply(did: Did, item: SentItem): Promise<void> {
    if (item.kind === "keys" || item.kind === "devices") await this.#host.take(item, did);
    const change = await applyItem(this.#host, item);
    if (change !== null) this.#host.tell(change);
  }

  // ------------------------------------------------------------------------------------------- large content

  /** Fetches content that another device has, and says when it is whole, no device has it, or it may be asked for again. */
  async want(key: string): Promise<void> {
    if (this.#fetching.has(key)) return;
    this.#fetching.add(key);
    const result = await attempt(() => this.#fetch(key));
    this.#fetching.delete(key);
    if (result instanceof ClientError && result.code === "store_full") {
      await attempt(() => dropParts(this.#table, key, { isGone: false }));
      this.#host.tell({ type: "store_full" });
    }
    const row = await this.#table.get<MessageRow>(key);
    if (row !== null) this.#host.tell(stateChange(row));
  }

  async #fetch(key: string): Promise<void> {
    const read = () => this.#table.get<MessageRow>(key);
    const devices = (await peersOf(this.#table)).filter(({ isLeaving }) => !isLeaving).map(({ did }) => did);
    let row = await read();
    for (const did of row?.body.is === "elsewhere" ? holdersOf(row.body.at, devices) : [])
      for (let isThere = true; isThere; row = await read()) {
        if (row?.body.is !== "elsewhere") return;
        const part = await this.#askPart(did, { id: row.id, digest: row.digest, from: row.body.sizeBytes });
        // It is away, or its answer was lost.
        if (part === null) return;
        isThere = await takePart(this.#table, part);
      }
    await dropParts(this.#table, key, { isGone: true });
  }

  async #askPart(did: Did, want: Want): Promise<Part | null> {
    const { promise, resolve } = Promise.withResolvers<Part>();
    const answered = new AbortController();
    this.#wanted.set(want.id, { ...want, did, resolve });
    try {
      await this.#send(did, { v: 1, want }, contentRetries);
      const late = pause(this.#host.answerMs, AbortSignal.any([answered.signal, this.#signal]));
      return await Promise.race([promise, late.then(() => null)]);
    } finally {
      answered.abort();
      this.#wanted.delete(want.id);
    }
  }

  /** What a Cache didn't keep so long is asked for. */
  async #askAll(): Promise<void> {
    await pause(settleMs, this.#signal);
    for (const did of this.#peers.keys()) this.#ask(did);
  }

  /** Says how far this device is: once, where several parts come that don't follow. */
  #ask(did: Did): void {
    const peer = this.#peers.get(did);
    if (peer === undefined || peer.isAsking) return;
    peer.isAsking = true;
    void attempt(async () => {
      await pause(askMs, this.#signal);
      peer.isAsking = false;
      const row = await this.#table.get<PeerRow>(peerKey(this.#table, did));
      if (row !== null && !this.#signal.aborted) await this.#send(did, { v: 1, have: row.seen });
    });
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
  const row = number === 0 ? logStart : await table.get<LogRow>(logKey(number));
  return row === null ? null : { mark: row.mark, number };
}

const numberOf = (key: string): number => Number(key.slice("y/".length));
