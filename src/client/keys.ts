/**
 * An identity: its DID, its secrets, which never leave this machine, and the text form in which they are stored.
 * Source: interface "Signed DID-document updates" (private keys), rules section 1.
 */
import { decodeHex, encodeBase58, encodeHex, equalBytes, utf8 } from "../core/codec/bytes.ts";
import { type Did, isDid } from "../core/codec/did.ts";
import { weekMs } from "../core/codec/time.ts";
import { isRecord } from "./answers.ts";
import { ed25519PublicKey, hkdf } from "./crypto.ts";
import { localError } from "./http.ts";

/** An Ed25519 seed or an X25519 secret of 32 bytes, with the absolute id that the document gives its key. */
type HeldKey = { readonly id: string; readonly secret: Uint8Array };

/** The secret of a key agreement, and the time after which nothing sealed to it can still be waiting. */
export type HeldAgreement = HeldKey & { readonly destroyAtMs: number | null };

/**
 * Where the secrets of key agreements come from: each is derived from a chain key that is replaced with it,
 * so that no later state reveals an earlier secret, and every device that began with the same state derives the same
 * next key (`rotation.ts`).
 */
export type AgreementChain = {
  /** How many secrets were derived from the chain. */
  readonly epoch: number;
  /** The next secret is derived from it. */
  readonly key: Uint8Array;
  /** When this device began to use the secret of this epoch. */
  readonly sinceMs: number;
};

export type Identity = {
  readonly name: string;
  readonly did: Did;
  /** Signs as `root`. */
  readonly rootSeed: Uint8Array;
  /** A root key that was submitted and not yet seen in force. */
  readonly nextRootSeed: Uint8Array | null;
  /** Seeds of verification methods, old ones too: the document shows which seed of an id is in force. */
  readonly methods: readonly HeldKey[];
  /** Secrets of key agreements, old ones too, since messages sealed to them may still arrive. */
  readonly agreements: readonly HeldAgreement[];
  /** `null` in key files of 0.1.0: the first rotation begins a chain. */
  readonly chain: AgreementChain | null;
  /**
   * The genesis hash of the ledger that the identity belongs to, in hex: pinned with its first use at a Directory that
   * accepts proofs of version 3. Nothing is signed for another ledger from then on.
   */
  readonly ledger: string | null;
};

export const rootSignerId = "root";

export const nameForm = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$/;

/** A new chain and its first secret. */
export function startChain(nowMs: number): { secret: Uint8Array; chain: AgreementChain } {
  return advanceChain({ epoch: 0, key: crypto.getRandomValues(new Uint8Array(32)), sinceMs: nowMs }, nowMs);
}

/** The next secret. Whoever keeps only the new chain can't derive the secrets before it. */
export function advanceChain(chain: AgreementChain, nowMs: number): { secret: Uint8Array; chain: AgreementChain } {
  const derive = (purpose: string) => hkdf(chain.key, null, utf8(`waypost:agreement:v1:${purpose}`), 32);
  return { secret: derive("secret"), chain: { epoch: chain.epoch + 1, key: derive("next"), sinceMs: nowMs } };
}

export const rotationMsDefault = weekMs;

/** Whether `rotateAgreement` has something to do: a key that is due, or a secret to destroy. */
export function isRotationDue({ agreements, chain }: Identity, nowMs: number, everyMs: number): boolean {
  const isOver = agreements.some(({ destroyAtMs }) => destroyAtMs !== null && destroyAtMs <= nowMs);
  return isOver || nowMs - (chain?.sinceMs ?? 0) >= everyMs;
}

/** New keys and a new DID of 16 random bytes. Nothing is written. */
export function createIdentity(name: string, nowMs: number = Date.now()): Identity {
  if (!nameForm.test(name)) throw localError("invalid_name", "a name is 1 to 64 of A-Z a-z 0-9 . _ -, no dot first");
  const did = `did:svc:${freshAddress()}` as Did;
  const rootSeed = crypto.getRandomValues(new Uint8Array(32));
  const { secret, chain } = startChain(nowMs);
  return {
    name,
    did,
    rootSeed,
    nextRootSeed: null,
    methods: [{ id: `${did}#root`, secret: rootSeed }],
    agreements: [{ id: `${did}#x25519-1`, secret, destroyAtMs: null }],
    chain,
    ledger: null,
  };
}

