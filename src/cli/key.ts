/**
 * `waypost key`: single Ed25519 keys in files, for operators (a Cache that signs its events) and for
 * signing on a machine that has no network. A file holds the 32-byte seed in hex and has mode 0600.
 */
import { ed25519 } from "@noble/curves/ed25519.js";
import type { Command } from "commander";
import { failed } from "../app/failure.ts";
import { decodeHex, encodeBase64 } from "../core/codec/bytes.ts";
import { renderPublicKey } from "../core/codec/public-key.ts";
import { createDurably, readText } from "./files/files.ts";
import { createReport } from "./report.ts";

type KeyFlags = { readonly json?: boolean; readonly payload?: string };

export function registerKeyCommand(program: Command): void {
  const key = program.command("key").description("single signing keys in files");
  key
    .command("new <file>")
    .description("make a key; an existing file is never replaced")
    .option("--json", "print the result as JSON")
    .action(async (file: string, flags: KeyFlags) => {
      const seed = ed25519.utils.randomSecretKey();
      if (!(await createDurably(file, `${seed.toHex()}\n`))) throw failed(`${file} already exists`);
      showPublic(file, seed, flags);
    });
  key
    .command("show <file>")
    .description("the public key of a key file")
    .option("--json", "print the result as JSON")
    .action(async (file: string, flags: KeyFlags) => showPublic(file, await readSeed(file), flags));
  key
    .command("sign <file>")
    .description("sign bytes, such as payload_to_sign of a preparation")
    .requiredOption("--payload <hex>", "the bytes as 0x hex")
    .option("--json", "print the result as JSON")
    .action(async (file: string, flags: KeyFlags) => {
      const payload = decodeHex(flags.payload ?? "");
      if (payload === null) throw failed("--payload must be hex");
      const signature = encodeBase64(ed25519.sign(payload, await readSeed(file)));
      createReport(flags.json === true).result({ signature }, signature);
    });
}

function showPublic(file: string, seed: Uint8Array, flags: KeyFlags): void {
  const publicKey = renderPublicKey(ed25519.getPublicKey(seed));
  createReport(flags.json === true).result({ file, public_key: publicKey }, publicKey);
}

async function readSeed(file: string): Promise<Uint8Array> {
  const text = await readText(file);
  if (text === null) throw failed(`${file}: there is no such file`);
  const seed = decodeHex(text.trim());
  if (seed?.length !== 32) throw failed(`${file} does not hold a 32-byte seed in hex`);
  return seed;
}
