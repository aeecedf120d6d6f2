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

type Register = (program: Command) => void;
/** A file of commands: the names that it registers, and how it is loaded. */
type Commands = { readonly names: readonly string[]; readonly load: () => Promise<Register> };

/**
 * A command that is named loads no other: a command of the SDK starts in half of the time, and a
 * node does without four mebibytes of memory. Help lists them in this order.
 */
const all: readonly Commands[] = [
  { names: ["did"], load: async () => (await import("./did.ts")).registerDidCommand },
  { names: ["send"], load: async () => (await import("./send.ts")).registerSendCommand },
  {
    names: ["receive", "query", "purge"],
    load: async () => (await import("./receive.ts")).registerReceiveCommands,
  },
  { names: ["explain"], load: async () => (await import("./explain.ts")).registerExplainCommand },
  { names: ["key"], load: async () => (await import("./key.ts")).registerKeyCommand },
  { names: ["device"], load: async () => (await import("./device.ts")).registerDeviceCommand },
  {
    names: ["backup-identity", "restore-identity"],
    load: async () => (await import("./backup.ts")).registerBackupCommands,
  },
  { names: ["init"], load: async () => (await import("./init.ts")).registerInitCommand },
  { names: ["serve", "dev"], load: async () => (await import("./serve.ts")).registerServeCommands },
  { names: ["config"], load: async () => (await import("./config.ts")).registerConfigCommand },
  { names: ["doctor"], load: async () => (await import("./doctor.ts")).registerDoctorCommand },
  {
    names: ["reload", "log", "block", "health"],
    load: async () => (await import("./operations.ts")).registerOperationsCommands,
  },
  {
    names: ["invite", "erase"],
    load: async () => (await import("./invite.ts")).registerInviteCommands,
  },
  { names: ["members"], load: async () => (await import("./members.ts")).registerMembersCommand },
  { names: ["reports"], load: async () => (await import("./reports.ts")).registerReportsCommand },
  { names: ["audit"], load: async () => (await import("./audit.ts")).registerAuditCommand },
  {
    names: ["maintenance"],
    load: async () => (await import("./maintenance.ts")).registerMaintenanceCommand,
  },
  { names: ["notice"], load: async () => (await import("./notice.ts")).registerNoticeCommand },
  { names: ["storage"], load: async () => (await import("./storage.ts")).registerStorageCommand },
  { names: ["chain"], load: async () => (await import("./chain.ts")).registerChainCommand },
  {
    names: ["verify-release"],
    load: async () => (await import("./release.ts")).registerReleaseCommand,
  },
];

/** `wanted`: the command that will run; without it, or where none has that name, all are there. */
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
  const named = all.filter(({ names }) => wanted !== undefined && names.includes(wanted));
  const loads = (named.length > 0 ? named : all).map(({ load }) => load());
  for (const register of await Promise.all(loads)) register(program);
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
