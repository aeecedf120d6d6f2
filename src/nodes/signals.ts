/**
 * What the processes of one installation signal to each other over the bus: "something was stored for this mailbox",
 * to those whose streams wait for it, and "this record or policy changes", to those that remember
 * what this Directory answered. A signal is a hint and holds no message: its receiver reads the store or asks
 * again. A lost one costs a stream the time to its next heartbeat, or an answer the time for which it may be
 * remembered anyway.
 * Source: rules section 7 ("Changes").
 */
import { utf8 } from "../core/codec/bytes.ts";
import type { MailboxKey } from "../core/codec/did.ts";
import type { Bus } from "../storage/bus.ts";
import type { Submission } from "../storage/contract.ts";

// -------------------------------------------------------------------------------------------- stored messages

export type StoredSignal = {
  readonly send: (mailbox: MailboxKey) => void;
  /** Calls back for what other processes store from then on; resolves once it does, or when the bus is away. */
  readonly follow: (mailbox: MailboxKey, wake: () => void) => Promise<() => void>;
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
    async follow(mailbox, wake) {
      const receive = (message: Uint8Array): undefined => {
        if (!isOwn(message)) wake();
      };
      const subscription = bus.subscribe(subjectOf(mailbox), receive, { missed: wake });
      await subscription.ready;
      return subscription.unsubscribe;
    },
  };
}

// -------------------------------------------------------------------------------------------- changed records

/** The message is a DID of which a change was submitted: its record or policy is another one soon. */
export const changedSubject = "recipients.changed";

/** The same for those of which a deletion was submitted. */
export const deletedSubject = "recipients.deleted";

/** Announces the DID of a submission. */
export function announceChange(bus: Bus): (submission: Pick<Submission, "did" | "label">) => void {
  return ({ did, label }) => {
    for (const subject of label === "delete_did" ? [changedSubject, deletedSubject] : [changedSubject])
      if (bus.mayReach(subject)) bus.publish(subject, utf8(did));
  };
}
