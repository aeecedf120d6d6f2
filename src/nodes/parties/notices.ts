/**
 * The operator's notice to everybody: one at a time, in a store of the node. Only what
 * `operator.did` has signed is taken, so that a moderator, or who breaks into the node,
 * can speak in no other name.
 */
import type { Config } from "../../config/schema.ts";
import type { VerifySignature } from "../../core/codec/bytes.ts";
import { minuteMs } from "../../core/codec/time.ts";
import { type Fault, fault } from "../../core/fault.ts";
import {
  type Notice,
  type NoticeForm,
  readNotice,
  verifyNotice,
} from "../../core/message/notice.ts";
import { keptMs } from "../results.ts";
import { type FollowParts, followRecords } from "./followed.ts";
import type { RecipientSource } from "./recipients.ts";
import { encodeRecord } from "./records.ts";

export type Notices = {
  /** `null` without one. */
  readonly current: () => NoticeForm | null;
  /**
   * Durable when it resolves. 400 `invalid_request`, also for one of before the last;
   * 403 `invalid_signature`.
   */
  readonly publish: (form: NoticeForm) => Promise<Fault | null>;
  readonly remove: () => Promise<void>;
  readonly close: () => void;
};

type NoticeParts = FollowParts & {
  readonly operator: Pick<Config["operator"], "did">;
  readonly recipients: Pick<RecipientSource, "subject">;
  readonly verify: VerifySignature;
};

/** One that was removed stays, so that no one shows it again: its signature holds for good. */
type Kept = NoticeForm & { readonly isRemoved?: true };

type Known = Pick<Notice, "did" | "issuedAtMs"> & { readonly kept: Kept };

const aheadMsMax = 5 * minuteMs;
const prefix = "/notice/";
/**
 * Each notice has its own, so that of two processes that write at once neither undoes the other.
 */
const keyOf = ({ did, issuedAtMs }: Pick<Notice, "did" | "issuedAtMs">): string =>
  `${prefix}${did}/${issuedAtMs}`;

export async function openNotices(parts: NoticeParts): Promise<Notices> {
  const { receipts, now, operator, recipients, verify } = parts;
  let known: readonly Known[] = [];
  const { read, announce, close } = await followRecords<Kept>(parts, {
    prefix,
    subject: "operator-notice.changed",
    name: "the operator's notice",
    changed: (records) => {
      known = records.flatMap((kept) => {
        const notice = readNotice(kept);
        return notice === null ? [] : [{ did: notice.did, issuedAtMs: notice.issuedAtMs, kept }];
      });
    },
  });
  /** Of this operator, in the order of signing. */
  const own = (): Known[] =>
    known.filter(({ did }) => did === operator.did).sort((a, b) => a.issuedAtMs - b.issuedAtMs);
  const last = (): Known | undefined => own().at(-1);
  const current = (): NoticeForm | null => {
    const kept = last()?.kept;
    return kept === undefined || kept.isRemoved === true ? null : kept;
  };
  /** Durable: what was signed before the last notice counts no more. */
  const settle = async (): Promise<void> => {
    await read();
    for (const earlier of own().slice(0, -1)) await receipts.remove(keyOf(earlier));
    await announce();
  };
  return {
    current,
    publish: async (form) => {
      const notice = readNotice(form);
      if (notice === null) return fault("invalid_request", "this is not a notice");
      if (notice.did !== operator.did)
        return fault("invalid_signature", "the notice is not of operator.did");
      const document = (await recipients.subject(notice.did))?.document ?? null;
      if (document === null || !(await verifyNotice(notice, document, verify)))
        return fault("invalid_signature", "operator.did has not signed the notice");
      await read();
      // It would lock out all that are signed before its time comes.
      if (notice.issuedAtMs > now() + aheadMsMax)
        return fault("invalid_request", "it was signed by a clock that is ahead: sign it again");
      const outdated = fault(
        "invalid_request",
        "it was signed before the last notice: sign it again",
      );
      if (notice.issuedAtMs < (last()?.issuedAtMs ?? 0)) return outdated;
      const record = encodeRecord(form);
      await receipts.putIfAbsent(keyOf(notice), record, now() + keptMs, now());
      await settle();
      // A later one of another process, or this one was removed.
      return current()?.signature_b64 === form.signature_b64 ? null : outdated;
    },
    remove: async () => {
      await read();
      const shown = last();
      if (shown === undefined) return;
      const removed: Kept = { ...shown.kept, isRemoved: true };
      await receipts.put(keyOf(shown), encodeRecord(removed), now() + keptMs);
      await settle();
    },
    close,
  };
}
