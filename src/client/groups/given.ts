/**
 * The row of a group that another own device shows. That device may be a thief's, which is removed
 * later: so every part has the form in which this version keeps it, or is left out, and what others
 * sign has the form in which members show it.
 * Source: docs/trust.md ("Own devices").
 */
import { type Did, isDid } from "../../core/codec/did.ts";
import { isInteger, isRecord } from "../base/shapes.ts";
import { type Bundle, type GroupRow, parseBundle } from "./bundles.ts";
import { type Former, handOversMax, wishIn } from "./handing.ts";
import { type GroupState, readableState } from "./statements.ts";

/** `null` when it names no group, or is of another form than any that is shown to members. */
export function parseRow(json: unknown): GroupRow | null {
  if (!isRecord(json)) return null;
  const { root, joined, was, second } = json;
  const state = readableState(json["state"]);
  const bundle = state === null ? null : bundleIn(json, state.id);
  if (state === null || bundle === null) return null;
  return {
    v: 2,
    ...bundle,
    state,
    root: typeof root === "string" && /^[0-9a-f]{64}$/.test(root) ? root : "",
    joined: isInteger(joined) ? joined : 0,
    was: versionsIn(was, state),
    former: listIn(json["former"]).slice(0, handOversMax).flatMap(formerIn),
    second: isDidText(second) ? second : null,
    handing: wishIn(json["handing"]),
    waiting: [],
    owed: [],
  };
}

/** What it shows of a group, in the form in which members do. `null` for another form. */
export function bundleIn(
  { statements, leavings, handOvers }: Partial<Record<keyof Bundle, unknown>>,
  id: string,
): Bundle | null {
  const said = listIn(statements).map((one) => {
    const { statement, key, signature } = isRecord(one) ? one : {};
    return isRecord(statement) ? { ...statement, key, signature } : null;
  });
  const gone = listIn(leavings).filter((one) => isRecord(one) && one["id"] === id);
  return parseBundle({ v: 2, statements: said, leavings: gone, next: handOvers }, id);
}

const listIn = (json: unknown): readonly unknown[] => (Array.isArray(json) ? json : []);

const isDidText = (json: unknown): json is Did => typeof json === "string" && isDid(json);

/** Of the people of the state, and of its name. */
function versionsIn(json: unknown, { members }: GroupState): GroupRow["was"] {
  const all = Object.entries(isRecord(json) ? json : {});
  const known = all.filter(([part, one]) => isInteger(one) && (part === "" || part in members));
  return Object.fromEntries(known) as GroupRow["was"];
}

function formerIn(json: unknown): Former[] {
  const { id, maker, nonce, next, atMs } = isRecord(json) ? json : {};
  if (typeof id !== "string" || typeof nonce !== "string" || !isInteger(atMs)) return [];
  return isDidText(maker) && isDidText(next) ? [{ id, maker, nonce, next, atMs }] : [];
}
