/**
 * Limits of the reference runtime for calls that no one pays for: a DID makes sixteen calls with a
 * proof at once and one more for each hundred blocks, and four more that save or end it. A
 * Directory refuses calls beyond that, and a call that it has accepted waits for its block.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { encodeHex0x } from "../../src/core/codec/bytes.ts";
import { type Fault, isFault } from "../../src/core/fault.ts";
import type { DeliveryPolicy } from "../../src/core/ledger/account.ts";
import { actions, type Intent } from "../../src/core/ledger/actions.ts";
import { encodeExtrinsic } from "../../src/plugins/chain/layouts.ts";
import { readMetadata } from "../../src/plugins/chain/metadata.ts";
import type { RuntimeVersion } from "../../src/plugins/chain/rpc.ts";
import type { Ledger, Store, Submission } from "../../src/storage/contract.ts";
import {
  authorizedCall,
  type Identity,
  identityOf,
  keyOf,
  methodOf,
  registrationOf,
} from "../support/identity.ts";
import { endStand, makeBlock, type Node, openStore, startNode, until } from "./stand.ts";

const atOnce = 16;
const inReserve = 4;
const intervalBlocks = 100;

let node: Node;
let store: Store;
let ledger: Ledger;
/** Has made one call before the tests, so that the blocks of each count towards its next one. */
let early: Identity;
/** The block after that call. */
let earlyBlock: bigint;
beforeAll(async () => {
  node = await startNode({ manual: true });
  const environment = { now: Date.now, log: () => {}, fatal: () => {} };
  store = await openStore(environment, { endpoints: [node.endpoint], resend_ms: 500 });
  ledger = store.capabilities.ledger as Ledger;
  early = await registered();
  await spend(early, 0, 1);
  earlyBlock = (await ledger.head()).finalized.number;
});
afterAll(async () => {
  await store.close();
  await endStand();
});

async function submit(person: Identity, intent: Intent): Promise<Submission | Fault> {
  const { counters } = await ledger.account(person.did);
  const nonce = counters[actions[intent.action].counter];
  const terms = { nonce, validUntilMs: BigInt(Date.now() + 3_000_000), signerKeyId: "root" };
  return ledger.submit(authorizedCall(intent, terms, person.root), intent.action);
}

/** In the block that is made as soon as the node has the call. */
async function end(outcome: Submission | Fault): Promise<string> {
  if (isFault(outcome)) throw new Error(`${outcome.code} ${outcome.detail}`);
  return until("the call to end", async () => {
    if ((await node.ask<string[]>("author_pendingExtrinsics")).length > 0) await makeBlock(node);
    const { state } = (await ledger.submission(outcome.txHash)) as Submission;
    return state === "pending" || state === "in_block" ? null : state;
  });
}

async function headSeen(): Promise<void> {
  const hash = await node.ask<string>("chain_getFinalizedHead");
  await until(
    "the driver to see the head",
    async () => (await ledger.head()).finalized.hash === hash,
  );
}

async function registered(): Promise<Identity> {
  const person = identityOf(crypto.randomUUID());
  const call = registrationOf(person, { timestamp: String(Date.now()) });
  expect(await end(await ledger.submit(call, "register"))).toBe("finalized");
  return person;
}

const policyOf = (n: number): DeliveryPolicy => ({
  effectiveTtlBlocks: 14_400,
  maxMessageBytes: 1_000 + n,
  cacheEligible: true,
  replication: null,
  encryptedHeaderPreviewBytes: null,
  releasePricing: null,
  expirationBehavior: null,
});

const change = ({ did }: Identity, n: number): Intent => {
  const id = `${did}#s`;
  const service = { id, type: "T", serviceEndpoint: ["u"], authorization: null, priority: null };
  return n % 2 === 0
    ? { did, action: "AddService", service }
    : { did, action: "RemoveService", id };
};

async function spend(person: Identity, from: number, to: number): Promise<void> {
  for (let n = from; n < to; n++)
    expect(await end(await submit(person, change(person, n)))).toBe("finalized");
}

