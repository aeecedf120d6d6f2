/**
 * `Waypost`: an identity that sends and receives. `open` creates and registers it on first use and waits until it is
 * settled; later it loads the identity. The functions below (`client.ts` and the routes) can be used alone.
 * Source: docs/client.md.
 */
import type { Did } from "../core/codec/did.ts";
import { inOrder } from "../core/std/order.ts";
import { attempt, ClientError, localError, retryTemporary } from "./base/failure.ts";
import type { Devices } from "./devices/devices.ts";
import {
  linkOptions,
  makeIdentity,
  settleIdentity,
  urlsOf,
  type WaypostOptions,
} from "./identity/opening.ts";
import type { PushOptions, PushSubscriptionLike } from "./identity/push.ts";
import { randomUuid } from "./keys/crypto.ts";
import { memoryOf, reliable } from "./keys/key-stores.ts";
import {
  type Identity,
  isRotationDue,
  renderIdentity,
  rotationMsDefault,
  takeOver,
  wipe,
} from "./keys/keys.ts";
import { changeIdentity, type EditIdentity, loadIdentity } from "./keys/stored.ts";
import {
  type Content,
  type Relations,
  reactionType,
  receiptType,
  sourceOf,
} from "./mail/content.ts";
import type { Listener, Message, WaypostEvent } from "./mail/message.ts";
import { sendTo } from "./mail/plan.ts";
import type { MessageFacts } from "./mail/retrieve.ts";
import type { MessageOptions, SendPlan, Sent } from "./mail/send.ts";
import { waitingDefault } from "./net/directory.ts";
import { clockProblem } from "./net/http.ts";
import type { StoreSession } from "./session.ts";
import type { StoreDriver } from "./store/driver.ts";
import type { Groups } from "./store/groups.ts";
import type { PollResult, Receiver, ReceiverStorage } from "./store/receiver.ts";
import type { LocalStore } from "./store/store.ts";
import { askDid, type Client, connect, lookUp, senderOf } from "./trust/client.ts";

export class Waypost {
  /** For the functions of `parts.ts`: changes of the document, policies and aliases (docs/client.md). */
  readonly client: Client;
  readonly #options: WaypostOptions;
  readonly #listeners = new Set<Listener>();
  readonly #sending = inOrder<Did>();
  readonly #finding = inOrder<"">();
  #identity: Identity;
  #sender: Promise<NonNullable<SendPlan["sender"]>> | null = null;
  #receiver: Promise<Receiver> | null = null;
  /** A rotation, a removal of a device, what another device says: each begins with the keys that the last one left. */
  readonly #changing = inOrder<"">();
  /** Each write of the key store begins with what is stored, and the last one is what this instance goes on with. */
  readonly #storing = inOrder<"">();
  readonly #closed = new AbortController();
  /** The secrets are zero: nothing is stored, or said of the identity, from then on. */
  #isLocked = false;
  #session: StoreSession | null = null;

  private constructor(client: Client, options: WaypostOptions, identity: Identity) {
    this.client = client;
    this.#options = options;
    this.#identity = takeOver(identity, identity);
    if (options.onEvent !== undefined) this.on(options.onEvent);
  }

