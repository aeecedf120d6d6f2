/**
 * What of a bundle can change a group, as pure rules, before anybody's keys are looked up for it.
 * Source: docs/protocol.md ("Groups").
 */
import type { Did } from "../../core/codec/did.ts";
import type { GroupRow, SignedLeaving } from "./bundles.ts";
import { type GroupState, isIn, joinStates, type Statement } from "./statements.ts";

/**
 * Of one bundle. Who has more of them shows the next ones to a member who has another state still.
 */
const leavingsMax = 8;
const nothing: Pick<GroupState, "name" | "members" | "left"> = {
  name: ["", 0],
  members: {},
  left: {},
};

type Known = {
  readonly row: GroupRow | null;
  /** Statements of the bundle, of this group or of the next one. */
  readonly said: readonly Statement[];
  /** Who brings it: of others' leavings only a member's word is looked at. */
  readonly from: Did;
};

/** Leavings of who is in by what is known and said, where none is known that says as much. */
export function leavingsAbout(
  leavings: readonly SignedLeaving[],
  { row, said, from }: Known,
): SignedLeaving[] {
  const [first] = said;
  const begun = row?.state ?? (first === undefined ? null : { ...first, ...nothing });
  if (begun === null) return [];
  const state = said.reduce<GroupState>(joinStates, begun);
  const isMember = from === state.maker || isIn(state, from);
  const known = new Map((row?.leavings ?? []).map(({ did, version }) => [did, version]));
  const isNews = ({ did, version }: SignedLeaving) => {
    const [value, since] = state.members[did] ?? ["out", 0];
    return value === "in" && since <= version && version > (known.get(did) ?? -1);
  };
  return leavings
    .filter((one) => (isMember || one.did === from) && isNews(one))
    .slice(0, leavingsMax);
}
