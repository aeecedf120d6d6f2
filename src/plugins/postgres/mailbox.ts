/**
 * The mailbox over PostgreSQL. Writes of one turn are one call of a function of the schema; their
 * decisions are exact for a mailbox, whichever nodes write. Each read is one statement.
 */
import { equalBytes } from "../../core/codec/bytes.ts";
import type { MailboxKey, Uuid } from "../../core/codec/did.ts";
import { type Fault, isFault } from "../../core/fault.ts";
import { Batcher, type BatchLimits } from "../../storage/batcher.ts";
import {
  type Chunk,
  type HeldMessage,
  type KnownMessage,
  type Mailbox,
  type MailboxEntry,
  type MailboxStats,
  type MessageState,
  type MessageSummary,
  type Page,
  type PageRequest,
  type RemovedMessage,
  StoreError,
  type StoreOutcome,
  type TagClaim,
} from "../../storage/contract.ts";
import { checkEntry, encodeCursor, parseCursor, storedAtOf } from "../../storage/mailbox-rules.ts";
import type { MailboxPlace, MailboxQuota } from "../../storage/quota.ts";
import { checkText } from "../../storage/records.ts";
import { batchLimits, type Pool } from "./pool.ts";
import { packed, tagKeyOf } from "./records.ts";
import type { Expiry } from "./schema.ts";
import type { SqlRow } from "./servers.ts";
import type { StoreTotals } from "./totals.ts";

type Storing = { readonly entry: MailboxEntry; readonly quota: MailboxQuota };
type Removing = {
  readonly recipient: MailboxKey;
  readonly ids: readonly Uuid[];
  readonly nowMs: number;
  readonly claim: TagClaim | null;
};

/** Entries of one mailbox that a batch may hold: each needs a round of the function. */
const roundsMax = 32;

export class PostgresMailbox implements Mailbox {
  private readonly stores: Batcher<Storing, StoreOutcome>;
  private readonly removals: Batcher<Removing, RemovedMessage[] | null>;

  constructor(
    private readonly pool: Pool,
    private readonly expiry: Expiry,
    /** Of all databases; this is one of them. */
    private readonly totals: StoreTotals,
    private readonly database: number,
    limits: BatchLimits = batchLimits,
  ) {
    this.stores = new Batcher((given) => this.storeBatch(given), roundsMax, limits);
    this.removals = new Batcher((given) => this.removeBatch(given), 1, limits);
  }

  async store(entry: MailboxEntry, quota: MailboxQuota): Promise<StoreOutcome> {
    checkEntry(entry, quota);
    if (!isUuid(entry.messageId) || !isUuid(entry.chunk?.groupId ?? entry.messageId))
      throw new RangeError("no UUID");
    // The caller may reuse its bytes as soon as the operation is done, not before: no copy is made.
    return this.stores.add({
      given: { entry, quota },
      bytes: entry.envelope.length + 1_024,
      key: entry.recipient,
    });
  }

  private async storeBatch(given: readonly Storing[]): Promise<StoreOutcome[]> {
    const base = await this.totals.current(this.database, given[0]!.entry.storedAtMs);
    const beyond = await Promise.all(given.map((one) => this.exceededShare(one, base)));
    const answer = await this.pool.write("store", [
      ...encodeStores(given, beyond),
      base.entries,
      base.bytes,
    ]);
    const { outcomes, stored } = outcomesOf(answer, beyond);
    this.totals.add(this.database, stored);
    return outcomes;
  }

  /** The label whose share of the store is used up, unless the store itself is full. */
  private async exceededShare(
    { entry, quota }: Storing,
    all: MailboxStats,
  ): Promise<string | null> {
    const { storeShare, storeEntriesMax, storeBytesMax } = quota;
    const bytes = entry.envelope.length;
    if (storeShare === null || !entry.labels.includes(storeShare.label)) return null;
    if (all.entries + 1 > storeEntriesMax || all.bytes + bytes > storeBytesMax) return null;
    const isBeyond = await this.totals.exceeds(storeShare, all, { bytes, nowMs: entry.storedAtMs });
    return isBeyond ? storeShare.label : null;
  }

