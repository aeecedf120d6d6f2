/**
 * The storage contract: what a driver offers, as capabilities made of domain operations, with their
 * laws.
 *
 * Laws of every operation:
 * - It is atomic: it happens wholly or not at all, and concurrent calls behave as if they ran in
 *   some order.
 * - Its promise settles only when the outcome survives the death of the machine: a `202` promises
 *   that. Only a driver that keeps everything in memory is exempt.
 * - Time is a parameter: a driver never reads a clock to decide (only the embedded ledger's block
 *   timer does). A shared database removes nothing before its end by its own clock, and is
 *   `unavailable` while the two are far apart. Several nodes may share a store, so a call may have
 *   an earlier time than the call before it, by as much as the clocks of the nodes differ. What has
 *   ended at one time may stay ended for every later call.
 * - Bytes and objects are not shared: after the promise settles, the caller owns what it passed in
 *   and what it got.
 * - A refusal by the domain is a value. An operating failure is a thrown `StoreError`.
 * - `null` means "known to be absent", never "could not find out".
 *
 * The conformance kit in `test/conformance` checks these laws for every driver.
 */
import type { Did, MailboxKey, Uuid } from "../core/codec/did.ts";
import type { Fault } from "../core/fault.ts";
import type {
  Account,
  AliasReserve,
  ExpirationBehavior,
  LedgerBounds,
  LedgerProofs,
  PolicyOf,
  PolicyScope,
} from "../core/ledger/account.ts";
import type { LedgerCall } from "../core/ledger/calls.ts";
import type { NoteKey } from "../core/trust/note.ts";
import type { Bus, BusEnvironment } from "./bus.ts";
import type { RegisterGauge } from "./gauge.ts";
import type { Logs } from "./logs.ts";
import type { MailboxQuota } from "./quota.ts";
import type { ParsedOptions } from "./setting-problem.ts";

/**
 * - `unavailable`: try again later; the store recovers by itself.
 * - `partial`, of `probe` only: one of several databases is away, and the rest of the store works.
 * - `busy`: another process has opened the store, which belongs to one at a time.
 * - `full`: there is no room.
 * - `corrupt`: stored bytes are damaged.
 * - `closed`: the store was closed.
 */
export type StoreErrorCode = "unavailable" | "partial" | "busy" | "full" | "corrupt" | "closed";

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

// ----------------------------------------------------------------------------------------- mailbox

export type Chunk = { readonly groupId: Uuid; readonly sequence: number; readonly total: number };

export type MailboxEntry = {
  readonly recipient: MailboxKey;
  readonly messageId: Uuid;
  readonly chunk: Chunk | null;
  readonly storedAtMs: number;
  readonly expiresAtMs: number;
  /** What remains after expiry, until `keptUntilMs` (`expiresAtMs` plus the entry's life again). */
  readonly onExpiry: ExpirationBehavior;
  readonly keptUntilMs: number;
  /** First bytes of the decoded encrypted header, for `KeepHeaderPreview`; at most 4,096. */
  readonly headerPreview: Uint8Array | null;
  /**
   * Groups that the entry belongs to for the quota and for statistics: at most 4 different texts,
   * each of 1 to 48 characters of `A-Za-z0-9_:-`. Stored with the entry. One that begins with
   * `from:` names its author (`authorIn`), and is known for as long as the id.
   */
  readonly labels: readonly string[];
  /** The normal form of the envelope: JSON bytes that answers contain unchanged. */
  readonly envelope: Uint8Array;
  /** What `isSame` compares, also when the envelope is gone. 16 bytes. */
  readonly digest: Uint8Array;
};

/** What is known of an id that is active, or was acknowledged and is still remembered. */
export type KnownMessage = {
  readonly expiresAtMs: number;
  /** Whether it was used for the same envelope, by its digest. */
  readonly isSame: boolean;
  /** The label of its author; `null` without one. */
  readonly author: string | null;
};

