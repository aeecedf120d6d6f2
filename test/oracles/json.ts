/**
 * A deliberate copy: the first reader of JSON, to compare `src/core/codec/json.ts` with. One pass
 * over the structure bounds depth and size before `JSON.parse` sees the text; one walk after it
 * refuses what two readers could understand differently: duplicate names, lone surrogates,
 * `__proto__`, numbers that are not finite. Source: rules section 1 ("JSON bounds").
 */

import { decodeUtf8 } from "../../src/core/codec/bytes.ts";
import { type Fault, fault } from "../../src/core/fault.ts";

export type JsonValue = null | boolean | number | string | JsonValue[] | JsonObject;
export type JsonObject = { [name: string]: JsonValue };

/** The outermost value is depth 1. */
const jsonDepthMax = 32;
/** Values inside the outermost one, containers included; an empty container counts twice. */
const jsonValuesMax = 4_096;
/** Members of one object. */
const jsonMembersMax = 256;

/** Where a member name of the outermost object is in the text, quotes included. */
type NameSpan = { readonly start: number; readonly end: number };

type JsonReading = {
  readonly value: JsonValue;
  readonly text: string;
  /** Some number is an integer beyond ±(2^53 - 1), which two readers may round differently. */
  readonly unsafeInteger: boolean;
};

export function isJsonObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** As `parseJson`, with what the envelope needs besides the value. */
export function readJson(bytes: Uint8Array): JsonReading | Fault {
  const text = decodeUtf8(bytes);
  if (text === null) return invalid("not well-formed UTF-8");
  const structure = scanStructure(text, null);
  if (typeof structure === "string") return invalid(structure);
  let value: JsonValue;
  try {
    value = JSON.parse(text) as JsonValue;
  } catch {
    return invalid("not JSON");
  }
  const census: Census = { members: 0, unsafeInteger: false };
  const problem = inspect(value, census, true);
  if (problem !== null) return invalid(problem);
  // Every member has a colon of its own; a repeated name leaves the tree a member short.
  if (census.members !== structure.members)
    return invalid("a member name appears twice in one object");
  return { value, text, unsafeInteger: census.unsafeInteger };
}

/** The name spans of the outermost object, in order, of a text that `readJson` has accepted. */
export function outerNameSpans(text: string): NameSpan[] {
  const spans: NameSpan[] = [];
  scanStructure(text, spans);
  return spans;
}

function invalid(detail: string): Fault {
  return fault("invalid_json", detail);
}

const quoteCode = 0x22;
const backslashCode = 0x5c;
/** Characters of a string looked at one by one before `indexOf` is worth its call. */
const plainRun = 24;

/**
 * Counts colons and values outside strings and holds the depth, without judging the grammar: it is
 * exact for every text that `JSON.parse` accepts, and for all others `JSON.parse` refuses. Answers
 * why not.
 */
function scanStructure(text: string, outerNames: NameSpan[] | null): { members: number } | string {
  const length = text.length;
  let depth = 0;
  let members = 0;
  let values = 1;
  // The next quote and backslash that were found so far; both only move forward, so that all
  // searches together read the text at most twice.
  let quote = -1;
  let backslash = -1;
  let nameStart = 0;
  let nameEnd = 0;
  let at = 0;
  while (at < length) {
    switch (text.charCodeAt(at)) {
      case quoteCode: {
        nameStart = at++;
        let look = at + plainRun;
        for (;;) {
          if (at >= length) return "a string has no end";
          if (at < look) {
            const code = text.charCodeAt(at);
            if (code === quoteCode) break;
            if (code === backslashCode) {
              at += 2;
              look = at + plainRun;
            } else at++;
            continue;
          }
          if (quote < at) quote = text.indexOf('"', at);
          if (quote < 0) return "a string has no end";
          if (backslash < at) {
            backslash = text.indexOf("\\", at);
            if (backslash < 0) backslash = length;
          }
          at = Math.min(quote, backslash);
          look = at + plainRun;
        }
        nameEnd = ++at;
        continue;
      }
      case 0x3a: // a colon
        members++;
        if (depth === 1 && outerNames !== null) outerNames.push({ start: nameStart, end: nameEnd });
        break;
      case 0x7b: // an opening brace
      case 0x5b: // an opening bracket
        if (++depth > jsonDepthMax) return `nested deeper than ${jsonDepthMax}`;
        if (++values > jsonValuesMax + 1) return `more than ${jsonValuesMax} values`;
        break;
      case 0x7d:
      case 0x5d:
        depth--;
        break;
      case 0x2c: // a comma
        if (++values > jsonValuesMax + 1) return `more than ${jsonValuesMax} values`;
        break;
      default:
    }
    at++;
  }
  return { members };
}

type Census = { members: number; unsafeInteger: boolean };

/**
 * Counts the members of a tree and answers what is wrong with it, or `null`. Depth is bounded by
 * the scan.
 */
function inspect(value: JsonValue, census: Census, outer: boolean): string | null {
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
      return Array.isArray(value)
        ? inspectArray(value, census)
        : inspectObject(value, census, outer);
  }
}

function inspectArray(values: readonly JsonValue[], census: Census): string | null {
  for (const value of values) {
    const problem = inspect(value, census, false);
    if (problem !== null) return problem;
  }
  return null;
}

function inspectObject(object: JsonObject, census: Census, outer: boolean): string | null {
  const names = Object.keys(object);
  if (names.length > jsonMembersMax) return `an object has more than ${jsonMembersMax} members`;
  census.members += names.length;
  for (const name of names) {
    if (isForbiddenName(name, outer)) return "a member name is not allowed";
    if (!name.isWellFormed()) return "a member name holds a lone surrogate";
    const problem = inspect(object[name] as JsonValue, census, false);
    if (problem !== null) return problem;
  }
  return null;
}

/** `__proto__` anywhere; outside opaque payloads also the two other ways to a prototype. */
function isForbiddenName(name: string, outer: boolean): boolean {
  return name === "__proto__" || (outer && (name === "constructor" || name === "prototype"));
}
