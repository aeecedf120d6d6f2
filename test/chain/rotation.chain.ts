/**
 * A Directory with another operator key, which is another account. It continues on the same outbox
 * once the calls of the former account have ended; the records and deposits of the former account
 * stay its own until it gives them away.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { Keyring, WsProvider } from "@polkadot/api";
import { cryptoWaitReady } from "@polkadot/util-crypto";
import { concatBytes } from "../../src/core/codec/bytes.ts";
import { blake2b128 } from "../../src/core/codec/crypto.ts";
import { isFault } from "../../src/core/fault.ts";
import type { Intent } from "../../src/core/ledger/actions.ts";
import type { LedgerCall } from "../../src/core/ledger/calls.ts";
import type { Ledger, Store, Submission } from "../../src/storage/contract.ts";
import { authorizedCall, type Identity, identityOf, registrationOf } from "../support/identity.ts";
import { apiOver } from "./api.ts";
import {
  endStand,
  freshPath,
  makeBlock,
  type Node,
  openStore,
  operatorKeyFile,
  startNode,
  until,
} from "./stand.ts";

const outbox = freshPath("rotation");
const formerFile = operatorKeyFile;
const nextFile = `${operatorKeyFile}-next`;
const environment = { now: Date.now, log: () => {}, fatal: () => {} };

let node: Node;
let store: Store | null = null;
let accounts: { readonly former: Uint8Array; readonly next: Uint8Array };

async function open(operator_key_file: string): Promise<Ledger> {
  await store?.close();
  store = null;
  const settings = { endpoints: [node.endpoint], outbox, operator_key_file, resend_ms: 500 };
  store = await openStore(environment, settings);
  return store.capabilities.ledger as Ledger;
}

beforeAll(async () => {
  node = await startNode({ manual: true, strict: true });
  await cryptoWaitReady();
  const keys = new Keyring({ type: "sr25519" });
  accounts = {
    former: keys.addFromUri("//Alice").publicKey,
    next: keys.addFromUri("//Bob").publicKey,
  };
  // The first opening makes the folder of the keys.
  await open(formerFile);
  writeFileSync(nextFile, "//Bob\n", { mode: 0o600 });
});
afterAll(async () => {
  await store?.close();
  await endStand();
});

async function genesisHash(): Promise<Uint8Array> {
  return Uint8Array.fromHex((await node.ask<string>("chain_getBlockHash", [0])).slice(2));
}

async function register(
  ledger: Ledger,
  person: Identity,
  submitter: Uint8Array,
): Promise<Submission> {
  const binding = { genesisHash: await genesisHash(), submitter };
  const timestamp = `v3:0:${Date.now() + 1_800_000}`;
  return taken(ledger, registrationOf(person, { timestamp, binding }));
}

async function taken(ledger: Ledger, call: LedgerCall): Promise<Submission> {
  const outcome = await ledger.submit(call, call.name);
  if (isFault(outcome)) throw new Error(`${outcome.code} ${outcome.detail}`);
  return outcome;
}

async function byProof({ did, root }: Identity, intent: Intent): Promise<LedgerCall> {
  const terms = { nonce: 0n, validUntilMs: BigInt(Date.now() + 1_800_000), signerKeyId: "root" };
  return authorizedCall({ ...intent, did }, terms, root, await genesisHash());
}

/** Makes blocks until it has ended. */
async function end(ledger: Ledger, { txHash }: Submission): Promise<string> {
  return until("the call to end", async () => {
    await makeBlock(node);
    await Bun.sleep(50);
    const submission = await ledger.submission(txHash);
    return submission === null || submission.state === "pending" || submission.state === "in_block"
      ? null
      : submission.state;
  });
}

/** What the chain holds of an account's money, in the head's state. */
async function held(account: Uint8Array): Promise<bigint> {
  const prefix = "0x26aa394eea5630e07c48ae0c9558cef7b99d880ec681799c0cf30e8886371da9";
  const key = `${prefix}${concatBytes(blake2b128(account), account).toHex()}`;
  const value = Uint8Array.fromHex((await node.ask<string>("state_getStorage", [key])).slice(2));
  // Four counters of 32 bits and the free balance stand before it.
  return new DataView(value.buffer).getBigUint64(32, true);
}

