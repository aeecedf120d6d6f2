/**
 * Bundles the node of `@waypost/client/testing` for Node, Deno and Bun: what `waypost dev` runs,
 * with the memory driver as the only one, without the app, and with `src/testing/runtime.ts` in the
 * place of what only Bun has.
 */
import { join } from "node:path";

const root = join(import.meta.dir, "..");
const source = (path: string) => join(root, "src", path);
const runtime = source("testing/runtime.ts");

/** What a node over memory never uses, by the end of its path. */
const leftOut: Readonly<Record<string, string>> = {
  "src/plugins/load.ts":
    'export { memoryPlugin } from "./memory/memory.ts"; import { memoryPlugin } from "./memory/memory.ts"; export const builtInPlugins = [memoryPlugin]; export const loadPlugins = async () => ({ plugins: [], problems: [] });',
  "src/plugins/postgres/postgres.ts": "export const postgresOptions = {};",
  "src/plugins/bus/nats.ts":
    "export const natsOptions = {}; export const openNatsBus = () => { throw new Error('no bus'); };",
  // Other runtimes choose the time of a collection themselves.
  "src/app/garbage.ts": "export const collectByRequests = () => () => {};",
  // It has no Unix socket, whose other end the kernel names.
  "src/nodes/http/peer.ts":
    "export const namesPeers = false; export const peerOf = () => null; export const userId = () => null; export const groupId = () => null;",
  "packaging/web.ts": "export const webFiles = async () => new Map();",
};

type TestNodeBundle = {
  /** Of the one module. */
  readonly text: string;
  /** Packages that are in it. */
  readonly packages: ReadonlySet<string>;
};

export async function bundleTestNode(): Promise<TestNodeBundle> {
  const packages = new Set<string>();
  const result = await Bun.build({
    entrypoints: [source("testing/worker.ts")],
    target: "node",
    format: "esm",
    minify: { whitespace: true, syntax: true },
    plugins: [
      {
        name: "for any runtime",
        setup: (build) => {
          build.onLoad({ filter: /[\\/]node_modules[\\/]/ }, ({ path }) => {
            const name = /.*[\\/]node_modules[\\/]((?:@[^\\/]+[\\/])?[^\\/]+)/.exec(path)?.[1];
            if (name !== undefined) packages.add(name.replaceAll("\\", "/"));
            return undefined;
          });
          build.onLoad({ filter: /[\\/](src|packaging)[\\/].*\.ts$/ }, async ({ path }) => {
            const name = path.slice(root.length + 1).replaceAll("\\", "/");
            const text = leftOut[name] ?? (await Bun.file(path).text());
            const isChanged = path !== runtime && /\bBun\./.test(text);
            const head = isChanged
              ? `import { native as Bun } from ${JSON.stringify(runtime)};\n`
              : "";
            return { contents: head + text, loader: "ts" };
          });
        },
      },
    ],
  });
  const [output] = result.outputs;
  if (!result.success || output === undefined) throw new Error(result.logs.join("\n"));
  const text = await output.text();
  const [only] = /\bfrom\s*"bun:\w+"/.exec(text) ?? [];
  if (only !== undefined)
    throw new Error(`the node for tests imports what only Bun has: ${only}; leave its file out`);
  return { text, packages };
}
