/**
 * `waypost config check` and `config show`: whether a configuration file holds, and what it comes to
 * with every default. Reading a file and reporting its problems is shared with `serve`.
 */

import type { Command } from "commander";
import { failed } from "../app/failure.ts";
import { checkStores } from "../app/stores.ts";
import { parseConfig } from "../config/config.ts";
import { renderEffective, renderReference } from "../config/reference.ts";
import { isTold } from "../config/rest.ts";
import type { Config } from "../config/schema.ts";
import { errorText } from "../core/std/error-text.ts";
import { readText } from "./files/files.ts";
import { countOf } from "./report.ts";

export const defaultConfigFile = "waypost.toml";

export function registerConfigCommand(program: Command): void {
  const config = program.command("config").description("check a configuration file or show what it comes to");
  config
    .command("check")
    .description("report every problem of a configuration file")
    .option("-c, --config <file>", "configuration file", defaultConfigFile)
    .action(async (options: { config: string }) => {
      await readConfig(options.config);
      console.log(`${options.config}: no problems`);
    });
  config
    .command("show")
    .description("print every setting with the value that holds")
    .option("-c, --config <file>", "configuration file", defaultConfigFile)
    .action(async (options: { config: string }) => {
      console.log(renderEffective(await readConfig(options.config)));
    });
  config
    .command("reference")
    .description("print every setting with its default and meaning, in Markdown")
    .action(() => {
      console.log(renderReference());
    });
}

/** The configuration of a file; throws a failure that lists every problem, those of the stores included. */
export async function readConfig(file: string): Promise<Config> {
  const result = parseConfig(await readConfigFile(file));
  const told = result.ok ? [] : result.problems;
  const config = result.ok ? result.config : result.rest;
  const ofStores = config === null ? [] : await checkStores(config);
  const problems = [...told, ...ofStores.filter(({ setting }) => !isTold(setting, told))];
  if (config === null || problems.length > 0) throw problemReport(file, problems);
  return config;
}

async function readConfigFile(file: string): Promise<string> {
  const text = await readText(file).catch((error: unknown) => {
    throw failed(`${file} can't be read: ${errorText(error)}`);
  });
  if (text === null) throw failed(`${file}: there is no such file`);
  return text;
}

function problemReport(file: string, problems: readonly { setting: string; message: string }[]) {
  const lines = problems.map(({ setting, message }) => `  ${setting}: ${message}`);
  return failed([`${file}: ${countOf(problems.length, "problem")}`, ...lines].join("\n"));
}
