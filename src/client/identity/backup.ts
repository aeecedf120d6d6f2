/**
 * One sealed file with everything of an identity: its keys, and the rows of its local store
 * (people, history, what is to be sent). It is made and read piece by piece: each piece is sealed
 * under a key of the passphrase and bound to its number, and an empty one ends the file, so that
 * none is missing, moved or added.
 * Source: docs/client.md "Lost and found", D396.
 */
import {
  concatBytes,
  decodeBase64,
  decodeUtf8,
  encodeBase64,
  equalBytes,
  utf8,
} from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { localError, pause } from "../base/failure.ts";
import { keptBytes32, object, renderKept } from "../base/shapes.ts";
import { ed25519PublicKey, openBytes, sealBytes } from "../keys/crypto.ts";
import {
  deviceName,
  historyKey,
  type KeyStore,
  memoryOf,
  reliable,
  type TextStore,
} from "../keys/key-stores.ts";
import { freshSeed, heldSeed, type Identity, parseIdentity, renderIdentity } from "../keys/keys.ts";
import { passphraseKey } from "../keys/locks.ts";
import { changeIdentity } from "../keys/stored.ts";
import { provingAt, waitingDefault } from "../net/directory.ts";
import type { Row, StoreDriver } from "../store/driver.ts";
import { recallEvidence } from "../store/evidence.ts";
import { after, ringKey, rowsOf } from "../store/keys.ts";
import { Table } from "../store/table.ts";
import { type Client, connect, rootKeyOf } from "../trust/client.ts";
import { rememberHosts } from "../trust/hosts.ts";
import { recall } from "../trust/trust.ts";
import { inForce, nextIdentity, publishKeys, rememberChoice } from "./new-keys.ts";
import type { Choosing } from "./replacement.ts";

/** The root key of the last backup. */
const backupShape = object({ rootKey: keptBytes32 });

const magic = "waypost-backup:v1\n";
const saltBytes = 16;
/** A row has at most a MiB of a file and its seal; in JSON it is in Base64. */
const pieceBytesMax = 4 * 1_048_576;
const batchBytes = 1_048_576;
/** Above all keys, which are ASCII. */
const pastAll = "~";
/** How long a backup may wait for its reader, since the store waits for it. */
const idleMs = 60_000;

/** A piece counts in its place only. */
const boundTo = (number: number): Uint8Array => utf8(`${magic}${number}`);

/**
 * The file, made as it is read. The first piece is the identity, the others are rows: those of one
 * moment; an empty one ends. `made` is called when all was read.
 */
export function backup(
  identityText: string,
  table: Table | null,
  passphrase: string,
  made: () => Promise<void> = async () => undefined,
): ReadableStream<Uint8Array> {
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
  const writer = writable.getWriter();
  const make = async () => {
    const salt = crypto.getRandomValues(new Uint8Array(saltBytes));
    const key = await passphraseKey(passphrase, salt);
    await writer.write(concatBytes(utf8(magic), salt));
    let number = 0;
    const add = (plain: Uint8Array) => writeFrame(writer, sealBytes(key, plain, boundTo(number++)));
    const addAll = async () => {
      await add(utf8(identityText));
      if (table !== null) for await (const rows of batchesOf(table)) await add(renderRows(rows));
      await add(new Uint8Array(0));
    };
    await (table === null ? addAll() : table.change(addAll));
    await made();
    await writer.close();
  };
  make().catch((error: unknown) => writer.abort(error).catch(() => undefined));
  return readable;
}

/** Length and sealed bytes. */
async function writeFrame(
  writer: WritableStreamDefaultWriter<Uint8Array>,
  sealed: Uint8Array,
): Promise<void> {
  const head = new Uint8Array(4);
  new DataView(head.buffer).setUint32(0, sealed.length);
  const taken = new AbortController();
  const idle = pause(idleMs, taken.signal).then(() => {
    if (!taken.signal.aborted)
      throw localError("timed_out", "the backup was not read for a minute");
  });
  await Promise.race([writer.write(concatBytes(head, sealed)).finally(() => taken.abort()), idle]);
}

const renderRows = (rows: readonly Row[]): Uint8Array =>
  utf8(JSON.stringify(rows.map(([key, bytes]) => [key, encodeBase64(bytes)])));

