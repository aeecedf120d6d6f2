/**
 * Removing what the node holds of a DID: by the operator (`waypost erase`), and the mail of a DID that was deleted, once
 * the ledger has confirmed it. Ids stay remembered as after an acknowledgement, so that a late copy of an envelope does
 * not come back. What a ledger and its log say of a DID stays: others have proofs of it.
 */
import { decodeUtf8 } from "../../core/codec/bytes.ts";
import { type Did, isDid, mailboxOf } from "../../core/codec/did.ts";
import { minuteMs, secondMs } from "../../core/codec/time.ts";
import { errorText, type Fault, isFault } from "../../core/fault.ts";
import { Waiters } from "../../core/std/bounded.ts";
import type { Bus } from "../../storage/bus.ts";
import { type Mailbox, type Receipts, StoreError } from "../../storage/contract.ts";
import { keyOfKnown } from "../cache/known.ts";
import { forgetPushes } from "../cache/push.ts";
import type { Log } from "../http/log.ts";
import { controlledSubject } from "../signals.ts";
import type { Blocks } from "./blocks.ts";
import { waitingPages } from "./explain.ts";
import type { Invitations } from "./invitations.ts";

export type Erasing = {
  readonly blocks: Blocks;
  /** `null` without a Directory. */
  readonly directory: { readonly invitations: Invitations; readonly forget: (did: Did) => Promise<void> } | null;
  /** `null` without a Cache. */
  readonly cache: { readonly mailbox: Mailbox; readonly receipts: Receipts } | null;
  /** How often the DID was deleted; `null` where the source of recipients can't tell. */
  readonly lifeOf: (did: Did) => Promise<number | null>;
};

type Removed = { readonly entries: number; readonly bytes: number };

/** How many lives are looked at of a DID whose life is unknown. */
const pastLivesMax = 16;

/** What waits for a DID, in the mailboxes of all its lives. */
export async function eraseMail({ cache, lifeOf }: Erasing, did: Did, now: () => number): Promise<Removed> {
  if (cache === null) return { entries: 0, bytes: 0 };
  const life = (await lifeOf(did)) ?? pastLivesMax;
  return removeMail(cache.mailbox, { did, lives: life + 1 }, now);
}

type Lives = { readonly did: Did /** Of the first so many lives. */; readonly lives: number };

async function removeMail(mailbox: Mailbox, { did, lives }: Lives, now: () => number): Promise<Removed> {
  let [entries, bytes] = [0, 0];
  for (let life = 0; life < lives; life++) {
    const key = mailboxOf(did, life);
    for await (const page of waitingPages(mailbox, key, now)) {
      const sizes = new Map(page.map(({ messageId, envelopeBytes }) => [messageId, envelopeBytes]));
      const removed = sizes.size === 0 ? [] : await mailbox.remove(key, [...sizes.keys()], now());
      entries += removed.length;
      for (const { messageId } of removed) bytes += sizes.get(messageId) ?? 0;
    }
  }
  return { entries, bytes };
}

/** Everything that the node holds. The DID is blocked first, so that nothing new comes while the rest goes. */
export async function eraseDid(
  parts: Erasing,
  did: Did,
  now: () => number,
): Promise<(Removed & { readonly invitations: number }) | Fault> {
  const { blocks, directory, cache, lifeOf } = parts;
  const blocked = await blocks.change({ add: [{ subject: did, kind: "did", reason: "erased" }], remove: [] });
  if (isFault(blocked)) return blocked;
  const removed = await eraseMail(parts, did, now);
  const life = (await lifeOf(did)) ?? pastLivesMax;
  for (let past = 0; past <= life && cache !== null; past++) {
    const mailbox = mailboxOf(did, past);
    await cache.receipts.remove(keyOfKnown(mailbox));
    await forgetPushes(cache.receipts, mailbox);
  }
  await directory?.forget(did);
  return { ...removed, invitations: (await directory?.invitations.erase(did)) ?? 0 };
}

// -------------------------------------------------------------------------------------------------- deleted DIDs

/** A deletion is final within this time, or its mail stays until it expires, where nobody can read it. */
const finalMs = 2 * minuteMs;
const lookEveryMs = secondMs;
/** Deletions that are followed at once. */
const followedMax = 1_000;

type Following = Erasing & { readonly bus: Bus; readonly now: () => number; readonly log: Log };

/** Removes the mail of lives that have ended, from the announcement of a deletion until the ledger confirms it. */
export function followDeletions({ bus, cache, lifeOf, now, log }: Following): () => void {
  if (cache === null) return () => {};
  const closing = new Waiters();
  const followed = new Set<string>();
  let isClosed = false;
  const follow = async (did: Did): Promise<void> => {
    let ended = -1;
    for (let waitedMs = 0; waitedMs < finalMs && !isClosed; waitedMs += lookEveryMs) {
      const life = (await lifeOf(did)) ?? 0;
      if (life > Math.max(ended, 0)) {
        const removed = await removeMail(cache.mailbox, { did, lives: life }, now);
        for (let past = 0; past < life; past++) await forgetPushes(cache.receipts, mailboxOf(did, past));
        if (removed.entries > 0) log("info", "the mail of a deleted DID was removed", removed);
      }
      // It rose while this looked: that was the deletion.
      if (ended >= 0 && life > ended) return;
      ended = life;
      await closing.wait(lookEveryMs);
    }
  };
  const subscription = bus.subscribe(controlledSubject, (message) => {
    const did = decodeUtf8(message) ?? "";
    if (!isDid(did) || followed.has(did) || followed.size >= followedMax) return;
    followed.add(did);
    follow(did)
      .catch((error: unknown) => {
        const reason = error instanceof StoreError ? error : errorText(error);
        if (!isClosed) log("warn", "the mail of a deleted DID stays until it expires", { error: reason });
      })
      .finally(() => followed.delete(did));
  });
  return () => {
    isClosed = true;
    subscription.unsubscribe();
    closing.release();
  };
}
