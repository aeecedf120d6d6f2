/**
 * The devices of an identity: linking a new one by a code that it shows, and removing one by keys
 * that it never sees.
 * Source: docs/client.md "Devices".
 */
import { encodeHex } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { secondMs } from "../../core/codec/time.ts";
import { late, withDeadline } from "../../core/std/bounded.ts";
import { attempt, backoffMs, ClientError, insist, localError, pause } from "../base/failure.ts";
import {
  beginReplacing,
  inForce,
  isReplacing,
  publishKeys,
  rememberChoice,
} from "../identity/new-keys.ts";
import type { KeptParts, RecordReplacement } from "../identity/replacement.ts";
import type { OtherDevices } from "../identity/sharing.ts";
import { deviceName } from "../keys/key-stores.ts";
import type { Identity } from "../keys/keys.ts";
import { type EditIdentity, loadIdentity } from "../keys/stored.ts";
import { historyOf, keysKey, peerKey, removedKey } from "../store/keys.ts";
import type { OwnStore } from "../store/own-store.ts";
import type { Table } from "../store/table.ts";
import { loadOwnHosts } from "../trust/hosts.ts";
import { loadAddedKeys } from "../trust/own.ts";
import {
  addPeers,
  type Code,
  demandOf,
  demandSameLedger,
  forgetPeers,
  givenTo,
  markLeaving,
  parseCode,
  sendLinked,
} from "./codes.ts";
import { AwaitedFacts } from "./facts.ts";
import type { DeviceInvitation } from "./inviting.ts";
import { queueHistory } from "./items.ts";
import { devicesMax } from "./keyring.ts";
import { type Device, listDevices, type Replacement, type Replacing } from "./listing.ts";
import { otherDevices } from "./others.ts";
import { lastProven, provenRoot } from "./proven.ts";
import { keepListed } from "./pushes.ts";
import { peersOf } from "./replica.ts";
import { Ring } from "./ring.ts";
import { allGone, allSeen, notedPeers, shownPeers } from "./staying.ts";
import { type DeviceLink, type Speech, Sync } from "./sync.ts";
import { isRemoved } from "./unpublished.ts";

/** This device among the others. */
type ThisDevice = {
  readonly name: string;
  /** Opens its own DID. */
  readonly openLink: () => Promise<DeviceLink>;
  readonly onOpened: () => void;
};

const leadMs = 2 * secondMs;

export class Devices {
  readonly #own: OwnStore;
  readonly #this: ThisDevice;
  readonly #table: Table;
  readonly #signal: AbortSignal;
  /** With the other devices, as soon as the DID of this one is open. @internal */
  sync: Sync | null = null;
  readonly #ring: Ring;
  readonly #facts: AwaitedFacts;
  #isResuming = false;
  /** What follows the last replacement: others could not write before. */
  #renewed: Promise<void> = Promise.resolve();
  /** What the user saw last, which ids of `replaceKeys` mean. */
  #shown: RecordReplacement | null = null;
  /** Those that the user has seen last, or accepted here since. */
  #looked: Did[] | null = null;
  #opening: Promise<{ readonly sync: Sync; readonly link: DeviceLink }> | null = null;