export type StoreOutcome =
  | { readonly kind: "stored" }
  | ({ readonly kind: "duplicate" } & KnownMessage)
  /** Another message has the sequence number, or the group has another total. */
  | { readonly kind: "chunk_conflict" }
  | { readonly kind: "full"; readonly scope: "recipient" | "store" }
  | { readonly kind: "full"; readonly scope: "pool" | "store_share"; readonly label: string };

/**
 * A position in the order of one mailbox, opaque to everybody but the driver. It stays valid after
 * a restart. Printable: at most 64 characters of `A-Za-z0-9_-`.
 */
export type Cursor = string;

export type PageRequest = {
  /**
   * Return entries that arrived after this cursor; `null` starts with the oldest. Any other text is
   * a `Fault` (`invalid_request`).
   */
  readonly after: Cursor | null;
  readonly entriesMax: number;
  /** Limit for the sum of envelope bytes. The first entry is returned however large it is. */
  readonly bytesMax: number;
  readonly nowMs: number;
};

export type Page<T> = {
  readonly entries: readonly T[];
  /** Where the next page begins; `null` when this page reaches the end. */
  readonly next: Cursor | null;
};

export type HeldMessage = Pick<MailboxEntry, "messageId" | "chunk" | "expiresAtMs" | "envelope">;
export type MessageSummary = Pick<
  MailboxEntry,
  "messageId" | "chunk" | "expiresAtMs" | "labels"
> & {
  readonly envelopeBytes: number;
  readonly cursor: Cursor;
};

export type MessageState =
  | { readonly state: "active"; readonly message: HeldMessage }
  | { readonly state: "acked" }
  | {
      readonly state: "expired";
      readonly expiresAtMs: number;
      readonly headerPreview: Uint8Array | null;
    }
  | { readonly state: "absent" };

export type RemovedMessage = Pick<MailboxEntry, "messageId" | "labels">;

export type MailboxStats = { readonly entries: number; readonly bytes: number };

/**
 * Messages waiting for recipients. A `MailboxKey` is an opaque text of at most 160 characters. The
 * bytes that a read has answered are the reader's own: no later operation changes them.
 */
export interface Mailbox {
  /**
   * Stores an entry once per (recipient, message id). All is decided inside the write: of
   * concurrent stores of one id exactly one is `stored`.
   * - Order: duplicate, chunk conflict, quota of the recipient, its places, quota of the store, its
   *   share.
   * - An expired entry counts towards no quota and conflicts with nothing, and its id may be stored
   *   again. While many have just expired, a driver may throw `unavailable` instead of refusing.
   * - Quotas of a recipient and its pools are exact. Those of the store are exact where one process
   *   owns it; in a shared one the quota may lag by the writes in flight, the share by minutes.
   * - An entry with `expiresAtMs <= storedAtMs` is a bug of the caller: it throws a `RangeError`.
   */
  store(entry: MailboxEntry, quota: MailboxQuota): Promise<StoreOutcome>;
  /** The active entries of a recipient, oldest first. */
  list(recipient: MailboxKey, page: PageRequest): Promise<Page<HeldMessage> | Fault>;
  /** The same entries without their envelopes; `bytesMax` does not apply. */
  summary(recipient: MailboxKey, page: PageRequest): Promise<Page<MessageSummary> | Fault>;
  /**
   * The active entries among `messageIds`, in the order asked; the others are left out. The caller
   * asks for at most 1,000 ids and bounds their bytes by the summary.
   */
  read(recipient: MailboxKey, messageIds: readonly Uuid[], nowMs: number): Promise<HeldMessage[]>;
  /** The active chunks of one group, by sequence number. The cost grows with these chunks alone. */
  chunks(recipient: MailboxKey, groupId: Uuid, nowMs: number): Promise<MessageSummary[]>;
  message(recipient: MailboxKey, messageId: Uuid, nowMs: number): Promise<MessageState>;
  /** What a store with this id and digest would find; `null`: the id is free. Reads no envelope. */
  known(
    recipient: MailboxKey,
    { messageId, digest }: Pick<MailboxEntry, "messageId" | "digest">,
    nowMs: number,
  ): Promise<KnownMessage | null>;
  /**
   * Acknowledges the active entries among `messageIds` in one write and returns them, sorted by id.
   * An acknowledged id is remembered until its expiry, so that a late store of it is a `duplicate`.
   * After its expiry it is absent, whatever `onExpiry` is. An acknowledged chunk no longer belongs
   * to its group.
   */
  remove(
    recipient: MailboxKey,
    messageIds: readonly Uuid[],
    nowMs: number,
  ): Promise<RemovedMessage[]>;
  /**
   * Claims a tag and removes, in one write: after a crash either both are done or neither. Returns
   * `null` and removes nothing while an earlier claim of the tag lasts. A caller uses a tag for one
   * recipient only, and not in `replay` too: a store of several databases keeps the claim with the
   * mailbox.
   */
  claimAndRemove(
    claim: TagClaim,
    recipient: MailboxKey,
    messageIds: readonly Uuid[],
    nowMs: number,
  ): Promise<RemovedMessage[] | null>;
  /**
   * Frees records that are due at `nowMs`, at most `limit` in one write, and returns how many. An
   * entry that leaves something behind is due twice: for its envelope at expiry, and for the rest
   * at `keptUntilMs`. A result below `limit` means nothing else is due; the caller repeats until
   * then. A store may instead free all records of a time span together, when all have ended; the
   * span counts as one record.
   */
  expire(nowMs: number, limit: number): Promise<number>;
  /**
   * Count and envelope bytes of all active entries. Exact in a store that one process owns; a
   * shared store may lag by some seconds.
   */
  stats(nowMs: number): Promise<MailboxStats>;
  /** When the oldest active entry was stored; `null` without any. Looks at each mailbox. */
  oldest(nowMs: number): Promise<number | null>;
}