  async remove(
    recipient: MailboxKey,
    messageIds: readonly Uuid[],
    nowMs: number,
  ): Promise<RemovedMessage[]> {
    const ids = [...new Set(messageIds)].filter(isUuid);
    if (ids.length === 0) return [];
    const given = { recipient, ids, nowMs, claim: null };
    return (await this.removals.add({ given, bytes: ids.length * 40, key: recipient }))!;
  }

  async claimAndRemove(
    claim: TagClaim,
    recipient: MailboxKey,
    messageIds: readonly Uuid[],
    nowMs: number,
  ): Promise<RemovedMessage[] | null> {
    checkText("tag", claim.tag);
    const ids = [...new Set(messageIds)].filter(isUuid);
    const given = { recipient, ids, nowMs, claim };
    return this.removals.add({ given, bytes: ids.length * 40 + 128, key: recipient });
  }

  private async removeBatch(given: readonly Removing[]): Promise<(RemovedMessage[] | null)[]> {
    const rows = given.map(({ recipient, ids, nowMs, claim }, n) => {
      const claimed =
        claim === null ? {} : { tag: `\\x${tagKeyOf(claim.tag)}`, until: claim.untilMs };
      return { n, box: recipient, at: nowMs, ids, ...claimed };
    });
    const answer = (await this.pool.write("claim_and_remove", [JSON.stringify(rows)])) as {
      readonly replayed: readonly number[];
      readonly gone: readonly [number, Uuid, string[] | null, number][];
    };
    const removed: RemovedMessage[][] = given.map(() => []);
    let bytes = 0;
    for (const [n, messageId, labels, size] of answer.gone) {
      removed[n]!.push({ messageId, labels: labels ?? [] });
      bytes += size;
    }
    this.totals.add(this.database, { entries: -answer.gone.length, bytes: -bytes });
    for (const some of removed) some.sort((a, b) => (a.messageId < b.messageId ? -1 : 1));
    return removed.map((some, n) => (answer.replayed.includes(n) ? null : some));
  }

  async list(recipient: MailboxKey, page: PageRequest): Promise<Page<HeldMessage> | Fault> {
    const found = await this.page(recipient, page, "envelopes");
    return isFault(found) ? found : { entries: found.rows.map(heldMessage), next: found.next };
  }

  async summary(recipient: MailboxKey, page: PageRequest): Promise<Page<MessageSummary> | Fault> {
    const found = await this.page(
      recipient,
      { ...page, bytesMax: Number.MAX_SAFE_INTEGER },
      "sizes",
    );
    return isFault(found) ? found : { entries: found.rows.map(summaryOf), next: found.next };
  }

  private async page(
    recipient: MailboxKey,
    page: PageRequest,
    what: "envelopes" | "sizes",
  ): Promise<FoundPage | Fault> {
    const after = parseCursor(page.after);
    if (isFault(after)) return after;
    const found = await this.pool.query(
      `select * from {s}.page($1, $2, $3, $4, $5, ${what === "envelopes"})`,
      [recipient, after, page.nowMs, page.entriesMax, page.bytesMax],
    );
    const more = found.at(-1)?.["id"] === null;
    const rows = more ? found.slice(0, -1) : found;
    return { rows, next: more ? encodeCursor(Number(rows.at(-1)?.["place"])) : null };
  }

  async read(
    recipient: MailboxKey,
    messageIds: readonly Uuid[],
    nowMs: number,
  ): Promise<HeldMessage[]> {
    const ids = messageIds.filter(isUuid);
    if (ids.length === 0) return [];
    const rows = await this.pool.query(
      "select * from {s}.read($1, string_to_array($2, ',')::uuid[], $3)",
      [recipient, ids.join(","), nowMs],
    );
    const byId = new Map(rows.map((row) => [row["id"] as Uuid, heldMessage(row)]));
    return ids.flatMap((id) => byId.get(id) ?? []);
  }

