/**
 * Reading a configuration: a file is read whole, unknown settings are refused, and every problem is
 * reported at once under the name of its setting.
 */
import { parse as parseToml, TomlError } from "smol-toml";
import type { z } from "zod";
import type { InputProblem } from "../storage/contract.ts";
import { describeFinding, problemsOfIssue } from "../storage/setting-problem.ts";
import { relationProblems } from "./relations.ts";
import { withoutWrong } from "./rest.ts";
import { type Config, configSchema } from "./schema.ts";

export type ConfigResult =
  | { readonly ok: true; readonly config: Config }
  | {
      readonly ok: false;
      readonly problems: readonly InputProblem[];
      /** The configuration as it is without the wrong settings, for who looks for more problems in it. */
      readonly rest: Config | null;
    };

/** Reads the text of a TOML file. */
export function parseConfig(text: string): ConfigResult {
  let input: unknown;
  try {
    input = parseToml(text);
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    const [what = ""] = error.message.replace("Invalid TOML document: ", "").split("\n");
    const hint = what.includes("numeric literal") ? "; texts, durations and addresses stand in quotes" : "";
    const message = `line ${error.line}, column ${error.column}: ${what}${hint}`;
    return { ok: false, problems: [{ setting: "(file)", message }], rest: null };
  }
  return checkConfig(input);
}

const wording = { error: describeFinding };

/** Checks a value of the shape of the file, its relations included. */
export function checkConfig(input: unknown): ConfigResult {
  const parsed = configSchema.safeParse(input, wording);
  if (!parsed.success) return checkRest(input, parsed.error.issues);
  const problems = relationProblems(parsed.data, []);
  return problems.length === 0 ? { ok: true, config: parsed.data } : { ok: false, problems, rest: parsed.data };
}

function checkRest(input: unknown, issues: readonly z.core.$ZodIssue[]): ConfigResult {
  const problems = issues.flatMap(problemsOfIssue);
  const wrong = issues.flatMap((issue) =>
    issue.code === "unrecognized_keys" ? issue.keys.map((key) => [...issue.path, key]) : [issue.path],
  );
  const rest = configSchema.safeParse(withoutWrong(input, wrong), wording);
  if (!rest.success) return { ok: false, problems, rest: null };
  return { ok: false, problems: [...problems, ...relationProblems(rest.data, problems)], rest: rest.data };
}