// ------------------------------------------------------------------------------------------ replay

export type TagClaim = { readonly tag: string; readonly untilMs: number };

export interface Replay {
  /**
   * Claims a tag until `untilMs`. Returns `true` to exactly one caller, and `false` while an
   * earlier claim lasts (`untilMs > nowMs`); a refused claim does not change that time. A tag is a
   * text of 1 to 512 arbitrary characters, U+0000 included, compared exactly.
   */
  claim(tag: string, untilMs: number, nowMs: number): Promise<boolean>;
  /** Forgets at most `limit` claims that have ended at `nowMs`, in one write; returns how many. */
  expire(nowMs: number, limit: number): Promise<number>;
}

// ---------------------------------------------------------------------------------------- receipts

export type ReceiptPage = {
  readonly after: string | null;
  readonly limit: number;
  readonly nowMs: number;
};

/** Small records that survive a restart: pending registrations, relay results, subscriptions. */
export interface Receipts {
  /** Sets or replaces a value of at most 64 KiB. A key is a text of 1 to 512 bytes in UTF-8. */
  put(key: string, value: Uint8Array, untilMs: number): Promise<void>;
  /** Sets a value unless one is valid at `nowMs`; returns `null`, or else the valid value. */
  putIfAbsent(
    key: string,
    value: Uint8Array,
    untilMs: number,
    nowMs: number,
  ): Promise<Uint8Array | null>;
  get(key: string, nowMs: number): Promise<Uint8Array | null>;
  /** With `value`, only while that stands under the key: what replaced it stays. */
  remove(key: string, value?: Uint8Array): Promise<void>;
  /**
   * The records that are valid at `nowMs` and whose keys begin with `prefix`, in the driver's order
   * of keys, at most `limit` of those after the key `after`. Fewer than `limit` are the last ones.
   * A prefix begins with a slash: drivers need no order of other keys.
   */
  scan(prefix: string, page: ReceiptPage): Promise<(readonly [key: string, value: Uint8Array])[]>;
  /** Forgets at most `limit` records with `untilMs <= nowMs`, in one write; returns how many. */
  expire(nowMs: number, limit: number): Promise<number>;
}

// ------------------------------------------------------------------------------------------ ledger

