/**
 * Alice, whose DID most ledger tests are about: a world in which she is registered, her components,
 * and the calls that she signs.
 */

import type { Service, VerificationMethod } from "../../src/core/ledger/account.ts";
import { actions, type Intent } from "../../src/core/ledger/actions.ts";
import type { LedgerCall } from "../../src/core/ledger/calls.ts";
import { isRefusal } from "../../src/core/ledger/refusals.ts";
import {
  authorizedCall,
  identityOf,
  type KeyPair,
  keyOf,
  methodOf,
  registrationOf,
} from "./identity.ts";
import { World } from "./world.ts";

export const alice = identityOf("alice");
export const bob = identityOf("bob");
export const { did } = alice;
export const startMs = 1_800_000_000_000;

/** Alice is registered, a second ago, with one method `#k1`, which may sign. */
export function aliceWorld(): World {
  const world = new World(startMs);
  const call = registrationOf(alice, { timestamp: String(startMs) });
  if (isRefusal(world.try(call))) throw new Error("the registration of Alice was refused");
  world.apply(call);
  world.nowMs += 1_000;
  return world;
}

export type Signing = {
  readonly signer?: KeyPair;
  readonly signerKeyId?: string;
  readonly nonce?: bigint;
};

/**
 * The call for an intent with the next counter value, good for a minute, signed by Alice's root
 * key.
 */
export function signed(world: World, intent: Intent, signing: Signing = {}): LedgerCall {
  const { counter } = actions[intent.action];
  const nonce = signing.nonce ?? world.account(intent.did).counters[counter];
  const terms = {
    nonce,
    validUntilMs: BigInt(world.nowMs + 60_000),
    signerKeyId: signing.signerKeyId ?? "root",
  };
  return authorizedCall(intent, terms, signing.signer ?? alice.root);
}

export const k1: VerificationMethod = methodOf(did, "k1", keyOf("alice k1"));
export const k2: VerificationMethod = methodOf(did, "k2", keyOf("alice k2"));
export const x1: VerificationMethod = {
  ...methodOf(did, "x1", keyOf("alice x1")),
  type: "X25519KeyAgreementKey2020",
};
export const cache: Service = {
  id: `${did}#cache`,
  type: "SvcCacheService",
  serviceEndpoint: ["https://cache.example"],
  authorization: [k1.id],
  priority: null,
};
