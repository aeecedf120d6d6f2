/**
 * The commands of `waypost`: each file beside this one registers its own. The exit code is 0, 1 when a
 * command failed or was misused, 2 when it waited in vain.
 */
import { Command, Help, type Option } from "commander";
import { version } from "../version.ts";
import { registerBenchCommand } from "./bench.ts";
import { registerConfigCommand } from "./config.ts";
import { registerDidCommand } from "./did.ts";
import { registerDoctorCommand } from "./doctor.ts";
import { registerExplainCommand } from "./explain.ts";
import { registerInitCommand } from "./init.ts";
import { registerKeyCommand } from "./key.ts";
import {
  registerBlockCommand,
  registerHealthCommand,
  registerReloadCommand,
  registerTopCommand,
} from "./operations.ts";
import {
  registerListenCommand,
  registerPurgeCommand,
  registerQueryCommand,
  registerReceiveCommand,
} from "./receive.ts";
import { asksForJson, endingOf } from "./report.ts";
import { registerSendCommand } from "./send.ts";
import { registerDevCommand, registerServeCommand } from "./serve.ts";
import { registerStorageCommand } from "./storage.ts";

/** Options that can't be left out say so. */
function describeOption(option: Option): string {
  const text = new Help().optionDescription(option);
  return option.mandatory ? `${text} (required)` : text;
}

function createProgram(json: boolean): Command {
  const program = new Command("waypost")
    .description("End-to-end encrypted messaging: Directory, Relay and Cache in one executable")
    .version(version)
    .exitOverride()
    .configureHelp({ optionDescription: describeOption })
    .showHelpAfterError("Add --help to see how the command is used.");
  // With --json the failure line of `report.ts` reports usage errors; the parser must print nothing.
  if (json) program.configureOutput({ writeErr: () => undefined });
  registerDidCommand(program);
  registerSendCommand(program);
  registerReceiveCommand(program);
  registerListenCommand(program);
  registerQueryCommand(program);
  registerPurgeCommand(program);
  registerExplainCommand(program);
  registerKeyCommand(program);
  registerInitCommand(program);
  registerServeCommand(program);
  registerDevCommand(program);
  registerConfigCommand(program);
  registerDoctorCommand(program);
  registerHealthCommand(program);
  registerTopCommand(program);
  registerReloadCommand(program);
  registerBlockCommand(program);
  registerStorageCommand(program);
  registerBenchCommand(program);
  return program;
}

/** Runs the command that `argv` names and answers its exit code. */
export async function runProgram(argv: readonly string[]): Promise<number> {
  const json = asksForJson(argv.slice(2));
  try {
    await createProgram(json).parseAsync([...argv]);
    return 0;
  } catch (error) {
    const { text, exitCode } = endingOf(error, json);
    if (text !== null) console.error(text);
    return exitCode;
  }
}
