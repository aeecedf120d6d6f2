/**
 * Shapes of untrusted values: answers of nodes, rows of other devices, and texts that programs keep
 * between runs (JSON with bytes in lower hex and counters in decimal). They are combined from few
 * parts, checked without compiling anything, which the policy of a page may forbid, and small,
 * because every page loads them.
 */
import { decodeHex, encodeHex } from "../../core/codec/bytes.ts";
import { type Did, isDid } from "../../core/codec/did.ts";

/** Where a value is wrong, and what it must be there. */
class Problem {
  readonly at: string;
  readonly expected: string;

  constructor(at: string, expected: string) {
    this.at = at;
    this.expected = expected;
  }
}

/**
 * A value of the shape, of an object the members that it names; or where the value has another one.
 */
export type Shape<T> = { readonly read: (value: unknown, at: string) => T | Problem };
type Optional<T> = Shape<T | undefined> & { readonly isOptional: true };

/** The type of the values of a shape. */
export type Of<S> = S extends Shape<infer T> ? T : never;

type MemberShapes = Readonly<Record<string, Shape<unknown>>>;
type OptionalIn<M extends MemberShapes> = {
  [Name in keyof M]: M[Name] extends { readonly isOptional: true } ? Name : never;
}[keyof M];
type ObjectOf<M extends MemberShapes> = {
  [Name in Exclude<keyof M, OptionalIn<M>>]: Of<M[Name]>;
} & { [Name in OptionalIn<M>]?: Of<M[Name]> };

const unknownMembers = "members that are not known";

/** What is wrong with a value, with its place (`whole` names the value itself), or `null`. */
export function problemOf(shape: Shape<unknown>, value: unknown, whole: string): string | null {
  const problem = shape.read(value, "");
  if (!(problem instanceof Problem)) return null;
  if (problem.expected === unknownMembers) return `it has ${unknownMembers}`;
  return `${problem.at === "" ? whole : problem.at} must be ${problem.expected}`;
}

export function custom<T>(isFit: (value: unknown) => boolean, expected: string): Shape<T> {
  return { read: (value, at) => (isFit(value) ? (value as T) : new Problem(at, expected)) };
}

/** With what is made of its values. */
export function mapped<T, U>(shape: Shape<T>, change: (value: T) => U): Shape<U> {
  return {
    read: (value, at) => {
      const read = shape.read(value, at);
      return read instanceof Problem ? read : change(read);
    },
  };
}

export function optional<T>(shape: Shape<T>): Optional<T> {
  const read = (value: unknown, at: string) =>
    value === undefined ? undefined : shape.read(value, at);
  return { isOptional: true, read };
}

export function nullable<T>(shape: Shape<T>): Shape<T | null> {
  return { read: (value, at) => (value === null ? null : shape.read(value, at)) };
}

export function array<T>(shape: Shape<T>): Shape<T[]> {
  return {
    read: (value, at) => {
      if (!Array.isArray(value)) return new Problem(at, "array");
      const items: T[] = [];
      for (const [i, one] of value.entries()) {
        const read = shape.read(one, `${at}/${i}`);
        if (read instanceof Problem) return read;
        items.push(read);
      }
      return items;
    },
  };
}

/** Further members are left out. */
export function object<const M extends MemberShapes>(members: M): Shape<ObjectOf<M>> {
  return {
    read: (value, at) => {
      if (!isRecord(value)) return new Problem(at, "object");
      const found: Record<string, unknown> = {};
      for (const [name, shape] of Object.entries(members)) {
        const read = shape.read(value[name], `${at}/${name}`);
        if (read instanceof Problem) return read;
        if (read !== undefined) found[name] = read;
      }
      return found as ObjectOf<M>;
    },
  };
}

/** Of exactly these members. */
export function strictObject<const M extends MemberShapes>(members: M): Shape<ObjectOf<M>> {
  const { read } = object(members);
  return {
    read: (value, at) => {
      const isMore = isRecord(value) && Object.keys(value).some((name) => !(name in members));
      const found = read(value, at);
      return isMore && !(found instanceof Problem) ? new Problem(at, unknownMembers) : found;
    },
  };
}

/**
 * What programs keep between runs, as text: JSON with bytes in lower hex and counters in decimal.
 */
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
  const read = shape.read(value, "");
  return read instanceof Problem ? null : read;
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

export const text = custom<string>((value) => typeof value === "string", "string");
export const truth = custom<boolean>((value) => typeof value === "boolean", "boolean");
export const integer = custom<number>(isInteger, "an integer");
export const natural = custom<number>(
  (value) => isInteger(value) && value >= 0,
  "a natural number",
);
const decimal = custom<string>(
  (value) => typeof value === "string" && /^[0-9]{1,39}$/.test(value),
  "decimal text",
);

export function oneOf<const T extends string>(...texts: readonly T[]): Shape<T> {
  return custom<T>((value) => texts.some((one) => one === value), texts.join(" or "));
}

// ------------------------------------------------------------------------------------- of options

/** What is judged where it is read. */
export const anything = custom<unknown>(() => true, "");
export const callable = custom((value) => typeof value === "function", "a function");
export const abortSignal = custom(
  (value) => isRecord(value) && typeof value["addEventListener"] === "function",
  "an AbortSignal",
);
export const fromZero = custom(
  (value) => typeof value === "number" && value >= 0,
  "a number from 0",
);

// -------------------------------------------------------------------------- in texts that are kept

const hexOf = (form: RegExp) =>
  custom<string>((value) => typeof value === "string" && form.test(value), "lower hex");
const toBytes = (hex: string): Uint8Array => decodeHex(hex) as Uint8Array;

export const keptDid = custom<Did>((value) => typeof value === "string" && isDid(value), "a DID");
export const keptHex32 = hexOf(/^[0-9a-f]{64}$/);
export const keptBytes32 = mapped(keptHex32, toBytes);
export const keptBytes = mapped(hexOf(/^([0-9a-f]{2})*$/), toBytes);
export const keptCounter = mapped(decimal, (digits) => BigInt(digits));
/** The version of a text's form. */
export const keptVersion = custom<1>((value) => value === 1, "1");

export const nameCharactersMax = 100;

/** Of a person or a group, as others chose it. */
export const isName = (name: unknown): name is string =>
  typeof name === "string" && name.length <= nameCharactersMax;
