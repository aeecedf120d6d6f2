/**
 * Who has a place of their own in the mailbox of the operator, so that a flood of
 * reports by newcomers does not silence the members of their network: each who has been
 * a member for a week has the floor of a known person there. It stays a place for
 * reports: no one becomes known by them.
 * Source: D656, rules section 6 ("Reports").
 */
import { type Did, didOf, type MailboxKey } from "../../core/codec/did.ts";
import { dayMs } from "../../core/codec/time.ts";
import { StoreError } from "../../storage/contract.ts";
import type { Members } from "../parties/members.ts";
import type { MailboxSender } from "./pools.ts";

/** `sender`: whose signature the envelope has. */
export type Reporting = {
  readonly mailbox: MailboxKey;
  readonly sender: Did | null;
  readonly nowMs: number;
};

/** What the mailbox sees in who sends, with the place that a report has. */
export type PlaceReporter = (
  seen: MailboxSender,
  of: Reporting,
) => MailboxSender | Promise<MailboxSender>;

export type ReporterParts = {
  readonly members: Pick<Members, "of" | "counts">;
  /** Read at each envelope: a reload changes it. */
  readonly operator: { readonly did: string | null };
};

const memberMs = 7 * dayMs;

/**
 * Costs one read for each envelope to the operator, and none for others. Without an
 * operator there are no reports.
 */
export function createReporters({ members, operator }: Partial<ReporterParts>): PlaceReporter {
  if (members === undefined || operator === undefined) return (seen) => seen;
  const ofMember = async (
    label: string,
    sender: Did,
    nowMs: number,
    seen: MailboxSender,
  ): Promise<MailboxSender> => {
    const [member, counts] = await Promise.all([
      members.of(sender, nowMs),
      members.counts(nowMs),
    ]).catch(noMember);
    const isLong = member !== null && nowMs - member.sinceMs >= memberMs;
    return isLong ? { isKnown: true, label, who: label, people: counts.all } : seen;
  };
  return (seen, { mailbox, sender, nowMs }) => {
    const { isKnown, label } = seen;
    return isKnown || label === null || sender === null || didOf(mailbox) !== operator.did
      ? seen
      : ofMember(label, sender, nowMs, seen);
  };
}

/** Where the list can't be read, all are newcomers. */
function noMember(error: unknown): [null, { readonly all: number }] {
  if (error instanceof StoreError) return [null, { all: 0 }];
  throw error;
}
