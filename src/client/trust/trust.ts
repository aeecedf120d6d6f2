/**
 * Whom a client believes. Of a self-certifying DID it believes only what its key proof shows and what follows from the
 * state that it remembers; of other DIDs what the Directory says, which it calls `unproven`. Each proof is verified once;
 * later look-ups name its hash.
 * Source: docs/trust.md "What the SDK verifies".
 */
import { sha256 } from "#sha256";
import { encodeHex } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { type Remembered, rememberedOf } from "../../core/trust/follow.ts";
import { homesOf } from "../../core/trust/home.ts";
import { isSelfCertifying } from "../../core/trust/names.ts";
import { decodeKeyProof, type KeyState, replayKeyProof } from "../../core/trust/proof.ts";
import { verifyEd25519 } from "../crypto.ts";
import { inOrder } from "../http.ts";
import type { MemoryStore } from "./memory.ts";
import {
  checkFollows,
  distrust,
  forget,
  loadAlias,
  loadHome,
  loadRemembered,
  saveAlias,
  saveRemembered,
} from "./memory.ts";

/**
 * `proven`: signed calls lead from the DID to its keys. `logged`: a fresh head of the log, which witnesses have seen, covers
 * them too. `unproven`: a random DID, whose keys the Directory stated.
 */
export type TrustLevel = "unproven" | "proven" | "logged";
/** The least that a caller accepts. */
export type TrustDemand = Exclude<TrustLevel, "unproven">;
/** Whether an alias was told by the Directory just now, stands for the same DID as before, or is in the log. */
export type NameTrust = "told" | "remembered" | "logged";

/** A DID of the form is never sealed to or verified without its proof. */
export const trustOf = (did: string): TrustLevel => (isSelfCertifying(did) ? "proven" : "unproven");

export type Trust = {
  /** SHA-256 in hex of the proof that is already verified; empty for none. */
  readonly known: (did: Did) => string;
  /**
   * The proven state of a self-certifying DID, from the bytes of a proof; empty bytes stand for the known one, and `null`
   * asks the Directory. Throws `proof_missing`, `proof_invalid`, `identity_changed` or `record_went_back`. It is remembered.
   */
  readonly prove: (did: Did, bytes: Uint8Array | null) => Promise<KeyState>;
  /** The same, for a caller with further demands on the state, after which it calls `remember` or `drop`. */
  readonly examine: Trust["prove"];
  readonly remember: (did: Did) => Promise<void>;
  /** Forgets a proof, and nothing that was remembered before it. */
  readonly drop: (did: Did) => void;
  /** The verified proof and its state, while they are in memory. */
  readonly provenOf: (did: Did) => Pick<Proven, "state" | "bytes"> | null;
  /** Where to ask for a DID: its proven home, the one that was named, or the one remembered. `null`: the own Directory. */
  readonly homeOf: (did: Did) => Promise<string | null>;
  /** Names the home of a DID, as far as nothing is proven. */
  readonly tellHome: (did: Did, home: string) => void;
  /** Checks and remembers whose an alias is. Throws `identity_changed`. */
  readonly nameOf: (alias: string, did: Did) => Promise<NameTrust>;
  /** Accepts a correspondent anew: the next state that is proven is believed. */
  readonly forget: (target: string) => Promise<void>;
};

/** Asks the Directory for a proof unless it is the known one: then there are no bytes. `null`: there is no proof. */
type ReadProof = (did: Did, known: string, home: string | null) => Promise<Uint8Array | null>;

type Proven = {
  readonly hash: string;
  readonly state: KeyState;
  readonly bytes: Uint8Array;
  isRemembered: boolean;
};

/** Proven states in memory; of those beyond, the proof is read and verified again. */
const provenMax = 1_000;

