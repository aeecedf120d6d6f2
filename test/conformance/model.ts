/**
 * Random sequences of operations, played to a driver and to the naive twin, whose answers must be
 * the same. Time moves forward, stores are closed and opened now and then, and a failure names its
 * seed.
 */
import { expect } from "bun:test";
import type { MailboxKey, Uuid } from "../../src/core/codec/did.ts";
import { isFault } from "../../src/core/fault.ts";
import type { Cursor, Mailbox, MailboxEntry } from "../../src/storage/contract.ts";
import { shortDigest } from "../../src/storage/mailbox-rules.ts";
import type { MailboxQuota } from "../../src/storage/quota.ts";
import type { ConformanceCase } from "./kit.ts";
import { bytesOf, chunkOf, did, id, ids, seeded } from "./samples.ts";
import { openTwin, type Twin } from "./twin.ts";

/**
 * Seeds 5 and 44 once found a group that was read back with chunks of two lives, and a refusal that
 * left a trace.
 */
const seeds = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 44];
const stepsPerSeed = 400;
/** Small enough that ids meet again, groups fill and quotas bind. */
const recipients = 3;
const messageIds = 40;
const quota: MailboxQuota = {
  recipientEntriesMax: 12,
  recipientBytesMax: 6_000,
  places: [
    {
      own: { label: "net:a", entriesMax: 2, bytesMax: 700 },
      pool: "floors",
      poolMax: { entries: 5, bytes: 2_000 },
      isRest: false,
    },
    {
      own: { label: "net:a", entriesMax: 6, bytesMax: 3_000 },
      pool: "rest",
      poolMax: { entries: 4, bytes: 2_500 },
      isRest: true,
    },
  ],
  storeEntriesMax: 30,
  storeBytesMax: 14_000,
  storeShare: null,
};
const ofStore: MailboxQuota = {
  ...quota,
  places: quota.places.slice(1),
  storeShare: { label: "via:1", entriesMax: 12, bytesMax: 5_500 },
};
/** In which more waits than a driver adds up each time. */
const larger: MailboxQuota = {
  ...quota,
  recipientEntriesMax: 35,
  recipientBytesMax: 20_000,
  places: quota.places.map((place) => ({
    ...place,
    own: { ...place.own, entriesMax: 2 * place.own.entriesMax },
    poolMax: { entries: 4 * place.poolMax.entries, bytes: 4 * place.poolMax.bytes },
  })),
  storeEntriesMax: 100,
  storeBytesMax: 50_000,
};
/** Entries of several senders take places of the same pools. */
const owners = ["net:a", "net:b", "net:c"];

type Game = { readonly seed: number; readonly quota: MailboxQuota; readonly name: string };

const plain = (seed: number): Game => ({ seed, quota, name: `seed ${seed}` });
const withShare = (seed: number): Game => ({
  seed,
  quota: ofStore,
  name: `seed ${seed}, with a share of the store`,
});
const withLarger = (seed: number): Game => ({
  seed,
  quota: larger,
  name: `seed ${seed}, larger mailboxes`,
});

/**
 * One of each kind, and the seeds that once found something, come first: a slow driver plays those.
 */
const first = [plain(5), withShare(1), plain(44), withLarger(1)];
const all = [...seeds.map(plain), ...[1, 2, 3, 4, 5].map(withShare), ...[1, 2, 3].map(withLarger)];
const names = new Set(first.map(({ name }) => name));
const games = [...first, ...all.filter(({ name }) => !names.has(name))];

export const modelCases: readonly ConformanceCase[] = games.map(
  ({ seed, quota: limits, name }) => ({
    name: `random operations answer as the naive twin does (${name})`,
    capability: "mailbox",
    async run({ store, reopen }) {
      const random = seeded(seed);
      let mailbox = store.capabilities.mailbox!;
      const play = new Play(openTwin(), random, limits);
      for (let step = 0; step < stepsPerSeed; step++) {
        if (reopen !== null && random() < 0.01) mailbox = (await reopen()).capabilities.mailbox!;
        try {
          await play.step(mailbox);
        } catch (error) {
          throw new Error(`seed ${seed}, step ${step}: ${(error as Error).message}`, {
            cause: error,
          });
        }
      }
    },
  }),
);

