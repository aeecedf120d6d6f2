/** The embedded ledger over a table in memory: what is taken, what becomes of it, what survives. */
import { describe, expect, test } from "bun:test";
import { isFault } from "../../src/core/fault.ts";
import type { Intent } from "../../src/core/intent.ts";
import type { LedgerCall } from "../../src/core/ledger.ts";
import { encodeDidDocument } from "../../src/core/scale.ts";
import { openMemoryTable } from "../../src/plugins/memory/table.ts";
import { StoreError, type Submission } from "../../src/storage/contract.ts";
import { type EmbeddedLedger, type EmbeddedLimits, openEmbeddedLedger } from "../../src/storage/embedded.ts";
import { poolKey } from "../../src/storage/embedded-records.ts";
import type { Table } from "../../src/storage/table.ts";
import {
  authorizedCall,
  documentOf,
  type Identity,
  identityOf,
  registrationOf,
  setDocumentOf,
} from "../support/identity.ts";
import { operatorAccount } from "../support/world.ts";

/** A memory table that counts its commits and fails when told to. */
class TestTable implements Table {
  private readonly table = openMemoryTable({ bytesMax: 1 << 30 });
  commits = 0;
  failure: StoreError | null = null;

  get = (key: string) => this.table.get(key);
  range: Table["range"] = (prefix, options) => this.table.range(prefix, options);

  async commit<T>(change: Parameters<Table["commit"]>[0]): Promise<T> {
    this.commits++;
    if (this.failure !== null) throw this.failure;
    return this.table.commit(change) as Promise<T>;
  }
}

const startMs = 1_800_000_000_000;

type Stage = {
  readonly table: TestTable;
  readonly logged: string[];
  nowMs: number;
  blockTimeMs: number;
  open(limits?: Partial<EmbeddedLimits>): Promise<EmbeddedLedger>;
};

/** `blockTimeMs` is real time for the timer; the clock stands still unless a test moves it. */
function stage(blockTimeMs = 2): Stage {
  const made: Stage = {
    table: new TestTable(),
    logged: [],
    nowMs: startMs,
    blockTimeMs,
    open: (limits) =>
      openEmbeddedLedger({
        table: made.table,
        blockTimeMs: made.blockTimeMs,
        now: () => made.nowMs,
        log: (level, message) => made.logged.push(`${level} ${message}`),
        operator: operatorAccount,
        ...(limits && { limits }),
      }),
  };
  return made;
}

/** Long enough that no test sees a block by itself. */
const never = 3_600_000;

async function until<T>(ask: () => Promise<T | null>): Promise<T> {
  for (const end = Date.now() + 5_000; Date.now() < end; await Bun.sleep(1)) {
    const answer = await ask();
    if (answer !== null) return answer;
  }
  throw new Error("the condition did not come");
}

function taken(outcome: unknown): Submission {
  if (isFault(outcome)) throw new Error(`refused: ${outcome.code} ${outcome.detail}`);
  return outcome as Submission;
}

async function settled(ledger: EmbeddedLedger, outcome: unknown): Promise<Submission> {
  const { txHash } = taken(outcome);
  return until(async () => {
    const submission = await ledger.submission(txHash);
    return submission !== null && submission.state !== "pending" ? submission : null;
  });
}

const alice = identityOf("alice");
const bob = identityOf("bob");
const registration = (identity: Identity, timestampMs = startMs) =>
  registrationOf(identity, { timestamp: String(timestampMs) });

async function register(ledger: EmbeddedLedger, identity: Identity): Promise<void> {
  expect((await settled(ledger, await ledger.submit(registration(identity), "register"))).state).toBe("finalized");
}

function signed(identity: Identity, intent: Intent, nonce: bigint, validUntilMs = startMs + 60_000): LedgerCall {
  return authorizedCall(intent, { nonce, validUntilMs: BigInt(validUntilMs), signerKeyId: "root" }, identity.root);
}

const addAlias = (identity: Identity, alias: string, nonce = 0n) =>
  signed(identity, { action: "add_alias", did: identity.did, alias }, nonce);