/** `memoryOf` is asked each time, because a program may choose its identity later. */
export function createTrust(readProof: ReadProof, memoryOf: () => MemoryStore): Trust {
  const proven = new Map<Did, Proven>();
  /** So that an older state can't overtake a newer one. */
  const inTurn = inOrder<Did>();
  const namedHomes = new Map<Did, string>();
  const known = (did: Did) => proven.get(did)?.hash ?? "";
  const homeOf = async (did: Did) => {
    if (!isSelfCertifying(did)) return null;
    const [shown] = homesOf(proven.get(did)?.state.document ?? null);
    return shown ?? namedHomes.get(did) ?? (await loadHome(memoryOf(), did));
  };
  const examine = async (did: Did, bytes: Uint8Array | null, tries = 2): Promise<KeyState> => {
    const found = bytes ?? (await readProof(did, known(did), await homeOf(did)));
    const held = proven.get(did);
    if (found !== null && found.length === 0 && held !== undefined) return held.state;
    if (found === null || found.length === 0)
      throw distrust("proof_missing", `the Directory doesn't prove the keys of ${did}`);
    const hash = encodeHex(sha256(found));
    if (hash === held?.hash) return held.state;
    const state = await verifyKeyProof(found, did);
    const before = await loadRemembered(memoryOf(), did);
    const refusal = before === null ? null : checkFollows(before, state);
    // An answer may have been overtaken by a later one on its way: what the Directory says now counts.
    if (refusal?.code === "record_went_back" && tries > 1) return examine(did, null, tries - 1);
    if (refusal !== null) throw refusal;
    if (proven.size >= provenMax) proven.clear();
    proven.set(did, { hash, state, bytes: found, isRemembered: false });
    return state;
  };
  const remember = async (did: Did): Promise<void> => {
    const held = proven.get(did);
    if (held === undefined || held.isRemembered) return;
    await save(memoryOf(), held.state);
    held.isRemembered = true;
  };
  return {
    known,
    examine: (did, bytes) => inTurn(did, () => examine(did, bytes)),
    prove: (did, bytes) =>
      inTurn(did, async () => {
        const state = await examine(did, bytes);
        await remember(did);
        return state;
      }),
    remember: (did) => inTurn(did, () => remember(did)),
    drop: (did) => void proven.delete(did),
    provenOf: (did) => proven.get(did) ?? null,
    homeOf,
    tellHome: (did, home) => {
      if (namedHomes.size >= provenMax) namedHomes.clear();
      namedHomes.set(did, home);
    },
    nameOf: (alias, did) => nameOf(memoryOf(), alias, did),
    forget: async (target) => {
      proven.delete(target as Did);
      await forget(memoryOf(), target);
    },
  };
}

/** The state behind a proof whose signatures all hold. Cost: one signature for each call, at the same time. */
async function verifyKeyProof(bytes: Uint8Array, did: Did): Promise<KeyState> {
  const proof = decodeKeyProof(bytes);
  const state = proof === null ? null : replayKeyProof(proof);
  const isOf = state?.did === did && isSelfCertifying(did);
  if (state === null || !isOf) throw distrust("proof_invalid", `the proof of the Directory is not one of ${did}`);
  const holds = await Promise.all(
    state.signatures.map(({ signature, message, publicKey }) => verifyEd25519(signature, message, publicKey)),
  );
  if (!holds.every(Boolean)) throw distrust("proof_invalid", `a signature in the proof of ${did} doesn't hold`);
  return state;
}

/** Remembers a state, if it still follows from what is remembered. */
async function save(memory: MemoryStore, state: KeyState): Promise<void> {
  const before = await loadRemembered(memory, state.did);
  const refusal = before === null ? null : checkFollows(before, state);
  if (refusal !== null) throw refusal;
  const now = rememberedOf(state);
  const [home = null] = homesOf(state.document);
  if (before === null || isNews(before, now)) await saveRemembered(memory, now, home);
}

function isNews(before: Remembered, now: Remembered): boolean {
  return before.root !== now.root || before.nonce !== now.nonce;
}

async function nameOf(memory: MemoryStore, alias: string, did: Did): Promise<NameTrust> {
  const before = await loadAlias(memory, alias);
  if (before === did) return "remembered";
  if (before !== null)
    throw distrust(
      "identity_changed",
      `${alias} was ${before} and is ${did} now; ask the person, then forget the old one`,
    );
  await saveAlias(memory, alias, did);
  return "told";
}
