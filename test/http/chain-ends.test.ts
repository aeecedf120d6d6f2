/** How the calls of blocks end, by what a node shows that the test holds up at will. */
import { describe, expect, spyOn, test } from "bun:test";
import { compactAddLength } from "@polkadot/util";
import { encodeHex0x } from "../../src/core/codec/bytes.ts";
import { encodeWith } from "../../src/core/codec/scale.ts";
import { isFault } from "../../src/core/fault.ts";
import { emptyAccount, recordCodec } from "../../src/core/ledger/account.ts";
import { encodeLedgerCall } from "../../src/core/ledger/calls.ts";
import { Endpoints } from "../../src/plugins/chain/endpoints.ts";
import { fingerprintOf } from "../../src/plugins/chain/layouts.ts";
import { ChainOutbox } from "../../src/plugins/chain/outbox.ts";
import { ChainReader } from "../../src/plugins/chain/reader.ts";
import { Rpc, systemHost } from "../../src/plugins/chain/rpc.ts";
import type { Common } from "../../src/plugins/chain/session.ts";
import { Submissions } from "../../src/plugins/chain/submissions.ts";
import { chainPlugin } from "../../src/plugins/load.ts";
import { MemoryTable } from "../../src/plugins/memory/table.ts";
import type { Submission } from "../../src/storage/contract.ts";
import { optionsOf } from "../conformance/options.ts";
import { identityOf, keyOf, registrationOf, setDocumentOf } from "../support/identity.ts";
import { pause } from "../support/wait.ts";
import { World } from "../support/world.ts";
import { type Asked, blockHash, closedAfterEach, type FakeNode } from "./chain-node.ts";

const { opened, fakeNode } = closedAfterEach();
const operator = new Uint8Array(32).fill(1);
const registration = (n: number) =>
  registrationOf(identityOf(`ending ${n}`), { timestamp: "1700000000000" });
const hashOf = (n: number) => blockHash(1_000 + n);

/** A question about an account with all its counters; others are shorter. */
const isOfAccount = ({ method, params }: Asked): boolean =>
  method === "state_queryStorageAt" && (params[0] as readonly string[]).length > 6;

/** Submissions with so many registrations in their outbox, all of them in one block. */
async function withCalls(node: FakeNode, count: number, block = 3) {
  const outbox = new ChainOutbox(new MemoryTable(1 << 24), 1_000n);
  const extrinsics: string[] = [];
  for (let nonce = 0; nonce < count; nonce++) {
    const call = registration(nonce);
    // Signed by an account, of a call whose name alone is read.
    const called = encodeLedgerCall(call).slice(0, 2);
    const extrinsic = compactAddLength(
      Uint8Array.of(0x84, ...new Uint8Array(33 + 65 + 1), nonce << 2, 0, 0, ...called),
    );
    const fingerprint = fingerprintOf({ call: called, submitter: new Uint8Array(32), nonce });
    extrinsics.push(encodeHex0x(extrinsic));
    const about = { did: call.did, call: call.name, label: "x", submittedAtMs: 0 };
    const submission: Submission = {
      ...about,
      txHash: hashOf(nonce),
      state: "pending",
      reason: null,
      block: null,
    };
    const signed = { extrinsic, fingerprint, nonce, birth: 0n, death: 64n };
    await outbox.keep({ sequence: BigInt(nonce), call, submission, signed });
  }
  node.blocks.set(block, extrinsics);
  const given = {
    endpoints: [node.endpoint],
    operator_key_file: "key",
    outbox: "outbox",
    block_time_ms: 10,
  };
  const common: Common = {
    settings: optionsOf(chainPlugin, { ...given, request_timeout_ms: 10_000 }),
    key: { publicKey: operator, scheme: 1, sign: keyOf("operator").sign },
    host: systemHost(Date.now),
    log: () => {},
    runtimes: new Map(),
    connect: Rpc.open,
  };
  const events = { onSession: () => submissions.resume(), onHead: () => submissions.follow() };
  const endpoints = new Endpoints({ ...common, genesis: null, anchor: null }, events);
  const submissions = new Submissions({
    ...common,
    endpoints,
    reader: new ChainReader(endpoints),
    outbox,
  });
  submissions.start();
  endpoints.start();
  opened.push({ close: () => endpoints.close().then(() => submissions.close()) });
  await endpoints.tried();
  return { endpoints, submissions, outbox };
}

async function until(what: string, isSo: () => boolean): Promise<void> {
  for (const end = Date.now() + 30_000; Date.now() < end; await Bun.sleep(2)) if (isSo()) return;
  throw new Error(`waited too long for ${what}`);
}

async function ended(submissions: Submissions, n: number): Promise<Submission | null> {
  await until("an end", () => submissions.submission(hashOf(n))?.state !== "pending");
  return submissions.submission(hashOf(n));
}

