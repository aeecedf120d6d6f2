/**
 * Tiers of members: quota of the mailbox and rate of a recipient, by a name of `[tiers]`. A
 * member who has none, or one that the configuration no longer has, is served by the
 * settings of `[cache]` and `[relay]`. One record for each member with a tier in a store of
 * the node, like the block list.
 * Source: D635.
 */
import type { Config } from "../../config/schema.ts";
import type { Did } from "../../core/codec/did.ts";
import { type Fault, fault } from "../../core/fault.ts";
import { keptMs } from "../results.ts";
import { type FollowParts, followRecords } from "./followed.ts";
import { createRateLimiter, type RateLimiter } from "./rates.ts";
import { encodeRecord } from "./records.ts";

type Assigned = { readonly did: Did; readonly tier: string };

/** What holds for the mailbox of a recipient. */
export type MailboxLimits = Pick<
  Config["cache"],
  "recipient_entries_max" | "recipient_bytes_max" | "stranger_share"
>;

export type Tiers = {
  /**
   * The name that the operator gave, also when the configuration doesn't have
   * it; `null` for the default.
   */
  readonly of: (did: Did) => string | null;
  /** Whether the configuration has a table for this name. */
  readonly hasTable: (tier: string) => boolean;
  /**
   * `null` gives the default. Durable when it resolves. 404 `not_found` for a
   * name that is not configured.
   */
  readonly set: (did: Did, tier: string | null) => Promise<Fault | null>;
  /** Cost: one look at a map while somebody has a tier. */
  readonly mailboxOf: (did: Did) => MailboxLimits;
  /** Rate of envelopes to the recipient; `null` where that of everybody counts. */
  readonly rateOf: (did: Did) => RateLimiter | null;
  readonly forget: (did: Did) => Promise<void>;
  readonly close: () => void;
};

type TiersParts = FollowParts & { readonly config: Pick<Config, "tiers" | "cache"> };

const assignedMax = 10_000;
const prefix = "/tier/";
/** As that of `relay.recipient_rate`. */
const burstFactor = 10;

export async function openTiers(parts: TiersParts): Promise<Tiers> {
  const { receipts, config, now } = parts;
  let assigned: ReadonlyMap<Did, string> = new Map();
  const { announce, close } = await followRecords<Assigned>(parts, {
    prefix,
    subject: "operator-tiers.changed",
    name: "the list of tiers",
    changed: (found) => {
      assigned = new Map(found.map(({ did, tier }) => [did, tier]));
    },
  });
  const limiters = new Map<string, RateLimiter>();
  const settingsOf = (did: Did): Config["tiers"][string] | undefined => {
    const name = assigned.size === 0 ? undefined : assigned.get(did);
    return name === undefined ? undefined : config.tiers[name];
  };
  const hasTable = (tier: string): boolean => Object.hasOwn(config.tiers, tier);
  const limiterOf = (name: string): RateLimiter => {
    const known = limiters.get(name);
    if (known !== undefined) return known;
    const made = createRateLimiter(() => {
      const rate = config.tiers[name]?.recipient_rate ?? 1;
      return { perSecond: rate, burst: burstFactor * rate };
    });
    limiters.set(name, made);
    return made;
  };
  return {
    of: (did) => assigned.get(did) ?? null,
    hasTable,
    set: async (did, tier) => {
      if (tier !== null && !hasTable(tier))
        return fault("not_found", `the configuration has no tier ${tier}`);
      if (tier !== null && assigned.size >= assignedMax && !assigned.has(did))
        return fault("invalid_request", `at most ${assignedMax} members can have a tier`);
      const record = tier === null ? null : encodeRecord({ did, tier } satisfies Assigned);
      if (record === null) await receipts.remove(prefix + did);
      else await receipts.put(prefix + did, record, now() + keptMs);
      await announce();
      return null;
    },
    mailboxOf: (did) => {
      const own = settingsOf(did);
      if (own === undefined) return config.cache;
      const { recipient_entries_max, recipient_bytes_max, stranger_share } = config.cache;
      return {
        recipient_entries_max: own.recipient_entries_max ?? recipient_entries_max,
        recipient_bytes_max: own.recipient_bytes_max ?? recipient_bytes_max,
        stranger_share,
      };
    },
    rateOf: (did) => {
      const name = settingsOf(did)?.recipient_rate === undefined ? undefined : assigned.get(did);
      return name === undefined ? null : limiterOf(name);
    },
    forget: async (did) => {
      if (!assigned.has(did)) return;
      await receipts.remove(prefix + did);
      await announce();
    },
    close,
  };
}