describe("a call", () => {
  test("is pending until a block holds it, and then stands", async () => {
    const { open, nowMs } = stage();
    const ledger = await open();
    const submission = taken(await ledger.submit(registration(alice), "register"));
    expect(submission).toMatchObject({
      did: alice.did,
      call: "register_with_document_proof_signed",
      label: "register",
      state: "pending",
      reason: null,
      block: null,
      submittedAtMs: nowMs,
    });
    expect(submission.txHash).toMatch(/^0x[0-9a-f]{64}$/);
    expect((await ledger.account(alice.did)).record).toBeNull();
    const after = await settled(ledger, submission);
    expect(after).toEqual({ ...submission, state: "finalized", block: (await ledger.head()).finalized });
    expect((await ledger.account(alice.did)).record).toMatchObject({
      version: 1n,
      owner: operatorAccount,
      document: documentOf(alice),
    });
    expect(await ledger.submission(submission.txHash.toUpperCase().replace("0X", "0x"))).toEqual(after);
    await ledger.close();
  });

  test("that the finalized state refuses costs no write", async () => {
    const { open, table } = stage(never);
    const ledger = await open();
    const before = table.commits;
    const outcomes = [
      await ledger.submit(addAlias(alice, "x"), "add_alias"),
      await ledger.submit({ ...registration(alice), signature: new Uint8Array(64) }, "register"),
      await ledger.submit(
        {
          name: "set_delivery_policy",
          did: alice.did,
          policy: {
            effectiveTtlBlocks: 1,
            maxMessageBytes: 1,
            cacheEligible: true,
            replication: 300,
            encryptedHeaderPreviewBytes: null,
            releasePricing: null,
            expirationBehavior: null,
          },
        },
        "set_delivery_policy",
      ),
    ];
    expect(outcomes.map((outcome) => (isFault(outcome) ? outcome.code : "taken"))).toEqual([
      "did_not_found",
      "invalid_signature",
      "did_not_found",
    ]);
    expect(table.commits).toBe(before);
    await ledger.close();
  });

  test("of two with one counter value exactly one is taken", async () => {
    const made = stage();
    const ledger = await made.open();
    await register(ledger, alice);
    const calls = ["a", "b", "c", "d"].map((alias) => ledger.submit(addAlias(alice, alias), "add_alias"));
    const outcomes = await Promise.all(calls);
    const faults = outcomes.filter(isFault);
    expect(faults.map(({ code, extra }) => [code, extra.expected])).toEqual(Array(3).fill(["nonce_mismatch", "1"]));
    expect(
      (
        await settled(
          ledger,
          outcomes.find((outcome) => !isFault(outcome)),
        )
      ).state,
    ).toBe("finalized");
    expect((await ledger.account(alice.did)).counters.alias).toBe(1n);
    expect((await ledger.account(alice.did)).record?.aliases).toHaveLength(1);
    await ledger.close();
  });

  test("of a whole document in version 2 shares the document counter with components", async () => {
    const made = stage(2);
    const ledger = await made.open();
    await register(ledger, alice);
    const document = setDocumentOf(alice, {
      timestamp: `v2:0:${startMs + 1_000}`,
      docBlob: encodeDidDocument(documentOf(alice)),
    });
    const component = signed(alice, { action: "RemoveAuthentication", did: alice.did, id: `${alice.did}#k1` }, 0n);
    const [first, second] = await Promise.all([
      ledger.submit(document, "replace_document"),
      ledger.submit(component, "RemoveAuthentication"),
    ]);
    expect(isFault(second) && second.code).toBe("nonce_mismatch");
    expect((await settled(ledger, first)).state).toBe("finalized");
    await ledger.close();
  });

  test("that comes too late for the state fails in its block, with the reason", async () => {
    const made = stage();
    const ledger = await made.open();
    await register(ledger, alice);
    await register(ledger, bob);
    const [first, second] = await Promise.all([
      ledger.submit(addAlias(alice, "team"), "add_alias"),
      ledger.submit(addAlias(bob, "team"), "add_alias"),
    ]);
    expect((await settled(ledger, first)).state).toBe("finalized");
    const failed = await settled(ledger, second);
    expect([failed.state, failed.reason?.code]).toEqual(["failed", "alias_taken"]);
    expect(failed.block).not.toBeNull();
    expect(await ledger.aliasHolder("team")).toBe(alice.did);
    expect((await ledger.account(bob.did)).counters.alias).toBe(0n);
    await ledger.close();
  });

  test("after call of one DID keeps counters and version exact", async () => {
    const made = stage(1);
    const ledger = await made.open();
    await register(ledger, alice);
    for (let i = 0n; i < 100n; i++) {
      const intent: Intent = { action: i % 2n === 0n ? "add_alias" : "remove_alias", did: alice.did, alias: "x" };
      expect((await settled(ledger, await ledger.submit(signed(alice, intent, i), intent.action))).state).toBe(
        "finalized",
      );
    }
    const account = await ledger.account(alice.did);
    expect(account.counters).toEqual({ alias: 100n, document: 0n, rootPubkey: 0n, control: 0n });
    expect(account.record?.version).toBe(101n);
    await ledger.close();
  });

  test("without a counter is applied in the order of submission, across commits", async () => {
    const made = stage();
    const ledger = await made.open({ blockCallsMax: 3 });
    await register(ledger, alice);
    const names = Array.from({ length: 20 }, (_, i) => `name-${i}`);
    const outcomes = await Promise.all(
      names.map((alias) => ledger.submit({ name: "set_alias", did: alice.did, alias }, "set_alias")),
    );
    const all = await Promise.all(outcomes.map((outcome) => settled(ledger, outcome)));
    expect(all.map(({ state }) => state)).toEqual(Array(20).fill("finalized"));
    expect((await ledger.account(alice.did)).record?.aliases).toEqual(["name-19"]);
    const numbers = all.map(({ block }) => Number(block?.number));
    expect(numbers).toEqual([...numbers].sort((a, b) => a - b));
    expect(new Set(numbers).size).toBe(7);
    expect(new Set(all.map(({ txHash }) => txHash)).size).toBe(20);
    await ledger.close();
  });
});

