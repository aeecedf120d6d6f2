/**
 * The rows of one identity in a local store: sealed, counted and bounded, changed by one writer at
 * a time. Values are JSON or bytes under ChaCha20-Poly1305, bound to their keys; names in keys are
 * keyed hashes, so that a copy of the store shows how much there is and when, not who.
 * Source: docs/client.md "A local store", RFC 8439.
 */

import { sha256 } from "#sha256";
import { concatBytes, decodeUtf8, encodeHex, utf8 } from "../../core/codec/bytes.ts";
import { Mutex } from "../../core/std/order.ts";
import { attempt, ClientError, localError, pause } from "../base/failure.ts";
import { hkdf, openBytes, sealBytes } from "../keys/crypto.ts";
import { storeFailure } from "../keys/key-stores.ts";
import type { Range, StoreDriver } from "./driver.ts";
import { after, endOf, leavesLog, logKey, placeInLog, rowsOf } from "./keys.ts";
import { keptGroup, keptPerson } from "./person-shape.ts";

/** Of what the rows mean. A later version upgrades them when it opens the store. */
const layout = 1;

type Meta = {
  readonly layout: number;
  /** The identity's registration was seen settled: it opens without a Directory. */
  readonly isSettled: boolean;
  readonly bytes: number;
  /** Time of the last message sent. */
  readonly sentMs: number;
  /** The DID of this device, once there are others. */
  readonly deviceDid: string;
  /** There are other devices, so changes are logged for them; and the number of the last one. */
  readonly hasDevices: boolean;
  readonly logged: number;
};

const noMeta = {
  layout,
  isSettled: false,
  bytes: 0,
  sentMs: 0,
  deviceDid: "",
  hasDevices: false,
  logged: 0,
};

/** A store that goes on from an older copy of itself uses no number twice. */
const numbersPerMs = 1_000;

export type TableScan = Partial<Range> & { readonly prefix: string };

export class Table {
  readonly driver: StoreDriver;
  /** Begins every key: another identity, and one made anew under the same name, has other rows. */
  readonly place: string;
  /**
   * Removes what is worth least; `false` when nothing is left to remove,
   * which is news the first time.
   */
  makeRoom: (isNews: boolean) => Promise<boolean> = async () => false;
  #isFull = false;
  /** Called with changes for own devices. */
  onLogged: (number: number) => void = () => undefined;
  readonly #nameKey: Uint8Array;
  readonly #sealKey: Uint8Array;
  readonly #nowMs: () => number;
  readonly #changing = new Mutex();
  #isClosed = false;

  private constructor(driver: StoreDriver, storeKey: Uint8Array, nowMs: () => number) {
    this.driver = driver;
    this.#nowMs = nowMs;
    this.#nameKey = hkdf(storeKey, null, utf8("waypost:store:name"), 32);
    this.#sealKey = hkdf(storeKey, null, utf8("waypost:store:seal"), 32);
    this.place = `${this.name("identity").slice(0, 16)}/`;
  }

  /** Throws `store_newer` when a later version of the SDK has upgraded the store. */
  static async open(
    driver: StoreDriver,
    storeKey: Uint8Array,
    nowMs: () => number = Date.now,
  ): Promise<Table> {
    const table = new Table(driver, storeKey, nowMs);
    const meta = await table.meta();
    if (meta.layout > layout)
      throw localError("store_newer", "a later version of this program has upgraded the store");
    return table;
  }

  async meta(): Promise<Meta> {
    return (await this.get<Meta>("meta")) ?? noMeta;
  }