describe("calls with a proof", () => {
  test("beyond the allowance wait for it, except rotations and deletion", async () => {
    const person = await registered();
    await spend(person, 0, atOnce);
    const waiting = await submit(person, change(person, 0));
    const newRootPubkey = keyOf("limit 0").publicKey;
    const rotated = await submit(person, {
      did: person.did,
      action: "UpdateRootPubkey",
      newRootPubkey,
    });
    expect(await end(rotated)).toBe("finalized");
    if (isFault(waiting)) throw new Error("a call beyond the allowance was refused");
    expect((await ledger.submission(waiting.txHash))?.state).toBe("pending");
  });

  test("that a stranger sends to the node itself fill no blocks", async () => {
    const person = await registered();
    const outsider = await stranger(node);
    let taken = 0;
    let refusal = "";
    while (refusal === "" && taken < 3 * atOnce) {
      refusal = await outsider(person, change(person, taken), BigInt(taken));
      if (refusal === "") taken++;
    }
    expect([taken, refusal]).toEqual([atOnce, "custom 52"]);
    let root = person.root;
    for (let n = 0; n < inReserve; n++) {
      const next = keyOf(`${person.did} ${n}`);
      const intent: Intent = {
        did: person.did,
        action: "UpdateRootPubkey",
        newRootPubkey: next.publicKey,
      };
      expect(await outsider({ ...person, root }, intent, BigInt(n))).toBe("");
      root = next;
    }
    const end: Intent = { did: person.did, action: "delete_did" };
    expect(await outsider({ ...person, root }, end, 0n)).toBe("custom 52");
  });

  test("that two submit for the last place: one enters a block, the other waits and does not fail", async () => {
    const person = early;
    const { did } = person;
    await spend(person, 1, atOnce - 1);
    await headSeen();
    const verificationMethod = methodOf(did, "second", keyOf("second"));
    const taken = await Promise.all([
      submit(person, { did, action: "add_alias", alias: `limit-${crypto.randomUUID()}` }),
      submit(person, { did, action: "AddVerificationMethod", verificationMethod }),
    ]);
    const hashes = taken.map((outcome) => {
      if (isFault(outcome)) throw new Error(outcome.detail);
      return outcome.txHash;
    });
    const states = async () =>
      (await Promise.all(hashes.map((hash) => ledger.submission(hash))))
        .map((one) => one?.state)
        .sort();
    await until("one of them to be final", async () => {
      await makeBlock(node);
      await Bun.sleep(50);
      return (await states()).includes("finalized");
    });
    for (let n = 0; n < 5; n++) {
      await makeBlock(node);
      await Bun.sleep(100);
    }
    expect(await states()).toEqual(["finalized", "pending"]);
    // Each head is waited for: a driver leaves a node whose head leaps by more than 16 blocks.
    const { number } = await node.ask<{ number: string }>("chain_getHeader");
    for (let at = BigInt(number); at < earlyBlock + BigInt(intervalBlocks); at++) {
      await makeBlock(node);
      if (at % 8n === 0n) await headSeen();
    }
    // The driver sends it again in its own time, and no block comes before.
    await until("the other to be final", async () => {
      if ((await node.ask<string[]>("author_pendingExtrinsics")).length > 0) await makeBlock(node);
      return (await states()).join() === "finalized,finalized";
    });
    const ends = await Promise.all(hashes.map((hash) => ledger.submission(hash)));
    expect(ends.map((one) => one?.state)).toEqual(["finalized", "finalized"]);
    const last = Math.max(...ends.map((one) => Number(one?.block?.number)));
    expect(last - Number(earlyBlock)).toBeWithin(intervalBlocks - 1, intervalBlocks + 16);
  });
});

test("two policies of one DID in one block are both finalized, and the later one stands", async () => {
  const { did } = await registered();
  const policies = [policyOf(1), policyOf(2)];
  const outcomes: (Submission | Fault)[] = [];
  for (const policy of policies)
    outcomes.push(await ledger.submit({ name: "set_delivery_policy", did, policy }, "policy"));
  await until(
    "both to wait",
    async () => (await node.ask<string[]>("author_pendingExtrinsics")).length === 2,
  );
  await makeBlock(node);
  for (const outcome of outcomes) expect(await end(outcome)).toBe("finalized");
  const blocks = outcomes.map(
    async (one) => (await ledger.submission((one as Submission).txHash))?.block?.hash,
  );
  expect(new Set(await Promise.all(blocks)).size).toBe(1);
  expect(await ledger.policy("recipient", did)).toEqual(policies[1] as DeliveryPolicy);
});

/**
 * Sends a call past every Directory, and makes a block of it: why the node refuses it, or an empty
 * text.
 */
async function stranger(to: Node) {
  const version = await to.ask<RuntimeVersion>("state_getRuntimeVersion");
  const genesis = Uint8Array.fromHex((await to.ask<string>("chain_getBlockHash", [0])).slice(2));
  const metadata = readMetadata(await to.ask<`0x${string}`>("state_getMetadata"), {
    version,
    genesis,
  });
  if (Array.isArray(metadata)) throw new Error(metadata.join());
  const { frame } = metadata;
  return async (person: Identity, intent: Intent, nonce: bigint): Promise<string> => {
    const terms = { nonce, validUntilMs: BigInt(Date.now() + 3_000_000), signerKeyId: "root" };
    const call = authorizedCall(intent, terms, person.root);
    const { number } = await to.ask<{ number: string }>("chain_getHeader");
    const birthHash = Uint8Array.fromHex((await to.ask<string>("chain_getBlockHash")).slice(2));
    const era = { birth: BigInt(number), birthHash, periodBlocks: 64 };
    const key = { ...person.root, scheme: 0 as const };
    const { extrinsic } = encodeExtrinsic(call, { era, nonce: null, tip: 0n }, { frame, key });
    const answer = await to
      .ask<string>("author_submitExtrinsic", [encodeHex0x(extrinsic)])
      .then(() => "", String);
    if (answer === "") await makeBlock(to);
    return /"custom":(\d+)/.exec(answer)?.[0].replace(/"custom":/, "custom ") ?? answer;
  };
}
