/**
 * `waypost key`: single Ed25519 keys in files of mode 0600. That of a Cache, which
 * signs its events, is the 32-byte seed in hex; those of logs and witnesses have the
 * form of Go's `note` package.
 */
import { chown, readFile, rename, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { ed25519 } from "@noble/curves/ed25519.js";
import { type Command, InvalidArgumentError, Option } from "commander";
import { failed } from "../app/failure.ts";
import { createDurably, readText, removeIfThere, syncFolder } from "../app/files.ts";
import {
  previousKeysFile,
  pushKeyOf,
  readNoteSigner,
  readPreviousKeys,
  readSeed,
  renderPreviousKeys,
} from "../app/keys.ts";
import { parseDurationSetting } from "../config/kinds.ts";
import { renderPublicKey } from "../core/codec/bytes.ts";
import { dayMs } from "../core/codec/time.ts";
import { nextName } from "../core/trust/log.ts";
import {
  type NoteKey,
  noteKey,
  parseSignerKey,
  renderSignerKey,
  renderVerifierKey,
} from "../core/trust/note.ts";
import { createReport } from "./command.ts";

type KeyFlags = { readonly json?: boolean };
type NewFlags = KeyFlags & { readonly log?: string; readonly witness?: string };

export function registerKeyCommand(program: Command): void {
  const key = program.command("key").description("manage signing keys in files");
  const command = (name: string, description: string): Command =>
    key
      .command(`${name} <file>`)
      .description(description)
      .option("--json", "print the result as JSON");
  command("new", "create a key file; never replaces an existing one")
    .option(
      "--log <name>",
      "the key of a Directory's log, whose name is its address without https://",
    )
    .option("--witness <name>", "the key of a witness")
    .action(async (file: string, flags: NewFlags) => {
      const seed = ed25519.utils.randomSecretKey();
      const key = noteKeyOf(flags, ed25519.getPublicKey(seed));
      const text = key === null ? seed.toHex() : renderSignerKey(key, seed);
      if (!(await createDurably(file, `${text}\n`))) throw failed(`${file} already exists`);
      if (key === null) showPublic(file, seed, flags);
      else showNoteKey(file, key, flags);
    });
  command("show", "print the public key of a key file, or the vkey of a log or a witness").action(
    showKey,
  );
  command(
    "rotate",
    "replace the key of event proofs; the old public key stays published for a while",
  )
    .addOption(
      new Option(
        "--overlap <duration>",
        "how long clients should still accept the old key: 7d, 30d",
      )
        .argParser(parseOverlap)
        .default(30 * dayMs, "30d"),
    )
    .action(rotateKeyFile);
  command("restart-log", "name the log of a key anew, after entries were lost for good").action(
    restartLog,
  );
}

/** `null` for the key of a Cache, which has no name. */
function noteKeyOf({ log, witness }: NewFlags, publicKey: Uint8Array): NoteKey | null {
  const name = log ?? witness;
  if (name === undefined) return null;
  const key = noteKey(name, log === undefined ? "witness" : "log", publicKey);
  if (key === null) throw failed("a name has 1 to 255 characters without spaces and +");
  return key;
}

function showNoteKey(file: string, key: NoteKey, flags: KeyFlags): void {
  const vkey = renderVerifierKey(key);
  createReport(flags.json === true).result({ file, vkey }, vkey);
}

/** Of any kind: of a Cache, of pushes (by the end of its name), of a log or a witness. */
async function showKey(file: string, flags: KeyFlags): Promise<void> {
  const parsed = parseSignerKey(((await readText(file)) ?? "").trim());
  if (parsed !== null) {
    const { key } = await readNoteSigner(file, parsed.type);
    return showNoteKey(file, key, flags);
  }
  const seed = await readSeed(file);
  if (!file.endsWith(".push")) return showPublic(file, seed, flags);
  const { publicKey } = await pushKeyOf(file, seed);
  createReport(flags.json === true).result({ file, push_key: publicKey }, publicKey);
}

/** The head that was signed last stays next to the key: the new log names it. */
async function restartLog(file: string, flags: KeyFlags): Promise<void> {
  const { key: before } = await readNoteSigner(file, "log");
  const seed = parseSignerKey((await readFile(file, "utf8")).trim())?.bytes;
  const key = noteKey(nextName(before.name), "log", before.publicKey);
  if (seed === undefined || key === null) throw failed(`${file} holds no key of a log`);
  await replaceOwned(file, `${renderSignerKey(key, seed)}\n`, await stat(file));
  showNoteKey(file, key, flags);
}

/** From a day to a year: `7d`, `12w`. */
function parseOverlap(text: string): number {
  const ms = parseDurationSetting(text) ?? 0;
  if (ms < dayMs || ms > 366 * dayMs) throw new InvalidArgumentError("It must be from 1d to 366d.");
  return ms;
}

/**
 * The previous public key is on disk before the new key replaces it: an interrupted command can be
 * repeated. The previous secret is gone afterwards.
 */
async function rotateKeyFile(
  file: string,
  flags: KeyFlags & { readonly overlap: number },
): Promise<void> {
  const previous = renderPublicKey(ed25519.getPublicKey(await readSeed(file)));
  const untilMs = Date.now() + flags.overlap;
  const previousKeys = (await readPreviousKeys(file)).filter(
    (one) => one.publicKey !== previous && one.untilMs > Date.now(),
  );
  const owner = await stat(file);
  await replaceOwned(
    previousKeysFile(file),
    renderPreviousKeys([...previousKeys, { publicKey: previous, untilMs }]),
    owner,
  );
  const seed = ed25519.utils.randomSecretKey();
  await replaceOwned(file, `${seed.toHex()}\n`, owner);
  const publicKey = renderPublicKey(ed25519.getPublicKey(seed));
  const until = new Date(untilMs).toISOString();
  const text = `${publicKey} signs from the next start of the node on; ${previous} is published until ${until}`;
  createReport(flags.json === true).result(
    { file, public_key: publicKey, previous, valid_until: until },
    text,
  );
}

/**
 * Run as root, the new file gets the owner of the previous one, which may be the user of a service.
 */
async function replaceOwned(
  path: string,
  text: string,
  owner: { uid: number; gid: number },
): Promise<void> {
  const made = `${path}.new`;
  await removeIfThere(made);
  if (!(await createDurably(made, text))) throw failed(`${made} already exists`);
  if (process.getuid?.() === 0) await chown(made, owner.uid, owner.gid);
  await rename(made, path);
  await syncFolder(dirname(path));
}

function showPublic(file: string, seed: Uint8Array, flags: KeyFlags): void {
  const publicKey = renderPublicKey(ed25519.getPublicKey(seed));
  createReport(flags.json === true).result({ file, public_key: publicKey }, publicKey);
}
