/**
 * Records of the nodes in a store of receipts: JSON under a key, and all of them under a prefix.
 */
import { decodeUtf8, utf8 } from "../../core/codec/bytes.ts";
import type { Receipts } from "../../storage/contract.ts";

export const encodeRecord = (value: unknown): Uint8Array => utf8(JSON.stringify(value));
export const decodeRecord = <T>(bytes: Uint8Array): T =>
  JSON.parse(decodeUtf8(bytes) ?? "null") as T;

export async function readRecord<T>(
  receipts: Receipts,
  key: string,
  nowMs: number,
): Promise<T | null> {
  const bytes = await receipts.get(key, nowMs);
  return bytes === null ? null : decodeRecord<T>(bytes);
}

const pageRecords = 500;

/** Page by page, so that other work goes on between them. */
export async function* scanRecords(receipts: Receipts, prefix: string, now: () => number) {
  for (let after: string | null = null; ; ) {
    const page = await receipts.scan(prefix, { after, limit: pageRecords, nowMs: now() });
    yield page;
    if (page.length < pageRecords) return;
    after = page.at(-1)?.[0] ?? null;
  }
}
