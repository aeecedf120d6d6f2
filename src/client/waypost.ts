/**
 * `Waypost`: an identity that sends and receives. `open` creates and registers it on first use and waits until it is
 * settled; later it loads the identity. The functions below (`client.ts` and the routes) can be used alone.
 * Source: docs/client.md.
 */
import { equalBytes } from "../core/codec/bytes.ts";
import { type Did, normalizeAlias } from "../core/codec/did.ts";
import { withoutTrailingSlashes } from "../core/message/proof.ts";
import { type Client, connect, find, lookUp, planSend, rootKeyOf, senderOf, toldDid } from "./client.ts";
import { type Content, collect, type Relations, reactionType, receiptType, type Source, sourceOf } from "./content.ts";
import { randomUuid } from "./crypto.ts";
import { identityFor, provingAt, settleRegistration, type Waiting } from "./directory.ts";
import { attempt, ClientError, clockProblem, localError } from "./http.ts";
import { type KeyStore, reliable } from "./key-stores.ts";
import { type Identity, isRotationDue, parseIdentity, renderIdentity, rotationMsDefault } from "./keys.ts";
import type { Listener, Message, WaypostEvent } from "./message.ts";
import type { Receiver } from "./receiver.ts";
import {
  type InOrder,
  type MessageOptions,
  Outgoing,
  parsePlan,
  retryingDefault,
  retryTemporary,
  type SendPlan,
  type Sent,
} from "./send.ts";
import type { TrustDemand } from "./trust/trust.ts";

export type WaypostOptions = {
  /** Address of all three nodes, or of each. */
  readonly url?: string;
  readonly directoryUrl?: string;
  readonly relayUrl?: string;
  readonly cacheUrl?: string;
  readonly keys: KeyStore;
  /** Name of the identity in the key store; `default` by default. */
  readonly name?: string;
  /** A public name to register with a new identity. */
  readonly alias?: string;
  /** Names this device's live session; random by default. */
  readonly device?: string;
  /** Asks recipients for receipts, and sends receipts to senders who ask. Off by default. */
  readonly receipts?: boolean;
  /** Sends only to recipients whose keys are `proven`, which a random DID's never are, or `logged`. */
  readonly trust?: TrustDemand;
  /** Witnesses that must have seen the log, as text of c2sp.org/tlog-policy: then keys can be `logged`. */
  readonly policy?: string;
  /** When to replace the key that others seal to, by its age: a week by default, `false` for never. */
  readonly rotateMs?: number | false;
  readonly timeoutMs?: number;
  readonly waiting?: Waiting;
  /** The clock of key rotation, for tests. */
  readonly nowMs?: () => number;
};

export type Group = {
  readonly id: string;
  readonly members: readonly string[];
  /** Sends one sealed copy to each member. Resolves after an attempt for each. */
  readonly send: (content: Content, options?: MessageOptions) => Promise<GroupSent>;
};

export type GroupSent = {
  readonly sent: readonly { readonly to: string; readonly sent: Sent }[];
  readonly failed: readonly { readonly to: string; readonly error: ClientError }[];
};

type Urls = { readonly directoryUrl: string; readonly relayUrl: string; readonly cacheUrl: string };

export class Waypost {
  readonly #client: Client;
  readonly #options: WaypostOptions;
  readonly #name: string;
  readonly #listeners = new Set<Listener>();
  readonly #sending = new Map<Did, Promise<void>>();
  #finding: Promise<unknown> = Promise.resolve();
  #identity: Identity;
  #sender: Promise<NonNullable<SendPlan["sender"]>> | null = null;
  #receiver: Promise<Receiver> | null = null;
  #rotating: Promise<void> | null = null;
  /** Registered in this run: nobody can have changed the record before. */
  #isFresh = false;

  private constructor(client: Client, options: WaypostOptions, identity: Identity) {
    this.#client = client;
    this.#options = options;
    this.#identity = identity;
    this.#name = identity.name;
  }

  /** Opens the identity of the key store, or creates and registers one. Throws refusals of the Directory, such as `alias_taken`. */
  static async open(options: WaypostOptions): Promise<Waypost> {
    const urls = urlsOf(options);
    const client = connect({ ...urls, ...(options.timeoutMs === undefined ? {} : { timeoutMs: options.timeoutMs }) });
    client.known.policy = await checkedPolicy(options.policy);
    const name = options.name ?? "default";
    const keys = reliable(options.keys);
    const opening = async () => {
      const identity = (await loadIdentity(keys, name)) ?? (await makeIdentity(client, { ...options, keys }, name));
      client.known.ledger = identity.ledger;
      client.known.memory = keys.memoryOf(name);
      const me = new Waypost(client, { ...options, keys }, identity);
      client.known.doubt = (error) => me.#emit({ type: "failed", what: "log", error });
      await me.#settle(urls);
      await me.#pinLedger();
      await me.#rotateIfDue();
      return me;
    };
    return retryTemporary(opening, retryingDefault);
  }

