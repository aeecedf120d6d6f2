/**
 * The ledger's cases prove themselves: each ledger below is the memory driver's with one bug
 * planted, and at least one case must catch it.
 */
import { describe, expect, test } from "bun:test";
import type { Did } from "../../src/core/codec/did.ts";
import { isFault } from "../../src/core/fault.ts";
import { emptyAccount } from "../../src/core/ledger/account.ts";
import { memoryPlugin } from "../../src/plugins/memory/memory.ts";
import type { Block, Ledger, StoreEnvironment } from "../../src/storage/contract.ts";
import { conformanceCases, runCase } from "./kit.ts";
import { optionsOf } from "./options.ts";

const bugs: Readonly<Record<string, (real: Ledger) => Partial<Ledger>>> = {
  "takes every call with a counter value that is in use": (real) => {
    let last: Awaited<ReturnType<Ledger["submit"]>> | null = null;
    return {
      submit: async (call, label) => {
        const outcome = await real.submit(call, label);
        if (isFault(outcome) && outcome.code === "nonce_mismatch" && last !== null) return last;
        last = outcome;
        return outcome;
      },
    };
  },
  "keeps the proof of the first registration only": (real) => {
    const first = new Map<Did, Uint8Array | null>();
    return {
      keyProof: async (did) => {
        const proof = await real.keyProof(did);
        if (!first.has(did) && proof !== null) first.set(did, proof);
        return first.get(did) ?? proof;
      },
    };
  },
  "has one stamp before and after a change": () => ({ stamp: () => 1 }),
  "restarts the counters after a deletion": (real) => ({
    account: async (did) => {
      const account = await real.account(did);
      return account.record === null ? emptyAccount : account;
    },
  }),
  "says finalized before the state shows it": (real) => ({
    submission: async (txHash) => {
      const submission = await real.submission(txHash);
      return submission?.state === "pending"
        ? { ...submission, state: "finalized", block: noBlock }
        : submission;
    },
  }),
  "forgets why a call failed": (real) => ({
    submission: async (txHash) => {
      const submission = await real.submission(txHash);
      return submission && { ...submission, reason: null };
    },
  }),
  "answers an unknown submission as dropped": (real) => ({
    submission: async (txHash) => {
      const unknown = {
        txHash,
        did: "did:svc:1111111111111111" as Did,
        call: "set_alias",
        label: "x",
      } as const;
      const dropped = {
        ...unknown,
        state: "dropped",
        reason: null,
        block: null,
        submittedAtMs: 0,
      } as const;
      return (await real.submission(txHash)) ?? dropped;
    },
  }),
  "keeps naming the holder of an alias that was given up": (real) => {
    const seen = new Map<string, Did>();
    return {
      account: async (did) => {
        const account = await real.account(did);
        for (const alias of account.record?.aliases ?? []) seen.set(alias, did);
        return account;
      },
      aliasHolder: async (alias) => (await real.aliasHolder(alias)) ?? seen.get(alias) ?? null,
    };
  },
  "has one policy for recipients and tags": (real) => ({
    policy: (async (scope: "recipient" | "tag" | "persona", key: string) =>
      real.policy(scope === "tag" ? "recipient" : scope, key)) as Ledger["policy"],
  }),
  "shows a head that goes back": (real) => {
    let asked = 0n;
    return {
      head: async () => {
        const head = await real.head();
        return { ...head, finalized: { ...head.finalized, number: 1_000_000n - asked++ } };
      },
    };
  },
  "registers a DID twice": (real) => {
    let turn = 0;
    return {
      submit: async (call, label) => {
        const outcome = await real.submit(call, label);
        if (isFault(outcome) || call.name !== "register_with_document_proof_signed") return outcome;
        return turn++ === 0
          ? outcome
          : { ...outcome, txHash: `0x${turn.toString(16).padStart(64, "0")}` };
      },
    };
  },
};

const noBlock: Block = { number: 10n ** 9n, hash: `0x${"0".repeat(64)}`, timeMs: 0 };

function planted(real: Ledger, bug: Partial<Ledger>): Ledger {
  return new Proxy(real, {
    get: (target, name) => {
      const operation = Reflect.get(name in bug ? bug : target, name);
      return typeof operation === "function" ? operation.bind(target) : operation;
    },
  });
}

describe("the cases of the ledger catch one that", () => {
  for (const [bug, of] of Object.entries(bugs)) {
    test(bug, async () => {
      const open = async (environment: StoreEnvironment) => {
        const store = await memoryPlugin.open(
          optionsOf(memoryPlugin, { block_time_ms: 10 }),
          environment,
        );
        const ledger = planted(store.capabilities.ledger!, of(store.capabilities.ledger!));
        return { ...store, capabilities: { ledger } };
      };
      const cases = conformanceCases.filter((one) => one.capability === "ledger" && !one.lasting);
      const caught: string[] = [];
      const target = { name: bug, provides: ["ledger"] as const, open, reopen: null };
      for (const one of cases) await runCase(target, one).catch(() => caught.push(one.name));
      expect(caught).not.toEqual([]);
      // Something still passes: it is the bug that is caught, not the disguise.
      expect(caught.length).toBeLessThan(cases.length);
    }, 120_000);
  }
});