describe("the calls of a block", () => {
  test("end a few at a time, and each of them", async () => {
    const node = fakeNode();
    let [asked, most, all] = [0, 0, 0];
    let isAnswering = false;
    node.answer = async (question) => {
      if (!isOfAccount(question)) return null;
      most = Math.max(most, ++asked);
      all++;
      // Answered when as many wait as may, or when there are no more, and not before a further one
      // would have come.
      await until("the others", () => asked >= 16 || all === 40 || isAnswering);
      isAnswering = true;
      await pause(10, "more than 16 would be asked at once");
      isAnswering = --asked > 0;
      return null;
    };
    const { submissions } = await withCalls(node, 40);
    for (let n = 0; n < 40; n++) expect((await ended(submissions, n))?.state).toBe("failed");
    expect(most).toBe(16);
  });

  test("are not accepted again while later blocks are read, by a state from before", async () => {
    const call = registration(0);
    const world = new World(1_800_000_000_000);
    world.operator = operator;
    world.apply(call);
    const record = encodeHex0x(encodeWith(recordCodec, world.record(call.did)));
    const node = fakeNode();
    node.head = 2;
    const [state, block] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    let reads = 0;
    node.answer = async (question) => {
      const { id, method, params } = question;
      if (method === "chain_getBlock" && node.seen.get(method) === 4) await block.promise;
      if (!isOfAccount(question)) return null;
      if (params[1] === blockHash(2)) {
        reads++;
        await state.promise;
        return null;
      }
      const changes = (params[0] as readonly string[]).map((key, index) => [
        key,
        index === 0 ? record : null,
      ]);
      return { frame: JSON.stringify({ id, result: [{ block: params[1], changes }] }) };
    };
    const { submissions } = await withCalls(node, 1);
    await until("the first blocks", () => node.seen.get("chain_getBlock") === 2);
    const again = submissions.submit({ ...call, alias: null }, "x");
    await until("the question", () => reads === 1);
    node.head = 4;
    expect((await ended(submissions, 0))?.state).toBe("finalized");
    state.resolve();
    const answer = await again;
    expect(isFault(answer) && answer.code).toBe("did_already_registered");
    block.resolve();
  });

  test.each([false, true])(
    "that nothing shows were refused, unless the state after it is gone: %p",
    async (isGone) => {
      const node = fakeNode();
      let head: unknown;
      node.answer = ({ id, method, params }) => {
        if (!isGone || method !== "state_queryStorageAt") return null;
        head ??= params[1];
        const error = { code: 4003, message: "State already discarded" };
        return params[1] === head ? null : { frame: JSON.stringify({ id, error }) };
      };
      const { submissions } = await withCalls(node, 1);
      const { reason } = (await ended(submissions, 0)) as Submission;
      expect(reason?.detail).toContain(isGone ? "the record shows it" : "deposit");
    },
  );

  test("show a document of version 1 by its time, when a later call of the block has changed it", async () => {
    const { endpoints } = await withCalls(fakeNode(), 1);
    const { head } = endpoints.session();
    const call = setDocumentOf(identityOf("ending 0"), {
      timestamp: "1700000000000",
      docBlob: new Uint8Array(3),
    });
    const shown = [1_700_000_000_000n, 1_700_000_000_001n].map((documentTimeMs) => {
      const account = { ...emptyAccount, documentTimeMs };
      const facts = { head, account, holders: new Map(), reserves: null };
      return new ChainReader(endpoints).showsEffect(call, facts, operator);
    });
    expect(await Promise.all(shown)).toEqual([true, false]);
  });
});

test("calls that a node refuses are signed again with few commits", async () => {
  const node = fakeNode();
  node.head = 20;
  const error = { code: 1010, message: "Inability to pay some fees" };
  node.answer = ({ id, method }) =>
    method === "author_submitExtrinsic" ? { frame: JSON.stringify({ id, error }) } : null;
  const calls = 40;
  const { outbox, submissions } = await withCalls(node, calls, 99);
  const waiting = Reflect.get(submissions, "toSign") as { readonly size: number };
  const replace = outbox.replace.bind(outbox);
  const replaced = new Set<bigint>();
  let [writing, commits] = [0, 0];
  spyOn(outbox, "replace").mockImplementation(async (entry) => {
    if (writing++ === 0 && replaced.size < calls) commits++;
    // The first commit lasts until all others were refused too, however slow the machine is.
    if (commits === 1) await until("the others", () => writing + waiting.size === calls);
    await replace(entry);
    writing--;
    replaced.add(entry.sequence);
  });
  await until("new signatures", () => outbox.pending().every(({ signed }) => signed.death > 64n));
  expect(commits).toBeLessThanOrEqual(2);
});
