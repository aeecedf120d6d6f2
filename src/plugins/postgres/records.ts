/**
 * Replay claims and receipts over PostgreSQL. Keys are texts of any characters, U+0000 among them, which
 * no text of the database can hold: their digests stand in for them.
 */
import { encodeHex } from "../../core/codec/bytes.ts";
import { blake2b256 } from "../../core/codec/hash.ts";
import type { Receipts, Replay } from "../../storage/contract.ts";
import { checkReceipt, checkText } from "../options.ts";
import { Batcher } from "./batch.ts";
import type { Pool } from "./pool.ts";

type Claim = { readonly tag: string; readonly until: number; readonly at: number };

/** Distinct texts have distinct digests, lone surrogates included: the form of two bytes a character is exact. */
function digestOf(text: string): string {
  return encodeHex(blake2b256(new Uint8Array(Buffer.from(text, "utf16le"))));
}

async function expireRecords(pool: Pool, table: string, nowMs: number, limit: number): Promise<number> {
  const [row] = await pool.query("select {s}.expire_records($1, $2, $3) as freed", [table, nowMs, limit]);
  return Number(row?.["freed"]);
}

export function openPostgresReplay(pool: Pool): Replay {
  const claims = new Batcher<Claim, boolean>(async (given) => {
    const won = new Set((await pool.write("claim_tags", [JSON.stringify(given)])) as string[]);
    return given.map(({ tag }) => won.has(tag));
  }, 1);
  return {
    async claim(tag, untilMs, nowMs) {
      checkText("tag", tag);
      const given = { tag: digestOf(tag), until: untilMs, at: nowMs };
      return claims.add({ given, bytes: 128, key: given.tag });
    },
    expire: (nowMs, limit) => expireRecords(pool, "claim", nowMs, limit),
  };
}

type Writing = {
  readonly key: string;
  readonly how: "put" | "absent" | "remove";
  readonly value: Uint8Array;
  readonly until: number;
  readonly at: number;
};

export function openPostgresReceipts(pool: Pool): Receipts {
  const writes = new Batcher<Writing, Uint8Array | null>((given) => writeBatch(pool, given), 1);
  const add = (writing: Writing) => writes.add({ given: writing, bytes: writing.value.length + 256, key: writing.key });
  const nothing = new Uint8Array(0);
  return {
    async put(key, value, untilMs) {
      checkReceipt(key, value);
      await add({ key: digestOf(key), how: "put", value, until: untilMs, at: 0 });
    },
    async putIfAbsent(key, value, untilMs, nowMs) {
      checkReceipt(key, value);
      return add({ key: digestOf(key), how: "absent", value, until: untilMs, at: nowMs });
    },
    async get(key, nowMs) {
      const parameters = [digestOf(key), nowMs];
      const [row] = await pool.query(
        "select value from {s}.receipt where key = decode($1, 'hex') and until_ms > $2",
        parameters,
      );
      return row === undefined ? null : new Uint8Array(row["value"] as Uint8Array);
    },
    async remove(key) {
      await add({ key: digestOf(key), how: "remove", value: nothing, until: 0, at: 0 });
    },
    expire: (nowMs, limit) => expireRecords(pool, "receipt", nowMs, limit),
  };
}

/** For each write the value that stands in its way, or null. */
async function writeBatch(pool: Pool, given: readonly Writing[]): Promise<(Uint8Array | null)[]> {
  const bytes = new Uint8Array(given.reduce((sum, { value }) => sum + value.length, 0));
  let start = 0;
  const rows = given.map(({ value, ...writing }) => {
    bytes.set(value, start);
    start += value.length;
    return { ...writing, start: start - value.length + 1, size: value.length };
  });
  const answer = (await pool.write("write_receipts", [JSON.stringify(rows), bytes])) as [string, string][];
  const standing = new Map(answer);
  return given.map(({ key }) => {
    const value = standing.get(key);
    return value === undefined ? null : new Uint8Array(Buffer.from(value, "base64"));
  });
}
