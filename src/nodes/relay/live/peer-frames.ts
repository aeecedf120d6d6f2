/**
 * The frames of a link between two Relay processes: four bytes of length, four bytes of the length of the
 * head, the head as JSON, and behind it the bytes of an envelope where there is one. Decoding is strict:
 * unknown kinds and members, wrong types and wrong lengths end the link. Only `hello` and `refuse` are
 * read from processes of another version.
 * Source: decisions section 5 "One process or several".
 */
import { concatBytes, utf8 } from "../../../core/codec/bytes.ts";
import { type Did, isDid, parseUuid, type Uuid } from "../../../core/codec/did.ts";
import { isJsonObject, type JsonObject, type JsonValue, parseJsonObject } from "../../../core/codec/json.ts";
import { isFault } from "../../../core/fault.ts";
import type { LiveEnd, RelayGrant } from "./live.ts";

export const peerVersion = 1;

/** How a question ends: of a delivery, and of a claim or a join. */
export type PeerEnd = LiveEnd | "yes" | "no" | "unavailable";

/** Questions bear a number of the asker's; the answer repeats it. */
export type PeerQuestion =
  | { readonly kind: "claim"; readonly id: number; readonly tag: string; readonly untilMs: number }
  | { readonly kind: "join"; readonly id: number; readonly did: Did; readonly deviceId: string; readonly key: string }
  | {
      readonly kind: "deliver";
      readonly id: number;
      readonly to: Did;
      readonly messageId: Uuid;
      readonly timeoutMs: number;
      readonly grants: readonly RelayGrant[];
      readonly bytes: Uint8Array;
    };

export type PeerFrame =
  | PeerQuestion
  | { readonly kind: "answer"; readonly id: number; readonly end: PeerEnd }
  /** `from` is the address that the other listens on, `bytesMax` the longest frame that it takes. */
  | { readonly kind: "hello"; readonly version: number; readonly from: string; readonly bytesMax: number }
  | { readonly kind: "refuse"; readonly reason: string }
  | { readonly kind: "ping" }
  | { readonly kind: "presence"; readonly did: Did; readonly sessions: number }
  /** The join with this number is over. */
  | { readonly kind: "joined"; readonly id: number };

export const headBytesMax = 128 * 1024;
const prefixBytes = 4;
/** What a frame is longer than the envelope in it, at most. */
export const frameSlackBytes = 2 * prefixBytes + headBytesMax;
const textCharsMax = 1_024;
const grantsMax = 64;
/** Endpoints and keys of all grants. More than the JSON of a head may hold would end the link at its reader. */
const grantTextsMax = 1_024;

/**
 * A frame as it goes over the link, the envelope not copied; `null` when its head is too long for a frame, or
 * has more grants than a reader takes: documents of a foreign Directory may be of any length.
 */
export function encodePeerFrame(frame: PeerFrame): readonly Uint8Array[] | null {
  if (frame.kind === "deliver" && hasTooMany(frame.grants)) return null;
  const { bytes, ...members } = frame.kind === "deliver" ? frame : { ...frame, bytes: null };
  const head = utf8(JSON.stringify(members));
  if (head.length > headBytesMax) return null;
  const lengths = new DataView(new ArrayBuffer(2 * prefixBytes));
  lengths.setUint32(0, prefixBytes + head.length + (bytes?.length ?? 0));
  lengths.setUint32(prefixBytes, head.length);
  const front = concatBytes(new Uint8Array(lengths.buffer), head);
  return bytes === null ? [front] : [front, bytes];
}

function hasTooMany(grants: readonly RelayGrant[]): boolean {
  const texts = grants.reduce((sum, { endpoints, keys }) => sum + endpoints.length + keys.length, 0);
  return grants.length > grantsMax || texts > grantTextsMax;
}

// ----------------------------------------------------------------------------------------------- decoding

export type PeerReader = {
  /** The frames that the bytes complete, in order; `null` when they are no frames. After that it is of no use. */
  push(chunk: Uint8Array): PeerFrame[] | null;
};

/** Memory: one frame, allocated when its length is known and within `bytesMax`. */
export function createPeerReader(bytesMax: number): PeerReader {
  const prefix = new Uint8Array(prefixBytes);
  let prefixAt = 0;
  let body: Uint8Array | null = null;
  let bodyAt = 0;
  return {
    push(chunk) {
      const frames: PeerFrame[] = [];
      let at = 0;
      while (at < chunk.length) {
        if (body === null) {
          prefix[prefixAt++] = chunk[at++] as number;
          if (prefixAt < prefixBytes) continue;
          const length = new DataView(prefix.buffer).getUint32(0);
          if (length <= prefixBytes || length > bytesMax) return null;
          [body, bodyAt, prefixAt] = [new Uint8Array(length), 0, 0];
          continue;
        }
        const taken = chunk.subarray(at, at + body.length - bodyAt);
        body.set(taken, bodyAt);
        at += taken.length;
        bodyAt += taken.length;
        if (bodyAt < body.length) continue;
        const frame = decodePeerFrame(body);
        if (frame === null) return null;
        frames.push(frame);
        body = null;
      }
      return frames;
    },
  };
}

