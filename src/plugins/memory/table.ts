/**
 * The table of the memory driver: a map, and its keys in order in pieces of bounded length. Changes
 * are written through an undo list, so that a throw leaves nothing behind.
 * Cost: a read is one map lookup, a write of a new key moves at most one piece of keys.
 */
import { StoreError } from "../../storage/contract.ts";
import { compareUtf8 } from "../../storage/keys.ts";
import type { Table, TableChange } from "../../storage/table.ts";

const pieceKeysMax = 1024;

export type MemoryTable = Table & { close(): void };

export function openMemoryTable(limits: { readonly bytesMax: number }): MemoryTable {
  const values = new Map<string, Uint8Array>();
  const pieces: string[][] = [[]];
  let bytes = 0;
  let closed = false;

  function get(key: string): Uint8Array | null {
    return values.get(key)?.slice() ?? null;
  }

  function range(prefix: string, options: { readonly after?: string; readonly limit: number }): [string, Uint8Array][] {
    const after = options.after;
    const start = after !== undefined && compareUtf8(after, prefix) > 0 ? after : prefix;
    const found: [string, Uint8Array][] = [];
    for (let p = pieceOf(start); p < pieces.length; p++) {
      const piece = pieces[p]!;
      for (let i = placeIn(piece, start); i < piece.length; i++) {
        const key = piece[i]!;
        if (key === after) continue;
        if (!key.startsWith(prefix) || found.length >= options.limit) return found;
        found.push([key, values.get(key)!.slice()]);
      }
    }
    return found;
  }

  /** The first piece whose last key is not below `key`; the last piece when there is none. */
  function pieceOf(key: string): number {
    let [low, high] = [0, pieces.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      const last = pieces[middle]!.at(-1);
      if (last === undefined || compareUtf8(last, key) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  function setKey(key: string): void {
    const p = pieceOf(key);
    const piece = pieces[p]!;
    piece.splice(placeIn(piece, key), 0, key);
    if (piece.length > pieceKeysMax) pieces.splice(p + 1, 0, piece.splice(pieceKeysMax >> 1));
  }

  function dropKey(key: string): void {
    const p = pieceOf(key);
    const piece = pieces[p]!;
    piece.splice(placeIn(piece, key), 1);
    if (piece.length === 0 && pieces.length > 1) pieces.splice(p, 1);
  }

  function write(key: string, value: Uint8Array | undefined): Uint8Array | undefined {
    const before = values.get(key);
    if (value === undefined) {
      if (before !== undefined && values.delete(key)) dropKey(key);
    } else {
      if (before === undefined) setKey(key);
      values.set(key, value);
    }
    bytes += (value === undefined ? 0 : cost(key, value)) - (before === undefined ? 0 : cost(key, before));
    return before;
  }

  async function commit<T>(change: (view: TableChange) => T): Promise<T> {
    if (closed) throw new StoreError("closed", "the store is closed");
    const undo: [string, Uint8Array | undefined][] = [];
    const view: TableChange = {
      get,
      range,
      put: (key, value) => {
        checkKey(key);
        undo.push([key, write(key, value.slice())]);
        if (bytes > limits.bytesMax) throw new StoreError("full", "the memory store has reached its size limit");
      },
      remove: (key) => {
        undo.push([key, write(key, undefined)]);
      },
    };
    try {
      return change(view);
    } catch (error) {
      for (const [key, before] of undo.reverse()) write(key, before);
      throw error;
    }
  }

  return {
    get,
    range,
    commit,
    close: () => {
      closed = true;
    },
  };
}

function placeIn(piece: readonly string[], key: string): number {
  let [low, high] = [0, piece.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compareUtf8(piece[middle]!, key) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Bytes of a pair, with a rough share of what the map and the list of keys take. */
function cost(key: string, value: Uint8Array): number {
  return key.length + value.length + 128;
}

export const tableKeyBytesMax = 1024;

export function checkKey(key: string): void {
  if (key.length === 0 || key.length > tableKeyBytesMax || !key.isWellFormed()) {
    throw new RangeError("a table key has 1 to 1,024 bytes of well-formed text");
  }
  if (key.length * 3 > tableKeyBytesMax && Buffer.byteLength(key) > tableKeyBytesMax) {
    throw new RangeError("a table key has at most 1,024 bytes");
  }
}
