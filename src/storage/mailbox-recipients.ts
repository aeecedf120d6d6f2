/**
 * The recipient index of a mailbox: its recipients, their entries in order of arrival,
 * their chunk groups, the usage of their labels, and the sums that quotas are held against.
 * It decides nothing; the mailbox index does. Recipients, label sets and groups are
 * interned: a text has a number for as long as rows name it. Memory: about 150 bytes for
 * each text, 80 for each recipient, and, once they are asked for, 100 for each of its
 * groups and labels.
 */
import type { MailboxKey, Uuid } from "../core/codec/did.ts";
import { type Chunk, type MailboxStats, StoreError } from "./contract.ts";
import { free, held, none, type RowList, type RowTable, resized } from "./mailbox-rows.ts";
import { isStoreLabel, nothingHeld, type StoreSums } from "./mailbox-rules.ts";

/**
 * Texts by number, counted by the rows that name them. A number is used again when no row
 * names its text.
 */
export class TextTable {
  private readonly numbers = new Map<string, number>();
  private texts: (string | undefined)[] = [];
  private users = new Uint32Array(1_024);
  private freeNumbers: number[] = [];

  /** Calls `onChange` when a number gets a text or loses it. */
  constructor(private readonly onChange: (number: number) => void) {}

  find(text: string): number | undefined {
    return this.numbers.get(text);
  }

  has(number: number): boolean {
    return this.texts[number] !== undefined;
  }

  at(number: number): string {
    return this.texts[number]!;
  }

  /** One more row names the text, whose number the caller may know. */
  add(text: string, known = this.numbers.get(text)): number {
    let number = known;
    if (number === undefined) {
      number = this.freeNumbers.pop() ?? this.texts.length;
      this.set(number, text);
      this.numbers.set(text, number);
      this.onChange(number);
    }
    this.users[number]!++;
    return number;
  }

  /** One row less names the text; returns whether it was the last. */
  release(number: number): boolean {
    if (--this.users[number]! > 0) return false;
    this.numbers.delete(this.texts[number]!);
    this.texts[number] = undefined;
    this.freeNumbers.push(number);
    this.onChange(number);
    return true;
  }

  /** The texts of the numbers from `from` up to but without `to`. */
  slice(from: number, to: number): (string | undefined)[] {
    return this.texts.slice(from, to);
  }

  /**
   * Sets a text while the index is loaded; rows are counted by `loadUser`, and
   * `finishLoading` must follow.
   */
  load(number: number, text: string): void {
    while (this.texts.length < number) this.texts.push(undefined);
    this.set(number, text);
  }

  private set(number: number, text: string): void {
    this.texts[number] = text;
    if (number >= this.users.length) this.users = resized(this.users, 2 * number);
  }

  /** One more loaded row names the text; `none` is not a text. */
  loadUser(number: number): void {
    if (number === none) return;
    if (this.texts[number] === undefined) {
      throw new StoreError("corrupt", `the text number ${number} of the mailbox index is missing`);
    }
    this.users[number]!++;
  }

  finishLoading(): void {
    for (let number = 0; number < this.texts.length; number++) {
      const text = this.texts[number];
      if (this.users[number] === 0) {
        this.texts[number] = undefined;
        this.freeNumbers.push(number);
      } else if (text !== undefined) this.numbers.set(text, number);
    }
  }
}

/** Chunks of a group that are held: slots by sequence number. */
type ChunkGroup = Map<number, number>;

type Usage = { entries: number; bytes: number };
/** `ids` are those of all its rows, held or not. */
type StoreUsage = Usage & { readonly label: string; ids: number };
const nothingKnown = { ...nothingHeld, ids: 0 };
/** What a label set adds to: the sums of `own` labels within a mailbox, and one over the store. */
type LabelSet = { readonly own: readonly string[]; readonly store: StoreUsage | null };
type Details = { readonly labels: Map<string, Usage>; readonly groups: Map<number, ChunkGroup> };
/**
 * A recipient's held rows in order of arrival. Details are counted once they are asked for:
 * one pass over the rows.
 */
