/**
 * An identity with a local store: what arrives is saved and acknowledged, what is sent waits in the
 * store until the Relay has it. In every tab; the one that leads receives and delivers. Here its
 * parts are put together, and begin and end.
 * Source: docs/client.md "A local store".
 */

import { hourMs, secondMs } from "../core/codec/time.ts";
import { deferred } from "../core/std/deferred.ts";
import {
  attempt,
  backoffMs,
  ClientError,
  checkGiven,
  localError,
  pause,
  Wakeup,
} from "./base/failure.ts";
import { text } from "./base/shapes.ts";
import { Devices } from "./devices/devices.ts";
import { historyMissing } from "./devices/facts.ts";
import { renewPush } from "./devices/pushes.ts";
import type { DeviceLink } from "./devices/sync.ts";
import type { Content } from "./mail/content.ts";
import type { Message } from "./mail/message.ts";
import type { OwnIdentity } from "./mail/own-identity.ts";
import type { MessageOptions, Sent } from "./mail/send.ts";
import { Copies } from "./store/copies.ts";
import type { StoreDriver } from "./store/driver.ts";
import { EvidenceKeeper } from "./store/evidence.ts";
import { GroupHanding } from "./store/group-handing.ts";
import { OwnGroups } from "./store/group-own.ts";
import { GroupTalk } from "./store/group-talk.ts";
import { upgradeGroups } from "./store/group-upgrade.ts";
import { Groups } from "./store/groups.ts";
import { Incoming } from "./store/incoming.ts";
import { Lasting } from "./store/lasting.ts";
import { Outbox } from "./store/outbox.ts";
import { OwnPasses } from "./store/own-passes.ts";
import { OwnStore } from "./store/own-store.ts";
import { Passes } from "./store/passes.ts";
import { type PollResult, Receiver } from "./store/receiver.ts";
import { type ReportOptions, reportOf } from "./store/reporting.ts";
import { Sending } from "./store/sending.ts";
import type { StoredMessage } from "./store/shown.ts";
import { LocalStore, removeOldestFile } from "./store/store.ts";
import { Table } from "./store/table.ts";
import { joinTabs } from "./store/tabs.ts";
import { cachesOf } from "./trust/caches.ts";

type SessionOptions = {
  readonly driver: StoreDriver;
  /** Messages are saved when the program acknowledges them. */
  readonly isByHand: boolean;
  /** Asks for receipts, and sends them. */
  readonly receipts: boolean;
  /** Who signed what is saved is accepted. */
  readonly acceptRequests: boolean;
  /** A mailbox whose owner gives passes knows no one by acknowledgements. */
  readonly givesPasses: boolean;
  /** Names this device for others, and its live session; made once when it is not given. */
  readonly device: string | undefined;
  readonly pollMs: number | undefined;
  /** Opens the DID of this device. */
  readonly openLink: () => Promise<DeviceLink>;
  /** That DID receives from now on. */
  readonly onOpened: () => void;
  /** Keys were replaced, here or by another device. */
  readonly onNewKeys: () => Promise<void>;
  /** Subscribes this device once more, where the program has asked for pushes. */
  readonly pushAgain: () => Promise<void>;
};

/** A program that looks once doesn't wait longer for other devices. */
const historyMs = 30 * secondMs;
/** After so many looks at the document in a row: some seconds. */
const noCacheTimes = 4;

export class StoreSession {
  readonly store: LocalStore;
  readonly devices: Devices;
  readonly groups: Groups;
  readonly #own: OwnStore;
  readonly #options: SessionOptions;
  readonly #outbox: Outbox;
  readonly #passes: OwnPasses;
  readonly #people = new Wakeup();
  readonly #sending: Sending;
  readonly #incoming: Incoming;
  readonly #talk: GroupTalk;
  readonly #lasting: Lasting;
  readonly #handing: GroupHanding;
  readonly #closed = deferred<void>();
  readonly #withDevices = deferred<void>();
  #receiver: Receiver | null = null;
  readonly #newKeys = new Wakeup();
  #work: Promise<unknown> = Promise.resolve();

