/**
 * A report: messages that a recipient shows the operator of a node, each with what proves its
 * author. It is an ordinary sealed message, and untrusted like any other: what it says of authors
 * counts as far as `reported.ts` finds it true.
 * Source: docs/protocol.md ("Reports").
 */
import { decodeBase64, encodeBase64 } from "../../core/codec/bytes.ts";
import { type Did, isDid } from "../../core/codec/did.ts";
import { isRecord } from "../base/shapes.ts";
import type { Authorship } from "./authorship.ts";

/**
 * Messages in one report, bytes of each that go along, and characters of what the reporter says.
 */
export const reportedMax = 50;
export const reportedBytesMax = 65_536;
export const reasonCharactersMax = 2_000;

/** A message as it is shown. */
export type Reported = {
  readonly id: string;
  /** Who wrote it, as the reporter says. */
  readonly from: Did | null;
  readonly sentMs: number;
  /** `null` for a message of one person to another. */
  readonly group: string | null;
  readonly name: string;
  readonly mediaType: string;
  readonly sizeBytes: number;
  /** `null` where the content does not go along: a large file, or one that is not there. */
  readonly data: Uint8Array | null;
  readonly authorship: Authorship | null;
};

export type Report = { readonly reason: string; readonly messages: readonly Reported[] };

/** The content of the message that carries it. */
export const reportContent = ({ reason, messages }: Report) => ({
  v: 1,
  reason,
  messages: messages.map(({ data, ...one }) => ({
    ...one,
    data: data === null ? null : encodeBase64(data),
  })),
});

/** `null` for anything but a report; of a message only what has its form. */
export function parseReport(json: unknown): Report | null {
  const { v, reason, messages } = isRecord(json) ? json : {};
  const isFit = v === 1 && typeof reason === "string" && Array.isArray(messages);
  if (!isFit || messages.length === 0 || messages.length > reportedMax) return null;
  const found = messages.map(parseReported);
  if (found.includes(null)) return null;
  return {
    reason: reason.slice(0, reasonCharactersMax),
    messages: found.filter((one) => one !== null),
  };
}

/** The last one that a `Date` has. */
const timeMaxMs = 8.64e15;

const isCount = (value: unknown, max: number): boolean =>
  Number.isSafeInteger(value) && Number(value) >= 0 && Number(value) <= max;

function parseReported(json: unknown): Reported | null {
  const { id, from, sentMs, group, name, mediaType, sizeBytes, data, authorship } = isRecord(json)
    ? json
    : {};
  const texts = [id, name, mediaType];
  const isFit =
    texts.every((text) => typeof text === "string") &&
    isCount(sentMs, timeMaxMs) &&
    isCount(sizeBytes, Number.MAX_SAFE_INTEGER);
  if (!isFit) return null;
  return {
    id: String(id),
    from: typeof from === "string" && isDid(from) ? from : null,
    sentMs: Number(sentMs),
    group: typeof group === "string" ? group : null,
    name: String(name),
    mediaType: String(mediaType),
    sizeBytes: Number(sizeBytes),
    data: typeof data === "string" ? decodeBase64(data) : null,
    authorship: isRecord(authorship) ? (authorship as Authorship) : null,
  };
}