type RecipientRows = RowList & Usage & { details: Details | null };

export class RecipientIndex {
  /** Sums over everything that is held. */
  entries = 0;
  bytes = 0;
  /** By the number of its text. */
  private readonly recipients: (RecipientRows | undefined)[] = [];
  private readonly storeUsages = new Map<string, StoreUsage>();
  /** By the number of its text. */
  private readonly labelSets: (LabelSet | undefined)[] = [];

  constructor(
    private readonly rows: RowTable,
    readonly texts: TextTable,
  ) {}

  find(mailbox: MailboxKey): number | undefined {
    return this.texts.find(mailbox);
  }

  mailbox(slot: number): MailboxKey {
    return this.texts.at(this.rows.recipient[slot]!) as MailboxKey;
  }

  /** The oldest entry that is held, or `none`. */
  first(recipient: number): number {
    return this.recipients[recipient]?.first ?? none;
  }

  /** That of each recipient; `none` among them. */
  *firsts(): Generator<number, void, undefined> {
    for (const recipient of this.recipients) yield recipient?.first ?? none;
  }

  /** What is held for a recipient, altogether (`null`) or under a label. */
  usage(recipient: number | undefined, label: string | null): MailboxStats {
    const found = recipient === undefined ? undefined : this.recipients[recipient];
    if (found === undefined) return nothingHeld;
    return label === null ? found : (this.detailsOf(found).labels.get(label) ?? nothingHeld);
  }

  /**
   * What is held, altogether (`null`) or under a label that is counted over the store, and
   * all ids that are known there.
   */
  inStore(label: string | null): StoreSums {
    if (label !== null) return this.storeUsages.get(label) ?? nothingKnown;
    return { entries: this.entries, bytes: this.bytes, ids: this.rows.rows };
  }

  group(recipient: number, groupId: Uuid): ChunkGroup | undefined {
    const [number, found] = [this.texts.find(groupId), this.recipients[recipient]];
    return number === undefined || found === undefined
      ? undefined
      : this.detailsOf(found).groups.get(number);
  }

  /** Another chunk of the group has the sequence number, or the group has another total. */
  conflicts(recipient: number, chunk: Chunk): boolean {
    const group = this.group(recipient, chunk.groupId);
    if (group === undefined) return false;
    const [slot] = group.values();
    return this.rows.total[slot!]! !== chunk.total || group.has(chunk.sequence);
  }

  chunk(slot: number): Chunk | null {
    const { group, sequence, total } = this.rows;
    const number = group[slot]!;
    if (number === none) return null;
    return {
      groupId: this.texts.at(number) as Uuid,
      sequence: sequence[slot]!,
      total: total[slot]!,
    };
  }

  labels(slot: number): string[] {
    const number = this.rows.labels[slot]!;
    return number === none ? [] : this.texts.at(number).split(" ");
  }

  private detailsOf(recipient: RecipientRows): Details {
    if (recipient.details !== null) return recipient.details;
    const details: Details = { labels: new Map(), groups: new Map() };
    for (let slot = recipient.first; slot !== none; slot = this.rows.next[slot]!)
      this.countDetails(slot, details, 1);
    recipient.details = details;
    return details;
  }

  /** A held row is counted under its labels and its group, or no more. */
  private countDetails(slot: number, { labels, groups }: Details, sign: 1 | -1): void {
    const { group, sequence, envelopeBytes } = this.rows;
    for (const label of this.labelSetOf(slot)?.own ?? []) {
      const usage = labels.get(label) ?? { entries: 0, bytes: 0 };
      usage.entries += sign;
      usage.bytes += sign * envelopeBytes[slot]!;
      if (usage.entries === 0) labels.delete(label);
      else labels.set(label, usage);
    }
    const number = group[slot]!;
    if (number === none) return;
    const chunks = groups.get(number) ?? new Map<number, number>();
    if (sign === 1) groups.set(number, chunks.set(sequence[slot]!, slot));
    else if (chunks.delete(sequence[slot]!) && chunks.size === 0) groups.delete(number);
  }

