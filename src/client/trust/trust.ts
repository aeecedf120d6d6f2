/**
 * Whom a client believes. Of a self-certifying DID it believes only what its key proof shows and
 * what follows from the state that it remembers; of other DIDs what the Directory says, which it
 * calls `unproven`. Each proof is verified once; later look-ups name its hash. It remembers for
 * each correspondent how far its record had come, for each alias whose it was: a Directory can show
 * an old record or another branch of it only to somebody who remembers nothing.
 * Source: docs/trust.md "What the SDK verifies" and "Memory".
 */
import { sha256 } from "#sha256";
import { encodeHex } from "../../core/codec/bytes.ts";
import { type Did, isDid } from "../../core/codec/did.ts";
import { findContradiction, type Remembered, rememberedOf } from "../../core/ledger/follow.ts";
import { homesOf, parseHome } from "../../core/ledger/home.ts";
import { decodeKeyProof, type KeyState, replayKeyProof } from "../../core/ledger/key-proof.ts";
import { isSelfCertifying } from "../../core/ledger/names.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import { inOrder } from "../../core/std/order.ts";
import { ClientError } from "../base/failure.ts";
import {
  integer,
  keptBytes,
  keptBytes32,
  keptCounter,
  keptDid,
  object,
  optional,
  parseKept,
  renderKept,
  type Shape,
  text,
  truth,
} from "../base/shapes.ts";
import { verifySignature } from "../keys/crypto.ts";
import type { TextStore } from "../keys/key-stores.ts";
import { printOf } from "./print.ts";

/** How far the record of a correspondent had come, and the home that its document named then. */
const rememberedShape = object({
  did: keptDid,
  root: integer,
  rootKey: keptBytes32,
  nonce: keptCounter,
  hash: keptBytes32,
  /** What fingerprints showed of it (`trust/print.ts`). */
  print: optional(keptBytes),
  home: optional(text),
  /** Another own device has proven another state. */
  isContradicted: optional(truth),
});
const rememberedAliasShape = object({ alias: text, did: keptDid });

/**
 * `proven`: signed calls lead from the DID to its keys. `logged`: a fresh head of the log, which
 * witnesses have seen, covers them too. `unproven`: a random DID, whose keys the Directory stated.
 */
export type TrustLevel = "unproven" | "proven" | "logged";
/** The least that a caller accepts. */
export type TrustDemand = Exclude<TrustLevel, "unproven">;
/**
 * Whose an alias is: by the Directory's answer alone (`told`), as it was
 * before, or as the log has it.
 */
export type NameTrust = "told" | "remembered" | "logged";

/** A DID of the form is never sealed to or verified without its proof. */
export const trustOf = (did: string): TrustLevel => (isSelfCertifying(did) ? "proven" : "unproven");

/**
 * Asks the Directory for a proof unless it is the known one: then there are no bytes.
 * `null`: there is no proof.
 */
type ReadProof = (did: Did, known: string, home: string | null) => Promise<Uint8Array | null>;

/**
 * Where the bytes of a proof come from. `directory`: an answer, which a later one may have
 * overtaken on its way. `again`: the answer to a second question because of that. `device`: another
 * own device, which says nothing of now.
 */
type ProofSource = "directory" | "again" | "device";

type Proven = {
  readonly hash: string;
  readonly state: KeyState;
  readonly bytes: Uint8Array;
  isRemembered: boolean;
  /**
   * When the Directory last showed it, or said that it is still the same, by the monotonic clock.
   */
  shownMs: number;
};

/** A proof that was verified, and whether its state follows from what is remembered. */
export type View = {
  readonly state: KeyState;
  readonly bytes: Uint8Array;
  readonly before: KnownKeys | null;
  readonly refusal: ClientError | null;
};

/** Proven states in memory; of those beyond, the proof is read and verified again. */
const provenMax = 1_000;

export class Trust {
  readonly #readProof: ReadProof;
  readonly #memoryOf: () => TextStore;
  readonly #keep: (did: Did, proof: Uint8Array) => void;
  readonly #proven = new BoundedMap<Did, Proven>(provenMax);
  /** So that an older state can't overtake a newer one. */
  readonly #inTurn = inOrder<Did>();
  readonly #namedHomes = new BoundedMap<Did, string>(provenMax);

  /** `memoryOf` is asked each time, because a program may choose its identity later. */
  constructor(
    readProof: ReadProof,
    memoryOf: () => TextStore,
    keep: (did: Did, proof: Uint8Array) => void = () => undefined,
  ) {
    this.#readProof = readProof;
    this.#memoryOf = memoryOf;
    this.#keep = keep;
  }

  /** SHA-256 in hex of the proof that is already verified; empty for none. */
  known(did: Did): string {
    return this.#proven.get(did)?.hash ?? "";
  }

