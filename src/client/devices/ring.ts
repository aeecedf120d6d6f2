/**
 * The keyring of this device in its local store: which devices the identity has, what waits for the
 * proof, and what others have heard. By the rules of `keyring.ts`; sealed as in `sealing.ts`.
 * Source: docs/trust.md ("Own devices").
 */
import { sha256 } from "#sha256";
import { decodeHex, encodeHex, utf8 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { minuteMs, secondMs } from "../../core/codec/time.ts";
import { Mutex } from "../../core/std/order.ts";
import { attempt, ClientError, localError, pause } from "../base/failure.ts";
import { isRecord } from "../base/shapes.ts";
import { withoutNext } from "../identity/new-keys.ts";
import { newestUnder } from "../keys/agreements.ts";
import { ed25519PublicKey, x25519PublicKey } from "../keys/crypto.ts";
import type { TextStore } from "../keys/key-stores.ts";
import { freshSeed, type Identity, nameOfSeed, parseIdentity } from "../keys/keys.ts";
import type { EditIdentity } from "../keys/stored.ts";
import { ringKey } from "../store/keys.ts";
import type { Table } from "../store/table.ts";
import { contentKey } from "./content.ts";
import { nameOfKey, withGiven, withSecrets } from "./joining.ts";
import { keyNotes, noteBesideKeys, noteHead } from "./key-notes.ts";
import {
  audienceOf,
  followOwn,
  type Head,
  hearHead,
  isBehind,
  type Keyring,
  mayHear,
  type ProvenRoot,
  type RingDevice,
  settle,
} from "./keyring.ts";
import {
  type HeadWithKeys,
  madeIn,
  openHead,
  openItems,
  sealHead,
  sealItems,
  withoutOwn,
} from "./sealing.ts";

/** How long a replacement that this device makes may wait for its rotation. */
const candidateMs = 10 * minuteMs;
/** How long who reads waits for keys that the proof shows, and how often it looks. */
const [settledMs, lookMs] = [30 * secondMs, secondMs / 4];
/** Keys of this device that others may still seal to. */
const secretsMax = 3;

/** Of one message. */
const headsMax = 4;
/** Public keys of methods that are remembered. */
const methodsMax = 100;

type RingRow = Keyring & {
  /** X25519, in hex, the newest first. */
  readonly secrets: readonly string[];
  /** The identity's text that goes with each candidate, by root key. */
  readonly texts: Readonly<Record<string, string>>;
  /** The root key of the replacement that this device makes. */
  readonly made: string | null;
  /** Public keys of methods that other devices have added, under the root key in force. */
  readonly methods?: readonly string[];
  /** It came with a backup: this device is none of those that it lists. */
  readonly isCopied?: boolean;
};

type RingHost = {
  readonly table: Table;
  readonly nowMs: () => number;
  readonly identity: () => Identity;
  readonly change: (edit: EditIdentity) => Promise<Identity>;
  /** What the own proof shows now. */
  readonly proven: () => Promise<ProvenRoot>;
  /** What it showed last, without asking. */
  readonly lastProven: () => ProvenRoot | null;
  /** Public keys of methods that this device has added. */
  readonly added: () => Promise<readonly string[]>;
  /** Of the key store. */
  readonly memory: () => TextStore;
};

/** Whether devices or keys are others than before. */
type Settled = { readonly isChanged: boolean };
const unchanged: Settled = { isChanged: false };
/** Who says something under which root key. */
type Saying = { readonly root: string; readonly from: Did; readonly isPeer: boolean };
type OpenedWords = { readonly said: unknown; readonly theirs: string; readonly isEarly: boolean };

export class Ring {
  readonly #host: RingHost;
  readonly #table: Table;
  readonly #changing = new Mutex();

  constructor(host: RingHost) {
    this.#host = host;
    this.#table = host.table;
  }

  async #row(): Promise<RingRow | null> {
    return this.#table.get<RingRow>(ringKey);
  }

  async #put(row: RingRow): Promise<void> {
    await this.#table.change(async (batch) => batch.put(ringKey, row));
  }

  #edit<T>(work: () => Promise<T>): Promise<T> {
    return this.#changing.run(work);
  }

  /** Public keys of methods that other devices have added. */
  async methods(): Promise<readonly string[]> {
    return (await this.#row())?.methods ?? [];
  }

  async devices(): Promise<readonly RingDevice[]> {
    return (await this.#row())?.head.devices ?? [];
  }

  /** The device that made the keys in force; `null` where there are no other devices. */
  async maker(): Promise<Did | null> {
    const row = await this.#row();
    return row === null || row.head.devices.length < 2 ? null : row.head.maker;
  }

  /** To whom this device speaks. */
  async audience(own: Did): Promise<readonly Did[]> {
    const row = await this.#row();
    return row === null ? [] : audienceOf(row, own);
  }

  /** Where there are no other devices yet: this one alone. */
  begin(did: Did, name: string): Promise<void> {
    return this.#edit(async () => {
      if ((await this.#row()) !== null) return;
      const secret = freshSeed();
      const key = encodeHex(await x25519PublicKey(secret));
      const { number, root } = await this.#mine();
      const device = { did, name, key, addedMs: this.#host.nowMs(), addedBy: null };
      const { did: identity } = this.#host.identity();
      const head = { did: identity, number, root, maker: did, untilMs: 0, devices: [device] };
      const secrets = [encodeHex(secret)];
      await this.#put({ head, candidates: [], secrets, texts: {}, made: null });
    });
  }

  /** The proven root key, whose seed this device has. Throws `root_replaced`. */
  async #mine(): Promise<ProvenRoot> {
    const proven = await this.#host.proven();
    const own = encodeHex(await ed25519PublicKey(this.#host.identity().rootSeed));
    if (own === proven.root) return proven;
    throw localError("root_replaced", "this device lacks the root key in force: link it anew");
  }

  add(device: RingDevice): Promise<void> {
    return this.#edit(async () => {
      const row = await this.#row();
      if (row === null) return;
      const head = { ...row.head, devices: [...row.head.devices, device] };
      await this.#put({ ...row, ...hearHead(row, head) });
    });
  }

  /**
   * A device that was restored next to those of its backup is one more. Says whether this is one.
   */
  join(did: Did, name: string): Promise<boolean> {
    return this.#edit(async () => {
      const row = await this.#row();
      if (row?.isCopied !== true) return false;
      const secret = freshSeed();
      const key = encodeHex(await x25519PublicKey(secret));
      const device = { did, name, key, addedMs: this.#host.nowMs(), addedBy: did };
      const head = { ...row.head, devices: [...row.head.devices, device] };
      const secrets = [encodeHex(secret)];
      await this.#put({ head, candidates: [], secrets, texts: {}, made: null });
      return true;
    });
  }

  /**
   * A device that never answered is taken out of the list again, before others have heard of it.
   */
  drop(did: Did): Promise<void> {
    return this.#edit(async () => {
      const row = await this.#row();
      if (row === null) return;
      const devices = row.head.devices.filter((one) => one.did !== did);
      await this.#put({ ...row, head: { ...row.head, devices } });
    });
  }

  // ------------------------------------------------------------------------------------- replacing

  /**
   * The head of the identity's next root key: with those who stay, and a new key of this device.
   */
  replace(next: Identity, own: Did, stays: readonly Did[]): Promise<void> {
    return this.#edit(async () => {
      const row = await this.#row();
      const { nextRootSeed } = next;
      if (row === null || nextRootSeed === null) return;
      const root = encodeHex(await ed25519PublicKey(nextRootSeed));
      await noteBesideKeys(this.#host.memory(), { makers: [{ root, maker: own }] });
      const secret = freshSeed();
      const key = encodeHex(await x25519PublicKey(secret));
      const stay = row.head.devices.filter(({ did }) => did === own || stays.includes(did));
      const devices = stay.map((one) => (one.did === own ? { ...one, key } : one));
      const untilMs = this.#host.nowMs() + candidateMs;
      const { did, number } = row.head;
      const head = { did, number: number + 1, root, maker: own, untilMs, devices };
      const before = row.candidates.filter((one) => one.root !== root);
      const text = withoutOwn({ ...next, rootSeed: nextRootSeed, nextRootSeed: null });
      await this.#put({
        ...row,
        candidates: [...before, head],
        secrets: [encodeHex(secret), ...row.secrets].slice(0, secretsMax),
        texts: { ...row.texts, [root]: text },
        made: root,
      });
    });
  }

  /** Whether the other devices can have the keys that are to be in force. */
  async isOffered({ nextRootSeed }: Identity): Promise<boolean> {
    const row = await this.#row();
    if (row === null || nextRootSeed === null) return true;
    const root = encodeHex(await ed25519PublicKey(nextRootSeed));
    return [row.head, ...row.candidates].some((one) => one.root === root);
  }

  /** After a look at the own proof: the candidate that it shows is in force, with its keys. */
  settle(): Promise<Settled> {
    return this.#edit(async () => {
      const row = await this.#row();
      return row === null ? unchanged : this.#settle(row);
    });
  }

  async #settle(row: RingRow): Promise<Settled> {
    const proven = await this.#host.proven();
    const { made, texts } = row;
    const settled = settle(row, proven, { nowMs: this.#host.nowMs(), made });
    const ring = await this.#followOwn(settled, proven);
    if (ring === row) return unchanged;
    const isAdopted = ring.head.root !== row.head.root;
    // Before the keys, as where they are made: the store may be an older copy when they are there.
    if (isAdopted) await noteHead(this.#host.memory(), ring.head, row.head);
    const text = texts[ring.head.root];
    if (isAdopted && text !== undefined) {
      const given = parseIdentity(text, this.#host.identity().name);
      if (given !== null)
        await this.#host.change((stored) => withGiven(stored, given, this.#host.nowMs()));
    }
    const left = Object.entries(texts).filter(([root]) =>
      ring.candidates.some((one) => one.root === root),
    );
    const isMadeLeft = ring.candidates.some(({ root }) => root === made);
    const { head, candidates } = ring;
    const kept = { head, candidates, secrets: row.secrets, texts: Object.fromEntries(left) };
    // Nothing survives new keys by itself: methods of other devices don't.
    const methods = isAdopted ? {} : { methods: row.methods ?? [] };
    await this.#put({ ...kept, ...methods, made: isMadeLeft ? made : null });
    return { isChanged: isAdopted };
  }

  async #followOwn(ring: Keyring, proven: ProvenRoot): Promise<Keyring> {
    if (!isBehind(ring, proven)) return ring;
    const own = encodeHex(await ed25519PublicKey(this.#host.identity().rootSeed));
    if (own !== proven.root) return ring;
    return followOwn(ring, proven, await keyNotes(this.#host.memory()));
  }

  /** What a device gets that has shown its key in a code. */
  async forNewDevice(
    given: Readonly<Record<string, unknown>>,
    way: { readonly from: Did; readonly to: Did },
    deviceKey: Uint8Array,
  ): Promise<Record<string, unknown>> {
    const identity = this.#host.identity();
    const row = (await this.#row()) as RingRow;
    const { head } = row;
    if (encodeHex(await ed25519PublicKey(identity.rootSeed)) !== head.root)
      throw localError("behind", "this device's list is of earlier keys: try again in a moment");
    const text = withoutOwn(withoutNext(identity), await this.#methodsIn(row));
    const sealed = await sealHead({ head, identity: text }, identity.rootSeed, deviceKey);
    return { v: 2, head: sealed, sealed: sealItems(identity.rootSeed, way, given) };
  }

  // -------------------------------------------------------------------------------------- speaking

  /**
   * Names what a device knows of the keyring: who names another one receives it. Of sealing secrets
   * the last counts.
   */
  async #stamp(row: RingRow): Promise<string> {
    const heads = [row.head, ...row.candidates].map(({ root, devices }) => [root, devices]);
    const { agreements, bundleKeys, methods, rootSeed } = withoutNext(this.#host.identity());
    const under = nameOfSeed(rootSeed);
    const newest = [newestUnder(agreements, under), newestUnder(bundleKeys, under)];
    const secrets = [...newest.filter((one) => one !== null), ...methods];
    const names = secrets.map(nameOfKey).sort();
    const facts = [heads, names, (await this.#methodsIn(row)).toSorted()];
    return encodeHex(sha256(utf8(JSON.stringify(facts)))).slice(0, 16);
  }

  async stamp(): Promise<string> {
    const row = await this.#row();
    return row === null ? "" : this.#stamp(row);
  }

  async #methodsIn({ methods = [] }: RingRow): Promise<readonly string[]> {
    return [...new Set([...methods, ...(await this.#host.added())])].slice(-methodsMax);
  }

  /** Whether this device has the secret of a published key, in hex, or of a bundle with this id. */
  async holds(publicKey: string): Promise<boolean> {
    const { agreements, bundleKeys } = this.#host.identity();
    if (bundleKeys.some(({ id }) => id === publicKey)) return true;
    for (const { secret } of agreements)
      if (encodeHex(await x25519PublicKey(secret)) === publicKey) return true;
    return false;
  }

  /**
   * What one device says to another, with the heads that it hasn't acknowledged. Throws `behind`
   * while the proof shows a root key of which this device has no head, unless it only asks.
   */
  async seal(
    said: unknown,
    { from, to, acked }: { readonly from: Did; readonly to: Did; readonly acked: string },
  ): Promise<Record<string, unknown>> {
    const row = await this.#row();
    if (row === null) throw localError("behind", "this device is linked anew before it speaks");
    const isAsking = isRecord(said) && !("items" in said);
    if (this.#isBehind(row) && !isAsking)
      throw localError("behind", "another device has replaced the keys: waiting for them");
    const identity = this.#host.identity();
    const stamp = await this.#stamp(row);
    const heads = stamp === acked ? [] : await this.#heads(row, identity, to);
    const sealed = sealItems(identity.rootSeed, { from, to }, { ring: stamp, said });
    return { v: 2, root: row.head.root, heads, sealed };
  }

  /** Of a file that one device sends to another. */
  contentKey(
    way: { readonly from: Did; readonly to: Did },
    message: { readonly id: string; readonly digest: string },
  ): Uint8Array {
    return contentKey(this.#host.identity().rootSeed, way, message);
  }

  async #heads(row: RingRow, identity: Identity, to: Did): Promise<string[]> {
    const own = withoutOwn(withoutNext(identity), await this.#methodsIn(row));
    const all: HeadWithKeys[] = [{ head: row.head, identity: own }];
    for (const head of row.candidates) all.push({ head, identity: row.texts[head.root] ?? "" });
    const sealed = all.map(async ({ head, identity: text }) => {
      const key = head.devices.find(({ did }) => did === to)?.key;
      const given = parseIdentity(text, identity.name);
      if (key === undefined || given === null) return [];
      // Where this device has another key already, who is listed under the one before may be
      // removed.
      if (encodeHex(await ed25519PublicKey(given.rootSeed)) !== head.root) return [];
      return [
        await sealHead({ head, identity: text }, given.rootSeed, decodeHex(key) as Uint8Array),
      ];
    });
    return (await Promise.all(sealed)).flat();
  }

  /**
   * What a listed device said. `said` is `null` when it doesn't count: under another root key than
   * the one in force. `theirs` is what it knows of the keyring; empty when it can't be read.
   * `isEarly`: the proof shows new keys that are not here so far, and of which that device may be
   * removed.
   */
  open(
    json: unknown,
    { from, to }: { readonly from: Did; readonly to: Did },
  ): Promise<Settled & OpenedWords> {
    return this.#edit(async () => {
      const nothing = { ...unchanged, said: null, theirs: "", isEarly: false };
      if (!isRecord(json) || json["v"] !== 2) return nothing;
      const { root, sealed } = json;
      const heads: unknown[] = Array.isArray(json["heads"]) ? json["heads"] : [];
      // Only a head says that somebody else is a device: a stranger makes this one ask no one.
      const isPeer = await this.#lists(from);
      if (!isPeer && !(await this.#opensAny(heads))) return nothing;
      const settled = await this.#hear(heads, { root: String(root), from, isPeer });
      const row = await this.#row();
      const isListed = row?.head.devices.some(({ did }) => did === from) === true;
      if (!isListed || root !== row.head.root || typeof sealed !== "string")
        return { ...nothing, ...settled };
      const opened = openItems(this.#host.identity().rootSeed, { from, to }, sealed);
      const { ring = "", said = null } = opened ?? {};
      const isEarly = this.#isBehind(row);
      return { ...settled, said, theirs: String(ring), isEarly };
    });
  }

  /** Whether what was last proven shows new keys that are not here so far. */
  async isBehind(): Promise<boolean> {
    const row = await this.#row();
    return row !== null && this.#isBehind(row);
  }

  /**
   * Resolves when the keys in force are here, which another device brings; without them after some
   * seconds.
   */
  async settled(signal: AbortSignal): Promise<void> {
    for (let waitedMs = 0; waitedMs < settledMs && !signal.aborted; waitedMs += lookMs) {
      if (!(await this.isBehind())) return;
      await pause(lookMs, signal);
    }
  }

  #isBehind(row: RingRow): boolean {
    const seen = this.#host.lastProven();
    return seen !== null && isBehind(row, seen);
  }

  async #lists(did: Did): Promise<boolean> {
    return (await this.devices()).some((one) => one.did === did);
  }

  async #opensAny(heads: readonly unknown[]): Promise<boolean> {
    const row = await this.#row();
    for (const text of heads.slice(0, headsMax))
      if (row !== null && typeof text === "string" && (await this.#opened(text, row)) !== null)
        return true;
    return false;
  }

  /** Heads that another device passes on; and a look at the proof when something is new. */
  async #hear(sealed: readonly unknown[], { root, from, isPeer }: Saying): Promise<Settled> {
    const before = await this.#row();
    if (before === null) return unchanged;
    let row = before;
    let isJoined = false;
    for (const text of sealed.slice(0, headsMax)) {
      const opened = typeof text === "string" ? await this.#opened(text, row) : null;
      if (opened === null || !(await this.#mayHear(opened.head, row.head, isPeer))) continue;
      const heard = hearHead(row, opened.head, from);
      const isCandidate = heard.candidates.some((one) => one.root === opened.head.root);
      const added = isCandidate ? { [opened.head.root]: opened.identity } : {};
      row = { ...row, ...heard, texts: { ...row.texts, ...added } };
      if (opened.head.root !== row.head.root || opened.head.number !== row.head.number) continue;
      const methods = [...new Set([...(row.methods ?? []), ...madeIn(opened.identity)])];
      row = { ...row, methods: methods.slice(-methodsMax) };
      isJoined = (await this.#join(opened.identity)) || isJoined;
    }
    const isHeard = JSON.stringify(row.head) !== JSON.stringify(before.head);
    if (JSON.stringify(row) !== JSON.stringify(before)) await this.#put(row);
    const isNew = row.candidates.length > 0 || root !== row.head.root;
    const { isChanged } = isNew ? await this.#settle(row) : unchanged;
    return { isChanged: isChanged || isHeard || isJoined };
  }

  /**
   * Where the head is another one than in force here the proof is asked, which may be away: it is
   * sent again.
   */
  async #mayHear(given: Head, head: Head, isListed: boolean): Promise<boolean> {
    if (mayHear(given, { head, proven: head, isListed })) return true;
    const proven = await attempt(() => this.#host.proven());
    return !(proven instanceof ClientError) && mayHear(given, { head, proven, isListed });
  }

  /** Of one root key the secrets of all devices are one set. Says whether some were new. */
  async #join(text: string): Promise<boolean> {
    const identity = this.#host.identity();
    const given = parseIdentity(text, identity.name);
    const nowMs = this.#host.nowMs();
    if (given === null || withSecrets(identity, given, nowMs) === identity) return false;
    await this.#host.change((stored) => withSecrets(stored, given, nowMs));
    return true;
  }

  async #opened(text: string, { secrets }: RingRow): Promise<HeadWithKeys | null> {
    for (const secret of secrets) {
      const { name } = this.#host.identity();
      const opened = await openHead(text, decodeHex(secret) as Uint8Array, name);
      if (opened !== null) return opened;
    }
    return null;
  }
}

/** On a new device, with the head that came with the identity. */
export async function beginRing(table: Table, head: Head, secret: Uint8Array): Promise<void> {
  const secrets = [encodeHex(secret)];
  const row: RingRow = { head, candidates: [], secrets, texts: {}, made: null };
  await table.change(async (batch) => batch.put(ringKey, row));
}
