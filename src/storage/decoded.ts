/**
 * What stored bytes decode to, remembered: a value is given again only while the store holds exactly the
 * bytes that it was decoded from, so nothing here can be stale. Every read still asks the store.
 * Bounded by entries and by bytes; the entry that came first leaves first. Values are shared between
 * callers, who must not change them.
 */

export type DecodedLimits = {
  readonly entriesMax: number;
  /** Sum of the encoded forms; what they decode to takes a few times as much. */
  readonly bytesMax: number;
};

type Entry<T> = { readonly bytes: Uint8Array; readonly value: T };

/** `decode` may throw, and nothing is remembered then. The bytes that are given are kept: no caller writes to them. */
export function rememberDecoded<T>(
  decode: (bytes: Uint8Array) => T,
  limits: DecodedLimits,
): (key: string, bytes: Uint8Array) => T {
  const entries = new Map<string, Entry<T>>();
  let held = 0;
  const forget = (key: string, entry: Entry<T>): void => {
    entries.delete(key);
    held -= entry.bytes.length;
  };
  return (key, bytes) => {
    const entry = entries.get(key);
    if (entry !== undefined) {
      if (entry.bytes.length === bytes.length && Buffer.compare(entry.bytes, bytes) === 0) return entry.value;
      forget(key, entry);
    }
    const value = decode(bytes);
    entries.set(key, { bytes, value });
    held += bytes.length;
    for (const [oldest, old] of entries) {
      if (entries.size <= limits.entriesMax && held <= limits.bytesMax) break;
      forget(oldest, old);
    }
    return value;
  };
}
