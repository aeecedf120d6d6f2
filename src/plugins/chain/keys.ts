/**
 * Storage keys of a chain and the plain values behind them, as bytes. Maps are `Blake2_128Concat`: the
 * prefix, the hash of the encoded key, the encoded key.
 * Source: docs/ledger.md 1.9.
 */
import { concatBytes, utf8 } from "../../core/codec/bytes.ts";
import { blake2b128 } from "../../core/codec/hash.ts";
import { encodeCompact } from "./extrinsic.ts";
import type { MapName } from "./layouts.ts";
import type { Surface } from "./surface.ts";

export type StorageKeys = {
  readonly now: Uint8Array;
  readonly events: Uint8Array;
  readonly account: (id: Uint8Array) => Uint8Array;
  readonly entry: (map: MapName, key: string) => Uint8Array;
};

export function storageKeys(surface: Surface): StorageKeys {
  const concat = (prefix: Uint8Array, key: Uint8Array) => concatBytes(prefix, blake2b128(key), key);
  return {
    now: surface.prefixOf("Now"),
    events: surface.prefixOf("Events"),
    account: (id) => concat(surface.prefixOf("Account"), id),
    entry: (map, key) => concat(surface.prefixOf(map), encodeText(key)),
  };
}

function encodeText(text: string): Uint8Array {
  const bytes = utf8(text);
  return concatBytes(encodeCompact(bytes.length), bytes);
}

export function u64Of(bytes: Uint8Array): bigint {
  return viewOf(bytes).getBigUint64(0, true);
}

/** `AccountInfo`: nonce, three counts of references (u32 each), then the free balance (u128). */
export function readAccountState(bytes: Uint8Array | null): { readonly nonce: number; readonly free: bigint } {
  if (bytes === null) return { nonce: 0, free: 0n };
  const view = viewOf(bytes);
  return { nonce: view.getUint32(0, true), free: view.getBigUint64(16, true) + (view.getBigUint64(24, true) << 64n) };
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
