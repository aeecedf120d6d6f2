/**
 * The row of a person, and what of one or of a group counts that an earlier version stored without
 * looking at it: another own device had said it, which may have been a thief's.
 * Source: docs/trust.md "Own devices".
 */
import type { Did } from "../../core/codec/did.ts";
import {
  custom,
  keptDid as did,
  isName,
  isRecord,
  nullable,
  object,
  optional,
  parseValue,
  type Shape,
  text,
  truth,
} from "../base/shapes.ts";

/** What is known of somebody who wrote, or was written to. */
export type Person = {
  readonly did: Did;
  /** Given by this user; empty when none. */
  readonly name: string;
  /** By which it was last written to. */
  readonly alias: string | null;
  /** Written to, named or accepted; otherwise it is a stranger's request. */
  readonly isKnown: boolean;
  /** Its messages are acknowledged and dropped. */
  readonly isBlocked: boolean;
  /**
   * When this user last changed name, `isKnown` or `isBlocked`: of two devices
   * the later change counts.
   */
  readonly setMs?: number;
  /** What they call themselves, as they say. */
  readonly claimed?: { readonly name: string; readonly atMs: number };
  /** The invitation of this identity that they used. */
  readonly invitedBy?: string;
  /** Theirs, which goes to them with the own profile; `null` when it has gone. */
  readonly invitation?: string | null;
  /**
   * Time of the own profile that they got or that waits for them in the outbox; an
   * earlier one when that failed.
   */
  readonly toldMs?: number;
};

/** All members of a row: the compiler refuses a shape without one of them. */
export type MembersOf<T> = { readonly [Name in keyof Required<T>]: Shape<T[Name]> };

export const rowOf = <T extends object>(members: MembersOf<T>): Shape<T> =>
  object(members) as Shape<T>;

/** Of a choice: one that is far ahead counts as made when it was said. */
export const timeMs = custom<number>(
  (value) => Number.isFinite(value) && Number(value) >= 0,
  "a time",
);
export const givenName = custom<string>(isName, "a name");

const members: MembersOf<Person> = {
  did,
  name: text,
  alias: nullable(text),
  isKnown: truth,
  isBlocked: truth,
  setMs: optional(timeMs),
  claimed: optional(object({ name: givenName, atMs: timeMs })),
  invitedBy: optional(text),
  invitation: optional(nullable(text)),
  toldMs: optional(timeMs),
};
export const personShape = rowOf<Person>(members);

const nothingKnown = { name: "", alias: null, isKnown: false, isBlocked: false };

/** The row, or the members of it that can be read. */
export function keptPerson(row: unknown): unknown {
  if (!isRecord(row) || parseValue(row, personShape) !== null) return row;
  const kept: Record<string, unknown> = { ...nothingKnown };
  for (const [name, shape] of Object.entries<Shape<unknown>>(members)) {
    const read = parseValue(row[name], shape);
    if (read !== null && read !== undefined) kept[name] = read;
  }
  return kept;
}

const groupShape = object({
  maker: did,
  nonce: text,
  name: custom<unknown>((name) => typeof name === "string" || Array.isArray(name), "a name"),
  members: object({}),
  left: object({}),
});

/** The row, or `null` where nothing says which group it is. Its other parts: `upgradeRow`. */
export function keptGroup(row: unknown): unknown {
  // In rows of an earlier version the state is the row itself.
  const state = isRecord(row) && "v" in row ? row["state"] : row;
  return parseValue(state, groupShape) === null ? null : row;
}
