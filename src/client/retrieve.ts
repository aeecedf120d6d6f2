/**
 * Receiving from all Caches of a recipient, each message once: fetched, checked, decrypted, stored safely, and only then
 * acknowledged at every Cache whose copy is the same envelope. A message that can't be opened stays in its Cache.
 * Source: interface "Cache" (acknowledging), docs/ledger.md 3.2 and 3.3.
 */
import { sha256 } from "#sha256";
import { concatBytes, equalBytes } from "../core/codec/bytes.ts";
import type { Did } from "../core/codec/did.ts";
import { parseTimestamp } from "../core/codec/time.ts";
import { chunkOf, type EnvelopeCopy, type PendingMessage, type Unreachable } from "./copies.ts";
import { ClientError, localError } from "./http.ts";
import type { EnvelopeJson } from "./live.ts";
import { authorOf, withoutAuthor } from "./media-type.ts";
import { ackIdsMax, type CacheClient } from "./reader.ts";
import type { Binding, FileFacts } from "./seal.ts";
import { type Opened, openPayload, type SecretsOf } from "./unseal.ts";

export type Recipient = {
  readonly did: Did;
  readonly secretsOf: SecretsOf;
  /** The claimed sender of an envelope, and whether its signature verifies; `null` when it names no sender. */
  readonly senderOf: (envelope: EnvelopeJson) => Promise<Sender | null>;
};

/**
 * `verified` is `false` when the signature does not verify, `null` when the document could not be read. `distrusted`: why
 * what the Directory says of the sender is not believed, such as `identity_changed`; nothing is verified then.
 */
export type Sender = {
  readonly did: string;
  readonly verified: boolean | null;
  readonly distrusted: string | null;
};

export type Written = {
  readonly file: FileFacts;
  readonly from: Sender | null;
  /** By the sender's clock; `null` when it can't be read. */
  readonly sentAtMs: number | null;
  /** Of the envelopes that were opened. */
  readonly digests: ReadonlySet<string>;
};

/**
 * A complete message in memory, for programs that don't store messages in files. Nothing is written or acknowledged:
 * call `acknowledge` when the data is stored safely.
 */
export async function readMessage(
  message: PendingMessage,
  recipient: Recipient,
): Promise<Written & { data: Uint8Array }> {
  const parts: Uint8Array[] = [];
  const written = await readChunks(message, recipient, { write: async (data) => void parts.push(data) });
  return { ...written, data: concatBytes(...parts) };
}

type Sink = {
  readonly write: (data: Uint8Array) => Promise<void>;
  readonly onChunk?: (done: number, total: number) => void;
};

/** Fetches and opens one part after the other and passes its data on. Size and SHA-256 are those of the whole file. */
export async function readChunks(
  message: PendingMessage,
  recipient: Recipient,
  { write, onChunk }: Sink,
): Promise<Written> {
  const hash = sha256.create();
  const digests = new Set<string>();
  const found: OpenedEnvelope[] = [];
  let length = 0;
  for (const [i, copies] of message.parts.entries()) {
    const opened = await openFirst(copies, recipient, found[0] ?? null);
    digests.add(opened.digest);
    hash.update(opened.data);
    length += opened.data.length;
    await write(opened.data);
    found.push({ ...opened, data: new Uint8Array(0) });
    onChunk?.(i + 1, message.parts.length);
  }
  const [first] = found;
  if (first === undefined || length !== first.file.sizeBytes || !equalBytes(hash.digest(), first.file.sha256)) {
    throw localError("not_authentic", "the file is not the one that was sent: size or SHA-256 differ");
  }
  const from = found.map((one) => one.from).reduce(weaker);
  return { file: first.file, from, sentAtMs: first.sentAtMs, digests };
}

/** A file is verified only if each of its chunks is. */
function weaker(a: Sender | null, b: Sender | null): Sender | null {
  if (a === null || b === null || a.verified === false) return a;
  return b.verified === true ? a : b;
}

function sameFile(a: FileFacts, b: FileFacts): boolean {
  const same = a.name === b.name && a.mediaType === b.mediaType && a.sizeBytes === b.sizeBytes;
  return same && equalBytes(a.sha256, b.sha256);
}

/** From the first copy that opens and belongs to the file: any other does not stop the search. */
async function openFirst(
  copies: readonly EnvelopeCopy[],
  recipient: Recipient,
  whole: OpenedEnvelope | null,
): Promise<OpenedEnvelope & { readonly digest: string }> {
  let last: ClientError = localError("gone", `no Cache has ${copies[0]?.messageId} any more`);
  for (const copy of copies) {
    try {
      const read = await copy.read();
      if (read === null) continue;
      const opened = await openCopy(read.envelope, copy, recipient);
      if (whole === null || (sameFile(whole.file, opened.file) && whole.from?.did === opened.from?.did))
        return { ...opened, digest: read.digest };
      last = localError("not_authentic", "the chunks describe different files");
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      last = error;
    }
  }
  throw last;
}

