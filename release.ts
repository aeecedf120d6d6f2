/**
 * Everything that is released, by one command: `bun run release`. The executables of all platforms, packages of npm
 * and of Debian, an OCI image of this machine's platform, and `SHA256SUMS` over all of them, in `dist/`.
 * `--platforms own` makes this machine's alone, and `--fast` compresses less, as the tests do. `--key` signs with a key of the
 * project, and with another one only by `--trial`.
 */
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { parseArgs } from "node:util";
import { makeDeb } from "./packaging/deb.ts";
import { readManifest } from "./packaging/notices.ts";
import { makeNpmPackages } from "./packaging/npm.ts";
import { makeOciImage } from "./packaging/oci.ts";
import { ownPlatform, type Platform, platforms } from "./packaging/platforms.ts";
import { run } from "./packaging/run.ts";
import { renderSbom } from "./packaging/sbom.ts";
import releaseKeys from "./src/cli/release-keys.txt" with { type: "text" };
import {
  isSignedBy,
  parseReleaseKey,
  parseReleaseKeys,
  parseReleaseSignature,
} from "./src/core/trust/release.ts";

const { values } = parseArgs({
  options: {
    platforms: { type: "string", default: "all" },
    fast: { type: "boolean", default: false },
    key: { type: "string" },
    trial: { type: "boolean", default: false },
  },
});
const dist = join(import.meta.dir, "dist");
const own = ownPlatform();
const released = values.platforms === "own" ? [own] : platforms;

const unlisted = "src/cli/release-keys.txt does not list this key (--trial signs with any)";
if (values.key !== undefined && !values.trial) checkListed(values.key);

for (const { target, file } of released) {
  run(
    [process.execPath, "build.ts", "--target", target, "--outfile", join("dist", file)],
    import.meta.dir,
  );
  say(file);
}
const packing = {
  sourceDateSeconds: sourceDateSeconds(),
  compression: values.fast ? 1 : 6,
} as const;
const artifacts = released.map(({ file }) => join(dist, file));
for (const folder of makeNpmPackages(released)) artifacts.push(pack(folder));
for (const platform of released.filter(isDebian)) artifacts.push(say(makeDeb(platform, packing)));
if (own.libc === "glibc") artifacts.push(say(makeOciImage(own, packing)));
const { version } = readManifest(import.meta.dir);
const sbom = join(dist, `waypost-${version}.cdx.json`);
writeFileSync(sbom, renderSbom(packing.sourceDateSeconds));
artifacts.push(say(sbom));

const sums = join(dist, "SHA256SUMS");
writeFileSync(sums, artifacts.map(sumOf).join(""));
say(sums);
rmSync(`${sums}.minisig`, { force: true });
if (values.key !== undefined) {
  signSums(values.key);
  say(`${sums}.minisig`);
}

function isDebian({ os, libc }: Platform): boolean {
  return os === "linux" && libc === "glibc" && Bun.which("dpkg-deb") !== null;
}

/**
 * By the packer of Bun, whose compression is chosen; npm's takes 8 s of a processor for one
 * executable.
 */
function pack(folder: string): string {
  const level = ["--gzip-level", values.fast ? "1" : "9"];
  const words = [process.execPath, "pm", "pack", "--quiet", ...level, "--destination", dist];
  const archive = basename(run(words, folder).trim());
  const path = join(dist, `npm-${archive}`);
  renameSync(join(dist, archive), path);
  return say(path);
}

/** The signature covers version and commit too. */
function signSums(key: string): void {
  const commit = run(["git", "rev-parse", "HEAD"], import.meta.dir).trim();
  const words = [
    "minisign",
    "-S",
    "-s",
    key,
    "-m",
    sums,
    "-t",
    `waypost ${version}, commit ${commit}`,
  ];
  const { success } = Bun.spawnSync(words, { stdio: ["inherit", "inherit", "inherit"] });
  if (!success) throw new Error("minisign did not sign the sums");
  if (!values.trial) checkKey();
}

/** Before the build, which takes minutes. The key's passphrase is asked for here, and once more by the signature. */
function checkListed(key: string): void {
  const listed = parseReleaseKeys(releaseKeys) ?? [];
  if (listed.length === 0) throw new Error(unlisted);
  const folder = mkdtempSync(join(tmpdir(), "waypost-release-"));
  try {
    const file = join(folder, "release.pub");
    const words = ["minisign", "-R", "-s", key, "-p", file];
    const { success } = Bun.spawnSync(words, { stdio: ["inherit", "inherit", "inherit"] });
    const own = success ? parseReleaseKey(readFileSync(file, "utf8")) : null;
    if (own === null) throw new Error(`minisign can't read ${key}`);
    const isListed = listed.some(({ publicKey }) => own.publicKey.toHex() === publicKey.toHex());
    if (!isListed) throw new Error(unlisted);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** A release of which no program has the key would be refused by all of them. */
function checkKey(): void {
  const signature = parseReleaseSignature(readFileSync(`${sums}.minisig`, "utf8"));
  const keys = parseReleaseKeys(releaseKeys) ?? [];
  const text = readFileSync(sums);
  if (signature !== null && keys.some((key) => isSignedBy(key, signature, text))) return;
  rmSync(`${sums}.minisig`);
  throw new Error(unlisted);
}

/** Of the last commit, so that the same commit makes the same image. */
function sourceDateSeconds(): number {
  const given = process.env["SOURCE_DATE_EPOCH"];
  return Number(given ?? run(["git", "log", "-1", "--format=%ct"], import.meta.dir).trim());
}

/** As `sha256sum --check` reads it. */
function sumOf(path: string): string {
  return `${createHash("sha256").update(readFileSync(path)).digest("hex")}  ${basename(path)}\n`;
}

function say(path: string): string {
  console.log(`dist/${basename(path)}`);
  return path;
}