/** A frame without its first length. */
function decodePeerFrame(body: Uint8Array): PeerFrame | null {
  const headLength = new DataView(body.buffer).getUint32(0);
  const headEnd = prefixBytes + headLength;
  if (headLength > headBytesMax || headEnd > body.length) return null;
  const head = parseJsonObject(body.subarray(prefixBytes, headEnd));
  if (isFault(head)) return null;
  const bytes = body.subarray(headEnd);
  if (head["kind"] === "deliver") return decodeDeliver(head, bytes);
  return bytes.length === 0 ? decodeHead(head) : null;
}

function decodeHead(head: JsonObject): PeerFrame | null {
  const { id, did, sessions } = head;
  switch (head["kind"]) {
    case "ping":
      return has(head, 1) ? { kind: "ping" } : null;
    case "answer":
      return has(head, 3) && isCount(id) && isEnd(head["end"]) ? { kind: "answer", id, end: head["end"] } : null;
    case "presence":
      return has(head, 3) && isDidValue(did) && isCount(sessions) ? { kind: "presence", did, sessions } : null;
    case "joined":
      return has(head, 2) && isCount(id) ? { kind: "joined", id } : null;
    case "claim": {
      const { tag, untilMs } = head;
      return has(head, 4) && isCount(id) && isText(tag) && isCount(untilMs)
        ? { kind: "claim", id, tag, untilMs }
        : null;
    }
    case "join": {
      const { deviceId, key } = head;
      const holds = has(head, 5) && isCount(id) && isDidValue(did);
      return holds && isText(deviceId) && isText(key) ? { kind: "join", id, did, deviceId, key } : null;
    }
    default:
      return decodeOpening(head);
  }
}

/** Of a process of another version nothing but the version is read, or why it refuses. */
function decodeOpening(head: JsonObject): PeerFrame | null {
  const { kind, version, from, bytesMax, reason } = head;
  if (kind === "refuse") return isText(reason) ? { kind, reason } : null;
  if (kind !== "hello" || !isCount(version)) return null;
  if (version !== peerVersion) return { kind, version, from: "", bytesMax: 0 };
  return has(head, 4) && isText(from) && isCount(bytesMax) ? { kind, version, from, bytesMax } : null;
}

function decodeDeliver(head: JsonObject, bytes: Uint8Array): PeerFrame | null {
  const { id, to, timeoutMs } = head;
  const messageId = typeof head["messageId"] === "string" ? parseUuid(head["messageId"]) : null;
  if (!has(head, 6) || !isCount(id) || !isDidValue(to) || !isCount(timeoutMs) || messageId === null) return null;
  const grants = decodeGrants(head["grants"]);
  if (grants === null || bytes.length === 0) return null;
  return { kind: "deliver", id, to, messageId, timeoutMs, grants, bytes };
}

function decodeGrants(value: JsonValue | undefined): RelayGrant[] | null {
  if (!Array.isArray(value) || value.length > grantsMax) return null;
  const grants = value.flatMap((entry): RelayGrant[] => {
    if (!isJsonObject(entry) || !has(entry, 3)) return [];
    const { serviceId, endpoints, keys } = entry;
    return typeof serviceId === "string" && isTexts(endpoints) && isTexts(keys) ? [{ serviceId, endpoints, keys }] : [];
  });
  return grants.length === value.length ? grants : null;
}

/** With the checks of each member: exactly the members of the kind. */
function has(head: JsonObject, members: number): boolean {
  return Object.keys(head).length === members;
}

function isCount(value: JsonValue | undefined): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

function isText(value: JsonValue | undefined): value is string {
  return typeof value === "string" && value.length <= textCharsMax;
}

function isTexts(value: JsonValue | undefined): value is string[] {
  return Array.isArray(value) && value.every((entry) => typeof entry === "string");
}

function isDidValue(value: JsonValue | undefined): value is Did {
  return typeof value === "string" && isDid(value);
}

const ends: readonly JsonValue[] = ["acknowledged", "silent", "gone", "yes", "no", "unavailable"];

function isEnd(value: JsonValue | undefined): value is PeerEnd {
  return value !== undefined && ends.includes(value);
}