/** Rows are sealed with the store's key, which is among the keys: they are copied as they are. */
async function* batchesOf({
  driver,
  place,
}: Pick<Table, "driver" | "place">): AsyncGenerator<Row[]> {
  let batch: Row[] = [];
  let bytes = 0;
  for (let from = place; ; ) {
    const rows = await driver.scan({ from, to: place + pastAll, limit: 64 });
    for (const row of rows) {
      batch.push(row);
      bytes += row[0].length + row[1].length;
      if (bytes < batchBytes) continue;
      yield batch;
      [batch, bytes] = [[], 0];
    }
    const last = rows.at(-1);
    if (last === undefined) break;
    from = after(last[0]);
  }
  if (batch.length > 0) yield batch;
}

export type Restoring = {
  readonly passphrase: string;
  readonly keys: KeyStore;
  readonly name?: string;
  /** Where people and history go; without it they are left out. */
  readonly store?: StoreDriver;
  /**
   * Whether all devices that had this identity are lost, which the user is asked. Then all keys are
   * replaced at once. If not, this is one more device, which informs those of the backup.
   */
  readonly areOthersLost: boolean;
  /** Shows whether the keys of the backup are still in force; needed where the others are lost. */
  readonly directoryUrl?: string;
  /**
   * Where the identity's Relay and Cache are, if the Directory's node is not all
   * three: services there stay.
   */
  readonly relayUrl?: string;
  readonly cacheUrl?: string;
  /**
   * Where the others are lost: shown before anything changes what the new keys take out of the
   * record, it says what stays.
   */
  readonly choose?: Choosing;
};

export type Restored = {
  readonly did: Did;
  /**
   * The keys were replaced after the backup: it brings history and no identity. Link this device
   * (`Waypost.link` with the same keys, name and store), and the history is there.
   */
  readonly isHistoryOnly: boolean;
};

/**
 * Reads a backup; nothing of it counts before the whole was read and found unchanged: the identity
 * is added last. Where the others are lost, services stay at the node of `directoryUrl`, and what
 * `choose` says. Throws `wrong_passphrase`, `backup_damaged`, `name_taken`, and `root_replaced`
 * where only history is left and no store takes it.
 */
export async function restore(
  file: ReadableStream<Uint8Array>,
  options: Restoring,
): Promise<Restored> {
  const { name = "default", store, areOthersLost, directoryUrl } = options;
  if (areOthersLost && directoryUrl === undefined)
    throw localError("invalid_argument", "directoryUrl is needed to replace the keys");
  const keys = reliable(options.keys);
  const taken = () => localError("name_taken", `an identity called ${name} already exists`);
  if ((await keys.load(name)) !== null) throw taken();

  const take = reader(file);
  if (decodeUtf8(await take(magic.length)) !== magic)
    throw damaged("this is not a backup of this version");
  const key = await passphraseKey(options.passphrase, await take(saltBytes));
  const next = async (number: number) =>
    openBytes(key, await take(await lengthIn(take)), boundTo(number));
  const first = await next(0);
  if (first === null)
    throw localError("wrong_passphrase", "the passphrase is wrong, or the backup is damaged");
  const text = decodeUtf8(first) ?? "";
  const identity = parseIdentity(text, name);
  if (identity === null) throw damaged("the backup contains no identity");

  const memory = memoryOf(keys, name);
  const client = directoryUrl === undefined ? null : await clientAt(directoryUrl, memory);
  const isHistoryOnly = client !== null && !(await isInForce(client, identity));
  if (isHistoryOnly && store === undefined)
    throw localError("root_replaced", "the keys were replaced after this backup was made");

  for (let number = 1; ; number++) {
    const plain = await next(number);
    if (plain === null) throw damaged();
    if (plain.length === 0) break;
    await store?.apply(parseRows(plain));
  }

  const { did, storeKey } = identity;
  const isCopy = !areOthersLost && !isHistoryOnly;
  const isRenewed = client !== null && areOthersLost && !isHistoryOnly;
  const kept = isRenewed ? await chosenFor(client, identity, options) : null;

  const table = store === undefined ? null : await Table.open(store, storeKey);
  if (table !== null) await forgetDevices(table, isCopy);
  if (table !== null && areOthersLost) await markRestored(table);
  if (table !== null && !isHistoryOnly) await recallEvidence(table, memory);

  await keys.save(deviceName(name), null);
  await memory.save(historyKey, isHistoryOnly ? renderKept({ did, storeKey }) : null);
  if (isHistoryOnly) return { did, isHistoryOnly };

  await rememberBackup(memory, identity);
  const root = identity.nextRootSeed ?? freshSeed();
  const restored = areOthersLost ? nextIdentity(identity, Date.now(), root) : identity;
  const saved = areOthersLost ? renderIdentity(restored) : text;

  // Remembered first: interrupted from here on, it ends as the user has chosen
  // when the identity is opened.
  if (client !== null && kept !== null) {
    await rememberHosts(client, did, kept.own);
    await rememberChoice(memory, root, kept);
  }

  if (!(await keys.replace(name, null, saved))) throw taken();
  if (client !== null && kept !== null) {
    const renewed = await publishKeys(client, restored, { waiting: waitingDefault });
    await changeIdentity(keys, restored, (stored) => inForce(stored, renewed));
  }
  return { did, isHistoryOnly };
}

