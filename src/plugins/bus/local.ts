/**
 * The bus within one process: subscriptions in a map. The default, and all that one process needs.
 */
import {
  type Bus,
  type BusEnvironment,
  BusQueue,
  type BusReceiver,
  type BusSubscription,
  checkSubject,
  type SubscribeOptions,
} from "../../storage/bus.ts";

const localMessageBytesMax = 64 * 1024 ** 2;

export function openLocalBus({ log }: BusEnvironment): Bus {
  return new LocalBus(log);
}

export class LocalBus implements Bus {
  readonly plugin = "local";
  readonly messageBytesMax = localMessageBytesMax;
  private readonly subjects = new Map<string, Set<BusQueue>>();
  private readonly openRequests = new Set<() => void>();
  private subscriptions = 0;
  private dropped = 0;
  private closed = false;

  constructor(private readonly log: BusEnvironment["log"]) {}

  publish(subject: string, message: Uint8Array): void {
    checkSubject(subject);
    if (message.length > this.messageBytesMax) {
      this.dropped++;
      return;
    }
    for (const inbox of this.subjects.get(subject) ?? [])
      inbox.add({ message: message.slice(), answer: null });
  }

  subscribe(
    subject: string,
    handler: BusReceiver,
    { missed }: SubscribeOptions = {},
  ): BusSubscription {
    checkSubject(subject);
    if (this.closed) return { ready: Promise.resolve(), unsubscribe: () => {} };
    const inbox = new BusQueue({
      subject,
      handler,
      missed,
      log: this.log,
      onDrop: () => this.dropped++,
    });
    const inboxes = this.subjects.get(subject) ?? new Set();
    this.subjects.set(subject, inboxes.add(inbox));
    this.subscriptions++;
    const unsubscribe = () => {
      inbox.close();
      if (!inboxes.delete(inbox)) return;
      this.subscriptions--;
      if (inboxes.size === 0) this.subjects.delete(subject);
    };
    return { ready: Promise.resolve(), unsubscribe };
  }

  mayReach(subject: string): boolean {
    return this.subjects.has(subject);
  }

  /** When every handler ends without an answer there is none to wait for. */
  request(
    subject: string,
    message: Uint8Array,
    timeoutMs: number,
  ): Promise<Uint8Array | "unanswered"> {
    checkSubject(subject);
    const inboxes = this.subjects.get(subject);
    if (inboxes === undefined || message.length > this.messageBytesMax)
      return Promise.resolve("unanswered");
    const { promise, resolve } = Promise.withResolvers<Uint8Array | "unanswered">();
    let left = inboxes.size;
    const endRequest = (answer: Uint8Array | "unanswered"): void => {
      clearTimeout(timer);
      this.openRequests.delete(giveUp);
      resolve(answer);
    };
    const giveUp = () => endRequest("unanswered");
    const timer = setTimeout(giveUp, timeoutMs);
    this.openRequests.add(giveUp);
    const answer = (bytes: Uint8Array | undefined): void => {
      left--;
      if (bytes !== undefined) endRequest(bytes.slice());
      else if (left === 0) giveUp();
    };
    for (const inbox of [...inboxes]) inbox.add({ message: message.slice(), answer });
    return promise;
  }

  reportMissed(): void {
    for (const inboxes of this.subjects.values()) for (const inbox of inboxes) inbox.reportMissed();
  }

  stats() {
    return { connected: !this.closed, subscriptions: this.subscriptions, dropped: this.dropped };
  }

  async close(): Promise<void> {
    this.closed = true;
    for (const inboxes of this.subjects.values()) for (const inbox of inboxes) inbox.close();
    this.subjects.clear();
    this.subscriptions = 0;
    for (const giveUp of [...this.openRequests]) giveUp();
  }
}
