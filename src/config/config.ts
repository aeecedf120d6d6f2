/**
 * Reads a configuration: the file, what the environment overrides, the schema, and the
 * relations between settings. All problems of one kind are reported together, each with its
 * setting and its place. Also what a running process takes over from a changed
 * configuration.
 */
import { type InputProblem, meant, problemsOfIssue, wording } from "../storage/setting-problem.ts";
import { relationProblems } from "./checks.ts";
import { cacheConstants, directoryConstants, relayConstants } from "./constants.ts";
import { listSettings } from "./reference.ts";
import { type Config, configSchema, sectionNames } from "./schema.ts";
import {
  type EnvironmentVariables,
  overrideFromEnvironment,
  type Position,
  parseSource,
  readSecretFiles,
} from "./source.ts";

export type ConfigProblem = InputProblem & {
  /** `null` when the setting is not in the file. */
  readonly place: Position | null;
};

type SettingPlaces = { readonly placeOf: (setting: string) => Position | null };
type ConfigResult = SettingPlaces &
  (
    | { readonly ok: true; readonly config: Config }
    | {
        readonly ok: false;
        readonly problems: readonly ConfigProblem[];
      }
  );

type ConfigSurroundings = {
  readonly env?: EnvironmentVariables;
  /** Reads a file of secrets; throws when it can't be read. */
  readonly readFile?: (path: string) => string;
};

const nowhere = (): null => null;

/** Reads the text of a TOML file, with the overrides of `env`. */
export function parseConfig(
  text: string,
  { env = {}, readFile = refuseFiles }: ConfigSurroundings = {},
): ConfigResult {
  const parsed = parseSource(text);
  if (!parsed.ok) return { ok: false, problems: [parsed.problem], placeOf: nowhere };
  const { placeOf } = parsed.source;
  const input = structuredClone(parsed.source.input);
  const variables = overrideFromEnvironment(input, env);
  const further = [...readSecretFiles(input, readFile), ...misspeltVariables(env)];
  const checked = checkConfig(input);
  if (checked.ok && further.length === 0) return { ...checked, placeOf };
  // A problem has its place in the file, unless a variable of the environment set it.
  const locate = ({ setting, message }: InputProblem): ConfigProblem => {
    const variable = [...variables].find(([overridden]) =>
      `${setting}.`.startsWith(`${overridden}.`),
    )?.[1];
    if (variable === undefined) return { setting, message, place: placeOf(setting) };
    return { setting, message: `${message} (set by ${variable})`, place: null };
  };
  const problems = [...further, ...(checked.ok ? [] : checked.problems)].map(locate);
  return { ok: false, problems, placeOf };
}

function refuseFiles(): never {
  throw new Error("files of secrets are not read here");
}

/**
 * An override with one underscore too few would be ignored. Commands have variables of
 * addresses.
 */
function* misspeltVariables(env: EnvironmentVariables): Generator<InputProblem> {
  for (const wrong of Object.keys(env)) {
    if (/^waypost_\w+__\w+$/i.test(wrong) && wrong !== wrong.toUpperCase())
      yield {
        setting: wrong.slice("waypost_".length).replaceAll("__", ".").toLowerCase(),
        message: `${wrong} is not read: write ${wrong.toUpperCase()}`,
      };
    const [, section = "", name = ""] = /^WAYPOST_([A-Z]+)_([A-Z0-9]\w*)$/.exec(wrong) ?? [];
    if (
      !tables.includes(section.toLowerCase()) ||
      /^WAYPOST_(DIRECTORY|RELAY|CACHE)_URL$/.test(wrong)
    )
      continue;
    const setting = `${section}.${name}`.toLowerCase();
    const right = section === "STORES" ? name.replace(/_+/, "__") : name;
    yield { setting, message: `${wrong} is not read: write WAYPOST_${section}__${right}` };
  }
}

const tables: readonly string[] = [...sectionNames, "stores", "tiers"];
/**
 * Checks a value of the shape of the file: every setting by itself, and then, if all are
 * valid, their relations.
 */
export function checkConfig(input: unknown): ConfigResult {
  const parsed = configSchema.safeParse(input, wording);
  const problems = parsed.success
    ? relationProblems(parsed.data)
    : parsed.error.issues.flatMap(problemsOfIssue).map(withNearestName);
  if (parsed.success && problems.length === 0)
    return { ok: true, config: parsed.data, placeOf: nowhere };
  return {
    ok: false,
    problems: problems.map((problem) => ({ ...problem, place: null })),
    placeOf: nowhere,
  };
}

/** Names the setting or the section that was probably meant. */
function withNearestName({ setting, message }: InputProblem): InputProblem {
  if (message !== "unknown setting") return { setting, message };
  const [section = "", name] = setting.split(".");
  const names = listSettings().filter((one) => one.section === section);
  return {
    setting,
    message:
      message +
      (name === undefined
        ? meant(section, tables)
        : meant(
            name,
            names.map((one) => one.name),
          )),
  };
}

// --------------------------------------------------------------------------- changes while running

/**
 * What an operator changes in a hurry: who may register, how much, and what is logged. A
 * restart takes half a second.
 */
const live: readonly string[] = [
  "server.log_level",
  "server.admin_groups",
  "directory.registration",
  "directory.registration_rate",
  ...["directory.aliases", "directory.reserved_aliases", "directory.alias_interval"],
  ...["operator.did", "operator.contact", "operator.rules", "operator.welcome"],
  ...["relay.client_rate", "relay.recipient_rate", "cache.client_rate"],
  ...["directory", "relay", "cache"].map((section) => `${section}.rate_limit_loopback`),
];

export type ReloadPlan = {
  /** Settings that change now, as `section.name`. */
  readonly changed: readonly string[];
  /** Settings that differ and need a restart. */
  readonly needsRestart: readonly string[];
};

/**
 * Writes what can change, and the constants that follow from it, into the sections that
 * nodes hold.
 */
export function reload(current: Config, next: Config): ReloadPlan {
  const isOther = (before: unknown, after: unknown) =>
    JSON.stringify(before) !== JSON.stringify(after);
  const plan: Record<keyof ReloadPlan, string[]> = { changed: [], needsRestart: [] };
  for (const { section, name } of listSettings()) {
    const [before, after] = [current, next].map((config): unknown =>
      Reflect.get(config[section], name),
    );
    if (!isOther(before, after)) continue;
    const isLive = live.includes(`${section}.${name}`);
    plan[isLive ? "changed" : "needsRestart"].push(`${section}.${name}`);
    if (isLive) Reflect.set(current[section], name, after);
  }
  if (isOther(current.tiers, next.tiers)) {
    plan.changed.push("tiers");
    for (const tier of Object.keys(current.tiers)) delete current.tiers[tier];
    Object.assign(current.tiers, next.tiers);
  }
  for (const section of ["stores", "bus"] as const)
    if (isOther(current[section], next[section])) plan.needsRestart.push(section);
  Object.assign(current.directory, directoryConstants(current.directory));
  Object.assign(current.relay, relayConstants(current.relay));
  Object.assign(current.cache, cacheConstants(current.cache));
  return plan;
}
