/**
 * Key proofs: the signed calls that show, without anyone's word, which keys and which
 * document a self-certifying DID has. A proof has the registration, every rotation, the
 * base (the last whole document) and every component call since. Reading one is pure: it
 * returns the state that the calls lead to and the signatures that the reader has to
 * verify. There are no rules of time, because a proof names no block: an expired call may
 * be shown as applied.
 * Source: docs/trust.md "Key proofs".
 */
import { blake2b256 } from "#blake2";
import { sha256 } from "#sha256";
import { equalBytes } from "../codec/bytes.ts";
import type { Did } from "../codec/did.ts";
import {
  byteVector,
  type Decoded,
  decodeWith,
  encodeWith,
  enumeration,
  fixedBytes,
  option,
  structure,
  text,
  u8,
  u64,
  vector,
} from "../codec/scale.ts";
import {
  type DidDocument,
  type KeyAgreement,
  methodFor,
  parseMethodKey,
  type Service,
  scaleBounds,
  type VerificationMethod,
} from "./account.ts";
import type { DocumentAction } from "./actions.ts";
import {
  authorizationMessage,
  boundDocumentMessage,
  boundRegistrationMessage,
  decodeDidDocument,
  documentPayloadCodec,
  encodeDidDocument,
  rootPubkeyPayloadCodec,
} from "./document-codec.ts";
import { deriveDid } from "./names.ts";

/**
 * Component calls that may follow a whole document. Then the next change must be a whole
 * document.
 */
export const componentCallsMax = 8;
/** Rotations of one DID. With this bound the largest proof stays below `keyProofBytesMax`. */
export const rotationsMax = 200;
/** Of a proof whose every member is as large as it may be; a usual one has 1 to 4 KB. */
export const keyProofBytesMax = 65_536;

/** A component call is at most a service with full lists. */
const payloadBytesMax = 4_096;

const signature = fixedBytes(64);
const keyProofCodec = structure({
  version: enumeration<"v1">([undefined, "v1"]),
  genesisHash: fixedBytes(32),
  /** The first root key, from which the DID follows. */
  rootKey: fixedBytes(32),
  registration: structure({
    alias: option(text(scaleBounds.aliasBytes)),
    expiryMs: u64,
    submitter: option(fixedBytes(32)),
    /** BLAKE2b-256 of the registered document. */
    documentHash: fixedBytes(32),
    signature,
  }),
  /** The first is signed by the first root key, each further one by the key before. */
  rotations: vector(
    structure({ newRootPubkey: fixedBytes(32), validUntilMs: u64, signature }),
    rotationsMax,
  ),
  /**
   * Who signed `document` as a whole (the number of the root key), and when; `null` for the
   * document of the registration.
   */
  base: option(structure({ root: u8, nonce: u64, expiryMs: u64, signature })),
  /** SCALE of the base. */
  document: byteVector(scaleBounds.documentBytes),
  /** The component calls since, with nonces without a gap. */
  calls: vector(structure({ payload: byteVector(payloadBytesMax), signature }), componentCallsMax),
});

export type KeyProof = Decoded<typeof keyProofCodec>;

export function encodeKeyProof(proof: KeyProof): Uint8Array {
  return encodeWith(keyProofCodec, proof);
}

/** `null` for anything but the bytes of a proof. */
export function decodeKeyProof(bytes: Uint8Array): KeyProof | null {
  return bytes.length > keyProofBytesMax ? null : decodeWith(keyProofCodec, bytes);
}

// ------------------------------------------------------------------------------------------ replay

export type SignedMessage = {
  readonly signature: Uint8Array;
  readonly message: Uint8Array;
  readonly publicKey: Uint8Array;
};

/**
 * A state of the document that the proof goes through: the next document nonce there, and
 * the hash of the document.
 */
type ProvenStep = { readonly nonce: bigint; readonly hash: Uint8Array };

