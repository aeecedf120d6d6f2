/**
 * Several databases as one store. A key (of a mailbox, a claim, a receipt) belongs to one of 1,024
 * places by the hash of the DID that it names, and each place is in one shard: a schema of a
 * database. An operation touches one place, so there is no transaction between databases. A shard's
 * own table `place` lists its places, and every read and write checks it: what a node remembers of
 * it may be old. A miss queries every shard, then retries.
 */

import { late, withDeadline } from "../../core/std/bounded.ts";
import { type Mailbox, type Receipts, type Replay, StoreError } from "../../storage/contract.ts";
import { StatementError } from "./connection.ts";
import type { Pool } from "./pool.ts";
import { placeOf, placeOfReceipt } from "./records.ts";

const elsewhereCode = "WP002";

function isElsewhere(error: unknown): boolean {
  return (
    error instanceof StoreError &&
    error.cause instanceof StatementError &&
    error.cause.code === elsewhereCode
  );
}

// ------------------------------------------------------------------------------------------ shards

type Sharded = { readonly mailbox: Mailbox; readonly replay: Replay; readonly receipts: Receipts };

/** A database of the store. One that is away when the node starts is opened when it is back. */
export class Shard {
  private opened: Promise<Sharded> | null = null;

  constructor(
    readonly name: string,
    readonly pool: Pool,
    private readonly open: () => Promise<Sharded>,
  ) {}

  parts(): Promise<Sharded> {
    this.opened ??= this.open().catch((error: unknown) => {
      this.opened = null;
      throw error;
    });
    return this.opened;
  }

  async run<T>(call: (parts: Sharded) => Promise<T>): Promise<T> {
    return call(await this.parts());
  }
}

// ------------------------------------------------------------------------------------------ places

type PlaceState = {
  readonly state: "here" | "leaving" | "gone" | "arriving";
  readonly move: string;
};
export type PlaceTable = ReadonlyMap<number, PlaceState>;

export async function readPlaces({ pool }: Pick<Shard, "pool">): Promise<PlaceTable> {
  const rows = await pool.query(
    "select state, move::text as move, string_agg(no::text, ',') as nos from {s}.place group by state, move",
  );
  const found = new Map<number, PlaceState>();
  for (const row of rows) {
    const state = { state: row["state"], move: String(row["move"] ?? "") } as PlaceState;
    for (const no of String(row["nos"]).split(",")) found.set(Number(no), state);
  }
  return found;
}

/**
 * A place whose copy is whole and left its old shard is opened in the new one;
 * true when there was one.
 */
export async function openArrived(
  shards: readonly Shard[],
  tables: readonly PlaceTable[],
): Promise<boolean> {
  const gone = new Set<string>();
  for (const table of tables)
    for (const [no, { state, move }] of table) if (state === "gone") gone.add(`${no} ${move}`);
  const opened = tables.map(async (table, n) => {
    let any = false;
    for (const [no, { state, move }] of table) {
      if (state !== "arriving" || !gone.has(`${no} ${move}`)) continue;
      await endArrival(shards[n]!, no, move);
      any = true;
    }
    return any;
  });
  return (await Promise.all(opened)).includes(true);
}

export async function endArrival({ pool }: Shard, no: number, move: string): Promise<void> {
  const text =
    "update {s}.place set state = 'here', move = null where no = $1 and state = 'arriving' and move = $2::uuid";
  await pool.query(text, [no, move]);
}

async function placeIn({ pool }: Shard, no: number): Promise<PlaceState | undefined> {
  const text = "select state, coalesce(move::text, '') as move from {s}.place where no = $1";
  const [row] = await pool.query(text, [no]);
  return row as PlaceState | undefined;
}

const mailboxesAtOnce = 100;

async function clearPlace({ pool }: Shard, no: number, move: string): Promise<void> {
  for (let freed = 1; freed > 0; ) {
    const given = [no, move, mailboxesAtOnce];
    const [row] = await pool.query("select {s}.clear_place($1, $2::uuid, $3) as freed", given);
    freed = Number(row?.["freed"]);
  }
}

type Owner = { readonly shard: Shard; readonly takesWrites: boolean };

const lookMsMax = 1_000;
const lookAgainMs = 100;
const clearAgainMs = 60_000;

