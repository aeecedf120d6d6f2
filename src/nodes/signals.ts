/**
 * What the processes of one installation signal to each other over the bus: "something was stored for this mailbox",
 * to those whose streams and live sessions wait for it, and "this record or policy changed", to those that remember
 * what this Directory answered. A signal is a hint and holds no message: its receiver reads the store or asks
 * again. A lost one costs a stream the time to its next heartbeat, or an answer the time for which it may be
 * remembered anyway.
 * Source: rules section 7 ("Changes").
 */
import { utf8 } from "../core/codec/bytes.ts";
import type { Did, MailboxKey } from "../core/codec/did.ts";
import { minuteMs } from "../core/codec/time.ts";
import { errorText, isFault } from "../core/fault.ts";
import type { Bus } from "../storage/bus.ts";
import type { Ledger, Submission } from "../storage/contract.ts";
import type { Log } from "./http/log.ts";

// -------------------------------------------------------------------------------------------- stored messages

export type StoredSignal = {
  readonly send: (mailbox: MailboxKey) => void;
  /** Calls back for what is stored from then on; resolves once it does, or when the bus is away. */
  readonly follow: (mailbox: MailboxKey, wake: () => void, of: "every process" | "others") => Promise<() => void>;
};

export const noSignal: StoredSignal = { send: () => {}, follow: async () => () => {} };

export function createStoredSignal(bus: Bus): StoredSignal {
  const own = crypto.getRandomValues(new Uint8Array(8));
  const isOwn = (message: Uint8Array) => Buffer.compare(message, own) === 0;
  const subjectOf = (mailbox: MailboxKey) => `stored:${mailbox}`;
  return {
    send: (mailbox) => {
      const subject = subjectOf(mailbox);
      if (bus.mayReach(subject)) bus.publish(subject, own);
    },
    async follow(mailbox, wake, of) {
      const receive = (message: Uint8Array): undefined => {
        if (of === "every process" || !isOwn(message)) wake();
      };
      const subscription = bus.subscribe(subjectOf(mailbox), receive, { missed: wake });
      await subscription.ready;
      return subscription.unsubscribe;
    },
  };
}

// -------------------------------------------------------------------------------------------- changed records

/** The message is the DID whose record or policy changed. */
export const changedSubject = "recipients.changed";

const pollMs = 250;
/** Submissions that are watched at a time, and for how long: an ended one is announced late or not at all. */
const watchedMax = 1_000;
const watchMsMax = 10 * minuteMs;

type Announcer = {
  /** The same ledger, whose submissions are watched. */
  readonly ledger: Ledger;
  readonly close: () => void;
};

export function announceChanges(ledger: Ledger, bus: Bus, log: Log): Announcer {
  const watched = new Map<string, { readonly did: Did; readonly untilMs: number }>();
  let timer: ReturnType<typeof setTimeout> | null = null;
  let closed = false;

  const poll = async (): Promise<void> => {
    for (const [txHash, { did, untilMs }] of watched) {
      const submission = await ledger.submission(txHash);
      const pending = submission?.state === "pending" || submission?.state === "in_block";
      if (pending && performance.now() < untilMs) continue;
      watched.delete(txHash);
      if (submission?.state === "finalized") bus.publish(changedSubject, utf8(did));
    }
  };
  const schedule = (): void => {
    if (closed || timer !== null || watched.size === 0) return;
    timer = setTimeout(() => {
      poll()
        .catch((error: unknown) =>
          log("warn", "the state of a submission could not be read", { error: errorText(error) }),
        )
        .finally(() => {
          timer = null;
          schedule();
        });
    }, pollMs);
  };
  const watch = ({ txHash, did }: Submission): void => {
    if (watched.size >= watchedMax) return;
    watched.set(txHash, { did, untilMs: performance.now() + watchMsMax });
    schedule();
  };
  const submit: Ledger["submit"] = async (call, label) => {
    const submission = await ledger.submit(call, label);
    if (!isFault(submission)) watch(submission);
    return submission;
  };
  // Binding a method costs a microsecond, so each is bound once.
  const methods = new Map<string | symbol, unknown>([["submit", submit]]);
  return {
    // Everything else is the ledger's own, whatever a driver offers besides the contract.
    ledger: new Proxy(ledger, {
      get: (target, name) => {
        const known = methods.get(name);
        if (known !== undefined) return known;
        const value: unknown = Reflect.get(target, name);
        if (typeof value !== "function") return value;
        const method: unknown = value.bind(target);
        methods.set(name, method);
        return method;
      },
    }),
    close: () => {
      closed = true;
      if (timer !== null) clearTimeout(timer);
    },
  };
}
