/**
 * Who an envelope is from, and whether the signature holds. Nodes have checked the envelope; what a Cache
 * answers is checked again, because it may be another one.
 * Source: docs/protocol.md "Signing an envelope".
 */
import { decodeBase64 } from "../core/codec/bytes.ts";
import { type Did, isDid } from "../core/codec/did.ts";
import { minuteMs, secondMs } from "../core/codec/time.ts";
import { type DidDocument, methodFor, parseMethodKey } from "../core/ledger/document-form.ts";
import { encodeSenderText } from "../core/message/envelope-signature.ts";
import { activeDocument, type Client } from "./client.ts";
import { verifyEd25519 } from "./curves.ts";
import { ClientError, localError, orNull } from "./http.ts";
import type { EnvelopeJson, Sender } from "./retrieve.ts";

const sendersRememberedMax = 1_000;
const documentKeptMs = minuteMs;

/**
 * Answers the sender of an envelope, `null` when it names none. A signature that does not verify is reported,
 * not refused: a message that can't be taken would wait for ever.
 */
export function senderVerifier(client: Client): (envelope: EnvelopeJson) => Promise<Sender | null> {
  const readDocument = documentReader(client);
  return async (envelope) => {
    if (envelope["from"] === undefined) return null;
    const from = envelope["from"];
    if (typeof from !== "string" || !isDid(from)) throw localError("not_authentic", "the envelope is malformed");
    const verify = async (freshMs: number) => verifySender(envelope, await readDocument(from, freshMs));
    try {
      // The sender may have a new key since its document was read: once more, with what is published now.
      return { did: from, verified: (await verify(documentKeptMs)) || (await verify(secondMs)) };
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      return { did: from, verified: null };
    }
  };
}

async function verifySender(envelope: EnvelopeJson, document: DidDocument | null): Promise<boolean> {
  const { sender_key_id: keyId, sender_signature: text } = envelope;
  if (document === null || typeof keyId !== "string" || typeof text !== "string") return false;
  const method = methodFor(document, keyId, "send");
  const key = method === null ? null : parseMethodKey(method);
  const signature = decodeBase64(text);
  return key !== null && signature !== null && verifyEd25519(signature, encodeSenderText(envelope), key);
}

/** Documents of senders, each read at most once within `freshMs`. */
function documentReader(client: Client): (did: Did, freshMs: number) => Promise<DidDocument | null> {
  const known = new Map<Did, { readonly readAtMs: number; readonly document: Promise<DidDocument | null> }>();
  return (did, freshMs) => {
    const remembered = known.get(did);
    if (remembered !== undefined && remembered.readAtMs > Date.now() - freshMs) return remembered.document;
    const document = orNull(activeDocument(client, did), "did_not_found");
    document.catch(() => known.delete(did));
    if (known.size >= sendersRememberedMax) known.clear();
    known.set(did, { readAtMs: Date.now(), document });
    return document;
  };
}