  get did(): Did {
    return this.#identity.did;
  }

  /** For the functions of `parts.ts`: changes of the document, policies and aliases (docs/client.md). */
  get client(): Client {
    return this.#client;
  }

  /** The current secrets of this identity. */
  get identity(): Identity {
    return this.#identity;
  }

  /** Calls back for every event until the returned function is called. */
  on(listener: Listener): () => void {
    if (typeof listener !== "function") throw localError("invalid_argument", "a listener is a function");
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  // ------------------------------------------------------------------------------------------------ trust

  /** A text to compare with a correspondent, by phone say: both see the same, 20 characters for each of the two. */
  async fingerprint(to: string): Promise<string> {
    const { fingerprintOf } = await import("./trust/fingerprint.ts");
    const subject = async (did: Did) => ({ did, rootKey: await rootKeyOf(this.#client, did) });
    return fingerprintOf(await subject(this.did), await subject(await lookUp(this.#client, to)));
  }

  /** Forgets what a DID or an alias was, after `identity_changed` or `record_went_back`: what is proven next is believed. */
  async forget(target: string): Promise<void> {
    await this.#client.trust.forget(normalizeAlias(target) ?? target);
  }

  /** Looks whether somebody else has changed this identity: `stranger_change`. `messages` does so every hour. */
  async watch(): Promise<void> {
    await this.#orFailed("watch", async () => {
      const { watchOwn } = await import("./change.ts");
      const { alias = null } = this.#options;
      for (const event of await watchOwn(this.#client, this.#identity, alias)) this.#emit(event);
    });
  }

  // ---------------------------------------------------------------------------------------------- sending

  /** Sends to a DID or an alias, after what was sent there before. After a temporary failure it tries again with identical bytes. */
  async send(to: string, content: Content, options: MessageOptions = {}): Promise<Sent> {
    try {
      return await this.#inOrder(to, async () => (await this.#outgoing(to, content, options)).send(options));
    } catch (error) {
      // The key that signs may have been replaced: the next message reads the document again.
      if (error instanceof ClientError && error.code === "sender_signature_invalid") this.#sender = null;
      throw error;
    }
  }

  /** Fixes everything about a message without sending it. Store the text of `save()` to resume after a restart. */
  async prepare(to: string, content: Content, options: MessageOptions = {}): Promise<Outgoing> {
    // In order too: a message has its time from when its look-ups end.
    const inOrder: InOrder = (work) => this.#inOrder(to, work);
    return inOrder(() => this.#outgoing(to, content, options, inOrder));
  }

  /** Resumes a message that `save` returned, with the same content. Throws `content_changed` for other content. */
  async resume(saved: string, content: Content): Promise<Outgoing> {
    const known = parsePlan(saved);
    if (known === null) throw localError("plan_unreadable", "not a message that was saved");
    const { plan, senderKeyId, delivered } = known;
    const source = await sourceOf(content, plan.file, { replyTo: null, group: null, wantsReceipt: false });
    if (source.file.sizeBytes !== plan.file.sizeBytes || !equalBytes(source.file.sha256, plan.file.sha256))
      throw localError("content_changed", "the content differs from that of the saved message");
    const sender = senderKeyId === null ? null : await this.#asSender();
    if (sender !== null && sender.keyId !== senderKeyId)
      throw localError("unknown_key", `the message was signed by ${senderKeyId}, which may no longer sign`);
    const message = { plan: { ...plan, sender }, source, delivered };
    return new Outgoing(this.#client.relay, message, (work) => this.#inOrder(plan.to, work));
  }

  /** Reacts to a message with a short text, such as an emoji; empty text withdraws the reaction. */
  react(to: string, messageId: string, reaction: string): Promise<Sent> {
    return this.send(to, { v: 1, to: messageId, reaction }, { mediaType: reactionType, receipt: false });
  }

  /** A group conversation. Every member uses the same id for it. */
  group(members: readonly string[], id: string = randomUuid()): Group {
    if (!Array.isArray(members)) throw localError("invalid_argument", "members is a list of DIDs and aliases");
    const send = async (content: Content, options: MessageOptions = {}): Promise<GroupSent> => {
      // A stream can be read once, and is sent to each.
      const shared = content instanceof ReadableStream ? await collect(content) : content;
      const sent: GroupSent["sent"][number][] = [];
      const failed: GroupSent["failed"][number][] = [];
      const waiting = [...members];
      const work = async () => {
        for (let to = waiting.shift(); to !== undefined; to = waiting.shift()) {
          const result = await attempt(() => this.send(to, shared, { ...options, group: id }));
          if (result instanceof ClientError) failed.push({ to, error: result });
          else sent.push({ to, sent: result });
        }
      };
      await Promise.all(Array.from({ length: groupSendsAtOnce }, work));
      return { sent, failed };
    };
    return { id, members, send };
  }

  // -------------------------------------------------------------------------------------------- receiving

  /**
   * Yields every message to this identity, the waiting ones first, then new ones, until the loop ends or `close` is
   * called. Acknowledge each message after you have stored it.
   */
  async *messages(): AsyncGenerator<Message, void, undefined> {
    if (this.#receiver !== null) throw localError("busy", "messages() is being read already");
    this.#receiver = this.#makeReceiver();
    const receiver = await this.#receiver;
    const wrong = clockProblem(this.#client.directory.endpoint);
    if (wrong !== null) this.#emit({ type: "failed", what: "clock", error: wrong });
    try {
      receiver.start();
      if (!this.#isFresh) void this.watch();
      for (let message = await receiver.next(); message !== null; message = await receiver.next()) yield message;
    } finally {
      this.#receiver = null;
      await receiver.stop();
    }
  }

  async #makeReceiver(): Promise<Receiver> {
    // A page that only sends does not load it.
    const { Receiver } = await import("./receiver.ts");
    return new Receiver({
      client: this.#client,
      identity: () => this.#identity,
      device: this.#options.device ?? randomUuid().slice(0, 8),
      emit: (event) => this.#emit(event),
      send: (to, content, options) => this.send(to, content, options),
      absorb: (message) => this.#absorb(message),
      onAcked: (message) => void this.#sendReceipt(message),
      refreshKeys: async (force) => {
        await (force ? this.rotate() : this.#rotateIfDue());
        await this.watch();
      },
    });
  }

  /** Ends `messages()`. The next run gets every message that was not acknowledged. */
  async close(): Promise<void> {
    await (await this.#receiver)?.stop();
  }

  // ------------------------------------------------------------------------------------------------- keys

  /**
   * Replaces the key that others seal to when it is due, follows a replacement by another device, and destroys old
   * secrets. `open` and `messages` call it.
   */
  rotate(): Promise<void> {
    this.#rotating ??= this.#rotate().finally(() => {
      this.#rotating = null;
    });
    return this.#rotating;
  }

  async #rotateIfDue(): Promise<void> {
    const { rotateMs = rotationMsDefault, nowMs = Date.now } = this.#options;
    if (rotateMs !== false && isRotationDue(this.#identity, nowMs(), rotateMs)) await this.rotate();
  }

  async #rotate(): Promise<void> {
    const { rotateMs = rotationMsDefault, nowMs = Date.now, waiting } = this.#options;
    if (rotateMs === false) return;
    // The old key still works, and the next run tries again.
    await this.#orFailed("rotation", async () => {
      // Once a week, and loaded then.
      const { rotateAgreement } = await import("./change.ts");
      const rotated = await rotateAgreement(this.#client, this.#identity, {
        nowMs: nowMs(),
        everyMs: rotateMs,
        signer: { keyId: "root", seed: this.#identity.rootSeed },
        ...(waiting === undefined ? {} : { waiting }),
        save: (identity) => this.#save(identity),
      });
      this.#identity = rotated.identity;
      if (!rotated.holdsPublished) this.#emit({ type: "key_missing" });
      else if (rotated.rotated) this.#emit({ type: "rotated" });
    });
  }

  async #save(identity: Identity): Promise<void> {
    await this.#options.keys.replace(this.#name, renderIdentity(identity));
    this.#identity = identity;
  }

  // -------------------------------------------------------------------------------------------- background

  async #outgoing(to: string, content: Content, options: MessageOptions, inOrder?: InOrder): Promise<Outgoing> {
    const source = await sourceOf(content, options, this.#relationsOf(options));
    const retrying = options.retries === undefined ? retryingDefault : { ...retryingDefault, retries: options.retries };
    const plan = await retryTemporary(() => this.#plan(to, source, options), retrying);
    return new Outgoing(this.#client.relay, { plan, source, delivered: 0 }, inOrder);
  }

  /**
   * One after the other for each recipient, so that messages arrive in the order of the calls. Names are resolved in that
   * order too, so an alias waits for what is sent to its DID.
   */
  async #inOrder<T>(to: string, work: () => Promise<T>): Promise<T> {
    const found = this.#finding.then(() => toldDid(this.#client, to));
    this.#finding = found.catch(() => undefined);
    const did = await found;
    const sent = (this.#sending.get(did) ?? Promise.resolve()).then(work);
    const ended = sent.then(
      () => undefined,
      () => undefined,
    );
    this.#sending.set(did, ended);
    void ended.then(() => this.#sending.get(did) === ended && this.#sending.delete(did));
    return sent;
  }

  async #plan(to: string, source: Source, options: MessageOptions): Promise<SendPlan> {
    const trust = options.trust ?? this.#options.trust ?? null;
    const { did, name } = await find(this.#client, to, trust);
    const sender = options.anonymous === true ? null : await this.#asSender();
    return planSend(this.#client, did, source.file, { ...options, name, trust, sender });
  }

  /** Registers what the Directory does not know, and waits for what is pending. */
  async #settle(urls: Urls): Promise<void> {
    const { alias = null, waiting } = this.#options;
    const read = () => this.#client.directory.registrationStatus(this.did);
    const status = await read();
    if (status.registration_status === "confirmed") return;
    let registered = { did: this.did as string, tx_id: status.tx_id ?? "" };
    // Once in the life of an identity, and loaded then.
    const { checkHomes, firstDocument, register } = await import("./registration.ts");
    if (status.registration_status === "missing") {
      await checkHomes(this.#client, urls);
      const document = await firstDocument(this.#identity, urls);
      try {
        registered = await register(this.#client, this.#identity, { document, alias });
      } catch (error) {
        // Another tab or process may have registered the same identity a moment before.
        if ((await read()).registration_status === "missing") throw error;
      }
    }
    await settleRegistration(this.#client, registered, waiting);
    this.#isFresh = true;
  }

  /** Once in the life of an identity: stores the only ledger for which it signs from now on. */
  async #pinLedger(): Promise<void> {
    const { known } = this.#client;
    if (this.#identity.ledger !== null) return;
    if (known.ledger === null) await provingAt(this.#client);
    if (known.ledger !== null) await this.#save({ ...this.#identity, ledger: known.ledger });
  }

  #asSender(): Promise<NonNullable<SendPlan["sender"]>> {
    this.#sender ??= senderOf(this.#client, this.#identity).catch((error: unknown) => {
      this.#sender = null;
      throw error;
    });
    return this.#sender;
  }

  #relationsOf({ replyTo, group, receipt }: MessageOptions): Relations {
    const wantsReceipt = receipt ?? this.#options.receipts ?? false;
    return { replyTo: replyTo ?? null, group: group ?? null, wantsReceipt };
  }

  /** Receipts are events. One whose signature does not verify is ignored. */
  #absorb(message: Message): boolean {
    const { delivered: messageIds } = message;
    if (messageIds === null) return false;
    if (messageIds.length > 0 && message.from !== null && message.verified === true)
      this.#emit({ type: "receipt", from: message.from, messageIds });
    return true;
  }

  /** Only to a verified sender: nobody else may make this identity send. */
  async #sendReceipt(message: Message): Promise<void> {
    const { from, verified, wantsReceipt } = message;
    if (this.#options.receipts !== true || !wantsReceipt || verified !== true || from === null) return;
    const receipt = { v: 1, delivered: [message.id] };
    await this.#orFailed("receipt", () => this.send(from, receipt, { mediaType: receiptType, receipt: false }));
  }

  /** Work in the background: its failure is an event. */
  async #orFailed(what: "receipt" | "rotation" | "watch", work: () => Promise<unknown>): Promise<void> {
    const result = await attempt(work);
    if (result instanceof ClientError) this.#emit({ type: "failed", what, error: result });
  }

  #emit(event: WaypostEvent): void {
    for (const listener of this.#listeners) listener(event);
  }
}

async function checkedPolicy(policy: string | undefined): Promise<string | null> {
  if (policy === undefined) return null;
  const { parseLogPolicy } = await import("./trust/log.ts");
  parseLogPolicy(policy);
  return policy;
}

const groupSendsAtOnce = 4;

function urlsOf({ url, directoryUrl = url, relayUrl = url, cacheUrl = url }: WaypostOptions): Urls {
  if (directoryUrl === undefined || relayUrl === undefined || cacheUrl === undefined)
    throw localError("invalid_url", "give url, or directoryUrl, relayUrl and cacheUrl");
  return { directoryUrl, relayUrl: withoutTrailingSlashes(relayUrl), cacheUrl: withoutTrailingSlashes(cacheUrl) };
}

async function loadIdentity(keys: KeyStore, name: string): Promise<Identity | null> {
  const text = await keys.load(name);
  if (text === null) return null;
  const identity = parseIdentity(text, name);
  if (identity === null) throw localError("keys_unreadable", `what the key store holds for ${name} is not an identity`);
  return identity;
}

/** Saved before it is registered: keys of an existing DID must not be lost. */
async function makeIdentity(
  client: Client,
  { keys, nowMs = Date.now }: WaypostOptions,
  name: string,
): Promise<Identity> {
  const identity = await identityFor(client, name, nowMs());
  if (await keys.add(name, renderIdentity(identity))) return identity;
  // Another tab or process was first.
  return (await loadIdentity(keys, name)) ?? identity;
}
