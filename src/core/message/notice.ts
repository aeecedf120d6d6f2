/**
 * A notice: a text of the operator to everybody, signed by the identity that the node
 * names. A node shows it and can't change it; who reads checks it by the operator's
 * document.
 * Source: docs/interface.md "Notices".
 */
import { sha256 } from "#sha256";
import {
  decodeBase64,
  encodeBase64,
  encodeHex,
  utf8,
  type VerifySignature,
} from "../codec/bytes.ts";
import { type Did, isDid } from "../codec/did.ts";
import { parseTimestamp, renderTimestamp } from "../codec/time.ts";
import type { DidDocument } from "../ledger/account.ts";
import { keyFor } from "../ledger/document.ts";
import { signedTextOf } from "./proof.ts";

export const noticeCharsMax = 1_000;

export type Notice = {
  readonly did: Did;
  readonly text: string;
  readonly issuedAtMs: number;
  /** Id of the method whose key has signed. */
  readonly signer: string;
  readonly signature: Uint8Array;
};

/** As it travels. */
export type NoticeForm = Readonly<
  Record<"did" | "text" | "issued_at" | "signer" | "signature_b64", string>
>;

/** `null` for what is none. The signature is not checked. */
export function readNotice(form: NoticeForm): Notice | null {
  const { did, text, signer } = form;
  const issuedAtMs = parseTimestamp(form.issued_at);
  const signature = decodeBase64(form.signature_b64);
  if (!isDid(did) || issuedAtMs === null || signature?.length !== 64) return null;
  if (text === "" || text.length > noticeCharsMax) return null;
  return renderTimestamp(issuedAtMs) === form.issued_at
    ? { did, text, issuedAtMs, signer, signature }
    : null;
}

export function renderNotice({ did, text, issuedAtMs, signer, signature }: Notice): NoticeForm {
  const issued_at = renderTimestamp(issuedAtMs);
  return { did, text, issued_at, signer, signature_b64: encodeBase64(signature) };
}

const noticeText = signedTextOf("svc:notice:v1", ...(["did", "issuedAt", "textSha256"] as const));

/** What a notice is signed with. */
export function encodeNoticeText({
  did,
  text,
  issuedAtMs,
}: Pick<Notice, "did" | "text" | "issuedAtMs">): Uint8Array {
  const issuedAt = renderTimestamp(issuedAtMs);
  const textSha256 = encodeHex(sha256(utf8(text)));
  return noticeText({ did, issuedAt, textSha256 });
}

/**
 * Whether a method that `authentication` of this document lists has signed the notice of
 * its DID.
 */
export async function verifyNotice(
  notice: Notice,
  document: DidDocument,
  verify: VerifySignature,
): Promise<boolean> {
  if (notice.did !== document.id) return false;
  const key = keyFor({ document }, notice.signer, "send");
  return key !== null && verify(notice.signature, encodeNoticeText(notice), key);
}
