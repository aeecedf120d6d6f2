/** What an earlier key of the admin can still do, after it was replaced. */
import { expect, test } from "bun:test";
import {
  emptyGroup,
  type GroupState,
  hear,
  isIn,
  withChange,
} from "../../../../src/client/groups/statements.ts";
import { identityOf } from "../../../support/identity.ts";

const [admin, bob] = [identityOf("admin").did, identityOf("bob").did];
const nowMs = 1_790_000_000_000;
const second = nowMs / 1_000;
const begun = withChange(
  emptyGroup(admin, "n"),
  { name: "Hiking", add: [admin, bob] },
  nowMs - 86_400_000,
);

/** At the admin, by a member who has the key that was replaced an hour ago. */
function said(state: GroupState, version: number): GroupState {
  const statement = { ...begun, members: { [bob]: ["out", version] as const } };
  const hearing = { own: admin, signedBy: "earlier", nowMs, keysSince: second - 3_600 } as const;
  return hear(state, statement, hearing) as GroupState;
}

test("a removal by a replaced key, of a version after the new keys, counts for nothing, and the maker says the part again as it is", () => {
  const after = said(begun, second + 80_000);
  expect(isIn(after, bob)).toBe(true);
  expect(after.members[bob]).toEqual(["in", second + 80_001]);
});

test("a removal by a replaced key, of a version before the new keys, takes a member out once: asked in again, they stay", () => {
  const out = said(begun, second - 3_600);
  expect(isIn(out, bob)).toBe(false);
  const again = withChange(out, { add: [bob] }, nowMs);
  for (const version of [second - 3_600, second, second + 80_000])
    expect(isIn(said(again, version), bob)).toBe(true);
});
