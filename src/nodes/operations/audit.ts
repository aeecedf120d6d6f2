/**
 * Who did what on this node, for `waypost audit`: a record for each action that an operator asked
 * for over the admin socket, done or refused, in a store of the node. Records end after 400 days.
 * Changes, looks and refused requests have a bound each, a user a quarter of it, and of that each
 * action as much as the others leave, so that no kind, user or action pushes out what another one
 * has few of. The same look again within a minute counts in the record that is there; so do all
 * refused requests of a user for one action, whatever they concern.
 * Source: D634.
 */

import { dayMs, minuteMs } from "../../core/codec/time.ts";
import type { FaultCode } from "../../core/fault.ts";
import { type AdminAction, changesNothing } from "../../core/schema/admin.ts";
import type { Receipts } from "../../storage/contract.ts";
import type { Log } from "../http/log.ts";
import { decodeRecord, encodeRecord, scanRecords } from "../parties/records.ts";

export type AuditRecord = {
  readonly atMs: number;
  /** Of its repetitions the last. */
  readonly untilMs: number;
  readonly times: number;
  /** Of the Unix user; `null` where the system does not name it. */
  readonly user: string | null;
  readonly uid: number | null;
  readonly action: AdminAction;
  /** Whom or what it concerns, one each, as the caller named it. Of refused ones the first. */
  readonly about: readonly string[];
  /** What the caller wrote for people, such as reasons: it names nothing. */
  readonly said: readonly string[];
  readonly outcome: "done" | FaultCode;
};

export type AuditedAction = Pick<
  AuditRecord,
  "user" | "uid" | "action" | "about" | "said" | "outcome"
>;

export type Audit = {
  /**
   * Durable when it resolves. A store that fails costs the record, which then is in the log alone.
   */
  readonly add: (action: AuditedAction) => Promise<void>;
  /** Newest first, at most `limit`. */
  readonly list: (sought: AuditSearch) => Promise<readonly AuditRecord[]>;
};

export type AuditSearch = {
  readonly user: string | null;
  /** An action, or its area. */
  readonly action: string | null;
  /** Part of what it concerns. */
  readonly about: string | null;
  readonly limit: number;
};

type Kind = "changes" | "looks" | "refused";
type AuditBounds = Readonly<Record<Kind, number>>;
export const auditBounds: AuditBounds = { changes: 10_000, looks: 5_000, refused: 2_000 };
/** Of each bound, for one user. */
const userShare = 1 / 4;
const keptMs = 400 * dayMs;
/** So many records are added between two looks for those beyond the bounds. */
const trimEvery = 100;
/** An action that concerns more has several records. */
const aboutsPerRecord = 100;
const refusedAbouts = 10;
const aboutCharsMax = 200;
const saidMax = 20;
const saidCharsMax = 500;
/** Records that can still count a repetition. */
const recentMax = 1_000;
const prefix = "/audit/";

type Parts = {
  readonly receipts: Receipts;
  readonly bounds: AuditBounds;
  readonly now: () => number;
  readonly log: Log;
};
type Kept = { readonly key: string; readonly record: AuditRecord };

/** What failed in the middle may have changed something. */
function auditKind({ action, outcome }: Pick<AuditRecord, "action" | "outcome">): Kind {
  if (outcome !== "done" && outcome !== "internal_error") return "refused";
  return changesNothing(action) ? "looks" : "changes";
}

