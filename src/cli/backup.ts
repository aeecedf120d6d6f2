/**
 * `waypost backup-identity` and `restore-identity`: the keys of an identity of this machine, and
 * its local store where it has one, in one sealed file.
 * Source: docs/client.md "Lost and found".
 */
import { existsSync } from "node:fs";
import { open, readFile, rm } from "node:fs/promises";
import { type Command, Option } from "commander";
import { failed } from "../app/failure.ts";
import { backup, restore } from "../client/identity/backup.ts";
import type { Choosing } from "../client/identity/replacement.ts";
import { renderIdentity } from "../client/keys/keys.ts";
import { Table } from "../client/store/table.ts";
import { addIdentityFlag, clientCommand, parseName } from "./command.ts";
import type { CommandSession } from "./command-session.ts";
import { confirmed, type KeptFlags, noteKept } from "./did-change.ts";
import { fileKeys } from "./files/files.ts";
import { fileStore, storePath } from "./files/store.ts";

type SecretFlags = { readonly passphraseFile: string };

export function registerBackupCommands(program: Command): void {
  const secret = [
    "--passphrase-file <file>",
    "file whose first line is the passphrase, or a printed code",
  ] as const;
  const save = program
    .command("backup-identity <file>")
    .description("write the keys and the history of an identity into one sealed file")
    .requiredOption(...secret);
  clientCommand(addIdentityFlag(save), backupIdentity);
  const back = program
    .command("restore-identity <file>")
    .description(
      "bring back an identity from such a file; where the others are lost, with new keys",
    )
    .requiredOption(...secret)
    .addOption(
      new Option("--others <state>", "other devices that had it: lost, or they remain")
        .choices(["lost", "remain"])
        .makeOptionMandatory(),
    )
    .option("--method <id...>", "a method in its document that stays when all keys are new")
    .option(
      "--service <id...>",
      "a service in its document that stays, though it is at another node",
    )
    .option("--yes", "do not ask for confirmation of what goes")
    .option("--as <name>", "what to call the identity here", parseName, "default");
  clientCommand(back, restoreIdentity);
}

async function passphraseIn({ passphraseFile }: SecretFlags): Promise<string> {
  return (await readFile(passphraseFile, "utf8")).split(/\r?\n/)[0] ?? "";
}

async function backupIdentity(
  session: CommandSession,
  flags: SecretFlags,
  to: string,
): Promise<void> {
  const { keysFolder, report } = session;
  const passphrase = await passphraseIn(flags);
  const identity = await session.identity();
  const { name, did, storeKey } = identity;
  const driver = fileStore(storePath(keysFolder, name));
  const file = await open(to, "wx", 0o600);
  let bytes = 0;
  try {
    const table = await Table.open(driver, storeKey);
    for await (const piece of backup(renderIdentity(identity), table, passphrase)) {
      await file.writeFile(piece);
      bytes += piece.length;
    }
    await file.sync();
  } catch (error) {
    await rm(to, { force: true });
    throw error;
  } finally {
    await file.close();
    await driver.close();
  }
  report.result({ ok: true, name, did, file: to, bytes }, `${name} is in ${to}: ${bytes} bytes`);
}

type RestoreFlags = SecretFlags &
  KeptFlags & {
    readonly as: string;
    readonly others: "lost" | "remain";
    readonly yes?: boolean;
  };

async function restoreIdentity(
  { keysFolder, report, directoryUrl, relayUrl, cacheUrl }: CommandSession,
  { as: name, others, yes = false, ...flags }: RestoreFlags,
  from: string,
): Promise<void> {
  if (!existsSync(from)) throw failed(`${from}: there is no such file`);
  const store = fileStore(storePath(keysFolder, name));
  try {
    const passphrase = await passphraseIn(flags);
    const keys = fileKeys(keysFolder);
    const areOthersLost = others === "lost";
    const choose: Choosing = async (shown) => {
      const { goes, kept } = noteKept(report, shown, flags);
      const isAsked = goes > 0 && process.stdin.isTTY === true;
      if (isAsked) confirmed(`Bring ${name} back with new keys, without these?`, { yes });
      return kept;
    };
    const urls = { directoryUrl, relayUrl, cacheUrl };
    const options = { passphrase, keys, name, store, areOthersLost, ...urls, choose };
    const { did, isHistoryOnly } = await restore(Bun.file(from).stream(), options);
    const text = isHistoryOnly
      ? `the keys of ${did} were replaced after this backup: link this device, which then has the history`
      : `${name} is ${did}`;
    report.result({ ok: true, name, did, history_only: isHistoryOnly }, text);
  } finally {
    await store.close();
  }
}