describe("a Directory with another key", () => {
  const first = identityOf(`rotation ${crypto.randomUUID()}`);
  const second = identityOf(`rotation ${crypto.randomUUID()}`);
  let waiting: Submission;

  test("does not start while a call of the former account has not ended", async () => {
    const ledger = await open(formerFile);
    expect(await end(ledger, await register(ledger, first, accounts.former))).toBe("finalized");
    waiting = await register(ledger, second, accounts.former);
    await expect(open(nextFile)).rejects.toThrow(
      /1 calls that the account 5Grw\w+ signed have not ended/,
    );
    const again = await open(formerFile);
    expect(await end(again, waiting)).toBe("finalized");
  });

  test("then goes on: it registers from the new account, and knows what ended before", async () => {
    const ledger = await open(nextFile);
    expect(await ledger.operator()).toEqual(accounts.next);
    expect((await ledger.submission(waiting.txHash))?.state).toBe("finalized");
    const third = identityOf(`rotation ${crypto.randomUUID()}`);
    const before = { former: await held(accounts.former), next: await held(accounts.next) };
    const forFormer = register(ledger, third, accounts.former);
    await expect(forFormer).rejects.toThrow(/signature/);
    expect(await end(ledger, await register(ledger, third, accounts.next))).toBe("finalized");
    expect((await ledger.account(third.did)).record?.owner).toEqual(accounts.next);
    expect(before.former).toBeGreaterThan(0n);
    expect(await held(accounts.former)).toBe(before.former);
    // The same deposit for each record.
    expect(2n * ((await held(accounts.next)) - before.next)).toBe(before.former);
  });

  test("changes a DID of the former account by the DID's own proofs, and by no call of an account", async () => {
    const ledger = await open(nextFile);
    const alias = `rotation-${crypto.randomUUID()}`;
    const refused = await ledger.submit({ name: "set_alias", did: first.did, alias }, "set_alias");
    expect(isFault(refused) && refused.detail).toBe(
      "the DID belongs to another account than this Directory's",
    );
    const added = await byProof(first, { did: first.did, action: "add_alias", alias });
    expect(await end(ledger, await taken(ledger, added))).toBe("finalized");
    expect((await ledger.account(first.did)).record?.owner).toEqual(accounts.former);
  });

  test("gives the deposit of such a DID back to the former account when the DID is deleted", async () => {
    const ledger = await open(nextFile);
    const before = { former: await held(accounts.former), next: await held(accounts.next) };
    const deletion = await byProof(second, { did: second.did, action: "delete_did" });
    expect(await end(ledger, await taken(ledger, deletion))).toBe("finalized");
    expect((await ledger.account(second.did)).record).toBeNull();
    expect(2n * (await held(accounts.former))).toBe(before.former);
    expect(await held(accounts.next)).toBe(before.next);
  });

  test("owns such a DID once the former account has given it away, and its deposit with it", async () => {
    const ledger = await open(nextFile);
    const { did } = first;
    const before = { former: await held(accounts.former), next: await held(accounts.next) };
    const api = await apiOver(new WsProvider(node.endpoint));
    const former = new Keyring({ type: "sr25519" }).addFromUri("//Alice");
    const gift = api.tx["didRegistry"]?.["changeOwner"]?.(did, accounts.next);
    await node.ask("author_submitExtrinsic", [
      (await gift?.signAsync(former, { era: 0 }))?.toHex(),
    ]);
    await api.disconnect();
    await makeBlock(node);
    expect(await held(accounts.former)).toBe(0n);
    expect(await held(accounts.next)).toBe(before.next + before.former);
    await until("the driver to see it", async () => {
      return (await ledger.account(did)).record?.owner?.toHex() === accounts.next.toHex();
    });
    const links = { recipientPolicy: did, tagPolicies: [], personaPolicies: [] };
    const set = await taken(ledger, { name: "set_delivery_policy_links", did, ...links });
    expect(await end(ledger, set)).toBe("finalized");
  });
});