function openCopy(envelope: EnvelopeJson, copy: EnvelopeCopy, recipient: Recipient): Promise<OpenedEnvelope> {
  const messageId = envelope["message_id"];
  const chunk = chunkOf(envelope);
  const expected =
    typeof messageId === "string" &&
    messageId.toLowerCase() === copy.messageId.toLowerCase() &&
    chunk?.groupId.toLowerCase() === copy.chunk?.groupId.toLowerCase() &&
    chunk?.sequence === copy.chunk?.sequence &&
    chunk?.total === copy.chunk?.total;
  if (!expected) throw localError("not_authentic", "the Cache answered with another message");
  return openEnvelope(envelope, recipient);
}

type OpenedEnvelope = Opened & Pick<Written, "from" | "sentAtMs">;

/**
 * One envelope to this recipient, decrypted: a whole message, or one chunk of a file (`message_group_id`).
 * Throws a `local` ClientError: `unknown_profile`, `unknown_key`, `not_authentic` or
 * `record_unreadable`.
 */
export async function openEnvelope(envelope: EnvelopeJson, recipient: Recipient): Promise<OpenedEnvelope> {
  const messageId = envelope["message_id"];
  const to = eitherOf(envelope, "to", "recipient");
  const timestamp = eitherOf(envelope, "timestamp", "created_at");
  if (typeof messageId !== "string" || to !== recipient.did)
    throw localError("not_authentic", "the envelope is for somebody else");
  const binding: Binding = { messageId, to: recipient.did, chunk: chunkOf(envelope) };
  const { file, data } = await openPayload(envelope["payload"], binding, recipient.secretsOf);
  const sentAtMs = typeof timestamp === "string" ? parseTimestamp(timestamp) : null;
  const from = await recipient.senderOf(envelope);
  const author = authorOf(file.mediaType);
  // Signed by somebody who did not write it.
  const isForeign = author !== null && from !== null && author !== from.did;
  return {
    file: { ...file, mediaType: withoutAuthor(file.mediaType) },
    data,
    from: isForeign ? { ...from, verified: false } : from,
    sentAtMs,
  };
}

/** A member with two names. Which of them a signature covers is ambiguous in an envelope with both. */
function eitherOf(envelope: EnvelopeJson, name: string, other: string): unknown {
  if (envelope[name] !== undefined && envelope[other] !== undefined)
    throw localError("not_authentic", `the envelope has both ${name} and ${other}`);
  return envelope[name] ?? envelope[other];
}

/** Codes of a message that no later attempt will open: it waits until it expires or is removed. */
const unreadableCodes = ["unknown_profile", "unknown_key", "not_authentic", "record_unreadable"];

export function isUnreadable(error: ClientError): boolean {
  return error.kind === "local" && unreadableCodes.includes(error.code);
}

// ------------------------------------------------------------------------------------------------ acknowledging

/**
 * Acknowledges the copies that are what was received, by their digests. A copy that was not read yet is read first; one
 * that differs stays. Returns the Caches where that failed: they will offer the message again.
 */
export async function acknowledge(
  copies: readonly EnvelopeCopy[],
  received: { readonly has: (digest: string) => boolean },
): Promise<Unreachable[]> {
  const same: EnvelopeCopy[] = [];
  const failures: Unreachable[] = [];
  for (const copy of copies) {
    if (copy.cache === null) continue;
    try {
      const digest = await copy.digest();
      if (digest !== null && received.has(digest)) same.push(copy);
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      failures.push({ endpoint: copy.cache.reader.at.url, error });
    }
  }
  return [...failures, ...(await removeUnread(same))];
}

/** Acknowledges copies whatever they contain. */
export async function removeUnread(copies: readonly EnvelopeCopy[]): Promise<Unreachable[]> {
  const idsAt = new Map<CacheClient, string[]>();
  for (const { messageId, cache } of copies)
    if (cache !== null) idsAt.set(cache, [...(idsAt.get(cache) ?? []), messageId]);
  const failures: Unreachable[] = [];
  for (const [cache, ids] of idsAt) {
    try {
      for (let from = 0; from < ids.length; from += ackIdsMax) await cache.ack(ids.slice(from, from + ackIdsMax));
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      failures.push({ endpoint: cache.reader.at.url, error });
    }
  }
  return failures;
}
