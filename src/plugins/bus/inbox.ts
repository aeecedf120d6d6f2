/**
 * The inbox of one subscription: messages wait here until their handler starts on them, in order of
 * arrival and several at a time, since a handler may wait for a client. Every driver has one for each
 * subscription, so that a slow handler costs bounded memory and no other handler its time.
 */
import { errorStack } from "../../core/fault.ts";
import type { BusEnvironment, BusReceiver } from "../../storage/bus.ts";

export type InboxLimits = {
  /** Handlers of one subscription that work at once. */
  readonly runningMax: number;
  /** Messages and bytes that wait for a handler. */
  readonly waitingMax: number;
  readonly waitingBytesMax: number;
};

export const inboxLimits: InboxLimits = { runningMax: 256, waitingMax: 1_024, waitingBytesMax: 32 * 1024 ** 2 };

/** `answer` is `null` for a published message. */
type Arrival = {
  readonly message: Uint8Array;
  readonly answer: ((bytes: Uint8Array | undefined) => void) | null;
};

type InboxOptions = {
  readonly subject: string;
  readonly handler: BusReceiver;
  readonly missed: (() => void) | undefined;
  readonly log: BusEnvironment["log"];
  readonly onDrop: () => void;
  readonly limits: InboxLimits;
};

export class Inbox {
  private readonly waiting: Arrival[] = [];
  private waitingBytes = 0;
  private running = 0;
  private scheduled = false;
  private closed = false;

  constructor(private readonly options: InboxOptions) {}

  add(arrival: Arrival): void {
    if (this.closed) return;
    this.waiting.push(arrival);
    this.waitingBytes += arrival.message.length;
    this.dropExcess();
    this.schedule();
  }

  /** Drops the oldest messages first. The newest message stays however large it is. */
  private dropExcess(): void {
    const { waitingMax, waitingBytesMax } = this.options.limits;
    let dropped = 0;
    while (this.waiting.length > 1 && (this.waiting.length > waitingMax || this.waitingBytes > waitingBytesMax)) {
      const oldest = this.waiting.shift()!;
      this.waitingBytes -= oldest.message.length;
      oldest.answer?.(undefined);
      this.options.onDrop();
      dropped++;
    }
    if (dropped > 0) this.reportMissed();
  }

  /** Handlers start on a turn of their own, never inside the call that published. */
  private schedule(): void {
    if (this.scheduled || this.closed) return;
    this.scheduled = true;
    setImmediate(() => {
      this.scheduled = false;
      while (this.running < this.options.limits.runningMax && this.waiting.length > 0 && !this.closed) {
        const next = this.waiting.shift()!;
        this.waitingBytes -= next.message.length;
        void this.handle(next);
      }
    });
  }

  private async handle({ message, answer }: Arrival): Promise<void> {
    this.running++;
    let answered: Uint8Array | undefined;
    try {
      answered = await this.options.handler(message);
    } catch (error) {
      this.logFailure("a bus handler failed", error);
    }
    this.running--;
    answer?.(answered);
    if (this.waiting.length > 0) this.schedule();
  }

  reportMissed(): void {
    if (this.closed) return;
    try {
      this.options.missed?.();
    } catch (error) {
      this.logFailure("a bus handler of missed messages failed", error);
    }
  }

  private logFailure(text: string, error: unknown): void {
    const reason = errorStack(error);
    this.options.log("error", text, { subject: this.options.subject, error: reason });
  }

  close(): void {
    this.closed = true;
    for (const { answer } of this.waiting.splice(0)) answer?.(undefined);
    this.waitingBytes = 0;
  }
}
