/**
 * The Directory as a whole over HTTP: counters under load and under concurrency, receipts across a
 * restart, lifetimes, a payload with any byte flipped, and the registration proof of the worked
 * vectors.
 */

import { afterEach, describe, expect, jest, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Type } from "@sinclair/typebox";
import fc from "fast-check";
import { encodeHex0x } from "../../../src/core/codec/bytes.ts";
import { fault } from "../../../src/core/fault.ts";
import { emptyAccount } from "../../../src/core/ledger/account.ts";
import type { LedgerCall } from "../../../src/core/ledger/calls.ts";
import { nodeLimitsShape } from "../../../src/core/schema/directory.ts";
import { compileShape, limitsShape } from "../../../src/core/schema/schema.ts";
import { lmdbPlugin } from "../../../src/plugins/lmdb/lmdb.ts";
import { type StoreEnvironment, StoreError } from "../../../src/storage/contract.ts";
import {
  beforeBlock,
  documentBlobOf,
  type Json,
  proofHeadersOf,
  registerBodyOf,
  replaceBodyOf,
  simpleDocument,
  type TestDirectory,
  testDirectory,
  updateBodyOf,
  updates,
  vectorIdentity,
  withSubmit,
} from "../../support/directory.ts";
import { type Identity, identityOf } from "../../support/identity.ts";
import { membersOf, pathOf } from "./samples.ts";
import { methodWith, openStage, richDocument, serviceOf, termsAt } from "./stage.ts";

const opened: { close: () => Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
});

async function directoryOf(...given: Parameters<typeof testDirectory>): Promise<TestDirectory> {
  const directory = await testDirectory(...given);
  opened.push(directory);
  return directory;
}

const statusOf = async (directory: TestDirectory, { did }: Identity): Promise<Json> =>
  (await directory.ask("GET", `/registration-status/${did}`)).body;

test("a preparation that names no end lasts for the prepared life, whatever it prepares", async () => {
  const directory = await directoryOf({ options: { prepared_life: 7 * 60_000 } });
  const [newcomer, identity] = [identityOf("prepared"), identityOf("preparing")];
  await directory.register(identity);
  const document = simpleDocument(newcomer);
  const change = { did: identity.did, action: "RemoveAuthentication", id: `${identity.did}#k1` };
  const replies = [
    await directory.ask("POST", "/register-did/prepare", {
      did: newcomer.did,
      did_document: document,
    }),
    await directory.ask("POST", `/dids/${identity.did}/prepare`, change),
  ];
  const end = new Date(directory.nowMs() + 7 * 60_000).toISOString();
  expect(replies.map(({ status, body }) => [status, body["expires_at"]])).toEqual([
    [200, end],
    [200, end],
  ]);
});

