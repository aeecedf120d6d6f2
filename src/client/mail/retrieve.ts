/**
 * Opening what waits for a recipient, and acknowledging it: fetched, checked, decrypted, its sender
 * verified, stored safely by the caller, and only then acknowledged at every Cache whose copy is
 * the same envelope. A message that can't be opened stays in its Cache.
 * Source: interface "Cache" (acknowledging), rules section 6.
 */
import { sha256 } from "#sha256";
import { concatBytes, encodeHex, equalBytes, utf8 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { hourMs, minuteMs, parseDuration, parseTimestamp } from "../../core/codec/time.ts";
import { recipientIn, timestampIn } from "../../core/message/proof.ts";
import { attempt, ClientError, localError } from "../base/failure.ts";
import { isRecord } from "../base/shapes.ts";
import { agreementSecrets, type Identity } from "../keys/keys.ts";
import {
  ackIdsMax,
  chunkKey,
  chunkPlaceOf,
  type EnvelopeCopy,
  type EnvelopeJson,
  messageIdsOf,
  type PendingMessage,
  pendingName,
  type Unreachable,
} from "../net/caches.ts";
import type { Client } from "../trust/client.ts";
import { decideLife } from "../trust/life.ts";
import type { TrustLevel } from "../trust/trust.ts";
import { type Authorship, authorshipOf } from "./authorship.ts";
import { parseMediaType, type Remarks, type TypeFacts } from "./content.ts";
import { type FileFacts, type SealBinding, sealProfile } from "./seal.ts";
import { type ClaimedSender, senderVerifier, type VerifySender } from "./senders.ts";
import { type Opened, openWithCipher, recordReader, type SecretsOf } from "./unseal.ts";
import type { HybridOpened } from "./unseal-hybrid.ts";

export type Recipient = {
  readonly did: Did;
  readonly secretsOf: SecretsOf;
  /** How far a node's clock is ahead of this machine's. */
  readonly aheadMs?: () => number;
  readonly senderOf: VerifySender;
};

/** Opens messages for an identity and verifies their senders. */
export function recipientOf(client: Client, identity: Identity): Recipient {
  return {
    did: identity.did,
    secretsOf: (keyId) => agreementSecrets(identity, keyId),
    senderOf: senderVerifier(client),
    aheadMs: () => client.directory.endpoint.clock.aheadMs,
  };
}

/**
 * What is known of a message apart from its content: when it is received, in a local
 * store, and in a program.
 */
export type MessageFacts = {
  /**
   * The name that its author gave the message; else the id of its envelope, or of
   * the group of its chunks.
   */
  readonly id: string;
  /**
   * The claimed sender; `null` for an unsigned message. Trust it only when `verified` is `true`.
   */
  readonly from: Did | null;
  /**
   * Whether the signature verifies. `null`: unsigned, or the sender's document could not be read.
   */
  readonly verified: boolean | null;
  /** What shows that the key is the sender's; `null` for a message that is not verified. */
  readonly trust: TrustLevel | null;
  /**
   * Why the Directory is not believed about the sender, such as `identity_changed`; the
   * message is not verified then.
   */
  readonly distrusted: string | null;
  readonly name: string;
  /** As its sender named it, without the parameters of these conventions. */
  readonly mediaType: string;
  readonly sizeBytes: number;
  /** The message that this one answers. */
  readonly replyTo: string | null;
  /** Who wrote that, where the sender says it. */
  readonly replyFrom?: Did | null;
  /** The conversation of several that it belongs to. */
  readonly group: string | null;
  /** Names the state of that conversation at the sender. */
  readonly state?: string | null;
  readonly wantsReceipt: boolean;
  /** Members of the group whom it calls. */
  readonly mentions?: readonly Did[];
  /** Somebody else's words, passed on. */
  readonly isForwarded?: boolean;
  /** The store removes it so long after it was read; 0: never. */
  readonly lastsSeconds?: number;
  /** Ids of its envelopes. */
  readonly messageIds: readonly string[];
  /** By the sender's clock. */
  readonly sentMs: number;
};

/** And of the envelopes that were opened. */
export type ReadMessage = MessageFacts & {
  readonly digests: ReadonlySet<string>;
  /**
   * What distinguishes it from others: the same message with other members that
   * nothing signs has the same.
   */
  readonly marks?: ReadonlySet<string>;
  /** Until when it is remembered, by what its author signed; none for one that nothing proves. */
  readonly seenUntilMs?: number;
  /** A pass to the mailbox of its author. */
  readonly pass?: string | null;
  /** The mark of the message that its author sent here before it. */
  readonly follows?: string | null;
  /** Of a verified message in one envelope. */
  readonly authorship?: Authorship | null;
};

/**
 * A complete message in memory, for programs that don't store messages in files. Nothing is written
 * or acknowledged: call `acknowledge` when the data is stored safely.
 */
export async function readMessage(
  message: PendingMessage,
  recipient: Recipient,
): Promise<ReadMessage & { readonly data: Uint8Array }> {
  const parts: Uint8Array[] = [];
  const read = await readChunks(message, recipient, async (data) => void parts.push(data));
  return { ...read, data: concatBytes(...parts) };
}

/**
 * Fetches and opens one part after the other and passes its data on. Size and SHA-256 are
 * those of the whole file.
 */
export async function readChunks(
  message: PendingMessage,
  recipient: Recipient,
  write: (data: Uint8Array, facts: MessageFacts) => Promise<void>,
): Promise<ReadMessage> {
  const hash = sha256.create();
  const [digests, marks] = [new Set<string>(), new Set<string>()];
  let seenUntilMs = 0;
  let whole: Omit<OpenedEnvelope, "data"> | null = null;
  let length = 0;
  for (const copies of message.parts) {
    const { data, digest, mark, ...opened } = await openChunk(copies, recipient, whole);
    seenUntilMs = Math.max(seenUntilMs, opened.seenUntilMs);
    whole = {
      ...opened,
      ...(whole ?? {}),
      from: whole === null ? opened.from : weaker(whole.from, opened.from),
    };
    digests.add(digest);
    marks.add(mark);
    hash.update(data);
    length += data.length;
    await write(data, readOf(message, whole));
  }
  if (
    whole === null ||
    length !== whole.file.sizeBytes ||
    !equalBytes(hash.digest(), whole.file.sha256)
  )
    throw localError(
      "not_authentic",
      "the file is not the one that was sent: size or SHA-256 differ",
    );
  const facts = readOf(message, whole);
  const { pass = null, after = null } = whole.type;
  const follows = facts.verified === true && after !== null ? markOfName(facts.from, after) : null;
  const named = namedMarks(facts, whole.type) ?? marks;
  const authorship = message.groupId === null ? whole.authorship : null;
  return { ...facts, digests, marks: named, seenUntilMs, pass, follows, authorship };
}

/** What a message in chunks says of itself. */
export function readOf(
  message: PendingMessage,
  { file, type, from, sentAtMs }: Omit<OpenedEnvelope, "data">,
): MessageFacts {
  const { replyTo, replyFrom = null, group, state = null, wantsReceipt } = type;
  const named = from?.verified === true ? (type.id ?? null) : null;
  return {
    id: named ?? pendingName(message),
    from: from?.did ?? null,
    verified: from?.verified ?? null,
    trust: from?.trust ?? null,
    distrusted: from?.distrusted ?? null,
    name: file.name,
    mediaType: file.mediaType,
    sizeBytes: file.sizeBytes,
    ...{ replyTo, replyFrom, group, state, wantsReceipt },
    ...remarksOf(type),
    messageIds: messageIdsOf(message),
    sentMs: Math.max(0, sentAtMs ?? Date.now()),
  };
}

/** Only what there is: most messages have none. */
function remarksOf({ mentions = [], isForwarded = false, lastsSeconds = 0 }: Remarks): Remarks {
  return {
    ...(mentions.length > 0 ? { mentions } : {}),
    ...(isForwarded ? { isForwarded } : {}),
    ...(lastsSeconds > 0 ? { lastsSeconds } : {}),
  };
}

/**
 * A message that its author has named is one message, in whichever envelopes it
 * comes; `null` for others.
 */
export function namedMarks(
  { id, from, verified }: Pick<MessageFacts, "id" | "from" | "verified">,
  type: Pick<TypeFacts, "id">,
): ReadonlySet<string> | null {
  if (verified !== true || (type.id ?? null) === null) return null;
  return new Set([markOfName(from, id)]);
}

const markOfName = (from: Did | null, id: string): string =>
  encodeHex(sha256(utf8(`${from}|${id}`)));

/** A file is verified only if each of its chunks is. */
function weaker(a: ClaimedSender | null, b: ClaimedSender | null): ClaimedSender | null {
  if (a === null || b === null || a.verified === false) return a;
  return b.verified === true ? a : b;
}

function sameFile(a: FileFacts, b: FileFacts): boolean {
  const same = a.name === b.name && a.mediaType === b.mediaType && a.sizeBytes === b.sizeBytes;
  return same && equalBytes(a.sha256, b.sha256);
}

/** From the first copy that opens and belongs to the file: any other does not stop the search. */
export async function openChunk(
  copies: readonly EnvelopeCopy[],
  recipient: Recipient,
  whole: Pick<OpenedEnvelope, "file" | "from"> | null,
): Promise<OpenedChunk> {
  let last: ClientError = localError("gone", `no Cache has ${copies[0]?.messageId} any more`);
  for (const copy of copies) {
    const opened = await attempt(async () => {
      const { envelope, digest } = (await copy.read()) ?? {};
      if (envelope === undefined || digest === undefined) return null;
      const { message_id: id } = envelope;
      const isExpected =
        typeof id === "string" && id.toLowerCase() === copy.messageId.toLowerCase();
      if (!isExpected || chunkKey(chunkPlaceOf(envelope)) !== chunkKey(copy.chunk))
        throw localError("not_authentic", "the Cache answered with another message");
      const opened = await openEnvelope(envelope, recipient, copy.foundMs);
      return { ...opened, digest, mark: markOf(envelope, opened.from, digest) };
    });
    if (opened === null) continue;
    if (opened instanceof ClientError) last = opened;
    else if (
      whole === null ||
      (sameFile(whole.file, opened.file) && whole.from?.did === opened.from?.did)
    )
      return opened;
    else last = localError("not_authentic", "the chunks describe different files");
  }
  throw last;
}

export type OpenedChunk = OpenedEnvelope & { readonly digest: string; readonly mark: string };

/** Of an unsigned envelope only id and ciphertext are bound to one another. */
function markOf(envelope: EnvelopeJson, from: ClaimedSender | null, digest: string): string {
  if (from?.verified === true) return digest;
  const { message_id: id, payload } = envelope;
  const ciphertext = isRecord(payload) ? payload["ciphertext_b64"] : "";
  return encodeHex(sha256(utf8(`${String(id).toLowerCase()}|${String(ciphertext)}`)));
}

type OpenedEnvelope = Opened & {
  /** 0 where nothing proves its time. */
  readonly seenUntilMs: number;
  readonly type: TypeFacts;
  readonly from: ClaimedSender | null;
  /** By the sender's clock; `null` when it can't be read. */
  readonly sentAtMs: number | null;
  /** `null` where nothing proves the author. */
  readonly authorship: Authorship | null;
};

/**
 * One envelope to this recipient, decrypted: a whole message, or one chunk of a file
 * (`message_group_id`). Throws a `local` ClientError: `unknown_profile`,
 * `unknown_key`, `not_authentic` or
 * `record_unreadable`.
 */
export async function openEnvelope(
  envelope: EnvelopeJson,
  recipient: Recipient,
  foundMs = performance.now(),
): Promise<OpenedEnvelope> {
  const { message_id: messageId } = envelope;
  const to = recipientIn(envelope);
  const timestamp = timestampIn(envelope);
  if (typeof messageId !== "string" || to !== recipient.did)
    throw localError("not_authentic", "the envelope is for somebody else");
  if (timestamp === null) throw localError("not_authentic", "the envelope has two times");
  const binding: SealBinding = { messageId, to: recipient.did, chunk: chunkPlaceOf(envelope) };
  const opened = await openSealed(envelope, binding, recipient.secretsOf);
  const { file, data, inner } = opened;
  const type = parseMediaType(file.mediaType);
  const sentAtMs = typeof timestamp === "string" ? parseTimestamp(timestamp) : null;
  const from = await recipient.senderOf(envelope, type, { sentAtMs, foundMs }, inner);
  // Signed by somebody who did not write it.
  const isForeign = type.author !== null && from !== null && type.author !== from.did;
  const isProven = from?.verified === true && !isForeign;
  return {
    file: { ...file, mediaType: type.plain },
    type,
    data,
    from: isForeign ? { ...from, verified: false, trust: null } : from,
    sentAtMs,
    seenUntilMs: isProven ? liveUntil(envelope, recipient, sentAtMs) : 0,
    authorship: isProven ? authorshipOf(envelope, opened) : null,
  };
}

/**
 * By the version that its profile names; what opens the second one is loaded with the first
 * message of another profile.
 */
async function openSealed(
  envelope: EnvelopeJson,
  binding: SealBinding,
  secretsOf: SecretsOf,
): Promise<HybridOpened> {
  const payload = envelope["payload"];
  if (!isRecord(payload) || payload["profile"] === sealProfile)
    return { ...(await openWithCipher(payload, binding, secretsOf)), inner: null };
  const opening = { binding, seedsOf: secretsOf, reader: recordReader };
  const { openHybrid } = await import("./unseal-hybrid.ts");
  return openHybrid(envelope, opening);
}

/** Clocks that differ by less agree. */
const agreeMs = minuteMs;

/**
 * Until when a signed message is remembered. Throws `expired` when its time is over, whatever a
 * Cache says; and, so that it waits, `clock_wrong` where it is over only by this machine's clock,
 * which is more than an hour from the node's.
 */
function liveUntil(
  envelope: EnvelopeJson,
  { aheadMs }: Recipient,
  sentAtMs: number | null,
): number {
  const ttlMs = parseDuration(String(envelope["ttl"])) ?? Number.POSITIVE_INFINITY;
  const ahead = aheadMs?.() ?? 0;
  const lifeAt = (nowMs: number) => decideLife({ sentMs: sentAtMs ?? 0, ttlMs, nowMs });
  const here = lifeAt(Date.now() - agreeMs);
  if (!here.isOver) return here.seenUntilMs;
  if (lifeAt(Date.now() + ahead - agreeMs).isOver)
    throw localError("expired", "the time for which its author signed it is over");
  if (Math.abs(ahead) <= hourMs) return here.seenUntilMs;
  throw new ClientError(
    "timed_out",
    "clock_wrong",
    "the clock of this machine, or of the node, is wrong",
  );
}

/** Codes of a message that no later attempt will open: it waits until it expires or is removed. */
const unreadableCodes = [
  "unknown_profile",
  "unknown_key",
  "not_authentic",
  "record_unreadable",
  "expired",
];

export function isUnreadable(error: ClientError): boolean {
  return error.kind === "local" && unreadableCodes.includes(error.code);
}

// ----------------------------------------------------------------------------------- acknowledging

/**
 * Acknowledges the copies that are what was received, by their digests. A copy that was not read
 * yet is read first; one that differs stays. A Cache where that fails will offer the message again.
 */
export async function acknowledge(
  copies: readonly EnvelopeCopy[],
  received: { readonly has: (digest: string) => boolean | Promise<boolean> },
  senders: Acknowledged,
): Promise<void> {
  const same: EnvelopeCopy[] = [];
  for (const copy of copies) {
    const digest = copy.cache === null ? null : await attempt(copy.digest);
    if (typeof digest === "string" && (await received.has(digest))) same.push(copy);
  }
  await removeUnread(same, senders);
}

/**
 * Whether the user has accepted those who sent what is acknowledged: only these
 * become known to the mailbox.
 */
type Acknowledged = { readonly isAccepted: boolean };

/** Acknowledges copies whatever they contain. Returns the Caches where that failed. */
export async function removeUnread(
  copies: readonly EnvelopeCopy[],
  senders: Acknowledged,
): Promise<Unreachable[]> {
  const failures: Unreachable[] = [];
  for (const cache of new Set(copies.map((copy) => copy.cache))) {
    if (cache === null) continue;
    const there = copies.filter((copy) => copy.cache === cache);
    const failure = await attempt(async () => {
      for (let from = 0; from < there.length; from += ackIdsMax) {
        const some = there.slice(from, from + ackIdsMax);
        const ids = some.map(({ messageId }) => messageId);
        await cache.ack(ids, senders);
        for (const copy of some) copy.forget();
      }
    });
    if (failure !== undefined) failures.push({ endpoint: cache.reader.at.url, error: failure });
  }
  return failures;
}