export type Block = { readonly number: bigint; readonly hash: string; readonly timeMs: number };

export type LedgerHead = {
  /** The last finalized block. Reads return its state. */
  readonly finalized: Block;
  readonly blockTimeMs: number;
  /**
   * When the finalized state was certainly the present one: a chain makes blocks all the time, so
   * it is the time of its last one; the embedded ledger makes blocks of calls alone, so it is now,
   * unless its blocks fail.
   */
  readonly asOfMs: number;
};

export type SubmissionState = "pending" | "in_block" | "finalized" | "failed" | "dropped";

export type Submission = {
  /** `0x` and 64 hex digits. */
  readonly txHash: string;
  readonly did: Did;
  /** Runtime call name. */
  readonly call: LedgerCall["name"];
  /** Name of the JSON-level operation behind it, as the caller of `submit` gave it. */
  readonly label: string;
  readonly state: SubmissionState;
  /** Why it failed or was dropped; otherwise `null`. */
  readonly reason: Fault | null;
  readonly block: Block | null;
  readonly submittedAtMs: number;
};

export interface LedgerReader {
  /** Throws `unavailable` when the ledger can't be read. So does every read below. */
  head(): Promise<LedgerHead>;
  bounds(): Promise<LedgerBounds>;
  /** One DID at the finalized head; an unknown one has `record` null and counters 0. */
  account(did: Did): Promise<Account>;
  /**
   * What proves the keys of a self-certifying DID (docs/trust.md "Key proofs"), as of the finalized
   * head or later; `null` for every other DID, and where the ledger keeps no proofs.
   */
  keyProof(did: Did): Promise<Uint8Array | null>;
  /** The DID that owns an alias in normal form. */
  aliasHolder(alias: string): Promise<Did | null>;
  /** For whom an alias that was released is reserved; `null` where the ledger keeps no reserves. */
  aliasReserve(alias: string): Promise<AliasReserve | null>;
  policy<Scope extends PolicyScope>(scope: Scope, key: string): Promise<PolicyOf<Scope> | null>;
  /**
   * Another number whenever a read may answer something else than before; `null` where that can't
   * be said, as while a change is under way or where others write the ledger too.
   */
  stamp(): number | null;
}

export interface LedgerWriter {
  /**
   * Submits a call to the ledger. Once the promise resolves with a submission, the call survives a
   * restart and ends as `finalized`, `failed` or `dropped`. A `Fault` refuses a call that would
   * fail against the finalized state, that needs a counter value which a pending call uses
   * (`nonce_mismatch`), or that takes an alias which a pending call of another DID takes
   * (`alias_taken`). Of concurrent calls with one counter value, or of several DIDs for one alias,
   * exactly one is accepted.
   */
  submit(call: LedgerCall, label: string): Promise<Submission | Fault>;
  /** `null` when it is unknown, or older than the driver says that it keeps submissions. */
  submission(txHash: string): Promise<Submission | null>;
  /** The 32-byte account that signs owner calls and owns the DIDs registered here. */
  operator(): Promise<Uint8Array>;
  /** Which proofs the ledger accepts, and the name of the ledger that they are bound to. */
  proofs(): Promise<LedgerProofs>;
}

export interface Ledger extends LedgerReader, LedgerWriter {}

// ------------------------------------------------------------------------------------------ driver

export type Capabilities = {
  readonly mailbox?: Mailbox;
  readonly replay?: Replay;
  readonly receipts?: Receipts;
  readonly ledger?: Ledger;
  readonly logs?: Logs;
};

export type CapabilityName = keyof Capabilities;

export interface Store {
  readonly plugin: string;
  readonly capabilities: Capabilities;
  /** A cheap readiness check: resolves when reads and writes work, else throws a `StoreError`. */
  probe(): Promise<void>;
  /** Finishes what runs and releases everything. Later calls throw `closed`. Idempotent. */
  close(): Promise<void>;
}

