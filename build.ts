/**
 * Builds the executable: `bun build.ts` for this platform, `--target bun-linux-arm64` for another, or
 * `--target all` for every platform that is released (`bun run build:all` installs their addons first).
 * The loader of lmdb looks for its addon at run time, where a compiled program can't find it, so the
 * look-up is replaced by the addon itself, which is embedded; a build that does not hold it fails.
 */
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import type { BunPlugin } from "bun";
import { isMended } from "./packaging/addon.ts";
import { renderNotices } from "./packaging/notices.ts";
import { platforms } from "./packaging/platforms.ts";
import { packWeb } from "./packaging/web.ts";

const { values } = parseArgs({
  options: { target: { type: "string" }, outfile: { type: "string" } },
});
mkdirSync("dist", { recursive: true });
mkdirSync(join(import.meta.dir, "node_modules", ".cache"), { recursive: true });
if (values.target === "all") {
  for (const { target } of platforms) await compile(target, artifactOf(target));
} else {
  const target = values.target ?? `bun-${process.platform}-${process.arch}`;
  await compile(
    target,
    values.outfile ?? (values.target === undefined ? join("dist", "waypost") : artifactOf(target)),
  );
}

/** `dist/waypost-linux-arm64` for `bun-linux-arm64`. */
function artifactOf(target: string): string {
  return join("dist", `waypost-${target.slice("bun-".length)}${isWindows(target) ? ".exe" : ""}`);
}

function isWindows(target: string): boolean {
  return target.startsWith("bun-windows");
}

async function compile(target: string, outfile: string): Promise<void> {
  const startedMs = performance.now();
  const addon = findAddon(target);
  const cache = join(import.meta.dir, "node_modules", ".cache");
  const web = join(cache, "web.zst");
  // The program holds the name under which it is compiled, so that is the same for every name that it gets.
  const compiled = join(cache, `compile-${target}`, isWindows(target) ? "waypost.exe" : "waypost");
  mkdirSync(dirname(compiled), { recursive: true });
  writeFileSync(web, await packWeb());
  const result = await Bun.build({
    entrypoints: [join(import.meta.dir, "src", "main.ts")],
    target: "bun",
    minify: { whitespace: true, syntax: true, identifiers: false },
    sourcemap: "none",
    // A command starts in a third of the processor time: 0.1 s instead of 0.3 s.
    bytecode: true,
    format: "esm",
    // What is loaded on demand, such as the client of a chain, stays out of the memory of a node that does without.
    splitting: true,
    plugins: [embedAddon(addon), embedWeb(web)],
    // The folder of the build is in no module: the same sources make the same program anywhere.
    define: { NOTICES: JSON.stringify(renderNotices()), __dirname: '"/"' },
    // A program that holds others' messages takes no settings from files that lie around where it starts.
    compile: {
      target: target as Bun.Build.CompileTarget,
      outfile: compiled,
      autoloadDotenv: false,
      autoloadBunfig: false,
    },
    throw: false,
  });
  for (const message of result.logs) console.error(message);
  if (!result.success) process.exit(1);
  if (!holds(readFileSync(compiled), readFileSync(addon))) {
    rmSync(compiled);
    fail(`${outfile} does not hold ${addon}`);
  }
  mkdirSync(dirname(resolve(outfile)), { recursive: true });
  // A program that runs keeps the file that it was started from.
  rmSync(outfile, { force: true });
  copyFileSync(compiled, outfile);
  rmSync(dirname(compiled), { recursive: true });
  const mebibytes = (statSync(outfile).size / 2 ** 20).toFixed(1);
  console.log(
    `${outfile}: ${target}, ${mebibytes} MiB, in ${((performance.now() - startedMs) / 1_000).toFixed(1)} s`,
  );
}

/** The addon of a target's libc; platforms without several have it under either name. */
function findAddon(target: string): string {
  const folder = join(import.meta.dir, "node_modules", "@lmdb", lmdbPackage(target));
  const files = target.includes("-musl")
    ? ["node.napi.musl.node"]
    : ["node.napi.glibc.node", "node.napi.node"];
  const found = files.map((file) => join(folder, file)).find((path) => existsSync(path));
  if (found !== undefined && !isMended(readFileSync(found)))
    fail(`${found} overflows: bun packaging/addon.ts mends it`);
  return (
    found ??
    fail(
      `${folder} holds no addon: bun install --frozen-lockfile --os='*' --cpu='*' brings all of them`,
    )
  );
}

/** `lmdb-linux-x64` for `bun-linux-x64`, `bun-linux-x64-baseline`, `bun-linux-x64-musl`. */
function lmdbPackage(target: string): string {
  const [, platform = "", arch = ""] = target.split("-");
  return `lmdb-${platform === "windows" ? "win32" : platform}-${arch}`;
}

/** lmdb gets its addon; anything else that asks the loader (an optional part of msgpackr) gets an error. */
function embedAddon(addon: string): BunPlugin {
  return {
    name: "embed the native addon of lmdb",
    setup(build) {
      build.onResolve({ filter: /^node-gyp-build-optional-packages$/ }, ({ importer }) => ({
        path: /[\\/]node_modules[\\/]lmdb[\\/]/.test(importer) ? "lmdb" : "none",
        namespace: "addon",
      }));
      build.onLoad({ filter: /.*/, namespace: "addon" }, ({ path }) => ({
        loader: "js",
        contents:
          path === "lmdb"
            ? `module.exports = () => require(${JSON.stringify(addon)});`
            : `module.exports = () => { throw new Error("no addon is built in"); };`,
      }));
    },
  };
}

/** The app comes from the executable, and not from its sources. */
function embedWeb(archive: string): BunPlugin {
  const path = join(import.meta.dir, "packaging", "web-embedded.ts");
  return {
    name: "embed the app",
    setup(build) {
      build.onResolve({ filter: /^#web$/ }, () => ({ path }));
      build.onLoad({ filter: /web-embedded\.ts$/ }, () => ({
        loader: "ts",
        contents: `import WEB_ARCHIVE from ${JSON.stringify(archive)} with { type: "file" };
          ${readFileSync(path, "utf8").replace(/declare const WEB_ARCHIVE.*/, "")}`,
      }));
    },
  };
}

/** Whether the executable holds the addon, byte for byte. */
function holds(program: Buffer, part: Buffer): boolean {
  return program.indexOf(part) >= 0;
}

function fail(message: string): never {
  console.error(message);
  process.exit(1);
}