  /**
   * The proven state of a self-certifying DID, from the bytes of a proof; empty bytes stand for the
   * known one, and `null` asks the Directory. Throws `proof_missing`, `proof_invalid`,
   * `identity_changed` or `record_went_back`. It is remembered.
   */
  prove(did: Did, bytes: Uint8Array | null): Promise<KeyState> {
    return this.#inTurn(did, async () => {
      const state = await this.#examine(did, bytes);
      await this.#remember(did);
      return state;
    });
  }

  /**
   * The same of bytes that another own device has proven: these alone,
   * whatever the Directory says now.
   */
  hear(did: Did, bytes: Uint8Array): Promise<KeyState> {
    return this.#inTurn(did, async () => {
      const state = await this.#examine(did, bytes, "device");
      await this.#remember(did);
      return state;
    });
  }

  /**
   * The same as `prove`, for a caller with further demands on the state, after which it
   * calls `remember` or `drop`.
   */
  examine(did: Did, bytes: Uint8Array | null): Promise<KeyState> {
    return this.#inTurn(did, () => this.#examine(did, bytes));
  }

  remember(did: Did): Promise<void> {
    return this.#inTurn(did, () => this.#remember(did));
  }

  async #examine(
    did: Did,
    bytes: Uint8Array | null,
    source: ProofSource = "directory",
  ): Promise<KeyState> {
    const found = bytes ?? (await this.#readProof(did, this.known(did), await this.homeOf(did)));
    const held = this.#proven.get(did);

    const isShown = source !== "device";
    const shownMs = isShown ? performance.now() : (held?.shownMs ?? Number.NEGATIVE_INFINITY);
    const hash = encodeHex(sha256(found ?? new Uint8Array(0)));
    if (held !== undefined && (found?.length === 0 || hash === held.hash)) {
      held.shownMs = shownMs;
      return held.state;
    }

    if (found === null || found.length === 0) throw missingProof(did);
    const state = await verifyKeyProof(found, did);

    const before = await loadRemembered(this.#memoryOf(), did);
    const refusal = checkFollows(before, state);
    // What the Directory says now counts.
    if (refusal?.code === "record_went_back" && source === "directory")
      return this.#examine(did, null, "again");
    if (refusal !== null) throw refusal;

    this.#proven.set(did, { hash, state, bytes: found, isRemembered: false, shownMs });
    return state;
  }

  async #remember(did: Did): Promise<void> {
    const held = this.#proven.get(did);
    if (held === undefined) return;
    if (!held.isRemembered) await save(this.#memoryOf(), held.state);
    held.isRemembered = true;
    this.#keep(did, held.bytes);
  }

  /**
   * What the Directory proves now, whether or not it follows from what is remembered
   * (`before`); `refusal` says why it doesn't. Nothing is remembered. Throws
   * `proof_missing` or `proof_invalid`.
   */
  async view(did: Did): Promise<View> {
    const bytes = await this.#readProof(did, "", await this.homeOf(did));
    if (bytes === null) throw missingProof(did);
    const state = await verifyKeyProof(bytes, did);
    const before = await loadRemembered(this.#memoryOf(), did);
    return { state, bytes, before, refusal: checkFollows(before, state) };
  }

  /**
   * Another own device has proven a state that contradicts the remembered one: neither is
   * believed until one is forgotten.
   */
  contradict(did: Did): Promise<void> {
    return this.#inTurn(did, async () => {
      const memory = this.#memoryOf();
      const before = await loadRemembered(memory, did);
      this.#proven.delete(did);
      if (before !== null)
        await memory.save(didKey(did), renderKept({ ...before, isContradicted: true }));
    });
  }

  /** Whether that was said of it, and nothing has been forgotten since. */
  async isContradicted(did: Did): Promise<boolean> {
    return (await loadRemembered(this.#memoryOf(), did))?.isContradicted === true;
  }

  /** Forgets a proof, and nothing that was remembered before it. */
  drop(did: Did): void {
    this.#proven.delete(did);
  }

  /** The verified proof and its state, while they are in memory. */
  provenOf(did: Did): Pick<Proven, "state" | "bytes" | "shownMs"> | null {
    return this.#proven.get(did) ?? null;
  }

  /**
   * Where to ask for a DID: its proven home, the one that was named, or the one remembered.
   * `null`: the own Directory.
   */
  async homeOf(did: Did): Promise<string | null> {
    if (!isSelfCertifying(did)) return null;
    const held = this.#proven.get(did);
    const [shown] = homesOf(held?.state.document ?? null);
    const home = shown ?? this.#namedHomes.get(did) ?? null;
    // What is remembered is of no later document.
    if (home !== null || held !== undefined) return home;
    return parseHome((await loadRemembered(this.#memoryOf(), did))?.home ?? "");
  }

  /** Names the home of a DID, as far as nothing is proven. */
  tellHome(did: Did, home: string): void {
    this.#namedHomes.set(did, home);
  }

  /** Checks and remembers whose an alias is. Throws `identity_changed`. */
  async nameOf(alias: string, did: Did): Promise<NameTrust> {
    const before = await loadAlias(this.#memoryOf(), alias);
    if (before === did) return "remembered";
    const why = `${alias} was ${before} and is ${did} now; ask the person, then forget the old one`;
    if (before !== null) throw distrust("identity_changed", why);
    // A name without a holder would stand in the way of the true answer.
    if (isSelfCertifying(did)) await this.examine(did, null);
    await this.#memoryOf().save(aliasKey(alias), renderKept({ alias, did }));
    return "told";
  }

  /** Whether a state of the DID is remembered. */
  async hasSeen(did: Did): Promise<boolean> {
    return (await loadRemembered(this.#memoryOf(), did)) !== null;
  }

  /** Accepts a correspondent anew: the next state that is proven is believed. */
  async forget(target: string): Promise<void> {
    this.#proven.delete(target as Did);
    await this.#memoryOf().save(isDid(target) ? didKey(target) : aliasKey(target), null);
  }
}

/**
 * The state behind a proof whose signatures all hold. Cost: one signature for
 * each call, at the same time.
 */
async function verifyKeyProof(bytes: Uint8Array, did: Did): Promise<KeyState> {
  const proof = decodeKeyProof(bytes);
  const state = proof === null ? null : replayKeyProof(proof);
  const isOf = state?.did === did && isSelfCertifying(did);
  if (state === null || !isOf)
    throw distrust("proof_invalid", `the proof of the Directory is not one of ${did}`);
  const holds = await Promise.all(
    state.signatures.map(({ signature, message, publicKey }) =>
      verifySignature(signature, message, publicKey),
    ),
  );
  if (!holds.every(Boolean))
    throw distrust("proof_invalid", `a signature in the proof of ${did} doesn't hold`);
  return state;
}

const missingProof = (did: Did): ClientError =>
  distrust("proof_missing", `the Directory doesn't prove the keys of ${did}`);

/** Remembers a state, if it still follows from what is remembered. */
async function save(memory: TextStore, state: KeyState): Promise<void> {
  const before = await loadRemembered(memory, state.did);
  const refusal = checkFollows(before, state);
  if (refusal !== null) throw refusal;
  const [home] = homesOf(state.document);
  const now: KnownKeys = { ...rememberedOf(state), print: printOf(state), home };
  if (before?.root === now.root && before.nonce === now.nonce && before.print !== undefined) return;
  await memory.save(didKey(state.did), renderKept(now));
}

/** An answer that what was signed, or what is remembered, contradicts. */
export function distrust(code: DistrustCode, message: string): ClientError {
  return new ClientError("distrusted", code, message);
}
type DistrustCode =
  | "proof_missing"
  | "proof_invalid"
  | "identity_changed"
  | "record_went_back"
  | "home_differs"
  | "not_logged"
  | "log_missing"
  | "log_invalid"
  | "log_unwitnessed"
  | "log_stale"
  | "log_forked"
  | "log_restarted"
  | "downgrade_refused";

/** Refuses a state that doesn't follow from the remembered one, if there is one. */
function checkFollows(before: KnownKeys | null, state: KeyState): ClientError | null {
  if (before?.isContradicted === true)
    return distrust(
      "identity_changed",
      `two devices of this identity have seen keys of ${before.did} that contradict each other; compare fingerprints with the person`,
    );
  const found = before === null ? null : findContradiction(before, state);
  if (found === null || before === null) return null;
  const why =
    found.code === "record_went_back"
      ? "is older than what was seen before; ask the person or try later"
      : "is not what was seen before; compare fingerprints with the person, then forget the old one";
  return distrust(found.code, `${before.did}: ${found.what} ${why}`);
}

const didKey = (did: Did) => `did/${did}`;
/** Where the last key bundle of a DID is remembered. */
export const bundleAt = (did: string) => `bundle/${did}`;
const aliasKey = (alias: string) => `alias/${alias}`;

/** What is kept under a key, if it has the shape. */
export async function recall<T>(
  memory: TextStore,
  key: string,
  shape: Shape<T>,
): Promise<T | null> {
  return parseKept((await memory.load(key)) ?? "", shape);
}

type KnownKeys = Remembered & {
  /** What a fingerprint showed; earlier versions kept none. */
  readonly print?: Uint8Array | undefined;
  readonly home?: string | undefined;
  readonly isContradicted?: boolean | undefined;
};

async function loadRemembered(memory: TextStore, did: Did): Promise<KnownKeys | null> {
  const kept = await recall(memory, didKey(did), rememberedShape);
  return kept?.did === did ? kept : null;
}

export async function loadAlias(memory: TextStore, alias: string): Promise<Did | null> {
  const kept = await recall(memory, aliasKey(alias), rememberedAliasShape);
  return kept?.alias === alias ? kept.did : null;
}