  /** The same text for the same name, from which no one without the store key learns the name. */
  name(text: string): string {
    return encodeHex(sha256(concatBytes(this.#nameKey, utf8(text))).subarray(0, 16));
  }

  async get<T>(key: string): Promise<T | null> {
    const bytes = await this.bytes(key);
    return bytes === null ? null : parseRow<T>(key, bytes);
  }

  async bytes(key: string): Promise<Uint8Array | null> {
    const sealed = await this.sealed(key);
    return sealed === null ? null : this.open(key, sealed);
  }

  /** As the driver has it. */
  sealed(key: string): Promise<Uint8Array | null> {
    return this.#guard(() => this.driver.read(this.place + key));
  }

  /** Values of keys that begin with `prefix`; `from` and `to` are whole keys. */
  async scan<T>(scan: TableScan): Promise<[key: string, value: T][]> {
    return (await this.#rows<T>(scan)).flatMap(([key, row]) => (row === null ? [] : [[key, row]]));
  }

  /** With `null` for a row that can't be read. */
  async #rows<T>({
    prefix,
    from,
    to,
    limit = 1_000,
    isReverse = false,
  }: TableScan): Promise<[key: string, value: T | null][]> {
    const range = {
      from: this.place + (from ?? prefix),
      to: this.place + (to ?? endOf(prefix)),
      limit,
      isReverse,
    };
    const rows = await this.#guard(() => this.driver.scan(range));
    return rows.map(([key, sealed]) => {
      const name = key.slice(this.place.length);
      return [name, parseRow<T>(name, this.open(name, sealed))];
    });
  }

  /**
   * All values below a prefix, page by page; with `begin` from that key on. A page is empty where
   * none of its rows can be read.
   */
  async *pages<T>(prefix: string, begin = prefix): AsyncGenerator<[key: string, value: T][]> {
    for (let from = begin; ; ) {
      const rows = await this.#rows<T>({ prefix, from });
      const last = rows.at(-1);
      if (last === undefined) return;
      yield rows.flatMap(([key, row]) => (row === null ? [] : [[key, row]]));
      from = after(last[0]);
    }
  }

  async *all<T>(prefix: string, begin = prefix): AsyncGenerator<[key: string, value: T]> {
    for await (const page of this.pages<T>(prefix, begin)) yield* page;
  }

  async values<T>(prefix: string): Promise<T[]> {
    const values: T[] = [];
    for await (const [, value] of this.all<T>(prefix)) values.push(value);
    return values;
  }

  /** Removes what is over below a prefix: page by page, so that nothing else waits for long. */
  async sweep<T>(
    prefix: string,
    isOver: (value: T) => boolean,
    signal: AbortSignal,
  ): Promise<void> {
    for await (const page of this.pages<T>(prefix)) {
      const over = page.filter(([, value]) => isOver(value));
      await this.change(async (batch) => {
        for (const [key] of over) batch.delete(key);
      });
      await pause(0, signal);
      if (signal.aborted) return;
    }
  }

  /**
   * One change after the other, in all tabs; what the work writes is applied
   * together, or not at all.
   */
  change<T>(work: (batch: Batch) => Promise<T>): Promise<T> {
    return this.#changing.run(() => this.#exclusive(() => this.#apply(work)));
  }

  /**
   * Ends the changes under way. What comes later fails, since the driver would open its file again.
   */
  async close(): Promise<void> {
    await this.#changing.run(async () => {
      this.#isClosed = true;
      await this.driver.close();
    });
  }

