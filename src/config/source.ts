/**
 * Where settings come from: a TOML file, variables of the environment
 * (`WAYPOST_<SECTION>__<SETTING>`) that override it, and files that hold secrets
 * (`<setting>_file`). The result is one untrusted value for the schema, and the place of
 * each setting in the file.
 */
import { type AST, getStaticTOMLValue, ParseError, parseTOML } from "toml-eslint-parser";
import { errorText } from "../core/fault.ts";
import type { InputProblem } from "../storage/setting-problem.ts";

/** Line and column in the file, both from 1. */
export type Position = { readonly line: number; readonly column: number };

type ConfigSource = {
  readonly input: Readonly<Record<string, unknown>>;
  /**
   * The place of a setting (`server.listen.0`) or of the nearest table around it; `null`
   * when it is not in the file.
   */
  readonly placeOf: (setting: string) => Position | null;
};

export type EnvironmentVariables = Readonly<Record<string, string | undefined>>;

type SourceResult =
  | { readonly ok: true; readonly source: ConfigSource }
  | { readonly ok: false; readonly problem: InputProblem & { readonly place: Position | null } };

export type TomlTable = Record<string, unknown>;

function isTable(value: unknown): value is TomlTable {
  return (
    typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Date)
  );
}

/** Reads the text of a TOML file. */
export function parseSource(text: string): SourceResult {
  try {
    // Editors of some systems put a byte order mark in front.
    const program = parseTOML(text.replace(/^\ufeff/, ""));
    const positions = positionsIn(program);
    const unsafe = [...positions].find(([setting]) => setting.split(".").includes("__proto__"));
    if (unsafe !== undefined) {
      // The parser's values are plain objects: this name would change the prototype of
      // every object of the process.
      const [setting, place] = unsafe;
      return { ok: false, problem: { setting, message: "unknown setting", place } };
    }
    const input = getStaticTOMLValue(program) as TomlTable;
    return {
      ok: true,
      source: { input, placeOf: (setting) => nearestPosition(positions, setting) },
    };
  } catch (error) {
    if (!(error instanceof ParseError)) throw error;
    const place = { line: error.lineNumber, column: error.column + 1 };
    return { ok: false, problem: { setting: "(file)", message: error.message, place } };
  }
}

// --------------------------------------------------------------------------------------- positions

function positionsIn(program: AST.TOMLProgram): Map<string, Position> {
  const positions = new Map<string, Position>();
  const put = (path: readonly (string | number)[], { start }: AST.SourceLocation): void => {
    const setting = path.join(".");
    if (!positions.has(setting))
      positions.set(setting, { line: start.line, column: start.column + 1 });
  };
  const value = (path: readonly (string | number)[], node: AST.TOMLContentNode): void => {
    if (node.type === "TOMLArray") {
      node.elements.forEach((element, index) => {
        put([...path, index], element.loc);
        value([...path, index], element);
      });
    } else if (node.type === "TOMLInlineTable") pairs(path, node.body);
  };
  const pairs = (path: readonly (string | number)[], body: readonly AST.TOMLKeyValue[]): void => {
    for (const pair of body) {
      const keys = pair.key.keys.map((key) => (key.type === "TOMLBare" ? key.name : key.value));
      put([...path, ...keys], pair.loc);
      value([...path, ...keys], pair.value);
    }
  };
  for (const node of program.body[0].body) {
    if (node.type === "TOMLKeyValue") pairs([], [node]);
    else {
      put(node.resolvedKey, node.loc);
      pairs(node.resolvedKey, node.body);
    }
  }
  return positions;
}

function nearestPosition(
  positions: ReadonlyMap<string, Position>,
  setting: string,
): Position | null {
  const parts = setting.split(".");
  while (parts.length > 0) {
    const place = positions.get(parts.join("."));
    if (place !== undefined) return place;
    parts.pop();
  }
  // A section that has only sections of its own.
  return [...positions].find(([one]) => one.startsWith(`${setting}.`))?.[1] ?? null;
}

// ------------------------------------------------------------------------------------- environment

const variablePattern = /^WAYPOST_([A-Z][A-Z0-9_]*?)__([A-Z0-9_]+)$/;

/**
 * Puts every variable `WAYPOST_<SECTION>__<SETTING>` over the input:
 * `WAYPOST_SERVER__LOG_LEVEL=debug`, `WAYPOST_STORES__MAIN__PATH=/data`. A value is read as
 * TOML when it is TOML, otherwise as text, so `["a", "b"]`, `true` and `12` need no quotes.
 * Returns the variable behind each overridden setting.
 */
export function overrideFromEnvironment(
  input: TomlTable,
  env: EnvironmentVariables,
): Map<string, string> {
  const variables = new Map<string, string>();
  for (const [name, text] of Object.entries(env).sort()) {
    const match = variablePattern.exec(name);
    if (match === null || text === undefined) continue;
    const path = `${match[1]}__${match[2]}`.toLowerCase().split("__");
    const table = path.slice(0, -1).reduce((outer, section) => {
      if (!isTable(outer[section])) outer[section] = {};
      return outer[section] as TomlTable;
    }, input);
    table[path.at(-1) as string] = parseVariable(text);
    variables.set(path.join("."), name);
  }
  return variables;
}

function parseVariable(text: string): unknown {
  if (!/^(\[|\{|"|'|[+-]?\d|true$|false$)/.test(text)) return text;
  const parsed = parseSource(`value = ${text}`);
  const value = parsed.ok ? parsed.source.input["value"] : text;
  return value instanceof Date ? text : value;
}

// ----------------------------------------------------------------------------------------- secrets

/**
 * Options of stores and of the bus that may be in a file of their own: `url_file =
 * "/run/secrets/url"`.
 */
export const secretSettings = ["url", "user", "password", "token"] as const;

/** Replaces each `<secret>_file` by the text of that file, without the line break at its end. */
export function* readSecretFiles(
  input: TomlTable,
  readFile: (path: string) => string,
): Generator<InputProblem> {
  const stores = Object.entries(isTable(input["stores"]) ? input["stores"] : {});
  for (const [section, table] of [
    ...stores.map(([name, store]) => [`stores.${name}`, store]),
    ["bus", input["bus"]],
  ])
    for (const secret of isTable(table) ? secretSettings : []) {
      const { [`${secret}_file`]: path, [secret]: given } = table as TomlTable;
      if (typeof path !== "string") continue;
      delete (table as TomlTable)[`${secret}_file`];
      const setting = `${section}.${secret}_file`;
      try {
        if (given !== undefined)
          yield { setting, message: `cannot be combined with ${secret}; keep one of the two` };
        else (table as TomlTable)[secret] = readFile(path).replace(/\r?\n$/, "");
      } catch (error) {
        yield { setting, message: `${path} can't be read: ${errorText(error)}` };
      }
    }
}
