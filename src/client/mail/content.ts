/**
 * Content to send, of every form, measured and hashed once; and its media type: the sender's own, and behind `waypost=1` who
 * wrote the message and how it relates to others. It is sealed, so only the recipient reads it; a client that does not know
 * a type still shows the text or the file.
 * Source: docs/protocol.md ("Content").
 */
import { sha256 } from "#sha256";
import { utf8 } from "../../core/codec/bytes.ts";
import { ClientError, localError } from "../base/failure.ts";
import { isRecord } from "../base/shapes.ts";
import type { FileFacts } from "./seal.ts";

/** Text, bytes, a Blob or File, or a source such as a file on disk; any other value is sent as JSON. */
export type Content = string | Uint8Array | ArrayBuffer | Blob | Source | JsonContent;
export type JsonContent =
  | null
  | boolean
  | number
  | readonly unknown[]
  | { readonly [name: string]: unknown };

export const reactionType = "application/vnd.waypost.reaction+json";
export const receiptType = "application/vnd.waypost.receipt+json";
export const typingType = "application/vnd.waypost.typing+json";
export const profileType = "application/vnd.waypost.profile+json";
export const groupType = "application/vnd.waypost.group+json";

/** Whether no one is woken for such content: receipts, typing, profiles, and what other devices have. */
export const isQuiet = (mediaType: string): boolean =>
  isNote(mediaType) || mediaType.startsWith(syncType) || mediaType.startsWith(contentType);
/** A share of the root key, for a guardian. */
export const shareType = "application/vnd.waypost.guardian-share+json";
export const syncType = "application/vnd.waypost.sync+json";
/** Of a message that another device has. */
export const contentType = "application/vnd.waypost.content";

/** Content that is not a message of its own: it changes what is known of other messages and of its sender (`notes.ts`). */
export const isNote = (mediaType: string): boolean =>
  /^application\/vnd\.waypost\.(receipt|typing|profile)\+json\b/.test(mediaType);

export type ContentNames = { readonly name?: string; readonly mediaType?: string };

/** Bytes to send, readable by ranges and more than once. */
export type Source = {
  readonly file: FileFacts;
  readonly read: (from: number, to: number) => Promise<Uint8Array>;
};

/** Bytes in memory, with the name and media type for the recipient. */
export function bytesSource(name: string, mediaType: string, bytes: Uint8Array): Source {
  const file = { name, mediaType, sizeBytes: bytes.length, sha256: sha256(bytes) };
  return { file, read: async (from, to) => bytes.subarray(from, to) };
}

const readBytes = 1_048_576;

/** Measures and hashes the content once; it can then be read again and again, by ranges. */
export async function sourceOf(
  content: Content,
  names: ContentNames,
  relations: Relations,
): Promise<Source> {
  const typed = (fallback: string) => withRelations(names.mediaType ?? fallback, relations);
  const bytes = (mediaType: string, data: Uint8Array) =>
    bytesSource(names.name ?? "", typed(mediaType), data);
  if (typeof content === "string") return bytes("text/plain;charset=utf-8", utf8(content));
  if (content instanceof Uint8Array) return bytes("application/octet-stream", content);
  if (content instanceof ArrayBuffer)
    return bytes("application/octet-stream", new Uint8Array(content));
  if (isSource(content)) {
    const { file, read } = content;
    return { file: { ...file, mediaType: withRelations(file.mediaType, relations) }, read };
  }
  // Every chunk names size and SHA-256 of the whole.
  if ((content as unknown) instanceof ReadableStream)
    throw localError(
      "invalid_argument",
      "read the stream first: await new Response(stream).blob()",
    );
  if (!(content instanceof Blob)) return bytes("application/json", utf8(jsonOf(content)));
  const name =
    names.name ?? ("name" in content && typeof content.name === "string" ? content.name : "");
  const facts = {
    name,
    mediaType: typed(content.type || "application/octet-stream"),
    sizeBytes: content.size,
  };
  return measured(
    facts,
    async (from, to) => new Uint8Array(await content.slice(from, to).arrayBuffer()),
  );
}

/** No JSON has functions. */
const isSource = (content: Content): content is Source =>
  isRecord(content) && isRecord(content["file"]) && typeof content["read"] === "function";

/** JSON would show them as `{}`. */
function refuseMaps(_name: string, value: unknown): unknown {
  if (value instanceof Map || value instanceof Set)
    throw new TypeError("a Map or Set has no form in JSON");
  return value;
}

/** Throws `invalid_argument` for what has no JSON: `undefined`, functions, bigints, circles, a `Map` or `Set`. */
function jsonOf(content: JsonContent): string {
  let cause: unknown;
  try {
    const text: string | undefined = JSON.stringify(content, refuseMaps);
    if (text !== undefined) return text;
  } catch (error) {
    cause = error;
  }
  throw new ClientError("local", "invalid_argument", "the content can't be written as JSON", {
    cause,
  });
}

/** Reads content once to hash it. */
export async function measured(
  facts: Omit<FileFacts, "sha256">,
  read: Source["read"],
): Promise<Source> {
  const hash = sha256.create();
  for (let from = 0; from < facts.sizeBytes; from += readBytes) {
    hash.update(await read(from, Math.min(from + readBytes, facts.sizeBytes)));
  }
  return { file: { ...facts, sha256: new Uint8Array(hash.digest()) }, read };
}

// ------------------------------------------------------------------------------------------------------- media types

export type Relations = {
  /** The message that this one answers. */
  readonly replyTo: string | null;
  /** The conversation of several that it belongs to. */
  readonly group: string | null;
  /** The sender asks for a receipt when the recipient has it. */
  readonly wantsReceipt: boolean;
};

export const marker = "waypost=1";

/** `text/plain;charset=utf-8;waypost=1;reply-to=<id>`; without relations nothing is added. */
function withRelations(mediaType: string, { replyTo, group, wantsReceipt }: Relations): string {
  return withParameters(mediaType, [
    ...(replyTo === null ? [] : [`reply-to=${replyTo}`]),
    ...(group === null ? [] : [`group=${group}`]),
    ...(wantsReceipt ? ["receipt=1"] : []),
  ]);
}

/**
 * Names the author inside of what is sealed, and where others can ask for the author's keys: a stranger who signs the same
 * ciphertext again is not its author.
 */
export function withAuthor(mediaType: string, did: string | null, home?: string): string {
  return withParameters(mediaType, [
    `from=${did ?? "none"}`,
    ...(home === undefined ? [] : [`home=${home}`]),
  ]);
}

function withParameters(mediaType: string, parameters: readonly string[]): string {
  if (parameters.length === 0) return mediaType;
  return [mediaType, ...(partsOf(mediaType).includes(marker) ? [] : [marker]), ...parameters].join(
    ";",
  );
}

export const partsOf = (mediaType: string): string[] =>
  mediaType.split(";").map((part) => part.trim());