class Play {
  private nowMs = 1_000;
  /** Cursors that the driver gave out, with the place they mean to the twin. */
  private readonly cursors: { recipient: MailboxKey; cursor: Cursor; place: number }[] = [];

  constructor(
    private readonly twin: Twin,
    private readonly random: () => number,
    private readonly quota: MailboxQuota,
  ) {}

  async step(mailbox: Mailbox): Promise<void> {
    this.nowMs += this.below(40);
    const roll = this.random();
    if (roll < 0.4) await this.store(mailbox);
    else if (roll < 0.5) await this.burst(mailbox);
    else if (roll < 0.65) await this.remove(mailbox);
    else if (roll < 0.75) await this.list(mailbox);
    else if (roll < 0.87) await this.summary(mailbox);
    else if (roll < 0.92) await this.message(mailbox);
    else if (roll < 0.95) await this.read(mailbox);
    else await this.expire(mailbox);
    if (this.random() >= 0.2) return;
    expect(await mailbox.stats(this.nowMs)).toEqual(this.twin.stats(this.nowMs));
    expect(await mailbox.oldest(this.nowMs)).toBe(this.twin.oldest(this.nowMs));
  }

  private below(n: number): number {
    return Math.floor(this.random() * n);
  }

  private pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)]!;
  }

  private recipient(): MailboxKey {
    return did(this.below(recipients));
  }

  private messageId(): Uuid {
    return id(this.below(messageIds));
  }

  private entry(): MailboxEntry {
    const lifeMs = 1 + this.below(1_500);
    const envelope = bytesOf(this.below(100), 1 + this.below(this.random() < 0.1 ? 3_000 : 500));
    const author = this.pick(["from:b", "from:c", null, null]);
    return {
      recipient: this.recipient(),
      messageId: this.messageId(),
      chunk: this.random() < 0.4 ? chunkOf(this.below(2), this.below(2), 2 + this.below(2)) : null,
      storedAtMs: this.nowMs,
      expiresAtMs: this.nowMs + lifeMs,
      keptUntilMs: this.nowMs + 2 * lifeMs,
      onExpiry: this.pick(["DeleteOnExpiry", "KeepHeaderPreview", "TombstoneReference"]),
      labels: [...(author === null ? [] : [author]), `via:${lifeMs % 3}`],
      headerPreview: this.random() < 0.5 ? bytesOf(this.below(100), this.below(50)) : null,
      envelope,
      digest: shortDigest(envelope),
    };
  }

  /** The quota for one of the senders. */
  private limits(): MailboxQuota {
    const label = this.pick(owners);
    const places = this.quota.places.map((one) => ({ ...one, own: { ...one.own, label } }));
    return { ...this.quota, places };
  }

  private async store(mailbox: Mailbox): Promise<void> {
    const [entry, limits] = [this.entry(), this.limits()];
    expect(await mailbox.store(entry, limits)).toEqual(this.twin.store(entry, limits));
  }

  /**
   * Calls made together happen as if in some order: the sums must come out the same as in order of
   * call.
   */
  private async burst(mailbox: Mailbox): Promise<void> {
    const [entry, limits] = [this.entry(), this.limits()];
    const outcomes = await Promise.all([1, 2, 3].map(() => mailbox.store(entry, limits)));
    const expected = [1, 2, 3].map(() => this.twin.store(entry, limits));
    expect(outcomes.map((one) => one.kind).sort()).toEqual(expected.map((one) => one.kind).sort());
  }

  private async remove(mailbox: Mailbox): Promise<void> {
    const recipient = this.recipient();
    const named = Array.from({ length: this.below(12) }, () => this.messageId());
    expect(await mailbox.remove(recipient, named, this.nowMs)).toEqual(
      this.twin.remove(recipient, named, this.nowMs),
    );
  }

  private async list(mailbox: Mailbox): Promise<void> {
    const known = this.random() < 0.5 && this.cursors.length > 0 ? this.pick(this.cursors) : null;
    const recipient = known?.recipient ?? this.recipient();
    const page = { entriesMax: 1 + this.below(6), bytesMax: this.below(2_000), nowMs: this.nowMs };
    const found = await mailbox.list(recipient, { ...page, after: known?.cursor ?? null });
    if (isFault(found)) throw new Error(found.detail);
    const expected = this.twin.list(recipient, page, known?.place ?? 0);
    expect([...found.entries]).toEqual(expected.entries);
    expect(found.next === null).toBe(expected.next === null);
    if (found.next !== null)
      this.remember({ recipient, cursor: found.next, place: expected.next! });
  }

  private async summary(mailbox: Mailbox): Promise<void> {
    const recipient = this.recipient();
    const page = { after: null, entriesMax: 1 + this.below(9), bytesMax: 0, nowMs: this.nowMs };
    const found = await mailbox.summary(recipient, page);
    if (isFault(found)) throw new Error(found.detail);
    const expected = this.twin.list(recipient, { ...page, bytesMax: Number.MAX_SAFE_INTEGER }, 0);
    expect(found.entries.map((one) => one.messageId)).toEqual(
      expected.entries.map((one) => one.messageId),
    );
    for (const [i, one] of found.entries.entries()) {
      expect(one.envelopeBytes).toBe(expected.entries[i]!.envelope.length);
      expect(one.chunk).toEqual(expected.entries[i]!.chunk);
      this.remember({ recipient, cursor: one.cursor, place: expected.places[i]! });
    }
    const { groupId } = chunkOf(this.below(2), 0, 1);
    const all = this.twin.list(
      recipient,
      { nowMs: this.nowMs, entriesMax: 1_000, bytesMax: 1 << 30 },
      0,
    ).entries;
    const chunks = all.filter(({ chunk }) => chunk?.groupId === groupId);
    chunks.sort((a, b) => a.chunk!.sequence - b.chunk!.sequence);
    expect(ids(await mailbox.chunks(recipient, groupId, this.nowMs))).toEqual(ids(chunks));
  }

  private remember(known: { recipient: MailboxKey; cursor: Cursor; place: number }): void {
    this.cursors.push(known);
    if (this.cursors.length > 20) this.cursors.shift();
  }

  private async read(mailbox: Mailbox): Promise<void> {
    const recipient = this.recipient();
    const named = [...new Set(Array.from({ length: 1 + this.below(12) }, () => this.messageId()))];
    const found = await mailbox.read(recipient, named, this.nowMs);
    expect(found).toEqual(this.twin.read(recipient, named, this.nowMs));
  }

  private async message(mailbox: Mailbox): Promise<void> {
    const [recipient, messageId] = [this.recipient(), this.messageId()];
    const found = await mailbox.message(recipient, messageId, this.nowMs);
    expect(found).toEqual(this.twin.message(recipient, messageId, this.nowMs));
    const envelope = found.state === "active" ? found.message.envelope : bytesOf(1, 1);
    const named = { messageId, digest: shortDigest(envelope) };
    const known = await mailbox.known(recipient, named, this.nowMs);
    expect(known).toEqual(this.twin.known(recipient, named, this.nowMs));
  }

  /** How much a sweep frees is the driver's own affair: it must end, and change no answer. */
  private async expire(mailbox: Mailbox): Promise<void> {
    const limit = 1 + this.below(10);
    for (let step = 0; step < 1_000; step++) {
      const freed = await mailbox.expire(this.nowMs, limit);
      expect(freed).toBeLessThanOrEqual(limit);
      if (freed === 0 || this.random() < 0.3) return;
    }
    throw new Error("the sweep never ends");
  }
}
