/**
 * One sealed file with everything of an identity: its keys, and the rows of its local store (people, history, what is to be
 * sent). It is made and read piece by piece: each piece is sealed by ChaCha20-Poly1305 under a key of the passphrase, with
 * its number and whether it is the last, so that none is missing, moved or added.
 * Source: docs/client.md "Lost and found", D396; the STREAM construction (Hoang, Reyhanitabar, Rogaway, Vizár 2015).
 */
import { chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { concatBytes, decodeBase64, decodeUtf8, encodeBase64, utf8 } from "../core/codec/bytes.ts";
import { localError, pause } from "./http.ts";
import { deviceName, type KeyStore, reliable } from "./key-stores.ts";
import { parseIdentity } from "./keys.ts";
import { passphraseKey } from "./locks.ts";
import type { Row, StoreDriver } from "./store/driver.ts";
import { Table } from "./store/table.ts";

const magic = utf8("waypost-backup:v1\n");
const saltBytes = 16;
const tagBytes = 16;
const headBytes = 5;
/** A row has at most a MiB of a file and its seal. */
const pieceBytesMax = 4 * 1_048_576;
const batchBytes = 1_048_576;
/** Above all keys, which are ASCII. */
const pastAll = "~";

type Sealing = { readonly passphrase: string };

/** How long a backup may wait for whoever reads it, since the store waits for it. */
const idleMs = 60_000;

type Making = Sealing & { readonly writer: WritableStreamDefaultWriter<Uint8Array> };

/** The file, made as it is read. The first piece is the identity, the others are rows: those of one moment. */
export function backup(identityText: string, table: Table | null, sealing: Sealing): ReadableStream<Uint8Array> {
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
  const writer = writable.getWriter();
  make(identityText, table, { ...sealing, writer })
    .then(
      () => writer.close(),
      (error: unknown) => writer.abort(error),
    )
    .catch(() => undefined);
  return readable;
}

async function make(identityText: string, table: Table | null, { passphrase, writer }: Making): Promise<void> {
  const salt = crypto.getRandomValues(new Uint8Array(saltBytes));
  const key = await passphraseKey(passphrase, salt);
  await writer.write(concatBytes(magic, salt));
  let number = 0;
  const add = async (plain: Uint8Array, isLast = false) => {
    const taken = new AbortController();
    const written = writer.write(piece(key, number++, plain, isLast)).finally(() => taken.abort());
    const waited = pause(idleMs, taken.signal).then(() => {
      if (!taken.signal.aborted) throw localError("timed_out", "the backup was not read for a minute");
    });
    await Promise.all([written, waited]);
  };
  const addAll = async () => {
    await add(utf8(identityText));
    if (table !== null) for await (const rows of rowsOf(table)) await add(renderRows(rows));
    await add(new Uint8Array(0), true);
  };
  await (table === null ? addAll() : table.change(addAll));
}

function nonceOf(number: number, isLast: boolean): Uint8Array {
  const nonce = new Uint8Array(12);
  new DataView(nonce.buffer).setUint32(0, number);
  nonce[11] = isLast ? 1 : 0;
  return nonce;
}

/** Length, whether it is the last, and the sealed bytes. */
function piece(key: Uint8Array, number: number, plain: Uint8Array, isLast: boolean): Uint8Array {
  const head = new Uint8Array(headBytes);
  new DataView(head.buffer).setUint32(0, plain.length + tagBytes);
  head[4] = isLast ? 1 : 0;
  return concatBytes(head, chacha20poly1305(key, nonceOf(number, isLast), magic).encrypt(plain));
}

const renderRows = (rows: readonly Row[]): Uint8Array =>
  utf8(JSON.stringify(rows.map(([key, bytes]) => [key, encodeBase64(bytes)])));

/** Rows are sealed with the store's key, which is among the keys: they are copied as they are. */
async function* rowsOf({ driver, place }: Pick<Table, "driver" | "place">): AsyncGenerator<Row[]> {
  for (let from = place; ; ) {
    const rows = await driver.scan({ from, to: place + pastAll, limit: 64 });
    let batch: Row[] = [];
    let bytes = 0;
    for (const row of rows) {
      if (batch.length > 0 && bytes + row[1].length > batchBytes) {
        yield batch;
        [batch, bytes] = [[], 0];
      }
      batch.push(row);
      bytes += row[1].length;
    }
    if (batch.length > 0) yield batch;
    const last = rows.at(-1);
    if (last === undefined) return;
    from = `${last[0]}!`;
  }
}

// ------------------------------------------------------------------------------------------------------------- restore

export type Restoring = Sealing & {
  readonly keys: KeyStore;
  readonly name?: string;
  /** Where people and history go; without it they are left out. */
  readonly store?: StoreDriver;
};

/**
 * Reads a backup; nothing of it counts before the whole was read and found unchanged: the identity is added last. It is a
 * device of its own: those with which the lost one was linked don't know it. Throws `wrong_passphrase`, `backup_damaged`,
 * or `name_taken`.
 */
export async function restore(file: ReadableStream<Uint8Array>, options: Restoring): Promise<{ readonly did: string }> {
  const { name = "default", store } = options;
  const keys = reliable(options.keys);
  if ((await keys.load(name)) !== null) throw localError("name_taken", `an identity called ${name} already exists`);
  const input = reader(file);
  const start = await input.take(magic.length + saltBytes);
  if (decodeUtf8(start.subarray(0, magic.length)) !== decodeUtf8(magic))
    throw localError("backup_damaged", "this is no backup of this version");
  const key = await passphraseKey(options.passphrase, start.subarray(magic.length));
  const text = decodeUtf8((await nextPiece(input, key, 0)) ?? new Uint8Array(0)) ?? "";
  const identity = parseIdentity(text, name);
  if (identity === null) throw localError("backup_damaged", "the backup contains no identity");
  for (let number = 1; ; number++) {
    const plain = await nextPiece(input, key, number);
    if (plain === null) break;
    if (store !== undefined) await store.apply(parseRows(plain));
  }
  if (store !== undefined) await forgetDevices(await Table.open(store, identity.storeKey));
  await keys.save(deviceName(name), null);
  if (!(await keys.replace(name, null, text)))
    throw localError("name_taken", `an identity called ${name} already exists`);
  return { did: identity.did };
}

async function forgetDevices(table: Table): Promise<void> {
  const rows = await table.scan({ prefix: "d/" });
  await table.change(async (batch) => {
    for (const [key] of rows) batch.delete(key);
    batch.meta = { deviceDid: "" };
  });
}

type Input = { readonly take: (length: number) => Promise<Uint8Array> };

/** `null` for the last piece, which is empty. */
async function nextPiece(input: Input, key: Uint8Array, number: number): Promise<Uint8Array | null> {
  const head = await input.take(headBytes);
  const length = new DataView(head.buffer, head.byteOffset).getUint32(0);
  const isLast = head[4] === 1;
  if (length < tagBytes || length > pieceBytesMax) throw damaged();
  try {
    const plain = chacha20poly1305(key, nonceOf(number, isLast), magic).decrypt(await input.take(length));
    return isLast ? null : plain;
  } catch (error) {
    if (number === 0) throw localError("wrong_passphrase", "the passphrase is wrong, or the backup is damaged");
    throw error instanceof Error && "code" in error ? error : damaged();
  }
}

const damaged = () => localError("backup_damaged", "the backup is damaged or not whole");

function parseRows(plain: Uint8Array): Row[] {
  const rows = JSON.parse(decodeUtf8(plain) ?? "[]") as [string, string][];
  return rows.map(([key, base64]) => [key, decodeBase64(base64) ?? new Uint8Array(0)]);
}

/** Exactly so many bytes of a stream each time. */
function reader(file: ReadableStream<Uint8Array>): Input {
  const source = file.getReader();
  let held: Uint8Array = new Uint8Array(0);
  return {
    take: async (length) => {
      const taken = new Uint8Array(length);
      for (let at = 0; at < length; ) {
        if (held.length === 0) {
          const { value, done } = await source.read();
          if (done || value === undefined) throw damaged();
          held = value;
        }
        const part = held.subarray(0, length - at);
        taken.set(part, at);
        at += part.length;
        held = held.subarray(part.length);
      }
      return taken;
    },
  };
}
