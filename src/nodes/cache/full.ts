/**
 * Reports of a full mailbox or store: refusals are counted by what is used up, and logged with the
 * recipient's digest, so that an operator sees whose mailbox refuses.
 */
import type { Did } from "../../core/codec/did.ts";
import { minuteMs } from "../../core/codec/time.ts";
import { type Fault, fault } from "../../core/fault.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import { StoreError, type StoreOutcome } from "../../storage/contract.ts";
import type { Log } from "../http/log.ts";
import type { Metrics } from "../http/metrics.ts";

/**
 * What is used up: a side of the mailbox or all of it, the share of a network in the store
 * (`store`) or all of that.
 */
type Scope = "known" | "new" | "mailbox" | "store" | "whole";
/** `disk`: the store has no room although its quota does. */
const scopes: readonly (Scope | "disk")[] = ["known", "new", "mailbox", "store", "whole", "disk"];
type Full = Extract<StoreOutcome, { kind: "full" }>;

export type FullReports = {
  readonly refuse: (full: Full, recipient: Did) => Fault;
  /** Counts a store whose disk is full, and throws what it threw. */
  readonly failed: (error: unknown) => never;
};

const warnedMax = 1_000;

type ReportParts = {
  readonly log: Log;
  readonly metrics: Metrics;
  readonly now: () => number;
  /** Names a recipient in the log. */
  readonly digest: (did: Did) => string;
};

/** Counts refusals, and logs what refuses: at once, and once a minute for as long as it does. */
export function createFullReports({ log, metrics, now, digest }: ReportParts): FullReports {
  const refusals = metrics.counter({
    name: "cache_share_refusals_total",
    help: "Stores refused because a mailbox, the store, its disk, or a part of them is used up.",
    labels: ["scope"],
    start: scopes.map((scope) => [scope]),
  });
  const warned = new BoundedMap<string, number>(warnedMax);
  return {
    refuse: (full, recipient) => {
      const scope = scopeOf(full);
      refusals.add([scope]);
      const isStore = scope === "store" || scope === "whole";
      const what = isStore ? scope : digest(recipient);
      if (now() - (warned.get(what) ?? Number.NEGATIVE_INFINITY) >= minuteMs) {
        warned.set(what, now());
        if (scope === "whole")
          log("error", "the Cache is full: store_bytes_max or store_entries_max is reached");
        else if (!isStore) log("warn", "a mailbox refuses envelopes", { scope, recipient: what });
      }
      return fault(isStore ? "storage_full" : "mailbox_full", details[scope]);
    },
    failed: (error) => {
      if (error instanceof StoreError && error.code === "full") refusals.add(["disk"]);
      throw error;
    },
  };
}

function scopeOf(full: Full): Scope {
  if (!("label" in full)) return full.scope === "store" ? "whole" : "mailbox";
  if (full.scope === "store_share") return "store";
  return full.label.startsWith("known") ? "known" : "new";
}

const details: Record<Scope, string> = {
  known: "the pools known and known-rest of this mailbox have no room for this sender",
  new: "the pools new and new-rest of this mailbox have no room for this client network",
  mailbox: "the mailbox of the recipient is full",
  store: "this client network has used up its share of this Cache",
  whole: "this Cache is full",
};
