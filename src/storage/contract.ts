/**
 * The storage contract: what a driver offers, as capabilities made of domain operations, with their laws.
 *
 * Laws of every operation:
 * - it is atomic by itself: it happens wholly or not at all, and concurrent calls behave as if in some order;
 * - its promise settles only when the outcome stands as durably as the store's `durability` says;
 * - time is a parameter: a driver reads no clock to decide (only the embedded ledger's block timer does);
 *   it does not go back: what was over at the time of one call may be over for every later call;
 * - bytes and objects that go in or come out belong to the caller afterwards: nothing is shared;
 * - a refusal that belongs to the domain is a value; an operating failure is a thrown `StoreError`;
 * - `null` means known to be absent, never "could not find out".
 * The conformance kit in `test/conformance` checks these laws over every driver.
 */

import type { Did, Uuid } from "../core/codec/did.ts";
import type { Fault } from "../core/fault.ts";
import type { Account } from "../core/ledger/account.ts";
import type { LedgerBounds } from "../core/ledger/bounds.ts";
import type { LedgerCall } from "../core/ledger/call.ts";
import type { DeliveryPolicy, ExpirationBehavior, PersonaPolicy, PolicyScope } from "../core/message/policy.ts";

/**
 * What survives: `volatile` nothing (memory), `committed` the death of the process, `flushed` the death
 * of the machine as well.
 */
export type Durability = "volatile" | "committed" | "flushed";

export type StoreErrorCode = "unavailable" | "full" | "corrupt" | "closed";

/** An operating failure of a store. Never an answer about the data. */
export class StoreError extends Error {
  constructor(
    readonly code: StoreErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = "StoreError";
  }
}

// ---------------------------------------------------------------------------------------------- mailbox

export type Chunk = { readonly groupId: Uuid; readonly sequence: number; readonly total: number };

export type MailboxEntry = {
  readonly recipient: Did;
  readonly messageId: Uuid;
  readonly chunk: Chunk | null;
  readonly storedAtMs: number;
  readonly expiresAtMs: number;
  /** What is kept after expiry, and until when (`expiresAtMs` plus the entry's life again). */
  readonly onExpiry: ExpirationBehavior;
  readonly keptUntilMs: number;
  /** First bytes of the decoded encrypted header, for `KeepHeaderPreview`; at most 4,096. */
  readonly headerPreview: Uint8Array | null;
  /** The normal form of the envelope: JSON bytes that answers splice in as they are. */
  readonly envelope: Uint8Array;
};

export type MailboxQuota = {
  readonly recipientEntriesMax: number;
  readonly recipientBytesMax: number;
  readonly storeEntriesMax: number;
  readonly storeBytesMax: number;
};

export type StoreOutcome =
  | { readonly kind: "stored" }
  /** The id is held, or was acknowledged and is still remembered; `expiresAtMs` is the first entry's. */
  | { readonly kind: "duplicate"; readonly expiresAtMs: number }
  /** Another message holds the sequence number, or the group has another total. */
  | { readonly kind: "chunk_conflict" }
  | { readonly kind: "full"; readonly scope: "recipient" | "store" };

/** Opaque, given out and read by the driver; it outlives a restart. Printable, at most 64 characters of `A-Za-z0-9_-`. */
export type Cursor = string;

export type PageRequest = {
  /** Answer what arrived after this cursor; `null` starts with the oldest. An unreadable cursor is a `Fault` (`invalid_request`). */
  readonly after: Cursor | null;
  readonly entriesMax: number;
  /** Sum of envelope bytes; the first entry is answered however large it is. */
  readonly bytesMax: number;
  readonly nowMs: number;
};

export type Page<T> = {
  readonly entries: readonly T[];
  /** Present when more is left behind the last entry. */
  readonly next: Cursor | null;
};

export type HeldMessage = Pick<MailboxEntry, "messageId" | "chunk" | "expiresAtMs" | "envelope">;
export type MessageSummary = Pick<MailboxEntry, "messageId" | "chunk" | "expiresAtMs"> & { readonly cursor: Cursor };

