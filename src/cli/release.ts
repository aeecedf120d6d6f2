/**
 * `waypost verify-release`: checks downloaded files against `SHA256SUMS` and its signature, without
 * a network. The signature is minisign's, so `minisign -V` checks the same one.
 */
import { existsSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import type { Command } from "commander";
import { sha256 } from "#sha256";
import { failed } from "../app/failure.ts";
import { readText } from "../app/files.ts";
import { encodeHex, equalBytes, utf8 } from "../core/codec/bytes.ts";
import {
  isSignedBy,
  parseReleaseKey,
  parseReleaseKeys,
  parseReleaseSignature,
  parseSums,
  type ReleaseKey,
} from "../core/trust/release.ts";
import { countOf, createReport } from "./command.ts";
import projectKeys from "./release-keys.txt" with { type: "text" };

type VerifyFlags = { readonly key?: string; readonly sums: string; readonly json?: boolean };

/** `keys` is the list of the project's public keys. */
export function registerReleaseCommand(program: Command, keys = projectKeys): void {
  program
    .command("verify-release")
    .argument("[files...]", "files to check; without any, those of the release that are there")
    .description("check files of a release against its signed sums, without a network")
    .option(
      "--key <key>",
      "minisign public key, or a file that holds it, in the place of the project's",
    )
    .option("--sums <file>", "the list of sums; its signature lies next to it", "SHA256SUMS")
    .option("--json", "print the result as JSON")
    .action((files: string[], flags: VerifyFlags) => verifyRelease(files, flags, keys));
}

async function verifyRelease(
  files: readonly string[],
  flags: VerifyFlags,
  list: string,
): Promise<void> {
  const keys = flags.key === undefined ? listedKeys(list) : [await namedKey(flags.key)];
  const sumsFile = resolve(flags.sums);
  const sumsText = await readNeeded(sumsFile);
  const signature = parseReleaseSignature(await readNeeded(`${sumsFile}.minisig`));
  if (signature === null)
    throw failed(`${sumsFile}.minisig is not a signature of minisign 0.6 or newer`);
  const key = keys.find(({ id }) => equalBytes(signature.keyId, id));
  if (key === undefined) throw failed(`${sumsFile} is signed with another key`);
  if (!isSignedBy(key, signature, utf8(sumsText)))
    throw failed(`the signature of ${sumsFile} does not hold; don't use these files`);

  const sums = parseSums(sumsText);
  if (sums === null) throw failed(`${sumsFile} is not a list of SHA-256 sums`);
  const wanted = files.length > 0 ? files : filesNextTo(sumsFile, sums);
  if (wanted.length === 0) throw failed(`no file that ${sumsFile} names lies next to it`);
  for (const file of wanted) await checkReleaseFile(file, sums.get(basename(file)));

  const names = wanted.map((file) => basename(file));
  const count = `${countOf(names.length, "file")} as released`;
  createReport(flags.json === true).result(
    { release: signature.comment, files: names },
    [signature.comment, ...names, count].join("\n"),
  );
}

/** Of the project, as this program was built with them. */
function listedKeys(list: string): readonly ReleaseKey[] {
  const keys = parseReleaseKeys(list) ?? [];
  if (keys.length > 0) return keys;
  throw failed(
    "this program was built before the project had a key of releases: name one by --key",
  );
}

async function namedKey(named: string): Promise<ReleaseKey> {
  const key = parseReleaseKey((await readText(named)) ?? named);
  if (key === null)
    throw failed(`${named} is neither a public key of minisign nor a file with one`);
  return key;
}

async function readNeeded(file: string): Promise<string> {
  const text = await readText(file);
  if (text === null) throw failed(`${file} does not exist`);
  return text;
}

function filesNextTo(sumsFile: string, sums: ReadonlyMap<string, string>): string[] {
  const paths = [...sums.keys()].map((name) => join(dirname(sumsFile), name));
  return paths.filter((path) => existsSync(path));
}

async function checkReleaseFile(file: string, sum: string | undefined): Promise<void> {
  if (sum === undefined) throw failed(`${basename(file)} is not part of this release`);
  if (!existsSync(file)) throw failed(`${file} does not exist`);
  const hash = sha256.create();
  for await (const part of Bun.file(file).stream()) hash.update(part);
  if (encodeHex(hash.digest()) !== sum)
    throw failed(`${file} is not the file that was released; don't use it`);
}
