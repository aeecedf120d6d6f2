/**
 * Continuous receiving: a live session at every Relay, and a look into the Caches when one begins,
 * when it says that they stored something, and now and then. Each message comes once, and is
 * acknowledged when the program or the store has saved it. One that can't be opened is an event.
 * Source: docs/client.md "Receiving", interface "Cache" and "Live sessions", rules sections 5, 6.
 */

import type { Did } from "../../core/codec/did.ts";
import { hourMs, minuteMs, secondMs } from "../../core/codec/time.ts";
import { Waiters } from "../../core/std/bounded.ts";
import { attempt, backoffMs, ClientError, orNull, pause, Wakeup } from "../base/failure.ts";
import { agreementSecrets } from "../keys/keys.ts";
import {
  createMessage,
  isNoteOf,
  type Message,
  type MessageActions,
  type WaypostEvent,
} from "../mail/message.ts";
import type { OwnIdentity } from "../mail/own-identity.ts";
import {
  acknowledge,
  isUnreadable,
  type Recipient,
  type readMessage,
  recipientOf,
  removeUnread,
} from "../mail/retrieve.ts";
import {
  type CacheClient,
  chunkPlaceOf,
  type EnvelopeCopy,
  isComplete,
  type LiveEnvelope,
  listPending,
  liveCopy,
  messageIdsOf,
  type PendingMessage,
  splitReceived,
  type Unreachable,
  versionsOf,
} from "../net/caches.ts";
import { listenLive } from "../net/connections.ts";
import type { Reader } from "../net/reader.ts";
import { cachesOf } from "../trust/caches.ts";
import { readLimits } from "../trust/client.ts";
import { liveEndpoints } from "../trust/readers.ts";
import type { Run } from "./arriving.ts";
import { KnownMessages, PassedEnvelopes, type RememberedMessage } from "./known-messages.ts";
import { type Handed, heldMs, Queue } from "./queue.ts";

/** Where messages go that are received: to the program, or into the local store. */
export type Inbox = {
  /** What is read is saved when `read` returns: it is acknowledged, and not handed over here. */
  readonly isSaved: boolean;
  /** Whether an envelope was received, by its id in lower case or its digest. */
  readonly has: (name: string) => Promise<boolean>;
  readonly read: typeof readMessage;
  /** How long a live message may take to be read; `liveAckMs` when it isn't given. */
  readonly waitMs?: number;
  /** Saves the next chunks of a file; `null` when there is nothing to acknowledge. */
  readonly takeRun?: (message: PendingMessage, recipient: Recipient) => Promise<Run | null>;
  /** Before it is acknowledged. */
  readonly acked: (version: PendingMessage, opened: OpenedMessage) => Promise<void>;
  /** Whether the user has accepted the sender, so that the mailbox may know it. */
  readonly accepts: (sender: Did) => Promise<boolean>;
  /** What the program was given before. */
  readonly handed: Handed;
  /** For replies. */
  readonly send: MessageActions["send"];
};

export type ReceiverOptions = {
  /** Names the live session; a second session of the same device replaces the first. */
  readonly device: string;
  /** Pause between two looks when nothing wakes. */
  readonly pollMs?: number | undefined;
};

/** One look into the Caches. After an incomplete one, the next follows soon. */
export type PollResult = {
  readonly isComplete: boolean;
  readonly unreachable: readonly Unreachable[];
  /** What could not be fetched or saved now, by its first id. */
  readonly failed: readonly Unreachable[];
};

const pollMsDefault = 30_000;
/** How long the sender of a live message waits for the program to acknowledge it. */
const liveAckMs = 500;
/** How long it waits at the beginning of a session for the look into the Caches. */
const behindMs = 200;
export type OpenedMessage = Awaited<ReturnType<typeof readMessage>>;

type DisconnectedPart = Extract<WaypostEvent, { type: "disconnected" }>["what"];

