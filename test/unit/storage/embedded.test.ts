/** The embedded ledger over a table in memory: what is taken, what becomes of it, what survives. */
import { describe, expect, test } from "bun:test";
import { isFault } from "../../../src/core/fault.ts";
import { aliasReserveMs } from "../../../src/core/ledger/account.ts";
import type { Intent } from "../../../src/core/ledger/actions.ts";
import type { LedgerCall } from "../../../src/core/ledger/calls.ts";
import { encodeDidDocument } from "../../../src/core/ledger/document-codec.ts";
import {
  addAlias,
  alice,
  bob,
  never,
  register,
  registration,
  settled,
  signed,
  stage,
  startMs,
  taken,
} from "../../support/embedded-stage.ts";
import { documentOf, registrationOf, setDocumentOf } from "../../support/identity.ts";
import { pause } from "../../support/wait.ts";
import { operatorAccount } from "../../support/world.ts";

/** A call without a counter, which changes a record each time. */
const linksOf = (recipientPolicy: string): LedgerCall => {
  return {
    name: "set_delivery_policy_links",
    did: alice.did,
    recipientPolicy,
    tagPolicies: [],
    personaPolicies: [],
  };
};

describe("a call", () => {
  test("is pending until a block includes it, and then final", async () => {
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
    expect(after).toEqual({
      ...submission,
      state: "finalized",
      block: (await ledger.head()).finalized,
    });
    expect((await ledger.account(alice.did)).record).toMatchObject({
      version: 1n,
      owner: operatorAccount,
      document: documentOf(alice),
    });
    expect(await ledger.submission(submission.txHash.toUpperCase().replace("0X", "0x"))).toEqual(
      after,
    );
    await ledger.close();
  });

  test("is seen by the next read after its block, though the record was read before", async () => {
    const { open } = stage();
    const ledger = await open();
    await settled(ledger, taken(await ledger.submit(registration(alice), "register")));
    const before = await ledger.account(alice.did);
    expect(await ledger.account(alice.did)).toBe(before);
    await settled(ledger, taken(await ledger.submit(addAlias(alice, "alice", 0n), "alias")));
    expect((await ledger.account(alice.did)).record?.aliases).toEqual(["alice"]);
    await ledger.close();
  });

  test("is seen as soon as its block is committed, though the record was read before", async () => {
    const given = stage();
    const ledger = await given.open();
    await settled(ledger, taken(await ledger.submit(registration(alice), "register")));
    await ledger.account(alice.did);
    const change = taken(await ledger.submit(addAlias(alice, "alice", 0n), "alias"));
    const commit = given.table.commit.bind(given.table) as typeof given.table.commit;
    const seen: (readonly string[] | undefined)[] = [];
    given.table.commit = async (work) => {
      const result = await commit(work);
      const state = (await ledger.submission(change.txHash))?.state;
      if (state === "finalized") seen.push((await ledger.account(alice.did)).record?.aliases);
      return result;
    };
    await settled(ledger, change);
    expect(seen[0]).toEqual(["alice"]);
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

  test("is accepted exactly once when two use the same counter value", async () => {
    const made = stage();
    const ledger = await made.open();
    await register(ledger, alice);
    const calls = ["a", "b", "c", "d"].map((alias) =>
      ledger.submit(addAlias(alice, alias), "add_alias"),
    );
    const outcomes = await Promise.all(calls);
    const faults = outcomes.filter(isFault);
    expect(faults.map(({ code, extra }) => [code, extra.expected])).toEqual(
      Array(3).fill(["nonce_mismatch", "1"]),
    );
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

  test("is checked again when a block comes between the check and the commit", async () => {
    const made = stage();
    const ledger = await made.open();
    await register(ledger, alice);
    const gate = Promise.withResolvers<void>();
    made.table.gate = gate.promise;
    const slow = ledger.submit(addAlias(alice, "slow"), "add_alias");
    expect(
      (await settled(ledger, await ledger.submit(addAlias(alice, "fast"), "add_alias"))).state,
    ).toBe("finalized");
    gate.resolve();
    const outcome = await slow;
    expect(isFault(outcome) && [outcome.code, outcome.extra.expected]).toEqual([
      "nonce_mismatch",
      "1",
    ]);
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
    const component = signed(
      alice,
      { action: "RemoveAuthentication", did: alice.did, id: `${alice.did}#k1` },
      0n,
    );
    const [first, second] = await Promise.all([
      ledger.submit(document, "replace_document"),
      ledger.submit(component, "RemoveAuthentication"),
    ]);
    expect(isFault(second) && second.code).toBe("nonce_mismatch");
    expect((await settled(ledger, first)).state).toBe("finalized");
    await ledger.close();
  });

  test("that the state no longer permits fails in its block, with the reason", async () => {
    const made = stage();
    const ledger = await made.open();
    await register(ledger, alice);
    const { did } = alice;
    const deactivation = signed(alice, { action: "deactivate_did", did }, 0n);
    const [first, second] = await Promise.all([
      ledger.submit(deactivation, "deactivate_did"),
      ledger.submit(addAlias(alice, "team"), "add_alias"),
    ]);
    expect((await settled(ledger, first)).state).toBe("finalized");
    const failed = await settled(ledger, second);
    expect([failed.state, failed.reason?.code]).toEqual(["failed", "did_deactivated"]);
    expect(failed.block).not.toBeNull();
    expect(await ledger.aliasHolder("team")).toBeNull();
    expect((await ledger.account(did)).counters.alias).toBe(0n);
    await ledger.close();
  });

  test("after call of one DID keeps counters and version exact", async () => {
    const made = stage(1);
    const ledger = await made.open();
    await register(ledger, alice);
    for (let i = 0n; i < 100n; i++) {
      const intent: Intent = {
        action: i % 2n === 0n ? "add_alias" : "remove_alias",
        did: alice.did,
        alias: "x",
      };
      expect(
        (await settled(ledger, await ledger.submit(signed(alice, intent, i), intent.action))).state,
      ).toBe("finalized");
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
      names.map((name) => ledger.submit(linksOf(name), "set_delivery_policy_links")),
    );
    const all = await Promise.all(outcomes.map((outcome) => settled(ledger, outcome)));
    expect(all.map(({ state }) => state)).toEqual(Array(20).fill("finalized"));
    expect((await ledger.account(alice.did)).record?.links?.recipientPolicy).toBe("name-19");
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
  test("pending calls are applied after a crash, exactly once", async () => {
    const made = stage(never);
    const before = await made.open();
    const submissions = [
      taken(await before.submit(registration(alice), "register")),
      taken(await before.submit(registration(bob), "register")),
    ];
    // No close: the process is gone. More block times later than a call lives it is back.
    made.blockTimeMs = 2;
    made.nowMs += 100 * never;
    const ledger = await made.open();
    for (const submission of submissions)
      expect((await settled(ledger, submission)).state).toBe("finalized");
    expect((await ledger.account(alice.did)).record?.version).toBe(1n);
    const next = taken(
      await ledger.submit({ name: "set_alias", did: alice.did, alias: "now" }, "set_alias"),
    );
    expect(submissions.map(({ txHash }) => txHash)).not.toContain(next.txHash);
    await ledger.close();
  });

  test("the same call before and after a restart is two submissions", async () => {
    const made = stage();
    const call: LedgerCall = { name: "set_alias", did: alice.did, alias: "same" };
    const hashes: string[] = [];
    for (let i = 0; i < 3; i++) {
      const ledger = await made.open();
      if (i === 0) await register(ledger, alice);
      hashes.push((await settled(ledger, await ledger.submit(call, "set_alias"))).txHash);
      await ledger.close();
    }
    expect(new Set(hashes).size).toBe(3);
  });

  test("the reserve of an alias that was released", async () => {
    const made = stage();
    const before = await made.open();
    await register(before, alice);
    await register(before, bob);
    const alias = (action: "add_alias" | "remove_alias") =>
      ({ action, did: alice.did, alias: "bank" }) as const;
    await settled(before, await before.submit(signed(alice, alias("add_alias"), 0n), "add_alias"));
    await settled(
      before,
      await before.submit(signed(alice, alias("remove_alias"), 1n), "remove_alias"),
    );
    await before.close();
    const ledger = await made.open();
    const untilMs = BigInt(made.nowMs + aliasReserveMs);
    expect(await ledger.aliasReserve("bank")).toMatchObject({ did: alice.did, life: 0 });
    expect((await ledger.aliasReserve("bank"))?.untilMs).toBeLessThanOrEqual(untilMs);
    expect([await ledger.aliasHolder("bank"), await ledger.aliasReserve("Bank")]).toEqual([
      null,
      null,
    ]);
    expect(await ledger.submit(addAlias(bob, "bank"), "add_alias")).toMatchObject({
      code: "alias_taken",
    });
    made.nowMs += aliasReserveMs;
    const later: Intent = { action: "add_alias", did: bob.did, alias: "bank" };
    await settled(
      ledger,
      await ledger.submit(signed(bob, later, 0n, made.nowMs + 60_000), "add_alias"),
    );
    expect([await ledger.aliasHolder("bank"), await ledger.aliasReserve("bank")]).toEqual([
      bob.did,
      null,
    ]);
    await ledger.close();
  });

  test("its stamp is another one after each change, and none while one is under way or after the end", async () => {
    const made = stage(5);
    const ledger = await made.open();
    const before = ledger.stamp();
    expect(before).toBeNumber();
    const submitting = ledger.submit(registration(alice), "register");
    let isUnderWay = false;
    const watching = made.table.commit;
    made.table.commit = (change) =>
      watching.call(made.table, (view) => {
        isUnderWay ||= ledger.stamp() === null;
        return change(view);
      }) as never;
    await settled(ledger, taken(await submitting));
    expect(isUnderWay).toBeTrue();
    expect(ledger.stamp()).toBeGreaterThan(before ?? 0);
    expect((await ledger.account(alice.did)).record).not.toBeNull();
    await ledger.close();
    expect(ledger.stamp()).toBeNull();
  });

  test("a closed ledger accepts nothing, makes no block and keeps pending calls", async () => {
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
    for (const operation of operations)
      expect(await operation().catch((error) => error.code)).toBe("closed");
    const commits = made.table.commits;
    await pause(15, "several block times, in which it would commit");
    expect(made.table.commits).toBe(commits);
    const again = await made.open();
    expect((await settled(again, { txHash })).state).toBe("finalized");
    await again.close();
  });

  test("settled submissions are there after a restart, with their reason", async () => {
    const made = stage();
    const first = await made.open();
    await register(first, alice);
    const gone = signed(
      alice,
      { action: "add_alias", did: alice.did, alias: "x" },
      0n,
      made.nowMs + 1,
    );
    const pending = taken(await first.submit(gone, "add_alias"));
    made.nowMs += 10;
    const failed = await settled(first, pending);
    await first.close();
    const again = await made.open();
    const read = await again.submission(failed.txHash);
    expect(read).toEqual(failed);
    expect([read?.state, read?.reason?.code, isFault(read?.reason)]).toEqual([
      "failed",
      "authorization_expired",
      true,
    ]);
    await again.close();
  });

  test("settled submissions are forgotten by number", async () => {
    const made = stage();
    const ledger = await made.open({ retainedMax: 3n });
    await register(ledger, alice);
    const hashes: string[] = [];
    for (let i = 0; i < 5; i++) {
      const outcome = await ledger.submit(linksOf(`n${i}`), "set_delivery_policy_links");
      hashes.push((await settled(ledger, outcome)).txHash);
    }
    const known = async () =>
      (await Promise.all(hashes.map((hash) => ledger.submission(hash)))).map(
        (found) => found !== null,
      );
    expect(await known()).toEqual([false, false, true, true, true]);
    const last = await settled(
      ledger,
      await ledger.submit(linksOf("z"), "set_delivery_policy_links"),
    );
    expect(await known()).toEqual([false, false, false, true, true]);
    expect(await ledger.submission(last.txHash)).not.toBeNull();
    await ledger.close();
  });
});
