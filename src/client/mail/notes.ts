/**
 * Notes: content that is not a message of its own. A receipt says that messages arrived or were
 * read, typing that somebody writes just now, a profile what somebody calls themselves. All is
 * untrusted, and of another form it says nothing.
 * Source: docs/protocol.md ("Content").
 */
import { decodeBase64, encodeBase64 } from "../../core/codec/bytes.ts";
import { parseUuid } from "../../core/codec/did.ts";
import { localError } from "../base/failure.ts";
import { isName, isRecord, nameCharactersMax } from "../base/shapes.ts";
import { isNote, profileType, receiptType, typingType } from "./content.ts";

export type Note =
  | { readonly is: "receipt"; readonly state: "received" | "read"; readonly ids: readonly string[] }
  | { readonly is: "typing"; readonly isTyping: boolean }
  /** `invitation` is whatever stands there. */
  | ({ readonly is: "profile"; readonly invitation: unknown } & ProfileFacts)
  | { readonly is: "nothing" };

export type ProfileFacts = {
  readonly name: string;
  /** In Base64; empty when there is none. */
  readonly picture: string;
};

/** Ids in one receipt. */
export const receiptIdsMax = 1_000;
const pictureBytesMax = 32_768;

/** `null` when the type is that of a message. */
export function parseNote(essence: string, json: unknown): Note | null {
  if (!isNote(essence)) return null;
  const { v, ...members } = isRecord(json) ? json : {};
  const parsed = v !== 1 ? null : (parsers[essence]?.(members) ?? null);
  return parsed ?? { is: "nothing" };
}

const parsers: Readonly<
  Record<string, (members: { readonly [name: string]: unknown }) => Note | null>
> = {
  [receiptType]: ({ delivered, read }) => {
    const ids = parseIds(read ?? delivered);
    return ids === null
      ? null
      : { is: "receipt", state: read === undefined ? "received" : "read", ids };
  },
  [typingType]: ({ typing }) =>
    typeof typing === "boolean" ? { is: "typing", isTyping: typing } : null,
  [profileType]: ({ name, picture = "", invitation }) => {
    const bytes = typeof picture === "string" ? decodeBase64(picture) : null;
    const isFit = bytes !== null && (bytes.length === 0 || isPicture(bytes));
    return isFit && isName(name)
      ? { is: "profile", name, picture: encodeBase64(bytes), invitation }
      : null;
  },
};

function parseIds(list: unknown): string[] | null {
  if (!Array.isArray(list) || list.length > receiptIdsMax) return null;
  const ids = list.flatMap((id: unknown) => (typeof id === "string" ? (parseUuid(id) ?? []) : []));
  return ids.length === list.length && ids.length > 0 ? ids : null;
}

const isPicture = (bytes: Uint8Array): boolean =>
  bytes.length <= pictureBytesMax && pictureType(bytes) !== null;

/** Throws `invalid_argument` for what others would ignore. */
export function checkProfile({
  name,
  picture,
}: {
  readonly name: string;
  readonly picture: Uint8Array | null;
}): void {
  if (!isName(name))
    throw localError("invalid_argument", `a name has at most ${nameCharactersMax} characters`);
  if (picture !== null && !isPicture(picture))
    throw localError("invalid_argument", "a picture is PNG, JPEG, WebP or GIF, of at most 32 KiB");
}

const starts: readonly (readonly [type: string, start: RegExp])[] = [
  ["image/png", /^\x89PNG\r\n\x1a\n/],
  ["image/jpeg", /^\xff\xd8\xff/],
  ["image/gif", /^GIF8[79]a/],
  ["image/webp", /^RIFF[\s\S]{4}WEBP/],
];

/**
 * By its first bytes, whatever its sender calls it; `null` for anything that a browser might run.
 */
export function pictureType(bytes: Uint8Array): string | null {
  const start = String.fromCharCode(...bytes.subarray(0, 16));
  return starts.find(([, form]) => form.test(start))?.[0] ?? null;
}
