/**
 * Content to send, of every form, measured and hashed once; and its media type: the sender's own,
 * and behind `waypost=1` who wrote the message and how it relates to others. It is sealed, so only
 * the recipient reads it; a client that does not know a type still shows the text or the file.
 * Source: docs/protocol.md ("Content").
 */
import { sha256 } from "#sha256";
import { utf8 } from "../../core/codec/bytes.ts";
import { type Did, isDid, parseUuid } from "../../core/codec/did.ts";
import { parseHome } from "../../core/ledger/home.ts";
import { ClientError, localError } from "../base/failure.ts";
import { isRecord } from "../base/shapes.ts";
import type { FileFacts } from "./seal.ts";

/**
 * Text, bytes, a Blob or File, or a source such as a file on disk; any other value is sent as JSON.
 */
export type Content = string | Uint8Array | ArrayBuffer | Blob | Source | JsonContent;
export type JsonContent =
  | null
  | boolean
  | number
  | readonly unknown[]
  | { readonly [name: string]: unknown };

export const reactionType = "application/vnd.waypost.reaction+json";
/** `author` says whose message it is, where two have the same name. */
export const reactionContent = (to: string, reaction: string, author: string | null) =>
  author === null ? { v: 1, to, reaction } : { v: 1, to, author, reaction };
export const receiptType = "application/vnd.waypost.receipt+json";
export const typingType = "application/vnd.waypost.typing+json";
export const profileType = "application/vnd.waypost.profile+json";
/** How long messages of a conversation last. */
export const timerType = "application/vnd.waypost.timer+json";
/** A year. */
export const lastsSecondsMax = 31_622_400;
export const groupType = "application/vnd.waypost.group+json";

/**
 * Whether no one is woken for such content: receipts, typing, profiles, and
 * what other devices have.
 */
export const isQuiet = (mediaType: string): boolean =>
  isNote(mediaType) || mediaType.startsWith(syncType) || mediaType.startsWith(contentType);
/** A share of the root key, for a guardian. */
export const shareType = "application/vnd.waypost.guardian-share+json";
/** Messages for the operator of a node. */
export const reportType = "application/vnd.waypost.report+json";
export const syncType = "application/vnd.waypost.sync+json";
/** Of a message that another device has. */
export const contentType = "application/vnd.waypost.content";

/**
 * Content that is not a message of its own: it changes what is known of other messages and of
 * its sender (`notes.ts`).
 */
export const isNote = (mediaType: string): boolean =>
  /^application\/vnd\.waypost\.(receipt|typing|profile)\+json\b/.test(mediaType);

/** Whether a store shows it as text. */
export const isTextType = (mediaType: string): boolean =>
  /^(text\/|application\/json\b|application\/vnd\.waypost\.(group|timer)\+json\b)/i.test(mediaType);

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
  const typedBytes = (mediaType: string, data: Uint8Array) =>
    bytesSource(names.name ?? "", typed(mediaType), data);
  if (typeof content === "string") return typedBytes("text/plain;charset=utf-8", utf8(content));
  if (content instanceof Uint8Array) return typedBytes("application/octet-stream", content);
  if (content instanceof ArrayBuffer)
    return typedBytes("application/octet-stream", new Uint8Array(content));
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
  if (!(content instanceof Blob)) return typedBytes("application/json", utf8(jsonText(content)));
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

const formless = [Map, Set, WeakMap, WeakSet, Promise, RegExp, Error];

/** JSON would show them as `{}`, such as the answer of a call that no `await` stands before. */
function refuseFormless(_name: string, value: unknown): unknown {
  const kind = formless.find((one) => value instanceof one);
  if (kind !== undefined) throw new TypeError(`a ${kind.name} has no form in JSON`);
  return value;
}

/**
 * Throws `invalid_argument` for what has no JSON: `undefined`, functions, bigints,
 * circles, a `Map`, a promise.
 */
