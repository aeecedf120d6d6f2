/**
 * The naive twin: a mailbox as one list that every operation walks through. Slow on purpose;
 * drivers must answer like it.
 */
import type { MailboxKey, Uuid } from "../../src/core/codec/did.ts";
import type {
  HeldMessage,
  KnownMessage,
  MailboxEntry,
  MailboxStats,
  MessageState,
  PageRequest,
  RemovedMessage,
  StoreOutcome,
} from "../../src/storage/contract.ts";
import type { MailboxPlace, MailboxQuota, MailboxShare } from "../../src/storage/quota.ts";

type Line = MailboxEntry & { readonly place: number; acked: boolean };
type TwinPage = {
  readonly entries: HeldMessage[];
  readonly places: number[];
  readonly next: number | null;
};

export type Twin = {
  store(entry: MailboxEntry, quota: MailboxQuota): StoreOutcome;
  list(recipient: MailboxKey, page: Omit<PageRequest, "after">, after: number): TwinPage;
  read(recipient: MailboxKey, messageIds: readonly Uuid[], nowMs: number): HeldMessage[];
  message(recipient: MailboxKey, messageId: Uuid, nowMs: number): MessageState;
  known(
    recipient: MailboxKey,
    named: Pick<MailboxEntry, "messageId" | "digest">,
    nowMs: number,
  ): KnownMessage | null;
  remove(recipient: MailboxKey, messageIds: readonly Uuid[], nowMs: number): RemovedMessage[];
  stats(nowMs: number): MailboxStats;
  oldest(nowMs: number): number | null;
};

export function openTwin(): Twin {
  let lines: Line[] = [];
  let place = 0;

  const alive = (line: Line, nowMs: number) => line.expiresAtMs > nowMs;
  const active = (nowMs: number) => lines.filter((line) => !line.acked && alive(line, nowMs));
  const activeOf = (recipient: MailboxKey, nowMs: number) =>
    active(nowMs).filter((line) => line.recipient === recipient);
  const sum = (some: readonly Line[]) =>
    some.reduce((bytes, line) => bytes + line.envelope.length, 0);

  return {
    store(entry, quota) {
      const now = entry.storedAtMs;
      const same = lines.find(
        (l) => l.recipient === entry.recipient && l.messageId === entry.messageId && alive(l, now),
      );
      if (same !== undefined) {
        return { kind: "duplicate", ...knownOf(same, entry.digest) };
      }
      const mine = activeOf(entry.recipient, now);
      const { chunk } = entry;
      const conflict = mine.some(
        (l) =>
          chunk !== null &&
          l.chunk?.groupId === chunk.groupId &&
          (l.chunk.total !== chunk.total || l.chunk.sequence === chunk.sequence),
      );
      if (conflict) return { kind: "chunk_conflict" };
      const all = active(now);
      const size = entry.envelope.length;
      if (mine.length >= quota.recipientEntriesMax || sum(mine) + size > quota.recipientBytesMax) {
        return { kind: "full", scope: "recipient" };
      }
      const isOver = (
        { label, entriesMax, bytesMax }: MailboxShare,
        held: readonly Line[],
      ): boolean => {
        const own = held.filter((line) => line.labels.includes(label));
        return own.length + 1 > entriesMax || sum(own) + size > bytesMax;
      };
      const hasRoom = ({ own, pool, poolMax, isRest }: MailboxPlace): boolean => {
        const whole = { label: pool, entriesMax: poolMax.entries, bytesMax: poolMax.bytes };
        if (isOver(own, mine) || isOver(whole, mine)) return false;
        const [ours, all] = [own.label, pool].map((label) =>
          mine.filter((line) => line.labels.includes(label)),
        );
        const isLess = ours!.length <= poolMax.entries - all!.length;
        return !isRest || (isLess && sum(ours!) <= poolMax.bytes - sum(all!));
      };
      const taken = quota.places.find(hasRoom);
      const last = quota.places.at(-1);
      if (taken === undefined && last !== undefined)
        return { kind: "full", scope: "pool", label: last.pool };
      if (all.length >= quota.storeEntriesMax || sum(all) + size > quota.storeBytesMax) {
        return { kind: "full", scope: "store" };
      }
      const whole = quota.storeShare;
      if (whole !== null && entry.labels.includes(whole.label)) {
        if (isOver(whole, all)) return { kind: "full", scope: "store_share", label: whole.label };
      }
      lines = lines.filter(
        (l) => l.recipient !== entry.recipient || l.messageId !== entry.messageId,
      );
      const added = taken === undefined ? [] : [taken.own.label, taken.pool];
      const labels = [...new Set([...entry.labels, ...added])];
      lines.push({ ...entry, labels, place: ++place, acked: false });
      return { kind: "stored" };
    },
    list(recipient, page, after) {
      const left = activeOf(recipient, page.nowMs).filter((line) => line.place > after);
      const taken: Line[] = [];
      for (const line of left) {
        const fits =
          taken.length < page.entriesMax && sum(taken) + line.envelope.length <= page.bytesMax;
        if (taken.length > 0 && !fits) break;
        taken.push(line);
      }
      const next = taken.length < left.length ? taken.at(-1)!.place : null;
      return { entries: taken.map(shown), places: taken.map((line) => line.place), next };
    },
    read(recipient, messageIds, nowMs) {
      const mine = activeOf(recipient, nowMs);
      return messageIds.flatMap((id) => mine.filter((line) => line.messageId === id).map(shown));
    },
    message(recipient, messageId, nowMs) {
      const line = lines.find((l) => l.recipient === recipient && l.messageId === messageId);
      if (line === undefined) return { state: "absent" };
      if (alive(line, nowMs))
        return line.acked ? { state: "acked" } : { state: "active", message: shown(line) };
      if (line.acked || line.onExpiry === "DeleteOnExpiry" || line.keptUntilMs <= nowMs)
        return { state: "absent" };
      const headerPreview = line.onExpiry === "KeepHeaderPreview" ? line.headerPreview : null;
      return { state: "expired", expiresAtMs: line.expiresAtMs, headerPreview };
    },
    known(recipient, { messageId, digest }, nowMs) {
      const line = lines.find((l) => l.recipient === recipient && l.messageId === messageId);
      return line !== undefined && alive(line, nowMs) ? knownOf(line, digest) : null;
    },
    remove(recipient, messageIds, nowMs) {
      const gone = activeOf(recipient, nowMs).filter((line) => messageIds.includes(line.messageId));
      for (const line of gone) line.acked = true;
      const removed = gone.map(({ messageId, labels }) => ({ messageId, labels }));
      return removed.sort((a, b) => (a.messageId < b.messageId ? -1 : 1));
    },
    stats(nowMs) {
      return { entries: active(nowMs).length, bytes: sum(active(nowMs)) };
    },
    oldest(nowMs) {
      const times = active(nowMs).map(({ storedAtMs }) => storedAtMs);
      return times.length === 0 ? null : Math.min(...times);
    },
  };
}

function knownOf({ expiresAtMs, labels, digest }: Line, other: Uint8Array): KnownMessage {
  const author = labels.find((label) => label.startsWith("from:")) ?? null;
  return { expiresAtMs, isSame: Buffer.compare(digest, other) === 0, author };
}

function shown({ messageId, chunk, expiresAtMs, envelope }: Line): HeldMessage {
  return { messageId, chunk, expiresAtMs, envelope };
}
