/** The operator's notice of a node, checked by the operator's document as that of any person. */
import { readNotice, verifyNotice } from "../../core/message/notice.ts";
import { verifySignature } from "../keys/crypto.ts";
import type { About } from "../net/answers.ts";
import { type Client, readDocument } from "./client.ts";

/** `issuedAt` as the operator signed it. */
export type OperatorNotice = { readonly text: string; readonly issuedAt: string };

/** `null` without a notice that the named operator has signed. */
export async function noticeIn(
  client: Client,
  { operator, notice: form }: About,
): Promise<OperatorNotice | null> {
  const notice = form == null ? null : readNotice(form);
  if (form == null || notice === null || notice.did !== operator?.did) return null;
  const document = await readDocument(client, notice.did);
  const holds = await verifyNotice(notice, document, verifySignature);
  return holds ? { text: notice.text, issuedAt: form.issued_at } : null;
}
