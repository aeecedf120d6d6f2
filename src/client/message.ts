/**
 * A received message as a program sees it: opened, put together and checked. Nothing of it is acknowledged
 * before `ack`; until then it is offered again to the next run.
 */
import { decodeUtf8 } from "../core/codec/bytes.ts";
import type { Did } from "../core/codec/did.ts";
import { type Content, type MediaType, parseMediaType, parseReaction, type Reaction, reactionType } from "./content.ts";
import { localError } from "./http.ts";
import type { Written } from "./retrieve.ts";
import type { Sent } from "./send.ts";
import type { MessageOptions } from "./waypost.ts";

/** What a message needs of the identity that received it. */
export type MessageActions = {
  readonly ack: () => Promise<void>;
  readonly send: (to: Did, content: Content, options: MessageOptions) => Promise<Sent>;
};

export type MessageParts = {
  /** The id of the message, or of the group of its chunks. */
  readonly id: string;
  readonly messageIds: readonly string[];
  readonly written: Written;
  readonly data: Uint8Array;
};

export class Message {
  readonly id: string;
  /** Ids of the envelopes that carried it. */
  readonly messageIds: readonly string[];
  /** Who says to have sent it; `null` when nobody signed. Trust it only when `verified`. */
  readonly from: Did | null;
  /** `true`: the signature holds. `false`: it does not. `null`: unsigned, or the sender's document could not be read. */
  readonly verified: boolean | null;
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
    this.sentAt = new Date(written.sentAtMs ?? 0);
    this.name = written.file.name;
    this.mediaType = this.#type.plain;
    this.sizeBytes = written.file.sizeBytes;
    this.replyTo = this.#type.relations.replyTo;
    this.group = this.#type.relations.group;
    this.reaction = this.#type.essence === reactionType ? parseReaction(this.#parsed()) : null;
  }

  /** The words of a text message; `null` for files of other kinds. */
  get text(): string | null {
    const isText = this.#type.essence.startsWith("text/") || this.#type.essence === "application/json";
    return isText ? decodeUtf8(this.#data) : null;
  }

  /** Throws `not_json` when the content is something else. */
  json(): unknown {
    const value = this.#parsed();
    if (value === undefined) throw localError("not_json", "the message holds no JSON");
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

  /** Sends to whoever sent this. Throws `no_sender` when nobody signed. */
  reply(content: Content, options: MessageOptions = {}): Promise<Sent> {
    if (this.from === null) throw localError("no_sender", "nobody signed this message");
    return this.#actions.send(this.from, content, { replyTo: this.id, group: this.group, ...options });
  }

  /** Removes the message from every Cache for good. Keep what you need of it first. */
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
