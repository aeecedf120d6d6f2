/**
 * The recipient index of a mailbox: its recipients, their entries in order of arrival, their chunk groups, the
 * usage of their labels, and the sums that quotas are held against. It decides nothing; the mailbox index does.
 * Recipients, label sets and groups are interned: a text has a number for as long as rows name it.
 * Memory: about 150 bytes for each text; for each recipient that was stored to since the start, 100 more, and
 * 100 for each of its groups and labels.
 */
import type { MailboxKey, Uuid } from "../../core/codec/did.ts";
import { type Chunk, type MailboxStats, StoreError } from "../../storage/contract.ts";
import { isStoreLabel, nothingHeld } from "../../storage/mailbox-rules.ts";
import { howToGoOn } from "./records.ts";
import { free, held, none, type RowTable, resized } from "./rows.ts";

/** Texts by number, counted by the rows that name them. A number is used again when no row names its text. */
export class TextTable {
  private readonly numbers = new Map<string, number>();
  private texts: (string | undefined)[] = [];
  private users = new Uint32Array(1_024);
  private freeNumbers: number[] = [];

  /** `onChange` hears of every number that gets a text, and of every one that loses it (`null`). */
  constructor(private readonly onChange: (number: number, text: string | null) => void) {}

  find(text: string): number | undefined {
    return this.numbers.get(text);
  }

