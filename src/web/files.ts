/**
 * Received files. One is shown only when its first bytes are those of PNG, JPEG, WebP or GIF,
 * whatever its sender calls it; all others are saved as bytes without a type: a `blob:` of HTML or
 * SVG would run in this origin.
 */
import { reportType } from "../client/mail/content.ts";
import { pictureType } from "../client/mail/notes.ts";
import type { LocalStore, StoredMessage } from "../client/package.ts";
import { pictureSize } from "./picture-size.ts";
import { fileName } from "./text.ts";

/** Larger pictures are saved, not shown: decoded they take many times as much memory. */
const shownBytesMax = 20_000_000;

/** So many first bytes hold the size of a picture, but for a JPEG that begins with long remarks. */
export const pictureHeadBytes = 65_536;
/**
 * Of a picture in a conversation, and of a profile's: a few bytes can stand
 * for a gigabyte of pixels.
 */
const pixelsMax = 40_000_000;
const profileSideMax = 1_024;

/** Whether a picture that begins so may be drawn. */
export function isShownPicture(start: Uint8Array, sizeBytes: number): boolean {
  const size = pictureType(start) === null ? null : pictureSize(start);
  return size !== null && sizeBytes <= shownBytesMax && size.width * size.height <= pixelsMax;
}

/** The picture of a profile, or `null` when it is larger than the app draws. */
export async function smallPicture(picture: Blob | null): Promise<Blob | null> {
  if (picture === null) return null;
  const start = new Uint8Array(await picture.slice(0, pictureHeadBytes).arrayBuffer());
  const size = pictureSize(start);
  return size !== null && Math.max(size.width, size.height) <= profileSideMax ? picture : null;
}

/** A text with a name is a file: HTML and the like are not words to somebody. */
/** One's own, to the operator. */
export const isReport = ({ mediaType }: StoredMessage): boolean => mediaType.startsWith(reportType);

export const isFile = ({ text, name }: StoredMessage): boolean => text === null || name !== "";

export const mayBePicture = ({ mediaType, sizeBytes, content }: StoredMessage): boolean =>
  content === "whole" &&
  sizeBytes <= shownBytesMax &&
  /^image\/(png|jpeg|webp|gif)\b/.test(mediaType);

/** The picture of a message, or `null` when its bytes are none. */
export async function pictureOf(store: LocalStore, message: StoredMessage): Promise<Blob | null> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  for await (const piece of store.pieces(message)) {
    if (parts.length === 0 && !isShownPicture(piece, message.sizeBytes)) return null;
    parts.push(piece.slice());
  }
  const type = parts[0] === undefined ? null : pictureType(parts[0]);
  return type === null ? null : new Blob(parts, { type });
}

/** Asks another device for content that is there: reading it fails, and does that. */
export const askFor = (store: LocalStore, message: StoredMessage): Promise<unknown> =>
  store
    .pieces(message)
    .next()
    .catch(() => undefined);

/** Saves a file of the conversation to the person's device. */
export async function saveFile(store: LocalStore, message: StoredMessage): Promise<void> {
  const bytes = await store.file(message);
  saveAs(new Blob([bytes], { type: "application/octet-stream" }), fileName(message.name));
}

export function saveAs(content: Blob, name: string): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser has begun to read it by then.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