  async chunks(recipient: MailboxKey, groupId: Uuid, nowMs: number): Promise<MessageSummary[]> {
    if (!isUuid(groupId)) return [];
    const rows = await this.pool.query("select * from {s}.chunks($1, $2::uuid, $3)", [
      recipient,
      groupId,
      nowMs,
    ]);
    return rows.map(summaryOf);
  }

  async message(recipient: MailboxKey, messageId: Uuid, nowMs: number): Promise<MessageState> {
    if (!isUuid(messageId)) return { state: "absent" };
    const [row] = await this.pool.query("select * from {s}.message($1, $2::uuid, $3)", [
      recipient,
      messageId,
      nowMs,
    ]);
    if (row === undefined) return { state: "absent" };
    if (row["state"] === "active") return { state: "active", message: heldMessage(row) };
    if (row["state"] === "acked") return { state: "acked" };
    const preview = row["preview"] as Uint8Array | null;
    return {
      state: "expired",
      expiresAtMs: Number(row["expires_ms"]),
      headerPreview: preview === null ? null : new Uint8Array(preview),
    };
  }

  async known(
    recipient: MailboxKey,
    { messageId, digest }: Pick<MailboxEntry, "messageId" | "digest">,
    nowMs: number,
  ): Promise<KnownMessage | null> {
    if (!isUuid(messageId)) return null;
    const [row] = await this.pool.query("select * from {s}.known($1, $2::uuid, $3)", [
      recipient,
      messageId,
      nowMs,
    ]);
    if (row === undefined) return null;
    return {
      expiresAtMs: Number(row["expires_ms"]),
      isSame: equalBytes(new Uint8Array(row["digest"] as Uint8Array), digest),
      author: row["author"] as string | null,
    };
  }

  expire(nowMs: number, limit: number): Promise<number> {
    return this.expiry.expire(nowMs, limit);
  }

  stats(nowMs: number): Promise<MailboxStats> {
    return this.totals.stats(nowMs);
  }

  /** Cost: a probe of an index for each mailbox that holds something. */
  async oldest(nowMs: number): Promise<number | null> {
    const [row] = await this.pool.query(
      `select f.arrival, f.expires_ms from {s}.mailbox m cross join lateral (
         select h.arrival, h.expires_ms from {s}.held h
         where h.mailbox_no = m.no and h.expires_ms > $1
           and h.expires_ms >= m.soonest_ms and h.expires_ms <= m.latest_ms
         order by h.arrival limit 1
       ) f where not {s}.is_empty(m.entries, m.settled_ms, $1) order by f.arrival limit 1`,
      [nowMs],
    );
    return row === undefined ? null : storedAtOf(Number(row["arrival"]), Number(row["expires_ms"]));
  }
}

// ----------------------------------------------------------------------------------------- writing

const uuidForm = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

function isUuid(id: Uuid): boolean {
  return uuidForm.test(id);
}

/**
 * The entries as JSON, and their envelopes one after the other. One beyond its share gets a store
 * without room: other refusals come before that one, so the database still decides about them.
 */
function encodeStores(
  given: readonly Storing[],
  beyond: readonly (string | null)[],
): [string, Uint8Array] {
  const { bytes, starts } = packed(given.map(({ entry }) => entry.envelope));
  const rounds = new Map<string, number>();
  const rows = given.map(({ entry, quota }, n) => {
    const round = rounds.get(entry.recipient) ?? 0;
    rounds.set(entry.recipient, round + 1);
    const noRoom = beyond[n] === null ? {} : { store_entries_max: 0 };
    return {
      n,
      round,
      start: starts[n],
      ...encodeEntry(entry),
      ...encodeQuota(quota),
      ...noRoom,
    };
  });
  return [JSON.stringify(rows), bytes];
}

