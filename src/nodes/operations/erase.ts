/**
 * Removing what the node holds of a DID: by the operator (`waypost erase`), and the mail of a DID
 * that was deleted, once the ledger has confirmed it. Ids stay remembered as after an
 * acknowledgement, so that a late copy of an envelope does not come back. What a ledger and its log
 * say of a DID stays: others have proofs of it.
 */
import { decodeUtf8 } from "../../core/codec/bytes.ts";
import { type Did, isDid, type MailboxKey, mailboxOf } from "../../core/codec/did.ts";
import { dayMs, minuteMs, secondMs } from "../../core/codec/time.ts";
import { type Fault, fault, isFault } from "../../core/fault.ts";
import type { Bus } from "../../storage/bus.ts";
import type { Mailbox, Receipts } from "../../storage/contract.ts";
import { keyOfBundle } from "../cache/bundles.ts";
import { waitingPages } from "../cache/entries.ts";
import { keyOfKnown } from "../cache/known.ts";
import { keyOfPasses } from "../cache/passes.ts";
import { forgetPushes } from "../cache/push.ts";
import type { Log } from "../http/log.ts";
import type { Blocks } from "../parties/blocks.ts";
import type { Members } from "../parties/members.ts";
import { decodeRecord, encodeRecord, scanRecords } from "../parties/records.ts";
import { deletedSubject } from "../parties/signals.ts";
import type { Tiers } from "../parties/tiers.ts";
import type { Results } from "../results.ts";
import type { Invitations } from "./invitations.ts";

export type Erasing = {
  readonly blocks: Blocks;
  /** `null` without a Directory. */
  readonly directory: {
    readonly invitations: Invitations;
    readonly forget: (did: Did) => Promise<void>;
  } | null;
  /** `null` without a Cache. */
  readonly cache: { readonly mailbox: Mailbox; readonly receipts: Receipts } | null;
  readonly members: Pick<Members, "forget">;
  readonly tiers: Pick<Tiers, "forget">;
  /** What became of its envelopes lately, as this process remembers it. */
  readonly results: Pick<Results, "forget">;
  /** How often the DID was deleted; `null` where the source of recipients doesn't know. */
  readonly lifeOf: (did: Did) => Promise<number | null>;
};

type Removed = { readonly entries: number; readonly bytes: number };

/** How many lives are looked at of a DID whose life is unknown. */
const pastLivesMax = 16;

/** What waits for the first so many lives of a DID. */
async function removeMail(
  mailbox: Mailbox,
  did: Did,
  lives: number,
  now: () => number,
): Promise<Removed> {
  let [entries, bytes] = [0, 0];
  for (let life = 0; life < lives; life++) {
    const key = mailboxOf(did, life);
    for await (const { entries: waiting } of waitingPages(mailbox, key, now)) {
      const sizes = new Map(
        waiting.map(({ messageId, envelopeBytes }) => [messageId, envelopeBytes]),
      );
      const removed = sizes.size === 0 ? [] : await mailbox.remove(key, [...sizes.keys()], now());
      entries += removed.length;
      for (const { messageId } of removed) bytes += sizes.get(messageId) ?? 0;
    }
  }
  return { entries, bytes };
}

/** What the Cache keeps of the owner of a mailbox apart from the mail. */
async function forgetOwner(receipts: Receipts, mailbox: MailboxKey): Promise<void> {
  await receipts.remove(keyOfKnown(mailbox));
  await receipts.remove(keyOfPasses(mailbox));
  await receipts.remove(keyOfBundle(mailbox));
  await forgetPushes(receipts, mailbox);
}

/**
 * Everything that the node holds. The DID is blocked first, so that nothing new
 * comes while the rest goes.
 */
export async function eraseDid(
  { blocks, members, tiers, directory, cache, results, lifeOf }: Erasing,
  did: Did,
  now: () => number,
): Promise<(Removed & { readonly invitations: number }) | Fault> {
  const blocked = await blocks.change({
    add: [{ subject: did, kind: "did", reason: "erased" }],
    remove: [],
  });
  if (isFault(blocked))
    return blocked.code === "invalid_request"
      ? fault("invalid_request", `${did} is operator.did: it can't be erased`)
      : blocked;
  const lives = ((await lifeOf(did)) ?? pastLivesMax) + 1;
  const removed =
    cache === null ? { entries: 0, bytes: 0 } : await removeMail(cache.mailbox, did, lives, now);
  for (let life = 0; life < lives && cache !== null; life++) {
    await forgetOwner(cache.receipts, mailboxOf(did, life));
  }
  await directory?.forget(did);
  await members.forget(did);
  await tiers.forget(did);
  results.forget(did);
  return { ...removed, invitations: (await directory?.invitations.erase(did)) ?? 0 };
}

