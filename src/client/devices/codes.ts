/**
 * Linking a device: the code that a new one shows, with its own key and a secret, and what it makes
 * of the answer. Only who knows both can give it an identity, whatever servers say of its DID.
 * Source: docs/client.md "Devices".
 */
import { decodeHex, encodeHex, equalBytes } from "../../core/codec/bytes.ts";
import { type Did, isDid } from "../../core/codec/did.ts";
import { minuteMs } from "../../core/codec/time.ts";
import { isSelfCertifying } from "../../core/ledger/names.ts";
import { attempt, ClientError, localError } from "../base/failure.ts";
import { isInteger, isRecord, keptBytes32, keptDid, object } from "../base/shapes.ts";
import type { KeptParts } from "../identity/replacement.ts";
import { x25519PublicKey } from "../keys/crypto.ts";
import {
  deviceName,
  historyKey,
  type KeyStore,
  memoryOf,
  type TextStore,
} from "../keys/key-stores.ts";
import { freshSeed, type Identity, parseIdentity, renderIdentity } from "../keys/keys.ts";
import { bytesSource } from "../mail/content.ts";
import type { Message } from "../mail/message.ts";
import { planSend } from "../mail/plan.ts";
import { sendPlan } from "../mail/send.ts";
import { jsonBody } from "../net/http.ts";
import type { StoreDriver } from "../store/driver.ts";
import { peerKey, removedKey, rowsOf } from "../store/keys.ts";
import type { DeviceFacts } from "../store/rows.ts";
import { Table } from "../store/table.ts";
import { type Client, senderOf } from "../trust/client.ts";
import { keepOwnHosts } from "../trust/hosts.ts";
import { distrust, recall, type TrustDemand } from "../trust/trust.ts";
import { awaitFacts } from "./facts.ts";
import { noteBesideKeys } from "./key-notes.ts";
import { devicesMax } from "./keyring.ts";
import { type PeerRow, peersOf } from "./replica.ts";
import { beginRing } from "./ring.ts";
import { openHead, openItems } from "./sealing.ts";

/** The key of a store with the history of a backup whose keys were replaced since. */
const historyShape = object({ did: keptDid, storeKey: keptBytes32 });

/** The device's own DID, opened without a store, next to the identity in the key store. */
export type OwnDid = {
  readonly did: Did;
  readonly client: Client;
  readonly identity: Identity;
  readonly messages: () => AsyncGenerator<Message, void, undefined>;
  readonly close: () => Promise<void>;
};

const linkType = "application/vnd.waypost.link+json";
const codeMs = 10 * minuteMs;

export type Code = {
  readonly did: Did;
  /** The device's own key, which no server names. */
  readonly key: Uint8Array;
  readonly secret: string;
  readonly untilMs: number;
};

const renderCode = ({ did, key, secret, untilMs }: Code): string =>
  ["waypost-link", did, encodeHex(key), secret, untilMs.toString(36)].join("~");

/** Throws `invalid_code` or `code_expired`. */
export function parseCode(text: string, nowMs: number): Code {
  const [form, did = "", hex = "", secret = "", until = ""] = String(text).trim().split("~");
  const key = /^[0-9a-f]{64}$/.test(hex) ? decodeHex(hex) : null;
  const untilMs = Number.parseInt(until, 36);
  if (
    form !== "waypost-link" ||
    !isDid(did) ||
    key === null ||
    !/^[0-9a-f]{32}$/.test(secret) ||
    !(untilMs > 0)
  )
    throw localError("invalid_code", "not the code of a new device");
  if (untilMs < nowMs)
    throw localError("code_expired", "the code is older than ten minutes: make a new one");
  return { did, key, secret, untilMs };
}

const unknownCodes = ["proof_missing", "did_not_found", "not_found"];

/**
 * A device's DID has the form of the identity's, on its ledger: otherwise its keys can't be proven,
 * or no Directory answers for both. Throws `proof_missing` or `other_ledger`.
 */
