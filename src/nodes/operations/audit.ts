/**
 * Who did what on this node, for `waypost audit`: a record for each action that an operator asked for over the admin
 * socket, done or refused, in a store of the node. Records end after 400 days, and beyond ten thousand the oldest go. The
 * same action again within a minute counts in the record that is there, so that a page that asks often fills nothing.
 * Source: D634.
 */

import { dayMs, minuteMs } from "../../core/codec/time.ts";
import type { FaultCode } from "../../core/fault.ts";
import type { AdminAction } from "../../core/schema/admin.ts";
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
  /** Whom or what it concerns, in the words of the caller. */
  readonly about: string | null;
  readonly outcome: "done" | FaultCode;
};

export type AuditedAction = Pick<AuditRecord, "user" | "uid" | "action" | "about" | "outcome">;

export type Audit = {
  /** Durable when it resolves. A store that fails costs the record, which then is in the log alone. */
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

export const auditRecordsMax = 10_000;
const keptMs = 400 * dayMs;
/** So many records are added between two looks for those beyond the bound. */
const trimEvery = 100;
const aboutCharsMax = 500;
const prefix = "/audit/";

type Parts = {
  readonly receipts: Receipts;
  readonly recordsMax: number;
  readonly now: () => number;
  readonly log: Log;
};
type Kept = { readonly key: string; readonly record: AuditRecord };

export function createAudit({ receipts, recordsMax, now, log }: Parts): Audit {
  const readAll = async (): Promise<Kept[]> => {
    const all: Kept[] = [];
    for await (const page of scanRecords(receipts, prefix, now))
      all.push(...page.map(([key, value]) => ({ key, record: decodeRecord<AuditRecord>(value) })));
    return all.sort((a, b) => b.record.untilMs - a.record.untilMs);
  };
  const trim = async (): Promise<void> => {
    for (const { key } of (await readAll()).slice(recordsMax)) await receipts.remove(key);
  };
  let last: Kept | null = null;
  let added = 0;
  const write = async (action: AuditedAction): Promise<void> => {
    const atMs = now();
    const before = last;
    const repeats = before !== null && isRepeated(before.record, action, atMs);
    const record: AuditRecord = repeats
      ? { ...before.record, untilMs: atMs, times: before.record.times + 1 }
      : { ...action, atMs, untilMs: atMs, times: 1 };
    const key = repeats ? before.key : `${prefix}${atMs}-${crypto.randomUUID()}`;
    await receipts.put(key, encodeRecord(record), atMs + keptMs);
    last = { key, record };
    if (repeats) return;
    added += 1;
    if (added % trimEvery === 1) await trim();
  };
  // One after the other, so that repetitions are counted.
  let writing = Promise.resolve();
  return {
    add: (action) => {
      const about = action.about?.slice(0, aboutCharsMax) ?? null;
      writing = writing
        .then(() => write({ ...action, about }))
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
        (about === null || record.about?.includes(about) === true);
      return (await readAll())
        .filter(fits)
        .slice(0, limit)
        .map(({ record }) => record);
    },
  };
}

function isRepeated(last: AuditRecord, action: AuditedAction, nowMs: number): boolean {
  return (
    nowMs - last.atMs < minuteMs &&
    last.uid === action.uid &&
    last.action === action.action &&
    last.about === action.about &&
    last.outcome === action.outcome
  );
}
