/**
 * Names and forms of the world of `own-world.ts`: secrets and signatures are names, and who knows a
 * name can use it.
 */
import {
  audienceOf,
  followOwn,
  type Head,
  hearHead,
  isBehind,
  type Keyring,
  mayHear,
  missingIn,
  settle,
} from "../../src/client/devices/keyring.ts";
import {
  agreeTo,
  type Former,
  follow,
  found,
  furtherOf,
  type HandOverWish,
  isBacked,
  joinWishes,
  mayHandOver,
  withoutNext,
} from "../../src/client/groups/handing.ts";
import {
  keepFormer,
  missingRemovals,
  ownStatements,
  withRemovals,
} from "../../src/client/groups/removals.ts";
import {
  answerTo,
  type GroupState,
  type HandOver,
  heal,
  hear,
  hearLeaving,
  isDue,
  mergeOwn,
  nearState,
  type Statement,
  stateDigest,
} from "../../src/client/groups/statements.ts";
import {
  doneHandOvers,
  isWitnessed,
  type Shown,
  withShown,
} from "../../src/client/groups/witnesses.ts";
import {
  decideLacking,
  decideSealing,
  joinSecrets,
  pendingAfter,
  withEnds,
} from "../../src/client/keys/agreements.ts";
import { nextMadeMs } from "../../src/client/keys/due.ts";
import { decideLife } from "../../src/client/trust/life.ts";
import type { Did } from "../../src/core/codec/did.ts";
import type { SealingKept, Secret } from "./own-sealing.ts";

/** What the world runs on. A canary replaces one of them by a rule with a defect. */
export const realRules = {
  hearHead,
  mayHear,
  settle,
  isBehind,
  audienceOf,
  followOwn,
  missingIn,
  hear,
  hearLeaving,
  heal,
  mergeOwn,
  nearState,
  answerTo,
  isDue,
  decideLife,
  decideLacking,
  decideSealing,
  joinSecrets,
  nextMadeMs,
  pendingAfter,
  withEnds,
  /** The name of a new secret: nothing that there was leads to it. */
  freshSecret: (name: string, _before: readonly Secret[]): string => name,
  /** Secrets of a head that is not in force so far are not taken. */
  takesEarly: false,
  /** Secrets go with heads, which are sealed to the key of one device. */
  secretsInBody: false,
  follow,
  found,
  furtherOf,
  isBacked,
  joinWishes,
  agreeTo,
  mayHandOver,
  withoutNext,
  keepFormer,
  missingRemovals,
  withRemovals,
  ownStatements,
  /**
   * Whether a wish to hand a group over counts that was made under the first key, where the second
   * one is in force.
   */
  countsWish: (made: number, now: number): boolean => made === now,
  /**
   * What counts of another own device's state of a group that this identity has not made, beside
   * what is signed.
   */
  siblingState: (held: GroupState, _given: GroupState): GroupState => held,
  /** By which of the maker's root keys a statement counts that another own device shows. */
  siblingCounts: (ago: number): boolean => ago === 0,
  /** Whether the signature of a head is that of its root key. */
  isSigned: (head: Head, signedBy: string): boolean => head.root === signedBy,
  /** What an identity's document has after a replacement, of what it had and what is ticked. */
  methodsAfter: (_before: readonly string[], own: readonly string[]): readonly string[] => own,
  /** By which of the maker's root keys a hand-over counts: 0 is the one in force. */
  countsAt: (ago: number): boolean => ago === 0,
  doneHandOvers,
  isWitnessed,
  withShown,
  /** By which of a former admin's root keys a removal counts that a member shows the next one. */
  removesAt: (ago: number): boolean => ago === 0,
};
export type Rules = typeof realRules;

export const [secondMs, hourMs, dayMs] = [1_000, 3_600_000, 86_400_000];
export const beginMs = 1_790_000_000_000;
export const messageTtlMs = dayMs;

export const did = (name: string): Did =>
  `did:svc:${name.replace(/0/g, "z").padEnd(16, "x")}` as Did;