  /**
   * A held row begins to count, as the last of its recipient (1), or leaves its list, its
   * group and the sums (-1).
   */
  count(slot: number, sign: 1 | -1): void {
    const { rows } = this;
    const recipient = this.recipientOf(slot);
    if (sign === 1) rows.append(slot, recipient);
    else rows.unlink(slot, recipient);
    const bytes = sign * rows.envelopeBytes[slot]!;
    recipient.entries += sign;
    recipient.bytes += bytes;
    this.entries += sign;
    this.bytes += bytes;
    const usage = this.storeUsageAt(slot);
    if (usage !== null) {
      usage.entries += sign;
      usage.bytes += bytes;
    }
    if (recipient.first === none) recipient.details = null;
    else if (recipient.details !== null) this.countDetails(slot, recipient.details, sign);
  }

  private recipientOf(slot: number): RecipientRows {
    const number = this.rows.recipient[slot]!;
    const known = this.recipients[number];
    if (known !== undefined) return known;
    const made: RecipientRows = { first: none, last: none, entries: 0, bytes: 0, details: null };
    setAt(this.recipients, number, made);
    return made;
  }

  /** A row has an id that the store knows until it leaves. */
  join(slot: number): void {
    const usage = this.storeUsageAt(slot);
    if (usage !== null) usage.ids++;
  }

  private storeUsageAt(slot: number): StoreUsage | null {
    return this.labelSetOf(slot)?.store ?? null;
  }

  private labelSetOf(slot: number): LabelSet | null {
    const number = this.rows.labels[slot]!;
    if (number === none) return null;
    const known = this.labelSets[number];
    if (known !== undefined) return known;
    const labels = this.labels(slot);
    const own = labels.filter((label) => !isStoreLabel(label));
    const label = labels.find(isStoreLabel);
    const store =
      label === undefined
        ? null
        : (this.storeUsages.get(label) ?? { label, entries: 0, bytes: 0, ids: 0 });
    if (store !== null) this.storeUsages.set(store.label, store);
    setAt(this.labelSets, number, { own, store });
    return { own, store };
  }

  /** A row names its texts no more. */
  leave(slot: number): void {
    const { recipient, labels, group } = this.rows;
    const usage = this.storeUsageAt(slot);
    if (usage !== null && --usage.ids === 0) this.storeUsages.delete(usage.label);
    for (const number of [recipient[slot]!, labels[slot]!, group[slot]!]) {
      if (number === none || !this.texts.release(number)) continue;
      if (number < this.recipients.length) this.recipients[number] = undefined;
      if (number < this.labelSets.length) this.labelSets[number] = undefined;
    }
  }

  /**
   * Counts the loaded rows, and puts those that are held in order of arrival: mostly they
   * are in it already.
   */
  finishLoading(): void {
    const { texts } = this;
    const { status, arrival, recipient, labels, group, slots } = this.rows;
    const unordered = new Set<RecipientRows>();
    for (let slot = 0; slot < slots; slot++) {
      if (status[slot] === free) continue;
      texts.loadUser(recipient[slot]!);
      texts.loadUser(labels[slot]!);
      texts.loadUser(group[slot]!);
      this.join(slot);
      if (status[slot] !== held) continue;
      const owner = this.recipientOf(slot);
      if (owner.last !== none && arrival[owner.last]! > arrival[slot]!) unordered.add(owner);
      this.count(slot, 1);
    }
    texts.finishLoading();
    for (const owner of unordered) this.putInOrder(owner);
  }

  private putInOrder(recipient: RecipientRows): void {
    const { next, arrival } = this.rows;
    const slots: number[] = [];
    for (let slot = recipient.first; slot !== none; slot = next[slot]!) slots.push(slot);
    Object.assign(recipient, { first: none, last: none });
    for (const slot of slots.sort((a, b) => arrival[a]! - arrival[b]!))
      this.rows.append(slot, recipient);
  }
}

/** Without gaps: an array with large ones becomes a slow hash. */
function setAt<T>(list: (T | undefined)[], number: number, value: T): void {
  while (list.length < number) list.push(undefined);
  list[number] = value;
}
