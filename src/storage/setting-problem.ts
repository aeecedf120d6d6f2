/**
 * Turns the findings of a schema into messages for the person who wrote the file. The schema of the
 * configuration and those of the plugins' options share it.
 */
import { distance } from "fastest-levenshtein";

export type InputProblem = { readonly setting: string; readonly message: string };

/** What a plugin makes of its table: options, or all problems together. */
export type ParsedOptions<Options> =
  | { readonly ok: true; readonly options: Options }
  | { readonly ok: false; readonly problems: readonly InputProblem[] };

/** What a finding of the schema is about. */
type ZodIssue = {
  readonly code?: string;
  readonly expected?: unknown;
  readonly input?: unknown;
  /** With `too_small` and `too_big`: what has the bound. */
  readonly origin?: string;
  readonly minimum?: unknown;
  readonly maximum?: unknown;
  /** With `invalid_value`: all that may stand there. */
  readonly values?: readonly unknown[];
};

const kinds: Readonly<Record<string, string>> = {
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  string: "text in quotes",
  array: 'a list such as ["one", "other"]',
  object: "a table",
};

function describedValue(value: unknown): string {
  if (Array.isArray(value)) return "a list";
  if (typeof value === "number") return Number.isInteger(value) ? "a number" : "a fraction";
  return typeof value === "string" ? "text" : (kinds[typeof value] ?? typeof value);
}

const countedIn: Readonly<Record<string, string>> = { string: "characters", array: "entries" };

function boundText({ code, origin = "", minimum, maximum }: ZodIssue): string {
  const unit = countedIn[origin];
  const bound = code === "too_small" ? `at least ${minimum}` : `at most ${maximum}`;
  if (unit === undefined) return `must be ${bound}`;
  return Number(minimum) === 1 ? "must not be empty" : `must have ${bound} ${unit}`;
}

/** `"debug", "info" or "warn"` */
function listedValues(values: readonly unknown[]): string {
  const texts = values.map((value) => JSON.stringify(value));
  const last = texts.pop() ?? "";
  return texts.length === 0 ? last : `${texts.join(", ")} or ${last}`;
}

/** Words for the findings of the schema; `undefined` leaves them to it. */
export const wording = {
  error: (issue: ZodIssue) => {
    const { code, expected, input, values } = issue;
    if (input === undefined) return "is missing";
    if (code === "too_small" || code === "too_big") return boundText(issue);
    if (code === "invalid_value" && values !== undefined) return `must be ${listedValues(values)}`;
    const wanted = code === "invalid_type" ? kinds[String(expected)] : undefined;
    return wanted === undefined ? undefined : `must be ${wanted}, not ${describedValue(input)}`;
  },
};

const sizeUnits: Readonly<Record<string, number>> = {
  B: 1,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
  TiB: 2 ** 40,
};

/** Bytes of `25MiB`, `4KiB`, `512B` or of a plain number; `null` for anything else. */
export function parseSizeSetting(value: unknown): number | null {
  if (typeof value === "number") return Number.isSafeInteger(value) && value >= 0 ? value : null;
  const m = typeof value === "string" ? /^(\d{1,12})(B|KiB|MiB|GiB|TiB)$/.exec(value) : null;
  return m === null ? null : Number(m[1]) * (sizeUnits[m[2] ?? ""] ?? 0);
}

/** In the form of the configuration: `1048576` is `1MiB`. */
export function renderSizeSetting(bytes: number): string {
  return renderInUnits(sizeUnits, ["GiB", "MiB", "KiB", "B"], bytes);
}

/** In the largest unit that leaves no fraction; the smallest comes last and is 1. */
export function renderInUnits(
  sizes: Readonly<Record<string, number>>,
  units: readonly string[],
  value: number,
): string {
  const unit =
    units.find((name) => value > 0 && value % (sizes[name] ?? 1) === 0) ?? units.at(-1) ?? "";
  return `${value / (sizes[unit] ?? 1)}${unit}`;
}

/** A finding with its place. */
type Issue = {
  readonly code: string;
  readonly path: readonly PropertyKey[];
  readonly message: string;
  readonly keys?: readonly string[];
};

/**
 * `; did you mean path?` with the nearest name, at most one edit for every three letters
 * away; or nothing.
 */
export function meant(name: string, known: readonly string[]): string {
  const wanted = name.toLowerCase().replaceAll("-", "_");
  const [nearest] = known
    .map((one) => ({ one, edits: distance(wanted, one) }))
    .sort((a, b) => a.edits - b.edits);
  const isNear = nearest !== undefined && nearest.edits <= Math.ceil(nearest.one.length / 3);
  return isNear ? `; did you mean ${nearest.one}?` : "";
}

/** The problems of one finding of a schema: one for each unknown setting, else one. */
export function problemsOfIssue({ code, path, message, keys = [] }: Issue): InputProblem[] {
  const setting = path.map(String).join(".");
  if (code !== "unrecognized_keys") return [{ setting, message }];
  return keys.map((key) => ({
    setting: setting === "" ? key : `${setting}.${key}`,
    message: "unknown setting",
  }));
}
