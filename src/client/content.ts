/**
 * Content to send, of every form, measured and hashed once. Its media type follows docs/protocol.md ("Content"): a client
 * that does not know a type still shows the text or the file.
 */
import { sha256 } from "#sha256";
import { utf8 } from "../core/codec/bytes.ts";
import { ClientError, localError } from "./http.ts";
import { type Relations, withRelations } from "./media-type.ts";
import { bytesSource, type Source, type TransferOptions } from "./send.ts";

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
