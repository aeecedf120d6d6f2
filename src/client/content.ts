/**
 * What a message holds, by the conventions of docs/protocol.md ("Content"): the media type says what it is,
 * and parameters of it say how it belongs to other messages. A client that knows none of them still shows
 * the text or the file.
 */
import { createSha256 } from "#sha256";
import { utf8 } from "../core/codec/bytes.ts";
import { parseUuid } from "../core/codec/did.ts";
import { localError } from "./http.ts";
import { bytesSource, type Source } from "./send.ts";
import { isRecord } from "./shape.ts";

/** Text, bytes, a Blob or File, a stream of bytes; whatever else is sent as JSON. */
export type Content = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array> | JsonContent;
export type JsonContent = null | boolean | number | readonly unknown[] | { readonly [name: string]: unknown };

export const reactionType = "application/vnd.waypost.reaction+json";
export const receiptType = "application/vnd.waypost.receipt+json";

export type Relations = {
  /** The message that this one answers. */
  readonly replyTo: string | null;
  /** The conversation of several that it belongs to. */
  readonly group: string | null;
  /** The sender asks for a receipt when the recipient has it. */
  readonly wantsReceipt: boolean;
};

export type ContentNames = { readonly name?: string; readonly mediaType?: string };

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
  return bytesSource(names.name ?? "", typed("application/json"), utf8(JSON.stringify(content)));
}

async function blobSource(blob: Blob, name: string, mediaType: string): Promise<Source> {
  const read = async (from: number, to: number) => new Uint8Array(await blob.slice(from, to).arrayBuffer());
  const hash = createSha256();
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
      if (length > streamBytesMax) throw localError("too_large", `a stream may hold ${streamBytesMax} bytes`);
      controller.enqueue(chunk.slice());
    },
  });
}

// ---------------------------------------------------------------------------------------------- media type

/** `text/plain;charset=utf-8;waypost=1;reply-to=<id>`; nothing is added when there is nothing to say. */
function withRelations(mediaType: string, { replyTo, group, wantsReceipt }: Relations): string {
  const parameters = [
    ...(replyTo === null ? [] : [`reply-to=${replyTo}`]),
    ...(group === null ? [] : [`group=${group}`]),
    ...(wantsReceipt ? ["receipt=1"] : []),
  ];
  return parameters.length === 0 ? mediaType : [mediaType, "waypost=1", ...parameters].join(";");
}

export type MediaType = {
  /** Lower case, without parameters. */
  readonly essence: string;
  /** The media type as its sender named it, without the parameters of these conventions. */
  readonly plain: string;
  readonly relations: Relations;
};

/** Reads a stranger's text: what does not fit says nothing. */
export function parseMediaType(text: string): MediaType {
  const [essence = "", ...rest] = text.split(";").map((part) => part.trim());
  const own = rest.indexOf("waypost=1");
  const parameters = new Map(
    (own < 0 ? [] : rest.slice(own + 1)).map((part) => {
      const [name = "", value = ""] = part.split("=");
      return [name.toLowerCase(), value] as const;
    }),
  );
  return {
    essence: essence.toLowerCase(),
    plain: [essence, ...(own < 0 ? rest : rest.slice(0, own))].join(";"),
    relations: {
      replyTo: parseUuid(parameters.get("reply-to") ?? ""),
      group: parseUuid(parameters.get("group") ?? ""),
      wantsReceipt: parameters.get("receipt") === "1",
    },
  };
}

export type Reaction = { readonly to: string; readonly reaction: string };

/** A reaction is one short text, such as an emoji; empty text takes it back. */
export function parseReaction(json: unknown): Reaction | null {
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