  private constructor(own: OwnStore, options: SessionOptions) {
    this.#own = own;
    this.#options = options;
    const { table, identity } = own;
    table.makeRoom = async (isNews) => {
      if (options.driver.bytesMax < Infinity && (await removeOldestFile(own))) return true;
      if (isNews) own.announce({ type: "store_full" });
      return false;
    };
    new EvidenceKeeper(own);
    const copies = new Copies(own);
    this.#outbox = new Outbox(own);
    this.#outbox.keeper = copies;
    this.#outbox.passes = new Passes(own);
    this.#passes = new OwnPasses(own);
    this.#sending = new Sending(own, this.#outbox, options.receipts);
    const { openLink, onOpened, device = "device" } = options;
    this.devices = new Devices(own, { name: device, openLink, onOpened });
    own.onWant = (key) => void attempt(async () => this.devices.sync?.want(key));
    own.onNewKeys = () => {
      this.reconnect();
      void attempt(() => this.#takeOver());
      void this.#renewPush("all").catch(() => undefined);
      return options.onNewKeys();
    };
    this.#talk = new GroupTalk(own, this.#sending);
    this.#talk.hasMadeKeys = () => this.devices.hasMadeKeys();
    const ownGroups = new OwnGroups(own, this.#talk);
    const handing = new GroupHanding(own, this.#talk);
    this.#handing = handing;
    handing.deviceDids = async () => (await this.devices.listed()).map(({ did }) => did);
    own.onGroup = async (row) => {
      const change = await ownGroups.take(row);
      if (change !== null) void attempt(() => handing.goOn(change.conversation ?? ""));
      return change;
    };
    const [sending, talk] = [this.#sending, this.#talk];
    const parts = { sending, copies, talk, devices: this.devices };
    this.#incoming = new Incoming(own, { ...parts, acceptsRequests: options.acceptRequests });
    this.store = new LocalStore(own, this.#outbox, { copies, sending: this.#sending });
    this.groups = new Groups(own, { sending, store: this.store, talk, handing });
    this.#lasting = new Lasting(own);
    identity.on((event) => {
      if (event.type === "connected") this.#outbox.retry();
      if (event.type === "changed") this.#lasting.wake();
      if (event.type === "changed" && event.what === "person") this.#people.wake();
    });
    this.#withDevices.promise.catch(() => undefined);
  }

  static async open(identity: OwnIdentity, options: SessionOptions): Promise<StoreSession> {
    const { driver } = options;
    const table = await Table.open(driver, identity.secrets.storeKey, identity.nowMs);
    const tabs = await joinTabs(driver, table.place);
    return new StoreSession(new OwnStore(identity, table, tabs), options);
  }

  /** For a backup. */
  get table(): Table {
    return this.#own.table;
  }

  async isSettled(): Promise<boolean> {
    return (await this.table.meta()).isSettled;
  }

  async settled(): Promise<void> {
    if (await this.isSettled()) return;
    await this.table.change(async (batch) => {
      batch.meta = { isSettled: true };
    });
  }

  // --------------------------------------------------------------------------------------- leading

  /** Receives and delivers as soon as this tab leads. */
  start(): void {
    this.#work = this.#own.leading
      .then(() => this.#lead())
      .catch((error: unknown) => {
        // A bug, or a store that fails altogether: it is reported to the program,
        // which waits for nothing.
        const cause = error instanceof ClientError ? error : localError("unusable", String(error));
        this.#own.identity.emit({ type: "failed", what: "store", error: cause });
        this.#withDevices.reject(cause);
        if (!(error instanceof ClientError)) throw error;
      });
  }

  async #lead(): Promise<void> {
    const { signal, identity } = this.#own;
    if (signal.aborted) return;
    const { known } = identity.client;
    known.sentMs = Math.max(known.sentMs, (await this.table.meta()).sentMs);
    await upgradeGroups(this.table);
    await this.#outbox.lead();
    identity.emit({ type: "leading" });
    // First, so that nothing is acknowledged of which they could be informed before.
    await this.devices.start();
    this.#withDevices.resolve();
    void this.#renewPush("rest").catch(() => undefined);
    await attempt(() => this.#takeOver());
    await attempt(() => this.#handing.resume());
    await Promise.all([
      this.#receive(),
      this.#sweep(),
      this.#givePasses(),
      this.#lasting.run(signal),
    ]);
  }

  #renewPush(how: "all" | "rest"): Promise<void> {
    const { pushAgain } = this.#options;
    return renewPush(this.#own.identity, this.devices, { how, pushAgain });
  }

  /** Groups of this identity go on under its new keys. */
  async #takeOver(): Promise<void> {
    await this.#talk.takeOver();
    await this.#handing.signAgain();
  }

  async #receive(): Promise<void> {
    if (this.#options.isByHand) return;
    const { signal } = this.#own;
    await this.devices.ready(signal);
    // Nothing is handed over here. It ends with `close`, by throwing what is a bug, or
    // to connect with new keys.
    for (let failures = 0; !signal.aborted; ) {
      this.#newKeys.begin();
      const receiver = this.receiver();
      this.#receiver = receiver;
      receiver.start();
      const ended = await attempt(() => receiver.next().finally(() => receiver.stop()));
      failures = ended instanceof ClientError ? failures + 1 : 0;
      if (!(ended instanceof ClientError)) continue;
      if (ended.code !== "no_cache") throw ended;
      // After a removal the document is there before the new keys are: only
      // what stays so is reported.
      if (failures === noCacheTimes)
        this.#own.identity.emit({ type: "failed", what: "store", error: ended });
      await this.#newKeys.next(backoffMs(failures), signal);
    }
  }

  /** Saves what it receives; `by-hand` when the program acknowledges it. */
  receiver(saves: "saved" | "by-hand" = "saved"): Receiver {
    const { identity, table } = this.#own;
    const { pollMs, device = table.name("device").slice(0, 8) } = this.#options;
    const inbox = saves === "saved" ? this.#incoming.saved : this.#incoming.byHand;
    return new Receiver(identity, inbox, { device, pollMs });
  }

  async #sweep(): Promise<void> {
    for (const { signal } = this.#own; !signal.aborted; await pause(hourMs, signal))
      await attempt(() => this.#sweepOnce(signal));
  }

  async #sweepOnce(signal: AbortSignal): Promise<void> {
    await this.#incoming.sweep(signal);
    await this.#talk.hearWaiting();
  }

  /** A Cache that is away, or an answer that fails: the next look comes within the hour. */
  async #givePasses(): Promise<void> {
    if (!this.#options.givesPasses) return;
    for (const { signal } = this.#own; !signal.aborted; await this.#people.next(hourMs, signal)) {
      this.#people.begin();
      await attempt(() => this.#passes.put());
    }
  }

  /**
   * Saves what waits in the Caches, as soon as the other devices can get it. Throws
   * `history_missing` on a device that was linked and gets no people and groups from the
   * others for half a minute.
   */
  async receiveWaiting(): Promise<PollResult> {
    this.demandOpen();
    await Promise.race([this.#withDevices.promise, this.#closed.promise]);
    await this.devices.ready(AbortSignal.any([this.#own.signal, AbortSignal.timeout(historyMs)]));
    if (await this.devices.isWaiting()) throw historyMissing();
    const { client, secrets } = this.#own.identity;
    const receiver = this.receiver();
    return receiver.poll(await cachesOf(client, secrets)).finally(() => receiver.stop());
  }

  /** With the keys of now, and to the Caches that the document names now. */
  reconnect(): void {
    this.#passes.moved();
    this.#people.wake();
    this.#newKeys.wake();
    void this.#receiver?.stop();
  }

  // ------------------------------------------------------------------------- sending and receiving

  send(to: string, content: Content, options: MessageOptions): Promise<Sent[]> {
    return this.#sending.send([to], content, options);
  }

  /** Throws `closed`. */
  demandOpen(): void {
    this.#own.identity.demandOpen();
  }

  async report(
    messages: readonly StoredMessage[],
    reason: string,
    agreed: ReportOptions,
  ): Promise<Sent> {
    this.demandOpen();
    checkGiven(agreed, { operator: text });
    const { table, identity } = this.#own;
    const asked = { ...agreed, messages, reason };
    const { to, content, options } = await reportOf(identity.client, table, asked);
    return (await this.send(to, content, options))[0] as Sent;
  }

  async typing(conversation: string, isTyping: boolean): Promise<void> {
    this.demandOpen();
    return this.#sending.typing(conversation, isTyping);
  }

  /** What was saved and not handed over, once each. */
  async *messages(signal: AbortSignal): AsyncGenerator<Message, void, undefined> {
    await Promise.race([this.#own.leading, this.#closed.promise]);
    yield* this.#incoming.messages(AbortSignal.any([signal, this.#own.signal]));
  }

  async close(): Promise<void> {
    const { signal, leading } = this.#own;
    if (signal.aborted) return;
    this.#own.stop();
    this.#closed.resolve();
    await this.#receiver?.stop();
    await this.devices.end("close");
    // A command that only sends has no store open.
    if (!this.#options.givesPasses) await attempt(() => this.#passes.keep());
    await Promise.race([leading.then(() => this.#work), pause(0, signal)]);
    await this.#outbox.close();
    await this.#own.close();
  }
}
