/**
 * What the program assumes about a chain. First what it reads and writes, as the type signatures of `metadata.ts`: calls
 * with their arguments, storage maps with their values, constants; the start-up check compares a chain's metadata with
 * it. Then how a call becomes an extrinsic, signed by the operator (version 4) or with its own proof (version 5, without
 * a signature), and how the extrinsics of a block become their fingerprints again. One table lists what each
 * transaction extension adds; one that is not listed must add nothing.
 * Source: docs/ledger.md 1.1 to 1.9, rules section 1, checked against the reference runtime.
 */
import { concatBytes, encodeHex0x } from "../../core/codec/bytes.ts";
import { blake2b256 } from "../../core/codec/crypto.ts";
import type { LedgerBoundName } from "../../core/ledger/account.ts";
import { actionRows, type ItemName } from "../../core/ledger/actions.ts";
import { encodeLedgerCall, type LedgerCall, type LedgerCallName, type ProofCall } from "../../core/ledger/calls.ts";

/** Used when neither the chain nor the configuration has one. */
export const blockTimeMsDefault = 6_000;

/** The names of the pallets, by their role. */
export const palletNames = { did_registry: "DidRegistry", delivery_policy: "DeliveryPolicy" } as const;
export type PalletRole = keyof typeof palletNames;

const method = "(bytes,bytes,bytes,bytes)";
const service = "(bytes,bytes,[bytes],[bytes]?,u32?)";
const document = `(bytes,[${method}],[bytes]?,[${method}],[${service}]?)`;
const links = "(bytes?,[bytes],[bytes])";
const record = `(u8*32?,[bytes]?,[(bytes,u64,bool)]?,${document}?,u64,u64,bytes?,${links}?,bool)`;
const expiration = "0:DeleteOnExpiry|1:KeepHeaderPreview|2:TombstoneReference";
const policy = `(u32,u32,bool,u8?,u32?,(u128,u128)?,${expiration}?)`;
const persona = `((bytes,u128)?,(${expiration},u64?)?,[bytes])`;

type CallLayout = { readonly pallet: PalletRole; readonly layout: readonly string[] };
const registry = (layout: readonly string[]): CallLayout => ({ pallet: "did_registry", layout });
const policies = (layout: readonly string[]): CallLayout => ({ pallet: "delivery_policy", layout });

/** The type of an item of a signed action as an argument; every other one is bytes. */
const itemLayouts: Partial<Record<ItemName, string>> = {
  verificationMethod: method,
  keyAgreement: method,
  service,
};
/** The payload, its signature, who signed. */
const proof = ["bytes", "bytes", "bytes"];

/** The calls that a key of the DID signs: the DID and the items, which a control payload holds itself. */
const proofLayouts = Object.fromEntries(
  Object.values(actionRows).map(({ call, counter, items }) => [
    call,
    registry(counter === "control" ? proof : ["bytes", ...items.map((item) => itemLayouts[item] ?? "bytes"), ...proof]),
  ]),
) as Readonly<Record<ProofCall["name"], CallLayout>>;

export const callLayouts: Readonly<Record<LedgerCallName, CallLayout>> = {
  ...proofLayouts,
  set_alias: registry(["bytes", "bytes"]),
  set_document_with_proof: registry(["bytes", "bytes", "bytes", "bytes", "bytes"]),
  register_with_document_proof_signed: registry(["bytes", "bytes?", "bytes", "bytes", "bytes", "bytes"]),
  set_delivery_policy_links: registry(["bytes", "bytes?", "[bytes]", "[bytes]"]),
  set_delivery_policy: policies(["bytes", policy]),
  set_tag_policy: policies(["bytes", policy]),
  set_persona_policy: policies(["bytes", persona]),
};

type MapLayout = { readonly pallet: PalletRole; readonly value: string };
const counter = { pallet: "did_registry", value: "u64" } as const;

/** Every map is keyed by a byte string under `Blake2_128Concat`. */
export const mapLayouts = {
  Dids: { pallet: "did_registry", value: record },
  AliasIndex: { pallet: "did_registry", value: "bytes" },
  AliasNonces: counter,
  DocumentNonces: counter,
  RootPubkeyNonces: counter,
  ControlNonces: counter,
  RecipientPolicies: { pallet: "delivery_policy", value: policy },
  TagPolicies: { pallet: "delivery_policy", value: policy },
} as const satisfies Readonly<Record<string, MapLayout>>;

