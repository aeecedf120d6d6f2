/**
 * The commands of `waypost`: each file beside this one registers its own. The exit code is 0, 1 when a
 * command failed or was misused, 2 on timeout.
 */
import { Command, Help, type Option } from "commander";
import { notices, version } from "../version.ts";
import { asksForJson, endingOf, print } from "./command.ts";

/** Options that can't be left out say so. */
function describeOption(option: Option): string {
  const text = new Help().optionDescription(option);
  return option.mandatory ? `${text} (required)` : text;
}

/** One for each command, shown below its help. */
const examples = [
  "did create --name alice --url https://waypost.example.org",
  "did show alice",
  "did list",
  "did rotate --as alice",
  `did change AddService '{"service":{"id":"#cache","type":"SvcCacheService","serviceEndpoint":["https://cache.example.org"]}}' --as alice`,
  "did alias add alice.example --as alice",
  "did alias remove alice.example --as alice",
  "did deactivate --as alice",
  "did delete --as alice",
  "did fingerprint bob --as alice",
  "did forget bob.example --as alice",
  "send --to bob --file report.pdf --as alice",
  "receive --out inbox --wait-for 5m --as bob",
  "query --as bob",
  "purge --all --as bob",
  "explain bob --config /etc/waypost/waypost.toml",
  "key new signing.key",
  "key show signing.key",
  "key rotate signing.key --overlap 30d",
  "key restart-log log.key",
  "init --url https://waypost.example.org --out /etc/waypost --yes",
  "serve --config /etc/waypost/waypost.toml",
  "dev",
  "config check --config /etc/waypost/waypost.toml",
  "config show --config /etc/waypost/waypost.toml",
  "config reference",
  "config schema > waypost.schema.json",
  "doctor --config /etc/waypost/waypost.toml",
  "health https://waypost.example.org --wait 60s",
  "reload --config /etc/waypost/waypost.toml",
  "log did:svc:1111111111111111111111 /var/log/waypost.log --config /etc/waypost/waypost.toml",
  "block add 203.0.113.0/24 --reason flood --config /etc/waypost/waypost.toml",
  "block remove 203.0.113.0/24 --config /etc/waypost/waypost.toml",
  "block list --config /etc/waypost/waypost.toml",
  "backup-identity alice.backup --passphrase-file secret --as alice",
  "restore-identity alice.backup --passphrase-file secret --as alice",
  "device link --as alice",
  "device accept --name laptop waypost-link~did:svc:...",
  "device list",
  "device remove did:svc:... --yes",
  "invite create --uses 5 --expires 7d --config /etc/waypost/waypost.toml",
  "invite list --config /etc/waypost/waypost.toml",
  "invite revoke 3f9a02 --config /etc/waypost/waypost.toml",
  "erase did:svc:1111111111111111111111 --config /etc/waypost/waypost.toml",
  "storage migrate --config /etc/waypost/waypost.toml",
  "storage backup --to /backup/waypost-monday --config /etc/waypost/waypost.toml",
  "storage restore --from /backup/waypost-monday --config /etc/waypost/waypost.toml",
  "storage verify --config /etc/waypost/waypost.toml",
  "storage export --to waypost.jsonl --config /etc/waypost/waypost.toml",
  "storage import --from waypost.jsonl --config /etc/waypost/waypost.toml",
  "storage move-places --to east --places 1-511 --config /etc/waypost/waypost.toml",
  "storage top --config /etc/waypost/waypost.toml",
  "chain spec network.json --out network.raw.json",
  "licenses",
];

function addExamples(program: Command): void {
  for (const example of examples) {
    let command = program;
    for (const word of example.split(" ")) command = command.commands.find((one) => one.name() === word) ?? command;
    // Of a command that is not loaded, nothing is known.
    if (command !== program) command.addHelpText("after", `\nExample:\n  waypost ${example}`);
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
  async () => (await import("./storage.ts")).registerStorageCommand,
  async () => (await import("./chain.ts")).registerChainCommand,
];

export async function createProgram(json: boolean, wanted?: string): Promise<Command> {
  const program = new Command("waypost")
    .description("End-to-end encrypted messaging: Directory, Relay and Cache in one executable")
    .version(version)
    .exitOverride()
    .configureHelp({ optionDescription: describeOption })
    .showHelpAfterError("Add --help to see how the command is used.");
  // With --json the failure line of `command.ts` reports usage errors; the parser must print nothing.
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
