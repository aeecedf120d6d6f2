/**
 * Reads a configuration: the file, what the environment overrides, the schema, and the relations between
 * settings. Every independent problem is reported in one run, each with its setting and its place.
 */
import type { z } from "zod";
import { minuteMs, secondMs } from "../core/codec/time.ts";
import type { InputProblem } from "../storage/contract.ts";
import { describeFinding, firstFindings, meant, nearestName, problemsOfIssue } from "../storage/setting-problem.ts";
import { constants } from "./constants.ts";
import { listSettings } from "./reference.ts";
import { isReported, relationProblems } from "./relations.ts";
import { type Config, configSchema, parseDurationSetting, renderDurationSetting, type SectionName } from "./schema.ts";
import { isTable, overrideFromEnvironment, type Place, parseSource, readSecretFiles, type Table } from "./source.ts";

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

function refuseFiles(): never {
  throw new Error("files of secrets are not read here");
}

const wording = { error: describeFinding };

/** Checks a value of the shape of the file, including the relations between settings. */
export function checkConfig(input: unknown): ConfigResult {
  const retired = removeRetired(input);
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

// ---------------------------------------------------------------------------------------- settings of earlier versions

// A file or a variable that names one does not keep a node from starting: the value is removed or moved before the
// schema sees it, and a warning names what counts now.

/** Several durations of earlier versions that are one now. */
type Merged = {
  readonly from: readonly string[];
  readonly to: string;
  readonly defaultMs: number;
  readonly minMs: number;
};

const merged: readonly Merged[] = [
  {
    from: ["directory.clock_skew", "relay.clock_skew", "cache.clock_skew", "limits.clock_ahead"],
    to: "limits.clock_skew",
    defaultMs: 5 * minuteMs,
    minMs: secondMs,
  },
];

/** Settings whose feature is gone, and what applies now. */
const removed: Readonly<Record<string, string>> = {
  "server.reserved_requests_max": "a quarter of server.requests_max applies",
  "server.arriving_max": "16384 bodies may arrive at once",
  "server.refusals_max": "4096 refusals may wait at once",
  "server.refusal_delay": "500ms applies",
  "relay.cache_reserve": "two fifths of relay.delivery_budget are kept for the Cache",
  "relay.destination_queue_max": "32 requests may wait for one destination",
  "relay.outbound_requests_max": "256 requests may be under way at once",
  "relay.peer_listen": "processes reach each other over the [bus]",
  "relay.peers": "processes reach each other over the [bus]",
  "cache.summary_entries_max": "1000 applies",
  "cache.ack_ids_max": "1000 applies",
};

type Retired = {
  /** `input` without the retired settings. */
  readonly input: unknown;
  /** What counts now, once the configuration is known. */
  readonly warnings: (config: Config) => InputProblem[];
};

/** Removes retired settings from a copy of the file's value. */
function removeRetired(input: unknown): Retired {
  if (!isTable(input)) return { input, warnings: () => [] };
  const rest: Table = structuredClone(input);
  const replaced = merged.flatMap((one) => merge(rest, one));
  const unused = Object.keys(removed).filter((setting) => removeSetting(rest, setting) !== undefined);
  const dropped = constantNames().filter((setting) => removeSetting(rest, setting) !== undefined);
  return {
    input: rest,
    warnings: (config) => [
      ...replaced.map(({ setting, to }) => ({
        setting,
        message: `is no longer a setting: ${to} = "${renderSetting(config, to)}" applies`,
      })),
      ...unused.map((setting) => ({ setting, message: withoutEffect(removed[setting] ?? "") })),
      ...dropped.map((setting) => ({ setting, message: withoutEffect(`${renderSetting(config, setting)} applies`) })),
    ],
  };
}

function withoutEffect(instead: string): string {
  return `is no longer a setting and has no effect: ${instead}`;
}

/** The shortest of several values counts, unless the new setting is there. */
function merge(input: Table, { from, to, defaultMs, minMs }: Merged): { setting: string; to: string }[] {
  const found = from.map((setting) => ({ setting, value: removeSetting(input, setting) }));
  const present = found.filter(({ value }) => value !== undefined);
  const [section = "", name = ""] = to.split(".");
  const table = isTable(input[section]) ? input[section] : {};
  if (present.length > 0 && table[name] === undefined) {
    const values = present.map(({ value }) => (typeof value === "string" ? parseDurationSetting(value) : null));
    const shortestMs = Math.max(minMs, Math.min(...values.map((ms) => ms ?? defaultMs)));
    input[section] = { ...table, [name]: renderDurationSetting(shortestMs) };
  }
  return present.map(({ setting }) => ({ setting, to }));
}

function removeSetting(input: Table, setting: string): unknown {
  const [section = "", name = ""] = setting.split(".");
  const table = input[section];
  if (!isTable(table) || !Object.hasOwn(table, name)) return undefined;
  const value = table[name];
  delete table[name];
  return value;
}

function constantNames(): string[] {
  return Object.entries(constants).flatMap(([section, own]) => Object.keys(own).map((name) => `${section}.${name}`));
}

function renderSetting(config: Config, setting: string): string {
  const [section = "", name = ""] = setting.split(".");
  const value: unknown = Reflect.get(Reflect.get(config, section), name);
  const constant: unknown = Reflect.get(Reflect.get(constants, section) ?? {}, name);
  const isCount = isTable(constant) && constant["form"] === "count";
  return typeof value === "number" && !isCount ? renderDurationSetting(value) : String(value);
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
  for (const setting of plan.changed) {
    const [section, name] = setting.split(".") as [SectionName, string];
    Reflect.set(current[section], name, Reflect.get(next[section], name));
    for (const constant of Object.keys(Reflect.get(constants, section) ?? {}))
      Reflect.set(current[section], constant, Reflect.get(next[section], constant));
  }
}
