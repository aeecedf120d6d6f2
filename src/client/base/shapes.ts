/**
 * Shapes of untrusted values, of which `net/answers.ts` and `kept.ts` are made, and texts that programs keep between runs:
 * JSON with bytes in lower hex and counters in decimal. The nodes' own checker is compiled at run time, which the policy of
 * a page may forbid.
 */
import * as z from "zod/mini";
import { encodeHex } from "../../core/codec/bytes.ts";

export type Shape<T> = z.ZodMiniType<T>;

/** What is wrong with a value, with its place (`whole` names the value itself), or `null`. */
export function problemOf(shape: Shape<unknown>, value: unknown, whole: string): string | null {
  const [issue] = z.safeParse(shape, value).error?.issues ?? [];
  if (issue === undefined) return null;
  if (issue.code === "unrecognized_keys") return "it has members that are not known";
  const expected = issue.code === "invalid_type" ? issue.expected : issue.message;
  const place = issue.path.map((step) => `/${String(step)}`).join("");
  return `${place || whole} must be ${expected}`;
}

/** What programs keep between runs, as text: JSON with bytes in lower hex and counters in decimal. */
export function renderKept(value: object): string {
  return `${JSON.stringify(keptForm(value), null, 2)}\n`;
}

/** Not by a replacer of JSON: a Buffer, which is bytes too, is another object by then. */
function keptForm(value: unknown): unknown {
  if (value instanceof Uint8Array) return encodeHex(value);
  if (typeof value === "bigint") return String(value);
  if (Array.isArray(value)) return value.map(keptForm);
  if (!isRecord(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, keptForm(one)]));
}

/** The value of such a text, if it has the shape. */
export function parseKept<T>(text: string, shape: Shape<T>): T | null {
  return parseValue(parseRecord(text), shape);
}

export function parseValue<T>(value: unknown, shape: Shape<T>): T | null {
  return z.safeParse(shape, value).data ?? null;
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function isInteger(value: unknown): value is number {
  return Number.isSafeInteger(value);
}

/** A JSON object, or `null` for any other text. */
export function parseRecord(text: string): Record<string, unknown> | null {
  try {
    const json: unknown = JSON.parse(text);
    return isRecord(json) ? json : null;
  } catch {
    return null;
  }
}

export const text = z.string();
/** Smaller than the checks of the library, which a page would load. */
export const integer = z.custom<number>(isInteger, "an integer");
export const natural = z.custom<number>(
  (value) => isInteger(value) && value >= 0,
  "a natural number",
);
export const decimal = z.custom<string>(
  (value) => typeof value === "string" && /^[0-9]{1,39}$/.test(value),
  "decimal text",
);

export function oneOf<const T extends string>(...texts: readonly T[]): Shape<T> {
  return z.custom<T>((value) => texts.some((one) => one === value), texts.join(" or "));
}
