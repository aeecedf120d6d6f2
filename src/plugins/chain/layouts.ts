/**
 * What the program assumes about a chain. First the items of storage that it reads, with
 * the calls of `core/ledger/calls.ts`: the start-up check compares a chain's metadata with
 * both. Then how a call becomes an extrinsic, signed by the operator (version 4) or with
 * its own proof (version 5, without a signature), and what the extrinsics of a block carry.
 * The chain library has what each transaction extension adds; one that it does not know
 * must add nothing.
 * Source: docs/ledger.md 1.1 to 1.9, rules section 1, checked against the reference
 * runtime.
 */
import { Struct, TypeRegistry } from "@polkadot/types";
import { allExtensions, expandExtensionTypes } from "@polkadot/types/extrinsic/signedExtensions";
import { compactAddLength, compactFromU8aLim } from "@polkadot/util";
import { concatBytes, encodeHex0x } from "../../core/codec/bytes.ts";
import { blake2b256 } from "../../core/codec/crypto.ts";
import { boolean, u32, u64 } from "../../core/codec/scale.ts";
import {
  aliasReserveCodec,
  deliveryPolicyCodec,
  type LedgerBoundName,
  personaPolicyCodec,
  recordCodec,
} from "../../core/ledger/account.ts";
import {
  type CallIndices,
  encodeLedgerCall,
  type LedgerCall,
  type LedgerCallName,
  type PalletName,
} from "../../core/ledger/calls.ts";

/** Used when neither the chain nor the configuration has one. */
export const blockTimeMsDefault = 6_000;

type StorageItem = {
  readonly pallet: PalletName | "System" | "Timestamp";
  /** Of the value, as `Codec.shape`; `null` for what the framework lays out. */
  readonly value: string | null;
  /** Every map of ours is keyed by a byte string under `Blake2_128Concat`. */
  readonly isPlain?: true;
  /**
   * What a chain without it lacks. It is used nevertheless: the log names this, and an
   * absent map has no entry.
   */
  readonly lack?: string;
  /**
   * A chain of the family has something of another kind under this name: then it counts as
   * absent.
   */
  readonly mayDiffer?: true;
};

const pallet = "DidRegistry";
const counter = { pallet, value: u64.shape } as const;
const policies = { pallet: "DeliveryPolicy", value: deliveryPolicyCodec.shape } as const;

/** What the program reads of a chain's storage. */
export const items = {
  Account: { pallet: "System", value: null },
  Now: { pallet: "Timestamp", value: null },
  Dids: { pallet, value: recordCodec.shape },
  AliasIndex: { pallet, value: "bytes" },
  AliasNonces: counter,
  DocumentNonces: counter,
  RootPubkeyNonces: counter,
  ControlNonces: counter,
  RecipientPolicies: policies,
  TagPolicies: policies,
  PersonaPolicies: {
    pallet: "DeliveryPolicy",
    value: personaPolicyCodec.shape,
    lack: "policies of personas with price, retention and relays",
    mayDiffer: true,
  },
  /** When the document of a DID was signed last, in ms. */
  DocumentTimes: { ...counter, lack: "times of documents: an older one can replace a newer one" },
  /** Until when a proof may register the DID again after a deletion, in ms. */
  RegistrationExpiries: {
    ...counter,
    lack: "ends of registrations: an old proof registers a deleted DID again",
  },
  /** For whom an alias that was released is reserved. */
  ReleasedAliases: {
    pallet,
    value: aliasReserveCodec.shape,
    lack: "aliases that only the keys of a DID change, reserved after their release",
  },
  /** How often a DID was deleted. */
  Lives: { pallet, value: u32.shape, lack: "a count of how often a DID was deleted" },
  /**
   * The block at which the allowance of a DID for calls with a proof is whole again; only
   * checked to be there.
   */
  ProofAllowances: { pallet, value: u32.shape, lack: "a limit of calls with a proof for each DID" },
  /** The component calls of a self-certifying DID before the next whole document. */
  ComponentCallsLeft: {
    pallet,
    value: u32.shape,
    lack: "names that only their first key registers",
  },
  /** Whether the chain accepts proofs of versions before 3 as well. */
  PlainProofs: {
    pallet,
    value: boolean.shape,
    isPlain: true,
    lack: "proofs that bind the chain and the submitting account (version 3)",
  },
} as const satisfies Readonly<Record<string, StorageItem>>;

