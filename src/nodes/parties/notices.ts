/**
 * The operator's notice to everybody: one at a time, in a store of the node. Only what `operator.did` has signed is taken,
 * so that a moderator, or who breaks into the node, speaks for nobody else.
 */
import type { Config } from "../../config/schema.ts";
import type { VerifySignature } from "../../core/codec/bytes.ts";
import { type Fault, fault } from "../../core/fault.ts";
import { type NoticeForm, readNotice, verifyNotice } from "../../core/message/notice.ts";
import { keptMs } from "../results.ts";
import { type FollowParts, followRecords } from "./followed.ts";
import type { RecipientSource } from "./recipients.ts";
import { encodeRecord } from "./records.ts";

export type Notices = {
  /** `null` without one. */
  readonly current: () => NoticeForm | null;
  /** Durable when it resolves. 400 `invalid_request`, 403 `invalid_signature`. */
  readonly publish: (form: NoticeForm) => Promise<Fault | null>;
  readonly remove: () => Promise<void>;
  readonly close: () => void;
};

type NoticeParts = FollowParts & {
  readonly operator: Pick<Config["operator"], "did">;
  readonly recipients: Pick<RecipientSource, "subject">;
  readonly verify: VerifySignature;
};

const prefix = "/notice/";
const key = `${prefix}now`;

export async function openNotices(parts: NoticeParts): Promise<Notices> {
  const { receipts, now, operator, recipients, verify } = parts;
  let current: NoticeForm | null = null;
  const { announce, close } = await followRecords<NoticeForm>(parts, {
    prefix,
    subject: "operator-notice.changed",
    name: "the operator's notice",
    changed: ([found]) => {
      current = found ?? null;
    },
  });
  return {
    current: () => (current?.did === operator.did ? current : null),
    publish: async (form) => {
      const notice = readNotice(form);
      if (notice === null) return fault("invalid_request", "this is no notice");
      if (notice.did !== operator.did)
        return fault("invalid_signature", "the notice is not of operator.did");
      const document = (await recipients.subject(notice.did))?.document ?? null;
      if (document === null || !(await verifyNotice(notice, document, verify)))
        return fault("invalid_signature", "operator.did has not signed the notice");
      await receipts.put(key, encodeRecord(form), now() + keptMs);
      await announce();
      return null;
    },
    remove: async () => {
      await receipts.remove(key);
      await announce();
    },
    close,
  };
}
