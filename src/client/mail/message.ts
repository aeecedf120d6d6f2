/**
 * What a program sees of what it receives: messages, and events. The media type names the kind of a
 * message, and its parameters its relation to other messages.
 * Source: docs/protocol.md ("Content"), docs/client.md "Receiving".
 */
import { decodeUtf8 } from "../../core/codec/bytes.ts";
import { type Did, isDid, parseUuid } from "../../core/codec/did.ts";
import { type ClientError, localError } from "../base/failure.ts";
import { isRecord } from "../base/shapes.ts";
import type { Stranger } from "../trust/own.ts";
import { type Content, isNote, reactionType } from "./content.ts";
import type { MessageFacts } from "./retrieve.ts";
import type { MessageOptions, Sent } from "./send.ts";

/**
 * A received message: decrypted, assembled and verified. Only `ack` acknowledges it; until then
 * every run gets it again.
 */
export type Message = MessageFacts & {
  readonly sentAt: Date;
  /** Set when the message is a reaction to another. */
  readonly reaction: Reaction | null;
  /** The text of a text or JSON message; `null` for other content. */
  readonly text: string | null;
  /** Throws `not_json` for other content. */
  readonly json: () => unknown;
  readonly bytes: () => Uint8Array;
  readonly file: File;
  /** Sends to the sender of this message. Throws `no_sender` when it is unsigned. */
  readonly reply: (content: Content, options?: MessageOptions) => Promise<Sent>;
  /** Removes the message from every Cache, permanently. Save it first. */
  readonly ack: () => Promise<void>;
};

/** What a message needs from the identity that received it. */
export type MessageActions = {
  readonly ack: () => Promise<void>;
  readonly send: (to: Did, content: Content, options: MessageOptions) => Promise<Sent>;
};

/** `content` is `null` when the local store had no room for it any more. */
export function createMessage(
  facts: MessageFacts,
  content: Uint8Array | null,
  { ack, send }: MessageActions,
): Message {
  const { id, from, name, mediaType: type, group } = facts;
  const bytes = (): Uint8Array => {
    if (content !== null) return content;
    throw localError(
      "content_removed",
      "the store was full: the content of this message was removed from it",
    );
  };
  return {
    ...facts,
    sentAt: new Date(facts.sentMs),
    reaction: content === null ? null : reactionIn(facts, content),
    get text() {
      return /^(text\/|application\/json$)/.test(essenceOf(facts)) ? decodeUtf8(bytes()) : null;
    },
    json: () => {
      const value = jsonIn(bytes());
      if (value === undefined)
        throw localError("not_json", "the content of the message is not JSON");
      return value;
    },
    bytes,
    get file() {
      return new File([bytes().slice()], name === "" ? "message" : name, { type });
    },
    reply: async (answer, options = {}) => {
      if (from === null) throw localError("no_sender", "this message is not signed");
      return send(from, answer, { replyTo: id, replyFrom: from, group, ...options });
    },
    ack,
  };
}

// ----------------------------------------------------------------------------------------- content

type Typed = Pick<MessageFacts, "mediaType">;

/** Of a media type: lower case, without parameters. */
export const essenceOf = ({ mediaType }: Typed): string =>
  (mediaType.split(";")[0] ?? "").trim().toLowerCase();

/** `undefined` for content that is not JSON. */
export function jsonIn(content: Uint8Array): unknown {
  try {
    return JSON.parse(decodeUtf8(content) ?? "");
  } catch {
    return undefined;
  }
}

/** A note changes other messages, and is not a message itself (`parseNote`). */
export const isNoteOf = (typed: Typed): boolean => isNote(essenceOf(typed));

export const reactionIn = (typed: Typed, content: Uint8Array): Reaction | null =>
  essenceOf(typed) === reactionType ? parseReaction(jsonIn(content)) : null;

export type Reaction = {
  readonly to: string;
  /** Who wrote the message; `null` when the sender does not say it. */
  readonly author: Did | null;
  readonly reaction: string;
};

/** A reaction is one short text, such as an emoji; empty text withdraws it. */
export function parseReaction(json: unknown): Reaction | null {
  const { v, to: named, author: by, reaction } = isRecord(json) ? json : {};
  const to = typeof named === "string" ? parseUuid(named) : null;
  const author = typeof by === "string" && isDid(by) ? by : null;
  return v === 1 && to !== null && typeof reaction === "string" && reaction.length <= 64
    ? { to, author, reaction }
    : null;
}

// ------------------------------------------------------------------------------------------ events

/** What changed in the store: read again what you show. */
export type StoreChange = {
  readonly type: "changed";
  readonly conversation: string | null;
  readonly id: string | null;
  /**
   * `overtaken`: a change of a group by this identity has lost against one by another device of
   * it, or by the next admin.
   */
  readonly what:
    | "message"
    | "state"
    | "read"
    | "person"
    | "group"
    | "overtaken"
    | "removed"
    /** What was chosen in a conversation, such as words that are not sent. */
    | "chosen";
};

type ConnectionKind = "directory" | "cache" | "live";

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
  | {
      readonly type: "typing";
      readonly from: Did;
      readonly conversation: string;
      readonly isTyping: boolean;
    }
  /** A live session began, or what was lost is back. */
  | { readonly type: "connected"; readonly what: ConnectionKind; readonly url: string }
  /**
   * The SDK reconnects by itself. `error` is `null` when the node closed the connection normally.
   */
  | {
      readonly type: "disconnected";
      readonly what: ConnectionKind;
      readonly url: string;
      readonly error: ClientError | null;
    }
  /** The key that others seal to was replaced. */
  | { readonly type: "rotated" }
  /**
   * Somebody has proven that they publish no keys against recording any more: they are sealed
   * to in the first version.
   */
  | { readonly type: "downgraded"; readonly did: Did }
  /** Another device of this identity has accepted a new one. */
  | {
      readonly type: "device_added";
      readonly did: Did;
      readonly name: string;
      readonly addedBy: Did | null;
    }
  /**
   * `open` was given other addresses than the document names, where this identity listens and its
   * messages wait: `move` has it name those. `relay` and `cache` are the named ones.
   */
  | {
      readonly type: "address_differs";
      readonly relay: readonly string[];
      readonly cache: readonly string[];
    }
  /**
   * The own record has a key that this device neither holds nor derives, or the
   * own alias is another DID's.
   */
  | { readonly type: "stranger_change"; readonly what: Stranger | "alias" | "log" }
  /**
   * A receipt, a rotation or a look at the own record failed in the background; the SDK tries again
   * later. Or the clock is wrong: messages go on by the nodes' time, and changes of the identity
   * fail. Or nothing is `logged`, and why.
   */
  | {
      readonly type: "failed";
      readonly what:
        | "receipt"
        | "rotation"
        | "watch"
        | "clock"
        | "log"
        | "store"
        | "devices"
        | "person";
      readonly error: ClientError;
    }
  /** The local store: what changed, in this tab or another. */
  | StoreChange
  /** The local store has no room: nothing more is acknowledged. */
  | { readonly type: "store_full" }
  /** This tab receives and delivers for all that have the store open. */
  | { readonly type: "leading" };

export type Listener = (event: WaypostEvent) => void;
