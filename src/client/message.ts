/**
 * Messages as a program sees them: received messages, their content, and the events beside them. Content follows
 * docs/protocol.md ("Content"): the media type names the kind of a message, and its parameters its relation to other
 * messages. A client that does not know them still shows the text or the file.
 */
import { sha256 } from "#sha256";
import { decodeUtf8, utf8 } from "../core/codec/bytes.ts";
import { type Did, parseUuid } from "../core/codec/did.ts";
import { isRecord } from "./answers.ts";
import { ClientError, localError } from "./http.ts";
import { type MediaType, parseMediaType, type Relations, withRelations } from "./media-type.ts";
import type { Written } from "./retrieve.ts";
import { bytesSource, type Sent, type Source, type TransferOptions } from "./send.ts";
import { type TrustLevel, trustOf } from "./trust/trust.ts";
import type { Stranger } from "./trust/watch.ts";

export type MessageOptions = ContentNames &
  TransferOptions & {
    /** How long the message may wait: `24h` by default. */
    readonly ttl?: string;
    /** Public: selects a policy of the recipient. */
    readonly tag?: string;
    /** `direct`: never to a Cache. `cache`: straight to a Cache. For messages of one chunk. */
    readonly hint?: "direct" | "cache";
    readonly chunkBytes?: number;
    readonly replyTo?: string | null;
    readonly group?: string | null;
    /** Whether to ask for a receipt; by default as the identity was opened. */
    readonly receipt?: boolean;
    /** `proven` sends only to a recipient whose keys are proven. */
    readonly trust?: "proven";
    /** Signs nothing: the recipient does not learn who sent it. */
    readonly anonymous?: boolean;
  };

/** What a message needs from the identity that received it. */
export type MessageActions = {
  readonly ack: () => Promise<void>;
  readonly send: (to: Did, content: Content, options: MessageOptions) => Promise<Sent>;
};

type MessageParts = {
  /** The id of the message, or of the group of its chunks. */
  readonly id: string;
  readonly messageIds: readonly string[];
  readonly written: Written;
  readonly data: Uint8Array;
};

/**
 * A received message: decrypted, assembled and verified. Only `ack` acknowledges it; until then every run gets it again.
 */
export class Message {
  readonly id: string;
  /** Ids of its envelopes. */
  readonly messageIds: readonly string[];
  /** The claimed sender; `null` for an unsigned message. Trust it only when `verified` is `true`. */
  readonly from: Did | null;
  /** Whether the signature verifies. `null`: unsigned, or the sender's document could not be read. */
  readonly verified: boolean | null;
  /** What shows that the key is the sender's; `null` for a message that is not verified. */
  readonly trust: TrustLevel | null;
  /** Why the Directory is not believed about the sender, such as `identity_changed`; the message is not verified then. */
  readonly distrusted: string | null;
  /** By the sender's clock. */
  readonly sentAt: Date;
  readonly name: string;
  readonly mediaType: string;
  readonly sizeBytes: number;
  /** The message that this one answers. */
  readonly replyTo: string | null;
  /** The conversation of several that it belongs to. */
  readonly group: string | null;
  /** Set when the message is a reaction to another. */
  readonly reaction: Reaction | null;

  readonly #data: Uint8Array;
  readonly #actions: MessageActions;
  readonly #type: MediaType;

  constructor({ id, messageIds, written, data }: MessageParts, actions: MessageActions) {
    this.#data = data;
    this.#actions = actions;
    this.#type = parseMediaType(written.file.mediaType);
    this.id = id;
    this.messageIds = messageIds;
    this.from = written.from === null ? null : (written.from.did as Did);
    this.verified = written.from?.verified ?? null;
    this.trust = this.from !== null && this.verified === true ? trustOf(this.from) : null;
    this.distrusted = written.from?.distrusted ?? null;
    this.sentAt = new Date(written.sentAtMs ?? 0);
    this.name = written.file.name;
    this.mediaType = this.#type.plain;
    this.sizeBytes = written.file.sizeBytes;
    this.replyTo = this.#type.relations.replyTo;
    this.group = this.#type.relations.group;
    this.reaction = this.#type.essence === reactionType ? parseReaction(this.#parsed()) : null;
  }

