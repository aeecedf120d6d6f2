/**
 * Turns the findings of a schema into messages for the person who wrote the file. The schema of the
 * configuration and those of the plugins' options share it.
 */
import { distance } from "fastest-levenshtein";
import type { InputProblem } from "./contract.ts";

/** The schema words its findings itself, but for what is missing. */
export const wording = {
  error: ({ input }: { readonly input?: unknown }) =>
    input === undefined ? "is missing" : undefined,
};

/** A finding with its place. */
type Issue = {
  readonly code: string;
  readonly path: readonly PropertyKey[];
  readonly message: string;
  readonly keys?: readonly string[];
};

/** `; did you mean path?` with the nearest name, at most one edit for every three letters away; or nothing. */
export function meant(name: string, known: readonly string[]): string {
  const wanted = name.toLowerCase().replaceAll("-", "_");
  const [nearest] = known
    .map((one) => ({ one, edits: distance(wanted, one) }))
    .sort((a, b) => a.edits - b.edits);
  const isNear = nearest !== undefined && nearest.edits <= Math.ceil(nearest.one.length / 3);
  return isNear ? `; did you mean ${nearest.one}?` : "";
}

export function problemsOfIssue({ code, path, message, keys = [] }: Issue): InputProblem[] {
  const setting = path.map(String).join(".");
  if (code !== "unrecognized_keys") return [{ setting, message }];
  return keys.map((key) => ({
    setting: setting === "" ? key : `${setting}.${key}`,
    message: "unknown setting",
  }));
}
