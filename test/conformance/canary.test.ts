/**
 * The kit proves itself: each driver below is the memory driver with one bug planted, and at least
 * one case of the kit must catch it.
 */
import { describe, expect, test } from "bun:test";
import { memoryPlugin } from "../../src/plugins/memory/memory.ts";
import type {
  Capabilities,
  HeldMessage,
  Mailbox,
  Receipts,
  Replay,
} from "../../src/storage/contract.ts";
import { type ConformanceCase, conformanceCases, runCase } from "./kit.ts";
import { optionsOf, withMethods } from "./options.ts";

type Bugs = {
  readonly mailbox?: (real: Mailbox) => Partial<Mailbox>;
  readonly replay?: (real: Replay) => Partial<Replay>;
  readonly receipts?: (real: Receipts) => Partial<Receipts>;
};

const bugs: Readonly<Record<string, Bugs>> = {
  "forgets an id once it is acknowledged": {
    mailbox: (real) => ({
      store: async (entry, quota) => {
        const state = await real.message(entry.recipient, entry.messageId, entry.storedAtMs);
        return state.state === "acked" ? { kind: "stored" } : real.store(entry, quota);
      },
    }),
  },
  "says of any repeat that it is the same": {
    mailbox: (real) => ({
      store: async (entry, quota) => {
        const outcome = await real.store(entry, quota);
        return outcome.kind === "duplicate" ? { ...outcome, isSame: true } : outcome;
      },
    }),
  },
  "forgets the author of what was acknowledged": {
    mailbox: (real) => ({
      store: async (entry, quota) => {
        const outcome = await real.store(entry, quota);
        const { state } = await real.message(entry.recipient, entry.messageId, entry.storedAtMs);
        return outcome.kind === "duplicate" && state === "acked"
          ? { ...outcome, author: null }
          : outcome;
      },
    }),
  },
  "says of any id that it is known for the same envelope": {
    mailbox: (real) => ({
      known: async (recipient, named, nowMs) => {
        const found = await real.known(recipient, named, nowMs);
        return found === null ? null : { ...found, isSame: true };
      },
    }),
  },
  "knows an id one millisecond too long": {
    mailbox: (real) => ({
      known: (recipient, named, nowMs) => real.known(recipient, named, nowMs - 1),
    }),
  },
  "takes what has expired for what waits longest": {
    mailbox: (real) => ({ oldest: (nowMs) => real.oldest(nowMs - 1) }),
  },
  "decides duplicates before the write instead of in it": {
    mailbox: (real) => {
      const writing = new Map<string, number>();
      return {
        store: async (entry, quota) => {
          const key = `${entry.recipient} ${entry.messageId}`;
          const known = await real.message(entry.recipient, entry.messageId, entry.storedAtMs);
          if (known.state === "absent") writing.set(key, (writing.get(key) ?? 0) + 1);
          await Bun.sleep(0);
          const outcome = await real.store(entry, quota);
          return (writing.get(key) ?? 0) > 1 ? { kind: "stored" } : outcome;
        },
      };
    },
  },
  "takes one entry more than the quota": {
    mailbox: (real) => ({
      store: (entry, quota) =>
        real.store(entry, { ...quota, recipientEntriesMax: quota.recipientEntriesMax + 1 }),
    }),
  },
  "shows an entry one millisecond too long": {
    mailbox: (real) => ({
      list: (recipient, page) => real.list(recipient, { ...page, nowMs: page.nowMs - 1 }),
    }),
  },
  "answers pages newest first": {
    mailbox: (real) => ({
      list: async (recipient, page) => {
        const found = await real.list(recipient, page);
        return "entries" in found ? { ...found, entries: [...found.entries].reverse() } : found;
      },
    }),
  },
  "loses the last entry when a page is exactly full": {
    mailbox: (real) => ({
      list: async (recipient, page) => {
        const found = await real.list(recipient, page);
        return "entries" in found && found.entries.length === page.entriesMax
          ? { ...found, next: null }
          : found;
      },
    }),
  },
  "takes any cursor": {
    mailbox: (real) => ({
      list: (recipient, page) =>
        real.list(recipient, { ...page, after: page.after?.startsWith("c") ? page.after : null }),
    }),
  },
  "reports what was acknowledged as expired": {
    mailbox: (real) => {
      const acked = new Set<string>();
      return {
        remove: async (recipient, ids, nowMs) => {
          const removed = await real.remove(recipient, ids, nowMs);
          for (const one of removed) acked.add(`${recipient} ${one.messageId}`);
          return removed;
        },
        message: async (recipient, messageId, nowMs) => {
          const found = await real.message(recipient, messageId, nowMs);
          const kept = found.state === "absent" && acked.has(`${recipient} ${messageId}`);
          return kept ? { state: "expired", expiresAtMs: nowMs, headerPreview: null } : found;
        },
      };
    },
  },
  "counts absent ids as acknowledged": {
    mailbox: (real) => ({
      remove: async (recipient, ids, nowMs) => {
        await real.remove(recipient, ids, nowMs);
        return [...new Set(ids)].sort().map((messageId) => ({ messageId, labels: [] }));
      },
    }),
  },
  "removes though the tag is claimed": {
    mailbox: (real) => ({
      claimAndRemove: (_, recipient, ids, nowMs) => real.remove(recipient, ids, nowMs),
    }),
  },
  "claims a tag only where something is removed": {
    mailbox: (real) => ({
      claimAndRemove: async (claim, recipient, ids, nowMs) => {
        const held = await real.read(recipient, ids, nowMs);
        return held.length === 0 ? [] : real.claimAndRemove(claim, recipient, ids, nowMs);
      },
    }),
  },
  "answers acknowledged ids in the order they were named": {
    mailbox: (real) => ({
      remove: async (recipient, ids, nowMs) => {
        const removed = await real.remove(recipient, ids, nowMs);
        return ids.flatMap((id) => removed.filter((one) => one.messageId === id));
      },
    }),
  },
  "forgets the labels of entries": {
    mailbox: (real) => ({
      remove: async (recipient, ids, nowMs) => {
        const removed = await real.remove(recipient, ids, nowMs);
        return removed.map((one) => ({ ...one, labels: [] }));
      },
    }),
  },
  "ignores the places of a mailbox": {
    mailbox: (real) => ({ store: (entry, quota) => real.store(entry, { ...quota, places: [] }) }),
  },
  "takes the last place first": {
    mailbox: (real) => ({
      store: (entry, quota) => real.store(entry, { ...quota, places: [...quota.places].reverse() }),
    }),
  },
  "lets one sender fill a rest": {
    mailbox: (real) => ({
      store: (entry, quota) => {
        const places = quota.places.map((place) => ({ ...place, isRest: false }));
        return real.store(entry, { ...quota, places });
      },
    }),
  },
  "ignores the bytes of places": {
    mailbox: (real) => ({
      store: (entry, quota) => {
        const bytesMax = Number.MAX_SAFE_INTEGER;
        const places = quota.places.map(({ own, poolMax, ...place }) => ({
          ...place,
          own: { ...own, bytesMax },
          poolMax: { ...poolMax, bytes: bytesMax },
        }));
        return real.store(entry, { ...quota, places });
      },
    }),
  },
  "ignores the share of the store": {
    mailbox: (real) => ({
      store: (entry, quota) => real.store(entry, { ...quota, storeShare: null }),
    }),
  },
  "checks the places of a mailbox before its whole": {
    mailbox: (real) => ({
      store: async (entry, quota) => {
        const wide = {
          recipientEntriesMax: Number.MAX_SAFE_INTEGER,
          recipientBytesMax: Number.MAX_SAFE_INTEGER,
        };
        const isShut = quota.places.some(({ poolMax }) => poolMax.entries === 0);
        const state = await real.message(entry.recipient, entry.messageId, entry.storedAtMs);
        if (!isShut || state.state !== "absent") return real.store(entry, quota);
        return real.store(entry, { ...quota, ...wide });
      },
    }),
  },
  "reads messages in the order of their arrival": {
    mailbox: (real) => ({
      read: async (recipient, ids, nowMs) => {
        const page = { after: null, entriesMax: 1_000, bytesMax: 1 << 30, nowMs };
        const found = await real.list(recipient, page);
        return "entries" in found
          ? found.entries.filter(({ messageId }) => ids.includes(messageId))
          : [];
      },
    }),
  },
  "reads messages that have expired": {
    mailbox: (real) => ({ read: (recipient, ids, nowMs) => real.read(recipient, ids, nowMs - 1) }),
  },
  "answers two reads with the same bytes": {
    mailbox: (real) => {
      const answered = new Map<string, HeldMessage>();
      const shared = (message: HeldMessage): HeldMessage => {
        const before = answered.get(message.messageId);
        if (before !== undefined) return { ...message, envelope: before.envelope };
        answered.set(message.messageId, message);
        return message;
      };
      return {
        read: async (recipient, ids, nowMs) => (await real.read(recipient, ids, nowMs)).map(shared),
      };
    },
  },
  "answers with memory that a later store writes": {
    mailbox: (real) => {
      const memory = new Map<string, Uint8Array>();
      return {
        store: async (entry, quota) => {
          for (const envelope of memory.values())
            envelope.set(entry.envelope.subarray(0, envelope.length));
          memory.clear();
          return real.store(entry, quota);
        },
        message: async (recipient, messageId, nowMs) => {
          const found = await real.message(recipient, messageId, nowMs);
          if (found.state === "active") memory.set(messageId, found.message.envelope);
          return found;
        },
      };
    },
  },
  "reports wrong sizes in a summary": {
    mailbox: (real) => ({
      summary: async (recipient, page) => {
        const found = await real.summary(recipient, page);
        if (!("entries" in found)) return found;
        return {
          ...found,
          entries: found.entries.map((one) => ({ ...one, envelopeBytes: one.envelopeBytes + 1 })),
        };
      },
    }),
  },
  "lets two callers claim one tag": {
    replay: (real) => {
      const claimed = new Set<string>();
      return {
        claim: async (tag, untilMs, nowMs) => {
          if (claimed.has(tag)) return real.claim(tag, untilMs, nowMs);
          await Bun.sleep(0);
          claimed.add(tag);
          await real.claim(tag, untilMs, nowMs);
          return true;
        },
      };
    },
  },
  "lets several callers claim a tag whose claim has ended": {
    replay: (real) => {
      const known = new Set<string>();
      const again = new Map<string, number>();
      return {
        claim: async (tag, untilMs, nowMs) => {
          const won = await real.claim(tag, untilMs, nowMs);
          if (won && known.has(tag)) again.set(tag, untilMs);
          known.add(tag);
          return won || again.get(tag) === untilMs;
        },
      };
    },
  },
  "keeps a claim for ever": {
    replay: (real) => ({
      claim: (tag, _untilMs, nowMs) => real.claim(tag, Number.MAX_SAFE_INTEGER, nowMs),
    }),
  },
  "forgets claims beyond the limit of a sweep": {
    replay: (real) => ({ expire: (nowMs) => real.expire(nowMs, 1_000) }),
  },
  "replaces a receipt that stands": {
    receipts: (real) => ({
      putIfAbsent: async (key, value, untilMs, nowMs) => {
        const standing = await real.get(key, nowMs);
        await real.put(key, value, untilMs);
        return standing;
      },
    }),
  },
  "lets several callers set a receipt whose time is over": {
    receipts: (real) => {
      const known = new Set<string>();
      return {
        putIfAbsent: async (key, value, untilMs, nowMs) => {
          const standing = known.has(key) ? await real.get(key, nowMs) : null;
          const first = !known.has(key);
          known.add(key);
          if (first) return real.putIfAbsent(key, value, untilMs, nowMs);
          if (standing !== null) return standing;
          await real.put(key, value, untilMs);
          return null;
        },
      };
    },
  },
  "removes a receipt whatever its value is": {
    receipts: (real) => ({ remove: (key) => real.remove(key) }),
  },
  "scans receipts that have ended": {
    receipts: (real) => ({
      scan: (prefix, page) => real.scan(prefix, { ...page, nowMs: page.nowMs - 1 }),
    }),
  },
  "begins a page of a scan with its cursor": {
    receipts: (real) => ({
      scan: async (prefix, page) => {
        const found = await real.scan(prefix, page);
        const value = page.after === null ? null : await real.get(page.after, page.nowMs);
        return value === null
          ? found
          : [[page.after ?? "", value] as const, ...found].slice(0, page.limit);
      },
    }),
  },
  "finds what is beside the prefix of a scan": {
    receipts: (real) => ({
      scan: (prefix, page) => real.scan(prefix.replace(/(.)\/$/, "$1"), page),
    }),
  },
  "shares the bytes of receipts": {
    receipts: (real) => {
      const shared = new Map<string, Uint8Array>();
      return {
        put: async (key, value, untilMs) => {
          shared.set(key, value);
          await real.put(key, value, untilMs);
        },
        get: async (key, nowMs) =>
          (await real.get(key, nowMs)) === null ? null : (shared.get(key) ?? null),
      };
    },
  },
};

