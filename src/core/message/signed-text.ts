/** What a refused signature had to cover, for the answer of a node in development mode. */
import { decodeUtf8, encodeHex0x } from "../codec/bytes.ts";
import { type Fault, fault } from "../fault.ts";

/**
 * Adds the verified bytes, as text or else hex: what the client sent, shown only in
 * development.
 */
export function withSignedText(refusal: Fault, signed: Uint8Array): Fault {
  const text = decodeUtf8(signed);
  const isText = text !== null && !/[\u0000-\u0009\u000b-\u001f\u007f]/.test(text);
  return fault(refusal.code, refusal.detail, {
    ...refusal.extra,
    signedText: isText ? text : encodeHex0x(signed),
  });
}
