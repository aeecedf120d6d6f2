/**
 * The clients of the virtual world: they hand calls to the driver until it takes them, wait for
 * their ends, and look whether a DID that was confirmed is there, and proven when it is
 * self-certifying.
 */
import { verifyEd25519 } from "../../src/core/codec/crypto.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { isFault } from "../../src/core/fault.ts";
import type { LedgerCall } from "../../src/core/ledger/calls.ts";
import { encodeDidDocument } from "../../src/core/ledger/document-codec.ts";
import { decodeKeyProof, replayKeyProof } from "../../src/core/ledger/key-proof.ts";
import type { OpenLedger } from "../../src/plugins/chain/driver.ts";
import type { OperatorKey } from "../../src/plugins/chain/layouts.ts";
import { StoreError } from "../../src/storage/contract.ts";
import {
  authorizedCall,
  certifiedOf,
  documentOf,
  type Identity,
  identityOf,
  keyOf,
  registrationOf,
  setDocumentOf,
} from "../support/identity.ts";
import type { Chance, VirtualTime } from "./virtual-time.ts";
import type { Call, VerdictParts } from "./virtual-verdict.ts";

const minuteMs = 60_000;

export type World = VerdictParts & {
  readonly time: VirtualTime;
  readonly chance: Chance;
  readonly key: OperatorKey;
  /** Between these times since the beginning, clients hand over their first call. */
  readonly callsFromMs: number;
  readonly callsUntilMs: number;
  driver: OpenLedger | null;
};

const firstCallMs = ({ chance, callsFromMs, callsUntilMs }: World): number =>
  callsFromMs + chance.below(callsUntilMs - callsFromMs);

/** Registers a DID; then, for some, an alias with a proof, or a primary alias by the operator. */
export async function client(world: World, label: string): Promise<void> {
  const { time, chance } = world;
  await time.sleep(firstCallMs(world));
  const identity = identityOf(label);
  const done = await perform(world, identity, registration(identity));
  if (done.state !== "finalized") return;
  if (chance.likely(0.15)) {
    const alias = `${label.replaceAll(" ", "-")}`;
    const terms = {
      nonce: 0n,
      validUntilMs: BigInt(time.nowMs + 24 * 3_600_000),
      signerKeyId: "root",
    };
    await perform(
      world,
      identity,
      authorizedCall({ did: identity.did, action: "add_alias", alias }, terms, identity.root),
    );
  } else if (chance.likely(0.1)) {
    await perform(world, identity, {
      name: "set_alias",
      did: identity.did,
      alias: `p-${label.replaceAll(" ", "-")}`,
    });
  }
  await checkPresence(world, identity);
}

/**
 * Registers a self-certifying DID, changes its document and its root key, and looks at its proof
 * after each change.
 */
export async function namedClient(world: World, label: string): Promise<void> {
  const { time, chain, key } = world;
  await time.sleep(firstCallMs(world));
  const genesisHash = Uint8Array.fromHex(chain.genesis.hash.slice(2));
  const expiry = () => time.nowMs + 55 * minuteMs;
  let identity = certifiedOf(label, genesisHash);
  const { did } = identity;
  const binding = { genesisHash, submitter: key.publicKey };
  const registered = registrationOf(identity, { timestamp: `v3:0:${expiry()}`, binding });
  if ((await perform(world, identity, registered)).state !== "finalized") return;
  await checkProof(world, did);
  const documents = { nonce: 0n };
  const end = (nonce: bigint) => ({ nonce, validUntilMs: BigInt(expiry()), signerKeyId: "root" });
  const replaced = () => {
    const given = {
      timestamp: `v3:${documents.nonce}:${expiry()}`,
      docBlob: encodeDidDocument(documentOf(identity)),
    };
    return setDocumentOf(identity, given, genesisHash);
  };
  const removed = () => {
    const intent = { did, action: "RemoveAuthentication", id: `${did}#k1` } as const;
    return authorizedCall(intent, end(documents.nonce), identity.root, genesisHash);
  };
  for (const change of [removed, replaced, removed]) {
    const { state } = await perform(world, identity, change());
    if (state !== "finalized") return;
    documents.nonce++;
    await checkProof(world, did);
  }
  const next = keyOf(`${label} next`);
  const rotation = { did, action: "UpdateRootPubkey", newRootPubkey: next.publicKey } as const;
  const rotated = authorizedCall(rotation, end(0n), identity.root, genesisHash);
  if ((await perform(world, identity, rotated)).state !== "finalized") return;
  identity = { ...identity, root: next };
  await checkProof(world, did);
  await perform(world, identity, replaced());
  for (let n = 0; n < 3; n++) await checkProof(world, did);
}

