/**
 * `waypost key`: single Ed25519 keys in files, for a Cache that signs its events and for signing on a machine without a
 * network; a file holds the 32-byte seed in hex, mode 0600.
 */
import { chown, rename, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { ed25519 } from "@noble/curves/ed25519.js";
import { type Command, InvalidArgumentError, Option } from "commander";
import { previousKeysFile, readPreviousKeys, readSeed, renderPreviousKeys } from "../app/credentials.ts";
import { failed } from "../app/failure.ts";
import { parseDurationSetting } from "../config/schema.ts";
import { decodeHex, encodeBase64, renderPublicKey } from "../core/codec/bytes.ts";
import { dayMs } from "../core/codec/time.ts";
import { createReport } from "./command.ts";
import { createDurably, removeIfThere, syncFolder } from "./files/files.ts";

type KeyFlags = { readonly json?: boolean };

export function registerKeyCommand(program: Command): void {
  const key = program.command("key").description("manage signing keys in files");
  const command = (name: string, description: string): Command =>
    key.command(`${name} <file>`).description(description).option("--json", "print the result as JSON");
  command("new", "create a key file; never replaces an existing one").action(async (file: string, flags: KeyFlags) => {
    const seed = ed25519.utils.randomSecretKey();
    if (!(await createDurably(file, `${seed.toHex()}\n`))) throw failed(`${file} already exists`);
    showPublic(file, seed, flags);
  });
  command("show", "print the public key of a key file").action(async (file: string, flags: KeyFlags) =>
    showPublic(file, await readSeed(file), flags),
  );
  command("rotate", "replace the key of event proofs; the old public key stays published for a while")
    .addOption(
      new Option("--overlap <duration>", "how long clients should still accept the old key: 7d, 30d")
        .argParser(parseOverlap)
        .default(30 * dayMs, "30d"),
    )
    .action(rotate);
  command("sign", "sign bytes, such as payload_to_sign of a preparation")
    .requiredOption("--payload <hex>", "the bytes as 0x hex")
    .action(async (file: string, { payload, json = false }: KeyFlags & { readonly payload: string }) => {
      const bytes = decodeHex(payload);
      if (bytes === null) throw failed("--payload must be hex");
      const signature = encodeBase64(ed25519.sign(bytes, await readSeed(file)));
      createReport(json).result({ signature }, signature);
    });
}

/** From a day to a year: `7d`, `12w`. */
function parseOverlap(text: string): number {
  const ms = parseDurationSetting(text) ?? 0;
  if (ms < dayMs || ms > 366 * dayMs) throw new InvalidArgumentError("It must be from 1d to 366d.");
  return ms;
}

/**
 * The previous public key is on disk before the new key replaces it: an interrupted command can be repeated. The
 * previous secret is gone afterwards.
 */
async function rotate(file: string, flags: KeyFlags & { readonly overlap: number }): Promise<void> {
  const previous = renderPublicKey(ed25519.getPublicKey(await readSeed(file)));
  const untilMs = Date.now() + flags.overlap;
  const kept = (await readPreviousKeys(file)).filter((one) => one.publicKey !== previous && one.untilMs > Date.now());
  const owner = await stat(file);
  await replaceOwned(previousKeysFile(file), renderPreviousKeys([...kept, { publicKey: previous, untilMs }]), owner);
  const seed = ed25519.utils.randomSecretKey();
  await replaceOwned(file, `${seed.toHex()}\n`, owner);
  const publicKey = renderPublicKey(ed25519.getPublicKey(seed));
  const until = new Date(untilMs).toISOString();
  const text = `${publicKey} signs from the next "waypost reload" on; ${previous} is published until ${until}`;
  createReport(flags.json === true).result({ file, public_key: publicKey, previous, valid_until: until }, text);
}

/** Run as root, the new file gets the owner of the previous one, which may be the user of a service. */
async function replaceOwned(path: string, text: string, owner: { uid: number; gid: number }): Promise<void> {
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