describe("a registration", () => {
  test("that is repeated is the same submission, whatever its timestamp", async () => {
    const { open } = stage(never);
    const ledger = await open();
    const outcomes = await Promise.all(
      [0, 1, 2, 3].map((i) => ledger.submit(registration(alice, startMs + i), "register")),
    );
    expect(new Set(outcomes.map((outcome) => taken(outcome).txHash)).size).toBe(1);
    await ledger.close();
  });

  test("that differs from the pending one is refused", async () => {
    const { open } = stage(never);
    const ledger = await open();
    taken(await ledger.submit(registration(alice), "register"));
    const others = [
      registrationOf(alice, { timestamp: String(startMs), alias: "x" }),
      registrationOf({ ...alice, root: bob.root }, { timestamp: String(startMs) }),
      registrationOf(alice, {
        timestamp: String(startMs),
        docBlob: encodeDidDocument({ ...documentOf(alice), authentication: [] }),
      }),
    ];
    for (const call of others) {
      const outcome = await ledger.submit(call, "register");
      expect(isFault(outcome) && outcome.code).toBe("registration_pending");
    }
    await ledger.close();
  });

  test("that is confirmed is refused as registered", async () => {
    const { open } = stage();
    const ledger = await open();
    await register(ledger, alice);
    const outcome = await ledger.submit(registration(alice, startMs + 1), "register");
    expect(isFault(outcome) && outcome.code).toBe("did_already_registered");
    await ledger.close();
  });
});