/** At the proofs of all, when nothing happens any more. */
export async function lookAgain(world: World): Promise<void> {
  const dids = new Set(
    world.calls.filter(({ state }) => state === "finalized").map(({ call }) => call.did),
  );
  const { unproven } = world;
  let left = dids.size;
  for (const did of dids) void checkProof(world, did).then(() => left--);
  await world.time.run(world.time.nowMs + 10 * minuteMs, () => left === 0);
  world.unprovenAtEnd = world.unproven - unproven;
}

/** The proof leads to the record, of which there is one at any time. */
async function checkProof(world: World, did: Did): Promise<void> {
  await world.time.sleep(world.chance.between(10_000, 5 * minuteMs));
  const { driver } = world;
  if (driver === null) return;
  const answers = Promise.all([driver.ledger.keyProof(did), driver.ledger.account(did)]);
  const [bytes, account] = (await patient(world, answers)) ?? [null, null];
  if (account === null) return;
  const proof = bytes === null ? null : decodeKeyProof(bytes);
  const state = proof === null ? null : replayKeyProof(proof);
  if (state === null) world.unproven++;
  else world.proven++;
  const { rootPubkey = null, document = null } = account.record ?? {};
  const isRight = Bun.deepEquals([state?.rootKeys.at(-1), state?.document], [rootPubkey, document]);
  const holds = state?.signatures.every((one) =>
    verifyEd25519(one.signature, one.message, one.publicKey),
  );
  if (state !== null && !(isRight && holds)) world.falselyMissing++;
}

const registrations = new Map<string, LedgerCall>();

/** Signed once for all schedules that have the same label. */
function registration(identity: Identity): LedgerCall {
  const known = registrations.get(identity.label);
  if (known !== undefined) return known;
  const call = registrationOf(identity, { timestamp: "1800000000000" });
  registrations.set(identity.label, call);
  return call;
}

async function perform(world: World, identity: Identity, call: LedgerCall): Promise<Call> {
  const { time, chance } = world;
  const one: Call = {
    call,
    identity,
    txHash: null,
    state: null,
    reason: "",
    acceptedMs: 0,
    endedMs: 0,
  };
  world.calls.push(one);
  let attempts = 0;
  while (one.txHash === null) {
    const { driver } = world;
    const outcome =
      driver === null ? null : await patient(world, driver.ledger.submit(call, "virtual"));
    if (outcome === null) attempts += driver === null ? 0 : 1;
    else if (isFault(outcome)) {
      // An attempt without an answer may have been taken: then the second one meets it.
      if (attempts === 0) {
        world.refused++;
        world.notes.push(`refused ${call.name}: ${outcome.code} ${outcome.detail}`);
      }
      return one;
    } else one.txHash = outcome.txHash;
    if (one.txHash === null) await time.sleep(chance.between(1_000, 10_000));
  }
  one.acceptedMs = time.nowMs;
  for (;;) {
    await time.sleep(chance.between(5_000, 15_000));
    const submission = await world.driver?.ledger.submission(one.txHash);
    if (submission === null) world.notes.push(`${call.name} of ${call.did} is unknown`);
    if (submission == null || submission.state === "pending" || submission.state === "in_block")
      continue;
    one.endedMs = time.nowMs;
    one.state = submission.state;
    one.reason = submission.reason?.detail ?? "";
    return one;
  }
}

/**
 * `null` for no answer within a minute, as when the process dies, and for a store that is
 * unavailable.
 */
async function patient<T>(world: World, work: Promise<T>): Promise<T | null> {
  const answer = work.catch((error: unknown) => {
    if (error instanceof StoreError && error.code === "unavailable") return null;
    throw error;
  });
  return Promise.race([answer, world.time.sleep(minuteMs).then(() => null)]);
}

async function checkPresence(world: World, { did }: Identity): Promise<void> {
  for (let n = 0; n < 3; n++) {
    await world.time.sleep(world.chance.between(10_000, 5 * minuteMs));
    const { driver } = world;
    const account = driver === null ? null : await patient(world, driver.ledger.account(did));
    if (account !== null && account.record === null) world.falselyMissing++;
  }
}
