/**
 * "Something was stored for this mailbox", from the process that stored it to those whose streams and live
 * sessions wait for it. It carries no message: whoever hears it reads the store. A signal that is lost costs
 * a stream the time to its next heartbeat and nothing else.
 */
import type { MailboxKey } from "../core/codec/did.ts";
import type { Bus } from "../storage/bus.ts";

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
    send: (mailbox) => bus.publish(subjectOf(mailbox), own),
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
