/**
 * JSON from untrusted bytes. Before `JSON.parse` sees a text, one pass over its structure has bounded
 * depth and size, so that no body can make the parser or a later walk expensive; after it, one walk over
 * the (now small) tree refuses what two readers could understand differently: duplicate names, lone
 * surrogates, `__proto__`, numbers that are not finite.
 * Cost: strings are jumped over with `indexOf`, so a long payload costs about what decoding it costs.
 * Source: decisions sections 1 and 10, `docs/decisions.md` ("JSON bounds").
 */

import { badInput, type Fault, fault } from "../fault.ts";
import { decodeUtf8 } from "./bytes.ts";

export type JsonValue = null | boolean | number | string | JsonValue[] | JsonObject;
export type JsonObject = { [name: string]: JsonValue };

/** The outermost value is depth 1. */
export const jsonDepthMax = 32;
/** Values inside the outermost one, containers included; an empty container counts twice. */
export const jsonValuesMax = 4_096;
/** Members of one object. */
export const jsonMembersMax = 256;
/**
 * JSON of an opaque member outside of strings. Values and members are not counted there, and this bounds
 * what parsing and walking them costs: about 50 ms at worst.
 */
export const jsonOpaqueCharsMax = 256 * 1024;

/** Where a member name of the outermost object stands in the text, quotes included. */
export type NameSpan = { readonly start: number; readonly end: number };

export type JsonReading = {
  readonly value: JsonValue;
  readonly text: string;
  /** Some number is an integer beyond ±(2^53 - 1), which two readers may round differently. */
  readonly unsafeInteger: boolean;
};

/** A JSON value, or `invalid_json`. */
export function parseJson(bytes: Uint8Array): JsonValue | Fault {
  const reading = readJson(bytes);
  return "text" in reading ? reading.value : reading;
}

/** A JSON object, or `invalid_json`; another value is `invalid_request` at the root. */
export function parseJsonObject(bytes: Uint8Array): JsonObject | Fault {
  const reading = readJson(bytes);
  if (!("text" in reading)) return reading;
  return isJsonObject(reading.value) ? reading.value : badInput("invalid_request", "", "must be a JSON object");
}

export function isJsonObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * As `parseJson`, with what the envelope needs besides the value. Inside the member `opaque` of the
 * outermost object only size (413 `too_large`) and depth are bounded.
 */
export function readJson(bytes: Uint8Array, opaque: string | null = null): JsonReading | Fault {
  const text = decodeUtf8(bytes);
  if (text === null) return invalid("not well-formed UTF-8");
  const structure = scanStructure(text, { outerNames: null, opaque });
  if (typeof structure === "string") return invalid(structure);
  if (structure.opaqueChars > jsonOpaqueCharsMax)
    return fault("too_large", `${opaque} holds more than ${jsonOpaqueCharsMax} characters outside of strings`);
  let value: JsonValue;
  try {
    value = JSON.parse(text) as JsonValue;
  } catch {
    return invalid("not JSON");
  }
  const census: Census = { members: 0, unsafeInteger: false, opaque };
  const problem = inspect(value, census, "outer");
  if (problem !== null) return invalid(problem);
  // Every member has a colon of its own; a name that stands twice leaves the tree a member short.
  if (census.members !== structure.members) return invalid("a member name stands twice in one object");
  return { value, text, unsafeInteger: census.unsafeInteger };
}

/** The name spans of the outermost object, in order, of a text that `readJson` has accepted. */
export function outerNameSpans(text: string): NameSpan[] {
  const spans: NameSpan[] = [];
  scanStructure(text, { outerNames: spans, opaque: null });
  return spans;
}

function invalid(detail: string): Fault {
  return fault("invalid_json", detail);
}

const quoteCode = 0x22;
const backslashCode = 0x5c;
/** Characters of a string looked at one by one before `indexOf` is worth its call. */
const plainRun = 24;

type ScanOptions = { readonly outerNames: NameSpan[] | null; readonly opaque: string | null };

/**
 * Counts colons and values outside strings and bounds the depth, without checking the grammar: it is exact
 * for every text that `JSON.parse` accepts, and for all others `JSON.parse` refuses. Answers why not.
 */
