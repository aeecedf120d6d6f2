/**
 * The devices of an identity: linking a new one by a code that it shows, and removing one by keys that it never sees.
 * Source: docs/client.md "Devices".
 */

import { decodeHex, encodeHex, equalBytes } from "../../core/codec/bytes.ts";
import { type Did, isDid } from "../../core/codec/did.ts";
import { minuteMs, secondMs } from "../../core/codec/time.ts";
import { late, withDeadline } from "../../core/std/bounded.ts";
import { attempt, backoffMs, ClientError, localError, pause } from "../base/failure.ts";
import { isInteger, isRecord } from "../base/shapes.ts";
import { inForce, nextIdentity, publishKeys } from "../identity/change.ts";
import { deviceName, type KeyStore } from "../keys/key-stores.ts";
import { freshSeed, type Identity, parseIdentity, renderIdentity } from "../keys/keys.ts";
import type { EditIdentity } from "../keys/stored.ts";
import { bytesSource } from "../mail/content.ts";
import type { Message } from "../mail/message.ts";
import { planSend } from "../mail/plan.ts";
import { recipientKey, sendPlan } from "../mail/send.ts";
import { jsonBody } from "../net/http.ts";
import type { StoreDriver } from "../store/driver.ts";
import { historyOf, keysKey, peerKey, removedKey, rowsOf } from "../store/keys.ts";
import type { OwnStore } from "../store/own-store.ts";
import type { DeviceFacts } from "../store/rows.ts";
import { Table } from "../store/table.ts";
import { activeDocument, type Client, senderOf } from "../trust/client.ts";
import { queueHistory } from "./items.ts";
import { isCurrent, type PeerRow, peersOf } from "./replica.ts";
import { type DeviceItem, type DeviceMail, Sync } from "./sync.ts";

export type Device = DeviceFacts & {
  readonly isThis: boolean;
  readonly addedAt: Date | null;
  /** Its Cache has all that is here. */
  readonly isCurrent: boolean;
};

/** The device's own DID, opened without a store, beside the identity in the key store. */
export type OwnDid = {
  readonly did: Did;
  readonly client: Client;
  readonly identity: Identity;
  readonly messages: () => AsyncGenerator<Message, void, undefined>;
  readonly close: () => Promise<void>;
};

/** It sends to own devices, and receives from them. */
export type DeviceLink = DeviceMail & {
  readonly did: Did;
  readonly client: Client;
  readonly identity: Identity;
  readonly close: () => Promise<void>;
  readonly lock: () => Promise<void>;
};

/** This device among the others. */
type ThisDevice = {
  readonly name: string;
  /** Opens its own DID. */
  readonly openLink: () => Promise<DeviceLink>;
};

const linkType = "application/vnd.waypost.link+json";
const codeMs = 10 * minuteMs;
const devicesMax = 8;
const leadMs = 2 * secondMs;

// ---------------------------------------------------------------------------------------------------------- codes

type Code = {
  readonly did: Did;
  readonly key: Uint8Array;
  readonly secret: string;
  readonly untilMs: number;
};

const renderCode = ({ did, key, secret, untilMs }: Code): string =>
  ["waypost-link", did, encodeHex(key), secret, untilMs.toString(36)].join("~");