  /** One more than the highest number that was ever given. */
  get length(): number {
    return this.texts.length;
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
      this.onChange(number, text);
    }
    this.users[number]!++;
    return number;
  }

  /** One row less names the text; answers whether it was the last. */
  release(number: number): boolean {
    if (--this.users[number]! > 0) return false;
    this.numbers.delete(this.texts[number]!);
    this.texts[number] = undefined;
    this.freeNumbers.push(number);
    this.onChange(number, null);
    return true;
  }

  /** The texts of the numbers from `from` up to but without `to` that have one. */
  *between(from: number, to: number): Generator<readonly [number, string]> {
    for (let number = from; number < Math.min(to, this.texts.length); number++) {
      const text = this.texts[number];
      if (text !== undefined) yield [number, text];
    }
  }

  /** Sets a text while the index is loaded; rows are counted by `loadUser`, and `finishLoading` must follow. */
  load(number: number, text: string): void {
    while (this.texts.length < number) this.texts.push(undefined);
    this.set(number, text);
  }

  private set(number: number, text: string): void {
    this.texts[number] = text;
    if (number >= this.users.length) this.users = resized(this.users, 2 * number);
  }

  loadUser(number: number): void {
    if (this.texts[number] === undefined) {
      throw new StoreError("corrupt", `the text number ${number} of the mailbox index is missing${howToGoOn}`);
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
type Group = Map<number, number>;

type Usage = { entries: number; bytes: number };
/** `ids` are those of all its rows, held or not. */
type StoreUsage = Usage & { readonly label: string; ids: number };
const nothingKnown = { ...nothingHeld, ids: 0 };
/** What a label set adds to: the sums of `own` labels within a mailbox, and one over the store. */
type LabelSet = { readonly own: readonly string[]; readonly store: StoreUsage | null };
/** What is counted only for recipients that were stored to since the start: one pass over their entries. */
type Details = { readonly labels: Map<string, Usage>; readonly groups: Map<number, Group> };

export class RecipientIndex {
  /** Sums over everything that is held. */
  entries = 0;
  bytes = 0;
  private entriesOf = new Uint32Array(1_024);
  private bytesOf = new Float64Array(1_024);
  private firstOf = new Uint32Array(1_024).fill(none);
  private lastOf = new Uint32Array(1_024).fill(none);
  private readonly details = new Map<number, Details>();
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
    return recipient < this.firstOf.length ? this.firstOf[recipient]! : none;
  }

  /** What is held for a recipient, in all (`null`) or under a label. */
  usage(recipient: number | undefined, label: string | null): MailboxStats {
    if (recipient === undefined || recipient >= this.entriesOf.length) return nothingHeld;
    if (label !== null) return this.detailsOf(recipient).labels.get(label) ?? nothingHeld;
    return { entries: this.entriesOf[recipient]!, bytes: this.bytesOf[recipient]! };
  }

  /** What is held under a label that is counted over the store, and all ids that are known under it. */
  inStore(label: string): MailboxStats & { readonly ids: number } {
    return this.storeUsages.get(label) ?? nothingKnown;
  }

  group(recipient: number | undefined, groupId: Uuid): Group | undefined {
    const number = recipient === undefined ? undefined : this.texts.find(groupId);
    return number === undefined ? undefined : this.detailsOf(recipient!).groups.get(number);
  }

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
    return { groupId: this.texts.at(number) as Uuid, sequence: sequence[slot]!, total: total[slot]! };
  }

  labels(slot: number): string[] {
    const number = this.rows.labels[slot]!;
    return number === none ? [] : this.texts.at(number).split(" ");
  }

  private detailsOf(recipient: number): Details {
    const known = this.details.get(recipient);
    if (known !== undefined) return known;
    const made: Details = { labels: new Map(), groups: new Map() };
    this.details.set(recipient, made);
    for (let slot = this.first(recipient); slot !== none; slot = this.rows.next[slot]!)
      this.countDetails(slot, made, 1);
    return made;
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

  /** A held row begins to count, as the last of its recipient (1), or leaves its list, its group and the sums (-1). */
  count(slot: number, sign: 1 | -1): void {
    const { rows } = this;
    const recipient = rows.recipient[slot]!;
    this.reserve(recipient);
    const list = { first: this.firstOf[recipient]!, last: this.lastOf[recipient]! };
    if (sign === 1) rows.append(slot, list);
    else rows.unlink(slot, list);
    this.firstOf[recipient] = list.first;
    this.lastOf[recipient] = list.last;
    const bytes = sign * rows.envelopeBytes[slot]!;
    this.entriesOf[recipient]! += sign;
    this.bytesOf[recipient]! += bytes;
    this.entries += sign;
    this.bytes += bytes;
    const usage = this.storeUsageAt(slot);
    if (usage !== null) {
      usage.entries += sign;
      usage.bytes += bytes;
    }
    const details = this.details.get(recipient);
    if (details === undefined) return;
    if (list.first === none) this.details.delete(recipient);
    else this.countDetails(slot, details, sign);
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
    // Without gaps: an array with large ones becomes a slow hash.
    while (this.labelSets.length < number) this.labelSets.push(undefined);
    const labels = this.labels(slot);
    const own = labels.filter((label) => !isStoreLabel(label));
    const made = { own, store: this.storeUsageFor(labels.find(isStoreLabel)) };
    this.labelSets[number] = made;
    return made;
  }

  private storeUsageFor(label: string | undefined): StoreUsage | null {
    if (label === undefined) return null;
    const usage = this.storeUsages.get(label) ?? { label, entries: 0, bytes: 0, ids: 0 };
    this.storeUsages.set(label, usage);
    return usage;
  }

  /** A row names its texts no more. */
  leave(slot: number): void {
    const { recipient, labels, group } = this.rows;
    const usage = this.storeUsageAt(slot);
    if (usage !== null && --usage.ids === 0) this.storeUsages.delete(usage.label);
    for (const number of [recipient[slot]!, labels[slot]!, group[slot]!]) {
      const isGone = number !== none && this.texts.release(number);
      if (isGone && number < this.labelSets.length) this.labelSets[number] = undefined;
    }
  }

  /**
   * Counts the loaded rows, and puts those that are held in order of arrival: mostly they are in it already. Once up
   * and once down, so that only the arrays of recipients are touched at random. Makes no object for a row.
   */
  finishLoading(): void {
    const { texts } = this;
    const { status, arrival, recipient, labels, group, slots, envelopeBytes, next, previous } = this.rows;
    this.reserve(Math.max(texts.length - 1, 0));
    const { entriesOf, bytesOf, firstOf, lastOf } = this;
    const arrivalOf = new Float64Array(firstOf.length);
    const unordered = new Set<number>();
    // Neighbours mostly have the same labels.
    let [set, usage]: [number, StoreUsage | null] = [none, null];
    for (let slot = 0; slot < slots; slot++) {
      if (status[slot] === free) continue;
      const owner = recipient[slot]!;
      const bytes = envelopeBytes[slot]!;
      texts.loadUser(owner);
      if (labels[slot] !== none) texts.loadUser(labels[slot]!);
      if (group[slot]! !== none) texts.loadUser(group[slot]!);
      if (labels[slot] !== set) {
        set = labels[slot]!;
        usage = this.storeUsageAt(slot);
      }
      if (usage !== null) usage.ids++;
      if (status[slot] !== held) continue;
      if (arrivalOf[owner]! > arrival[slot]!) unordered.add(owner);
      arrivalOf[owner] = arrival[slot]!;
      previous[slot] = lastOf[owner]!;
      lastOf[owner] = slot;
      entriesOf[owner]!++;
      bytesOf[owner]! += bytes;
      if (usage === null) continue;
      usage.entries++;
      usage.bytes += bytes;
    }
    for (let slot = slots - 1; slot >= 0; slot--) {
      if (status[slot] !== held) continue;
      const owner = recipient[slot]!;
      next[slot] = firstOf[owner]!;
      firstOf[owner] = slot;
    }
    for (const entries of entriesOf) this.entries += entries;
    for (const bytes of bytesOf) this.bytes += bytes;
    texts.finishLoading();
    for (const owner of unordered) this.putInOrder(owner);
  }

  private putInOrder(recipient: number): void {
    const { next, previous, arrival } = this.rows;
    const slots: number[] = [];
    for (let slot = this.first(recipient); slot !== none; slot = next[slot]!) slots.push(slot);
    slots.sort((a, b) => arrival[a]! - arrival[b]!);
    for (const [i, slot] of slots.entries()) {
      previous[slot] = slots[i - 1] ?? none;
      next[slot] = slots[i + 1] ?? none;
    }
    this.firstOf[recipient] = slots[0] ?? none;
    this.lastOf[recipient] = slots.at(-1) ?? none;
  }

  private reserve(recipient: number): void {
    const before = this.entriesOf.length;
    if (recipient < before) return;
    const to = Math.max(recipient + 1, before * 2);
    this.entriesOf = resized(this.entriesOf, to);
    this.bytesOf = resized(this.bytesOf, to);
    this.firstOf = resized(this.firstOf, to).fill(none, before);
    this.lastOf = resized(this.lastOf, to).fill(none, before);
  }
}
