/**
 * Turns the findings of a schema into messages for the person who wrote the file. The schema of the
 * configuration and those of the plugins' options share it.
 */
import { distance } from "fastest-levenshtein";
import type { InputProblem } from "./contract.ts";

/** The members of a schema finding that are read here. */
type Finding = {
  readonly code?: string;
  readonly input?: unknown;
  readonly expected?: unknown;
  readonly origin?: string;
  readonly minimum?: number | bigint;
  readonly maximum?: number | bigint;
  readonly values?: readonly unknown[];
};

const kinds: Readonly<Record<string, string>> = {
  string: 'text in quotes, such as "text"',
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "a list in square brackets",
  object: "a table of settings",
  record: "a table of settings",
};

/** The message, or `undefined` when the schema has its own message. */
export function describeFinding(finding: Finding): string | undefined {
  const { code, input, expected, origin, values = [] } = finding;
  if (code === "invalid_type" || code === "invalid_value") {
    if (input === undefined) return "is missing";
    const choices = values.map((value) => JSON.stringify(value)).join(" or ");
    return `must be ${code === "invalid_value" ? choices : (kinds[String(expected)] ?? String(expected))}`;
  }
  if (code === "invalid_key") return "must be a name of a-z, 0-9, _ and -";
  if (code !== "too_small" && code !== "too_big") return undefined;
  const bound = code === "too_small" ? `at least ${finding.minimum}` : `at most ${finding.maximum}`;
  if (origin === "string") return finding.minimum === 1 ? "must not be empty" : `must have ${bound} characters`;
  const entries = (code === "too_small" ? finding.minimum : finding.maximum) === 1 ? "entry" : "entries";
  return origin === "array" ? `must have ${bound} ${entries}` : `must be ${bound}`;
}

/** A finding with its place. */
type Issue = {
  readonly code: string;
  readonly path: readonly PropertyKey[];
  readonly message: string;
  readonly keys?: readonly string[];
};

/** Leaves out findings about a value whose type is already reported as wrong. */
export function firstFindings<One extends Issue>(issues: readonly One[]): One[] {
  const wrongKinds = new Set(issues.filter(({ code }) => code === "invalid_type").map(({ path }) => path.join(".")));
  return issues.filter(({ code, path }) => code === "invalid_type" || !wrongKinds.has(path.join(".")));
}

/** `; did you mean path?` with the nearest name, at most one edit for every three letters away; or nothing. */
export function meant(name: string, known: readonly string[]): string {
  const wanted = name.toLowerCase().replaceAll("-", "_");
  const [nearest] = known.map((one) => ({ one, edits: distance(wanted, one) })).sort((a, b) => a.edits - b.edits);
  const isNear = nearest !== undefined && nearest.edits <= Math.ceil(nearest.one.length / 3);
  return isNear ? `; did you mean ${nearest.one}?` : "";
}

export function problemsOfIssue({ code, path, message, keys = [] }: Issue): InputProblem[] {
  const setting = path.map(String).join(".");
  if (code !== "unrecognized_keys") return [{ setting, message }];
  return keys.map((key) => ({ setting: setting === "" ? key : `${setting}.${key}`, message: "unknown setting" }));
}