function jsonText(content: JsonContent): string {
  let cause: unknown;
  try {
    const text: string | undefined = JSON.stringify(content, refuseFormless);
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

// ------------------------------------------------------------------------------------- media types

export type Relations = {
  /** The name of the message at each recipient, where that of its envelope is another one. */
  readonly id?: string | null;
  /** The message that this one answers. */
  readonly replyTo: string | null;
  /** Who wrote that. */
  readonly replyFrom?: Did | null;
  /** The conversation of several that it belongs to. */
  readonly group: string | null;
  /** Names the state that the sender has of it (`stateDigest`). */
  readonly state?: string | null;
  /** The sender asks for a receipt when the recipient has it. */
  readonly wantsReceipt: boolean;
} & Remarks;

/** What an author says of a message besides. */
export type Remarks = {
  /** Members of the group whom it calls. */
  readonly mentions?: readonly Did[];
  /** Somebody else's words, passed on. */
  readonly isForwarded?: boolean;
  /** It is removed so long after it was sent, and after it was read; 0: never. */
  readonly lastsSeconds?: number;
};

/** So many mentions leave room for the rest of a record. */
export const mentionsMax = 32;

const marker = "waypost=1";

/** `text/plain;charset=utf-8;waypost=1;reply-to=<id>`; without relations nothing is added. */
function withRelations(mediaType: string, relations: Relations): string {
  const { id, replyTo, replyFrom, group, state, wantsReceipt } = relations;
  const { mentions = [], isForwarded = false, lastsSeconds = 0 } = relations;
  const named: readonly (readonly [string, string | null | undefined])[] = [
    ["id", id],
    ["reply-to", replyTo],
    ["reply-from", replyFrom],
    ["group", group],
    ["state", state],
    ["receipt", wantsReceipt ? "1" : null],
    ["mentions", mentions.length > 0 ? mentions.join(",") : null],
    ["forwarded", isForwarded ? "1" : null],
    ["lasts", lastsSeconds > 0 ? String(lastsSeconds) : null],
  ];
  const given = named.filter(([, value]) => value !== null && value !== undefined);
  return withParameters(
    mediaType,
    given.map((pair) => pair.join("=")),
  );
}

/** With a pass to the sender's mailbox. */
export const withPass = (mediaType: string, pass: string): string =>
  withParameters(mediaType, [`pass=${pass}`]);

/** With the name of the message that its sender sent here before it. */
export const withAfter = (mediaType: string, before: string): string =>
  withParameters(mediaType, [`after=${before}`]);

/** A message that goes out under another envelope keeps its name. */
export const withId = (mediaType: string, id: string): string =>
  idIn(mediaType) === null ? withParameters(mediaType, [`id=${id}`]) : mediaType;

/** The name of a message; `null` where it is that of its envelope. */
export const idIn = (mediaType: string): string | null =>
  parseUuid(parameterIn(mediaType, "id") ?? "");

/** The same for each name that the same content was given, and whatever was sent before it. */
export function withoutId(mediaType: string): string {
  const parts = mediaTypeParts(mediaType);
  const at = parts.indexOf(marker, 1);
  const isId = (part: string, place: number) =>
    at !== -1 && place > at && /^(id|after)=/i.test(part);
  return parts.filter((part, place) => !isId(part, place)).join(";");
}

/** Of those behind `waypost=1`. */
function parameterIn(mediaType: string, name: string): string | null {
  const parts = mediaTypeParts(mediaType);
  const at = parts.indexOf(marker, 1);
  const own = at === -1 ? [] : parts.slice(at + 1);
  const found = own.find((part) => part.toLowerCase().startsWith(`${name}=`));
  return found?.slice(name.length + 1) ?? null;
}

/**
 * Names the author inside of what is sealed, and where others can ask for the author's keys: a
 * stranger who signs the same ciphertext again is not its author.
 */
export function withAuthor(mediaType: string, did: string | null, home?: string): string {
  return withParameters(mediaType, [
    `from=${did ?? "none"}`,
    ...(home === undefined ? [] : [`home=${home}`]),
  ]);
}

function withParameters(mediaType: string, parameters: readonly string[]): string {
  if (parameters.length === 0) return mediaType;
  return [
    mediaType,
    ...(mediaTypeParts(mediaType).includes(marker) ? [] : [marker]),
    ...parameters,
  ].join(";");
}

const mediaTypeParts = (mediaType: string): string[] =>
  mediaType.split(";").map((part) => part.trim());

export type TypeFacts = Relations & {
  /** Lower case, without parameters. */
  readonly essence: string;
  /** As its sender named it, without the parameters of these conventions. */
  readonly plain: string;
  /** Who wrote the message: a DID, or `none`; `null` when the sender's client says nothing. */
  readonly author: string | null;
  /** Where the author is at home; a hint. */
  readonly home: string | null;
  /** By which the author's mailbox knows this identity. */
  readonly pass?: string | null;
  /** The name of the message that the author sent here before it. */
  readonly after?: string | null;
};

const stateCharactersMax = 64;

/** Reads untrusted text: values of another form are ignored. */
export function parseMediaType(text: string): TypeFacts {
  const parts = mediaTypeParts(text);
  const at = parts.includes(marker, 1) ? parts.indexOf(marker, 1) : parts.length;
  const parameter = (name: string) => parameterIn(text, name);
  const replyFrom = parameter("reply-from") ?? "";
  return {
    id: idIn(text),
    essence: (parts[0] ?? "").toLowerCase(),
    plain: parts.slice(0, at).join(";"),
    replyTo: parseUuid(parameter("reply-to") ?? ""),
    replyFrom: isDid(replyFrom) ? replyFrom : null,
    group: parseUuid(parameter("group") ?? ""),
    state: parameter("state")?.slice(0, stateCharactersMax) ?? null,
    wantsReceipt: parameter("receipt") === "1",
    mentions: mentionsIn(parameter("mentions") ?? ""),
    isForwarded: parameter("forwarded") === "1",
    lastsSeconds: secondsIn(parameter("lasts") ?? ""),
    author: parameter("from"),
    pass: parameter("pass"),
    after: parseUuid(parameter("after") ?? ""),
    home: parseHome(parameter("home") ?? ""),
  };
}

function mentionsIn(text: string): Did[] {
  const dids = new Set(text.split(",").slice(0, mentionsMax).filter(isDid));
  return [...dids];
}

function secondsIn(text: string): number {
  const seconds = /^[1-9]\d{0,8}$/.test(text) ? Number(text) : 0;
  return seconds <= lastsSecondsMax ? seconds : 0;
}
