/**
 * Changes of one group, one after the other: which of them count, and who is in it then.
 * Source: docs/protocol.md, "Groups".
 */
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import type { GroupState } from "../../src/client/groups/group-rules.ts";
import { decideChange, membersOf } from "../../src/client/groups/group-rules.ts";
import { groupIdOf } from "../../src/client/groups/statements.ts";
import { type Did, isDid } from "../../src/core/codec/did.ts";

type Step = {
  readonly what: string;
  readonly from: string;
  readonly change: unknown;
  readonly counts: boolean;
};
type Counting = {
  readonly name?: string;
  readonly version?: number;
  readonly members?: readonly string[];
};
type Vector = Record<"maker" | "nonce" | "id", string> & {
  readonly steps: readonly (Step & Counting)[];
};

const vector: Vector = JSON.parse(
  readFileSync(new URL("groups/changes.json", import.meta.url), "utf8"),
);

test("the id of a group is that of its maker and a nonce", () => {
  expect(groupIdOf(vector.maker, vector.nonce)).toBe(vector.id);
});

test("each change counts or not as the vector says, and leaves the members and the name that it says", () => {
  let state: GroupState | null = null;
  for (const { what, from, change, counts, ...after } of vector.steps) {
    const next: GroupState | null = isDid(from)
      ? decideChange(state, { id: vector.id, from: from as Did, json: change })
      : null;
    expect([what, next !== null]).toEqual([what, counts]);
    if (next === null) continue;
    state = next;
    expect({ name: next.name, version: next.version, members: membersOf(next) }).toEqual(
      after as never,
    );
  }
});