export type StorageItemName = keyof typeof items;
export const itemOf = (name: StorageItemName): StorageItem => items[name];

/** Calls that a chain need not take as they are here: the driver refuses them there. */
export const optionalCalls: ReadonlySet<LedgerCallName> = new Set<LedgerCallName>([
  "set_delivery_policy",
  "set_tag_policy",
  "set_persona_policy",
]);
/** The error with which a chain that has it meets each of these calls. */
export const optionalCallsError = "LegacyPolicyDeprecated";

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

/**
 * A pallet of a chain's metadata: shapes by the names of items, calls and constants by
 * their names, names of errors.
 */
export type PalletShape = {
  readonly calls: ReadonlyMap<string, { readonly indices: Uint8Array; readonly shape: string }>;
  readonly storage: ReadonlyMap<string, string>;
  readonly constants: ReadonlyMap<string, Uint8Array>;
  readonly errors: ReadonlySet<string>;
};
export type ChainShape = ReadonlyMap<string, PalletShape>;

/** What a chain lacks of the reference runtime. It is used nevertheless, and the log names it. */
export function lackOf(
  chain: ChainShape,
  absent: ReadonlySet<StorageItemName>,
  taken: CallIndices,
): string[] {
  const lacks = [...absent].map((name) => String(itemOf(name).lack));
  const own = chain.get(pallet);
  if (!own?.constants.has("RecordDeposit")) lacks.push("a deposit for every record");
  if (own?.calls.has("register_with_document_proof"))
    lacks.push("no registrations without an account");
  for (const name of optionalCalls) if (!taken.has(name)) lacks.push(`the call ${name}`);
  if (chain.has("Sudo")) lacks.push("no key that rules the chain (Sudo)");
  return lacks;
}

// -------------------------------------------------------------------------------------- extrinsics

/** What surrounds a call in an extrinsic at one runtime version. */
export type Frame = {
  readonly specName: string;
  readonly specVersion: number;
  readonly transactionVersion: number;
  readonly genesis: Uint8Array;
  /** Names of the transaction extensions, in their order. */
  readonly extensions: readonly string[];
  /** Pallet index and call index of each call: the first two bytes of its encoding. */
  readonly callIndices: CallIndices;
};

/** A life in blocks: from the block named by its number and hash on, for `periodBlocks`. */
type Era = {
  readonly birth: bigint;
  readonly birthHash: Uint8Array;
  readonly periodBlocks: number;
};

export type OperatorKey = {
  readonly publicKey: Uint8Array;
  /** Index of the key's kind in the chain's enumeration of signatures. */
  readonly scheme: 0 | 1;
  readonly sign: (message: Uint8Array) => Uint8Array;
};

/** `tip`: what the operator adds to the fee, in the smallest unit. */
type ExtrinsicTerms = { readonly era: Era; readonly nonce: number; readonly tip: bigint };

const registry = new TypeRegistry();

/** Whether the library has what an extension adds; any other must add nothing. */
export const isKnownExtension = (name: string): boolean => Object.hasOwn(allExtensions, name);

/** What the extensions add to an extrinsic (`extrinsic`), or only to what is signed (`payload`). */
const added = ({ extensions }: Frame, part: "extrinsic" | "payload", given: object) =>
  new Struct(registry, expandExtensionTypes([...extensions], part), given);

