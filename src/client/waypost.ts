/**
 * `Waypost`: an identity that sends and receives. `open` creates and registers it on first use, and
 * loads it later. The functions of `parts.ts` can be used alone.
 * Source: docs/client.md.
 */
import type { Did } from "../core/codec/did.ts";
import {
  abortedError,
  attempt,
  checkGiven,
  localError,
  retryTemporary,
  untilAborted,
} from "./base/failure.ts";
import { abortSignal } from "./base/shapes.ts";
import type { Devices } from "./devices/devices.ts";
import type { DeviceLink } from "./devices/sync.ts";
import type { BackupState } from "./identity/backup.ts";
import type { Guardian, GuardianChoice } from "./identity/guardians.ts";
import {
  checkOptions,
  makeIdentity,
  nodeUrls,
  settleIdentity,
  type WaypostOptions,
} from "./identity/opening.ts";
import type { PushOptions, PushSubscriptionLike } from "./identity/push.ts";
import { randomUuid } from "./keys/crypto.ts";
import { isDeviceName, memoryOf, reliable } from "./keys/key-stores.ts";
import { type Identity, renderIdentity } from "./keys/keys.ts";
import { loadIdentity } from "./keys/stored.ts";
import { type Content, reactionContent, reactionType } from "./mail/content.ts";
import type { Listener, Message, WaypostEvent } from "./mail/message.ts";
import { OwnIdentity } from "./mail/own-identity.ts";
import { checkMessage, type MessageOptions, type Sent } from "./mail/send.ts";
import { clockProblem, timeoutMsDefault } from "./net/http.ts";
import type { StoreSession } from "./session.ts";
import type { StoreDriver } from "./store/driver.ts";
import type { Groups } from "./store/groups.ts";
import { Passing } from "./store/passing.ts";
import type { PollResult, Receiver } from "./store/receiver.ts";
import type { ReportOptions } from "./store/reporting.ts";
import type { StoredMessage } from "./store/shown.ts";
import type { LocalStore } from "./store/store.ts";
import type { UnkeptLoops } from "./store/unkept.ts";
import { type Client, connect } from "./trust/client.ts";
import type { Fingerprint } from "./trust/fingerprint.ts";
import type { Operator } from "./trust/operator.ts";
import { Upkeep } from "./upkeep.ts";

export class Waypost {
  readonly #identity: OwnIdentity;
  readonly #options: WaypostOptions;
  readonly #closed = new AbortController();
  /** Sends where no store keeps anything. */
  readonly #passing: Promise<Passing> | null;
  readonly #upkeep: Upkeep;
  #session: StoreSession | null = null;
  /** Subscribes as `push` did, for the mailbox of this device as well, as soon as it has one. */
  #pushAgain: (() => Promise<void>) | null = null;
  /** Of `messages()` where no store keeps anything. */
  #loops: UnkeptLoops | null = null;
  /** Of the `messages()` that is being read. */
  #receiver: Receiver | null = null;