/** The state that a proof leads to. It holds when every signature does. */
export type KeyState = {
  readonly did: Did;
  readonly genesisHash: Uint8Array;
  /** Every root key, the first one first. The last one is in force. */
  readonly rootKeys: readonly Uint8Array[];
  /**
   * Number of the root key that signed the base: with a later rotation, no document was
   * signed since.
   */
  readonly baseRoot: number;
  readonly document: DidDocument;
  /** From the base to the present. */
  readonly steps: readonly [ProvenStep, ...ProvenStep[]];
  readonly signatures: readonly SignedMessage[];
};

/**
 * The state behind a proof, or `null` when its calls don't follow from one another.
 * Verifies no signature.
 */
export function replayKeyProof(proof: KeyProof): KeyState | null {
  const { genesisHash, rotations } = proof;
  const named = namesOf(proof);
  const replayed = replayDocuments(proof, named);
  if (replayed === null) return null;
  const signatures = rotations.map((_, nonce) => rotationOf(proof, named, nonce));
  signatures.push(registrationOf(proof, named), ...replayed.signatures);
  const { document, steps } = replayed;
  return { ...named, genesisHash, baseRoot: proof.base?.root ?? 0, document, steps, signatures };
}

/**
 * What the last call added; `null` when it doesn't follow from those before it, whose
 * signatures are known.
 */
export function signatureAdded(proof: KeyProof, changed: "registration" | "rootKey" | "document") {
  const signatures = replayKeyProof(proof)?.signatures ?? [];
  const { length } = proof.rotations;
  return (
    signatures.at({ rootKey: length - 1, registration: length, document: -1 }[changed]) ?? null
  );
}

type RootNames = Pick<KeyState, "did" | "rootKeys">;

const namesOf = ({ genesisHash, rootKey, rotations }: KeyProof): RootNames => ({
  did: deriveDid(genesisHash, rootKey),
  rootKeys: [rootKey, ...rotations.map(({ newRootPubkey }) => newRootPubkey)],
});

function registrationOf(
  { registration, genesisHash, rootKey }: KeyProof,
  { did }: RootNames,
): SignedMessage {
  const message = boundRegistrationMessage({
    ...registration,
    did,
    genesisHash,
    rootPubkey: rootKey,
  });
  return { signature: registration.signature, message, publicKey: rootKey };
}

/** The base and the component calls. */
function replayDocuments(
  proof: KeyProof,
  { did, rootKeys }: RootNames,
): Pick<KeyState, "document" | "steps" | "signatures"> | null {
  const base = baseOf(proof, did, rootKeys);
  if (base === null) return null;
  const signatures = base.signed === null ? [] : [base.signed];
  const steps: [ProvenStep, ...ProvenStep[]] = [
    { nonce: base.nonce, hash: sha256(proof.document) },
  ];
  let { document } = base;
  for (const call of proof.calls) {
    const nonce = base.nonce + BigInt(steps.length - 1);
    const payload = decodeWith(documentPayloadCodec, call.payload);
    if (payload === null || payload.did !== did || payload.nonce !== nonce) return null;
    const publicKey = signerOf(payload.signerKeyId, document, base.rootKey);
    const changed = applyComponent(document, payload.action, payload);
    if (publicKey === null || changed === null) return null;
    const message = authorizationMessage("document", proof.genesisHash, call.payload);
    signatures.push({ signature: call.signature, message, publicKey });
    document = changed;
    steps.push({ nonce: nonce + 1n, hash: sha256(encodeDidDocument(document)) });
  }
  return { document, steps, signatures };
}

function rotationOf(
  { rotations, genesisHash }: KeyProof,
  { did, rootKeys }: RootNames,
  nonce: number,
): SignedMessage {
  const { newRootPubkey, validUntilMs, signature } = rotations[
    nonce
  ] as KeyProof["rotations"][number];
  const terms = { nonce: BigInt(nonce), validUntilMs, signerKeyId: "root" };
  const payload = encodeWith(rootPubkeyPayloadCodec, { did, newRootPubkey, ...terms });
  const message = authorizationMessage("rootPubkey", genesisHash, payload);
  return { signature, message, publicKey: rootKeys[nonce] as Uint8Array };
}

