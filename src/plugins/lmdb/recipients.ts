/**
 * The recipient index of a mailbox: its recipients, their entries in order of arrival, their chunk groups, the
 * labels of rows, and the sums that quotas are held against. It decides nothing; the mailbox index does.
 * Memory: about 300 bytes for each recipient with rows and for each group, 50 for each chunk.
 */

import type { MailboxKey, Uuid } from "../../core/codec/did.ts";
import type { Chunk, MailboxStats } from "../../storage/contract.ts";
import { isStoreLabel, nothingHeld } from "../../storage/mailbox-rules.ts";
import { held, none, type RowTable } from "./rows.ts";

export type Group = { readonly id: Uuid; readonly total: number; readonly chunks: Map<number, number> };

export type Recipient = {
  readonly number: number;
  readonly did: MailboxKey;
  /** Rows of any state; the recipient is forgotten with the last. */
  rows: number;
  entries: number;
  bytes: number;
  first: number;
  last: number;
  groups: Map<Uuid, number> | null;
  /** What is held under each label. */
  readonly labels: Map<string, { entries: number; bytes: number }>;
};

export class RecipientIndex {
  /** Sums over everything that is held. */
  entries = 0;
  bytes = 0;
  private readonly byDid = new Map<MailboxKey, Recipient>();
  private readonly recipients: (Recipient | undefined)[] = [];
  private readonly recipientsFree: number[] = [];
  private readonly groups: (Group | undefined)[] = [];
  private readonly groupsFree: number[] = [];
  /** Chunks of loaded rows. While it is there, rows count, but stand in no list and no group yet. */
  private loading: Map<number, Chunk> | null = null;
  private readonly labelSets = new LabelSets();

  constructor(private readonly rows: RowTable) {}

  find(did: MailboxKey): Recipient | undefined {
    return this.byDid.get(did);
  }

  did(slot: number): MailboxKey {
    return this.recipients[this.rows.recipient[slot]!]!.did;
  }

  group(recipient: Recipient | undefined, groupId: Uuid): Group | undefined {
    const number = recipient?.groups?.get(groupId);
    return number === undefined ? undefined : this.groups[number];
  }

  conflicts(recipient: Recipient, chunk: Chunk): boolean {
    const group = this.group(recipient, chunk.groupId);
    return group !== undefined && (group.total !== chunk.total || group.chunks.has(chunk.sequence));
  }

  chunk(slot: number): Chunk | null {
    const number = this.rows.group[slot]!;
    if (number === none) return null;
    const group = this.groups[number]!;
    return { groupId: group.id, sequence: this.rows.sequence[slot]!, total: group.total };
  }

  labels(slot: number): readonly string[] {
    return this.labelSets.labels(this.rows.labels[slot]!);
  }

  setLabels(slot: number, labels: readonly string[]): void {
    const before = this.rows.labels[slot]!;
    this.rows.labels[slot] = this.labelSets.take(labels);
    this.labelSets.release(before);
  }

  /** What is held under a label that is counted over the store. */
  heldInStore(label: string): MailboxStats {
    return this.labelSets.heldInStore(label);
  }

  private countLabels(slot: number, recipient: Recipient, sign: 1 | -1): void {
    const set = this.rows.labels[slot]!;
    this.labelSets.countInStore(set, sign, sign * this.rows.envelopeBytes[slot]!);
    for (const label of this.labelSets.inMailbox(set)) {
      let usage = recipient.labels.get(label);
      if (usage === undefined) {
        usage = { entries: 0, bytes: 0 };
        recipient.labels.set(label, usage);
      }
      usage.entries += sign;
      usage.bytes += sign * this.rows.envelopeBytes[slot]!;
      if (usage.entries === 0) recipient.labels.delete(label);
    }
  }

  beginLoading(): void {
    this.loading ??= new Map();
  }

  /** Puts the loaded rows that are held in order of arrival. Cost: one sort. */
  finishLoading(): void {
    const { status, arrival, recipient, slots } = this.rows;
    const order = new Uint32Array(this.entries);
    let count = 0;
    for (let slot = 0; slot < slots; slot++) if (status[slot] === held) order[count++] = slot;
    order.sort((a, b) => arrival[a]! - arrival[b]!);
    const chunks = this.loading;
    this.loading = null;
    for (const slot of order) {
      const owner = this.recipients[recipient[slot]!]!;
      this.append(slot, owner);
      const chunk = chunks?.get(slot);
      if (chunk !== undefined) this.joinGroup(slot, owner, chunk);
    }
  }

  /** A held row begins to count. */
  count(slot: number, recipient: Recipient, chunk: Chunk | null): void {
    const bytes = this.rows.envelopeBytes[slot]!;
    recipient.entries++;
    recipient.bytes += bytes;
    this.entries++;
    this.bytes += bytes;
    this.countLabels(slot, recipient, 1);
    if (this.loading !== null) {
      if (chunk !== null) this.loading.set(slot, chunk);
      else this.loading.delete(slot);
      return;
    }
    this.append(slot, recipient);
    if (chunk !== null) this.joinGroup(slot, recipient, chunk);
  }

  private append(slot: number, recipient: Recipient): void {
    const { next, previous } = this.rows;
    previous[slot] = recipient.last;
    next[slot] = none;
    if (recipient.last === none) recipient.first = slot;
    else next[recipient.last] = slot;
    recipient.last = slot;
  }