const explicitBytes = ({ era, nonce, tip }: ExtrinsicTerms, frame: Frame): Uint8Array => {
  // No metadata hash: mode 0, and none of the option.
  const given = {
    era: { current: Number(era.birth), period: era.periodBlocks },
    nonce,
    tip,
    mode: 0,
  };
  return added(frame, "extrinsic", given).toU8a();
};

const implicitBytes = ({ era }: ExtrinsicTerms, frame: Frame): Uint8Array => {
  const { specVersion, transactionVersion, genesis: genesisHash } = frame;
  const given = {
    specVersion,
    transactionVersion,
    genesisHash,
    blockHash: era.birthHash,
    metadataHash: null,
  };
  return added(frame, "payload", given).toU8a();
};

/** Whether the operator signs the call; every other call has a proof of its own. */
export function isOwned(call: LedgerCall): boolean {
  return !("signedPayload" in call) && call.name !== "set_document_with_proof";
}

/** An extrinsic, and how blocks show its call. */
type Encoded = { readonly extrinsic: Uint8Array; readonly fingerprint: string };

/** `nonce`: the operator's, `null` for a call with its own proof. */
export function encodeExtrinsic(
  call: LedgerCall,
  { era, nonce, tip }: Omit<ExtrinsicTerms, "nonce"> & { readonly nonce: number | null },
  given: { readonly frame: Frame; readonly key: OperatorKey },
): Encoded {
  const bytes = encodeLedgerCall(call, given.frame.callIndices);
  const extrinsic =
    nonce === null
      ? generalExtrinsic(bytes, era, given.frame)
      : signedExtrinsic(bytes, { era, nonce, tip }, given);
  const submitter = nonce === null ? null : given.key.publicKey;
  return { extrinsic, fingerprint: fingerprintOf({ call: bytes, submitter, nonce: nonce ?? 0 }) };
}

const signedVersion = 0x84;
const generalVersion = 0x45;
const extensionVersion = 0;
/** A longer payload is signed by its hash. */
const signedBytesMax = 256;

function signedExtrinsic(
  call: Uint8Array,
  terms: ExtrinsicTerms,
  given: { frame: Frame; key: OperatorKey },
): Uint8Array {
  const { frame, key } = given;
  const explicit = explicitBytes(terms, frame);
  const payload = concatBytes(call, explicit, implicitBytes(terms, frame));
  const signature = key.sign(payload.length > signedBytesMax ? blake2b256(payload) : payload);
  const address = concatBytes(Uint8Array.of(0), key.publicKey);
  return compactAddLength(
    concatBytes(
      Uint8Array.of(signedVersion),
      address,
      Uint8Array.of(key.scheme),
      signature,
      explicit,
      call,
    ),
  );
}

function generalExtrinsic(call: Uint8Array, era: Era, frame: Frame): Uint8Array {
  const head = Uint8Array.of(generalVersion, extensionVersion);
  return compactAddLength(
    concatBytes(head, explicitBytes({ era, nonce: 0, tip: 0n }, frame), call),
  );
}

/** The hash that a node gives an extrinsic. */
export const extrinsicHash = (extrinsic: Uint8Array): string => encodeHex0x(blake2b256(extrinsic));

/**
 * A call in a block, and the account that signed it with its nonce; `null` for a call with
 * its own proof.
 */
export type Carried = {
  readonly call: Uint8Array;
  readonly submitter: Uint8Array | null;
  readonly nonce: number;
};
/**
 * Bytes of the length before an extrinsic, by the two lowest bits; the fourth form is for
 * more than a gigabyte.
 */
const lengthBytes = [1, 2, 4];
/**
 * By the kinds of `sp_runtime::MultiSignature`: Ed25519, sr25519, ECDSA, and ECDSA with an
 * address of Ethereum.
 */
const signatureBytes = [64, 64, 65, 65];
/** Version, kind of address, account, kind of key. */
const signedHeadBytes = 35;