type Base = {
  readonly document: DidDocument;
  /** The next document nonce. */
  readonly nonce: bigint;
  readonly rootKey: Uint8Array;
  /** `null` when the registration covers it. */
  readonly signed: SignedMessage | null;
};

function baseOf(proof: KeyProof, did: Did, rootKeys: readonly Uint8Array[]): Base | null {
  const { base, registration, genesisHash } = proof;
  const document = decodeDidDocument(proof.document);
  const rootKey = rootKeys[base?.root ?? 0];
  if (document === null || document.id !== did || rootKey === undefined) return null;
  const documentHash = blake2b256(proof.document);
  if (base === null) {
    return equalBytes(documentHash, registration.documentHash)
      ? { document, nonce: 0n, rootKey, signed: null }
      : null;
  }
  const message = boundDocumentMessage({
    did,
    documentHash,
    nonce: base.nonce,
    expiryMs: base.expiryMs,
    genesisHash,
  });
  const signed = { signature: base.signature, message, publicKey: rootKey };
  return { document, nonce: base.nonce + 1n, rootKey, signed };
}

/** `root` is the key that signed the base: after a rotation only a whole document is accepted. */
function signerOf(keyId: string, document: DidDocument, rootKey: Uint8Array): Uint8Array | null {
  if (keyId === "root") return rootKey;
  const method = methodFor(document, keyId, "change");
  return method === null ? null : parseMethodKey(method);
}

/** Why nothing changes. `unlisted`: no method has the id; `in use`: by `authentication`. */
type NoChange = "exists" | "missing" | "unlisted" | "in use";

/**
 * The document after a component call. Bounds and forms are left to the ledger: the holder
 * of the key signed them.
 */
export function changeComponent(
  document: DidDocument,
  action: DocumentAction,
  given: ComponentItems,
): DidDocument | NoChange {
  const { verb, list } = componentOf(action);
  const value = verb === "Remove" || list === "authentication" ? given.id : given[list];
  if (value === undefined || value === null) return "missing";
  const id = componentId(value);
  const isMethod = document.verificationMethod.some((method) => method.id === id);
  if (action === "AddAuthentication" && !isMethod) return "unlisted";
  const held: readonly Component[] = document[list];
  const exists = held.some((entry) => componentId(entry) === id);
  if (exists === (verb === "Add")) return exists ? "exists" : "missing";
  if (action === "RemoveVerificationMethod" && document.authentication.includes(id))
    return "in use";
  const others = held.filter((entry) => componentId(entry) !== id);
  const replaced = exists
    ? held.map((entry) => (componentId(entry) === id ? value : entry))
    : [...held, value];
  return { ...document, [list]: verb === "Remove" ? others : replaced };
}

/** The same, or `null` where the ledger refuses it for what is or isn't there. */
export function applyComponent(
  document: DidDocument,
  action: DocumentAction,
  given: ComponentItems,
): DidDocument | null {
  const changed = changeComponent(document, action, given);
  return typeof changed === "string" ? null : changed;
}

type ComponentItems = {
  readonly verificationMethod?: VerificationMethod | null;
  readonly keyAgreement?: KeyAgreement | null;
  readonly service?: Service | null;
  readonly id?: string | null;
};
export type ComponentList = Exclude<keyof DidDocument, "id">;
type Component = string | { readonly id: string };

const componentId = (component: Component): string =>
  typeof component === "string" ? component : component.id;

/** `AddKeyAgreement` adds to `keyAgreement`. */
export function componentOf(action: DocumentAction): {
  readonly verb: string;
  readonly list: ComponentList;
} {
  const [, verb = "", name = ""] = /^(Add|Update|Remove)(.+)$/.exec(action) ?? [];
  return { verb, list: `${name.charAt(0).toLowerCase()}${name.slice(1)}` as ComponentList };
}