/**
 * Items that a chain need not have, with the layout they must have; a map without an entry is 0. Maps are keyed as those
 * above.
 */
export const optionalLayouts = {
  /** When the document of a DID was signed last, in ms. */
  DocumentTimes: { pallet: "did_registry", value: "u64", isMap: true },
  /** Until when a proof may register the DID again after a deletion, in ms. */
  RegistrationExpiries: { pallet: "did_registry", value: "u64", isMap: true },
  /** A chain of the family has a policy of another kind under this name: then it counts as absent. */
  PersonaPolicies: { pallet: "delivery_policy", value: persona, isMap: true, mayDiffer: true },
  /** How often a DID was deleted. */
  Lives: { pallet: "did_registry", value: "u32", isMap: true },
  /** The block at which the allowance of a DID for calls with a proof is whole again. */
  ProofAllowances: { pallet: "did_registry", value: "u32", isMap: true },
  /** Exists where the chain holds self-certifying DIDs to their rules: the component calls before the next whole document. */
  ComponentCallsLeft: { pallet: "did_registry", value: "u32", isMap: true },
  /** Exists where the chain knows version 3 of the proofs: whether it accepts the others as well. */
  PlainProofs: { pallet: "did_registry", value: "bool", isMap: false },
} as const satisfies Readonly<Record<string, MapLayout & { readonly isMap: boolean; readonly mayDiffer?: true }>>;

/** Calls that a chain need not take as they are here: the driver refuses them there. */
export const optionalCalls: ReadonlySet<LedgerCallName> = new Set<LedgerCallName>(["set_persona_policy"]);

export type OptionalName = keyof typeof optionalLayouts;
export type MapName = keyof typeof mapLayouts;

/** The build of the reference runtime that breaks rules on command, for tests of the tests. */
export const canaryName = "waypost-canary";

/** The pallet constant behind each bound. */
export const boundConstants: Readonly<Record<LedgerBoundName, string>> = {
  didBytes: "MaxDidLen",
  idBytes: "MaxIdLen",
  verificationMethods: "MaxVMs",
  keyAgreements: "MaxKAs",
  authentications: "MaxRefsPerRel",
  services: "MaxServices",
  serviceEndpoints: "MaxServiceEndpoints",
  serviceEndpointBytes: "MaxServiceEndpointUrlLen",
  serviceAuthorizations: "MaxServiceAuthorizationKeys",
  typeBytes: "MaxVMTypeLen",
  keyMultibaseBytes: "MaxKeyMultibaseLen",
  documentBytes: "MaxDocLen",
  aliasBytes: "MaxAliasLen",
  aliases: "MaxAliases",
  policyRefs: "MaxPolicyRefs",
  policyRefBytes: "MaxPolicyRefLen",
};

/** Names in a chain's metadata: its pallets, the items of the pallet of DIDs by kind, and our calls that it takes. */
export type Inventory = Readonly<Record<"pallets" | "calls" | "constants" | "storage" | "taken", ReadonlySet<string>>>;

/**
 * Protections of the reference runtime against abuse, and how the metadata shows them. A chain that lacks some is used
 * nevertheless, and the log names them.
 */
const protections: readonly { readonly name: string; readonly isThere: (chain: Inventory) => boolean }[] = [
  {
    name: "proofs that bind the chain and the submitting account (version 3)",
    isThere: ({ storage }) => storage.has("PlainProofs"),
  },
  { name: "a deposit for every record", isThere: ({ constants }) => constants.has("RecordDeposit") },
  {
    name: "no registrations without an account",
    isThere: ({ calls }) => !calls.has("register_with_document_proof"),
  },
  { name: "a count of how often a DID was deleted", isThere: ({ storage }) => storage.has("Lives") },
  { name: "names that only their first key registers", isThere: ({ storage }) => storage.has("ComponentCallsLeft") },
  {
    name: "times of documents: an older one can replace a newer one",
    isThere: ({ storage }) => storage.has("DocumentTimes"),
  },
  {
    name: "ends of registrations: an old proof registers a deleted DID again",
    isThere: ({ storage }) => storage.has("RegistrationExpiries"),
  },
  {
    name: "persona policies with price, retention and relays: they can't be set",
    isThere: ({ taken }) => taken.has("set_persona_policy"),
  },
  { name: "a limit of calls with a proof for each DID", isThere: ({ constants }) => constants.has("ProofsAtOnce") },
  { name: "no key that rules the chain (Sudo)", isThere: ({ pallets }) => !pallets.has("Sudo") },
];

