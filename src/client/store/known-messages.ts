/**
 * What a receiver remembers while it runs: which messages it knows, where each has copies that are
 * not acknowledged so far, and which envelopes it left to a Cache.
 * Source: docs/client.md "Receiving", rules section 5.
 */
import { minuteMs } from "../../core/codec/time.ts";
import {
  type EnvelopeCopy,
  type LiveEnvelope,
  messageIdsOf,
  offeredUntilMs,
  type PendingMessage,
} from "../net/caches.ts";

/** Most names of messages remembered as known; expired ones are forgotten first. */
const knownMax = 200_000;
/** How long a Relay may take to give an envelope that was passed to a Cache. */
const passedMs = 5_000;
const passedMax = 1_000;

export type RememberedMessage = {
  state: "queued" | "acked" | "unreadable";
  readonly untilMs: number;
  readonly digests: Set<string>;
  /** Until it is acknowledged. */
  copies: readonly EnvelopeCopy[];
  /** Since it was read, or the program got it. */
  sinceMs: number;
  /** It may wait for the one that was sent before it. */
  isHeld: boolean;
  /** Aborted when it is acknowledged: ends the wait of live sessions. */
  readonly acked: AbortController;
};

type Remembering = Pick<RememberedMessage, "state" | "digests"> & {
  readonly seenUntilMs?: number | undefined;
};

/** By the digests and the ids of their envelopes; of an id the last one. */
export class KnownMessages {
  readonly #known = new Map<string, RememberedMessage>();

  get(name: string): RememberedMessage | undefined {
    return this.#known.get(name);
  }

  has(name: string): boolean {
    return this.#known.has(name);
  }

  remember(
    version: PendingMessage,
    { state, digests, seenUntilMs = 0 }: Remembering,
  ): RememberedMessage {
    const untilMs = Math.max(offeredUntilMs(version, Date.now()), seenUntilMs);
    // A copy holds what it was read from.
    const copies = state === "queued" ? version.parts.flat() : [];
    const known: RememberedMessage = {
      state,
      untilMs,
      digests,
      copies,
      sinceMs: performance.now(),
      isHeld: false,
      acked: new AbortController(),
    };
    const ids = messageIdsOf(version).map((id) => id.toLowerCase());
    for (const name of [...digests, ...ids]) this.#known.set(name, known);
    return known;
  }

  /** Where a known message has a copy, until it is acknowledged. */
  async join(copy: EnvelopeCopy): Promise<RememberedMessage | undefined> {
    const known = this.#known.get((await copy.digest()) ?? "");
    if (known?.state !== "queued") return known;
    const isOther = ({ cache, messageId }: EnvelopeCopy) =>
      cache !== copy.cache || messageId !== copy.messageId;
    known.copies = [...known.copies.filter(isOther), copy];
    return known;
  }

  /**
   * It came in another envelope. Returns the copies that are to be acknowledged now: those of
   * one that waits go with it.
   */
  comesAgain(
    known: RememberedMessage,
    version: PendingMessage,
    names: ReadonlySet<string>,
  ): readonly EnvelopeCopy[] {
    for (const name of names) {
      known.digests.add(name);
      this.#known.set(name, known);
    }
    const copies = version.parts.flat();
    if (known.state === "queued") known.copies = [...known.copies, ...copies];
    return known.state === "acked" ? copies : [];
  }

  /** It is acknowledged. Returns the copies that are to be. */
  end(known: RememberedMessage): readonly EnvelopeCopy[] {
    const { copies } = known;
    known.state = "acked";
    known.copies = [];
    known.acked.abort();
    return copies;
  }

  forgetExpired(): void {
    const nowMs = Date.now();
    for (const [name, { untilMs }] of this.#known)
      if (untilMs < nowMs - minuteMs || this.#known.size > knownMax) this.#known.delete(name);
  }
}

/**
 * The last envelope of each sender that was passed unopened, and until when a
 * Cache may be about to get it.
 */
export class PassedEnvelopes {
  readonly #passed = new Map<unknown, { readonly messageId: string; readonly untilMs: number }>();

  get isEmpty(): boolean {
    return this.#passed.size === 0;
  }

  /** By `performance.now()`. Garbage delays only its own sender. */
  untilMs({ envelope }: LiveEnvelope): number {
    return this.#passed.get(envelope["from"])?.untilMs ?? 0;
  }

  /** Whether it is the only one. */
  add(live: LiveEnvelope): boolean {
    const nowMs = performance.now();
    const untilMs = this.untilMs(live);
    const wasEmpty = this.#passed.size === 0;
    if (this.#passed.size >= passedMax) this.#passed.clear();
    const messageId = live.messageId.toLowerCase();
    // A Cache that can't be read holds a sender up no longer.
    this.#passed.set(live.envelope["from"], {
      messageId,
      untilMs: untilMs > nowMs ? untilMs : nowMs + passedMs,
    });
    return wasEmpty;
  }

  /** What the Caches list, by ids in lower case, and what they should have by now. */
  forget(listed: ReadonlySet<string>): void {
    for (const [sender, { messageId, untilMs }] of this.#passed)
      if (listed.has(messageId) || untilMs < performance.now()) this.#passed.delete(sender);
  }
}
