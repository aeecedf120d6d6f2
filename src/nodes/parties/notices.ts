/**
 * The operator's notice to everybody: one at a time, in a store of the node. Only what `operator.did` has signed is taken,
 * so that a moderator, or who breaks into the node, can speak in no other name.
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
  /** Durable when it resolves. 400 `invalid_request`, also for one of before the last; 403 `invalid_signature`. */
  readonly publish: (form: NoticeForm) => Promise<Fault | null>;
  readonly remove: () => Promise<void>;
  readonly close: () => void;
};

type NoticeParts = FollowParts & {
  readonly operator: Pick<Config["operator"], "did">;
  readonly recipients: Pick<RecipientSource, "subject">;
  readonly verify: VerifySignature;
};

/** The last notice. One that was removed stays, so that no one shows it again: its signature holds for good. */
type Kept = NoticeForm & { readonly isRemoved?: true };

const aheadMsMax = 5 * minuteMs;
const prefix = "/notice/";
const key = `${prefix}now`;

export async function openNotices(parts: NoticeParts): Promise<Notices> {
  const { receipts, now, operator, recipients, verify } = parts;
  let last: Kept | null = null;
  const { read, announce, close } = await followRecords<Kept>(parts, {
    prefix,
    subject: "operator-notice.changed",
    name: "the operator's notice",
    changed: ([found]) => {
      last = found ?? null;
    },
  });
  const current = (): NoticeForm | null =>
    last?.did === operator.did && last?.isRemoved !== true ? last : null;
  /** Whether the operator has signed it after the last one, or it is what everybody is shown. */
  const isLater = ({ did, issuedAtMs }: Notice, form: NoticeForm): boolean => {
    const before = last?.did === did ? readNotice(last) : null;
    if (before === null || issuedAtMs > before.issuedAtMs) return true;
    return current()?.signature_b64 === form.signature_b64;
  };
  return {
    current,
    publish: async (form) => {
      const notice = readNotice(form);
      if (notice === null) return fault("invalid_request", "this is no notice");
      if (notice.did !== operator.did)
        return fault("invalid_signature", "the notice is not of operator.did");
      const document = (await recipients.subject(notice.did))?.document ?? null;
      if (document === null || !(await verifyNotice(notice, document, verify)))
        return fault("invalid_signature", "operator.did has not signed the notice");
      await read();
      // It would lock out all that are signed before its time comes.
      if (notice.issuedAtMs > now() + aheadMsMax)
        return fault("invalid_request", "it was signed by a clock that is ahead: sign it again");
      if (!isLater(notice, form))
        return fault("invalid_request", "it was signed before the last notice: sign it again");
      await receipts.put(key, encodeRecord(form), now() + keptMs);
      await announce();
      return null;
    },
    remove: async () => {
      await read();
      if (last === null) return;
      const removed: Kept = { ...last, isRemoved: true };
      await receipts.put(key, encodeRecord(removed), now() + keptMs);
      await announce();
    },
    close,
  };
}