export function createAudit({ receipts, bounds, now, log }: Parts): Audit {
  const readAll = async (): Promise<Kept[]> => {
    const all: Kept[] = [];
    for await (const page of scanRecords(receipts, prefix, now))
      all.push(...page.map(([key, value]) => ({ key, record: decodeRecord<AuditRecord>(value) })));
    return all.sort((a, b) => b.record.untilMs - a.record.untilMs);
  };
  const trim = async (): Promise<void> => {
    const all = Map.groupBy(await readAll(), ({ record }) => auditKind(record));
    for (const [kind, records] of all)
      for (const { key } of beyond(records, bounds[kind])) await receipts.remove(key);
  };
  const recent = new Map<string, Kept>();
  let added = 0;
  const writeAction = async (action: AuditedAction): Promise<void> => {
    const atMs = now();
    const name = repetitionOf(action);
    const before = recent.get(name.key);
    const repeats =
      before !== undefined &&
      Math.abs(atMs - before.record.atMs) < minuteMs &&
      repetitionOf(before.record).content === name.content;
    const record: AuditRecord = repeats
      ? { ...before.record, untilMs: atMs, times: before.record.times + 1 }
      : { ...action, atMs, untilMs: atMs, times: 1 };
    const key = repeats ? before.key : `${prefix}${atMs}-${crypto.randomUUID()}`;
    await receipts.put(key, encodeRecord(record), atMs + keptMs);
    recent.delete(name.key);
    recent.set(name.key, { key, record });
    const [oldest] = recent.keys();
    if (recent.size > recentMax && oldest !== undefined) recent.delete(oldest);
    if (repeats) return;
    added += 1;
    if (added % trimEvery === 1) await trim();
  };
  // One after the other, so that repetitions are counted.
  let writing = Promise.resolve();
  return {
    add: (action) => {
      writing = writing
        .then(async () => {
          for (const part of boundedActions(action)) await writeAction(part);
        })
        .catch((error: unknown) => {
          const { user, action: name, outcome } = action;
          log("error", "an action is missing in the audit", { user, action: name, outcome, error });
        });
      return writing;
    },
    list: async ({ user, action, about, limit }) => {
      const fits = ({ record }: Kept): boolean =>
        (user === null || record.user === user) &&
        (action === null || `${record.action}.`.startsWith(`${action}.`)) &&
        (about === null || record.about.some((one) => one.includes(about)));
      return (await readAll())
        .filter(fits)
        .slice(0, limit)
        .map(({ record }) => record);
    },
  };
}

/** Of newest first: the oldest of the users, and then of their actions, that have most. */
function beyond(records: readonly Kept[], max: number): Kept[] {
  const ofUsers = [...Map.groupBy(records, ({ record }) => record.uid).values()];
  const share = levelOf(ofUsers, max, Math.ceil(max * userShare));
  return ofUsers.flatMap((own) => {
    const ofActions = [...Map.groupBy(own, ({ record }) => record.action).values()];
    const most = levelOf(ofActions, share, share);
    return ofActions.flatMap((some) => some.slice(most));
  });
}

/**
 * How many each may have, at least one and at most `most`, so that all together have at most `max`.
 */
function levelOf(groups: readonly (readonly Kept[])[], max: number, most: number): number {
  let level = most;
  const countWithin = () => groups.reduce((sum, { length }) => sum + Math.min(length, level), 0);
  while (level > 1 && countWithin() > max) level -= 1;
  return level;
}

/** All that was done, in records of a bounded size; of a refused request the beginning. */
function boundedActions({ about, said, ...action }: AuditedAction): AuditedAction[] {
  const abouts = about.map((one) => one.slice(0, aboutCharsMax));
  const texts = [...new Set(said)].slice(0, saidMax).map((text) => text.slice(0, saidCharsMax));
  const isRefused = auditKind(action) === "refused";
  const count = isRefused ? 1 : Math.max(1, Math.ceil(abouts.length / aboutsPerRecord));
  const size = isRefused ? refusedAbouts : aboutsPerRecord;
  return Array.from({ length: count }, (_, part) => ({
    ...action,
    about: abouts.slice(part * size, (part + 1) * size),
    said: texts,
  }));
}

type Repetition = {
  /** Of the record that may count it. */
  readonly key: string;
  /** Equal in what counts as one. */
  readonly content: string;
};

/** The same change counts again only when no other came between. */
function repetitionOf(record: AuditedAction): Repetition {
  const { uid, action, outcome, about, said } = record;
  const kind = auditKind(record);
  const content = JSON.stringify([uid, action, outcome, kind === "refused" ? null : [about, said]]);
  return { key: kind === "changes" ? kind : content, content };
}