  /** The text of a text or JSON message; `null` for other content. */
  get text(): string | null {
    const isText = this.#type.essence.startsWith("text/") || this.#type.essence === "application/json";
    return isText ? decodeUtf8(this.#data) : null;
  }

  /** Throws `not_json` for other content. */
  json(): unknown {
    const value = this.#parsed();
    if (value === undefined) throw localError("not_json", "the content of the message is not JSON");
    return value;
  }

  bytes(): Uint8Array {
    return this.#data;
  }

  get file(): File {
    return new File([this.#data.slice()], this.name === "" ? "message" : this.name, { type: this.mediaType });
  }

  get wantsReceipt(): boolean {
    return this.#type.relations.wantsReceipt;
  }

  /** Sends to the sender of this message. Throws `no_sender` when it is unsigned. */
  reply(content: Content, options: MessageOptions = {}): Promise<Sent> {
    if (this.from === null) throw localError("no_sender", "this message is not signed");
    return this.#actions.send(this.from, content, { replyTo: this.id, group: this.group, ...options });
  }

  /** Removes the message from every Cache, permanently. Save it first. */
  ack(): Promise<void> {
    return this.#actions.ack();
  }

  #parsed(): unknown {
    try {
      return JSON.parse(decodeUtf8(this.#data) ?? "");
    } catch {
      return undefined;
    }
  }
}

// ------------------------------------------------------------------------------------------------------------ content

/** Text, bytes, a Blob or File, or a stream of bytes; any other value is sent as JSON. */
export type Content = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array> | JsonContent;
export type JsonContent = null | boolean | number | readonly unknown[] | { readonly [name: string]: unknown };

export const reactionType = "application/vnd.waypost.reaction+json";
export const receiptType = "application/vnd.waypost.receipt+json";

type ContentNames = { readonly name?: string; readonly mediaType?: string };

/** A stream is read to its end before anything is sent, because every chunk names size and SHA-256 of the whole. */
const streamBytesMax = 1_073_741_824;
const readBytes = 1_048_576;

/** Measures and hashes the content once; it can then be read again and again, by ranges. */
export async function sourceOf(content: Content, names: ContentNames, relations: Relations): Promise<Source> {
  const typed = (fallback: string) => withRelations(names.mediaType ?? fallback, relations);
  if (typeof content === "string")
    return bytesSource(names.name ?? "", typed("text/plain;charset=utf-8"), utf8(content));
  if (content instanceof Uint8Array) return bytesSource(names.name ?? "", typed("application/octet-stream"), content);
  if (content instanceof ArrayBuffer)
    return bytesSource(names.name ?? "", typed("application/octet-stream"), new Uint8Array(content));
  if (content instanceof ReadableStream) {
    const blob = await new Response(content.pipeThrough(boundedStream())).blob();
    return blobSource(blob, names.name ?? "", typed("application/octet-stream"));
  }
  if (content instanceof Blob) {
    const name = names.name ?? ("name" in content && typeof content.name === "string" ? content.name : "");
    return blobSource(content, name, typed(content.type || "application/octet-stream"));
  }
  return bytesSource(names.name ?? "", typed("application/json"), utf8(jsonOf(content)));
}

/** Throws `invalid_argument` for what has no JSON: `undefined`, functions, bigints, circles. */
function jsonOf(content: JsonContent): string {
  let cause: unknown;
  try {
    const text: string | undefined = JSON.stringify(content);
    if (text !== undefined) return text;
  } catch (error) {
    cause = error;
  }
  throw new ClientError("local", "invalid_argument", "the content can't be written as JSON", { cause });
}

async function blobSource(blob: Blob, name: string, mediaType: string): Promise<Source> {
  const read = async (from: number, to: number) => new Uint8Array(await blob.slice(from, to).arrayBuffer());
  const hash = sha256.create();
  for (let from = 0; from < blob.size; from += readBytes) {
    hash.update(await read(from, Math.min(from + readBytes, blob.size)));
  }
  return { file: { name, mediaType, sizeBytes: blob.size, sha256: hash.digest() }, read };
}

function boundedStream(): TransformStream<Uint8Array, Uint8Array<ArrayBuffer>> {
  let length = 0;
  return new TransformStream({
    transform(chunk, controller) {
      length += chunk.length;
      if (length > streamBytesMax) throw localError("too_large", `a stream may have at most ${streamBytesMax} bytes`);
      controller.enqueue(chunk.slice());
    },
  });
}

export type Reaction = { readonly to: string; readonly reaction: string };

/** A reaction is one short text, such as an emoji; empty text withdraws it. */
function parseReaction(json: unknown): Reaction | null {
  if (!isRecord(json) || json["v"] !== 1 || typeof json["reaction"] !== "string") return null;
  const to = typeof json["to"] === "string" ? parseUuid(json["to"]) : null;
  return to === null || json["reaction"].length > 64 ? null : { to, reaction: json["reaction"] };
}

/** The ids that a receipt is for. */
export function parseReceipt(json: unknown): string[] | null {
  if (!isRecord(json) || json["v"] !== 1 || !Array.isArray(json["delivered"])) return null;
  const ids = json["delivered"].map((id: unknown) => (typeof id === "string" ? parseUuid(id) : null));
  return ids.length > 0 && ids.length <= 1_000 && ids.every((id) => id !== null) ? ids : null;
}

// ------------------------------------------------------------------------------------------------------------- events

type Connection = "directory" | "cache" | "stream" | "live";

/** Events other than messages. None needs a reaction. */
export type WaypostEvent =
  /** A message that can't be opened. It waits until it expires, or until `discard` removes it. */
  | {
      readonly type: "unreadable";
      readonly messageIds: readonly string[];
      readonly code: string;
      readonly reason: string;
      readonly discard: () => Promise<void>;
    }
  /** A recipient has a message of this identity. */
  | { readonly type: "receipt"; readonly from: Did; readonly messageIds: readonly string[] }
  /** A live session began, or what was lost is back. */
  | { readonly type: "connected"; readonly what: Connection; readonly url: string }
  /** The SDK reconnects by itself. `error` is `null` when the node closed the connection normally. */
  | {
      readonly type: "disconnected";
      readonly what: Connection;
      readonly url: string;
      readonly error: ClientError | null;
    }
  /** The key that others seal to was replaced. */
  | { readonly type: "rotated" }
  /** Another device published a key whose secret can't be derived here: import the identity again. */
  | { readonly type: "key_missing" }
  /** The own record has a key that this device neither holds nor derives, or the own alias is another DID's. */
  | { readonly type: "stranger_change"; readonly what: Stranger | "alias" }
  /** The own record has changed, by keys that this device holds: another device of this identity. */
  | { readonly type: "identity_updated" }
  /**
   * A receipt, a rotation or a look at the own record failed in the background; the SDK tries again later. Or the clock is
   * wrong: messages go on by the nodes' time, and changes of the identity fail.
   */
  | { readonly type: "failed"; readonly what: "receipt" | "rotation" | "watch" | "clock"; readonly error: ClientError };

export type Listener = (event: WaypostEvent) => void;
