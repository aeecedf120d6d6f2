/**
 * What the processes of one installation signal to each other over the bus: "something was stored for this mailbox",
 * to those whose streams and live sessions wait for it, and "this record or policy changed", to those that remember
 * what this Directory answered. A signal is a hint and holds no message: its receiver reads the store or asks
 * again. A lost one costs a stream the time to its next heartbeat, or an answer the time for which it may be
 * remembered anyway.
 * Source: rules section 7 ("Changes").
 */
import { utf8 } from "../core/codec/bytes.ts";
import type { MailboxKey } from "../core/codec/did.ts";
import { minuteMs } from "../core/codec/time.ts";
import { errorText } from "../core/fault.ts";
import type { Bus } from "../storage/bus.ts";
import type { LedgerWriter, Submission } from "../storage/contract.ts";
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

const lookEveryMs = 250;
/** Submissions that are watched at a time, and for how long: an ended one is announced late or not at all. */
const watchedMax = 1_000;
const watchMsMax = 10 * minuteMs;

type ChangeSignal = {
  /** Announces the DID of a submission once its change is final; not at all while no process listens. */
  readonly follow: (submission: Pick<Submission, "txHash" | "did">) => void;
  readonly close: () => void;
};

type SignalParts = { readonly ledger: Pick<LedgerWriter, "submission">; readonly bus: Bus; readonly log: Log };

export function createChangeSignal({ ledger, bus, log }: SignalParts): ChangeSignal {
  let watched = 0;
  let closed = false;
  const isFinal = async (txHash: string): Promise<boolean> => {
    for (const endsAtMs = performance.now() + watchMsMax; performance.now() < endsAtMs; ) {
      await new Promise((resolve) => setTimeout(resolve, lookEveryMs).unref());
      if (closed) return false;
      const state = (await ledger.submission(txHash))?.state;
      if (state !== "pending" && state !== "in_block") return state === "finalized";
    }
    return false;
  };
  const announce = async ({ txHash, did }: Pick<Submission, "txHash" | "did">): Promise<void> => {
    watched++;
    try {
      if (await isFinal(txHash)) bus.publish(changedSubject, utf8(did));
    } catch (error) {
      log("warn", "the state of a submission could not be read", { error: errorText(error) });
    } finally {
      watched--;
    }
  };
  return {
    follow: (submission) => {
      if (bus.mayReach(changedSubject) && watched < watchedMax) void announce(submission);
    },
    close: () => {
      closed = true;
    },
  };
}
