/**
 * Self-certifying identities on the stage: they sign in version 3, which the stage's own identities
 * don't.
 */

import { isFault } from "../../../src/core/fault.ts";
import { actions } from "../../../src/core/ledger/actions.ts";
import type { LedgerCall } from "../../../src/core/ledger/calls.ts";
import { documentBlobOf, type TestDirectory } from "../../support/directory.ts";
import {
  authorizedCall,
  certifiedOf,
  type Identity,
  keyOf,
  registrationOf,
} from "../../support/identity.ts";
import { richDocument } from "./stage.ts";

/** Submits a call past the routes, and waits until it is settled. */
async function submit({ ledger, settle }: TestDirectory, call: LedgerCall): Promise<void> {
  const submission = await ledger.submit(call, "test");
  if (isFault(submission)) throw new Error(submission.detail);
  const reply = { status: 202, body: { tx_hash: submission.txHash }, headers: new Headers() };
  const { state } = await settle(reply);
  if (state !== "finalized") throw new Error(`the call is ${state}`);
}

/** A registered identity of the self-certifying form. */
export async function certified(directory: TestDirectory, label: string): Promise<Identity> {
  const { genesisHash } = await directory.ledger.proofs();
  const identity = certifiedOf(label, genesisHash);
  const binding = { genesisHash, submitter: await directory.ledger.operator() };
  const docBlob = documentBlobOf(richDocument(identity), identity.did);
  await submit(
    directory,
    registrationOf(identity, { timestamp: `v3:0:${directory.nowMs() + 60_000}`, docBlob, binding }),
  );
  return identity;
}

/**
 * The same with a new root key and no document since, so that only a whole document is accepted.
 */
export async function rotated(directory: TestDirectory, label: string): Promise<Identity> {
  const identity = await certified(directory, label);
  const { genesisHash } = await directory.ledger.proofs();
  const next = keyOf(`${label} next`);
  const intent = {
    action: "UpdateRootPubkey",
    did: identity.did,
    newRootPubkey: next.publicKey,
  } as const;
  const { counters } = await directory.ledger.account(identity.did);
  const nonce = counters[actions[intent.action].counter];
  const terms = { nonce, validUntilMs: BigInt(directory.nowMs() + 60_000), signerKeyId: "root" };
  await submit(directory, authorizedCall(intent, terms, identity.root, genesisHash));
  return { ...identity, root: next };
}

let count = 0;
/** A label that no other scenario has. */
export const freshLabel = (): string => `certified ${count++}`;
