/**
 * CBOR as sealed records need it: one map of text keys to text, byte strings, unsigned integers and null, in
 * the deterministic form of RFC 8949 section 4.2.1. A general codec would be a fifth of what a page loads;
 * tests hold this one to `cborg`.
 */
import { concatBytes, decodeUtf8, utf8 } from "../core/codec/bytes.ts";

export type CborValue = string | Uint8Array | number | null;

const unsignedMajor = 0;
const negativeMajor = 1;
const bytesMajor = 2;
const textMajor = 3;
const mapMajor = 5;
const nullByte = 0xf6;

export function encodeCborMap(members: Readonly<Record<string, CborValue>>): Uint8Array {
  const entries = Object.entries(members).map(([name, value]) => ({ key: encodeValue(name), value }));
  entries.sort((a, b) => compareBytes(a.key, b.key));
  const parts = entries.flatMap(({ key, value }) => [key, encodeValue(value)]);
  return concatBytes(encodeHead(mapMajor, entries.length), ...parts);
}

function encodeValue(value: CborValue): Uint8Array {
  if (value === null) return Uint8Array.of(nullByte);
  if (typeof value === "number") return encodeHead(unsignedMajor, value);
  const bytes = typeof value === "string" ? utf8(value) : value;
  return concatBytes(encodeHead(typeof value === "string" ? textMajor : bytesMajor, bytes.length), bytes);
}

/** Major type and argument, the argument in the fewest bytes. */
function encodeHead(major: number, argument: number): Uint8Array {
  const size = argument < 24 ? 0 : argument < 0x100 ? 1 : argument < 0x1_0000 ? 2 : argument < 2 ** 32 ? 4 : 8;
  const head = new Uint8Array(1 + size);
  head[0] = (major << 5) | (size === 0 ? argument : 24 + Math.log2(size));
  for (let i = size, rest = argument; i > 0; i--, rest = Math.floor(rest / 0x100)) head[i] = rest % 0x100;
  return head;
}

function compareBytes(a: Uint8Array, b: Uint8Array): number {
  for (let i = 0; i < a.length && i < b.length; i++) {
    const difference = (a[i] as number) - (b[i] as number);
    if (difference !== 0) return difference;
  }
  return a.length - b.length;
}

/**
 * The members of a map, or `null` for anything else: a type that no record has, bytes left over, a key twice or out of
 * order, a length that is not in its shortest form.
 */
export function decodeCborMap(bytes: Uint8Array): Record<string, CborValue> | null {
  const at = { bytes, offset: 0 };
  const head = decodeHead(at);
  if (head?.major !== mapMajor) return null;
  const members: [string, CborValue][] = [];
  let before: Uint8Array | null = null;
  for (let i = 0; i < head.argument; i++) {
    const start = at.offset;
    const name = decodeValue(at);
    const key = bytes.subarray(start, at.offset);
    const value = decodeValue(at);
    if (typeof name !== "string" || value === undefined) return null;
    if (before !== null && compareBytes(before, key) >= 0) return null;
    before = key;
    members.push([name, value]);
  }
  return at.offset === bytes.length ? Object.fromEntries(members) : null;
}

type Position = { readonly bytes: Uint8Array; offset: number };

/** `undefined` when no value of a kind that records hold stands here. */
function decodeValue(at: Position): CborValue | undefined {
  if (at.bytes[at.offset] === nullByte) {
    at.offset++;
    return null;
  }
  const head = decodeHead(at);
  if (head === null) return undefined;
  const { major, argument } = head;
  if (major === unsignedMajor) return argument;
  if (major === negativeMajor) return -1 - argument;
  if (major !== bytesMajor && major !== textMajor) return undefined;
  if (argument > at.bytes.length - at.offset) return undefined;
  const content = at.bytes.subarray(at.offset, at.offset + argument);
  at.offset += argument;
  return major === bytesMajor ? content : (decodeUtf8(content) ?? undefined);
}

function decodeHead(at: Position): { readonly major: number; readonly argument: number } | null {
  const first = at.bytes[at.offset++];
  if (first === undefined) return null;
  const [major, additional] = [first >> 5, first & 0x1f];
  if (additional < 24) return { major, argument: additional };
  if (additional > 27) return null;
  const size = 2 ** (additional - 24);
  if (size > at.bytes.length - at.offset) return null;
  let argument = 0;
  for (let i = 0; i < size; i++) argument = argument * 0x100 + (at.bytes[at.offset++] as number);
  const isShortest = argument >= (size === 1 ? 24 : 2 ** (4 * size));
  return isShortest && Number.isSafeInteger(argument) ? { major, argument } : null;
}
