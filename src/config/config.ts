/**
 * Reads a configuration: the file, what the environment overrides, the schema, and the relations between
 * settings. All problems of one kind are reported together, each with its setting and its place. Also what a running
 * process takes over from a changed configuration.
 */
import type { InputProblem } from "../storage/contract.ts";
import { describeFinding, firstFindings, meant, problemsOfIssue } from "../storage/setting-problem.ts";
import { relationProblems } from "./checks.ts";
import { listSettings } from "./reference.ts";
import { type Config, configSchema, type SectionName, sectionNames } from "./schema.ts";
import { type Environment, overrideFromEnvironment, type Position, parseSource, readSecretFiles } from "./source.ts";

export type ConfigProblem = InputProblem & {
  /** `null` when the setting is not in the file. */
  readonly place: Position | null;
};

type Placed = { readonly placeOf: (setting: string) => Position | null };
type ConfigResult = Placed &
  (
    | { readonly ok: true; readonly config: Config }
    | {
        readonly ok: false;
        readonly problems: readonly ConfigProblem[];
      }
  );

type ConfigSurroundings = {
  readonly env?: Environment;
  /** Reads a file of secrets; throws when it can't be read. */
  readonly readFile?: (path: string) => string;
};

const nowhere = (): null => null;

/** Reads the text of a TOML file, with the overrides of `env`. */
export function parseConfig(text: string, { env = {}, readFile = refuseFiles }: ConfigSurroundings = {}): ConfigResult {
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
    const variable = [...variables].find(([overridden]) => `${setting}.`.startsWith(`${overridden}.`))?.[1];
    if (variable === undefined) return { setting, message, place: placeOf(setting) };
    return { setting, message: `${message} (set by ${variable})`, place: null };
  };
  const problems = [...further, ...(checked.ok ? [] : checked.problems)].map(locate);
  return { ok: false, problems, placeOf };
}

function refuseFiles(): never {
  throw new Error("files of secrets are not read here");
}

/** An override with one underscore too few would be ignored. Commands have variables of addresses. */
function* misspeltVariables(env: Environment): Generator<InputProblem> {
  for (const wrong of Object.keys(env)) {
    const [, section = "", name = ""] = /^WAYPOST_([A-Z]+)_([A-Z0-9]\w*)$/.exec(wrong) ?? [];
    if (!tables.includes(section.toLowerCase()) || /^WAYPOST_(DIRECTORY|RELAY|CACHE)_URL$/.test(wrong)) continue;
    const setting = `${section}.${name}`.toLowerCase();
    const right = section === "STORES" ? name.replace("_", "__") : name;
    yield { setting, message: `${wrong} is not read: write WAYPOST_${section}__${right}` };
  }
}

const tables: readonly string[] = [...sectionNames, "stores"];
const wording = { error: describeFinding };

/** Checks a value of the shape of the file: every setting by itself, and then, if all are valid, their relations. */
export function checkConfig(input: unknown): ConfigResult {
  const parsed = configSchema.safeParse(input, wording);
  const problems = parsed.success
    ? relationProblems(parsed.data)
    : firstFindings(parsed.error.issues).flatMap(problemsOfIssue).map(withNearestName);
  if (parsed.success && problems.length === 0) return { ok: true, config: parsed.data, placeOf: nowhere };
  return { ok: false, problems: problems.map((problem) => ({ ...problem, place: null })), placeOf: nowhere };
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

// ----------------------------------------------------------------------------------------------- changes while running

// Nodes hold the sections of the configuration and read a setting where they use it. So a changed setting is written
// into the section that everybody holds. `test/http/settings.test.ts` sees that a running node reads each of them again.

/** What is created once at the start: listeners, stores, the bus, and the identity and sources of the nodes. */
const fixed: { readonly [Name in SectionName]: readonly (keyof Config[Name] & string)[] } = {
  server: ["listen", "admin_listen", "tls_cert_file", "tls_key_file", "recipients", "app"],
  bus: ["plugin"],
  limits: [],
  // With a change in two steps, a stranger's page could change policies in between.
  directory: ["enabled", "store", "ledger", "unsigned_updates", "log_key_file", "log_witnesses", "public_endpoint"],
  relay: ["enabled", "store", "public_id", "public_endpoints", "allow_http", "allow_private"],
  cache: ["enabled", "store", "public_endpoints", "signing_key_file"],
  push: ["enabled"],
  witness: ["key_file", "store", "logs"],
};

export type ReloadPlan = {
  /** Settings that change now, as `section.name`. */
  readonly changed: readonly string[];
  /** Settings that differ and need a restart. */
  readonly needsRestart: readonly string[];
};

/** Compares two configurations; changes nothing. */
export function decideReload(current: Config, next: Config): ReloadPlan {
  const [changed, needsRestart]: [string[], string[]] = [[], []];
  const isSame = (before: unknown, after: unknown) => JSON.stringify(before) === JSON.stringify(after);
  for (const { section, name } of listSettings()) {
    const [before, after] = [current, next].map((config): unknown => Reflect.get(config[section], name));
    if (isSame(before, after)) continue;
    const isFixed = (fixed[section] as readonly string[]).includes(name);
    (isFixed ? needsRestart : changed).push(`${section}.${name}`);
  }
  for (const section of ["stores", "bus"] as const)
    if (!isSame(current[section], next[section])) needsRestart.push(section);
  return { changed, needsRestart };
}

/** Writes what `plan` changes, and the constants that follow from it, into the sections that nodes hold. */
export function applyReload(current: Config, next: Config, { changed, needsRestart }: ReloadPlan): void {
  for (const section of sectionNames) {
    if (!changed.some((setting) => setting.startsWith(`${section}.`))) continue;
    const taken = Object.entries(next[section]).filter(([name]) => !needsRestart.includes(`${section}.${name}`));
    Object.assign(current[section], Object.fromEntries(taken));
  }
}
