/**
 * What an answer must look like, as small checks that are put together. Answers may have further members:
 * a newer node says more than this client knows. A checker of its own, because the nodes' one is compiled
 * at run time, and a page whose policy forbids that must be able to run this.
 */

declare const checked: unique symbol;

/** Answers what is wrong with a value, with its place, or `null`. */
export type Shape<T> = ((value: unknown, at: string) => string | null) & { readonly [checked]?: T };
type OptionalShape<T> = Shape<T> & { readonly isOptional: true };
export type TypeOf<S> = S extends Shape<infer T> ? T : never;

type Members = Readonly<Record<string, Shape<unknown>>>;
type OptionalNames<M extends Members> = {
  [K in keyof M]: M[K] extends OptionalShape<unknown> ? K : never;
}[keyof M];
type Flat<T> = { [K in keyof T]: T[K] };
type ObjectOf<M extends Members> = Flat<
  { [K in Exclude<keyof M, OptionalNames<M>>]: TypeOf<M[K]> } & { [K in OptionalNames<M>]?: TypeOf<M[K]> }
>;

const of =
  <T>(accepts: (value: unknown) => value is T, expected: string): Shape<T> =>
  (value, at) =>
    accepts(value) ? null : `${at || "the answer"} must be ${expected}`;

export const text = of((value) => typeof value === "string", "text");
export const truth = of((value) => typeof value === "boolean", "true or false");
export const integer = of((value): value is number => Number.isSafeInteger(value), "an integer");
export const decimal = of(
  (value): value is string => typeof value === "string" && /^(0|[1-9][0-9]{0,38})$/.test(value),
  "decimal text",
);
export const record = of(isRecord, "an object");

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
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

export function oneOf<const T extends string>(...texts: readonly T[]): Shape<T> {
  return of((value): value is T => texts.some((one) => one === value), texts.join(" or "));
}

export function nullable<T>(shape: Shape<T>): Shape<T | null> {
  return (value, at) => (value === null ? null : shape(value, at));
}

export function optional<T>(shape: Shape<T>): OptionalShape<T> {
  const check: Shape<T> = (value, at) => (value === undefined ? null : shape(value, at));
  return Object.assign(check, { isOptional: true as const });
}

export function listOf<T>(shape: Shape<T>): Shape<T[]> {
  return (value, at) => {
    if (!Array.isArray(value)) return `${at || "the answer"} must be a list`;
    for (const [i, entry] of value.entries()) {
      const problem = shape(entry, `${at}/${i}`);
      if (problem !== null) return problem;
    }
    return null;
  };
}

export function objectOf<const M extends Members>(members: M): Shape<ObjectOf<M>> {
  return (value, at) => {
    if (!isRecord(value)) return `${at || "the answer"} must be an object`;
    for (const [name, shape] of Object.entries(members)) {
      const problem = shape(value[name], `${at}/${name}`);
      if (problem !== null) return problem;
    }
    return null;
  };
}
