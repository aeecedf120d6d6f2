/**
 * What an identity needs to receive: where it reads and listens, by its document, and who sent a message.
 * Source: interface "Cache", rules section 6.
 */
import { decodeBase64 } from "../core/codec/bytes.ts";
import { type Did, isDid } from "../core/codec/did.ts";
import { minuteMs, secondMs } from "../core/codec/time.ts";
import { type DidDocument, methodFor, parseMethodKey } from "../core/ledger/account.ts";
import { encodeSenderText } from "../core/message/proof.ts";
import { activeDocument, type Client, seedInForce } from "./client.ts";
import { verifyEd25519 } from "./crypto.ts";
import { ClientError, localError, orNull } from "./http.ts";
import { agreementSecrets, type Identity } from "./keys.ts";
import type { EnvelopeJson } from "./live.ts";
import { type CacheClient, cacheClient, type Reader, type ReaderOptions, readersOf } from "./reader.ts";
import type { Recipient, Sender } from "./retrieve.ts";

/** Every Cache that the identity's document names and that one of its keys may read. */
export async function cachesOf(client: Client, identity: Identity, deviceId: string): Promise<CacheClient[]> {
  return (await readersFor(client, identity, { serviceType: "SvcCacheService", deviceId })).map(cacheClient);
}

/** Every Relay that the identity's document names and where one of its keys may listen. */
export async function liveEndpoints(client: Client, identity: Identity, deviceId: string): Promise<Reader[]> {
  return readersFor(client, identity, { serviceType: "SvcRelayService", deviceId });
}

async function readersFor(
  client: Client,
  identity: Identity,
  options: Pick<ReaderOptions, "serviceType" | "deviceId">,
): Promise<Reader[]> {
  const document = await activeDocument(client, identity.did);
  const seedOf = (keyId: string) => seedInForce(identity, document, keyId);
  const readers = await readersOf(identity.did, document, { ...options, seedOf, timeoutMs: client.timeoutMs });
  if (readers.length > 0) return readers;
  const [code, node] = options.serviceType === "SvcCacheService" ? ["no_cache", "Cache"] : ["no_relay", "Relay"];
  throw localError(code, `the document names no ${node} that authorizes a key of this device`);
}

/** Opens messages for an identity and verifies their senders. */
export function recipientOf(client: Client, identity: Identity): Recipient {
  return {
    did: identity.did,
    secretsOf: (keyId) => agreementSecrets(identity, keyId),
    senderOf: senderVerifier(client),
  };
}

// ------------------------------------------------------------------------------------------------------------ senders

const sendersRememberedMax = 1_000;
const documentKeptMs = minuteMs;

/**
 * Answers the sender of an envelope, `null` when it names none. The Cache may belong to anyone, so the signature is
 * verified here again. A wrong signature is reported, not refused: otherwise the message could never be read.
 */
function senderVerifier(client: Client): (envelope: EnvelopeJson) => Promise<Sender | null> {
  const readDocument = documentReader(client);
  return async (envelope) => {
    if (envelope["from"] === undefined) return null;
    const from = envelope["from"];
    if (typeof from !== "string" || !isDid(from)) throw localError("not_authentic", "the envelope is malformed");
    const verify = async (freshMs: number) => verifySender(envelope, await readDocument(from, freshMs));
    try {
      // The sender may have a new key since its document was read: once more, with what is published now.
      const verified = (await verify(documentKeptMs)) || (await verify(secondMs));
      return { did: from, verified, distrusted: null };
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      const distrusted = error.kind === "distrusted" ? error.code : null;
      return { did: from, verified: distrusted === null ? null : false, distrusted };
    }
  };
}

/** `null` for a sender whom this Directory does not know: another one may. */
async function verifySender(envelope: EnvelopeJson, document: DidDocument | null): Promise<boolean | null> {
  const { sender_key_id: keyId, sender_signature: text } = envelope;
  if (document === null) return null;
  if (typeof keyId !== "string" || typeof text !== "string") return false;
  const method = methodFor(document, keyId, "send");
  const key = method === null ? null : parseMethodKey(method);
  const signature = decodeBase64(text);
  const signed = textOf(envelope);
  return key !== null && signature !== null && signed !== null && verifyEd25519(signature, signed, key);
}

/** `null` when a part of it has no canonical form, such as text with a lone surrogate. */
function textOf(envelope: EnvelopeJson): Uint8Array | null {
  try {
    return encodeSenderText(envelope);
  } catch {
    return null;
  }
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