export const lackingProtections = (chain: Inventory): string[] =>
  protections.filter(({ isThere }) => !isThere(chain)).map(({ name }) => name);

// -------------------------------------------------------------------------------------------------------- extrinsics

/** What surrounds a call in an extrinsic at one runtime version. */
export type Frame = {
  readonly specVersion: number;
  readonly transactionVersion: number;
  readonly genesis: Uint8Array;
  /** Names of the transaction extensions, in their order. */
  readonly extensions: readonly string[];
  /** Pallet index and call index of each call: the first two bytes of its encoding. */
  readonly callIndices: ReadonlyMap<LedgerCallName, Uint8Array>;
};

/** A life in blocks: from the block named by its number and hash on, for `periodBlocks`. */
type Era = { readonly birth: bigint; readonly birthHash: Uint8Array; readonly periodBlocks: number };

export type OperatorKey = {
  readonly publicKey: Uint8Array;
  /** Index of the key's kind in the chain's enumeration of signatures. */
  readonly scheme: 0 | 1;
  readonly sign: (message: Uint8Array) => Uint8Array;
};

/** `tip`: what the operator adds to the fee, in the smallest unit. */
type Terms = { readonly era: Era; readonly nonce: number; readonly tip: bigint };
type Extension = {
  readonly explicit?: (terms: Terms) => Uint8Array;
  readonly implicit?: (terms: Terms, frame: Frame) => Uint8Array;
  /** How many bytes of its own `bytes` begins with. */
  readonly length?: (bytes: Uint8Array) => number;
};

const mortality: Extension = {
  explicit: ({ era }) => encodeEra(era),
  implicit: ({ era }) => era.birthHash,
  length: (bytes) => (bytes[0] === 0 ? 1 : 2),
};

/** Extensions that add bytes, to the extrinsic (explicit) or to what is signed only (implicit). */
const extensions: Readonly<Record<string, Extension>> = {
  CheckSpecVersion: { implicit: (_, frame) => u32(frame.specVersion) },
  CheckTxVersion: { implicit: (_, frame) => u32(frame.transactionVersion) },
  CheckGenesis: { implicit: (_, frame) => frame.genesis },
  CheckMortality: mortality,
  CheckEra: mortality,
  CheckNonce: { explicit: ({ nonce }) => encodeCompact(nonce), length: compactLength },
  ChargeTransactionPayment: { explicit: ({ tip }) => encodeCompact(tip), length: compactLength },
  // No metadata hash: mode 0, and none of the option.
  CheckMetadataHash: { explicit: () => Uint8Array.of(0), implicit: () => Uint8Array.of(0), length: () => 1 },
};

/** Whether the program knows what an extension adds; any other must add nothing. */
export const isKnownExtension = (name: string): boolean => Object.hasOwn(extensions, name);

/** Whether the operator signs the call; every other call has a proof of its own. */
export function isOwned(call: LedgerCall): boolean {
  return !("signedPayload" in call) && call.name !== "set_document_with_proof";
}

/** The call's bytes on this chain: its own two index bytes, and the arguments as everywhere. */
function encodeCall(call: LedgerCall, { callIndices }: Frame): Uint8Array {
  return concatBytes(callIndices.get(call.name) as Uint8Array, encodeLedgerCall(call).subarray(2));
}

/** An extrinsic, and how blocks show it: by its hash, or by the fingerprint of a call with its own proof. */
type Encoded = { readonly extrinsic: Uint8Array; readonly fingerprint: string };

/** `nonce`: the operator's, `null` for a call with its own proof. */
export function encodeExtrinsic(
  call: LedgerCall,
  { era, nonce, tip }: Omit<Terms, "nonce"> & { readonly nonce: number | null },
  given: { readonly frame: Frame; readonly key: OperatorKey },
): Encoded {
  const bytes = encodeCall(call, given.frame);
  if (nonce === null)
    return { extrinsic: generalExtrinsic(bytes, era, given.frame), fingerprint: callFingerprint(bytes) };
  const extrinsic = signedExtrinsic(bytes, { era, nonce, tip }, given);
  return { extrinsic, fingerprint: extrinsicHash(extrinsic) };
}