/** What the program offers to a driver. */
export type StoreEnvironment = {
  /** Clock for block times. */
  readonly now: () => number;
  readonly log: BusEnvironment["log"];
  /**
   * Reports, once, that the store broke a promise or can't keep one: the program stops at once. An
   * unreachable database is `unavailable`, not fatal.
   */
  readonly fatal: (reason: string) => void;
  /** What ended later may not be removed yet: the clock may be wrong (removal-time.ts). */
  readonly removableMs?: () => number;
  /** Names the log of a new embedded ledger; `elsewhere`: the process of the Directory names it. */
  readonly logKey?: NoteKey | "elsewhere";
  readonly bus?: Bus;
  readonly gauge?: RegisterGauge;
};

/** A record of a store, for moving between drivers and formats. `ledger`: the embedded one. */
export type StoreRecord =
  /** The entry of an acknowledged or kept id has an empty envelope. */
  | {
      readonly kind: "message";
      readonly state: "active" | "acked" | "kept";
      readonly entry: MailboxEntry;
    }
  | { readonly kind: "claim"; readonly tag: string; readonly untilMs: number }
  | {
      readonly kind: "receipt";
      readonly key: string;
      readonly value: Uint8Array;
      readonly untilMs: number;
    }
  | { readonly kind: "ledger"; readonly key: string; readonly value: Uint8Array };

export type VerifyReport = {
  readonly records: number;
  readonly bytes: number;
  /** Whether every record was written anew in a copy: not where the disk has no room for one. */
  readonly isTried: boolean;
  /** The first problems; empty when the store is sound. */
  readonly problems: readonly string[];
};

/** A new store that is being filled; nothing else has it open, and no ledger runs in it. */
export type ImportTarget = Required<Pick<Capabilities, "mailbox" | "replay" | "receipts">> & {
  readonly putLedger: (pairs: readonly (readonly [string, Uint8Array])[]) => Promise<void>;
};

/** Writes all records into a new store. */
export type FillStore = (target: ImportTarget) => Promise<void>;

/**
 * Work that an operator starts in a separate process. `records`, `backup` and `verify` run while a
 * node has the store open, and see its state as of their beginning; the others need the store
 * closed. Those that return a text describe in it what they did. A failure throws a `StoreError`.
 */
export type StoreMaintenance = {
  /** All records, the older of a mailbox first; damaged ones go to `skipped` instead. */
  readonly records: (skipped: (problem: string) => void) => AsyncIterable<StoreRecord>;
  /**
   * Makes the store out of what `fill` writes. Before that has ended without throwing, it does not
   * open as a store. Refuses a store that holds something; run an interrupted import again.
   */
  readonly import: (fill: FillStore) => Promise<void>;
  /** `null` where a database has its own tools for these. */
  readonly files: FileMaintenance | null;
};

export type FileMaintenance = {
  /** Copies the store into the folder `to`. An interrupted copy does not open as a store. */
  readonly backup: (to: string) => Promise<string>;
  /** Makes the store from a backup, and renames an existing one. Run an interrupted one again. */
  readonly restore: (from: string) => Promise<string>;
  readonly verify: () => Promise<VerifyReport>;
  /** Gives room that is free inside back to the disk. An interrupted one changes nothing. */
  readonly compact: () => Promise<string>;
};

export interface StoragePlugin<Options = unknown> {
  /** Name in the configuration. */
  readonly name: string;
  readonly provides: readonly CapabilityName[];
  /** Into options, or into every problem with its setting's name. Synchronous. */
  parseOptions(input: unknown): ParsedOptions<Options>;
  open(options: Options, environment: StoreEnvironment): Promise<Store>;
  /**
   * Brings the base of the store (a database's schema) to the version of this program, then moves
   * places of a store over several databases, and returns a text about what was done; `null` where
   * there is nothing to prepare.
   */
  readonly migrate: ((options: Options, move?: PlaceMove) => Promise<string>) | null;
  readonly maintenance: ((options: Options) => StoreMaintenance) | null;
}

/** Which places (docs/scaling.md) of a store go to which of its databases. */
export type PlaceMove = { readonly places: readonly number[]; readonly to: string };
