/**
 * What an entry may use: limits of its mailbox and of the store, and the places in the
 * mailbox that it may take. A part of the storage contract (contract.ts); mailbox-rules.ts
 * decides by it.
 */
/** The most that active entries with `label` may use. */
export type MailboxShare = {
  readonly label: string;
  readonly entriesMax: number;
  readonly bytesMax: number;
};

/**
 * A place that an entry may take in its mailbox. It has room while both sums of labels,
 * with the entry, are within their limits. An entry that takes it gets both labels.
 */
export type MailboxPlace = {
  /** What the entries of this sender, or of its network, may use of the pool. */
  readonly own: MailboxShare;
  /** The label of everything in the pool. */
  readonly pool: string;
  readonly poolMax: { readonly entries: number; readonly bytes: number };
  /**
   * Then `own` must also hold no more, before the entry, than the pool has free: each half
   * of what the others leave.
   */
  readonly isRest: boolean;
};

/** Limits count active entries: neither acknowledged nor expired. Bytes are envelope bytes. */
export type MailboxQuota = {
  readonly recipientEntriesMax: number;
  readonly recipientBytesMax: number;
  /**
   * At most two: the entry takes the first that has room, and gets its labels; its own
   * labels and these are at most four. Without room in any the outcome names the pool of
   * the last. Without a place, an entry takes none.
   */
  readonly places: readonly MailboxPlace[];
  readonly storeEntriesMax: number;
  readonly storeBytesMax: number;
  /**
   * Of the whole store; applies when the new entry has its label. That begins with `via:`;
   * these labels are counted over the store, not within a mailbox, and at most 65,536
   * different ones should exist. Of the ids and bytes that the store has room for,
   * remembered and kept ids included, such a label gets at most half.
   */
  readonly storeShare: MailboxShare | null;
};