describe("concurrency", () => {
  test("of two updates with one nonce one is taken and one refused with the next value", async () => {
    const directory = await directoryOf();
    const identity = identityOf("racer");
    await directory.register(identity);
    const add = (fragment: string) => {
      const members = { service: serviceOf(identity, fragment) };
      const body = updateBodyOf(identity, "AddService", members, termsAt(directory));
      return directory.ask("POST", `/dids/${identity.did}/document/services`, body);
    };
    const replies = await Promise.all([add("one"), add("two")]);
    expect(replies.map(({ status }) => status).sort()).toEqual([202, 409]);
    const refused = replies.find(({ status }) => status === 409)?.body;
    expect(refused).toMatchObject({ code: "nonce_mismatch", expected: "1" });
    await directory.settle(replies.find(({ status }) => status === 202)!);
    const { body } = await directory.ask("GET", `/dids/${identity.did}/nonces`);
    expect(body["document_nonce"]).toBe("1");
  });

  test("a registration that settles while it is repeated keeps its transaction", async () => {
    let whenRead: (() => Promise<void>) | null = null;
    const identity = identityOf("settling");
    const directory = await directoryOf({
      around: (ledger) => {
        const account = ledger.account.bind(ledger);
        ledger.account = async (did) => {
          const read = await account(did);
          await whenRead?.();
          return read;
        };
        return ledger;
      },
    });
    const body = registerBodyOf(identity, directory.nowMs());
    const [first, repeat] = await beforeBlock(async () => {
      const first = await directory.ask("POST", "/register-did", body);
      const txId = String(first.body["tx_id"]);
      whenRead = async () => {
        whenRead = null;
        jest.runOnlyPendingTimers();
        while ((await directory.ledger.submission(txId))?.state === "pending")
          await Promise.resolve();
      };
      return [first, await directory.ask("POST", "/register-did", body)];
    });
    expect([repeat.status, repeat.body["tx_id"]]).toEqual([202, first.body["tx_id"]]);
    expect(await statusOf(directory, identity)).toMatchObject({
      registration_status: "confirmed",
      tx_id: first.body["tx_id"],
    });
  });

  test("of registrations of one DID at once all that are the same get one transaction, all others a refusal", async () => {
    const directory = await directoryOf();
    const identity = identityOf("crowd");
    const same = registerBodyOf(identity, directory.nowMs());
    const other = registerBodyOf(identity, directory.nowMs(), {
      did_document: richDocument(identity),
    });
    const bodies = [same, same, other, same, other, same, other, same];
    const replies = await beforeBlock(() =>
      Promise.all(bodies.map((body) => directory.ask("POST", "/register-did", body))),
    );
    const taken = replies.filter(({ status }) => status === 202);
    expect(taken.length).toBe(5);
    expect(new Set(taken.map(({ body }) => body["tx_id"])).size).toBe(1);
    const refused = replies.filter(({ status }) => status !== 202);
    expect(refused.map(({ body }) => body["code"])).toEqual(Array(3).fill("registration_pending"));
  });

  test("of registrations of several DIDs with one alias at once one is taken, and the alias stays with it", async () => {
    const directory = await directoryOf();
    const people = ["ann", "ben", "cam", "dot"].map(identityOf);
    const ask = (identity: Identity) =>
      directory.ask(
        "POST",
        "/register-did",
        registerBodyOf(identity, directory.nowMs(), { alias: "Wanted" }),
      );
    const replies = await Promise.all(people.map(ask));
    const codes = replies.map(({ status, body }) => body["code"] ?? status).sort();
    expect(codes).toEqual([202, "alias_taken", "alias_taken", "alias_taken"]);
    const first = replies.find(({ status }) => status === 202)!;
    expect((await directory.settle(first)).state).toBe("finalized");
    const holder = people.find(({ did }) => did === first.body["did"]) as Identity;
    expect((await directory.ask("GET", "/aliases/wanted")).body["did"]).toBe(holder.did);

    const timestamp = new Date(directory.nowMs()).toISOString();
    const removal = updateBodyOf(
      holder,
      "remove_alias",
      { alias: "wanted", timestamp },
      termsAt(directory),
    );
    const gone = await directory.ask("DELETE", `/dids/${holder.did}/aliases/wanted`, removal);
    expect((await directory.settle(gone)).state).toBe("finalized");
    const next = people.find((identity) => identity !== holder) as Identity;
    const late = await ask(next);
    expect([late.status, late.body["code"]]).toEqual([409, "alias_taken"]);
  });

  test("one proof in headers presented by many at once works once", async () => {
    const stage = await openStage();
    opened.push(stage);
    const { did } = stage.standing;
    const body = JSON.stringify({ did, tag_policies: ["news"] });
    const timestamp = new Date(stage.nowMs()).toISOString();
    const headers = proofHeadersOf(stage.standing, {
      operation: "set_delivery_policy_links",
      body,
      timestamp,
    });
    const path = `/dids/${did}/delivery-policy-links`;
    const replies = await Promise.all(
      Array.from({ length: 16 }, () => stage.ask("PUT", path, body, headers)),
    );
    expect(replies.filter(({ status }) => status === 202).length).toBe(1);
    expect(replies.filter(({ body: { code } }) => code === "proof_replayed").length).toBe(15);
  });
});

test("200 updates in a row keep counters and version exact", async () => {
  const directory = await directoryOf();
  const identity = identityOf("worker");
  await directory.register(identity);
  for (let i = 0; i < 200; i++) {
    const method = methodWith(identity, "k9", `key ${i}`);
    const action = i === 0 ? "AddVerificationMethod" : "UpdateVerificationMethod";
    const body = updateBodyOf(
      identity,
      action,
      { verification_method: method },
      termsAt(directory, { nonce: `${i}` }),
    );
    const list = `/dids/${identity.did}/document/verification-methods`;
    const reply = await directory.ask(
      i === 0 ? "POST" : "PUT",
      i === 0 ? list : `${list}/${encodeURIComponent(`${identity.did}#k9`)}`,
      body,
    );
    expect(reply.status).toBe(202);
    expect((await directory.settle(reply)).state).toBe("finalized");
  }
  const { body } = await directory.ask("GET", `/dids/${identity.did}/nonces`);
  expect(body).toMatchObject({
    document_nonce: "200",
    alias_nonce: "0",
    root_pubkey_nonce: "0",
    control_nonce: "0",
  });
  expect((await directory.ask("GET", `/resolve/${identity.did}`)).body["version"]).toBe(201);
}, 120_000);