  /**
   * Opens the identity of the key store, or creates and registers one. Throws refusals of the Directory, such as
   * `alias_taken`.
   */
  static async open(options: WaypostOptions): Promise<Waypost> {
    const urls = urlsOf(options);
    if (options.receipts === true && options.store === undefined)
      throw localError("no_store", "receipts need a local store: give memoryStore(), for example");
    const client = connect({
      ...urls,
      ...(options.timeoutMs === undefined ? {} : { timeoutMs: options.timeoutMs }),
    });
    if (options.policy !== undefined)
      (await import("./trust/log.ts")).parseLogPolicy(options.policy);
    client.known.policy = options.policy ?? null;
    const name = options.name ?? "default";
    const keys = reliable(options.keys);
    const opening = async () => {
      const identity =
        (await loadIdentity(keys, name)) ??
        (await makeIdentity(client, { ...options, keys }, name));
      client.known.ledger = identity.ledger;
      client.known.memory = memoryOf(keys, name);
      const me = new Waypost(client, { ...options, keys }, identity);
      client.known.doubt = (error) => me.#emit({ type: "failed", what: "log", error });
      return me;
    };
    const me = await retryTemporary(opening, options);
    if (options.store !== undefined) me.#session = await me.#openStore(options.store);
    const begin = async () => {
      await settleIdentity(me.client, me.#identity, { ...options, urls });
      await me.#rotateIfDue();
      await (await import("./store/resume.ts")).change(me.client.known.memory, (sets) => sets);
      void me.#orFailed("watch", () => me.#renewGuardians());
    };
    try {
      // What was settled once opens without a network, and looks when there is one.
      if ((await me.#session?.isSettled()) === true) void me.#orFailed("watch", begin);
      else await retryTemporary(begin, { retries: options.retries });
      await me.#session?.settled();
      me.#session?.start();
      return me;
    } catch (error) {
      await me.#session?.close();
      throw error;
    }
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
   * On a new device: a code to show to another one, and the identity once that has accepted it. `cancel` ends the wait,
   * which takes ten minutes at most.
   */
  static async link(options: WaypostOptions & { readonly store: StoreDriver }): Promise<{
    readonly code: string;
    readonly opened: Promise<Waypost>;
    readonly cancel: () => Promise<void>;
  }> {
    const { beginLink } = await import("./devices/devices.ts");
    const { name = "default", store: driver, nowMs = Date.now } = options;
    const place = { keys: reliable(options.keys), name, driver, nowMs };
    const { code, accepted, cancel } = await beginLink(
      () => Waypost.open(linkOptions(options)),
      place,
    );
    const opened = accepted.then(() => Waypost.open(options));
    opened.catch(() => undefined);
    return { code, opened, cancel };
  }

  /** The current secrets of this identity. */
  get identity(): Identity {
    return this.#identity;
  }

  /** Calls back for every event until the returned function is called. */
  on(listener: Listener): () => void {
    if (typeof listener !== "function")
      throw localError("invalid_argument", "a listener is a function");
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** A text to compare with a correspondent, by phone say: both see the same, 20 characters for each of the two. */
  async fingerprint(to: string): Promise<string> {
    const { fingerprintBetween } = await import("./trust/own.ts");
    return fingerprintBetween(this.client, this.did, await lookUp(this.client, to));
  }

  /**
   * Forgets what a DID or an alias was, after `identity_changed` or `record_went_back`: what is proven next is believed. An
   * alias is no longer watched as an own one.
   */
  async forget(target: string): Promise<void> {
    await (await import("./trust/own.ts")).forget(this.client, this.did, target);
  }

  /** Looks whether somebody else has changed this identity: `stranger_change`. `messages` does so every hour. */
  async watch(): Promise<void> {
    await this.#orFailed("watch", async () => {
      const { watchOwn } = await import("./trust/own.ts");
      const { alias = null } = this.#options;
      // Keys that another process or tab has made are no stranger's; the session proves with them from now on.
      const before = renderIdentity(this.#identity);
      if (renderIdentity(await this.#change((stored) => stored)) !== before)
        this.#session?.reconnect();
      const changed = await watchOwn(this.client, this.#identity, alias);
      // Without its secrets every key looks like a stranger's.
      if (!this.#isLocked)
        for (const what of changed) this.#emit({ type: "stranger_change", what });
    });
  }

  // ---------------------------------------------------------------------------------------------- sending

  /**
   * Sends to a DID or an alias, after what was sent there before. After a temporary failure it tries again with
   * identical bytes.
   */
  async send(to: string, content: Content, options: MessageOptions = {}): Promise<Sent> {
    if (this.#session !== null)
      return (await this.#session.send([to], content, options))[0] as Sent;
    return this.#inOrder(to, () => this.#send(to, content, options));
  }

  /** Reacts to a message with a short text, such as an emoji; empty text withdraws the reaction. */
  react(to: string, messageId: string, reaction: string): Promise<Sent> {
    return this.send(
      to,
      { v: 1, to: messageId, reaction },
      { mediaType: reactionType, receipt: false },
    );
  }

  /** Says for a moment that this user writes to a person or a group, who must be known. Call it at each key. */
  async typing(conversation: string, isTyping = true): Promise<void> {
    await this.#stored().typing(conversation, isTyping);
  }

  /** The members of a group, and how they change. Needs a store. */
  get groups(): Groups {
    return this.#stored().groups;
  }

  // -------------------------------------------------------------------------------------------- receiving

  /**
   * Yields every message to this identity, the waiting ones first, then new ones, until the loop ends or `close` is
   * called. Acknowledge each message after you have stored it.
   */
  async *messages(): AsyncGenerator<Message, void, undefined> {
    if (this.#session !== null && this.#options.acknowledge !== "by-hand")
      return yield* this.#session.messages();
    if (this.#receiver !== null) throw localError("busy", "messages() is being read already");
    this.#receiver = this.#receiverFor(this.#session?.incoming.byHand);
    const receiver = await this.#receiver;
    const wrong = clockProblem(this.client.directory.endpoint);
    if (wrong !== null) this.#emit({ type: "failed", what: "clock", error: wrong });
    try {
      receiver.start();
      void this.watch();
      for (let message = await receiver.next(); message !== null; message = await receiver.next())
        yield message;
    } finally {
      this.#receiver = null;
      await receiver.stop();
    }
  }

  /** Saves what waits in the Caches now, and acknowledges it: for a store that was opened `by-hand`. */
  receiveWaiting(): Promise<PollResult> {
    return this.#stored().receiveWaiting();
  }

  async #receiverFor(storage?: ReceiverStorage): Promise<Receiver> {
    // A page that only sends does not load it.
    const { pollMsDefault, Receiver } = await import("./store/receiver.ts");
    const session = this.#session;
    return new Receiver({
      ...(storage === undefined ? {} : { storage }),
      client: this.client,
      identity: () => this.#identity,
      pollMs: this.#options.pollMs ?? pollMsDefault,
      device: this.#options.device ?? session?.device ?? randomUuid().slice(0, 8),
      emit: (event) => this.#emit(event),
      send: (to, content, options) => this.send(to, content, options),
      onAcked: (facts) => void this.#sendReceipt(facts),
      refreshKeys: async (force) => {
        await (force ? this.rotate() : this.#rotateIfDue());
        await this.watch();
      },
    });
  }

  /** What `pushManager.subscribe` needs as `applicationServerKey`. Throws `no_push`. */
  async pushKey(): Promise<string> {
    return (await import("./identity/push.ts")).pushKeyOf(this);
  }

  /** Wakes this device from now on. Call it at each start of the app; `null` ends it. */
  async push(subscription: PushSubscriptionLike, options: PushOptions | null = {}): Promise<void> {
    await (await import("./identity/push.ts")).subscribe(this, subscription, options);
  }

  /** Keys, people and history as one sealed file, made while it is read; what arrives meanwhile waits. */
  async backup(options: { readonly passphrase: string }): Promise<ReadableStream<Uint8Array>> {
    const table = this.#session?.table ?? null;
    return (await import("./identity/backup.ts")).backup(
      renderIdentity(this.#identity),
      table,
      options.passphrase,
    );
  }

  /** Gives each of three people a share of the root key: any two can restore it, none alone. Renewed with the root key. */
  async appointGuardians(guardians: readonly string[]): Promise<void> {
    await (await import("./identity/guardians.ts")).appointGuardians(
      this,
      guardians,
      this.client.known.memory,
    );
  }

  /** Closes, and forgets all secrets; with `lockedKeys` also the key that opens them. */
  async lock(): Promise<void> {
    await this.close();
    await this.#session?.devices.end("lock");
    this.#isLocked = true;
    this.#options.keys.lock?.();
    // After the write that is under way.
    await this.#storing("", async () => wipe(this.#identity));
  }

  /** Ends `messages()`. The next run gets every message that was not acknowledged. */
  async close(): Promise<void> {
    this.#closed.abort();
    await (await this.#receiver)?.stop();
    await this.#session?.close();
  }

  async #openStore(driver: StoreDriver): Promise<StoreSession> {
    const { StoreSession } = await import("./session.ts");
    const { trust = null, acknowledge, nowMs = Date.now } = this.#options;
    return StoreSession.open({
      ...{ client: this.client, did: this.did, driver, trust, nowMs },
      storeKey: this.#identity.storeKey,
      isByHand: acknowledge === "by-hand",
      emit: (event) => this.#emit(event),
      sender: () => this.#asSender(),
      forgetSender: () => {
        this.#sender = null;
      },
      relationsOf: (options) => this.#relationsOf(options),
      send: (to, content, options) => this.send(to, content, options),
      receiver: (storage) => this.#receiverFor(storage),
      openDevice: async () => {
        const own = await Waypost.open(linkOptions(this.#options));
        return [own, (storage) => own.#receiverFor(storage)];
      },
      keys: this.#options.keys,
      identity: () => this.#identity,
      inOrder: (work) => this.#changing("", work),
      change: async (edit) => {
        const identity = await this.#change(edit);
        this.#sender = null;
        return identity;
      },
      waiting: this.#options.waiting ?? waitingDefault,
      deviceName: this.#options.device ?? "device",
    });
  }

  // ------------------------------------------------------------------------------------------------- keys

  /**
   * Replaces the key that others seal to when it is due, follows a replacement by another device, and destroys old
   * secrets. `open` and `messages` call it.
   */
  async rotate(): Promise<void> {
    const {
      rotateMs: everyMs = rotationMsDefault,
      nowMs = Date.now,
      waiting = waitingDefault,
    } = this.#options;
    if (everyMs === false) return;
    const rotate = async () => {
      // Once a week, and loaded then.
      const { rotateAgreement } = await import("./identity/change.ts");
      const options = {
        nowMs: nowMs(),
        everyMs,
        waiting,
        change: (edit: EditIdentity) => this.#change(edit),
      };
      const { rotated, holdsPublished } = await rotateAgreement(this.client, this.did, options);
      if (!holdsPublished) this.#emit({ type: "stranger_change", what: "sealing_key" });
      else if (rotated) this.#emit({ type: "rotated" });
    };
    // After a failure the old key still works, and the next run tries again.
    await this.#changing("", () => this.#orFailed("rotation", rotate));
  }

  async #rotateIfDue(): Promise<void> {
    const { rotateMs = rotationMsDefault, nowMs = Date.now } = this.#options;
    if (rotateMs !== false && isRotationDue(this.#identity, nowMs(), rotateMs)) await this.rotate();
  }

  /** After a rotation of the root key the shares of the old one are worth nothing. */
  async #renewGuardians(): Promise<void> {
    const { memory } = this.client.known;
    if ((await memory.load("guardians")) !== null)
      await (await import("./identity/guardians.ts")).renewGuardians(this, memory);
  }

  #change(edit: EditIdentity): Promise<Identity> {
    return this.#storing("", async () => {
      if (this.#isLocked) throw localError("locked", "this identity was locked: open it again");
      this.#identity = takeOver(
        this.#identity,
        await changeIdentity(this.#options.keys, this.#identity, edit),
      );
      return this.#identity;
    });
  }

  async #send(to: string, content: Content, options: MessageOptions): Promise<Sent> {
    const source = await sourceOf(content, options, this.#relationsOf(options));
    const trust = options.trust ?? this.#options.trust ?? null;
    const sender = async () => (options.anonymous === true ? null : this.#asSender());
    // What is still to be sent when it is closed has one attempt.
    return sendTo(this.client, {
      ...options,
      to,
      source,
      trust,
      sender,
      signal: this.#closed.signal,
    });
  }

  /**
   * One after the other for each recipient, so that messages arrive in the order of the calls. Names are resolved in that
   * order too, so an alias waits for what is sent to its DID.
   */
  async #inOrder<T>(to: string, work: () => Promise<T>): Promise<T> {
    const did = await this.#finding("", () => askDid(this.client, to));
    return this.#sending(did, async () => {
      const result = await attempt(work);
      if (!(result instanceof ClientError)) return result;
      // The key that signs may have been replaced: the next message reads the document again.
      if (result.code === "sender_signature_invalid") this.#sender = null;
      throw result;
    });
  }

  #asSender(): Promise<NonNullable<SendPlan["sender"]>> {
    this.#sender ??= senderOf(this.client, this.#identity).catch((error: unknown) => {
      this.#sender = null;
      throw error;
    });
    return this.#sender;
  }

  #relationsOf({ replyTo, group, receipt }: MessageOptions): Relations {
    const wantsReceipt = receipt ?? this.#options.receipts ?? false;
    // Nothing would hear of it.
    if (wantsReceipt) this.#stored();
    return { replyTo: replyTo ?? null, group: group ?? null, wantsReceipt };
  }

  /** Only to a verified sender whom this user knows: nobody else may make this identity send. */
  async #sendReceipt({ id, from, verified, wantsReceipt }: MessageFacts): Promise<void> {
    if (this.#options.receipts !== true || !wantsReceipt || verified !== true || from === null)
      return;
    await this.#orFailed("receipt", async () => {
      if (await this.#stored().listensTo(from))
        await this.send(
          from,
          { v: 1, delivered: [id] },
          { mediaType: receiptType, receipt: false },
        );
    });
  }

  /** Work in the background: its failure is an event. */
  async #orFailed(
    what: "receipt" | "rotation" | "watch",
    work: () => Promise<unknown>,
  ): Promise<void> {
    const result = await attempt(work);
    if (result instanceof ClientError && !this.#closed.signal.aborted)
      this.#emit({ type: "failed", what, error: result });
  }

  #emit(event: WaypostEvent): void {
    if (event.type === "connected") this.#session?.retry();
    // A proof that is refused: the keys may be replaced.
    if (
      event.type === "disconnected" &&
      (event.error?.status === 401 || event.error?.code === "proof_not_authorized")
    )
      void this.watch();
    for (const listener of this.#listeners) listener(event);
  }
}
