/**
 * From a call to its extrinsic: calls signed by the operator (version 4) and general ones that carry their own proof
 * (version 5, without a signature); and from the extrinsics of a block back to their fingerprints. The table lists
 * once what each transaction extension adds; one that is not listed must add nothing.
 * Source: docs/ledger.md 1.7 ("Extrinsics"), checked against the reference runtime.
 */
import { concatBytes, encodeHex0x } from "../../core/codec/bytes.ts";
import { blake2b256 } from "../../core/codec/crypto.ts";
import { encodeLedgerCall, type LedgerCall, type LedgerCallName } from "../../core/ledger/calls.ts";

/** What a chain at one runtime version wants around a call. */
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

/** Whether the operator signs the call; every other call carries a proof of its own. */
export function isOwned(call: LedgerCall): boolean {
  return !("signedPayload" in call) && call.name !== "set_document_with_proof";
}

/** The call's bytes on this chain: its own two index bytes, and the arguments as everywhere. */
export function encodeCall(call: LedgerCall, { callIndices }: Frame): Uint8Array {
  return concatBytes(callIndices.get(call.name) as Uint8Array, encodeLedgerCall(call).subarray(2));
}

/** An extrinsic, and how blocks show it: by its hash, or by the fingerprint of a call that carries its own proof. */
type Encoded = { readonly extrinsic: Uint8Array; readonly fingerprint: string };

/** `nonce`: the operator's, `null` for a call that carries its own proof. */
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

export function signedExtrinsic(call: Uint8Array, terms: Terms, given: { frame: Frame; key: OperatorKey }): Uint8Array {
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

export function generalExtrinsic(call: Uint8Array, era: Era, frame: Frame): Uint8Array {
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

/** The fingerprint of a call that carries its own proof. */
export const callFingerprint = (call: Uint8Array): string => `call ${encodeHex0x(blake2b256(call))}`;

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
function compactLength(bytes: Uint8Array): number {
  const first = bytes[0] ?? 0;
  return [1, 2, 4, 5 + (first >> 2)][first & 3] as number;
}

function prefixed(bytes: Uint8Array): Uint8Array {
  return concatBytes(encodeCompact(bytes.length), bytes);
}