export type GroupPage = Page<HeldMessage> & {
  /** `total_chunks` of the group, `null` when no chunk of it is held. */
  readonly total: number | null;
  /** Every sequence number of the group is held at this moment (not only on this page). */
  readonly complete: boolean;
};

export type MessageState =
  | { readonly state: "active"; readonly message: HeldMessage }
  | { readonly state: "acked" }
  | { readonly state: "expired"; readonly expiresAtMs: number; readonly headerPreview: Uint8Array | null }
  | { readonly state: "absent" };

export type MailboxStats = { readonly entries: number; readonly bytes: number };

export interface Mailbox {
  /**
   * Keeps an entry, once per (recipient, message id). Duplicate, conflict and quota are decided inside
   * the write itself, so that of concurrent stores of one id exactly one is `stored`. Checked in that
   * order: duplicate, chunk conflict, quota. Entries whose time is over at `storedAtMs` are not held:
   * they neither count nor collide, and a store of such an id begins a new life. An entry that has
   * expired before it arrives (`expiresAtMs <= storedAtMs`) is the caller's mistake and throws.
   */
  store(entry: MailboxEntry, quota: MailboxQuota): Promise<StoreOutcome>;
  /** Entries of a recipient that are neither acknowledged nor expired, oldest first. */
  list(recipient: Did, page: PageRequest): Promise<Page<HeldMessage> | Fault>;
  /** The same without envelopes. `bytesMax` does not apply. */
  summary(recipient: Did, page: PageRequest): Promise<Page<MessageSummary> | Fault>;
  /** The chunks of one group by sequence number; `after` continues. */
  group(recipient: Did, groupId: Uuid, page: PageRequest): Promise<GroupPage | Fault>;
  message(recipient: Did, messageId: Uuid, nowMs: number): Promise<MessageState>;
  /**
   * Removes the named entries in one write and answers the ids it removed, sorted. Their ids stay
   * known until their expiry, so that a late store is a `duplicate`; then they are absent, whatever
   * `onExpiry` says. Expired entries are not removed by this; an acknowledged chunk no longer belongs to its group.
   */
  remove(recipient: Did, messageIds: readonly Uuid[], nowMs: number): Promise<Uuid[]>;
  /**
   * Frees what is due at `nowMs`, at most `limit` records in one write; answers how many it freed. An
   * entry that keeps something is due twice: for its envelope, and at `keptUntilMs`. An answer below
   * `limit` says that nothing else is due now: the caller comes again at once until it gets one.
   */
  expire(nowMs: number, limit: number): Promise<number>;
  /**
   * What is neither acknowledged nor expired at `nowMs`, exactly: quotas count the same. Bytes are
   * envelope bytes.
   */
  stats(nowMs: number): Promise<MailboxStats>;
}

// ----------------------------------------------------------------------------------------------- replay

export interface Replay {
  /**
   * Claims a tag until `untilMs`. `true` for exactly one caller; `false` while an earlier claim still
   * lasts (`untilMs > nowMs`), whose end it does not move. A tag is at most 512 characters of any kind,
   * U+0000 among them, and told apart exactly.
   */
  claim(tag: string, untilMs: number, nowMs: number): Promise<boolean>;
  /** Forgets claims that have ended at `nowMs`, at most `limit` in one write; answers how many. */
  expire(nowMs: number, limit: number): Promise<number>;
}

// --------------------------------------------------------------------------------------------- receipts

/** Small records that must survive a restart: pending registrations, relay results. */
export interface Receipts {
  /** Sets or replaces. A key is a text like a tag, at most 512 characters; a value has at most 64 KiB. */
  put(key: string, value: Uint8Array, untilMs: number): Promise<void>;
  /** Sets when nothing lives under the key at `nowMs`: `null` when set, else the value that stands. */
  putIfAbsent(key: string, value: Uint8Array, untilMs: number, nowMs: number): Promise<Uint8Array | null>;
  get(key: string, nowMs: number): Promise<Uint8Array | null>;
  remove(key: string): Promise<void>;
  /** Forgets what has ended at `nowMs` (`untilMs <= nowMs`), at most `limit` in one write; answers how many. */
  expire(nowMs: number, limit: number): Promise<number>;
}

// ----------------------------------------------------------------------------------------------- ledger

