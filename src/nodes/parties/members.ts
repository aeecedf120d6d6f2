/**
 * Who is a member of this node: DIDs that registered at its Directory, and those whose mailboxes it
 * keeps. A record of each in a store of the node, like the block list; that it was seen, by the day
 * alone, in a record of its own, so that no two writers meet. No more is kept of people here than
 * an operator needs to run a community.
 * Source: D618.
 */
import type { Did } from "../../core/codec/did.ts";
import { dayMs, minuteMs } from "../../core/codec/time.ts";
import type { Receipts } from "../../storage/contract.ts";
import type { Log } from "../http/log.ts";
import { keptMs } from "../results.ts";
import { decodeRecord, encodeRecord, readRecord, scanRecords } from "./records.ts";

type MemberRecord = {
  readonly did: Did;
  /** When it registered here, or was first seen here. */
  readonly sinceMs: number;
  /** Id of the invitation by which it registered; `null` without one. */
  readonly invitation: string | null;
};

export type SeenMember = MemberRecord & {
  /**
   * `YYYY-MM-DD` in UTC; `null` when it was not seen since it registered, or where this isn't kept.
   */
  readonly lastSeen: string | null;
};

export type Members = {
  /**
   * Notes a registration, before it is submitted. Durable when it resolves; the
   * first one of a DID stays.
   */
  readonly registered: (did: Did, invitation: string | null, nowMs: number) => Promise<void>;
  /** Notes that the DID has proven itself. Returns at once; one write for each DID and day. */
  readonly seen: (did: Did, nowMs: number) => void;
  /** In an order of the store's, after `after`; at most `limit`. */
  readonly page: (
    after: Did | null,
    limit: number,
    nowMs: number,
  ) => Promise<readonly SeenMember[]>;
  readonly of: (did: Did, nowMs: number) => Promise<SeenMember | null>;
  readonly forget: (did: Did) => Promise<void>;
  /** At most five minutes old. */
  readonly counts: (nowMs: number) => Promise<MemberCounts>;
};

/** How many there are, and were seen today or yesterday, in a week, in 30 days (days of UTC). */
type MemberCounts = Readonly<Record<"all" | "day" | "week" | "month", number>>;

type MembersParts = {
  readonly receipts: Receipts;
  /** Whether days are kept: `server.last_seen`. */
  readonly keepsDays: boolean;
  readonly log: Log;
};

const prefix = "/member/";
const seenPrefix = "/seen/";
const seenKey = (did: Did): string => seenPrefix + did;

/** So many DIDs are remembered as seen today; more cost a write again. */
const seenMax = 100_000;

const isoDay = (nowMs: number): string => new Date(nowMs).toISOString().slice(0, 10);

/** How old the counts may be: each reads every record. */
const countedMs = 5 * minuteMs;

export function createMembers({ receipts, keepsDays, log }: MembersParts): Members {
  const putMember = (member: MemberRecord, nowMs: number) =>
    receipts.putIfAbsent(prefix + member.did, encodeRecord(member), nowMs + keptMs, nowMs);
  const withDay = async (member: MemberRecord, nowMs: number): Promise<SeenMember> => {
    const lastSeen = keepsDays
      ? await readRecord<string>(receipts, seenKey(member.did), nowMs)
      : null;
    return { ...member, lastSeen };
  };

  const countAll = async (nowMs: number): Promise<MemberCounts> => {
    let [all, day, week, month] = [0, 0, 0, 0];
    for await (const page of scanRecords(receipts, prefix, () => nowMs)) all += page.length;
    for await (const page of scanRecords(receipts, seenPrefix, () => nowMs))
      for (const [, value] of page) {
        const ageDays = Math.floor(nowMs / dayMs) - Date.parse(decodeRecord<string>(value)) / dayMs;
        if (ageDays <= 1) day += 1;
        if (ageDays <= 7) week += 1;
        if (ageDays <= 30) month += 1;
      }
    return { all, day, week, month };
  };
  let counted: { readonly atMs: number; readonly counts: Promise<MemberCounts> } | null = null;

  let today = 0;
  const seenToday = new Set<Did>();
  const noteSeen = async (did: Did, nowMs: number): Promise<void> => {
    await putMember({ did, sinceMs: nowMs, invitation: null }, nowMs);
    if (keepsDays) await receipts.put(seenKey(did), encodeRecord(isoDay(nowMs)), nowMs + keptMs);
  };

  return {
    registered: async (did, invitation, nowMs) => {
      await putMember({ did, sinceMs: nowMs, invitation }, nowMs);
    },
    seen: (did, nowMs) => {
      const day = Math.floor(nowMs / dayMs);
      if (day !== today || seenToday.size >= seenMax) seenToday.clear();
      today = day;
      if (seenToday.has(did)) return;
      seenToday.add(did);
      noteSeen(did, nowMs).catch((error: unknown) => {
        // Tried again with the next proof.
        seenToday.delete(did);
        log("debug", "that a member was seen could not be noted", { error });
      });
    },
    page: async (after, limit, nowMs) => {
      const key = after === null ? null : prefix + after;
      const found = await receipts.scan(prefix, { after: key, limit, nowMs });
      return Promise.all(
        found.map(([, value]) => withDay(decodeRecord<MemberRecord>(value), nowMs)),
      );
    },
    of: async (did, nowMs) => {
      const member = await readRecord<MemberRecord>(receipts, prefix + did, nowMs);
      return member === null ? null : withDay(member, nowMs);
    },
    forget: async (did) => {
      seenToday.delete(did);
      await receipts.remove(prefix + did);
      await receipts.remove(seenKey(did));
    },
    counts: (nowMs) => {
      if (counted === null || nowMs - counted.atMs >= countedMs)
        counted = { atMs: nowMs, counts: countAll(nowMs) };
      return counted.counts;
    },
  };
}