describe("what survives", () => {
  test("pending calls go on after a crash, exactly once", async () => {
    const made = stage(never);
    const before = await made.open();
    const submissions = [
      taken(await before.submit(registration(alice), "register")),
      taken(await before.submit(registration(bob), "register")),
    ];
    // No close: the process is gone. A day later it is back, with other block times.
    made.blockTimeMs = 2;
    made.nowMs += 86_400_000;
    const ledger = await made.open();
    for (const submission of submissions) expect((await settled(ledger, submission)).state).toBe("finalized");
    expect((await ledger.account(alice.did)).record?.version).toBe(1n);
    const next = taken(await ledger.submit({ name: "set_alias", did: alice.did, alias: "now" }, "set_alias"));
    expect(submissions.map(({ txHash }) => txHash)).not.toContain(next.txHash);
    await ledger.close();
  });

  test("a closed ledger takes nothing, makes no block and keeps what is pending", async () => {
    const made = stage(5);
    const ledger = await made.open();
    const { txHash } = taken(await ledger.submit(registration(alice), "register"));
    await ledger.close();
    await ledger.close();
    const operations: (() => Promise<unknown>)[] = [
      () => ledger.submit(registration(bob), "register"),
      () => ledger.account(alice.did),
      () => ledger.head(),
      () => ledger.submission(txHash),
      () => ledger.policy("recipient", alice.did),
      () => ledger.aliasHolder("x"),
    ];
    for (const operation of operations) expect(await operation().catch((error) => error.code)).toBe("closed");
    const commits = made.table.commits;
    await Bun.sleep(15);
    expect(made.table.commits).toBe(commits);
    const again = await made.open();
    expect((await settled(again, { txHash })).state).toBe("finalized");
    await again.close();
  });

  test("settled submissions are there after a restart, with their reason", async () => {
    const made = stage();
    const first = await made.open();
    await register(first, alice);
    const gone = signed(alice, { action: "add_alias", did: alice.did, alias: "x" }, 0n, made.nowMs + 1);
    const pending = taken(await first.submit(gone, "add_alias"));
    made.nowMs += 10;
    const failed = await settled(first, pending);
    await first.close();
    const again = await made.open();
    const read = await again.submission(failed.txHash);
    expect(read).toEqual(failed);
    expect([read?.state, read?.reason?.code, isFault(read?.reason)]).toEqual(["failed", "authorization_expired", true]);
    await again.close();
  });

  test("settled submissions are forgotten by number and by age, in bounded steps", async () => {
    const made = stage();
    const ledger = await made.open({ retainedMax: 3n, retainedMs: 1_000 });
    await register(ledger, alice);
    const hashes: string[] = [];
    for (let i = 0; i < 5; i++) {
      const outcome = await ledger.submit({ name: "set_alias", did: alice.did, alias: `n${i}` }, "set_alias");
      hashes.push((await settled(ledger, outcome)).txHash);
    }
    const known = async () =>
      (await Promise.all(hashes.map((hash) => ledger.submission(hash)))).map((found) => found !== null);
    expect(await known()).toEqual([false, false, true, true, true]);
    made.nowMs += 1_000;
    const last = await settled(
      ledger,
      await ledger.submit({ name: "set_alias", did: alice.did, alias: "z" }, "set_alias"),
    );
    expect(await known()).toEqual([false, false, false, false, false]);
    expect(await ledger.submission(last.txHash)).not.toBeNull();
    await ledger.close();
  });
});

describe("a table that fails", () => {
  test("refuses the submission and takes nothing", async () => {
    const made = stage(never);
    const ledger = await made.open({ pendingCallsMax: 1 });
    made.table.failure = new StoreError("unavailable", "no disk");
    expect(await ledger.submit(registration(alice), "register").catch((error) => error.code)).toBe("unavailable");
    made.table.failure = null;
    taken(await ledger.submit(registration(alice), "register"));
    await ledger.close();
  });

  test("delays the block, is logged, and loses nothing", async () => {
    const made = stage(2);
    const ledger = await made.open();
    const submission = taken(await ledger.submit(registration(alice), "register"));
    made.table.failure = new StoreError("unavailable", "no disk");
    await until(async () => (made.logged.length >= 2 ? true : null));
    expect(made.logged.every((line) => line.startsWith("error no block"))).toBe(true);
    expect((await ledger.submission(submission.txHash))?.state).toBe("pending");
    made.table.failure = null;
    expect((await settled(ledger, submission)).state).toBe("finalized");
    await ledger.close();
  });

  test("for longer than a call lives drops it, and frees what it claimed", async () => {
    const made = stage(2);
    const ledger = await made.open();
    await register(ledger, alice);
    const late = taken(await ledger.submit(addAlias(alice, "x"), "add_alias"));
    made.table.failure = new StoreError("unavailable", "no disk");
    await until(async () => (made.logged.length >= 1 ? true : null));
    made.nowMs += 67 * made.blockTimeMs;
    made.table.failure = null;
    const dropped = await settled(ledger, late);
    expect([dropped.state, dropped.reason?.code, dropped.block]).toEqual([
      "dropped",
      "chain_submission_rejected",
      null,
    ]);
    expect((await ledger.account(alice.did)).counters.alias).toBe(0n);
    expect((await settled(ledger, await ledger.submit(addAlias(alice, "x"), "add_alias"))).state).toBe("finalized");
    await ledger.close();
  });

  test("whose head is unreadable is not opened", async () => {
    const made = stage();
    await (await made.open()).close();
    for (const bytes of ["{", '{"format":2}']) {
      await made.table.commit((view) => view.put("head", new TextEncoder().encode(bytes)));
      expect(await made.open().catch((error) => error.code)).toBe("corrupt");
    }
  });
});