/** Throws `invalid_code` or `code_expired`. */
function parseCode(text: string, nowMs: number): Code {
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

type LinkPlace = {
  readonly keys: KeyStore;
  readonly nowMs: () => number;
  readonly name: string;
  readonly driver: StoreDriver;
};

/** The new device's side: shows a code, as text or as QR code, and waits until the keys are in its key store. */
export async function beginLink(
  openLink: () => Promise<OwnDid>,
  { keys, name, driver, nowMs }: LinkPlace,
) {
  if ((await keys.load(name)) !== null)
    throw localError("name_taken", `an identity called ${name} already exists`);
  // The DID of an earlier device here may have been removed, which is for good.
  await keys.save(deviceName(name), null);
  const link = await openLink();
  const secret = encodeHex(crypto.getRandomValues(new Uint8Array(16)));
  const untilMs = nowMs() + codeMs;
  const { publicKey: key } = recipientKey(await activeDocument(link.client, link.did));
  const code = renderCode({ did: link.did, key, secret, untilMs });
  const timer = setTimeout(() => void link.close(), codeMs);
  const accept = async (): Promise<void> => {
    for await (const message of link.messages()) {
      const isLink = message.verified === true && message.mediaType === linkType;
      const json = isLink ? await attempt(async () => message.json()) : null;
      const { identity, devices, removed } =
        isRecord(json) && json["secret"] === secret ? json : {};
      const parsed = typeof identity === "string" ? parseIdentity(identity, name) : null;
      if (parsed === null) {
        await message.ack();
        continue;
      }
      // The other devices stand in the store before the identity is there, so that a crash leaves none without the other.
      const storeKey = freshSeed();
      const table = await Table.open(driver, storeKey);
      await forgetPeers(table, (Array.isArray(removed) ? removed : []).filter(isDid));
      await addPeers(table, (Array.isArray(devices) ? devices : []).filter(isDevice), nowMs());
      await table.change(async (batch) => {
        batch.meta = { deviceDid: link.did };
      });
      if (!(await keys.replace(name, null, renderIdentity({ ...parsed, storeKey }))))
        throw localError("name_taken", `an identity called ${name} already exists`);
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

/** With the number of its last change that a new device gets as history. */
type NewDevice = DeviceFacts & { readonly seen?: number };

/** Devices become known that were not removed. What changes from now on is sent to them. */
async function addPeers(
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

/** Devices are removed, and no list of another device, however old, brings them back. */
async function forgetPeers(table: Table, dids: readonly Did[]): Promise<void> {
  await table.change(async (batch) => {
    for (const did of dids) {
      batch.put(removedKey(table, did), did);
      batch.delete(peerKey(table, did));
    }
  });
}

/**
 * Whether what another device says of the keys is later. Of two replacements at once the ledger takes one, and only the
 * device that published it says that it has no next root key.
 */
function areLater(given: Identity, held: Identity): boolean {
  if (given.chain.epoch !== held.chain.epoch) return given.chain.epoch > held.chain.epoch;
  return given.nextRootSeed === null && held.nextRootSeed !== null;
}

const isDevice = (one: unknown): one is NewDevice =>
  isRecord(one) &&
  isDid(String(one["did"])) &&
  typeof one["name"] === "string" &&
  (one["seen"] === undefined || isInteger(one["seen"]));

// -------------------------------------------------------------------------------------------------------- devices

export class Devices {
  readonly #own: OwnStore;
  readonly #this: ThisDevice;
  readonly #table: Table;
  readonly #signal: AbortSignal;
  /** With the other devices, as soon as the DID of this one is open. @internal */
  sync: Sync | null = null;
  #opening: Promise<{ readonly sync: Sync; readonly link: DeviceLink }> | null = null;

  /** @internal */
  constructor(own: OwnStore, device: ThisDevice) {
    this.#own = own;
    this.#this = device;
    this.#table = own.table;
    this.#signal = own.signal;
  }

  async list(): Promise<Device[]> {
    const { deviceDid } = await this.#table.meta();
    const own = {
      did: deviceDid as Did,
      name: this.#this.name,
      isThis: true,
      addedAt: null,
      isCurrent: true,
    };
    const peers = (await peersOf(this.#table)).map(async (peer): Promise<Device> => {
      const { did, name, addedMs } = peer;
      return {
        did,
        name,
        isThis: false,
        addedAt: new Date(addedMs),
        isCurrent: await isCurrent(this.#table, peer),
      };
    });
    return [...(deviceDid === "" ? [] : [own]), ...(await Promise.all(peers))];
  }

  /** Begins when there are other devices. @internal */
  async start(): Promise<void> {
    if (!(await this.#table.meta()).hasDevices) return;
    await this.#openSoon(0);
    await this.#resume();
  }

  /** Goes on with removals that were interrupted, or that another replacement of the keys overtook. */
  async #resume(): Promise<void> {
    for (const { did, isLeaving } of await peersOf(this.#table))
      if (isLeaving) this.remove(did).catch((error: unknown) => this.#failed(error));
  }

  /** Again whatever the answer was: a network that asks for a login, or a proxy before the Directory, may have given it. */
  async #openSoon(failures: number): Promise<void> {
    if (this.#signal.aborted || !((await attempt(() => this.#open())) instanceof ClientError))
      return;
    void pause(backoffMs(failures), this.#signal)
      .then(() => this.#openSoon(failures + 1))
      .catch((error: unknown) => this.#failed(error));
  }

  #failed(error: unknown): void {
    if (!this.#signal.aborted)
      this.#own.identity.emit({
        type: "failed",
        what: "devices",
        error: error instanceof ClientError ? error : localError("unusable", String(error)),
      });
  }

  /** The DID of this device has secrets of its own. @internal */
  async end(how: "close" | "lock"): Promise<void> {
    const opened = await this.#opening?.catch(() => null);
    await opened?.link[how]();
  }

  #open(): Promise<{ readonly sync: Sync; readonly link: DeviceLink }> {
    this.#opening ??= this.#begin().catch((error: unknown) => {
      this.#opening = null;
      throw error;
    });
    return this.#opening;
  }

  async #begin() {
    const link = await this.#this.openLink();
    await this.#table.change(async (batch) => {
      batch.meta = { deviceDid: link.did };
    });
    const { logged } = await this.#table.meta();
    const owner = {
      keysText: () => withoutStoreKey(this.#own.identity.secrets),
      take: (item: DeviceItem, from: Did) => this.#take(item, from),
    };
    const sync = new Sync(this.#own, link, owner, logged);
    this.sync = sync;
    sync.run().catch((error: unknown) => this.#failed(error));
    return { sync, link };
  }

  /** A tab that has just opened the store leads a moment later. */
  async #mustLead(): Promise<void> {
    if ((await withDeadline(this.#own.leading, leadMs)) === late)
      throw localError("not_leading", "another tab leads: only it speaks with other devices");
  }

  // ------------------------------------------------------------------------------------------------- linking

  /** Gives a new device the keys, and then the history. Throws `invalid_code`, `code_expired` or `too_many_devices`. */
  async acceptLink(text: string, name = "device"): Promise<void> {
    const code = parseCode(text, this.#own.nowMs());
    await this.#mustLead();
    const { sync, link } = await this.#open();
    if ((await this.#table.get(removedKey(this.#table, code.did))) !== null)
      throw localError("invalid_code", "the device of this code was removed: make a new one there");
    if ((await peersOf(this.#table)).length + 2 > devicesMax)
      throw localError("too_many_devices", `an identity has at most ${devicesMax} devices`);
    // Known before it has the keys: from its first word on it is answered.
    await addPeers(this.#table, [{ did: code.did, name }], this.#own.nowMs());
    await queueHistory(this.#table, code.did, this.#signal);
    const peers = await peersOf(this.#table);
    const removed = await this.#table.values<Did>(rowsOf.removedDevices);
    const { sent: seen } = peers.find(({ did }) => did === code.did) ?? { sent: 0 };
    const own = { did: link.did, name: this.#this.name, seen };
    // What each has logged until then is in the history of this one.
    const others = peers
      .filter(({ did }) => did !== code.did)
      .map(({ did, name, seen }) => ({ did, name, seen }));
    const keys = {
      v: 1,
      secret: code.secret,
      identity: withoutStoreKey(this.#own.identity.secrets),
    };
    const sent = await attempt(() =>
      this.#give(link, code, { ...keys, devices: [own, ...others], removed }),
    );
    await this.#table.change(async (batch) => {
      if (sent instanceof ClientError) batch.delete(peerKey(this.#table, code.did));
      // The others send to it from then on.
      else batch.log(peerKey(this.#table, code.did));
    });
    if (sent instanceof ClientError) await this.#dropHistory(code.did);
    await sync.refresh();
    if (sent instanceof ClientError) throw sent;
  }

  async #give(
    link: DeviceLink,
    code: Code,
    keys: Readonly<Record<string, unknown>>,
  ): Promise<void> {
    const source = bytesSource("", linkType, jsonBody(keys));
    const sender = await senderOf(link.client, link.identity);
    const plan = await planSend(link.client, code.did, source.file, { sender, ttl: "10m" });
    // What the Directory says of the new device is compared with what it showed.
    if (!equalBytes(plan.recipient.publicKey, code.key))
      throw new ClientError(
        "distrusted",
        "identity_changed",
        "the new device's key is not the one in its code",
      );
    await sendPlan(plan, source, { relay: link.client.relay });
  }

  async #forget(did: Did): Promise<void> {
    await forgetPeers(this.#table, [did]);
    await this.#dropHistory(did);
  }

  #dropHistory(did: Did): Promise<void> {
    return this.#table.sweep(historyOf(this.#table, did), () => true, this.#signal);
  }

  /** What another device says about keys and devices. */
  async #take({ is, row }: DeviceItem, from: Did): Promise<void> {
    if (is === "k") {
      return this.#own.identity.inOrder(async () => {
        const { name, did } = this.#own.identity.secrets;
        const given = parseIdentity(row, name);
        if (given?.did !== did) return;
        let isLater = false;
        await this.#change((stored) => {
          isLater = areLater(given, stored);
          return isLater ? withGiven(stored, given) : stored;
        });
        if (!isLater || given.nextRootSeed !== null) return;
        this.#own.onNewKeys();
        await this.#resume();
      });
    }
    const { deviceDid } = await this.#table.meta();
    if (is === "x") await this.#forget(row);
    else if (isDevice(row) && ![deviceDid, from].includes(row.did))
      await addPeers(this.#table, [row], this.#own.nowMs());
    await this.sync?.refresh();
  }

  // ------------------------------------------------------------------------------------------------ removing

  /**
   * Makes new keys, gives them to the other devices, and publishes them: from then on the removed device can't read, sign
   * or publish. What it has it keeps. Called again, it goes on where it was interrupted.
   */
  remove(did: string): Promise<void> {
    return this.#own.identity.inOrder(() => this.#remove(did as Did));
  }

  async #remove(did: Did): Promise<void> {
    await this.#mustLead();
    const { sync } = await this.#open();
    const peers = await peersOf(this.#table);
    const peer = peers.find((one) => one.did === did);
    if (peer === undefined)
      throw localError("no_device", `${did} is no other device of this identity`);
    // Nothing is sent to a device that is leaving, or heard from it.
    await this.#table.change(async (batch) => {
      batch.put(peerKey(this.#table, did), { ...peer, isLeaving: true });
      batch.put(removedKey(this.#table, did), did);
      batch.log(removedKey(this.#table, did));
    });
    await sync.refresh();
    const next = await this.#newKeys();
    await sync.synced();
    await this.#publish(next);
    await this.#forget(did);
    await sync.refresh();
    this.#own.tell({ type: "changed", conversation: null, id: did, what: "removed" });
  }

  /** The next message is signed with the keys of then. */
  async #change(edit: EditIdentity): Promise<Identity> {
    const changed = await this.#own.identity.change(edit);
    this.#own.identity.forgetAuthor();
    return changed;
  }

  /** New keys. Those of a replacement that was interrupted, which that device may have, end first. */
  async #newKeys(): Promise<Identity> {
    const held = await this.#change((stored) => stored);
    if (held.nextRootSeed !== null) await this.#publish(held);
    const next = await this.#change((stored) => nextIdentity(stored, this.#own.nowMs()));
    await this.#table.change(async (batch) => batch.log(keysKey));
    return next;
  }

  async #publish(next: Identity): Promise<void> {
    const { identity } = this.#own;
    const renewed = await publishKeys(identity.client, next, identity.waiting);
    await this.#change((stored) => inForce(stored, renewed));
    this.#own.onNewKeys();
    await this.#table.change(async (batch) => batch.log(keysKey));
  }
}

/** As another device has it; what only this one has stays. */
function withGiven(stored: Identity, given: Identity): Identity {
  const { storeKey } = stored;
  const methods = [...without(stored.methods, given.methods), ...given.methods];
  // Their order says which are newer: those behind the last common one. Others before it were destroyed here.
  const common = given.agreements.findLastIndex(
    (one) => without([one], stored.agreements).length === 0,
  );
  const agreements = [...stored.agreements, ...given.agreements.slice(common + 1)];
  // Later rotations here have taken the chain further than the other device knows.
  const isKnown = given.agreements.length > 0 && common === given.agreements.length - 1;
  return { ...given, storeKey, methods, agreements, chain: isKnown ? stored.chain : given.chain };
}

type Held = Identity["methods"][number];

function without<T extends Held>(some: readonly T[], others: readonly Held[]): T[] {
  return some.filter(
    ({ id, secret }) => !others.some((one) => one.id === id && equalBytes(one.secret, secret)),
  );
}

const withoutStoreKey = (identity: Identity): string =>
  renderIdentity({ ...identity, storeKey: new Uint8Array(32) });
