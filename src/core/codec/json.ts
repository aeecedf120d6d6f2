/**
 * JSON from untrusted bytes. Whatever two parsers could understand differently is refused:
 * duplicate names, lone surrogates, `__proto__`, numbers that are not finite. Depth and
 * size are bounded before a long text is parsed, so that no body can make the parser or a
 * later walk expensive.
 * Cost: a short compact text, as most bodies are, is parsed and its tree is measured once.
 * Another one is scanned first, where strings are jumped over with `indexOf`; then it is
 * parsed and its tree is walked once.
 * Source: `docs/rules.md` ("JSON bounds").
 */
import { badInput, type Fault, fault, isFault } from "../fault.ts";
import { decodeUtf8 } from "./bytes.ts";

export type JsonValue = null | boolean | number | string | JsonValue[] | JsonObject;
export type JsonObject = { [name: string]: JsonValue };

/** The outermost value is depth 1. */
const jsonDepthMax = 32;
/** Values inside the outermost one, containers included; an empty container counts twice. */
const jsonValuesMax = 4_096;
/**
 * JSON of an opaque member outside of strings, where values are not counted: costs about 50
 * ms at worst.
 */
const jsonOpaqueCharsMax = 256 * 1024;

/** Where a member name of the outermost object is in the text, quotes included. */
type NameSpan = { readonly start: number; readonly end: number };

type JsonReading = {
  readonly value: JsonValue;
  readonly text: string;
  /** Some number is an integer beyond ±(2^53 - 1), which two parsers may round differently. */
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
  return isJsonObject(reading.value)
    ? reading.value
    : badInput("invalid_request", "", "must be a JSON object");
}

/** The same where it doesn't matter what is wrong: `null`. */
export function jsonObjectOf(bytes: Uint8Array): JsonObject | null {
  const members = parseJsonObject(bytes);
  return isFault(members) ? null : members;
}

export function isJsonObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Also returns what the checks of an envelope need. Inside the outer member `opaque`, only
 * size (413) and depth are bounded.
 */
export function readJson(bytes: Uint8Array, opaque: string | null = null): JsonReading | Fault {
  const text = decodeUtf8(bytes);
  if (text === null) return invalidJson("not well-formed UTF-8");
  const plain = parsePlain(text);
  if (plain !== undefined) return { value: plain, text, unsafeInteger: false };
  const structure = scanStructure(text, opaque);
  if (typeof structure === "string") return invalidJson(structure);
  if (structure.opaqueChars > jsonOpaqueCharsMax)
    return fault(
      "too_large",
      `${opaque} has more than ${jsonOpaqueCharsMax} characters outside of strings`,
    );
  const value = parseText(text);
  if (value === undefined) return invalidJson("not JSON");
  const census: Census = { members: 0, unsafeInteger: false };
  const problem = inspect(value, census);
  if (problem !== null) return invalidJson(problem);
  if (hasPrototypeName(value)) return invalidJson("a member name is not allowed");
  // The text has one colon per member. A repeated name leaves the tree with fewer members.
  if (census.members !== structure.members)
    return invalidJson("a member name appears twice in one object");
  return { value, text, unsafeInteger: census.unsafeInteger };
}

function hasPrototypeName(value: JsonValue): boolean {
  return (
    isJsonObject(value) &&
    (Object.hasOwn(value, "constructor") || Object.hasOwn(value, "prototype"))
  );
}

/** The member names of the outermost object, in order, of a text that was read. */
export function outerNames(text: string): readonly NameSpan[] {
  const names: NameSpan[] = [];
  scanStructure(text, null, names);
  return names;
}

/** `undefined` when the text is not JSON. */
function parseText(text: string): JsonValue | undefined {
  try {
    return JSON.parse(text) as JsonValue;
  } catch {
    return undefined;
  }
}

function invalidJson(detail: string): Fault {
  return fault("invalid_json", detail);
}

// ---------------------------------------------------------------------------- short, compact texts

/** Each value takes a character, so a text of this length can't hold too many. */
const plainCharsMax = jsonValuesMax;

/**
 * The value of a short text that is exactly as long as the shortest text of its tree. No
 * such text holds white space, an escape, and so a lone surrogate, or a second member of
 * one name: each would make it longer. `undefined` where only the scan can decide.
 */
function parsePlain(text: string): JsonValue | undefined {
  if (text.length > plainCharsMax) return undefined;
  const value = parseText(text);
  if (value === undefined || hasPrototypeName(value)) return undefined;
  return plainLength(value, 1) === text.length ? value : undefined;
}

/**
 * Characters of the shortest text of a tree; not a number, and so equal to nothing, where
 * the tree may be refused or its shortest text is not known.
 */
