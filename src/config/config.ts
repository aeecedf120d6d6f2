/**
 * Reads a configuration: the file, what the environment overrides, the schema, and the relations between
 * settings. Every independent problem is reported in one run, each with its setting and its place.
 */
import type { z } from "zod";
import type { InputProblem } from "../storage/contract.ts";
import { describeFinding, firstFindings, meant, nearestName, problemsOfIssue } from "../storage/setting-problem.ts";
import { listSettings } from "./reference.ts";
import { isReported, relationProblems } from "./relations.ts";
import { takeRetired } from "./retired.ts";
import { type Config, configSchema } from "./schema.ts";
import { isTable, overrideFromEnvironment, type Place, parseSource, readSecretFiles } from "./source.ts";

export type ConfigProblem = InputProblem & {
  /** `null` when the setting is not in the file. */
  readonly place: Place | null;
};

type ConfigResult =
  | {
      readonly ok: true;
      readonly config: Config;
      /** Settings of earlier versions, with what counts in their place. */
      readonly retired: readonly InputProblem[];
      readonly placeOf: (setting: string) => Place | null;
    }
  | {
      readonly ok: false;
      readonly problems: readonly ConfigProblem[];
      /** The configuration without the invalid settings, so that a caller can look for further problems. */
      readonly rest: Config | null;
      readonly placeOf: (setting: string) => Place | null;
    };

type ConfigSurroundings = {
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Reads a file of secrets; throws when it can't be read. */
  readonly readFile?: (path: string) => string;
};

const nowhere = (): null => null;

/** Reads the text of a TOML file, with the overrides of `env`. */
export function parseConfig(text: string, { env = {}, readFile = refuseFiles }: ConfigSurroundings = {}): ConfigResult {
  const parsed = parseSource(text);
  if (!parsed.ok) return { ok: false, problems: [parsed.problem], rest: null, placeOf: nowhere };
  const { placeOf } = parsed.source;
  const input = structuredClone(parsed.source.input);
  const overrides = overrideFromEnvironment(input, env);
  const secrets = readSecretFiles(input, readFile);
  const checked = checkConfig(input);
  const problems = [...secrets, ...(checked.ok ? [] : checked.problems)];
  if (checked.ok && problems.length === 0) return { ...checked, placeOf };
  const located = problems.map((problem) => locate(problem, placeOf, overrides));
  return { ok: false, problems: located, rest: checked.ok ? checked.config : checked.rest, placeOf };
}

/** A problem has its place in the file, unless a variable of the environment brought the setting. */
function locate(
  { setting, message }: InputProblem,
  placeOf: (setting: string) => Place | null,
  overrides: ReadonlyMap<string, string>,
): ConfigProblem {
  const variable = [...overrides].find(([overridden]) => isReported(overridden, [{ setting, message }]))?.[1];
  if (variable === undefined) return { setting, message, place: placeOf(setting) };
  return { setting, message: `${message} (set by ${variable})`, place: null };
}

function refuseFiles(): never {
  throw new Error("files of secrets are not read here");
}

const wording = { error: describeFinding };

/** Checks a value of the shape of the file, including the relations between settings. */
export function checkConfig(input: unknown): ConfigResult {
  const retired = takeRetired(input);
  const parsed = configSchema.safeParse(retired.input, wording);
  const problems = parsed.success
    ? []
    : firstFindings(parsed.error.issues)
        .flatMap(problemsOfIssue)
        .map((one) => withNearestName(one, retired.input));
  const valid = parsed.success
    ? parsed
    : configSchema.safeParse(withoutInvalid(retired.input, parsed.error.issues), wording);
  const rest = valid.success ? valid.data : null;
  const all = rest === null ? problems : [...problems, ...relationProblems(rest, problems)];
  if (rest !== null && all.length === 0)
    return { ok: true, config: rest, retired: retired.warnings(rest), placeOf: nowhere };
  return { ok: false, problems: all.map((problem) => ({ ...problem, place: null })), rest, placeOf: nowhere };
}

// -------------------------------------------------------------------------------------- misspelt settings

/** Names the setting that was probably meant. */
function withNearestName(problem: InputProblem, input: unknown): InputProblem {
  if (problem.message !== "unknown setting") return problem;
  const [section = "", name] = problem.setting.split(".");
  const settings = listSettings();
  if (name === undefined)
    return { ...problem, message: unknownAtTop(section, isTable(input) && isTable(input[section])) };
  const known = settings.filter((one) => one.section === section).map((one) => one.name);
  const nearest = nearestName(name, known);
  if (nearest !== null) return { ...problem, message: `unknown setting${meant(name, known)}` };
  const elsewhere = settings.find((one) => one.name === name);
  if (elsewhere === undefined) return problem;
  return { ...problem, message: `unknown setting here; [${elsewhere.section}] has one of that name` };
}

function unknownAtTop(name: string, isSection: boolean): string {
  const settings = listSettings();
  const sections = [...new Set(settings.map(({ section }) => section)), "stores"];
  const nearest = nearestName(name, sections);
  if (isSection)
    return nearest === null
      ? `unknown section; there are ${sections.join(", ")}`
      : `unknown section; did you mean [${nearest}]?`;
  const owner = settings.find((one) => one.name === name);
  if (owner !== undefined) return `stands outside of a section; write it under [${owner.section}]`;
  return "unknown setting outside of a section";
}

// --------------------------------------------------------------------------------------- the valid rest

type Issue = z.core.$ZodIssue;

/** Stands in for the plugin of a store without one, so that references to the store still resolve. */
const unknownPlugin = "(unknown)";

/**
 * Drops invalid settings, so that the remaining ones are checked in the same run. Inside a section a setting
 * is dropped as a whole.
 */
function withoutInvalid(input: unknown, issues: readonly Issue[]): unknown {
  const copy: unknown = structuredClone(input);
  if (!isTable(copy)) return {};
  const paths = issues.flatMap((issue) =>
    issue.code === "unrecognized_keys" ? issue.keys.map((key) => [...issue.path, key]) : [issue.path],
  );
  for (const [section, name, ...inner] of paths.map((path) => path.map(String))) {
    if (section === undefined) continue;
    const table = copy[section];
    if (name === undefined || !isTable(table)) delete copy[section];
    else if (section !== "stores") delete table[name];
    else if (inner.length === 0 && isTable(table[name])) delete table[name];
    else table[name] = { ...(isTable(table[name]) ? table[name] : {}), plugin: unknownPlugin };
  }
  return copy;
}