function planted(real: Capabilities, bugs: Bugs): Capabilities {
  const { mailbox, replay, receipts } = real;
  return {
    ...real,
    ...(mailbox &&
      bugs.mailbox && { mailbox: withMethods("mailbox", mailbox, bugs.mailbox(mailbox)) }),
    ...(replay && bugs.replay && { replay: withMethods("replay", replay, bugs.replay(replay)) }),
    ...(receipts &&
      bugs.receipts && { receipts: withMethods("receipts", receipts, bugs.receipts(receipts)) }),
  };
}

/**
 * What concerns the drivers here. The random games take most of the time, and play where nothing
 * else has caught a bug.
 */
const cases = conformanceCases.filter(
  ({ lasting, capability }) => !lasting && capability !== "ledger" && capability !== "logs",
);
const [games, plain] = [true, false].map((isGame) =>
  cases.filter(({ name }) => name.startsWith("random operations") === isGame),
) as [ConformanceCase[], ConformanceCase[]];

describe("the kit catches a driver that", () => {
  for (const [bug, of] of Object.entries(bugs)) {
    test(bug, async () => {
      const target = {
        name: bug,
        provides: memoryPlugin.provides,
        reopen: null,
        open: async (environment: Parameters<typeof memoryPlugin.open>[1]) => {
          const store = await memoryPlugin.open(optionsOf(memoryPlugin, {}), environment);
          return { ...store, capabilities: planted(store.capabilities, of) };
        },
      };
      const caughtBy = async (some: readonly ConformanceCase[]) => {
        const caught: string[] = [];
        for (const one of some) await runCase(target, one).catch(() => caught.push(one.name));
        return caught;
      };
      const caught = await caughtBy(plain);
      if (caught.length === 0) expect(await caughtBy(games)).not.toEqual([]);
      // Everything else still passes: it is the bug that is caught, not the disguise.
      expect(caught.length).toBeLessThan((conformanceCases.length - games.length) / 2);
    });
  }
});