export class Places {
  private readonly tables: PlaceTable[];
  private readonly unseen = new Set<Shard>();
  private looking: Promise<void> | null = null;
  private lookedAtMs = Number.NEGATIVE_INFINITY;
  private clearedAtMs = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly shards: readonly Shard[],
    /** How long an operation waits for a place that moves. */
    private readonly patienceMs: number,
  ) {
    this.tables = shards.map(() => new Map());
  }

  async run<T>(
    how: "read" | "write",
    place: number,
    call: (parts: Sharded) => Promise<T>,
  ): Promise<T> {
    const endMs = performance.now() + this.patienceMs;
    for (;;) {
      const owner = this.owner(place);
      if (owner !== null && (how === "read" || owner.takesWrites)) {
        try {
          return await owner.shard.run(call);
        } catch (error) {
          if (!isElsewhere(error)) throw error;
        }
      }
      await this.look();
      if (this.owner(place) === null && this.unseen.size > 0) {
        throw new StoreError(
          "unavailable",
          `place ${place} is in none of the databases that answer`,
        );
      }
      if (performance.now() > endMs)
        throw new StoreError("unavailable", `place ${place} is closed`);
    }
  }

  /** `null` while it is in no shard, and where two have it: then an operator has to choose. */
  private owner(place: number): Owner | null {
    let owner: Owner | null = null;
    for (const [n, table] of this.tables.entries()) {
      const state = table.get(place)?.state;
      if (state !== "here" && state !== "leaving") continue;
      if (owner !== null) return null;
      owner = { shard: this.shards[n]!, takesWrites: state === "here" };
    }
    return owner;
  }

  look(): Promise<void> {
    this.looking ??= this.lookOnce().finally(() => {
      this.looking = null;
    });
    return this.looking;
  }

  private async lookOnce(): Promise<void> {
    await Bun.sleep(Math.max(0, this.lookedAtMs + lookAgainMs - performance.now()));
    const asked = this.shards.map((shard, n) => this.ask(shard, n));
    await withDeadline(Promise.all(asked), lookMsMax);
    await withDeadline(
      openArrived(this.shards, this.tables).catch(() => {}),
      lookMsMax,
    );
    this.lookedAtMs = performance.now();
  }

  /** With the sweeps. */
  async clearNowAndThen(): Promise<void> {
    if (performance.now() - this.clearedAtMs < clearAgainMs) return;
    this.clearedAtMs = performance.now();
    await this.clear();
  }

  /**
   * Removes what dead movers left, while all shards answer. Cost: one statement for each
   * shard and each such place.
   */
  private async clear(): Promise<void> {
    await this.look();
    for (const [n, table] of this.tables.entries())
      for (const [no, { move }] of table)
        if (move !== "" && this.unseen.size === 0 && (await this.isLeft(n, no, move)))
          await clearPlace(this.shards[n]!, no, move);
  }

  /**
   * A copy whose place has another owner, which left it or is leaving it by no such move; or a
   * place that is open elsewhere. The others are asked after what this shard said: a move leaves
   * its first place before it arrives at another.
   */
  private async isLeft(n: number, no: number, move: string): Promise<boolean> {
    const own = (await placeIn(this.shards[n]!, no))?.state;
    const others = await Promise.all(
      this.shards.filter((_, m) => m !== n).map((shard) => placeIn(shard, no)),
    );
    if (own === "gone") return others.some((other) => other?.state === "here");
    if (own !== "arriving" || others.some((other) => other?.move === move)) return false;
    return others.some((other) => other?.state === "here" || other?.state === "leaving");
  }

  /** A shard that does not answer keeps the places that it had. */
  private async ask(shard: Shard, n: number): Promise<void> {
    this.unseen.add(shard);
    try {
      const found = await readPlaces(shard);
      this.tables[n] = found;
      this.unseen.delete(shard);
      if ([...found.values()].some(({ state }) => state === "leaving"))
        await shard.pool.query("select {s}.reopen()");
    } catch {
      // Its own operations say so.
    }
  }
}

// ------------------------------------------------------------------------------------ capabilities

/**
 * Throws the failure of the only shard, or of all; `partial` while some do not answer in
 * time, the first among them.
 */
export async function probeShards(shards: readonly Shard[]): Promise<void> {
  const failures = await Promise.all(shards.map(failureOf));
  const names = shards.filter((_, n) => failures[n] !== null).map(({ name }) => name);
  if (names.length === 0) return;
  if (names.length === shards.length) throw failures[0];
  throw new StoreError("partial", `these databases do not answer: ${names.join(", ")}`);
}

