/**
 * What nodes answer, read from JSON. A node is not trusted to keep to the form: each function throws when
 * it does not, and the session leaves such a node.
 */
import type { RuntimeVersion } from "./surface.ts";

export type Header = { readonly number: bigint; readonly parentHash: string };
export type SignedBlock = { readonly header: Header; readonly extrinsics: readonly Uint8Array[] };

export function hashOf(answer: unknown): string {
  if (typeof answer === "string" && /^0x[0-9a-f]{64}$/.test(answer)) return answer;
  throw new Error("it is no hash");
}

export function headerOf(answer: unknown): Header {
  const { number, parentHash } = membersOf(answer);
  return { number: BigInt(textOf(number)), parentHash: hashOf(parentHash) };
}

/** `null` when the node has let go of the block. */
export function blockOf(answer: unknown): SignedBlock | null {
  if (answer === null) return null;
  const { header, extrinsics } = membersOf(membersOf(answer)["block"]);
  return { header: headerOf(header), extrinsics: listOf(extrinsics).map(bytesOf) };
}

export function versionOf(answer: unknown): RuntimeVersion {
  const { specVersion, transactionVersion } = membersOf(answer);
  return { specVersion: countOf(specVersion), transactionVersion: countOf(transactionVersion) };
}

export function isSyncing(answer: unknown): boolean {
  return membersOf(answer)["isSyncing"] === true;
}

export function hexOf(answer: unknown): `0x${string}` {
  const text = textOf(answer);
  if (!/^0x[0-9a-f]*$/.test(text)) throw new Error("it is no hex");
  return text as `0x${string}`;
}

export function countOf(answer: unknown): number {
  if (typeof answer === "number" && Number.isSafeInteger(answer) && answer >= 0) return answer;
  throw new Error("it is no count");
}

/** Values by their keys in hex, of the one block that was asked for; `null` when the node does not know it. */
export function storageOf(answer: unknown): ReadonlyMap<string, Uint8Array | null> | null {
  const sets = listOf(answer);
  if (sets.length === 0) return null;
  const changes = sets.flatMap((set) => listOf(membersOf(set)["changes"]));
  return new Map(
    changes.map((change) => {
      const [key, value] = listOf(change);
      return [textOf(key), value === null || value === undefined ? null : bytesOf(value)] as const;
    }),
  );
}

function membersOf(answer: unknown): Readonly<Record<string, unknown>> {
  if (typeof answer !== "object" || answer === null || Array.isArray(answer)) throw new Error("it is no object");
  return { ...answer };
}

function listOf(answer: unknown): readonly unknown[] {
  if (Array.isArray(answer)) return answer;
  throw new Error("it is no list");
}

function textOf(answer: unknown): string {
  if (typeof answer === "string") return answer;
  throw new Error("it is no text");
}

const bytesOf = (answer: unknown): Uint8Array => Uint8Array.fromHex(hexOf(answer).slice(2));