test("a payload with any bit flipped is refused, in every position of every structure", async () => {
  const stage = await openStage();
  opened.push(stage);
  const bodies = updates.map((update) => {
    const members = membersOf(update, stage.standing, stage);
    return { update, body: updateBodyOf(stage.standing, update.action, members, termsAt(stage)) };
  });
  const flips = fc.record({
    which: fc.nat({ max: bodies.length - 1 }),
    at: fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }),
    bit: fc.nat({ max: 7 }),
  });
  await fc.assert(
    fc.asyncProperty(flips, async ({ which, at, bit }) => {
      const { update, body } = bodies[which]!;
      const bytes = Uint8Array.fromHex(String(body["canonical_payload"]).slice(2));
      const index = Math.floor(at * bytes.length);
      bytes[index] = bytes[index]! ^ (1 << bit);
      const spoiled = { ...body, canonical_payload: encodeHex0x(bytes) };
      const reply = await stage.ask(update.method, pathOf(update, stage.standing), spoiled);
      expect(reply.status).toBe(400);
      expect(["payload_mismatch", "invalid_canonical_payload"]).toContain(
        String(reply.body["code"]),
      );
    }),
    { numRuns: 2_000 },
  );
});

describe("pending registrations", () => {
  test("survive a restart with their transaction", async () => {
    const folder = await mkdtemp(join(tmpdir(), "waypost-directory-"));
    const open = async (environment: StoreEnvironment) => {
      const parsed = lmdbPlugin.parseOptions({ path: folder, block_time_ms: 20 });
      if (!parsed.ok) throw new Error(JSON.stringify(parsed.problems));
      return lmdbPlugin.open(parsed.options, environment);
    };
    try {
      const identity = identityOf("survivor");
      const { after, reply } = await beforeBlock(async () => {
        const before = await testDirectory({ open });
        const reply = await before.ask(
          "POST",
          "/register-did",
          registerBodyOf(identity, before.nowMs()),
        );
        expect(reply.status).toBe(202);
        await before.close();
        const after = await testDirectory({ open });
        const pending = { registration_status: "pending", tx_id: reply.body["tx_id"] };
        expect(await statusOf(after, identity)).toMatchObject(pending);
        const again = await after.ask(
          "POST",
          "/register-did",
          registerBodyOf(identity, after.nowMs()),
        );
        expect(again.body["tx_id"]).toBe(reply.body["tx_id"]);
        return { after, reply };
      });
      await after.settle(reply);
      expect(await statusOf(after, identity)).toMatchObject({
        registration_status: "confirmed",
        tx_id: reply.body["tx_id"],
      });
      await after.close();
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  test("end when their submission has failed", async () => {
    const directory = await directoryOf({ blockTimeMs: 50 });
    const identity = identityOf("late");
    const timestamp = `v2:0:${directory.nowMs() + 1_000}`;
    const reply = await directory.ask(
      "POST",
      "/register-did",
      registerBodyOf(identity, directory.nowMs(), { timestamp }),
    );
    directory.advance(2_000);
    expect(await directory.settle(reply)).toMatchObject({ state: "failed" });
    expect(await statusOf(directory, identity)).toEqual({
      did: identity.did,
      source: "chain",
      registered: false,
      registration_status: "missing",
    });
    expect(
      (await directory.ask("POST", "/register-did", registerBodyOf(identity, directory.nowMs())))
        .status,
    ).toBe(202);
  });

  test("are pending while the ledger has not said what became of them, for 64 blocks", async () => {
    let reachable = false;
    const directory = await directoryOf({
      blockTimeMs: 1_000,
      around: (ledger) =>
        withSubmit(ledger, async (call, label) => {
          if (reachable) return ledger.submit(call, label);
          throw new StoreError("unavailable", "the line went dead");
        }),
    });
    const identity = identityOf("unsure");
    const body = registerBodyOf(identity, directory.nowMs());
    expect((await directory.ask("POST", "/register-did", body)).body["code"]).toBe(
      "chain_unavailable",
    );
    expect((await statusOf(directory, identity))["registration_status"]).toBe("pending");
    directory.advance(63_999);
    expect((await statusOf(directory, identity))["registration_status"]).toBe("pending");
    directory.advance(1);
    expect((await statusOf(directory, identity))["registration_status"]).toBe("missing");
    reachable = true;
    expect((await directory.ask("POST", "/register-did", body)).status).toBe(202);
  });

  test("are pending as long as their submission is under way, whatever the clock says", async () => {
    let isHeld = true;
    const directory = await directoryOf({
      blockTimeMs: 50,
      around: (ledger) => ({
        head: () => ledger.head(),
        bounds: () => ledger.bounds(),
        keyProof: (did) => ledger.keyProof(did),
        aliasHolder: (alias) => ledger.aliasHolder(alias),
        aliasReserve: (alias) => ledger.aliasReserve(alias),
        policy: ledger.policy.bind(ledger),
        stamp: () => ledger.stamp(),
        submit: (call, label) => ledger.submit(call, label),
        operator: () => ledger.operator(),
        proofs: () => ledger.proofs(),
        account: async (did) => (isHeld ? emptyAccount : ledger.account(did)),
        submission: async (txHash) => {
          const submission = await ledger.submission(txHash);
          return isHeld && submission !== null
            ? { ...submission, state: "pending", block: null }
            : submission;
        },
      }),
    });
    const identity = identityOf("patient");
    const body = registerBodyOf(identity, directory.nowMs());
    const reply = await directory.ask("POST", "/register-did", body);
    directory.advance(3_600_000);
    expect(await statusOf(directory, identity)).toMatchObject({
      registration_status: "pending",
      tx_id: reply.body["tx_id"],
    });
    isHeld = false;
    expect(await directory.settle(reply)).toMatchObject({ state: "dropped" });
    expect((await statusOf(directory, identity))["registration_status"]).toBe("missing");
  });

  test("whose outcome is unknown stay pending, and no longer than before, when another one is refused because of them", async () => {
    let calls = 0;
    const directory = await directoryOf({
      blockTimeMs: 1_000,
      around: (ledger) =>
        withSubmit(ledger, async () => {
          if (calls++ > 0) return fault("registration_pending", "one is in the pool");
          throw new StoreError("unavailable", "the line went dead");
        }),
    });
    const identity = identityOf("half done");
    await directory.ask("POST", "/register-did", registerBodyOf(identity, directory.nowMs()));
    directory.advance(30_000);
    const other = registerBodyOf(identity, directory.nowMs(), {
      did_document: richDocument(identity),
    });
    expect((await directory.ask("POST", "/register-did", other)).body["code"]).toBe(
      "registration_pending",
    );
    // It was the ledger that refused: the Directory by itself does not know of anything that stands
    // against it.
    expect(calls).toBe(2);
    expect((await statusOf(directory, identity))["registration_status"]).toBe("pending");
    directory.advance(34_000);
    expect((await statusOf(directory, identity))["registration_status"]).toBe("missing");
  });

  test("report their transaction after they are confirmed, for longer than they could have been pending", async () => {
    const directory = await directoryOf({ blockTimeMs: 50 });
    const identity = identityOf("settled");
    const reply = await directory.ask(
      "POST",
      "/register-did",
      registerBodyOf(identity, directory.nowMs()),
    );
    await directory.settle(reply);
    directory.advance(29 * 86_400_000);
    expect(await statusOf(directory, identity)).toMatchObject({
      registration_status: "confirmed",
      tx_id: reply.body["tx_id"],
    });
  });

  test("that the ledger refuses leave no trace", async () => {
    const directory = await directoryOf({
      around: (ledger) => withSubmit(ledger, async () => fault("chain_submission_rejected", "no")),
    });
    const identity = identityOf("refused");
    const reply = await directory.ask(
      "POST",
      "/register-did",
      registerBodyOf(identity, directory.nowMs()),
    );
    expect(reply.body["code"]).toBe("chain_submission_rejected");
    expect((await statusOf(directory, identity))["registration_status"]).toBe("missing");
  });
});

describe("a ledger that does not show its pending calls, like a chain", () => {
  /** Counts what reaches the ledger; takes everything without a look at it. */
  async function silent() {
    const seen: LedgerCall[] = [];
    const directory = await directoryOf({
      around: (ledger) =>
        withSubmit(ledger, async (call, label) => {
          seen.push(call);
          const txHash = encodeHex0x(new Uint8Array(32).fill(seen.length));
          const known = {
            txHash,
            did: call.did,
            call: call.name,
            label,
            submittedAtMs: directory.nowMs(),
          };
          return { ...known, state: "pending", reason: null, block: null };
        }),
    });
    return { directory, seen };
  }

  test("is given a registration once, however many send it at the same time", async () => {
    const { directory, seen } = await silent();
    const body = registerBodyOf(identityOf("chorus"), directory.nowMs());
    const replies = await Promise.all(
      Array.from({ length: 8 }, () => directory.ask("POST", "/register-did", body)),
    );
    expect(replies.map(({ status }) => status)).toEqual(Array(8).fill(202));
    expect(new Set(replies.map(({ body }) => body["tx_id"])).size).toBe(1);
    expect(seen.length).toBe(1);
  });

  test("is given a registration once, however often it is sent", async () => {
    const { directory, seen } = await silent();
    const body = registerBodyOf(identityOf("patient"), directory.nowMs());
    const [first, second] = [
      await directory.ask("POST", "/register-did", body),
      await directory.ask("POST", "/register-did", body),
    ];
    expect(second.body["tx_id"]).toBe(first.body["tx_id"]);
    expect(seen.length).toBe(1);
  });
});

test("a DID that was deleted and registered again is another life", async () => {
  const directory = await directoryOf();
  const identity = identityOf("phoenix");
  const resolve = async () => (await directory.ask("GET", `/resolve/${identity.did}`)).body;
  for (const life of [undefined, 1, 2]) {
    await directory.register(identity, { timestamp: `v2:0:${directory.nowMs() + 60_000}` });
    expect((await resolve())["life"]).toBe(life);
    const nonces = (await directory.ask("GET", `/dids/${identity.did}/nonces`)).body;
    const terms = termsAt(directory, { nonce: String(nonces["control_nonce"]) });
    const deletion = updateBodyOf(identity, "delete_did", {}, terms);
    await directory.settle(await directory.ask("DELETE", `/dids/${identity.did}`, deletion));
    expect((await resolve())["code"]).toBe("did_not_found");
    directory.advance(1_000);
  }
});

test("the limits are those that the Directory applies, with the block time that policies count in", async () => {
  const directory = await directoryOf({ blockTimeMs: 20, options: { unsigned_updates: "deny" } });
  const parse = compileShape(
    Type.Composite([
      limitsShape,
      Type.Required(Type.Omit(nodeLimitsShape, Type.KeyOf(limitsShape))),
    ]),
  );
  expect(parse(await directory.limits())).toMatchObject({
    block_time_ms: 20,
    max_clock_skew_seconds: 300,
    max_authorization_ahead_seconds: 3_600,
    unsigned_updates: "deny",
  });
});

describe("the worked vectors", () => {
  const timestamp = "2026-07-16T12:00:00Z";

  test("register their DID as they stand", async () => {
    const directory = await directoryOf();
    const { did } = vectorIdentity();
    const signature =
      "fJ9WFgMbg97QOBgI8kuDgjymv66HWVq3tAEcaew25dCHeFE3mqTkcPRODbU4Yln4+IwvZkEm1VJJ8kqo6PHDBg==";
    const root = "zGmaDrppBC7P5ARKV8g3djiwP89vz1jLK23V2GBjuAEGB";
    const body = { did, timestamp, signature, root_pubkey: root, did_document: { id: did } };
    expect((await directory.ask("POST", "/register-did", body)).status).toBe(202);
  });

  test("replace a document as they stand", async () => {
    const directory = await directoryOf({ startMs: Date.parse(timestamp) - 1_000 });
    const identity = vectorIdentity();
    await directory.register(identity, { did_document: { id: identity.did } });
    directory.advance(1_000);
    const blob = documentBlobOf(simpleDocument(identity), identity.did);
    const signature =
      "zup4ggIDpxrZ+yz5mttS46p/iX8cx8+RtQxUBkIeLk1j4EqG/Z+I7N4CXbxnx+zAOWinOyOZw7ZB8HL/3kD0Cw==";
    const body = { ...replaceBodyOf(identity, { timestamp, doc_blob: blob }), signature };
    const reply = await directory.ask("PUT", `/dids/${identity.did}/document/proof`, body);
    expect(reply.status).toBe(202);
    expect((await directory.settle(reply)).state).toBe("finalized");
  });
});
