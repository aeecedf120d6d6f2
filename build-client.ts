/**
 * Builds the package `@waypost/client` into `dist/client/`: `bun run build:client`. One ES module for each
 * source file, so that bundlers leave out what a program does not use; their types; and a manifest with
 * nothing but what they import. `npm pack` there makes what is published.
 */
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { renderNotices } from "./packaging/notices.ts";
import { bundleTestNode } from "./packaging/testing.ts";

const root = import.meta.dir;
const out = join(root, "dist", "client");
const dependencies = [
  "@noble/ciphers",
  "@noble/curves",
  "@noble/hashes",
  "@noble/post-quantum",
  "canonicalize",
  "shamir-secret-sharing",
];

type Manifest = { version: string; license: string; dependencies: Record<string, string> };
const source: Manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
const compiled = Bun.spawnSync([
  join(root, "node_modules", ".bin", "tsc"),
  "-p",
  join(root, "tsconfig.package.json"),
]);
if (!compiled.success) fail(compiled.stdout.toString());
const files = nameModules();
await bundleFallback();
const testNode = await bundleTestNode();
writeFileSync(join(out, "testing", "worker.js"), testNode.text);
writeFileSync(join(out, "testing", "NOTICES.txt"), renderNotices(testNode.packages));
cpSync(join(root, "src", "client", "README.md"), join(out, "README.md"));
cpSync(join(root, "LICENSE"), join(out, "LICENSE"));
writeFileSync(join(out, "package.json"), `${JSON.stringify(manifest(), null, 2)}\n`);
console.log(`dist/client: @waypost/client ${source.version}, ${files} modules`);

/** Types name their modules by the source's ending; what runs is called `.js`. */
function nameModules(): number {
  const names = [...new Bun.Glob("**/*.{js,d.ts}").scanSync({ cwd: out })];
  for (const name of names) {
    const path = join(out, name);
    const text = readFileSync(path, "utf8");
    writeFileSync(
      path,
      text.replace(/((?:from|import)\s*\(?\s*["']\.{1,2}\/[^"']*)\.ts(["'])/g, "$1.js$2"),
    );
  }
  const foreign = names.filter((name) =>
    /["'](@sinclair|elysia|bun)["'/]/.test(readFileSync(join(out, name), "utf8")),
  );
  if (foreign.length > 0) fail(`packages of the nodes are reached from ${foreign.join(", ")}`);
  const missing = names.flatMap((name) => (name.endsWith(".js") ? unlistedIn(name) : []));
  if (missing.length > 0) fail(`packages that the manifest lacks: ${missing.join(", ")}`);
  return names.filter((name) => name.endsWith(".js")).length;
}

/** Packages that a module imports and the manifest does not name. */
function unlistedIn(name: string): string[] {
  const text = readFileSync(join(out, name), "utf8");
  const imported = text.matchAll(
    /\b(?:from|import)\s*\(?\s*["']((?:@[\w-]+\/)?[\w-]+)(?:\/|["'])/g,
  );
  return [...imported].flatMap(([, found = ""]) =>
    dependencies.includes(found) ? [] : [`${found} (${name})`],
  );
}

/**
 * The curves in JavaScript, with their own SHA-512: as a part of the shared module of hashes every page would load it, for
 * 1.5 KB, whether its browser has these curves or not.
 */
async function bundleFallback(): Promise<void> {
  const path = join(out, "client", "keys", "curves-fallback.js");
  const built = await Bun.build({
    entrypoints: [path],
    target: "browser",
    format: "esm",
    minify: { syntax: true, whitespace: true },
  });
  const [output] = built.outputs;
  if (!built.success || output === undefined) fail(built.logs.join("\n"));
  writeFileSync(path, await output.text());
  const packages = new Set(["@noble/curves", "@noble/hashes"]);
  writeFileSync(join(out, "client", "keys", "NOTICES.txt"), renderNotices(packages));
}

function manifest(): Record<string, unknown> {
  const entry = (path: string) => ({ types: `./${path}.d.ts`, default: `./${path}.js` });
  return {
    name: "@waypost/client",
    version: source.version,
    description: "End-to-end encrypted messaging: send and receive in Node, Deno, Bun and browsers",
    license: source.license,
    type: "module",
    sideEffects: false,
    engines: { node: ">=22" },
    exports: {
      ".": entry("client/package"),
      "./parts": entry("client/parts"),
      "./pushed": entry("client/pushed"),
      "./node": entry("cli/files/package"),
      "./testing": entry("testing/package"),
    },
    imports: {
      "#sha256": "@noble/hashes/sha2.js",
      "#crypto": "./core/codec/crypto-portable.js",
      "#blake2": "./core/codec/blake2-portable.js",
      "#texts": "./core/codec/texts-portable.js",
    },
    dependencies: Object.fromEntries(dependencies.map((name) => [name, source.dependencies[name]])),
  };
}

function fail(text: string): never {
  console.error(text);
  process.exit(1);
}
