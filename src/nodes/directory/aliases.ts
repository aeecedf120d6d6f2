/**
 * Who may take which alias here, beyond what the ledger allows: names that the operator reserves,
 * members alone, and how often one DID may change. The rules are this Directory's: another one of
 * the same ledger has its own.
 * Source: rules section 4 ("Aliases").
 */
import type { Config } from "../../config/schema.ts";
import { type Did, normalizeAlias } from "../../core/codec/did.ts";
import { secondMs } from "../../core/codec/time.ts";
import { type Fault, fault } from "../../core/fault.ts";
import type { Receipts } from "../../storage/contract.ts";
import type { Members } from "../parties/members.ts";
import { decodeRecord, encodeRecord } from "../parties/records.ts";

export type AliasRules = {
  /** 403 `alias_reserved`. The operator's own identity may have any name. */
  readonly check: (did: Did, alias: string) => Fault | null;
  /**
   * Claims a change before it is submitted; the function takes the claim back. Refuses also with
   * 403 `policy_denied` and 429 `alias_changed`.
   */
  readonly claim: (
    did: Did,
    alias: string,
    nowMs: number,
  ) => Promise<Fault | (() => Promise<void>)>;
};

type AliasParts = {
  readonly settings: Pick<Config["directory"], "aliases" | "reserved_aliases" | "alias_interval">;
  readonly operator: Pick<Config["operator"], "did">;
  readonly receipts: Receipts;
  readonly members: Pick<Members, "of">;
};

const keyOf = (did: Did): string => `/alias-change/${did}`;

export function createAliasRules({
  settings,
  operator,
  receipts,
  members,
}: AliasParts): AliasRules {
  const formOf = (name: string) => normalizeAlias(name) ?? name;
  const checkReserved = (did: Did, alias: string): Fault | null => {
    const isReserved = settings.reserved_aliases.some((name) => formOf(name) === formOf(alias));
    const isFree = !isReserved || did === operator.did;
    return isFree
      ? null
      : fault("alias_reserved", "the operator of this Directory reserves the name");
  };
  return {
    check: checkReserved,
    claim: async (did, alias, nowMs) => {
      const refused = checkReserved(did, alias);
      if (refused !== null) return refused;
      const { aliases, alias_interval: intervalMs } = settings;
      if (aliases === "members" && (await members.of(did, nowMs)) === null)
        return fault("policy_denied", "this Directory gives aliases to its own members alone");
      if (intervalMs === 0) return async () => {};
      return claimChange(receipts, did, { intervalMs, nowMs });
    },
  };
}

type Change = { readonly intervalMs: number; readonly nowMs: number };

async function claimChange(
  receipts: Receipts,
  did: Did,
  { intervalMs, nowMs }: Change,
): Promise<Fault | (() => Promise<void>)> {
  const [key, claimed] = [keyOf(did), encodeRecord(nowMs)];
  for (;;) {
    const before = await receipts.putIfAbsent(key, claimed, nowMs + intervalMs, nowMs);
    if (before === null) return () => receipts.remove(key, claimed);
    const waitMs = decodeRecord<number>(before) + intervalMs - nowMs;
    if (0 < waitMs && waitMs <= intervalMs) return changedLately(waitMs);
    // A shorter interval counts at once. A change by a clock that was ahead counts as one of now,
    // or it would bind for years.
    await receipts.remove(key, before);
    if (waitMs <= 0) continue;
    await receipts.putIfAbsent(key, claimed, nowMs + intervalMs, nowMs);
    return changedLately(intervalMs);
  }
}

const changedLately = (waitMs: number): Fault =>
  fault("alias_changed", "the alias was changed lately", {
    retryAfterSeconds: Math.ceil(waitMs / secondMs),
  });