  private joinGroup(slot: number, recipient: Recipient, chunk: Chunk): void {
    recipient.groups ??= new Map();
    let number = recipient.groups.get(chunk.groupId);
    if (number === undefined) {
      number = this.groupsFree.pop() ?? this.groups.length;
      this.groups[number] = { id: chunk.groupId, total: chunk.total, chunks: new Map() };
      recipient.groups.set(chunk.groupId, number);
    }
    this.groups[number]!.chunks.set(chunk.sequence, slot);
    this.rows.group[slot] = number;
  }

  /** A held row stops counting: it leaves its list, its group and the sums. */
  uncount(slot: number): void {
    const rows = this.rows;
    const recipient = this.recipients[rows.recipient[slot]!]!;
    const bytes = rows.envelopeBytes[slot]!;
    recipient.entries--;
    recipient.bytes -= bytes;
    this.entries--;
    this.bytes -= bytes;
    this.countLabels(slot, recipient, -1);
    if (this.loading !== null) return;
    this.unlink(slot, recipient);
    const number = rows.group[slot]!;
    if (number === none) return;
    const group = this.groups[number]!;
    group.chunks.delete(rows.sequence[slot]!);
    rows.group[slot] = none;
    if (group.chunks.size > 0) return;
    recipient.groups!.delete(group.id);
    if (recipient.groups!.size === 0) recipient.groups = null;
    this.groups[number] = undefined;
    this.groupsFree.push(number);
  }

  unlink(slot: number, list: { first: number; last: number }): void {
    const { next, previous } = this.rows;
    const [before, after] = [previous[slot]!, next[slot]!];
    if (before === none) list.first = after;
    else next[before] = after;
    if (after === none) list.last = before;
    else previous[after] = before;
  }

  /** A row goes. */
  leave(slot: number): void {
    const recipient = this.recipients[this.rows.recipient[slot]!]!;
    this.setLabels(slot, []);
    if (--recipient.rows > 0) return;
    this.byDid.delete(recipient.did);
    this.recipients[recipient.number] = undefined;
    this.recipientsFree.push(recipient.number);
  }

  take(did: MailboxKey): Recipient {
    let recipient = this.byDid.get(did);
    if (recipient !== undefined) return recipient;
    const number = this.recipientsFree.pop() ?? this.recipients.length;
    recipient = {
      number,
      did,
      rows: 0,
      entries: 0,
      bytes: 0,
      first: none,
      last: none,
      groups: null,
      labels: new Map(),
    };
    this.recipients[number] = recipient;
    this.byDid.set(did, recipient);
    return recipient;
  }
}

type LabelSet = {
  readonly labels: readonly string[];
  /** Those that count within a mailbox. */
  readonly inMailbox: readonly string[];
  /** Sums over the store, of the label that has them. */
  readonly inStore: StoreUsage | null;
  readonly key: string;
  rows: number;
};

type StoreUsage = { readonly label: string; entries: number; bytes: number; sets: number };

/** The number of the empty set. */
export const noLabels = 0;

export class LabelSets {
  private readonly numbers = new Map<string, number>();
  private readonly sets: (LabelSet | undefined)[] = [{ labels: [], inMailbox: [], inStore: null, key: "", rows: 0 }];
  private readonly free: number[] = [];
  private readonly storeUsages = new Map<string, StoreUsage>();

  labels(number: number): readonly string[] {
    return this.sets[number]!.labels;
  }

  inMailbox(number: number): readonly string[] {
    return this.sets[number]!.inMailbox;
  }

  /** Adds to the sum over the store, if one of the labels has one. */
  countInStore(number: number, entries: number, bytes: number): void {
    const usage = this.sets[number]!.inStore;
    if (usage === null) return;
    usage.entries += entries;
    usage.bytes += bytes;
  }

  heldInStore(label: string): MailboxStats {
    return this.storeUsages.get(label) ?? nothingHeld;
  }

  /** One more row has these labels. Labels hold no spaces. */
  take(labels: readonly string[]): number {
    if (labels.length === 0) return noLabels;
    const key = labels.join(" ");
    let number = this.numbers.get(key);
    if (number === undefined) {
      number = this.free.pop() ?? this.sets.length;
      this.sets[number] = this.newSet(key);
      this.numbers.set(key, number);
    }
    this.sets[number]!.rows++;
    return number;
  }

  release(number: number): void {
    if (number === noLabels) return;
    const set = this.sets[number]!;
    if (--set.rows > 0) return;
    this.numbers.delete(set.key);
    if (set.inStore !== null && --set.inStore.sets === 0) this.storeUsages.delete(set.inStore.label);
    this.sets[number] = undefined;
    this.free.push(number);
  }

  private newSet(key: string): LabelSet {
    const labels = key.split(" ");
    const inMailbox = labels.filter((label) => !isStoreLabel(label));
    const counted = labels.find(isStoreLabel);
    if (counted === undefined) return { labels, inMailbox, inStore: null, key, rows: 0 };
    const inStore = this.storeUsages.get(counted) ?? { label: counted, entries: 0, bytes: 0, sets: 0 };
    inStore.sets++;
    this.storeUsages.set(counted, inStore);
    return { labels, inMailbox, inStore, key, rows: 0 };
  }
}