  /** A change with new content: room is made for it, and there is a bound. Throws `store_full`. */
  async add<T>(work: (batch: Batch) => Promise<T>): Promise<T> {
    const bounded = (batch: Batch) => {
      batch.isBounded = true;
      return work(batch);
    };
    for (;;) {
      const added = await attempt(() => this.change(bounded));
      const isLacking = added instanceof ClientError && added.code === "store_full";
      if (isLacking && (await this.makeRoom(!this.#isFull))) continue;
      this.#isFull = isLacking;
      if (added instanceof ClientError) throw added;
      return added;
    }
  }

  async #apply<T>(work: (batch: Batch) => Promise<T>): Promise<T> {
    const batch = new Batch(this);
    const [result, meta] = await Promise.all([work(batch), this.meta()]);
    const logged =
      (batch.meta.hasDevices ?? meta.hasDevices)
        ? await this.#log(batch, meta.logged)
        : meta.logged;
    if (batch.rows.size === 0 && Object.keys(batch.meta).length === 0) return result;
    const sealed = [...batch.rows].map(
      ([key, value]) => [key, value && this.#seal(key, value)] as const,
    );
    const more = sealed.map(
      async ([key, value]) => rowBytes(key, value) - rowBytes(key, await batch.before(key)),
    );
    const bytes = (await Promise.all(more)).reduce((sum, one) => sum + one, meta.bytes);
    if (batch.isBounded && bytes > Math.max(meta.bytes, this.driver.bytesMax))
      throw localError("store_full", "the local store has no room for more");
    const counted: Meta = { ...meta, ...batch.meta, bytes, logged };
    const rows = [...sealed, ["meta", this.#seal("meta", render(counted))] as const];
    await this.#guard(() =>
      this.driver.apply(rows.map(([key, value]) => [this.place + key, value])),
    );
    if (logged > meta.logged) this.onLogged(logged);
    return result;
  }

  /**
   * A row stands in the log once, behind all that changed before; one that was removed does not.
   */
  async #log(batch: Batch, last: number): Promise<number> {
    let logged = last;
    for (const [key, isLogged] of batch.logged) {
      const place = placeInLog(key);
      const before = await batch.get<number>(place);
      if (before !== null) batch.delete(logKey(before));
      if (!isLogged) {
        if (before !== null) batch.delete(place);
        continue;
      }
      logged = Math.max(this.#nowMs() * numbersPerMs, logged + 1);
      batch.put(logKey(logged), key);
      batch.put(place, logged);
    }
    return logged;
  }

  #exclusive<T>(work: () => Promise<T>): Promise<T> {
    const { sharedAs } = this.driver;
    const locks = sharedAs === null ? undefined : globalThis.navigator?.locks;
    return locks === undefined
      ? work()
      : (locks.request(`waypost:${sharedAs}:write`, work) as Promise<T>);
  }

  #seal(key: string, bytes: Uint8Array): Uint8Array {
    return sealBytes(this.#sealKey, bytes, utf8(this.place + key));
  }

  open(key: string, sealed: Uint8Array): Uint8Array {
    const opened = openBytes(this.#sealKey, sealed, utf8(this.place + key));
    if (opened === null) throw localError("store_unreadable", "a row of the store is damaged");
    return opened;
  }

  async #guard<T>(work: () => Promise<T>): Promise<T> {
    if (this.#isClosed) throw localError("closed", "close() was called");
    try {
      return await work();
    } catch (cause) {
      throw storeFailure("the store", cause);
    }
  }
}

/** What one change reads and writes. */
export class Batch {
  readonly rows = new Map<string, Uint8Array | null>();
  readonly #read = new Map<string, Promise<Uint8Array | null>>();
  /** Keys of rows that own devices get, or that are gone from the log. */
  readonly logged = new Map<string, boolean>();
  meta: Partial<Meta> = {};
  isBounded = false;
  /** It repeats what another device has changed: nothing is logged for the others. */
  isEcho = false;
  readonly #table: Table;

  constructor(table: Table) {
    this.#table = table;
  }

  /** Sealed, and read once: no one else writes during a change. */
  before(key: string): Promise<Uint8Array | null> {
    const before = this.#read.get(key) ?? this.#table.sealed(key);
    this.#read.set(key, before);
    return before;
  }

  /** With what this change has written. */
  async get<T>(key: string): Promise<T | null> {
    const written = this.rows.get(key);
    if (written !== undefined) return written && parseRow<T>(key, written);
    const sealed = await this.before(key);
    return sealed && parseRow<T>(key, this.#table.open(key, sealed));
  }

  put(key: string, value: unknown): void {
    this.rows.set(key, render(value));
  }

  putBytes(key: string, bytes: Uint8Array): void {
    this.rows.set(key, bytes);
  }

  delete(key: string): void {
    this.rows.set(key, null);
    if (leavesLog(key)) this.logged.set(key, false);
  }

  /** Own devices get the row, as it is when it is sent. */
  log(key: string): void {
    if (!this.isEcho) this.logged.set(key, true);
  }
}

const render = (value: unknown): Uint8Array => utf8(JSON.stringify(value));

/**
 * Only this program has the key, so an opened row has the form in which it was written. An earlier
 * version may have stored what a device of a thief had said: of a person such parts are left out
 * here, of a group in `upgradeRow`, and lists leave out what can't be shown. A group that can't be
 * read at all is none (`null`).
 */
function parseRow<T>(key: string, bytes: Uint8Array): T | null {
  const row: unknown = JSON.parse(decodeUtf8(bytes) ?? "null");
  if (key.startsWith(rowsOf.groups)) return keptGroup(row) as T | null;
  return (key.startsWith(rowsOf.people) ? keptPerson(row) : row) as T | null;
}

const rowBytes = (key: string, bytes: Uint8Array | null): number =>
  bytes === null ? 0 : key.length + bytes.length;