async function failureOf({ pool }: Shard): Promise<unknown> {
  const probed = pool.probe().then(
    () => null,
    (error: unknown) => error,
  );
  const found = await withDeadline(probed, lookMsMax);
  return found === late ? new StoreError("unavailable", "the database does not answer") : found;
}

/** All shards in turn, also when one fails. */
async function expireAll(
  shards: readonly Shard[],
  limit: number,
  expire: (parts: Sharded, left: number) => Promise<number>,
): Promise<number> {
  let freed = 0;
  const failures: unknown[] = [];
  for (const shard of shards) {
    if (freed >= limit) break;
    freed += await shard
      .run((parts) => expire(parts, limit - freed))
      .catch((error: unknown) => {
        failures.push(error);
        return 0;
      });
  }
  if (failures.length > 0 && freed < limit) throw failures[0];
  return freed;
}

const recipientLengthMax = 160;

/** A key that the database can't hold would fail the whole batch. */
function placeOfBox(key: string): number {
  if (key.length === 0 || key.length > recipientLengthMax || /[^ -~]/.test(key)) {
    throw new RangeError(`a mailbox key has 1 to ${recipientLengthMax} characters of ASCII`);
  }
  return placeOf(key);
}

export function openShards(shards: readonly Shard[], places: Places, home: Sharded): Sharded {
  const readBox = async <T>(key: string, call: (mailbox: Mailbox) => Promise<T>) =>
    places.run("read", placeOfBox(key), ({ mailbox }) => call(mailbox));
  const writeBox = async <T>(key: string, call: (mailbox: Mailbox) => Promise<T>) =>
    places.run("write", placeOfBox(key), ({ mailbox }) => call(mailbox));
  const writeReceipt = <T>(key: string, call: (receipts: Receipts) => Promise<T>) =>
    places.run("write", placeOfReceipt(key), ({ receipts }) => call(receipts));
  return {
    mailbox: {
      store: (entry, quota) => writeBox(entry.recipient, (box) => box.store(entry, quota)),
      list: (key, page) => readBox(key, (box) => box.list(key, page)),
      summary: (key, page) => readBox(key, (box) => box.summary(key, page)),
      read: (key, ids, nowMs) => readBox(key, (box) => box.read(key, ids, nowMs)),
      chunks: (key, groupId, nowMs) => readBox(key, (box) => box.chunks(key, groupId, nowMs)),
      message: (key, id, nowMs) => readBox(key, (box) => box.message(key, id, nowMs)),
      known: (key, named, nowMs) => readBox(key, (box) => box.known(key, named, nowMs)),
      remove: (key, ids, nowMs) => writeBox(key, (box) => box.remove(key, ids, nowMs)),
      claimAndRemove: (claim, key, ids, nowMs) =>
        writeBox(key, (box) => box.claimAndRemove(claim, key, ids, nowMs)),
      expire: async (nowMs, limit) => {
        const freed = await expireAll(shards, limit, ({ mailbox }, left) =>
          mailbox.expire(nowMs, left),
        );
        if (shards.length > 1) await places.clearNowAndThen();
        return freed;
      },
      stats: (nowMs) => home.mailbox.stats(nowMs),
      oldest: async (nowMs) => {
        const found = await Promise.all(
          shards.map((shard) => shard.run(({ mailbox }) => mailbox.oldest(nowMs))),
        );
        const known = found.filter((one) => one !== null);
        return known.length === 0 ? null : Math.min(...known);
      },
    },
    replay: {
      claim: (tag, untilMs, nowMs) =>
        places.run("write", placeOf(tag), ({ replay }) => replay.claim(tag, untilMs, nowMs)),
      expire: (nowMs, limit) =>
        expireAll(shards, limit, ({ replay }, left) => replay.expire(nowMs, left)),
    },
    receipts: {
      put: (key, value, untilMs) => writeReceipt(key, (to) => to.put(key, value, untilMs)),
      putIfAbsent: (key, value, untilMs, nowMs) =>
        writeReceipt(key, (to) => to.putIfAbsent(key, value, untilMs, nowMs)),
      get: (key, nowMs) =>
        places.run("read", placeOfReceipt(key), ({ receipts }) => receipts.get(key, nowMs)),
      remove: (key, value) => writeReceipt(key, (to) => to.remove(key, value)),
      scan: (prefix, page) =>
        places.run("read", placeOfReceipt(prefix), ({ receipts }) => receipts.scan(prefix, page)),
      expire: (nowMs, limit) =>
        expireAll(shards, limit, ({ receipts }, left) => receipts.expire(nowMs, left)),
    },
  };
}
