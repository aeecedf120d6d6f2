/**
 * Keeps a state that calls have made on the kept runtime, so that the next one is tried on it: run
 * this before the runtime changes. Every map of the pallets has an entry: records with and without
 * an owner's links, names that their key determines, rotated keys, aliases that stand and that are
 * reserved, devices' counters, policies, deletions.
 *
 *   bun run before writes ../../runtime/chain/before/<spec version>.json, without the runtime's
 *   code
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { isFault } from "../../src/core/fault.ts";
import type { DeliveryPolicy } from "../../src/core/ledger/account.ts";
import type { Intent } from "../../src/core/ledger/actions.ts";
import type { LedgerCall } from "../../src/core/ledger/calls.ts";
import { encodeDidDocument } from "../../src/core/ledger/document-codec.ts";
import type { Ledger } from "../../src/storage/contract.ts";
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
import { endStand, type Node, openStore, startNode, until } from "./stand.ts";

export const beforeFolder = new URL("../../runtime/chain/before/", import.meta.url).pathname;

const codeKey = "0x3a636f6465";
const policy: DeliveryPolicy = {
  effectiveTtlBlocks: 14_400,
  maxMessageBytes: 1_048_576,
  cacheEligible: true,
  replication: 2,
  encryptedHeaderPreviewBytes: 256,
  releasePricing: null,
  expirationBehavior: "DeleteOnExpiry",
};

async function perform(ledger: Ledger, call: LedgerCall): Promise<void> {
  const outcome = await ledger.submit(call, call.name);
  if (isFault(outcome)) throw new Error(`${call.name}: ${outcome.code} ${outcome.detail}`);
  const state = await until(call.name, async () => {
    const found = (await ledger.submission(outcome.txHash))?.state;
    return found === "pending" || found === "in_block" || found === undefined ? null : found;
  });
  if (state !== "finalized") throw new Error(`${call.name} ended ${state}`);
}

async function makeCalls(ledger: Ledger): Promise<void> {
  const { genesisHash } = await ledger.proofs();
  const submitter = await ledger.operator();
  const expiry = () => Date.now() + 1_800_000;
  const register = (person: Identity, alias?: string) => {
    const proof = { timestamp: `v3:0:${expiry()}`, binding: { genesisHash, submitter } };
    return perform(
      ledger,
      registrationOf(person, alias === undefined ? proof : { ...proof, alias }),
    );
  };
  const change = ({ did, root }: Identity, intent: Intent, nonce: bigint) => {
    const terms = { nonce, validUntilMs: BigInt(expiry()), signerKeyId: "root" };
    return perform(ledger, authorizedCall({ ...intent, did }, terms, root, genesisHash));
  };
  const [team, certified] = [identityOf("before team"), certifiedOf("before own", genesisHash)];
  const [closed, gone] = [identityOf("before closed"), identityOf("before gone")];
  await register(team, "team");
  await register(certified);
  await register(closed);
  await register(gone, "gone");
  const { did } = team;
  await perform(ledger, { name: "set_delivery_policy", did, policy });
  await perform(ledger, { name: "set_tag_policy", did, policy });
  const links = { recipientPolicy: did, tagPolicies: [did], personaPolicies: [] };
  await perform(ledger, { name: "set_delivery_policy_links", did, ...links });
  await change(team, { did, action: "add_alias", alias: "office" }, 0n);
  await change(team, { did, action: "remove_alias", alias: "office" }, 1n);
  const own = certified.did;
  await change(certified, { did: own, action: "RemoveAuthentication", id: `${own}#k1` }, 0n);
  const next = keyOf("before own next");
  const rotation = { did: own, action: "UpdateRootPubkey", newRootPubkey: next.publicKey } as const;
  await change(certified, rotation, 0n);
  const docBlob = encodeDidDocument(documentOf(certified));
  const document = { timestamp: `v3:1:${expiry()}`, docBlob };
  await perform(ledger, setDocumentOf({ ...certified, root: next }, document, genesisHash));
  await change(closed, { did: closed.did, action: "deactivate_did" }, 0n);
  await change(gone, { did: gone.did, action: "delete_did" }, 0n);
}

/** Everything that is stored but the code, by key. */
async function stateOf(node: Node): Promise<Record<string, string>> {
  const state: Record<string, string> = {};
  const head = await node.ask<string>("chain_getFinalizedHead");
  for (let last: string | undefined; ; ) {
    const page = await node.ask<string[]>("state_getKeysPaged", ["0x", 256, last, head]);
    for (const key of page)
      if (key !== codeKey) state[key] = await node.ask<string>("state_getStorage", [key, head]);
    last = page.at(-1);
    if (page.length < 256) return state;
  }
}

if (import.meta.main) {
  const node = await startNode({ strict: true });
  const environment = { now: Date.now, log: () => {}, fatal: () => {} };
  const store = await openStore(environment, { endpoints: [node.endpoint] });
  try {
    await makeCalls(store.capabilities.ledger as Ledger);
    const { specVersion } = await node.ask<{ specVersion: number }>("state_getRuntimeVersion");
    const state = await stateOf(node);
    const sorted = Object.fromEntries(Object.entries(state).sort(([a], [b]) => (a < b ? -1 : 1)));
    mkdirSync(beforeFolder, { recursive: true });
    const file = `${beforeFolder}${specVersion}.json`;
    writeFileSync(file, `${JSON.stringify(sorted, null, 1)}\n`);
    console.log(`${file}: ${Object.keys(sorted).length} entries`);
  } finally {
    await store.close();
    await endStand();
  }
  // The connection to the node that is gone would be tried for ever.
  process.exit(0);
}