export class Receiver {
  readonly #own: OwnIdentity;
  readonly #inbox: Inbox;
  readonly #device: string;
  readonly #pollMs: number;
  readonly #recipient: Recipient;
  /** For the program. */
  readonly #queue: Queue;
  /** The queue has, or a look has ended. */
  readonly #changed = new Waiters();
  readonly #known = new KnownMessages();
  readonly #before = {
    has: async (name: string) => this.#known.has(name) || (await this.#inbox.has(name)),
  };
  readonly #digests = new Map<string, string>();
  readonly #news = new Wakeup();
  /** Kinds and addresses that were lost and are not back. */
  readonly #lost = new Set<string>();
  #caches: readonly CacheClient[] = [];
  /** How many live sessions have begun, and how many before the last look at the Caches. */
  #sessions = 1;
  #sessionsPolled = 0;
  readonly #passed = new PassedEnvelopes();
  /** The program acknowledges late: senders don't wait for it. */
  #isLate = false;
  readonly #stop = new AbortController();
  #loops: Promise<unknown> = Promise.resolve();
  #failure: unknown = null;
  #refreshedMs = Number.NEGATIVE_INFINITY;
  /** At the keys, by the wall clock: timers stand still while a machine sleeps. */
  #lookedMs = Date.now();
  readonly #hour = new Wakeup();

  constructor(own: OwnIdentity, inbox: Inbox, { device, pollMs }: ReceiverOptions) {
    this.#own = own;
    this.#inbox = inbox;
    this.#queue = new Queue(inbox.handed);
    this.#device = device;
    this.#pollMs = pollMs ?? pollMsDefault;
    // Keys are replaced while it receives.
    const secretsOf = (keyId: string) => agreementSecrets(own.secrets, keyId);
    this.#recipient = { ...recipientOf(own.client, own.secrets), secretsOf };
  }

  start(): void {
    this.#loops = this.#run().catch((error: unknown) => this.#fail(error));
  }

  /** `null` after `stop`. Throws only for bugs, and when the document names no Cache. */
  async next(): Promise<Message | null> {
    let next = this.#queue.take();
    while (next === null && !this.#stop.signal.aborted) {
      await this.#changed.wait(this.#queue.waitMs(hourMs));
      next = this.#queue.take();
    }
    this.#changed.release();
    if (this.#failure !== null) throw this.#failure;
    return next;
  }

  async stop(): Promise<void> {
    // One turn of the event loop sends the frames of a session.
    await pause(0, this.#stop.signal);
    this.#end();
    await this.#loops;
  }

  /** A bug is thrown by `next`, and does not end it. */
  #fail(error: unknown): void {
    this.#failure ??= error;
    this.#end();
  }

  #end(): void {
    this.#stop.abort();
    this.#queue.clear();
    this.#changed.release();
  }

  // ----------------------------------------------------------------------------------------- loops

  async #run(): Promise<void> {
    const { caches, relays } = await this.#endpoints();
    const loops = [
      this.#watch(caches),
      ...relays.map((relay) => this.#listen(relay)),
      this.#refresh(),
    ];
    // A loop that fails because of a bug ends the others.
    await Promise.all(loops.map((loop) => loop.catch((error: unknown) => this.#fail(error))));
  }

  /** Where to receive, from the document; asked until the Directory answers. */
  async #endpoints(): Promise<{
    readonly caches: readonly CacheClient[];
    readonly relays: readonly Reader[];
  }> {
    const { client } = this.#own;
    const { url } = client.directory.endpoint;
    for (let failures = 0; !this.#stop.signal.aborted; failures++) {
      const found = await attempt(async () => {
        const caches = await cachesOf(client, this.#own.secrets);
        if (typeof WebSocket === "undefined") return { caches, relays: [] };
        const relays = await orNull(liveEndpoints(client, this.#own.secrets), "no_relay");
        return { caches, relays: relays ?? [] };
      });
      if (found instanceof ClientError && found.kind === "local") throw found;
      this.#report("directory", url, found instanceof ClientError ? found : undefined);
      if (!(found instanceof ClientError)) return found;
      await pause(backoffMs(failures), this.#stop.signal);
    }
    return { caches: [], relays: [] };
  }

  /** One event for a loss, its end, and the first connection of a live session. */
  #report(what: DisconnectedPart, url: string, error?: ClientError | null): void {
    const name = `${what} ${url}`;
    const wasLost = this.#lost.has(name);
    if (error === undefined) {
      this.#lost.delete(name);
      if (wasLost || what === "live") this.#own.emit({ type: "connected", what, url });
    } else if (!wasLost) {
      this.#lost.add(name);
      this.#own.emit({ type: "disconnected", what, url, error });
    }
  }

  async #listen(relay: Reader): Promise<void> {
    const { signal } = this.#stop;
    const { url } = relay.at;
    for (let failures = 0; !signal.aborted; failures++) {
      const onReady = () => {
        failures = 0;
        this.#sessions++;
        this.#report("live", url);
        this.#news.wake();
      };
      const onEnvelope = (envelope: LiveEnvelope) => this.#receiveLive(envelope);
      const events = { onReady, onEnvelope, onStored: () => this.#news.wake() };
      const error = (await attempt(() => listenLive(relay, this.#device, events, signal))) ?? null;
      // Made again with the node's time, which its answer states.
      if (
        error?.code === "proof_invalid" &&
        failures === 0 &&
        (await readLimits(relay.at)) !== null
      )
        continue;
      if (!signal.aborted || error === null) this.#report("live", url, error);
      await pause(backoffMs(failures), signal);
    }
  }

  async #watch(caches: readonly CacheClient[]): Promise<void> {
    const { signal } = this.#stop;
    for (let failures = 0; !signal.aborted; ) {
      this.#news.begin();
      const poll = await attempt(() => this.poll(caches));
      failures = !(poll instanceof ClientError) && poll.isComplete ? 0 : failures + 1;
      for (const { reader } of caches) {
        const { url } = reader.at;
        const error =
          poll instanceof ClientError
            ? poll
            : poll.unreachable.find(({ endpoint }) => endpoint === url)?.error;
        if (error === undefined || !signal.aborted) this.#report("cache", url, error);
      }
      if (Math.abs(Date.now() - this.#lookedMs) >= hourMs) this.#hour.wake();
      // A Cache elsewhere does not say when it has what was passed.
      const waitMs = this.#passed.isEmpty ? this.#pollMs : secondMs;
      await this.#news.next(failures === 0 ? waitMs : backoffMs(failures), signal);
    }
  }

  async #refresh(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await this.#hour.next(hourMs, signal);
      this.#hour.begin();
      this.#lookedMs = Date.now();
      if (!signal.aborted) await this.#own.renewKeys(false);
    }
  }

  // ---------------------------------------------------------------------------------------- Caches

  /** Receives what waits in the Caches. Throws when none could be reached. */
  async poll(caches: readonly CacheClient[]): Promise<PollResult> {
    this.#caches = caches;
    const sessions = this.#sessions;
    try {
      return await this.#receiveWaiting(caches);
    } finally {
      this.#sessionsPolled = sessions;
      this.#changed.release();
    }
  }

  async #receiveWaiting(caches: readonly CacheClient[]): Promise<PollResult> {
    const { pending, unreachable } = await listPending(caches, this.#digests);
    this.#known.forgetExpired();
    const waiting: PendingMessage[] = [];
    const begun: PendingMessage[] = [];
    const acked: EnvelopeCopy[] = [];
    for (const one of pending) {
      const { again, fresh } = await splitReceived(one, this.#before);
      // What an earlier run received was acknowledged then, but not everywhere.
      for (const copy of again)
        if (((await this.#known.join(copy))?.state ?? "acked") === "acked") acked.push(copy);
      if (isComplete(fresh)) waiting.push(fresh);
      else if (fresh.groupId !== null && fresh.parts.length > 0) begun.push(fresh);
    }
    await acknowledge(acked, this.#before, { isAccepted: false });
    const failed: Unreachable[] = [];
    for (const one of waiting) {
      while (this.#queue.isFull && !this.#stop.signal.aborted) await this.#changed.wait(hourMs);
      if (this.#stop.signal.aborted) break;
      const error = await this.#receive(one);
      if (error !== null) failed.push({ endpoint: messageIdsOf(one)[0] ?? "?", error });
    }
    for (const one of begun) {
      const error = this.#stop.signal.aborted ? null : await this.#receiveRun(one);
      if (error !== null) failed.push({ endpoint: messageIdsOf(one)[0] ?? "?", error });
    }
    const listed = new Set(pending.flatMap(messageIdsOf).map((id) => id.toLowerCase()));
    this.#passed.forget(listed);
    return { isComplete: unreachable.length + failed.length === 0, unreachable, failed };
  }

  /** Opens what waits under one id, verifies and hands it over; answers why it could not now. */
  async #receive(pending: PendingMessage): Promise<ClientError | null> {
    let failure: ClientError | null = null;
    const opened: { readonly version: PendingMessage; readonly read: OpenedMessage }[] = [];
    const versions = await versionsOf(pending);
    for (const version of versions) {
      const read = await attempt(() => this.#open(version));
      if (!(read instanceof ClientError))
        opened[read.verified === true ? "unshift" : "push"]({ version, read });
      else if (isUnreadable(read))
        await this.#reportUnreadable(version, { error: read, isAlone: versions.length === 1 });
      else failure = read;
    }
    // One after the other: what is stored is acknowledged before the next is fetched.
    for (const { version, read } of opened) await this.#handOver(version, read);
    return failure;
  }

  /** Chunks of a file that isn't whole: saved and acknowledged, which makes room for more. */
  async #receiveRun(message: PendingMessage): Promise<ClientError | null> {
    const { takeRun } = this.#inbox;
    const run = await attempt(async () => (await takeRun?.(message, this.#recipient)) ?? null);
    // What can't be opened so far is reported when it is whole.
    if (run instanceof ClientError) return isUnreadable(run) ? null : run;
    if (run === null) return null;
    await acknowledge(run.copies, run.digests, { isAccepted: false });
    if (run.read !== null)
      await this.#inbox.acked(message, { ...run.read, data: new Uint8Array(0) });
    return null;
  }

  async #open(version: PendingMessage): Promise<OpenedMessage> {
    const read = await attempt(() => this.#read(version));
    if (!(read instanceof ClientError)) return read;
    if (isUnreadable(read) && (await this.#refreshSoon())) return this.#read(version);
    throw read;
  }

  #read(version: PendingMessage): Promise<OpenedMessage> {
    return this.#inbox.read(version, this.#recipient);
  }

  /** Another device may have replaced the key. Garbage must not cause a request each. */
  async #refreshSoon(): Promise<boolean> {
    if (performance.now() - this.#refreshedMs < minuteMs) return false;
    this.#refreshedMs = performance.now();
    await this.#own.renewKeys(true);
    return true;
  }

  /** Removing it spares every copy that may belong to another message. */
  async #reportUnreadable(
    version: PendingMessage,
    { error, isAlone }: { readonly error: ClientError; readonly isAlone: boolean },
  ): Promise<void> {
    const [first = [], ...others] = version.parts;
    const digest = (await first[0]?.digest()) ?? "";
    if (this.#known.has(digest)) return;
    const known = this.#known.remember(version, {
      state: "unreadable",
      digests: new Set([digest]),
    });
    const isBeside = ({ cache }: EnvelopeCopy) =>
      isAlone && first.some((copy) => copy.cache === cache);
    const discard = async () => {
      known.state = "acked";
      await removeUnread([...first, ...others.flat().filter(isBeside)], { isAccepted: false });
    };
    const { code, message: reason } = error;
    this.#own.emit({
      type: "unreadable",
      messageIds: messageIdsOf(version),
      code,
      reason,
      discard,
    });
  }

  // ------------------------------------------------------------------------------------------ live

  /**
   * Acknowledged when the program has done so in time; otherwise passed, at once where it is known,
   * so that no sender waits (D300). What is passed waits in the Cache: chunks are assembled there,
   * what can't be opened is reported from there, and what comes behind it follows it.
   */
  async #receiveLive(live: LiveEnvelope): Promise<boolean> {
    const isWaiting = () => this.#hasToLook && !this.#stop.signal.aborted;
    for (const untilMs = performance.now() + behindMs; isWaiting() && performance.now() < untilMs; )
      await this.#changed.wait(behindMs);
    const isBehind = this.#hasToLook || this.#passed.untilMs(live) > performance.now();
    const canOpen = chunkPlaceOf(live.envelope) === null && !this.#queue.isFull && !isBehind;
    const known = canOpen ? await this.#openLive(live) : null;
    if (known === null) return this.#pass(live);
    if (known.state !== "queued") return known.state === "acked";
    const waitMs = this.#isLate ? 0 : liveAckMs + (known.isHeld ? heldMs : 0);
    await pause(waitMs, AbortSignal.any([known.acked.signal, this.#stop.signal]));
    if (known.acked.signal.aborted) return true;
    this.#isLate = true;
    // The program may acknowledge it before a look has found it there.
    known.copies = [...known.copies, ...this.#caches.map((cache) => liveCopy(live, cache))];
    return false;
  }

  /** Not when a Cache is lost: a look would take as long as it stays silent. */
  get #hasToLook(): boolean {
    const isLost = this.#caches.some(({ reader }) => this.#lost.has(`cache ${reader.at.url}`));
    return this.#sessionsPolled < this.#sessions && !isLost;
  }

  #pass(live: LiveEnvelope): false {
    // From now on the Caches are looked into each second.
    if (this.#passed.add(live)) this.#news.wake();
    return false;
  }

  /** `null` when it can't be opened, or not in time. */
  async #openLive(live: LiveEnvelope): Promise<RememberedMessage | null> {
    const copy = liveCopy(live, null);
    const digest = (await copy.digest()) ?? "";
    const version: PendingMessage = { groupId: null, total: 1, parts: [[copy]] };
    const before = this.#known.get(digest);
    if (before !== undefined) return before;
    if (await this.#before.has(digest))
      return this.#known.remember(version, { state: "acked", digests: new Set([digest]) });
    const opening = attempt(() => this.#read(version)).then((read) =>
      read instanceof ClientError || this.#queue.isFull ? null : this.#handOver(version, read),
    );
    const waitMs = this.#inbox.waitMs ?? liveAckMs;
    return Promise.race([opening, pause(waitMs, this.#stop.signal).then(() => null)]);
  }

  // ---------------------------------------------------------------------------------- handing over

  /** Another session or Cache may have brought the same message meanwhile. */
  async #handOver(version: PendingMessage, opened: OpenedMessage): Promise<RememberedMessage> {
    const { data, ...facts } = opened;
    const { digests, marks = digests, seenUntilMs } = facts;
    const names = new Set([...digests, ...marks]);
    const same = [...names]
      .map((digest) => this.#known.get(digest))
      .find((known) => known !== undefined);
    if (same !== undefined) {
      const copies = this.#known.comesAgain(same, version, names);
      await acknowledge(copies, names, { isAccepted: false });
      return same;
    }
    const known = this.#known.remember(version, { state: "queued", digests: names, seenUntilMs });
    const { isSaved, send } = this.#inbox;
    // A Cache that can't be reached offers it again; the acknowledgement follows then.
    const ack = async () => {
      if (known.state !== "acked") await this.#inbox.acked(version, opened);
      if (known.state === "acked") return;
      const copies = this.#known.end(known);
      this.#isLate = performance.now() - known.sinceMs > liveAckMs;
      const isAccepted = facts.from !== null && (await this.#inbox.accepts(facts.from));
      await acknowledge(copies, known.digests, { isAccepted });
    };
    // Without a store nothing uses a note. A full store gets it again later.
    if (isSaved || isNoteOf(facts)) await attempt(ack);
    else {
      const { follows = null } = facts;
      const isKnown = follows === null || (await this.#inbox.has(follows));
      known.isHeld = !isKnown;
      this.#queue.add({
        message: createMessage(facts, data, { ack, send }),
        marks: names,
        follows: isKnown ? null : follows,
        onGiven: () => {
          known.sinceMs = performance.now();
        },
      });
      this.#changed.release();
    }
    return known;
  }
}