export const [alice, bob, carol, eve, mallory] = ["aLice", "bob", "caroL", "eve", "maLLory"].map(
  did,
) as [Did, Did, Did, Did, Did];
export const keyOf = (name: string): string =>
  [...name]
    .map((letter) => letter.charCodeAt(0).toString(16))
    .join("")
    .padEnd(64, "0")
    .slice(0, 64);

/** States don't change, and each is named many times. */
const digests = new WeakMap<GroupState, string>();
export function digestIn(state: GroupState): string {
  const known = digests.get(state) ?? stateDigest(state);
  digests.set(state, known);
  return known;
}

/** A root key, which is also the name of its seed, and the sealing key that was made with it. */
export type Roots = readonly string[];
export type Signed = { readonly statement: Statement; readonly root: string };
export type SignedLeaving = { readonly did: Did; readonly version: number; readonly root: string };
export type SignedHandOver = HandOver & { readonly root: string };
export type Bundle = {
  readonly statements: readonly Signed[];
  readonly handOvers?: readonly SignedHandOver[];
  readonly leavings: readonly SignedLeaving[];
};

export type Text = {
  readonly id: string;
  readonly from: Did;
  readonly sentMs: number;
  readonly digest: string;
  /** Which group it is for. */
  readonly group: string;
  readonly bundle: Bundle | null;
  /** The root key with which the sender's method was made. */
  readonly signer: string;
};
export type Packet =
  | { readonly is: "text"; readonly to: Did; readonly sealedTo: string; readonly text: Text }
  | {
      readonly is: "device";
      readonly to: Did;
      readonly from: Did;
      /** Under whose seed the body is sealed. */
      readonly root: string;
      readonly head: SealedHead | null;
      readonly body: Body;
    };
export type SealedHead = {
  readonly head: Head;
  readonly signedBy: string;
  readonly sealedTo: string;
  /** The seeds that go with it. */
  readonly seeds: readonly string[];
  readonly secrets: readonly Secret[];
};
export type Body = {
  readonly group: GroupState;
  readonly former: readonly Former[];
  readonly wish: HandOverWish | null;
  readonly groupRoot: number;
  readonly bundle: Bundle;
  readonly shown: readonly string[];
  readonly hash: string;
  readonly acks: string;
  /** A published key whose secret is asked for. */
  readonly lacks: string;
  /** Of a rule with a defect. */
  readonly secrets: readonly Secret[];
};

export type Kept = {
  ring: Keyring;
  deviceKey: string;
  seeds: string[];
  /**
   * Of the key store: the root key whose seed is the identity's, which devices were removed, and
   * who made each root key.
   */
  ownRoot: string;
  removed: Did[];
  makers: { readonly root: string; readonly maker: Did }[];
  sealing: SealingKept;
  /** Which secrets other devices' Caches have got from here. */
  given: string[];
  group: GroupState;
  former: readonly Former[];
  second: Did | null;
  /** Of the groups before, and of this one. */
  handOvers: SignedHandOver[];
  handing: HandOverWish | null;
  /** Hand-overs by replaced keys that members have shown. */
  shownWays: Shown;
  /** Of which group this device has signed a hand-over. */
  handedOver: string | null;
  /** Number of the maker's root key under which the state counts; only at its devices. */
  groupRoot: number;
  /** The version of when this device began with it. */
  keysSince: number | undefined;
  statements: Signed[];
  leavings: SignedLeaving[];
  /** Of the groups before, what their admins have signed. */
  removals: Signed[];
  waiting: Bundle[];
  shown: string[];
  seen: Record<string, number>;
  acked: Record<string, string>;
  proven: Record<string, number>;
  /** A replacement under way: the next root key, and who is to be gone. */
  job: { next: string; gone: Did[]; step: number } | null;
  wish: Did[];
};

export const leavingsOf = (all: readonly SignedLeaving[]): SignedLeaving[] => {
  const last = new Map<string, SignedLeaving>();
  for (const one of all) {
    const held = last.get(one.did);
    if (held === undefined || held.version < one.version) last.set(one.did, one);
  }
  return [...last.values()];
};
