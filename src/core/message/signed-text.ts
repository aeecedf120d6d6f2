/**
 * What was verified, for refusals of signatures: a client that differs in one line sees which. Only a node in development
 * shows it, and it holds nothing but what the client sent (D146).
 */
import { decodeUtf8, encodeHex0x } from "../codec/bytes.ts";
import { type Fault, fault } from "../fault.ts";

/** The refusal, with the signed bytes as text, or as hex where they are none. */
export function withSignedText(refusal: Fault, signed: Uint8Array): Fault {
  const text = decodeUtf8(signed);
  const isText = text !== null && !/[\u0000-\u0009\u000b-\u001f\u007f]/.test(text);
  return fault(refusal.code, refusal.detail, { ...refusal.extra, signedText: isText ? text : encodeHex0x(signed) });
}
