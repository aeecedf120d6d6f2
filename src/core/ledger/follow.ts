/**
 * Whether a proven state follows from an earlier one. Signatures alone don't show that a
 * record is old, or the branch of a thief who had a key that was removed since; a few
 * remembered bytes do.
 * Source: docs/trust.md "Memory".
 */
import { equalBytes } from "../codec/bytes.ts";
import type { Did } from "../codec/did.ts";
import type { KeyState } from "./key-proof.ts";

/** How far a record had come when it was last proven. */
export type Remembered = {
  readonly did: Did;
  /** Number of the root key in force, and the key. */
  readonly root: number;
  readonly rootKey: Uint8Array;
  /** The next document nonce, and the hash of the document there. */
  readonly nonce: bigint;
  readonly hash: Uint8Array;
};

/**
 * What a reader keeps of a proven state: the number and key of the root, the last document
 * nonce and its hash.
 */
export function rememberedOf({ did, rootKeys, steps }: KeyState): Remembered {
  const { nonce, hash } = steps.at(-1) ?? steps[0];
  return { did, root: rootKeys.length - 1, rootKey: rootKeys.at(-1) as Uint8Array, nonce, hash };
}

type Contradiction = {
  readonly code: "record_went_back" | "identity_changed";
  readonly what: string;
};

/**
 * `null` when the new state goes through the old one, or has a later base under a root key
 * at least as new.
 */
export function findContradiction(before: Remembered, state: KeyState): Contradiction | null {
  const back = (what: string): Contradiction => ({ code: "record_went_back", what });
  const changed = (what: string): Contradiction => ({ code: "identity_changed", what });
  const rootKey = state.rootKeys[before.root];
  if (rootKey === undefined) return back("the root key");
  if (!equalBytes(rootKey, before.rootKey)) return changed("the root key");
  const [base] = state.steps;
  const last = state.steps.at(-1) ?? base;
  if (last.nonce < before.nonce) return back("the document");
  if (last.nonce > before.nonce && state.baseRoot < before.root)
    return back("the key of the document");
  if (base.nonce > before.nonce) return null;
  const then = state.steps.find(({ nonce }) => nonce === before.nonce);
  if (then === undefined || !equalBytes(then.hash, before.hash)) return changed("the document");
  return null;
}
