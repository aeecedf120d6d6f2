/** UUIDs of version 4 from random or derived bytes. A page without a secure origin has no `crypto.randomUUID`. */
import { encodeHex } from "../core/codec/bytes.ts";

export function randomUuid(): string {
  return uuidOf(crypto.getRandomValues(new Uint8Array(16)));
}

/** Of 16 bytes, six bits of which become version and variant. */
export function uuidOf(bytes: Uint8Array): string {
  const marked = bytes.slice();
  marked[6] = ((bytes[6] as number) & 0x0f) | 0x40;
  marked[8] = ((bytes[8] as number) & 0x3f) | 0x80;
  return encodeHex(marked).replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