  /** @internal */
  constructor(own: OwnStore, device: ThisDevice) {
    this.#own = own;
    this.#this = device;
    this.#table = own.table;
    this.#signal = own.signal;
    this.#facts = new AwaitedFacts(own);
    const { table, nowMs, identity } = own;
    this.#ring = new Ring({
      ...{ table, nowMs, memory: () => identity.client.known.memory },
      identity: () => identity.secrets,
      change: (edit) => this.#change(edit),
      proven: () => provenRoot(identity.client, identity.did),
      lastProven: () => lastProven(identity.client, identity.did),
      added: () => loadAddedKeys(identity.client, identity.did),
    });
  }

  async list(): Promise<Device[]> {
    const devices = await this.listed();
    this.#looked = devices.map(({ did }) => did);
    return devices;
  }

  /** Not for the user. @internal */
  async listed(): Promise<Device[]> {
    return listDevices(this.#table, this.#this.name, await this.#ring.devices());
  }

  /** The DID of this device; `null` where there are no others. @internal */
  async ownIdentity(): Promise<Identity | null> {
    const { deviceDid } = await this.#table.meta();
    const { keys, secrets } = this.#own.identity;
    const stored = deviceDid === "" ? null : await loadIdentity(keys, deviceName(secrets.name));
    return stored?.did === deviceDid ? stored : null;
  }

  /** Whether no other device has made the keys in force. @internal */
  async hasMadeKeys(): Promise<boolean> {
    const maker = await this.#ring.maker();
    return maker === null || maker === (await this.#table.meta()).deviceDid;
  }

  /** Public keys of methods that other devices have added. @internal */
  methods(): Promise<readonly string[]> {
    return this.#ring.methods();
  }

  /** Those to whom the secrets of the sealing key go. @internal */
  async others(): Promise<OtherDevices> {
    const own = (await this.#table.meta()).deviceDid as Did;
    return otherDevices(await this.#ring.audience(own), { own, table: this.#table, of: this });
  }

  /** Speaks with other devices where there are any, and ends what was interrupted. @internal */
  async start(): Promise<void> {
    void this.#keepPushes("rest");
    if ((await this.#table.meta()).hasDevices) {
      await attempt(() => this.look());
      await this.#openSoon(0);
    }
    void this.#resume().catch((error: unknown) => this.#failed(error));
  }

  /**
   * Goes on with replacements and removals that were interrupted, or that another replacement
   * overtook, until they hold. The first failure is an event.
   */
  async #resume(): Promise<void> {
    if (this.#isResuming) return;
    this.#isResuming = true;
    // The keys of another device come from that one; without any, the user alone can help.
    const isFinal = async ({ code }: ClientError) =>
      code === "root_replaced" && !(await this.#table.meta()).hasDevices;
    const report = (error: ClientError) => this.#failed(error);
    await insist(() => this.#goOn(), { signal: this.#signal, report, isFinal }).finally(() => {
      this.#isResuming = false;
    });
  }

  /** All at once. A removal that is under way comes first. */
  #goOn(): Promise<void> {
    return this.#own.identity.inOrder(async () => {
      const leaving = (await peersOf(this.#table)).filter(({ isLeaving }) => isLeaving);
      const kept = leaving.find((one) => one.kept)?.kept ?? null;
      const gone = leaving.map(({ did }) => did);
      if (gone.length > 0) return this.#remove(gone, await notedPeers(this.#table), kept);
      if (await this.#endReplacing()) await this.#keepPushes("all");
    });
  }

  /** Again whatever the answer was: a network's login page or a proxy may have given it. */
  async #openSoon(failures: number): Promise<void> {
    if (this.#signal.aborted || !((await attempt(() => this.#open())) instanceof ClientError))
      return;
    void pause(backoffMs(failures), this.#signal)
      .then(() => this.#openSoon(failures + 1))
      .catch((error: unknown) => this.#failed(error));
  }

  #failed(error: unknown): void {
    if (this.#signal.aborted) return;
    const known = error instanceof ClientError ? error : localError("unusable", String(error));
    this.#own.identity.emit({ type: "failed", what: "devices", error: known });
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
    if (await this.#ring.join(link.did, this.#this.name)) {
      const others = (await this.#ring.devices()).filter(({ did }) => did !== link.did);
      await addPeers(this.#table, others, this.#own.nowMs());
    }
    const { logged } = await this.#table.meta();
    const demand = demandOf(this.#own.did);
    const send: DeviceLink["send"] = (to, content, options) =>
      link.send(to, content, { ...options, ...demand });
    const mail = { send, receive: link.receive };
    const sync = new Sync(this.#own, mail, this.#speechOf(link.did), logged);
    this.sync = sync;
    sync.onFacts = () => this.#facts.release();
    link.onBundle(() => sync.greet());
    sync.run().catch((error: unknown) => this.#failed(error));
    this.#this.onOpened();
    return { sync, link };
  }

  #speechOf(own: Did): Speech {
    return {
      mayTell: async (did) => (await this.#ring.audience(own)).includes(did),
      stamp: () => this.#ring.stamp(),
      holds: (publicKey) => this.#ring.holds(publicKey),
      seal: (to, said, acked) => this.#ring.seal(said, { from: own, to, acked }),
      open: async (from, json) => {
        const opened = await this.#ring.open(json, { from, to: own });
        if (opened.isChanged) await this.#follow(own);
        return opened;
      },
      isBehind: () => this.#ring.isBehind(),
      contentKey: (way, message) => this.#ring.contentKey({ from: own, to: own, ...way }, message),
    };
  }

  /** Makes the DID and key that a backup names: a copy reaches this device by them. @internal */
  async beforeBackup(): Promise<void> {
    await this.#mustLead();
    const { link } = await this.#open();
    await this.#ring.begin(link.did, this.#this.name);
    await this.#table.change(async (batch) => {
      batch.meta = { hasDevices: true };
    });
  }

  /** Goes on with keys that another device has made, when they are in force. @internal */
  async look(): Promise<void> {
    const { deviceDid } = await this.#table.meta();
    if (deviceDid !== "" && (await this.#ring.settle()).isChanged)
      await this.#follow(deviceDid as Did);
  }

  /** The devices are those of the keyring, and connections prove with its keys. */
  async #follow(own: Did): Promise<void> {
    const listed = await this.#ring.devices();
    const held = await peersOf(this.#table);
    const gone = held.filter((peer) => listed.every(({ did }) => did !== peer.did));
    for (const { did } of gone) await this.#forget(did);
    const added = listed.filter(({ did }) => did !== own && held.every((peer) => peer.did !== did));
    await addPeers(this.#table, added, this.#own.nowMs());
    for (const { did, name, addedBy } of added)
      this.#own.identity.emit({ type: "device_added", did, name, addedBy });
    await this.sync?.refresh();
    void this.#own.onNewKeys();
    void this.#resume().catch((error: unknown) => this.#failed(error));
  }

  /** A tab that has just opened the store leads a moment later. */
  async #mustLead(): Promise<void> {
    if ((await withDeadline(this.#own.leading, leadMs)) === late)
      throw localError("not_leading", "another tab leads: only it speaks with other devices");
  }

  // --------------------------------------------------------------------------------------- linking

  /** Whether this device still lacks people or groups of the history: nothing is read before. */
  isWaiting(): Promise<boolean> {
    return this.#facts.isWaiting();
  }

  /** The user goes on without the history: what arrives is filed by what is here. */
  goOn(): Promise<void> {
    return this.#facts.goOn();
  }

  /** Resolves when what arrives can be filed, and read by the keys in force. @internal */
  async ready(signal: AbortSignal): Promise<void> {
    await this.#facts.ready(signal, (error) => this.#failed(error));
    await attempt(() => this.look());
    await this.#ring.settled(signal);
  }

  /**
   * For one new device: a code for `Waypost.link({ invitation })`, for 15 minutes; `null` where the
   * Directory registers without. Throws `rate_limited` after eight in a day.
   */
  async invitation(): Promise<DeviceInvitation | null> {
    const { client, secrets: identity } = this.#own.identity.demandOpen();
    return (await import("./inviting.ts")).inviteDevice({ client, identity });
  }

  /** Gives keys, then history. Throws `invalid_code`, `code_expired` or `too_many_devices`. */
  async acceptLink(text: string, name = "device"): Promise<void> {
    const code = parseCode(text, this.#own.identity.demandOpen().nowMs());
    await this.#mustLead();
    const { sync, link } = await this.#open();
    if ((await this.#table.get(removedKey(this.#table, code.did))) !== null)
      throw localError("invalid_code", "the device of this code was removed: make a new one there");
    if ((await peersOf(this.#table)).length + 2 > devicesMax)
      throw localError("too_many_devices", `an identity has at most ${devicesMax} devices`);
    const { did: identity } = this.#own;
    await demandSameLedger(this.#own.identity.client, identity, code.did);
    await this.#ring.begin(link.did, this.#this.name);
    // Known before it has the keys: from its first word on it is answered.
    await addPeers(this.#table, [{ did: code.did, name }], this.#own.nowMs());
    const added = { addedMs: this.#own.nowMs(), addedBy: link.did };
    const device = { did: code.did, name, key: encodeHex(code.key), ...added };
    await this.#ring.add(device);
    this.#looked?.push(code.did);
    await queueHistory(this.#table, code.did, this.#signal);
    const hosts = (await loadOwnHosts(this.#own.identity.client, identity)) ?? [];
    const own = { did: link.did, name: this.#this.name };
    const given = await givenTo(this.#table, code.did, own);
    const sent = await attempt(() =>
      this.#give(link, code, { secret: code.secret, ...given, hosts }),
    );
    await this.#table.change(async (batch) => {
      if (sent instanceof ClientError) batch.delete(peerKey(this.#table, code.did));
      // The others learn of it with the next message.
      else batch.log(keysKey);
    });
    if (sent instanceof ClientError) {
      await this.#ring.drop(code.did);
      await this.#dropHistory(code.did);
    }
    await sync.refresh();
    if (sent instanceof ClientError) throw sent;
  }

  /** Sealed to the key of the code, whatever the Directory says of the new device. */
  async #give(link: DeviceLink, code: Code, given: Readonly<Record<string, unknown>>) {
    const way = { from: link.did, to: code.did };
    const content = await this.#ring.forNewDevice(given, way, code.key);
    await sendLinked(link, { to: code.did, content, ...demandOf(this.#own.did) });
  }

  async #forget(did: Did): Promise<void> {
    await forgetPeers(this.#table, [did], this.#own.identity.client.known.memory);
    await this.#dropHistory(did);
  }

  #dropHistory(did: Did): Promise<void> {
    return this.#table.sweep(historyOf(this.#table, did), () => true, this.#signal);
  }

  // -------------------------------------------------------------------------------------- removing

  /**
   * Makes new keys, gives them to the other devices, and publishes them: then the removed device
   * can't read, sign or publish. Called again, it goes on or is done. Throws `no_device`,
   * `devices_changed` when one came since `list`, and `behind` where another device must end it.
   */
  async remove(did: string): Promise<void> {
    const looked = this.#looked;
    await this.#own.identity.inOrder(async () => {
      await attempt(() => this.look());
      const publish = async (held: Identity) => (await this.#endReplacing()) || this.#publish(held);
      const isDone = await isRemoved(this.#own, did, this.#ring, publish);
      if (isDone) await this.#keepPushes("all");
      else await this.#remove([did as Did], await allSeen(this.#table, looked));
    });
    await this.#renewed;
  }

  /**
   * New keys. Devices that `keep` does not name, or that the user has not seen, are removed; all
   * stay without it. Services stay that this device has named or begun with, and `services`; of
   * other methods `methods`, or without it those that it has added. Ids mean what the last
   * `replacement` has shown under them, or else what is there now.
   */
  async replaceKeys({ keep, ...ids }: Replacing = {}): Promise<void> {
    const { keptParts } = await import("../identity/replacement.ts");
    const isTicked = [ids.services, ids.methods].some((some = []) => some.length > 0);
    if (isTicked && this.#shown === null) await this.replacement();
    const kept = keptParts(ids, this.#shown);
    await this.#own.identity.inOrder(async () => {
      // Where no one goes, who came since is no worse than who stays.
      const shown = await shownPeers(this.#table, keep === undefined ? null : this.#looked);
      const stays = shown.filter((did) => keep?.includes(did) !== false);
      await this.#remove([], stays, kept);
      this.#shown = null;
    });
    await this.#renewed;
  }

  /** What `remove` and `replaceKeys` would touch: what is not of this device alone. */
  async replacement(): Promise<Replacement> {
    const { client, secrets } = this.#own.identity;
    const { recordReplacement } = await import("../identity/replacement.ts");
    const devices = (await this.list()).filter(({ isThis }) => !isThis);
    this.#shown = await recordReplacement(client, secrets);
    return { devices, ...this.#shown };
  }

  async #remove(
    removed: readonly Did[],
    staying: readonly Did[],
    kept: KeptParts | null = null,
  ): Promise<void> {
    await this.#mustLead();
    const stays = staying.filter((did) => !removed.includes(did));
    const gone = await allGone(this.#table, removed, stays);
    const { sync } = gone.length + stays.length > 0 ? await this.#open() : { sync: null };
    const { memory } = this.#own.identity.client.known;
    await markLeaving(this.#table, gone, { kept, stays, memory });
    await sync?.refresh();
    const next = await this.#newKeys(kept, stays);
    await sync?.synced();
    await this.#publish(next);
    for (const did of gone) await this.#forget(did);
    await sync?.refresh();
    await this.#keepPushes("all");
    for (const id of gone)
      this.#own.announce({ type: "changed", conversation: null, id, what: "removed" });
  }

  async #keepPushes(how: "all" | "rest"): Promise<void> {
    const kept = await attempt(() => keepListed(this.#own.identity, how, () => this.listed()));
    if (how === "all" && kept instanceof ClientError) this.#failed(kept);
  }

  /** The next message is signed with the keys of then. */
  async #change(edit: EditIdentity): Promise<Identity> {
    const changed = await this.#own.identity.change(edit);
    this.#own.identity.forgetAuthor();
    return changed;
  }

  /** New keys. Those of an interrupted replacement, which that device may have, end first. */
  async #newKeys(kept: KeptParts | null, stays: readonly Did[]): Promise<Identity> {
    await this.#change((stored) => stored);
    await this.#endReplacing(kept);
    const { memory } = this.#own.identity.client.known;
    const change = (edit: EditIdentity) => this.#change(edit);
    const next = await beginReplacing(memory, change, { nowMs: this.#own.nowMs(), kept });
    await this.#offer(next, stays);
    return next;
  }

  /** With what the user has ticked since then. Says whether there was one to end. */
  async #endReplacing(kept: KeptParts | null = null): Promise<boolean> {
    const { memory } = this.#own.identity.client.known;
    if (!(await isReplacing(memory, this.#own.identity.secrets))) return false;
    // Another process may have ended it meanwhile.
    const held = await this.#change((stored) => stored);
    if (!(await isReplacing(memory, held))) return false;
    if (kept !== null) await rememberChoice(memory, held.nextRootSeed ?? held.rootSeed, kept);
    await this.#mustLead();
    if ((await peersOf(this.#table)).length > 0) {
      const { sync } = await this.#open();
      if (!(await this.#ring.isOffered(held)))
        await this.#offer(held, await notedPeers(this.#table));
      await sync.synced();
    }
    await this.#publish(held);
    return true;
  }

  /** The others get the keys before they are in force. */
  async #offer(next: Identity, stays: readonly Did[]): Promise<void> {
    const { deviceDid } = await this.#table.meta();
    await this.#ring.replace(next, deviceDid as Did, stays);
    await this.#table.change(async (batch) => batch.log(keysKey));
  }

  async #publish(next: Identity): Promise<void> {
    const { client, waiting } = this.#own.identity;
    const renewed = await publishKeys(client, next, { waiting });
    await this.#change((stored) => inForce(stored, renewed));
    await this.look();
    this.#renewed = this.#own.onNewKeys();
    await this.#table.change(async (batch) => batch.log(keysKey));
  }
}