async function chosenFor(
  client: Client,
  identity: Identity,
  { choose = async () => ({}), relayUrl, cacheUrl }: Restoring,
) {
  const { chooseRestored } = await import("./replacement.ts");
  return chooseRestored(client, identity, { choose, urls: [relayUrl, cacheUrl] });
}

async function clientAt(directoryUrl: string, memory: TextStore): Promise<Client> {
  const client = connect({ directoryUrl, relayUrl: directoryUrl });
  client.known.memory = memory;
  await provingAt(client);
  return client;
}

/** The replacement of the root key may have been under way. */
async function isInForce(client: Client, identity: Identity): Promise<boolean> {
  const seed = await heldSeed({ ...identity, methods: [] }, await rootKeyOf(client, identity.did));
  return seed !== null;
}

/** Groups may have been handed over since. */
async function markRestored(table: Table): Promise<void> {
  const rows = await table.scan<object>({ prefix: rowsOf.groups });
  await table.change(async (batch) => {
    const restoredMs = Date.now();
    for (const [key, row] of rows) batch.put(key, { ...row, restoredMs });
  });
}

/** Devices of the backup stay known to a copy, which informs them that it is there. */
async function forgetDevices(table: Table, isCopy: boolean): Promise<void> {
  const rows = await table.scan({ prefix: rowsOf.devices });
  await table.change(async (batch) => {
    for (const [key] of rows) batch.delete(key);
    const ring = isCopy ? await batch.get<object>(ringKey) : null;
    if (ring === null) batch.delete(ringKey);
    else batch.put(ringKey, { ...ring, isCopied: true });
    batch.meta = { deviceDid: "" };
  });
}

// ---------------------------------------------------------------------------------- what was saved

const backupKey = "backup";

/** `outdated`: the keys were replaced since, so that the last one restores history alone. */
export type BackupState = "none" | "current" | "outdated";

export async function rememberBackup(memory: TextStore, { rootSeed }: Identity): Promise<void> {
  await memory.save(backupKey, renderKept({ rootKey: await ed25519PublicKey(rootSeed) }));
}

export async function backupState(memory: TextStore, { rootSeed }: Identity): Promise<BackupState> {
  const kept = await recall(memory, backupKey, backupShape);
  if (kept === null) return "none";
  const isOf = equalBytes(kept.rootKey, await ed25519PublicKey(rootSeed));
  return isOf ? "current" : "outdated";
}

const damaged = (why = "the backup is damaged or not whole") => localError("backup_damaged", why);

function parseRows(plain: Uint8Array): Row[] {
  const rows = JSON.parse(decodeUtf8(plain) ?? "[]") as [string, string][];
  return rows.map(([key, base64]) => [key, decodeBase64(base64) ?? new Uint8Array(0)]);
}

type Take = (length: number) => Promise<Uint8Array>;

async function lengthIn(take: Take): Promise<number> {
  const head = await take(4);
  const length = new DataView(head.buffer, head.byteOffset).getUint32(0);
  if (length > pieceBytesMax) throw damaged();
  return length;
}

/** Exactly so many bytes of a stream each time. */
function reader(file: ReadableStream<Uint8Array>): Take {
  const source = file.getReader();
  let held: Uint8Array = new Uint8Array(0);
  return async (length) => {
    const taken = new Uint8Array(length);
    for (let at = 0; at < length; ) {
      const part = held.subarray(0, length - at);
      taken.set(part, at);
      at += part.length;
      held = held.subarray(part.length);
      if (at === length) break;
      const { value, done } = await source.read();
      if (done) throw damaged();
      held = value;
    }
    return taken;
  };
}
