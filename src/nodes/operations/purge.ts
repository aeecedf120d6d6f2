/**
 * Removes everything that waits for a recipient, at the operator's word and without a proof of the recipient: for
 * duties such as an order of a court. Ids stay remembered as after an acknowledgement, so that a late copy of
 * an envelope does not come back.
 */
import { type Did, mailboxOf } from "../../core/codec/did.ts";
import { type Fault, isFault } from "../../core/fault.ts";
import type { Mailbox } from "../../storage/contract.ts";

export type Purged = { readonly entries: number; readonly bytes: number };

const batchEntries = 1_000;

/** The mailboxes of the life that the DID has now and of those before; `life` is the present one. */
export async function purgeRecipient(
  mailbox: Mailbox,
  { did, life }: { readonly did: Did; readonly life: number },
  now: () => number,
): Promise<Purged | Fault> {
  let purged: Purged = { entries: 0, bytes: 0 };
  for (let past = 0; past <= life; past++) {
    const one = await purgeMailbox(mailbox, { did, life: past }, now);
    if (isFault(one)) return one;
    purged = { entries: purged.entries + one.entries, bytes: purged.bytes + one.bytes };
  }
  return purged;
}

/** What arrives meanwhile stands behind the cursor, and is removed as well. */
async function purgeMailbox(
  mailbox: Mailbox,
  { did, life }: { readonly did: Did; readonly life: number },
  now: () => number,
): Promise<Purged | Fault> {
  const key = mailboxOf(did, life);
  let [entries, bytes] = [0, 0];
  let after: string | null = null;
  for (;;) {
    const nowMs = now();
    const page = await mailbox.summary(key, { after, entriesMax: batchEntries, bytesMax: 0, nowMs });
    if (isFault(page)) return page;
    const sizes = new Map(page.entries.map(({ messageId, envelopeBytes }) => [messageId, envelopeBytes]));
    const removed = sizes.size === 0 ? [] : await mailbox.remove(key, [...sizes.keys()], nowMs);
    entries += removed.length;
    for (const { messageId } of removed) bytes += sizes.get(messageId) ?? 0;
    if (page.next === null) return { entries, bytes };
    after = page.next;
  }
}
