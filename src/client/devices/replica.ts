/**
 * The rows that own devices share, as far as each has them. A device is offered what it lacks,
 * acknowledges it when its Cache has it, requests what it has missed, and applies what another one
 * offers; that is not offered again.
 * Source: docs/client.md "Devices".
 */
import type { Did } from "../../core/codec/did.ts";
import type { KeptParts } from "../identity/replacement.ts";
import type { StoreChange } from "../mail/message.ts";
import {
  factsKey,
  historyOf,
  keysKey,
  logKey,
  numberInKey,
  peerKey,
  rowsOf,
} from "../store/keys.ts";
import type { OwnStore } from "../store/own-store.ts";
import type { DeviceFacts, MessageRow } from "../store/rows.ts";
import type { Batch, Table } from "../store/table.ts";
import type { Part } from "./facts.ts";
import { applyItem, type Item, loadItem, parseItem } from "./items.ts";

/** Another device of this identity. */
export type PeerRow = DeviceFacts & {
  readonly addedMs: number;
  /** The number of the last of its changes that was applied here. */
  readonly seen: number;
  /** The number of the last change here that its Cache took. */
  readonly sent: number;
  /** It is being removed: nothing is sent to it, and nothing of it is read. */
  readonly isLeaving: boolean;
  /** While it is being removed: what the user has ticked then. */
  readonly kept?: KeptParts | null;
  /** And which devices stay: one that came after the user had looked is none of them. */
  readonly stays?: readonly Did[];
  /** What it knew of the keyring when it last spoke (`Ring.stamp`). */
  readonly acked?: string;
  /** When it was last told of a keyring that it has not acknowledged. */
  readonly toldMs?: number;
};

/**
 * What a device gets next: changes from `after` up to `at`, or, with `at` null,
 * rows of all that there is.
 */
type Offer = {
  readonly items: readonly Item[];
  readonly after: number;
  readonly at: number | null;
  /** Messages among them, whose content follows. */
  readonly messages: readonly MessageRow[];
  /** In the history, and their numbers. */
  readonly places: readonly string[];
  readonly part: Part | null;
};

const itemsMax = 100;
/** Of one message, unless a single item has more. */
export const batchBytes = 524_288;

export const peersOf = (table: Table): Promise<PeerRow[]> => table.values<PeerRow>(rowsOf.devices);

/** Whether its Cache has all that is here. */
export async function isCurrent(table: Table, { did, sent }: PeerRow): Promise<boolean> {
  const log = table.scan({ prefix: rowsOf.log, from: logKey(sent + 1), limit: 1 });
  const left = await Promise.all([log, table.scan({ prefix: historyOf(table, did), limit: 1 })]);
  return left.flat().length === 0;
}

export class Replica {
  readonly #own: OwnStore;
  readonly #table: Table;
  readonly #mayTell: (did: Did) => Promise<boolean>;

  constructor(own: OwnStore, mayTell: (did: Did) => Promise<boolean>) {
    this.#own = own;
    this.#table = own.table;
    this.#mayTell = mayTell;
  }

  async peer(did: Did): Promise<PeerRow | null> {
    const row = await this.#table.get<PeerRow>(peerKey(this.#table, did));
    return row?.isLeaving === false && (await this.#mayTell(did)) ? row : null;
  }

  async change(did: Did, change: (row: PeerRow, batch: Batch) => PeerRow): Promise<void> {
    const key = peerKey(this.#table, did);
    await this.#table.change(async (batch) => {
      const row = await batch.get<PeerRow>(key);
      if (row !== null) batch.put(key, change(row, batch));
    });
  }

  /**
   * The next changes, or the next rows of all when there are none; `null` when it has everything.
   */
  async offer(did: Did): Promise<Offer | null> {
    const peer = await this.peer(did);
    if (peer === null) return null;
    const { sent: after } = peer;
    const changes = { prefix: rowsOf.log, from: logKey(after + 1), limit: itemsMax };
    const log = await this.#table.scan<string>(changes);
    const all = { prefix: historyOf(this.#table, did), limit: itemsMax };
    const rows = log.length > 0 ? log : await this.#table.scan<string>(all);
    if (rows.length === 0) return null;
    const { items, count } = await this.#load(rows.map(([, key]) => key));
    const next = rows.slice(0, count);
    const messages: MessageRow[] = [];
    for (const [, key] of next) {
      const isMessage = key.startsWith(rowsOf.messages);
      const row = isMessage ? await this.#table.get<MessageRow>(key) : null;
      if (row !== null) messages.push(row);
    }
    const places = next.map(([place]) => place);
    const [first, last] = [numberInKey(places[0] ?? ""), numberInKey(places.at(-1) ?? "")];
    if (log.length > 0) return { items, after, at: last, messages, places: [], part: null };
    return { items, after, at: null, messages, places, part: [first, last] };
  }

  /** As many as fit one message, at least one. */
  async #load(keys: readonly string[]) {
    const items: Item[] = [];
    let [bytes, count] = [0, 0];
    for (const key of keys) {
      // Keys go with each message until they are acknowledged.
      const item = key === keysKey ? null : await loadItem(this.#table, key);
      bytes += JSON.stringify(item).length;
      if (items.length > 0 && bytes > batchBytes) break;
      if (item !== null) items.push(item);
      count++;
      if (key === factsKey) break;
    }
    return { items, count };
  }

  /** The device's Cache has what was offered. */
  async acknowledge(did: Did, { after, at, places }: Offer): Promise<void> {
    if (at === null)
      await this.#table.change(async (batch) => {
        for (const place of places) batch.delete(place);
      });
    // Unless it was set back meanwhile.
    else await this.change(did, (row) => (row.sent === after ? { ...row, sent: at } : row));
  }

  /**
   * A device has the changes here up to `have`: the rest is offered again. When it has more than it
   * was sent, and `tried` does not explain that, this store is an older copy: a change says so.
   * Returns up to where it was sent until now.
   */
  async request(did: Did, have: number, tried: readonly number[]): Promise<number | null> {
    let sent: number | null = null;
    await this.change(did, (row, batch) => {
      ({ sent } = row);
      if (have > row.sent && !tried.includes(have)) batch.log(peerKey(this.#table, did));
      return { ...row, sent: Math.min(row.sent, have) };
    });
    return sent;
  }

  /**
   * Takes a row of another device, said at that time, which is not offered from
   * here. Returns what changed.
   */
  async apply(json: unknown, saidMs: number): Promise<StoreChange | null> {
    const item = parseItem(json);
    if (item === null) return null;
    if (item.is === "z") await this.#own.onEvidence(item.row);
    if (item.is === "g") return this.#own.onGroup(item.row);
    // Neither clock alone: who has one that is behind takes what others have chosen as it is.
    const nowMs = Math.max(this.#own.nowMs(), this.#own.arrivalMs());
    return applyItem(this.#table, item, nowMs, saidMs);
  }
}
