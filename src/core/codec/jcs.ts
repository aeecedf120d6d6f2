/**
 * JSON in the one form that hashes cover (JCS): no white space, members sorted by UTF-16 units, numbers as ECMAScript
 * writes them.
 * Source: RFC 8785.
 */
import type { JsonValue } from "./json.ts";

/** Deeper than any node takes. A stranger's answer may nest a million times, and such a value has no form here. */
const depthMax = 256;

/** Of what was JSON: lone surrogates and numbers beyond doubles never get here. Empty text below `depthMax`. */
export function renderCanonical(value: JsonValue, depth = 0): string {
  if (depth > depthMax) return "";
  if (Array.isArray(value)) return `[${value.map((entry) => renderCanonical(entry, depth + 1)).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const member = (name: string) => `${JSON.stringify(name)}:${renderCanonical(value[name] ?? null, depth + 1)}`;
  return `{${Object.keys(value).sort().map(member).join(",")}}`;
}