describe("bounds", () => {
  test("a full pool is an operating failure, and room comes back with the next block", async () => {
    const made = stage(5);
    const ledger = await made.open({ pendingCallsMax: 2 });
    const outcomes = await Promise.allSettled(
      [alice, bob, identityOf("carol")].map((identity) => ledger.submit(registration(identity), "register")),
    );
    expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "rejected"]);
    const rejected = outcomes[2] as PromiseRejectedResult;
    expect((rejected.reason as StoreError).code).toBe("full");
    await settled(ledger, (outcomes[1] as PromiseFulfilledResult<unknown>).value);
    taken(await ledger.submit(registration(identityOf("carol")), "register"));
    await ledger.close();
  });

  test("one unreadable call fails and does not stop the others", async () => {
    const made = stage(never);
    const first = await made.open();
    const [broken, sound] = [
      taken(await first.submit(registration(alice), "register")),
      taken(await first.submit(registration(bob), "register")),
    ];
    await first.close();
    const hash = Uint8Array.fromHex(broken.txHash.slice(2));
    await made.table.commit((view) => view.put(poolKey(0n), new Uint8Array([...hash, 1, 2, 3])));
    made.blockTimeMs = 2;
    const ledger = await made.open();
    expect((await settled(ledger, sound)).state).toBe("finalized");
    const failed = await settled(ledger, broken);
    expect([failed.state, failed.reason?.code]).toEqual(["failed", "internal_error"]);
    expect(made.logged.filter((line) => line.startsWith("error"))).toEqual(["error a call could not be applied"]);
    await ledger.close();
  });

  test("keys that nothing can have are absent", async () => {
    const ledger = await stage().open();
    expect(await ledger.policy("tag", "x".repeat(2_000))).toBeNull();
    expect(await ledger.aliasHolder("Not Normal")).toBeNull();
    expect(await ledger.submission("0x12")).toBeNull();
    expect(await ledger.submission(`0x${"0".repeat(64)}`)).toBeNull();
    expect(await ledger.operator()).toEqual(operatorAccount);
    await ledger.close();
  });
});

describe("block numbers", () => {
  test("go on by time without a write, and one number is one block", async () => {
    const made = stage(1_000);
    const ledger = await made.open();
    const commits = made.table.commits;
    const seen = new Map<bigint, string>();
    for (let i = 0; i < 12; i++, made.nowMs += 500) {
      const { finalized } = await ledger.head();
      expect(seen.get(finalized.number) ?? finalized.hash).toBe(finalized.hash);
      seen.set(finalized.number, finalized.hash);
      expect(finalized.timeMs).toBeLessThanOrEqual(made.nowMs);
    }
    expect([...seen.keys()]).toEqual([0n, 1n, 2n, 3n, 4n]);
    expect(new Set(seen.values()).size).toBe(5);
    expect(made.table.commits).toBe(commits);
    await ledger.close();
  });

  test("of blocks with calls are above every number shown before, and times never go back", async () => {
    const made = stage(3);
    const ledger = await made.open();
    let last = (await ledger.head()).finalized;
    for (const [i, step] of [0, 1, 2, 3, 100, 0, -50, -1_000, 5, 1_200].entries()) {
      made.nowMs += step;
      const shown = (await ledger.head()).finalized;
      expect(shown.number).toBeGreaterThanOrEqual(last.number);
      expect(shown.timeMs).toBeGreaterThanOrEqual(last.timeMs);
      const identity = identityOf(`number ${i}`);
      const { block } = await settled(ledger, await ledger.submit(registration(identity, startMs + 100), "register"));
      expect(block!.number).toBeGreaterThan(shown.number);
      expect(block!.timeMs).toBeGreaterThanOrEqual(shown.timeMs);
      last = (await ledger.head()).finalized;
      expect(last).toEqual(block!);
    }
    await ledger.close();
  });

  test("do not go back when the block time changes", async () => {
    const made = stage(10);
    const first = await made.open();
    made.nowMs += 1_000;
    const shown = (await first.head()).finalized.number;
    expect(shown).toBe(99n);
    await first.close();
    made.blockTimeMs = 6_000;
    const again = await made.open();
    made.nowMs += 6_000;
    expect((await again.head()).finalized.number).toBe(101n);
    expect((await again.head()).blockTimeMs).toBe(6_000);
    await again.close();
  });
});