function plainLength(value: JsonValue, depth: number): number {
  if (typeof value === "string") return value.length + 2;
  if (typeof value === "number") return plainNumberLength(value);
  if (typeof value === "boolean" || value === null) return value === false ? 5 : 4;
  if (depth > jsonDepthMax) return Number.NaN;
  // Each value is followed by a comma or the closing bracket.
  let length = 1;
  if (Array.isArray(value)) {
    for (const inner of value) length += plainLength(inner, depth + 1) + 1;
    return Math.max(length, 2);
  }
  for (const name in value) {
    if (name === "__proto__") return Number.NaN;
    length += name.length + 3 + plainLength(value[name] as JsonValue, depth + 1) + 1;
  }
  return Math.max(length, 2);
}

/** An exponent makes no integer of up to three digits shorter. */
function plainNumberLength(value: number): number {
  return Number.isInteger(value) && Math.abs(value) < 1_000 ? String(value).length : Number.NaN;
}

const quoteCode = 0x22;

type Structure = { readonly members: number; readonly opaqueChars: number };

/**
 * Bounds the depth and counts outside strings, exactly for whatever `JSON.parse` accepts.
 * Else why it is refused. `names` gets the member names of the outermost object.
 */
function scanStructure(
  text: string,
  opaque: string | null,
  names: NameSpan[] | null = null,
): Structure | string {
  const length = text.length;
  // White space around the opaque value is not part of it.
  let isOpaqueNext = false;
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
    const code = text.charCodeAt(at);
    if (isOpaqueNext && !isSpace(code)) {
      isOpaqueNext = false;
      inOpaque = true;
    }
    switch (code) {
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
        names?.push({ start: nameStart, end: nameEnd });
        isOpaqueNext = opaque !== null && isNameAt(text, nameStart, nameEnd, opaque);
        break;
      case 0x7b: // an opening brace
      case 0x5b: // an opening bracket
        if (++depth > jsonDepthMax) return `nested deeper than ${jsonDepthMax}`;
        if (!inOpaque && ++values > jsonValuesMax + 1) return `more than ${jsonValuesMax} values`;
        break;
      case 0x7d:
      case 0x5d:
        if (--depth > 1 || !inOpaque) break;
        inOpaque = false;
        opaqueChars++;
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

function isSpace(code: number): boolean {
  return code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;
}

/**
 * Whether a string of the text, quotes included, is the name: as it is, or longer, with escapes.
 */
function isNameAt(text: string, start: number, end: number, name: string): boolean {
  const more = end - start - name.length - 2;
  if (more <= 0) return more === 0 && text.startsWith(name, start + 1);
  const quoted = text.slice(start, end);
  return quoted.includes("\\") && parseText(quoted) === name;
}

/**
 * The next quote and backslash found so far; both only move forward, so the text is read at
 * most twice.
 */
type Ahead = { quote: number; backslash: number };

/** The position behind the closing quote of the string that begins at `start`; -1 without one. */
function endOfString(text: string, start: number, ahead: Ahead): number {
  const { length } = text;
  let at = start;
  while (at < length) {
    if (ahead.quote < at) ahead.quote = text.indexOf('"', at);
    if (ahead.quote < 0) return -1;
    if (ahead.backslash < at) {
      ahead.backslash = text.indexOf("\\", at);
      if (ahead.backslash < 0) ahead.backslash = length;
    }
    if (ahead.quote < ahead.backslash) return ahead.quote + 1;
    at = ahead.backslash + 2;
  }
  return -1;
}

type Census = { members: number; unsafeInteger: boolean };

/**
 * Counts the members of a tree and returns what is wrong with it, or `null`. The scan has
 * bounded the depth.
 */
function inspect(value: JsonValue, census: Census): string | null {
  if (typeof value === "string")
    return value.isWellFormed() ? null : "a string holds a lone surrogate";
  if (typeof value === "number") {
    census.unsafeInteger ||= Number.isInteger(value) && !Number.isSafeInteger(value);
    return Number.isFinite(value) ? null : "a number is out of range";
  }
  if (typeof value === "boolean" || value === null) return null;
  if (Array.isArray(value)) {
    for (const inner of value) {
      const problem = inspect(inner, census);
      if (problem !== null) return problem;
    }
    return null;
  }
  for (const name in value) {
    if (name === "__proto__") return "a member name is not allowed";
    if (!name.isWellFormed()) return "a member name holds a lone surrogate";
    census.members += 1;
    const problem = inspect(value[name] as JsonValue, census);
    if (problem !== null) return problem;
  }
  return null;
}

// ----------------------------------------------------------------------------------- large numbers

export const u64Max = 2n ** 64n - 1n;

const decimalForm = /^(0|[1-9][0-9]{0,19})$/;

/** `0` or digits without a leading zero, at most 2^64 - 1; `null` for anything else. */
export function parseU64(text: string): bigint | null {
  if (!decimalForm.test(text)) return null;
  const value = BigInt(text);
  return value <= u64Max ? value : null;
}

/** Decimal text of an unsigned 128-bit number, or `null`. */
export function parseU128(text: string): bigint | null {
  if (!/^(0|[1-9][0-9]{0,38})$/.test(text)) return null;
  const value = BigInt(text);
  return value < 2n ** 128n ? value : null;
}