function scanStructure(
  text: string,
  { outerNames, opaque }: ScanOptions,
): { members: number; opaqueChars: number } | string {
  const length = text.length;
  const opaqueName = opaque === null ? null : JSON.stringify(opaque);
  let inOpaque = false;
  let opaqueChars = 0;
  let depth = 0;
  let members = 0;
  let values = 1;
  const ahead: Ahead = { quote: -1, backslash: -1 };
  let nameStart = 0;
  let nameEnd = 0;
  let at = 0;
  while (at < length) {
    switch (text.charCodeAt(at)) {
      case quoteCode: {
        nameStart = at;
        at = endOfString(text, at + 1, ahead);
        if (at < 0) return "a string has no end";
        nameEnd = at;
        continue;
      }
      case 0x3a: // a colon
        members++;
        if (depth !== 1) break;
        outerNames?.push({ start: nameStart, end: nameEnd });
        inOpaque = opaqueName !== null && text.startsWith(opaqueName, nameStart);
        break;
      case 0x7b: // an opening brace
      case 0x5b: // an opening bracket
        if (++depth > jsonDepthMax) return `nested deeper than ${jsonDepthMax}`;
        if (!inOpaque && ++values > jsonValuesMax + 1) return `more than ${jsonValuesMax} values`;
        break;
      case 0x7d:
      case 0x5d:
        depth--;
        break;
      case 0x2c: // a comma
        if (depth === 1) inOpaque = false;
        if (!inOpaque && ++values > jsonValuesMax + 1) return `more than ${jsonValuesMax} values`;
        break;
      default:
    }
    if (inOpaque) opaqueChars++;
    at++;
  }
  return { members, opaqueChars };
}

/**
 * The next quote and backslash that were found so far; both only move forward, so that all searches
 * together read the text at most twice.
 */
type Ahead = { quote: number; backslash: number };

/** Where a string ends that begins at `start`, behind its closing quote; -1 without an end. */
function endOfString(text: string, start: number, ahead: Ahead): number {
  const { length } = text;
  let at = start;
  let plainEnd = at + plainRun;
  while (at < length) {
    if (at < plainEnd) {
      const code = text.charCodeAt(at);
      if (code === quoteCode) return at + 1;
      if (code === backslashCode) {
        at += 2;
        plainEnd = at + plainRun;
      } else at++;
      continue;
    }
    if (ahead.quote < at) ahead.quote = text.indexOf('"', at);
    if (ahead.quote < 0) return -1;
    if (ahead.backslash < at) {
      ahead.backslash = text.indexOf("\\", at);
      if (ahead.backslash < 0) ahead.backslash = length;
    }
    at = Math.min(ahead.quote, ahead.backslash);
    plainEnd = at + plainRun;
  }
  return -1;
}

type Census = { members: number; unsafeInteger: boolean; readonly opaque: string | null };

/** Where a value stands: the outermost one, inside it, or inside its opaque member. */
type Place = "outer" | "inner" | "opaque";

/** Counts the members of a tree and answers what is wrong with it, or `null`. Depth is bounded by the scan. */
function inspect(value: JsonValue, census: Census, place: Place): string | null {
  switch (typeof value) {
    case "string":
      return value.isWellFormed() ? null : "a string holds a lone surrogate";
    case "number":
      if (!Number.isFinite(value)) return "a number is out of range";
      if (Number.isInteger(value) && !Number.isSafeInteger(value)) census.unsafeInteger = true;
      return null;
    case "boolean":
      return null;
    default:
      if (value === null) return null;
      return Array.isArray(value) ? inspectArray(value, census, place) : inspectObject(value, census, place);
  }
}

function inspectArray(values: readonly JsonValue[], census: Census, place: Place): string | null {
  for (const value of values) {
    const problem = inspect(value, census, insideOf(place));
    if (problem !== null) return problem;
  }
  return null;
}

function insideOf(place: Place): Place {
  return place === "opaque" ? "opaque" : "inner";
}

function inspectObject(object: JsonObject, census: Census, place: Place): string | null {
  const names = Object.keys(object);
  if (place !== "opaque" && names.length > jsonMembersMax) return `an object has more than ${jsonMembersMax} members`;
  census.members += names.length;
  for (const name of names) {
    if (isForbiddenName(name, place === "outer")) return "a member name is not allowed";
    if (!name.isWellFormed()) return "a member name holds a lone surrogate";
    const inside = place === "outer" && name === census.opaque ? "opaque" : insideOf(place);
    const problem = inspect(object[name] as JsonValue, census, inside);
    if (problem !== null) return problem;
  }
  return null;
}

/** `__proto__` anywhere; outside opaque payloads also the two other ways to a prototype. */
function isForbiddenName(name: string, outermost: boolean): boolean {
  return name === "__proto__" || (outermost && (name === "constructor" || name === "prototype"));
}
