/**
 * The operator's list of members (`waypost members`): what the node keeps of them, with what
 * ledger, mailbox and block list say now. Nothing here is a secret of theirs.
 */
import type { Static } from "@sinclair/typebox";
import { type Did, isDid, mailboxOf, normalizeAlias, parseDid } from "../../core/codec/did.ts";
import { type Fault, fault, isFault } from "../../core/fault.ts";
import { type membersBody, membersPageMax, type tierBody } from "../../core/schema/schema.ts";
import type { LedgerReader, Mailbox, MailboxStats } from "../../storage/contract.ts";
import { waitingPages } from "../cache/entries.ts";
import type { Blocks } from "../parties/blocks.ts";
import type { Members, SeenMember } from "../parties/members.ts";
import type { Tiers } from "../parties/tiers.ts";
import { isoOf } from "./operation.ts";

export type MemberParts = {
  readonly members: Members;
  readonly blocks: Pick<Blocks, "list">;
  readonly tiers: Pick<Tiers, "of" | "set" | "hasTable">;
  /** `null` where the process has none. */
  readonly ledger: Pick<LedgerReader, "account" | "aliasHolder"> | null;
  /** `null` without a Cache. */
  readonly mailbox: Mailbox | null;
  readonly now: () => number;
};

type MemberRecord = {
  readonly aliases: readonly string[];
  readonly state: "active" | "deactivated" | "none";
  /** How often the DID was deleted. */
  readonly life: number;
};

/** A row as it travels. */
export type MemberRow = {
  readonly did: Did;
  readonly aliases: readonly string[];
  /**
   * `none`: its registration has not succeeded, or it was deleted. `null` where
   * the process has no ledger.
   */
  readonly state: MemberRecord["state"] | null;
  readonly since: string;
  readonly invitation: string | null;
  /** `YYYY-MM-DD`. */
  readonly last_seen: string | null;
  readonly waiting_entries: number | null;
  readonly waiting_bytes: number | null;
  /** Name of its tier; `null` for the default. */
  readonly tier: string | null;
  /** Whether the configuration has lost the table of its tier, so that the default counts. */
  readonly tier_lost: boolean;
  /** Kind of its entry in the block list. */
  readonly blocked: "did" | "sender" | null;
};

/**
 * A page of members. `search` is compared with DID, alias and invitation, without regard to case. A
 * page looks at a bounded number of members, so one can be empty though `next` leads on.
 */
export async function listMembers(
  parts: MemberParts,
  { search, after, limit }: Static<typeof membersBody>,
): Promise<object | Fault> {
  if (after !== null && !isDid(after)) return fault("invalid_request", "after must be a DID");
  const found = await parts.members.page(after, limit ?? membersPageMax, parts.now());
  const sought = search?.toLowerCase() ?? "";
  const rows: MemberRow[] = [];
  for (const member of found) {
    const record = await recordOf(parts, member.did);
    const texts = [member.did, ...(record?.aliases ?? []), member.invitation ?? ""];
    if (texts.some((text) => text.toLowerCase().includes(sought)))
      rows.push(await memberRow(parts, member, record));
  }
  const isLast = found.length < (limit ?? membersPageMax);
  return { members: rows, next: isLast ? null : (found.at(-1)?.did ?? null) };
}

/** One member, by DID or alias. */
export async function showMember(parts: MemberParts, named: string): Promise<MemberRow | Fault> {
  const did = await memberDid(parts, named);
  if (isFault(did)) return did;
  const member = await parts.members.of(did, parts.now());
  if (member === null) return fault("not_found", `${did} is not a member of this node`);
  return memberRow(parts, member, await recordOf(parts, did));
}

/**
 * Gives a member a tier of the configuration, or with `null` the default. Who may do only
 * that learns nothing else.
 */
export async function setTier(
  parts: MemberParts,
  { member: named, tier }: Static<typeof tierBody>,
): Promise<Pick<MemberRow, "did" | "tier"> | Fault> {
  const found = await showMember(parts, named);
  if (isFault(found)) return found;
  return (await parts.tiers.set(found.did, tier)) ?? { did: found.did, tier };
}

async function recordOf({ ledger }: MemberParts, did: Did): Promise<MemberRecord | null> {
  if (ledger === null) return null;
  const { record, life } = await ledger.account(did);
  if (record === null) return { aliases: [], state: "none", life };
  const state = record.deactivated ? "deactivated" : "active";
  return { aliases: record.aliases ?? [], state, life };
}

async function memberDid({ ledger }: MemberParts, named: string): Promise<Did | Fault> {
  if (named.startsWith("did:")) return parseDid(named);
  const alias = normalizeAlias(named);
  const holder = alias === null ? null : ((await ledger?.aliasHolder(alias)) ?? null);
  return holder ?? fault("not_found", "no member has this alias");
}

async function memberRow(
  { blocks, tiers, mailbox, now }: MemberParts,
  { did, sinceMs, invitation, lastSeen }: SeenMember,
  record: MemberRecord | null,
): Promise<MemberRow> {
  const waiting = mailbox === null ? null : await waitingOf(mailbox, did, record?.life ?? 0, now);
  const tier = tiers.of(did);
  const block = blocks.list().find(({ subject }) => subject === did);
  return {
    did,
    aliases: record?.aliases ?? [],
    state: record?.state ?? null,
    since: isoOf(sinceMs),
    invitation,
    last_seen: lastSeen,
    waiting_entries: waiting?.entries ?? null,
    waiting_bytes: waiting?.bytes ?? null,
    tier,
    tier_lost: tier !== null && !tiers.hasTable(tier),
    blocked: block === undefined || block.kind === "network" ? null : block.kind,
  };
}

async function waitingOf(
  mailbox: Mailbox,
  did: Did,
  life: number,
  now: () => number,
): Promise<MailboxStats> {
  let [count, bytes] = [0, 0];
  for await (const { entries } of waitingPages(mailbox, mailboxOf(did, life), now)) {
    count += entries.length;
    for (const { envelopeBytes } of entries) bytes += envelopeBytes;
  }
  return { entries: count, bytes };
}