/**
 * What an extrinsic has before its extensions, in every runtime; `null` when it is of the
 * block's author, or of no known form.
 */
export function headOf(
  extrinsic: Uint8Array,
): { readonly submitter: Uint8Array | null; readonly end: number } | null {
  const at = lengthBytes[(extrinsic[0] ?? 0) & 3] ?? extrinsic.length;
  const [version, next] = extrinsic.subarray(at);
  if (version === generalVersion && next === extensionVersion)
    return { submitter: null, end: at + 2 };
  const kind = extrinsic[at + signedHeadBytes - 1];
  const bytes = kind === undefined ? undefined : signatureBytes[kind];
  if (version !== signedVersion || next !== 0 || bytes === undefined) return null;
  return { submitter: extrinsic.slice(at + 2, at + 34), end: at + signedHeadBytes + bytes };
}

/**
 * The bytes that an extension has in an extrinsic, for those of the reference runtime: a
 * block has as many extrinsics of strangers as they pay for, and the library builds an
 * object for each.
 */
const explicitKinds: Readonly<Record<string, "era" | "compact" | "byte">> = {
  CheckEra: "era",
  CheckMortality: "era",
  CheckNonce: "compact",
  ChargeTransactionPayment: "compact",
  CheckMetadataHash: "byte",
};

/** Whether every extension of a frame has bytes that are known here, or none by the library. */
const isPlain = (name: string): boolean =>
  Object.hasOwn(explicitKinds, name) ||
  Object.keys(allExtensions[name]?.extrinsic ?? {}).length === 0;

/**
 * Where the call begins behind its extensions, and the nonce among them; throws when they
 * can't be read.
 */
function afterExtensions(
  rest: Uint8Array,
  frame: Frame,
): { readonly at: number; readonly nonce: number } {
  if (!frame.extensions.every(isPlain)) {
    const extensions = added(frame, "extrinsic", rest);
    return { at: extensions.encodedLength, nonce: Number(extensions.get("nonce")) };
  }
  let [at, nonce] = [0, 0];
  for (const name of frame.extensions) {
    const kind = explicitKinds[name];
    if (kind === "era") at += rest[at] === 0 ? 1 : 2;
    else if (kind === "byte") at++;
    else if (kind === "compact") {
      if (name === "CheckNonce") nonce = compactFromU8aLim(rest.subarray(at))[1];
      at += compactBytes(rest[at] ?? 0);
    }
  }
  if (at > rest.length) throw new RangeError("the extrinsic ends among its extensions");
  return { at, nonce };
}

/** The bytes of a compact number: 1, 2 or 4, or as many as the first one says. */
const compactBytes = (first: number): number => lengthBytes[first & 3] ?? (first >>> 2) + 5;

/** Whether the first two bytes of a call name one of ours. */
export function isOurs(call: Uint8Array, { callIndices }: Frame): boolean {
  for (const [pallet, index] of callIndices.values())
    if (call[0] === pallet && call[1] === index) return true;
  return false;
}

/**
 * `null` also when its extensions can't be read: an extrinsic of a stranger must not hide
 * the others of its block.
 */
export function carriedBy(extrinsic: Uint8Array, frame: Frame): Carried | null {
  const head = headOf(extrinsic);
  if (head === null) return null;
  const rest = extrinsic.subarray(head.end);
  try {
    const { at, nonce } = afterExtensions(rest, frame);
    return { call: rest.subarray(at), submitter: head.submitter, nonce };
  } catch {
    return null;
  }
}

/**
 * How blocks show a call, in whatever extrinsic: a proof that others submit has the same
 * effect, and of those that an account signs for one nonce only one enters.
 */
export const fingerprintOf = ({ call, submitter, nonce }: Carried): string =>
  submitter === null
    ? `call ${encodeHex0x(blake2b256(call))}`
    : `${nonce} ${encodeHex0x(blake2b256(concatBytes(submitter, call)))}`;