const signedVersion = 0x84;
const generalVersion = 0x45;
const extensionVersion = 0;
/** A longer payload is signed by its hash. */
const signedBytesMax = 256;

function signedExtrinsic(call: Uint8Array, terms: Terms, given: { frame: Frame; key: OperatorKey }): Uint8Array {
  const { frame, key } = given;
  const explicit = explicitBytes(terms, frame);
  const implicit = frame.extensions.map((name) => extensions[name]?.implicit?.(terms, frame) ?? nothing);
  const payload = concatBytes(call, explicit, ...implicit);
  const signature = key.sign(payload.length > signedBytesMax ? blake2b256(payload) : payload);
  const address = concatBytes(Uint8Array.of(0), key.publicKey);
  return prefixed(
    concatBytes(Uint8Array.of(signedVersion), address, Uint8Array.of(key.scheme), signature, explicit, call),
  );
}

function generalExtrinsic(call: Uint8Array, era: Era, frame: Frame): Uint8Array {
  const head = Uint8Array.of(generalVersion, extensionVersion);
  return prefixed(concatBytes(head, explicitBytes({ era, nonce: 0, tip: 0n }, frame), call));
}

const nothing = new Uint8Array(0);

function explicitBytes(terms: Terms, frame: Frame): Uint8Array {
  return concatBytes(...frame.extensions.map((name) => extensions[name]?.explicit?.(terms) ?? nothing));
}

/** The hash that a node gives an extrinsic. */
export const extrinsicHash = (extrinsic: Uint8Array): string => encodeHex0x(blake2b256(extrinsic));

export const isGeneral = (extrinsic: Uint8Array): boolean => {
  const at = compactLength(extrinsic);
  return extrinsic[at] === generalVersion && extrinsic[at + 1] === extensionVersion;
};

/**
 * The fingerprints of an extrinsic of a block: its hash, and for a general one also the hash of its call,
 * because the same proof submitted by others in another frame has the same effect.
 */
export function fingerprintsOf(extrinsic: Uint8Array, frame: Frame): string[] {
  const hash = extrinsicHash(extrinsic);
  if (!isGeneral(extrinsic)) return [hash];
  let at = compactLength(extrinsic) + 2;
  for (const name of frame.extensions) at += extensions[name]?.length?.(extrinsic.subarray(at)) ?? 0;
  return [hash, callFingerprint(extrinsic.subarray(at))];
}

/** The fingerprint of a call with its own proof. */
const callFingerprint = (call: Uint8Array): string => `call ${encodeHex0x(blake2b256(call))}`;

// ----------------------------------------------------------------------------------------------- bytes

/** The period is a power of two from 4 to 65,536; above 4,096 births are rounded, so it stays below. */
function encodeEra({ birth, periodBlocks }: Era): Uint8Array {
  const phase = Number(birth % BigInt(periodBlocks));
  const code = Math.min(15, Math.max(1, Math.log2(periodBlocks) - 1)) | (phase << 4);
  return Uint8Array.of(code & 0xff, code >> 8);
}

function u32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value, true);
  return bytes;
}

/** A SCALE compact number of up to 128 bits. */
export function encodeCompact(value: number | bigint): Uint8Array {
  const n = BigInt(value);
  if (n < 64n) return Uint8Array.of(Number(n) << 2);
  if (n < 16_384n) return Uint8Array.of(((Number(n) << 2) & 0xff) | 1, Number(n) >> 6);
  if (n < 2n ** 30n) return u32(Number(n) * 4 + 2);
  const hex = n.toString(16);
  const bytes = Uint8Array.fromHex(hex.padStart(Math.max(8, hex.length + (hex.length % 2)), "0")).reverse();
  return concatBytes(Uint8Array.of(((bytes.length - 4) << 2) | 3), bytes);
}

/** Bytes of the compact number that `bytes` begin with. */
export function compactLength(bytes: Uint8Array): number {
  const first = bytes[0] ?? 0;
  return [1, 2, 4, 5 + (first >> 2)][first & 3] as number;
}

function prefixed(bytes: Uint8Array): Uint8Array {
  return concatBytes(encodeCompact(bytes.length), bytes);
}