function encodeEntry(entry: MailboxEntry) {
  const keepsPreview = entry.onExpiry === "KeepHeaderPreview" && entry.headerPreview !== null;
  return {
    box: entry.recipient,
    id: entry.messageId,
    at: entry.storedAtMs,
    expires: entry.expiresAtMs,
    kept: entry.onExpiry === "DeleteOnExpiry" ? 0 : entry.keptUntilMs,
    size: entry.envelope.length,
    digest: `\\x${entry.digest.toHex()}`,
    ...(entry.chunk === null
      ? {}
      : {
          group_id: entry.chunk.groupId,
          sequence: entry.chunk.sequence,
          total: entry.chunk.total,
        }),
    ...(entry.labels.length === 0 ? {} : { labels: entry.labels }),
    ...(keepsPreview ? { preview: `\\x${entry.headerPreview.toHex()}` } : {}),
  };
}

function encodeQuota(quota: MailboxQuota) {
  const [first, second] = quota.places;
  return {
    entries_max: quota.recipientEntriesMax,
    bytes_max: quota.recipientBytesMax,
    store_entries_max: quota.storeEntriesMax,
    store_bytes_max: quota.storeBytesMax,
    ...(first === undefined ? {} : { first_place: encodePlace(first) }),
    ...(second === undefined ? {} : { second_place: encodePlace(second) }),
  };
}

function encodePlace({ own, pool, poolMax, isRest }: MailboxPlace) {
  return {
    own: own.label,
    own_entries: own.entriesMax,
    own_bytes: own.bytesMax,
    pool,
    pool_entries: poolMax.entries,
    pool_bytes: poolMax.bytes,
    is_rest: isRest,
  };
}

/**
 * Number, outcome, end of the known entry, pool, size; whether the known one is
 * the same, and its author.
 */
type Answered = readonly [
  number,
  string,
  number | null,
  string | null,
  number | null,
  boolean | null,
  string | null,
];

function outcomesOf(answer: unknown, beyond: readonly (string | null)[]) {
  const outcomes = new Array<StoreOutcome>(beyond.length);
  const stored = { entries: 0, bytes: 0 };
  for (const answered of answer as Answered[]) {
    outcomes[answered[0]] = storeOutcome(answered, beyond[answered[0]] ?? null);
    if (answered[1] !== "stored") continue;
    stored.entries++;
    stored.bytes += answered[4] ?? 0;
  }
  if (outcomes.includes(undefined as never))
    throw new StoreError("unavailable", "the database did not return a result");
  return { outcomes, stored };
}

function storeOutcome(
  [, outcome, knownUntil, label, , same, author]: Answered,
  beyond: string | null,
): StoreOutcome {
  if (outcome === "stored" || outcome === "chunk_conflict") return { kind: outcome };
  if (outcome === "duplicate")
    return { kind: outcome, expiresAtMs: Number(knownUntil), isSame: same === true, author };
  if (outcome === "pool") return { kind: "full", scope: "pool", label: label ?? "" };
  if (outcome === "recipient") return { kind: "full", scope: "recipient" };
  if (beyond !== null) return { kind: "full", scope: "store_share", label: beyond };
  return { kind: "full", scope: "store" };
}

// ----------------------------------------------------------------------------------------- reading

type FoundPage = { readonly rows: readonly SqlRow[]; readonly next: string | null };

function summaryOf(row: SqlRow): MessageSummary {
  return {
    messageId: row["id"] as Uuid,
    chunk: chunkOfRow(row),
    expiresAtMs: Number(row["expires_ms"]),
    envelopeBytes: Number(row["size"]),
    labels: (row["labels"] as string[] | null) ?? [],
    cursor: encodeCursor(Number(row["place"])),
  };
}

export function chunkOfRow(row: SqlRow): Chunk | null {
  const groupId = row["group_id"] as Uuid | null;
  return groupId === null
    ? null
    : { groupId, sequence: Number(row["sequence"]), total: Number(row["total"]) };
}

function heldMessage(row: SqlRow): HeldMessage {
  return {
    messageId: row["id"] as Uuid,
    chunk: chunkOfRow(row),
    expiresAtMs: Number(row["expires_ms"]),
    envelope: new Uint8Array(row["envelope"] as Uint8Array),
  };
}
