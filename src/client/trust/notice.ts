/** The operator's notice of a node, checked by the operator's document as that of any person. */
import { type Notice, readNotice, verifyNotice } from "../../core/message/notice.ts";
import { verifySignature } from "../keys/crypto.ts";
import type { About } from "../net/answers.ts";
import { type Client, readDocument } from "./client.ts";
import { believeOperator, operatorIn } from "./operator.ts";

/** `issuedAt` as the operator signed it. */
export type OperatorNotice = { readonly text: string; readonly issuedAt: string };

/**
 * `null` without a notice that the operator has signed: the remembered one, and the first
 * that a notice shows is remembered. One that was signed before the last one that was
 * seen here counts no more.
 */
export async function noticeIn(client: Client, said: About): Promise<OperatorNotice | null> {
  const { notice: form } = said;
  const notice = form == null ? null : readNotice(form);
  const operator = await operatorIn(client, said);
  if (form == null || notice === null || operator === null) return null;
  if (notice.did !== operator.did || operator.before !== null) return null;
  const document = await readDocument(client, notice.did);
  if (!(await verifyNotice(notice, document, verifySignature))) return null;
  await believeOperator(client, operator, null);
  return (await isLatest(client, notice)) ? { text: notice.text, issuedAt: form.issued_at } : null;
}

/** Remembers it as the latest of its operator, unless a later one was seen. */
async function isLatest(client: Client, { did, issuedAtMs }: Notice): Promise<boolean> {
  const { memory } = client.known;
  const seenMs = Number(await memory.load(`notice/${did}`));
  if (issuedAtMs > seenMs) await memory.save(`notice/${did}`, String(issuedAtMs));
  return issuedAtMs >= seenMs;
}
