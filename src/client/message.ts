/**
 * What a program sees of what it receives: messages, and events beside them. The media type names the kind of a message, and
 * its parameters its relation to other messages.
 * Source: docs/protocol.md ("Content"), docs/client.md "Receiving".
 */
import { decodeUtf8 } from "../core/codec/bytes.ts";
import { type Did, parseUuid } from "../core/codec/did.ts";
import { isRecord } from "./answers.ts";
import { type Content, isNote, reactionType } from "./content.ts";
import { type ClientError, localError } from "./http.ts";
import { type Note, parseNote } from "./notes.ts";
import type { MediaType, Written } from "./retrieve.ts";
import type { MessageOptions, Sent } from "./send.ts";
import type { StoreChange } from "./store/rows.ts";
import type { Stranger } from "./trust/own.ts";
import type { TrustLevel } from "./trust/trust.ts";

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
  /** `null` when the local store had no room for it any more. */
  readonly data: Uint8Array | null;
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
  /** Set when this is no message, and no program sees it. @internal */
  readonly note: Note | null;

  readonly #content: Uint8Array | null;
  readonly #actions: MessageActions;
  readonly #type: MediaType;

  constructor({ id, messageIds, written, data }: MessageParts, actions: MessageActions) {
    this.#content = data;
    this.#actions = actions;
    this.#type = written.type;
    this.id = id;
    this.messageIds = messageIds;
    this.from = written.from === null ? null : (written.from.did as Did);
    this.verified = written.from?.verified ?? null;
    this.trust = written.from?.trust ?? null;
    this.distrusted = written.from?.distrusted ?? null;
    this.sentAt = new Date(written.sentAtMs ?? 0);
    this.name = written.file.name;
    this.mediaType = written.file.mediaType;
    this.sizeBytes = written.file.sizeBytes;
    this.replyTo = this.#type.replyTo;
    this.group = this.#type.group;
    this.reaction = this.#type.essence === reactionType ? parseReaction(this.#parsed()) : null;
    this.note = isNote(this.#type.essence) ? parseNote(this.#type.essence, this.#parsed()) : null;
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

  get #data(): Uint8Array {
    if (this.#content !== null) return this.#content;
    throw localError("content_removed", "the store was full: the content of this message was removed from it");
  }

  get file(): File {
    return new File([this.#data.slice()], this.name === "" ? "message" : this.name, { type: this.mediaType });
  }

  get wantsReceipt(): boolean {
    return this.#type.wantsReceipt;
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

export type Reaction = { readonly to: string; readonly reaction: string };

/** A reaction is one short text, such as an emoji; empty text withdraws it. */
export function parseReaction(json: unknown): Reaction | null {
  const { v, to: named, reaction } = isRecord(json) ? json : {};
  const to = typeof named === "string" ? parseUuid(named) : null;
  return v === 1 && to !== null && typeof reaction === "string" && reaction.length <= 64 ? { to, reaction } : null;
}

// ------------------------------------------------------------------------------------------------------------- events

type ConnectionKind = "directory" | "cache" | "stream" | "live";

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
  /** A recipient has read them. */
  | { readonly type: "read"; readonly from: Did; readonly messageIds: readonly string[] }
  /** Somebody writes in a conversation: for 30 s, unless they stop or a message comes. */
  | { readonly type: "typing"; readonly from: Did; readonly conversation: string; readonly isTyping: boolean }
  /** A live session began, or what was lost is back. */
  | { readonly type: "connected"; readonly what: ConnectionKind; readonly url: string }
  /** The SDK reconnects by itself. `error` is `null` when the node closed the connection normally. */
  | {
      readonly type: "disconnected";
      readonly what: ConnectionKind;
      readonly url: string;
      readonly error: ClientError | null;
    }
  /** The key that others seal to was replaced. */
  | { readonly type: "rotated" }
  /** Another device published a key whose secret can't be derived here: restore a backup. */
  | { readonly type: "key_missing" }
  /** The own record has a key that this device neither holds nor derives, or the own alias is another DID's. */
  | { readonly type: "stranger_change"; readonly what: Stranger | "alias" | "log" }
  /** The own record has changed, by keys that this device holds: another device of this identity. */
  | { readonly type: "identity_updated" }
  /**
   * A receipt, a rotation or a look at the own record failed in the background; the SDK tries again later. Or the clock is
   * wrong: messages go on by the nodes' time, and changes of the identity fail. Or nothing is `logged`, and why.
   */
  | {
      readonly type: "failed";
      readonly what: "receipt" | "rotation" | "watch" | "clock" | "log" | "store" | "devices";
      readonly error: ClientError;
    }
  /** The local store: what changed, in this tab or another. */
  | StoreChange
  /** The local store has no room: nothing more is acknowledged. */
  | { readonly type: "store_full" }
  /** This tab receives and delivers for all that have the store open. */
  | { readonly type: "leading" };

export type Listener = (event: WaypostEvent) => void;