  private constructor(identity: OwnIdentity, options: WaypostOptions) {
    this.#identity = identity;
    this.#options = options;
    const { signal } = this.#closed;
    this.#upkeep = new Upkeep(identity, options, { session: () => this.#session, signal });
    this.#passing = options.store === undefined ? Passing.open(identity) : null;
    identity.on((event) => this.#react(event));
    if (options.onEvent !== undefined) this.on(options.onEvent);
    identity.renewKeys = async (force) => {
      await (force ? this.#upkeep.rotate() : this.#upkeep.rotateIfDue());
      await this.#upkeep.keepBundles();
      await this.#upkeep.watch();
    };
  }

  /**
   * Opens the identity of the key store, or creates and registers one. Throws refusals of the
   * Directory, such as `alias_taken`, and `aborted` when the signal was.
   */
  static async open(options: WaypostOptions): Promise<Waypost> {
    checkOptions(options);
    const { signal } = options;
    const opening = Waypost.#open(options);
    return signal === undefined ? opening : untilAborted(opening, signal, (me) => me.close());
  }

  static async #open(options: WaypostOptions): Promise<Waypost> {
    const { retries, signal, timeoutMs: withinMs = timeoutMsDefault } = options;
    const urls = nodeUrls(options);
    const client = connect({
      ...urls,
      ...(options.timeoutMs === undefined ? {} : { timeoutMs: options.timeoutMs }),
    });
    if (options.policy !== undefined)
      (await import("./trust/log.ts")).parseLogPolicy(options.policy);
    client.known.policy = options.policy ?? null;
    client.known.urls = urls;
    const name = options.name ?? "default";
    const keys = reliable(options.keys);
    const opening = async () => {
      const secrets =
        (await loadIdentity(keys, name)) ??
        (await makeIdentity(client, { ...options, keys }, name));
      client.known.ledger = secrets.ledger;
      client.known.memory = memoryOf(keys, name);
      return new OwnIdentity(client, secrets, { ...options, keys });
    };
    const identity = await retryTemporary(opening, { retries, signal, withinMs });
    client.known.doubt = (error) => identity.emit({ type: "failed", what: "log", error });
    client.known.downgraded = (did) => identity.emit({ type: "downgraded", did });
    const me = new Waypost(identity, { ...options, keys });
    if (options.store !== undefined) me.#session = await me.#openStore(options.store);
    const settle = async () => {
      const isNew = await settleIdentity(client, identity.secrets, { ...options, urls });
      await me.#upkeep.endReplacing();
      await me.#upkeep.rotateIfDue();
      // Who has announced bundles with the first document is reached when there is one.
      const keeping = me.#upkeep.keepBundles();
      if (isNew) await keeping;
      // What can't go on any more is forgotten, with its secrets.
      if ((await client.known.memory.load("sending")) !== null)
        await (await import("./store/resume.ts")).changePlans(client.known.memory, (sets) => sets);
      void me.#upkeep.orFailed("watch", () => me.#renewGuardians());
      // A new document names the addresses that it was made with.
      if (!isNew && !isDeviceName(name))
        void me.#upkeep.orFailed("watch", () => me.#compareAddress());
    };
    try {
      // What was settled once opens without a network, and looks when there is one.
      if ((await me.#session?.isSettled()) === true) void me.#upkeep.orFailed("watch", settle);
      else await retryTemporary(settle, { retries, signal, withinMs });
      if (signal?.aborted === true) throw abortedError();
      await me.#session?.settled();
      me.#session?.start();
      return me;
    } catch (error) {
      await me.close();
      throw error;
    }
  }

  /** For the functions of `parts.ts`: changes of the document, policies and aliases. */
  get client(): Client {
    return this.#identity.client;
  }

  get did(): Did {
    return this.#identity.did;
  }

  /** Messages, people and conversations on this device. Throws `no_store` when `open` got none. */
  get store(): LocalStore {
    return this.#stored().store;
  }

  /** The devices of this identity, which share messages and keys. Needs a store. */
  get devices(): Devices {
    return this.#stored().devices;
  }

  #stored(): StoreSession {
    if (this.#session !== null) return this.#session;
    throw localError("no_store", "this identity was opened without a store");
  }

  /**
   * On a new device: a code to show to another one, and the identity once that has accepted it.
   * `cancel` ends the wait, which takes ten minutes at most.
   */
  static async link(options: WaypostOptions & { readonly store: StoreDriver }): Promise<{
    readonly code: string;
    readonly opened: Promise<Waypost>;
    readonly cancel: () => Promise<void>;
  }> {
    checkOptions(options);
    const { link } = await import("./devices/linking.ts");
    return link(options, (given) => Waypost.open(given));
  }

  /** The current secrets of this identity. */
  get identity(): Identity {
    return this.#identity.secrets;
  }

  /** Calls back for every event until the returned function is called. */
  on(listener: Listener): () => void {
    if (typeof listener !== "function")
      throw localError("invalid_argument", "a listener is a function");
    return this.#identity.on(listener);
  }

  /**
   * What to compare with a person: both see the same text in `is`, 20 characters for each of them.
   * For a distrusted person `was` has the text of what was seen before. Throws `proof_missing` for
   * random DIDs, and `change_pending` while one of the two replaces the root key.
   */
  async fingerprint(to: string): Promise<Fingerprint> {
    const own = this.#identity.demandOpen();
    return (await import("./trust/fingerprint.ts")).fingerprintOfTarget(own, to);
  }

  /**
   * Both saw `text` (`is`): remembered on this device until a key of either changes. A distrusted
   * person is believed again. Throws `identity_changed` when the text is another one by now.
   */
  async setCompared(to: string, text: string): Promise<void> {
    const { client, did } = this.#identity.demandOpen();
    await (await import("./trust/fingerprint.ts")).setCompared(client, did, to, text);
  }

  /** What a new device and the one that accepted it both show: 20 characters of the own keys. */
  async ownFingerprint(): Promise<string> {
    const { client, did } = this.#identity.demandOpen();
    return (await import("./trust/fingerprint.ts")).ownFingerprint(client, did);
  }

  /**
   * After `identity_changed` or `record_went_back`: believes what is proven next of a DID or an
   * alias. An own alias is no longer watched.
   */
  async forget(target: string): Promise<void> {
    const { client, did } = this.#identity.demandOpen();
    await (await import("./trust/own.ts")).forget(client, did, target);
  }

  /**
   * After `address_differs`: the document names the addresses that `open` was given. Where other
   * nodes answer at the former ones, these stay behind them.
   */
  async move(): Promise<void> {
    const { client, waiting } = this.#identity.demandOpen();
    await this.#identity.inOrder(async () => {
      const { move } = await import("./identity/moving.ts");
      await move(client, this.#identity.secrets, nodeUrls(this.#options), waiting);
    });
    this.#session?.reconnect();
    void this.#upkeep.keepBundles();
  }

  async #compareAddress(): Promise<void> {
    const { addressesElsewhere } = await import("./identity/address.ts");
    const found = await addressesElsewhere(this.client, this.did, nodeUrls(this.#options));
    if (found === null || this.#closed.signal.aborted) return;
    if (isDeviceName(this.#options.name ?? "")) await this.move();
    else this.#identity.emit({ type: "address_differs", ...found });
  }

  /** Looks for changes of this identity by others: `stranger_change`. `messages` does so hourly. */
  async watch(): Promise<void> {
    this.#identity.demandOpen();
    await this.#upkeep.watch();
  }

  // --------------------------------------------------------------------------------------- sending

  /**
   * Sends to a DID or an alias, and again with identical bytes after a temporary failure. Times
   * give the order of what was sent to one recipient. Throws `closed` after `close`.
   */
  async send(to: string, content: Content, options: MessageOptions = {}): Promise<Sent> {
    checkMessage(options);
    this.#identity.demandOpen();
    if (options.signal?.aborted === true) throw abortedError();
    if (this.#session !== null) return (await this.#session.send(to, content, options))[0] as Sent;
    // Nothing would see the receipt.
    if (options.receipt === true) this.#stored();
    return ((await this.#passing) as Passing).send(to, content, options);
  }

  /** Reacts to a message with a short text, such as an emoji; empty text withdraws the reaction. */
  react(to: string, messageId: string, reaction: string, author: Did | null = null): Promise<Sent> {
    return this.send(to, reactionContent(messageId, reaction, author), {
      mediaType: reactionType,
      receipt: false,
    });
  }

  /**
   * Seals messages of others, with what proves who wrote them, to the operator whom the Directory's
   * node names. Waits in the outbox like any message. Throws `no_operator`, `operator_reported`
   * where the operator wrote one of them, and `identity_changed` where the node named another one
   * before: then show `operator`, and call again with the one that the user agreed to.
   */
  async report(
    messages: readonly StoredMessage[],
    reason = "",
    options: ReportOptions = {},
  ): Promise<Sent> {
    return this.#stored().report(messages, reason, options);
  }

  /** Whom reports go to, and whom the node named before if another; `null`: it names no one. */
  async operator(): Promise<Operator | null> {
    const { client } = this.#identity.demandOpen();
    return (await import("./trust/operator.ts")).operatorAt(client);
  }

  /** Says for a moment that this user writes to a known person or group. Call it at each key. */
  async typing(conversation: string, isTyping = true): Promise<void> {
    await this.#stored().typing(conversation, isTyping);
  }

  /** The members of a group, and how they change. Needs a store. */
  get groups(): Groups {
    return this.#stored().groups;
  }

  // ------------------------------------------------------------------------------------- receiving

  /**
   * Yields every message, the waiting ones first, then new ones, until the loop ends, the signal is
   * aborted, or `close` is called. Acknowledge each message after you have stored it.
   */
  async *messages(
    options: { readonly signal?: AbortSignal } = {},
  ): AsyncGenerator<Message, void, undefined> {
    checkGiven(options, { signal: abortSignal });
    if (this.#closed.signal.aborted) return;
    const { signal = new AbortController().signal } = options;
    if (this.#session !== null && this.#options.acknowledge !== "by-hand")
      return yield* this.#session.messages(signal);
    await this.#session?.devices.ready(AbortSignal.any([signal, this.#closed.signal]));
    if (this.#receiver !== null) throw localError("busy", "messages() is being read already");
    const receiver = await this.#receiverByHand();
    const wrong = clockProblem(this.client.directory.endpoint);
    if (wrong !== null) this.#identity.emit({ type: "failed", what: "clock", error: wrong });
    const stop = () => void receiver.stop();
    signal.addEventListener("abort", stop, { once: true });
    try {
      receiver.start();
      if (signal.aborted) stop();
      void this.#upkeep.watch();
      for (let message = await receiver.next(); message !== null; message = await receiver.next())
        yield message;
    } finally {
      signal.removeEventListener("abort", stop);
      this.#receiver = null;
      await receiver.stop();
    }
  }

  /** Saves what waits in the Caches, and acknowledges it: for a store that was opened `by-hand`. */
  receiveWaiting(): Promise<PollResult> {
    return this.#stored().receiveWaiting();
  }

  async #receiverByHand(): Promise<Receiver> {
    if (this.#session !== null) this.#receiver = this.#session.receiver("by-hand");
    else {
      const { UnkeptLoops } = await import("./store/unkept.ts");
      const { device = randomUuid().slice(0, 8), pollMs } = this.#options;
      this.#loops ??= new UnkeptLoops(this.#identity, { device, pollMs });
      this.#receiver = this.#loops.receiver((...given) => this.send(...given));
    }
    return this.#receiver;
  }

  /** What `pushManager.subscribe` needs as `applicationServerKey`. Throws `no_push`. */
  async pushKey(): Promise<string> {
    const { client, secrets: identity } = this.#identity.demandOpen();
    return (await import("./identity/push.ts")).pushKeyOf({ client, identity });
  }

  /** Wakes this device from now on. Call it at each start of the app; `null` ends it. */
  async push(subscription: PushSubscriptionLike, options: PushOptions | null = {}): Promise<void> {
    const push = async () => {
      const device = (await this.#session?.devices.ownIdentity()) ?? null;
      const { client, secrets: identity } = this.#identity.demandOpen();
      const own = { client, identity, device };
      await (await import("./identity/push.ts")).subscribeDevice(own, subscription, options);
    };
    this.#pushAgain = options === null ? null : push;
    await push();
  }

  /**
   * Keys, people and history as one sealed file, made while it is read; what arrives meanwhile
   * waits. From then on this device has a DID of its own, where a restored copy of it reaches it.
   */
  async backup(options: { readonly passphrase: string }): Promise<ReadableStream<Uint8Array>> {
    const [session, { secrets }] = [this.#session, this.#identity.demandOpen()];
    // Offline, or in a tab that does not lead, the backup is made without.
    if (session !== null) await attempt(() => session.devices.beforeBackup());
    const { backup, rememberBackup } = await import("./identity/backup.ts");
    const made = () => rememberBackup(this.client.known.memory, secrets);
    return backup(renderIdentity(secrets), session?.table ?? null, options.passphrase, made);
  }

  /** Of the last backup of this device. An `outdated` one restores history alone: make another. */
  async backupState(): Promise<BackupState> {
    const { client, secrets } = this.#identity.demandOpen();
    return (await import("./identity/backup.ts")).backupState(client.known.memory, secrets);
  }

  /**
   * Gives each of three known people, whose fingerprints the user was shown, a share of a new root
   * key: any two can restore it, none alone. Former shares and stolen keys are worth nothing then.
   * Needs a store. Throws `guardian_unknown`, `proof_missing` or `identity_changed`.
   */
  async appointGuardians(guardians: readonly GuardianChoice[]): Promise<void> {
    this.#stored().demandOpen();
    await (await import("./identity/guardians.ts")).appointGuardians(this, guardians);
  }

  /** Who was appointed on this device, and whether they have the share of the root key in force. */
  async guardians(): Promise<Guardian[]> {
    this.#stored().demandOpen();
    return (await import("./identity/guardians.ts")).listGuardians(this);
  }

  /** Closes, and forgets all secrets; with `lockedKeys` also the key that opens them. */
  async lock(): Promise<void> {
    await this.close();
    await this.#session?.devices.end("lock");
    await this.#identity.lock();
  }

  /** Ends `messages()` and sending. The next run gets every message that was not acknowledged. */
  async close(): Promise<void> {
    this.#closed.abort();
    this.#identity.close();
    (await this.#passing)?.close();
    await this.#receiver?.stop();
    await this.#session?.close();
  }

  #openStore(driver: StoreDriver): Promise<StoreSession> {
    const { acknowledge, receipts = false, acceptRequests = false, device, pollMs } = this.#options;
    const openLink = async (): Promise<DeviceLink> => {
      const { openOwnDevice } = await import("./devices/inviting.ts");
      const link = await openOwnDevice(this.#options, (given) => Waypost.open(given), this);
      // Before it receives: only the other devices know it, so that it moves by itself.
      await link.#upkeep.orFailed("watch", () => link.#compareAddress());
      const { linkOf } = await import("./devices/linking.ts");
      return linkOf(link, link.#identity, link.#options);
    };
    const isByHand = acknowledge === "by-hand";
    const pushAgain = async () => this.#pushAgain?.();
    const onOpened = () =>
      void this.#upkeep.orFailed("devices", async () => {
        await this.#upkeep.rotateIfDue();
        await this.#upkeep.keepBundles();
        await pushAgain();
      });
    // Commands begin none: who is accepted unasked, and is never written to, would get none.
    const givesPasses = !isByHand && this.#options.acceptRequests === undefined;
    const shared = { receipts, acceptRequests, givesPasses, device, pollMs };
    // Bundles are signed by a method, and none counts that the former one has signed.
    const onNewKeys = () => this.#upkeep.keepBundles();
    const options = { driver, isByHand, ...shared, openLink, onOpened, onNewKeys, pushAgain };
    return import("./session.ts").then(({ StoreSession }) =>
      StoreSession.open(this.#identity, options),
    );
  }

  // ------------------------------------------------------------------------------------------ keys

  /**
   * Replaces the key that others seal to when it is due, follows a replacement by another device,
   * and destroys old secrets. `open` and `messages` call it.
   */
  async rotate(): Promise<void> {
    this.#identity.demandOpen();
    await this.#upkeep.rotate();
  }

  /** After a rotation of the root key the shares of the old one are worth nothing. */
  async #renewGuardians(): Promise<void> {
    const isAppointed = (await this.client.known.memory.load("guardians")) !== null;
    if (isAppointed && this.#session !== null)
      await (await import("./identity/guardians.ts")).renewGuardians(this);
  }

  #react(event: WaypostEvent): void {
    if (event.type === "connected") void this.#passing?.then((passing) => passing.retry());
    // A proof that is refused: the keys may be replaced.
    if (
      event.type === "disconnected" &&
      (event.error?.status === 401 || event.error?.code === "proof_not_authorized")
    )
      void this.#upkeep.watch();
  }
}
