/**
 * Extrinsics as bytes: calls signed by the operator (version 4) and general ones that carry their own
 * proof (version 5, without a signature), and from the extrinsics of a block back to what identifies them.
 * What each transaction extension adds is told here once; one that is not listed must add nothing.
 * Source: docs/ledger.md 1.7 ("How proof calls are submitted"), checked against the reference runtime.
 */
import { concatBytes, encodeHex0x } from "../../core/codec/bytes.ts";
import { blake2b256 } from "../../core/codec/hash.ts";

/** What a chain at one runtime version wants around a call. */
export type Frame = {
  readonly specVersion: number;
  readonly transactionVersion: number;
  readonly genesis: Uint8Array;
  /** Names of the transaction extensions, in their order. */
  readonly extensions: readonly string[];
};

/** A life in blocks: from the block named by its number and hash on, for `periodBlocks`. */
export type Era = { readonly birth: bigint; readonly birthHash: Uint8Array; readonly periodBlocks: number };

export type OperatorKey = {
  readonly publicKey: Uint8Array;
  /** Index of the key's kind in the chain's enumeration of signatures. */
  readonly scheme: 0 | 1;
  readonly sign: (message: Uint8Array) => Uint8Array;
};

type Terms = { readonly era: Era; readonly nonce: number };
type Extension = {
  readonly explicit?: (terms: Terms) => Uint8Array;
  readonly implicit?: (terms: Terms, frame: Frame) => Uint8Array;
  /** How many bytes of its own stand at the beginning of `bytes`. */
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
  // A tip of zero.
  ChargeTransactionPayment: { explicit: () => encodeCompact(0), length: compactLength },
  // No metadata hash: mode 0, and none of the option.
  CheckMetadataHash: { explicit: () => Uint8Array.of(0), implicit: () => Uint8Array.of(0), length: () => 1 },
};

/** Whether the program knows what an extension adds; any other must add nothing. */
export const isKnownExtension = (name: string): boolean => Object.hasOwn(extensions, name);

const signedVersion = 0x84;
const generalVersion = 0x45;
const extensionVersion = 0;
/** What is longer is signed by its hash. */
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
  return prefixed(concatBytes(head, explicitBytes({ era, nonce: 0 }, frame), call));
}

const nothing = new Uint8Array(0);

function explicitBytes(terms: Terms, frame: Frame): Uint8Array {
  return concatBytes(...frame.extensions.map((name) => extensions[name]?.explicit?.(terms) ?? nothing));
}

/** The hash that a node gives an extrinsic. */
export const extrinsicHash = (extrinsic: Uint8Array): string => encodeHex0x(blake2b256(extrinsic));

/**
 * What tells an extrinsic of a block from all others: its hash, and for a general one also the hash of its
 * call, because whoever else hands in the same proof in another frame has the same effect.
 */
export function marksOf(extrinsic: Uint8Array, frame: Frame): string[] {
  const marks = [extrinsicHash(extrinsic)];
  let at = compactLength(extrinsic);
  if (extrinsic[at] !== generalVersion || extrinsic[at + 1] !== extensionVersion) return marks;
  at += 2;
  for (const name of frame.extensions) at += extensions[name]?.length?.(extrinsic.subarray(at)) ?? 0;
  return [...marks, callMark(extrinsic.subarray(at))];
}

/** The mark of a call that carries its own proof. */
export const callMark = (call: Uint8Array): string => `call ${encodeHex0x(blake2b256(call))}`;

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

export function encodeCompact(value: number): Uint8Array {
  if (value < 64) return Uint8Array.of(value << 2);
  if (value < 16_384) return Uint8Array.of(((value << 2) & 0xff) | 1, value >> 6);
  if (value >= 2 ** 30) return concatBytes(Uint8Array.of(3), u32(value));
  return u32(value * 4 + 2);
}

/** Bytes of the compact number that `bytes` begin with. */
function compactLength(bytes: Uint8Array): number {
  const first = bytes[0] ?? 0;
  return [1, 2, 4, 5 + (first >> 2)][first & 3] as number;
}

function prefixed(bytes: Uint8Array): Uint8Array {
  return concatBytes(encodeCompact(bytes.length), bytes);
}
