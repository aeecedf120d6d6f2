/**
 * The packages of npm: `waypost` with a launcher, and one package for each platform with its
 * executable, which npm picks by `os`, `cpu` and `libc`. Written to `dist/npm/<name>`, where
 * `release.ts` packs them and `npm publish` is run.
 */
import {
  chmodSync,
  copyFileSync,
  cpSync,
  mkdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import type { Platform } from "./platforms.ts";

const root = join(import.meta.dir, "..");

type Manifest = {
  readonly version: string;
  readonly license: string;
  readonly description: string;
};

/** Folders of the packages, those of platforms first. */
export function makeNpmPackages(
  platforms: readonly Platform[],
  out = join(root, "dist", "npm"),
): string[] {
  const source = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as Manifest;
  rmSync(out, { recursive: true, force: true });
  const folders = platforms.map((platform) => makePlatformPackage(platform, source, out));
  return [...folders, makeMainPackage(platforms, source, out)];
}

function makePlatformPackage(
  platform: Platform,
  { version, license }: Manifest,
  out: string,
): string {
  const { name, os, cpu, libc, file } = platform;
  const folder = join(out, `cli-${name}`);
  const program = join(folder, "bin", os === "win32" ? "waypost.exe" : "waypost");
  mkdirSync(join(folder, "bin"), { recursive: true });
  copyFileSync(join(root, "dist", file), program);
  chmodSync(program, 0o755);
  writeManifest(folder, {
    name: `@waypost/cli-${name}`,
    version,
    description: `The executable of waypost for ${name}; install the package waypost`,
    license,
    os: [os],
    cpu: [cpu],
    ...(libc === undefined ? {} : { libc: [libc] }),
    preferUnplugged: true,
    files: ["bin"],
  });
  return folder;
}

function makeMainPackage(platforms: readonly Platform[], source: Manifest, out: string): string {
  const { version, license, description } = source;
  const folder = join(out, "waypost");
  mkdirSync(join(folder, "bin"), { recursive: true });
  copyFileSync(join(import.meta.dir, "npm", "launcher.cjs"), join(folder, "bin", "waypost.cjs"));
  chmodSync(join(folder, "bin", "waypost.cjs"), 0o755);
  for (const file of ["README.md", "LICENSE", "CHANGELOG.md"])
    cpSync(join(root, file), join(folder, file));
  writeManifest(folder, {
    name: "waypost",
    version,
    description,
    license,
    bin: { waypost: "bin/waypost.cjs" },
    engines: { node: ">=22" },
    files: ["bin", "CHANGELOG.md"],
    optionalDependencies: Object.fromEntries(
      platforms.map(({ name }) => [`@waypost/cli-${name}`, version]),
    ),
  });
  return folder;
}

function writeManifest(folder: string, manifest: unknown): void {
  writeFileSync(join(folder, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
}