export type Block = { readonly number: bigint; readonly hash: string; readonly timeMs: number };

export type LedgerHead = {
  /** The last finalized block; reads answer its state. */
  readonly finalized: Block;
  readonly blockTimeMs: number;
};

export type SubmissionState = "pending" | "in_block" | "finalized" | "failed" | "dropped";

export type Submission = {
  /** `0x` and 64 hex digits. */
  readonly txHash: string;
  readonly did: Did;
  /** Runtime call name. */
  readonly call: LedgerCall["name"];
  /** Name of the JSON-level operation that led to it, as the caller of `submit` gave it. */
  readonly label: string;
  readonly state: SubmissionState;
  /** Why it failed or was dropped. */
  readonly reason: Fault | null;
  readonly block: Block | null;
  readonly submittedAtMs: number;
};

export interface LedgerReader {
  /** Throws `unavailable` when the ledger can't be read; so does every read below. */
  head(): Promise<LedgerHead>;
  bounds(): Promise<LedgerBounds>;
  /** The state of one DID at the finalized head; an unknown DID has `record` null and counters 0. */
  account(did: Did): Promise<Account>;
  /** The DID that holds an alias in normal form. */
  aliasHolder(alias: string): Promise<Did | null>;
  policy(scope: "recipient" | "tag", key: string): Promise<DeliveryPolicy | null>;
  policy(scope: "persona", key: string): Promise<PersonaPolicy | null>;
  policy(scope: PolicyScope, key: string): Promise<DeliveryPolicy | PersonaPolicy | null>;
}

export interface LedgerWriter {
  /**
   * Hands a call to the ledger. When the promise resolves with a submission, the call survives a restart
   * and will end as `finalized`, `failed` or `dropped`. A call that would fail against the finalized
   * state, that needs a counter value which a pending call already uses (`nonce_mismatch`), or takes an
   * alias that a pending call of another DID takes (`alias_taken`), is refused with a `Fault`. Of concurrent
   * calls with one counter value, or of several DIDs for one alias, exactly one is taken.
   */
  submit(call: LedgerCall, label: string): Promise<Submission | Fault>;
  /** What became of a submission; `null` when unknown or longer ago than the driver's stated retention. */
  submission(txHash: string): Promise<Submission | null>;
  /** The 32-byte account that signs owner calls and owns what is registered here. */
  operator(): Promise<Uint8Array>;
}

export interface Ledger extends LedgerReader, LedgerWriter {}

// ----------------------------------------------------------------------------------------------- driver

export type Capabilities = {
  readonly mailbox?: Mailbox;
  readonly replay?: Replay;
  readonly receipts?: Receipts;
  readonly ledger?: Ledger;
};

export type CapabilityName = keyof Capabilities;

export interface Store {
  readonly plugin: string;
  readonly durability: Durability;
  readonly capabilities: Capabilities;
  /** Cheap probe for readiness: resolves when reads and writes work, throws a `StoreError` when not. */
  probe(): Promise<void>;
  /** Finishes what was begun and releases everything; later calls throw `closed`. Idempotent. */
  close(): Promise<void>;
}

/** What a driver may use of the program that opens it. */
export type StoreEnvironment = {
  /** Clock for block times. */
  readonly now: () => number;
  readonly log: (level: "info" | "warn" | "error", message: string, fields?: Record<string, unknown>) => void;
  /** Called once when the store can no longer keep its promises: the program must stop at once. */
  readonly fatal: (reason: string) => void;
};

export interface StoragePlugin<Options = unknown> {
  /** Name in the configuration. */
  readonly name: string;
  readonly provides: readonly CapabilityName[];
  /** Turns the configured table into options, or answers every problem with its setting's name; at once. */
  parseOptions(input: unknown): { ok: true; options: Options } | { ok: false; problems: InputProblem[] };
  open(options: Options, environment: StoreEnvironment): Promise<Store>;
  /**
   * What is missing for a store to be there, or `null` when it was begun; nothing is made by asking. For
   * who only wants to look. A plugin without it is opened to find out.
   */
  absence?(options: Options): string | null;
}

export type InputProblem = { readonly setting: string; readonly message: string };
