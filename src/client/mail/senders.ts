/**
 * Who sent a message: the claimed sender, outside on the envelope or inside its record, and whether
 * the signature verifies under what is believed of the sender's keys.
 * Source: interface "Sender signature", docs/trust.md.
 */
import { decodeBase64 } from "../../core/codec/bytes.ts";
import { type Did, isDid } from "../../core/codec/did.ts";
import { minuteMs, parseDuration, secondMs } from "../../core/codec/time.ts";
import { type DidDocument, methodFor, parseMethodKey } from "../../core/ledger/account.ts";
import { encodeSenderText } from "../../core/message/proof.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import { attempt, ClientError, isTemporary, localError, orNull } from "../base/failure.ts";
import { verifySignature } from "../keys/crypto.ts";
import type { EnvelopeJson } from "../net/caches.ts";
import { activeDocument, type Client, trustIn } from "../trust/client.ts";
import type { TrustLevel } from "../trust/trust.ts";
import { isNote, type TypeFacts } from "./content.ts";
import type { InnerSignature } from "./unseal-hybrid.ts";

/**
 * `verified` is `false` when the signature does not verify, `null` when the document could not be
 * read. `distrusted`: why what the Directory says of the sender is not believed, such as
 * `identity_changed`; nothing is verified then.
 */
export type ClaimedSender = {
  readonly did: Did;
  readonly verified: boolean | null;
  /** What shows the keys of a verified sender. */
  readonly trust: TrustLevel | null;
  readonly distrusted: string | null;
};

type EnvelopeTimes = {
  /** By the sender's clock; `null` when it can't be read. */
  readonly sentAtMs: number | null;
  /** When this machine learned of it, by `performance.now()`. */
  readonly foundMs: number;
};

/**
 * Answers the claimed sender of an envelope, and whether its signature verifies; `null`
 * when it names no sender.
 */
export type VerifySender = (
  envelope: EnvelopeJson,
  type: Pick<TypeFacts, "essence" | "home">,
  times: EnvelopeTimes,
  /** Its signature inside, which then counts. */
  inner?: InnerSignature | null,
) => Promise<ClaimedSender | null>;

const sendersKeptMax = 1_000;
const documentKeptMs = minuteMs;
/**
 * A message that is younger waits in the Cache while its sender can't be looked up, because what is
 * saved unverified stays so. An older one may be of somebody whose home is gone, and one that lives
 * no longer than this would be lost.
 */
const patienceMs = 5 * minuteMs;

/** `null`: a sender whom this Directory does not know. */
type KnownSender = { readonly document: DidDocument; readonly trust: TrustLevel } | null;

/**
 * Answers the sender of an envelope, `null` when it names none. The Cache may belong to anyone, so
 * the signature is verified here again. A wrong signature is reported, not refused: otherwise the
 * message could never be read.
 */
export function senderVerifier(client: Client): VerifySender {
  const kept = new BoundedMap<
    Did,
    { readonly atMs: number; readonly sender: Promise<KnownSender> }
  >(sendersKeptMax);
  const readSender = async (did: Did): Promise<KnownSender> => {
    const document = await orNull(activeDocument(client, did), "did_not_found");
    return document === null ? null : { document, trust: await trustIn(client, did) };
  };
  const readNow = (did: Did): Promise<KnownSender> => {
    const sender = readSender(did);
    sender.catch(() => kept.delete(did));
    kept.set(did, { atMs: performance.now(), sender });
    return sender;
  };
  const senderWithin = (did: Did, freshMs: number): Promise<KnownSender> => {
    const known = kept.get(did);
    const isFresh = known !== undefined && known.atMs > performance.now() - freshMs;
    return isFresh ? known.sender : readNow(did);
  };
  /**
   * By what is published after the envelope was found. One read a second is for all that wait for
   * it, and what was found before it waits for no other, so forgeries hold up no one for longer.
   */
  const senderSince = async (did: Did, foundMs: number): Promise<KnownSender> => {
    const { atMs, sender } = kept.get(did) ?? { atMs: Number.NEGATIVE_INFINITY, sender: null };
    if (sender !== null && atMs >= foundMs) return sender;
    const leftMs = atMs + secondMs - performance.now();
    if (leftMs <= 0) return readNow(did);
    await new Promise((resolve) => setTimeout(resolve, leftMs + 1));
    return senderSince(did, foundMs);
  };
  return async (envelope, { essence, home }, { sentAtMs, foundMs }, inner = null) => {
    const claim = claimOf(envelope, inner);
    if (claim === null) return null;
    const { from } = claim;
    if (home !== null && client.trust.provenOf(from) === null) client.trust.tellHome(from, home);
    const verify = async (reading: Promise<KnownSender>): Promise<ClaimedSender> => {
      const known = await reading;
      const verified = known && (await verifyClaim(claim, known.document));
      return {
        did: from,
        verified,
        trust: verified === true ? (known?.trust ?? null) : null,
        distrusted: null,
      };
    };
    // The sender may have a new key since its document was read: once more,
    // with what is published now.
    const sender = await attempt(async () => {
      const known = await verify(senderWithin(from, documentKeptMs));
      return known.verified === true ? known : verify(senderSince(from, foundMs));
    });
    if (!(sender instanceof ClientError)) return sender;
    // A note counts only when it is verified, and is never shown: it waits until its
    // sender can be looked up.
    const livesMs = parseDuration(String(envelope["ttl"])) ?? Number.POSITIVE_INFINITY;
    const isYoung = (sentAtMs ?? 0) > Date.now() - patienceMs && livesMs > patienceMs;
    if (isTemporary(sender) && (isYoung || isNote(essence))) throw sender;
    const distrusted = sender.kind === "distrusted" ? sender.code : null;
    return { did: from, verified: distrusted === null ? null : false, trust: null, distrusted };
  };
}

/** Who says to have sent it; what is malformed verifies nothing. */
type Claim = {
  readonly from: Did;
  readonly keyId: string;
  readonly signature: Uint8Array | null;
  readonly signedBytes: Uint8Array | null;
};

/**
 * `null` when it names no sender. Throws `not_authentic` for a malformed name, and for
 * another outside than inside.
 */
function claimOf(envelope: EnvelopeJson, inner: InnerSignature | null): Claim | null {
  const { from = inner?.from, sender_key_id: keyId, sender_signature: text } = envelope;
  if (from === undefined) return null;
  if (typeof from !== "string" || !isDid(from) || (inner?.from ?? from) !== from)
    throw localError("not_authentic", "the envelope is malformed");
  if (inner !== null) return { ...inner, from };
  return {
    from,
    keyId: typeof keyId === "string" ? keyId : "",
    signature: typeof text === "string" ? decodeBase64(text) : null,
    signedBytes: signedTextOf(envelope),
  };
}

async function verifyClaim(
  { keyId, signature, signedBytes }: Claim,
  document: DidDocument,
): Promise<boolean> {
  const method = methodFor(document, keyId, "send");
  const key = method === null ? null : parseMethodKey(method);
  if (key === null || signature === null || signedBytes === null) return false;
  return verifySignature(signature, signedBytes, key);
}

/** `null` when a part of it has no canonical form, such as text with a lone surrogate. */
export function signedTextOf(envelope: EnvelopeJson): Uint8Array | null {
  try {
    return encodeSenderText(envelope);
  } catch {
    return null;
  }
}