export async function demandSameLedger(client: Client, identity: Did, device: Did): Promise<void> {
  if (isSelfCertifying(identity) !== isSelfCertifying(device))
    throw distrust(
      "proof_missing",
      "the DID of the new device is of another form than this identity's: its keys can't be proven",
    );
  if (!isSelfCertifying(device)) return;
  const seen = await attempt(() => client.trust.view(device));
  const isUnknown = seen instanceof ClientError && unknownCodes.includes(seen.code);
  if (seen instanceof ClientError && !isUnknown) throw seen;
  const { genesisHash } = await client.trust.prove(identity, null);
  if (!(seen instanceof ClientError) && equalBytes(seen.state.genesisHash, genesisHash)) return;
  throw localError(
    "other_ledger",
    "the new device has a DID that this identity's Directory doesn't know: open it at the same Directory, on the same ledger",
  );
}

type LinkPlace = {
  readonly keys: KeyStore;
  readonly nowMs: () => number;
  readonly name: string;
  readonly driver: StoreDriver;
};

/**
 * The new device's side: shows a code, as text or as QR code, and waits until the keys are in its
 * key store.
 */
export async function beginLink(
  openLink: () => Promise<OwnDid>,
  { keys, name, driver, nowMs }: LinkPlace,
) {
  if ((await keys.load(name)) !== null)
    throw localError("name_taken", `an identity called ${name} already exists`);
  const memory = memoryOf(keys, name);
  // The DID of an earlier device here may have been removed, which is for good.
  await keys.save(deviceName(name), null);
  const link = await openLink();
  const secret = encodeHex(crypto.getRandomValues(new Uint8Array(16)));
  const untilMs = nowMs() + codeMs;
  const deviceSecret = freshSeed();
  const key = await x25519PublicKey(deviceSecret);
  const code = renderCode({ did: link.did, key, secret, untilMs });
  const timer = setTimeout(() => void link.close(), codeMs);
  const accept = async (): Promise<void> => {
    for await (const message of link.messages()) {
      const isLink = message.verified === true && message.mediaType === linkType;
      const json = isLink ? await attempt(async () => message.json()) : null;
      const way = { from: message.from as Did, to: link.did };
      const given = await openLinked(json, { deviceSecret, secret, name, way });
      if (given === null) {
        await message.ack();
        continue;
      }
      // The other devices and the own hosts are kept before the identity is there, so that a crash
      // leaves none without the other.
      const history = await recall(memory, historyKey, historyShape);
      const storeKey = history?.did === given.identity.did ? history.storeKey : freshSeed();
      const table = await Table.open(driver, storeKey);
      await forgetPeers(table, given.removed, memory);
      await addPeers(table, given.devices, nowMs());
      await beginRing(table, given.head, deviceSecret);
      await table.change(async (batch) => {
        batch.meta = { deviceDid: link.did };
        awaitFacts(batch, nowMs());
      });
      // What the document has besides may be of a device that a thief had linked before.
      if (given.hosts.length > 0) await keepOwnHosts(memory, given.identity.did, given.hosts);
      const identity = renderIdentity({ ...given.identity, storeKey });
      if (!(await keys.replace(name, null, identity)))
        throw localError("name_taken", `an identity called ${name} already exists`);
      await memory.save(historyKey, null);
      await message.ack();
      return;
    }
    throw localError("code_expired", "no device accepted the code");
  };
  const accepted = accept().finally(async () => {
    clearTimeout(timer);
    await link.close();
  });
  accepted.catch(() => undefined);
  return { code, accepted, cancel: () => link.close() };
}

type Linking = {
  readonly deviceSecret: Uint8Array;
  readonly secret: string;
  readonly name: string;
  readonly way: { readonly from: Did; readonly to: Did };
};

/**
 * What a device gives that accepts the code; `null` for anything that does not know key and secret
 * of the code.
 */
async function openLinked(json: unknown, { deviceSecret, secret, name, way }: Linking) {
  const { v, head, sealed } = isRecord(json) ? json : {};
  if (v !== 2 || typeof head !== "string" || typeof sealed !== "string") return null;
  const opened = await openHead(head, deviceSecret, name);
  const identity = opened === null ? null : parseIdentity(opened.identity, name);
  if (opened === null || identity === null) return null;
  const given = openItems(identity.rootSeed, way, sealed);
  if (given?.["secret"] !== secret) return null;
  const { devices, removed, hosts } = given;
  return {
    identity,
    head: opened.head,
    devices: (Array.isArray(devices) ? devices : []).filter(isDevice),
    removed: (Array.isArray(removed) ? removed : []).filter(isDid),
    hosts: (Array.isArray(hosts) ? hosts : []).filter((one) => typeof one === "string"),
  };
}