/** base58btc of 16 random bytes; leading zeros could make it shorter than the 16 characters a DID needs. */
function freshAddress(): string {
  const address = encodeBase58(crypto.getRandomValues(new Uint8Array(16)));
  return address.length >= 16 ? address : freshAddress();
}

/** The seed behind `signer_key_id`, or a `local` error `unknown_key`. */
export function signingSeed(identity: Identity, signerKeyId: string): Uint8Array {
  if (signerKeyId === rootSignerId) return identity.rootSeed;
  const held = identity.methods.findLast((method) => method.id === signerKeyId);
  if (held === undefined) throw localError("unknown_key", `the secret of ${signerKeyId} is not here`);
  return held.secret;
}

/** The seed of a public key of the document, or `null` when this device lacks it. */
export async function heldSeed(identity: Identity, publicKey: Uint8Array): Promise<Uint8Array | null> {
  for (const seed of [identity.rootSeed, ...identity.methods.map(({ secret }) => secret)])
    if (equalBytes(await ed25519PublicKey(seed), publicKey)) return seed;
  return null;
}

export function agreementSecrets(identity: Identity, keyId: string): Uint8Array[] {
  return identity.agreements.filter((agreement) => agreement.id === keyId).map(({ secret }) => secret);
}

// ----------------------------------------------------------------------------------------------- text

/** The text of a key file. Everything in it is secret. */
export const renderIdentity = (identity: Identity): string =>
  `${JSON.stringify(
    {
      version: 1,
      name: identity.name,
      did: identity.did,
      root_seed: encodeHex(identity.rootSeed),
      next_root_seed: identity.nextRootSeed === null ? null : encodeHex(identity.nextRootSeed),
      methods: identity.methods.map(renderHeld),
      agreements: identity.agreements.map((held) => ({ ...renderHeld(held), destroy_at_ms: held.destroyAtMs })),
      agreement_chain: identity.chain === null ? null : renderChain(identity.chain),
      ledger: identity.ledger,
    },
    null,
    2,
  )}\n`;

const renderChain = ({ epoch, key, sinceMs }: AgreementChain) => ({ epoch, key: encodeHex(key), since_ms: sinceMs });

const renderHeld = ({ id, secret }: HeldKey) => ({ id, secret: encodeHex(secret) });

/** `null` when the text is not that of an identity. */
export function parseIdentity(text: string, name: string): Identity | null {
  const json = parseJson(text);
  if (!isRecord(json) || json["version"] !== 1 || typeof json["did"] !== "string" || !isDid(json["did"])) return null;
  const rootSeed = parseSecret(json["root_seed"]);
  const nextRootSeed = json["next_root_seed"] === null ? null : parseSecret(json["next_root_seed"]);
  const [methods, agreements] = [parseHeld(json["methods"]), parseAgreements(json["agreements"])];
  if (rootSeed === null || methods === null || agreements === null) return null;
  const chain = parseChain(json["agreement_chain"]);
  const ledger = typeof json["ledger"] === "string" && /^[0-9a-f]{64}$/.test(json["ledger"]) ? json["ledger"] : null;
  return { name, did: json["did"], rootSeed, nextRootSeed, methods, agreements, chain, ledger };
}

function parseAgreements(value: unknown): HeldAgreement[] | null {
  const held = parseHeld(value);
  const times = Array.isArray(value)
    ? value.map((entry: unknown) => (isRecord(entry) ? entry["destroy_at_ms"] : null))
    : [];
  return held?.map((one, i) => ({ ...one, destroyAtMs: typeof times[i] === "number" ? times[i] : null })) ?? null;
}

/** Absent in files of 0.1.0. */
function parseChain(value: unknown): AgreementChain | null {
  if (!isRecord(value)) return null;
  const key = parseSecret(value["key"]);
  const { epoch, since_ms: sinceMs } = value;
  return key !== null && typeof epoch === "number" && typeof sinceMs === "number" ? { epoch, key, sinceMs } : null;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function parseSecret(value: unknown): Uint8Array | null {
  return typeof value === "string" && /^[0-9a-f]{64}$/.test(value) ? decodeHex(value) : null;
}

function parseHeld(value: unknown): HeldKey[] | null {
  if (!Array.isArray(value)) return null;
  const held: HeldKey[] = [];
  for (const entry of value) {
    const secret = isRecord(entry) ? parseSecret(entry["secret"]) : null;
    if (!isRecord(entry) || typeof entry["id"] !== "string" || secret === null) return null;
    held.push({ id: entry["id"], secret });
  }
  return held;
}
