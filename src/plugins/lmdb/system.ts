/**
 * Calls of the C library that the runtime does not offer, or `null` where there are none (other
 * systems than Linux).
 */
import { dlopen, FFIType } from "bun:ffi";

const { i32, i64, u64 } = FFIType;
const libraries = ["libc.so.6", "libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1"];

export type SystemCalls = {
  readonly fallocate: (descriptor: number, mode: number, offset: bigint, bytes: bigint) => number;
  readonly madvise: (from: number, bytes: number, advice: number) => number;
  readonly flock: (descriptor: number, operation: number) => number;
};

export const systemCalls: SystemCalls | null = loaded();

function loaded(): SystemCalls | null {
  if (process.platform !== "linux") return null;
  for (const name of libraries) {
    try {
      return dlopen(name, {
        fallocate: { args: [i32, i32, i64, i64], returns: i32 },
        madvise: { args: [u64, u64, i32], returns: i32 },
        flock: { args: [i32, i32], returns: i32 },
      }).symbols;
    } catch {}
  }
  return null;
}
