/**
 * Builds the executable: `bun build.ts` for this platform, `bun build.ts --target bun-linux-arm64` for
 * another whose native addon is installed. The loader of lmdb looks for its addon at run time, where a
 * compiled program can't find it, so the look-up is replaced by the addon itself, which is embedded; a
 * build that does not hold it fails.
 */
import { existsSync, mkdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import type { BunPlugin } from "bun";

const { values } = parseArgs({ options: { target: { type: "string" }, outfile: { type: "string" } } });

const target = values.target ?? `bun-${process.platform}-${process.arch}`;
const outfile = values.outfile ?? join("dist", values.target === undefined ? "waypost" : `waypost-${target.slice(4)}`);
const addon = findAddon(join(import.meta.dir, "node_modules", "@lmdb", lmdbPackage(target)), target);

/** `lmdb-linux-x64` for `bun-linux-x64`, `bun-linux-x64-baseline`, `bun-linux-x64-musl`. */
function lmdbPackage(name: string): string {
  const [, platform = "", arch = ""] = name.split("-");
  return `lmdb-${platform === "windows" ? "win32" : platform}-${arch}`;
}

/** The addon of one libc; platforms without several have it under either name. */
function findAddon(folder: string, name: string): string {
  const files = name.includes("-musl") ? ["node.napi.musl.node"] : ["node.napi.glibc.node", "node.napi.node"];
  const found = files.map((file) => join(folder, file)).find((path) => existsSync(path));
  if (found !== undefined) return found;
  console.error(`${folder} holds no addon: install the lmdb package of ${name} first`);
  process.exit(1);
}

/** lmdb gets its addon; whoever else asks the loader (an optional part of msgpackr) is told there is none. */
const embedAddon: BunPlugin = {
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

mkdirSync("dist", { recursive: true });
const startedMs = performance.now();
const result = await Bun.build({
  entrypoints: [join(import.meta.dir, "src", "main.ts")],
  target: "bun",
  minify: { whitespace: true, syntax: true, identifiers: false },
  sourcemap: "none",
  plugins: [embedAddon],
  // A program that holds others' messages takes no settings from files that lie around where it starts.
  compile: {
    target: target as Bun.Build.CompileTarget,
    outfile,
    autoloadDotenv: false,
    autoloadBunfig: false,
  },
  throw: false,
});
for (const message of result.logs) console.error(message);
if (!result.success) process.exit(1);

if (!holds(readFileSync(outfile), readFileSync(addon))) {
  rmSync(outfile);
  console.error(`${outfile} does not hold ${addon}`);
  process.exit(1);
}
const mebibytes = (statSync(outfile).size / 2 ** 20).toFixed(1);
console.log(`${outfile}: ${target}, ${mebibytes} MiB, in ${((performance.now() - startedMs) / 1_000).toFixed(1)} s`);

/** Whether the executable holds the addon, byte for byte. */
function holds(program: Buffer, part: Buffer): boolean {
  return program.indexOf(part) >= 0;
}