// ------------------------------------------------------------------------------------ deleted DIDs

const duePrefix = "/deleted/";
/** A deletion that no ledger has confirmed by then is none. */
const followedMs = dayMs;
/**
 * An envelope that was admitted before the end may wait for a live session
 * (`deliveryMsMax`) and for the disk.
 */
const settledMs = minuteMs;

/** The life before the deletion, and whether the DID is no member any more. */
type DueRecord = { readonly life: number; readonly isForgotten: boolean };

type Deletions = {
  /**
   * Durable when it resolves, before the deletion is submitted; the
   * returned function takes it back.
   */
  readonly expect: (did: Did) => Promise<() => Promise<void>>;
  readonly close: () => void;
};

type Following = Erasing & { readonly bus: Bus; readonly now: () => number; readonly log: Log };

/**
 * What one look at a record does: it removes what is there of a life that has ended, and the record
 * when nothing more can come.
 */
function endedLives(
  { members, tiers, lifeOf, now, log }: Following,
  { mailbox, receipts }: NonNullable<Erasing["cache"]>,
): (key: string, record: DueRecord) => Promise<void> {
  /** When this process saw first that a record's life has ended. */
  const endedMs = new Map<string, number>();
  const forgetOwners = async (did: Did, lives: number): Promise<void> => {
    for (let life = 0; life < lives; life++) await forgetOwner(receipts, mailboxOf(did, life));
  };
  return async (key, record) => {
    const { life: lifeBefore, isForgotten } = record;
    const did = key.slice(duePrefix.length).split("/")[0] as Did;
    const lives = (await lifeOf(did)) ?? 0;
    if (lives <= lifeBefore) return;
    const removed = await removeMail(mailbox, did, lives, now);
    if (removed.entries > 0) log("info", "the mail of a deleted DID was removed", removed);
    const sinceMs = endedMs.get(key);
    if (sinceMs === undefined) endedMs.set(key, now());
    const isSettled = sinceMs !== undefined && now() - sinceMs >= settledMs;
    if (sinceMs === undefined || isSettled) await forgetOwners(did, lives);
    // Once: who is created anew a moment later is a member again.
    if (!isForgotten) {
      await members.forget(did);
      await tiers.forget(did);
      await receipts.put(key, encodeRecord({ ...record, isForgotten: true }), now() + followedMs);
    }
    if (!isSettled || removed.entries > 0) return;
    await receipts.remove(key);
    endedMs.delete(key);
  };
}

/**
 * Removes the mail of lives that have ended. A record says that a deletion is under way, from
 * before it is submitted until the ledger has confirmed it, what was admitted before is stored, and
 * a look finds nothing more to remove: a crash in between loses nothing.
 */
export function followDeletions(parts: Following): Deletions {
  const { bus, cache, directory, lifeOf, now, log } = parts;
  if (cache === null) return { expect: async () => async () => {}, close: () => {} };
  const { receipts } = cache;
  const lookAt = endedLives(parts, cache);
  let [isDue, isLooking] = [true, false];
  const eraseDue = async (): Promise<void> => {
    isDue = false;
    for await (const page of scanRecords(receipts, duePrefix, now))
      for (const [key, value] of page) {
        isDue = true;
        await lookAt(key, decodeRecord<DueRecord>(value));
      }
  };
  // One look a second, as long as a deletion is under way, and one at a time: a store may be slow.
  const timer = setInterval(async () => {
    if (!isDue || isLooking) return;
    isLooking = true;
    await eraseDue().catch((error: unknown) => {
      isDue = true;
      log("warn", "the mail of deleted DIDs can't be removed now", { error });
    });
    isLooking = false;
  }, secondMs);
  const expect = async (did: Did) => {
    const key = `${duePrefix}${did}/${crypto.randomUUID()}`;
    const life = (await lifeOf(did)) ?? 0;
    const record: DueRecord = { life, isForgotten: false };
    await receipts.put(key, encodeRecord(record), now() + followedMs);
    isDue = true;
    return () => receipts.remove(key);
  };
  // A process with a Directory has written its own record.
  const subscription = bus.subscribe(deletedSubject, async (message) => {
    const did = decodeUtf8(message) ?? "";
    if (directory === null && isDid(did)) await expect(did);
    isDue = true;
    return undefined;
  });
  return {
    expect,
    close: () => {
      clearInterval(timer);
      subscription.unsubscribe();
    },
  };
}
