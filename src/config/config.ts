/**
 * Reads a configuration: the file, what the environment overrides, the schema, and the relations between
 * settings. Every independent problem is reported in one run, each with its setting and its place.
 */
import type { z } from "zod";
import type { InputProblem } from "../storage/contract.ts";
import { describeFinding, firstFindings, meant, nearestName, problemsOfIssue } from "../storage/setting-problem.ts";
import { listSettings } from "./reference.ts";
import { isReported, relationProblems } from "./relations.ts";
import { type Config, configSchema, type SectionName } from "./schema.ts";
import { isTable, overrideFromEnvironment, type Place, parseSource, readSecretFiles } from "./source.ts";

export type ConfigProblem = InputProblem & {
  /** `null` when the setting is not in the file. */
  readonly place: Place | null;
};

type ConfigResult =
  | {
      readonly ok: true;
      readonly config: Config;
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
  const further = [...readSecretFiles(input, readFile), ...misspeltVariables(env)];
  const checked = checkConfig(input);
  const problems = [...further, ...(checked.ok ? [] : checked.problems)];
  if (checked.ok && problems.length === 0) return { ...checked, placeOf };
  const located = problems.map((problem) => locate(problem, placeOf, overrides));
  return { ok: false, problems: located, rest: checked.ok ? checked.config : checked.rest, placeOf };
}

/** A problem has its place in the file, unless a variable of the environment set it. */
function locate(
  { setting, message }: InputProblem,
  placeOf: (setting: string) => Place | null,
  overrides: ReadonlyMap<string, string>,
): ConfigProblem {
  const variable = [...overrides].find(([overridden]) => isReported(overridden, [{ setting, message }]))?.[1];
  if (variable === undefined) return { setting, message, place: placeOf(setting) };
  return { setting, message: `${message} (set by ${variable})`, place: null };
}

/** An override with one underscore too few would be ignored. */
function misspeltVariables(env: Readonly<Record<string, string | undefined>>): InputProblem[] {
  const settings = listSettings().flatMap(({ section, name }) => {
    const variable = `WAYPOST_${section}_${name}`.toUpperCase();
    const message = `${variable} is not read: write WAYPOST_${section.toUpperCase()}__${name.toUpperCase()}`;
    return env[variable] === undefined ? [] : [{ setting: `${section}.${name}`, message }];
  });
  const stores = Object.keys(env).filter((variable) => /^WAYPOST_STORES_[A-Z0-9]/.test(variable));
  const message = (variable: string) => `${variable} is not read: write WAYPOST_STORES__<NAME>__<OPTION>`;
  return [...settings, ...stores.map((variable) => ({ setting: "stores", message: message(variable) }))];
}

function refuseFiles(): never {
  throw new Error("files of secrets are not read here");
}

const wording = { error: describeFinding };

/** Checks a value of the shape of the file, including the relations between settings. */
export function checkConfig(input: unknown): ConfigResult {
  const parsed = configSchema.safeParse(input, wording);
  const problems = parsed.success
    ? []
    : firstFindings(parsed.error.issues)
        .flatMap(problemsOfIssue)
        .map((one) => withNearestName(one, input));
  const valid = parsed.success ? parsed : configSchema.safeParse(withoutInvalid(input, parsed.error.issues), wording);
  const rest = valid.success ? valid.data : null;
  const all = rest === null ? problems : [...problems, ...relationProblems(rest, problems)];
  if (rest !== null && all.length === 0) return { ok: true, config: rest, placeOf: nowhere };
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
  if (owner !== undefined) return `is outside of every section; write it under [${owner.section}]`;
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

// ----------------------------------------------------------------------------------------------- changes while running

// Nodes hold the sections of the configuration and read a setting where they use it. So a changed setting is written
// into the section that everybody holds. All other settings shape listeners, stores or tables that are made once.

/** What is created once at the start: listeners, stores, the bus, and the identity and sources of the nodes. */
const fixed: { readonly [Name in SectionName]?: readonly (keyof Config[Name] & string)[] } = {
  server: ["listen", "admin_listen", "share_port"],
  // With a change in two steps, a stranger's page could change policies in between.
  directory: ["enabled", "store", "ledger", "unsigned_updates"],
  relay: [
    "enabled",
    "store",
    "recipients",
    "public_id",
    "public_endpoints",
    "allow_http",
    "allow_private",
    "ignore_proxy_variables",
    "destination_requests_max",
  ],
  cache: ["enabled", "store", "recipients", "public_endpoints", "signing_key_file", "wake_url"],
};

/** `test/http/settings.test.ts` sees that a running node reads every one of them again. */
function isReloadable(section: SectionName, name: string): boolean {
  const names: readonly string[] = fixed[section] ?? [];
  return section !== "bus" && !names.includes(name);
}

export type ReloadPlan = {
  /** Settings that change now, as `section.name`. */
  readonly changed: readonly string[];
  /** Settings that differ and need a restart. */
  readonly needsRestart: readonly string[];
};

/** Compares two configurations; changes nothing. */
export function decideReload(current: Config, next: Config): ReloadPlan {
  const changed: string[] = [];
  const needsRestart: string[] = [];
  for (const { section, name } of listSettings()) {
    const [before, after] = [current, next].map((config): unknown => Reflect.get(config[section], name));
    if (JSON.stringify(before) === JSON.stringify(after)) continue;
    const isTaken = isReloadable(section, name) && !(name.startsWith("tls_") && [before, after].includes(null));
    (isTaken ? changed : needsRestart).push(`${section}.${name}`);
  }
  for (const section of ["stores", "bus"] as const)
    if (JSON.stringify(current[section]) !== JSON.stringify(next[section])) needsRestart.push(section);
  return { changed, needsRestart };
}

/** Writes the settings of `plan.changed`, and the constants that follow from them, into the sections that nodes hold. */
export function applyReload(current: Config, next: Config, plan: ReloadPlan): void {
  const settings = new Set(listSettings().map(({ section, name }) => `${section}.${name}`));
  for (const setting of plan.changed) {
    const [section, name] = setting.split(".") as [SectionName, string];
    Reflect.set(current[section], name, Reflect.get(next[section], name));
    const constants = Object.keys(next[section]).filter((one) => !settings.has(`${section}.${one}`));
    for (const constant of constants) Reflect.set(current[section], constant, Reflect.get(next[section], constant));
  }
}
