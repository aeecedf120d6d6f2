/**
 * A storage plugin as somebody else would write it: one file that imports types only, so that it
 * stands alone next to the executable. It keeps replay claims and receipts in maps.
 */
import type { Receipts, Replay, StoragePlugin, Store } from "../../src/storage/contract.ts";

type Options = { readonly greeting: string };

const plugin: StoragePlugin<Options> = {
  name: "maps",
  provides: ["replay", "receipts"],
  parseOptions: (input) => {
    const { greeting, ...others } = (input ?? {}) as Record<string, unknown>;
    const problems = Object.keys(others).map((setting) => ({
      setting,
      message: "unknown setting",
    }));
    if (typeof greeting !== "string")
      problems.push({ setting: "greeting", message: "must be a text" });
    return problems.length > 0
      ? { ok: false, problems }
      : { ok: true, options: { greeting: String(greeting) } };
  },
  migrate: null,
  maintenance: null,
  open: async (options, environment): Promise<Store> => {
    environment.log("info", `${options.greeting} from a plugin`);
    return {
      plugin: "maps",
      capabilities: { replay: openReplay(), receipts: openReceipts() },
      probe: async () => undefined,
      close: async () => undefined,
    };
  },
};

export default plugin;

function openReplay(): Replay {
  const claims = new Map<string, number>();
  return {
    claim: async (tag, untilMs, nowMs) => {
      if ((claims.get(tag) ?? 0) > nowMs) return false;
      claims.set(tag, untilMs);
      return true;
    },
    expire: async (nowMs, limit) => dropEnded(claims, (untilMs) => untilMs < nowMs, limit),
  };
}

type Receipt = { readonly value: Uint8Array; readonly untilMs: number };

function openReceipts(): Receipts {
  const receipts = new Map<string, Receipt>();
  const living = (key: string, nowMs: number): Receipt | null => {
    const receipt = receipts.get(key);
    return receipt !== undefined && receipt.untilMs > nowMs ? receipt : null;
  };
  return {
    put: async (key, value, untilMs) => {
      receipts.set(key, { value, untilMs });
    },
    putIfAbsent: async (key, value, untilMs, nowMs) => {
      const standing = living(key, nowMs);
      if (standing === null) receipts.set(key, { value, untilMs });
      return standing?.value ?? null;
    },
    get: async (key, nowMs) => living(key, nowMs)?.value ?? null,
    remove: async (key, value) => {
      const held = receipts.get(key)?.value;
      if (value === undefined || (held !== undefined && Buffer.from(held).equals(value)))
        receipts.delete(key);
    },
    scan: async (prefix, { after, limit, nowMs }) => {
      const keys = [...receipts.keys()].filter(
        (key) => key.startsWith(prefix) && (after === null || key > after),
      );
      const found = keys.sort().map((key) => [key, living(key, nowMs)] as const);
      return found
        .flatMap(([key, one]) => (one === null ? [] : [[key, one.value] as const]))
        .slice(0, limit);
    },
    expire: async (nowMs, limit) => dropEnded(receipts, ({ untilMs }) => untilMs < nowMs, limit),
  };
}

function dropEnded<T>(
  entries: Map<string, T>,
  hasEnded: (entry: T) => boolean,
  limit: number,
): number {
  let dropped = 0;
  for (const [key, entry] of entries) {
    if (dropped >= limit) break;
    if (!hasEnded(entry)) continue;
    entries.delete(key);
    dropped += 1;
  }
  return dropped;
}
