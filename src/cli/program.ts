/**
 * The commands of `waypost`: each file in this folder registers its own. The exit code is 0, 1 when
 * a command failed or was misused, 2 on timeout.
 */
import { Command, Help, type Option } from "commander";
import { notices, version } from "../version.ts";
import { asksForJson, endingOf, print } from "./command.ts";

/** Options that can't be left out say so. */
function describeOption(option: Option): string {
  const text = new Help().optionDescription(option);
  return option.mandatory ? `${text} (required)` : text;
}

/** Shown below the help of the commands with which people begin. */
const examples: Readonly<Record<string, string>> = {
  "did create": "--name alice --url https://waypost.example.org",
  send: "--to bob --file report.pdf --as alice",
  receive: "--out inbox --wait-for 5m --as bob",
  init: "--url https://waypost.example.org --out /etc/waypost",
  "device link": "--as alice",
};

function addExamples(program: Command): void {
  for (const [words, flags] of Object.entries(examples)) {
    const step = (at: Command | undefined, word: string) =>
      at?.commands.find((one) => one.name() === word);
    const command = words.split(" ").reduce<Command | undefined>(step, program);
    command?.addHelpText("after", `\nExample:\n  waypost ${words} ${flags}`);
  }
}

/** A node loads no other command: that would be four mebibytes of its memory. */
const loadServing = async () => (await import("./serve.ts")).registerServeCommands;
const loadAll: readonly (() => Promise<(program: Command) => void>)[] = [
  async () => (await import("./did.ts")).registerDidCommand,
  async () => (await import("./send.ts")).registerSendCommand,
  async () => (await import("./receive.ts")).registerReceiveCommands,
  async () => (await import("./explain.ts")).registerExplainCommand,
  async () => (await import("./key.ts")).registerKeyCommand,
  async () => (await import("./device.ts")).registerDeviceCommand,
  async () => (await import("./backup.ts")).registerBackupCommands,
  async () => (await import("./init.ts")).registerInitCommand,
  loadServing,
  async () => (await import("./config.ts")).registerConfigCommand,
  async () => (await import("./doctor.ts")).registerDoctorCommand,
  async () => (await import("./operations.ts")).registerOperationsCommands,
  async () => (await import("./invite.ts")).registerInviteCommands,
  async () => (await import("./members.ts")).registerMembersCommand,
  async () => (await import("./reports.ts")).registerReportsCommand,
  async () => (await import("./audit.ts")).registerAuditCommand,
  async () => (await import("./maintenance.ts")).registerMaintenanceCommand,
  async () => (await import("./notice.ts")).registerNoticeCommand,
  async () => (await import("./storage.ts")).registerStorageCommand,
  async () => (await import("./chain.ts")).registerChainCommand,
  async () => (await import("./release.ts")).registerReleaseCommand,
];

export async function createProgram(json: boolean, wanted?: string): Promise<Command> {
  const program = new Command("waypost")
    .description("End-to-end encrypted messaging: Directory, Relay and Cache in one executable")
    .version(version)
    .exitOverride()
    .configureHelp({ optionDescription: describeOption })
    .showHelpAfterError("Add --help to see how the command is used.");
  // With --json the failure line of `command.ts` reports usage errors; the
  // parser must print nothing.
  program.configureOutput({ writeOut: print, ...(json ? { writeErr: () => undefined } : {}) });
  const loads = wanted === "serve" || wanted === "dev" ? [loadServing] : loadAll;
  for (const register of await Promise.all(loads.map((load) => load()))) register(program);
  program
    .command("licenses")
    .description("print the licenses of everything that this program contains")
    .action(() => void print(`${notices}\n`));
  addExamples(program);
  return program;
}

/** Runs the command that `argv` names and answers its exit code. */
export async function runProgram(argv: readonly string[]): Promise<number> {
  const json = asksForJson(argv.slice(2));
  try {
    const program = await createProgram(json, argv[2]);
    await program.parseAsync([...argv]);
    return 0;
  } catch (error) {
    const { text, exitCode } = endingOf(error, json);
    if (text !== null) console.error(text);
    return exitCode;
  }
}