/** Own devices of an identity that is proven are proven themselves. */
export const demandOf = (did: Did): { readonly trust?: TrustDemand } =>
  isSelfCertifying(did) ? { trust: "proven" } : {};

/** What a new device learns of the others, next to the keys. */
export async function givenTo(table: Table, to: Did, own: DeviceFacts) {
  const peers = await peersOf(table);
  const removed = await table.values<Did>(rowsOf.removedDevices);
  const { sent: seen } = peers.find(({ did }) => did === to) ?? { sent: 0 };
  // What each has logged until then is in the history of this one.
  const others = peers
    .filter(({ did }) => did !== to)
    .map(({ did, name, seen }) => ({ did, name, seen }));
  return { devices: [{ ...own, seen }, ...others], removed };
}

/** To a device that has shown a code, and listens for ten minutes. */
export async function sendLinked(
  { client, identity }: Pick<OwnDid, "client" | "identity">,
  {
    to,
    content,
    ...demand
  }: { readonly to: Did; readonly content: object; readonly trust?: TrustDemand },
): Promise<void> {
  const source = bytesSource("", linkType, jsonBody(content));
  const sender = await senderOf(client, identity);
  const plan = await planSend(client, to, source.file, { sender, ttl: "10m", ...demand });
  await sendPlan(plan, source, { relay: client.relay });
}

/** With the number of its last change that a new device gets as history. */
type NewDevice = DeviceFacts & { readonly seen?: number };

/** Devices become known that were not removed. What changes from now on is sent to them. */
export async function addPeers(
  table: Table,
  devices: readonly NewDevice[],
  addedMs: number,
): Promise<void> {
  await table.change(async (batch) => {
    const { logged: sent } = await table.meta();
    for (const { did, name, seen = 0 } of devices.slice(0, devicesMax)) {
      const key = peerKey(table, did);
      const row: PeerRow = { did, name, addedMs, seen, sent, isLeaving: false };
      const isRemoved = (await batch.get(removedKey(table, did))) !== null;
      if (!isRemoved && (await batch.get(key)) === null) batch.put(key, row);
    }
    batch.meta = { hasDevices: true };
  });
}

type Leaving = {
  readonly kept: KeptParts | null;
  readonly stays: readonly Did[];
  /** Of the key store. */
  readonly memory: TextStore;
};

/**
 * Other devices are to go: nothing is sent to them, or heard from them. What the user has ticked is
 * stored with that, for all that are to go, and which devices stay: whatever interrupts it.
 */
export async function markLeaving(
  table: Table,
  gone: readonly Did[],
  { kept, stays, memory }: Leaving,
): Promise<void> {
  const peers = await peersOf(table);
  const leaving = gone.map((did) => {
    const peer = peers.find((one) => one.did === did);
    if (peer !== undefined) return peer;
    throw localError("no_device", `${did} is not another device of this identity`);
  });
  await noteBesideKeys(memory, { removed: gone });
  await table.change(async (batch) => {
    for (const peer of [...peers.filter(({ isLeaving }) => isLeaving), ...leaving])
      batch.put(peerKey(table, peer.did), {
        ...peer,
        isLeaving: true,
        kept: kept ?? peer.kept ?? null,
        stays,
      });
    for (const { did } of leaving) batch.put(removedKey(table, did), did);
  });
}

/** Devices are removed, and no list of another device, however old, brings them back. */
export async function forgetPeers(
  table: Table,
  dids: readonly Did[],
  memory: TextStore,
): Promise<void> {
  await noteBesideKeys(memory, { removed: dids });
  await table.change(async (batch) => {
    for (const did of dids) {
      batch.put(removedKey(table, did), did);
      batch.delete(peerKey(table, did));
    }
  });
}

const isDevice = (one: unknown): one is NewDevice =>
  isRecord(one) &&
  isDid(String(one["did"])) &&
  typeof one["name"] === "string" &&
  (one["seen"] === undefined || isInteger(one["seen"]));
