/**
 * What the processes of one installation signal to each other over the bus: "something was stored
 * for this DID", to those with live sessions of it, and "this record or policy changes", to those
 * that remember what this Directory answered. A signal is a hint and holds no message: its receiver
 * reads the store or asks again. A lost one costs the time to the next look, or for which an answer
 * may be remembered anyway.
 * Source: rules section 7 ("Changes").
 */

import { utf8 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { deletesDid, type LedgerCall } from "../../core/ledger/calls.ts";
import type { Bus } from "../../storage/bus.ts";

// --------------------------------------------------------------------------------- stored messages

/**
 * Rings at the live sessions of a DID when a Cache of the installation has stored something for it.
 */
export type Bell = {
  readonly ring: (did: Did) => void;
  /**
   * Calls back at each ring, and when one may have been lost; returns a function that ends that.
   */
  readonly listen: (did: Did, onRing: () => void) => () => void;
  /** Whether a live session of the DID is open, as far as this process knows. */
  readonly isHeard: (did: Did) => boolean;
};

const nothing = new Uint8Array(0);

export function createBell(bus: Bus): Bell {
  const subjectOf = (did: Did) => `stored:${did}`;
  const isHeard = (did: Did) => bus.mayReach(subjectOf(did));
  return {
    ring: (did) => {
      if (isHeard(did)) bus.publish(subjectOf(did), nothing);
    },
    listen: (did, onRing) =>
      bus.subscribe(subjectOf(did), () => void onRing(), { missed: onRing }).unsubscribe,
    isHeard,
  };
}

// --------------------------------------------------------------------------------- changed records

/**
 * The message is a DID of which a change was submitted: its record or policy is another one soon.
 */
export const changedSubject = "recipients.changed";

/** The same for those of which a deletion was submitted. */
export const deletedSubject = "recipients.deleted";

/** Announces the DID of a call that was submitted. */
export function announceChange(bus: Bus): (call: LedgerCall) => void {
  return (call) => {
    const subjects = deletesDid(call) ? [changedSubject, deletedSubject] : [changedSubject];
    for (const subject of subjects) if (bus.mayReach(subject)) bus.publish(subject, utf8(call.did));
  };
}
