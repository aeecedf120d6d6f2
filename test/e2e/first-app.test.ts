/**
 * docs/first-app.md is followed as it is printed: its files, its test, its program for two people.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { command, findRuntimes, installPackedSdk, type PackedSdk } from "./packed-sdk.ts";

const root = join(import.meta.dir, "..", "..");
// The page asks for Node 22.
const node =
  findRuntimes().find(({ name }) => name === "node 22")?.command ??
  (machinesNodeVersion() >= 22 ? findRuntimes()[0]?.command : null) ??
  null;
/** Of `node` in the path, not that which Bun says to be; 0 without it. */
function machinesNodeVersion(): number {
  const [program] = findRuntimes()[0]?.command ?? [];
  if (program === undefined) return 0;
  return Number(/^v(\d+)/.exec(Bun.spawnSync([program, "--version"]).stdout.toString())?.[1] ?? 0);
}

let sdk: PackedSdk;
let nodes: TestNodes;
let page = "";

beforeAll(async () => {
  page = await Bun.file(join(root, "docs", "first-app.md")).text();
  [sdk, nodes] = await Promise.all([installPackedSdk(), startTestNodes()]);
  for (const [, code = ""] of page.matchAll(/```js\n([\s\S]*?)```/g)) {
    const name = /^\/\/ (\S+)\n/.exec(code)?.[1] ?? "";
    await Bun.write(join(sdk.folder, name), code.replace("http://127.0.0.1:7400", nodes.url));
  }
}, 120_000);
afterAll(async () => {
  await nodes?.stop();
  sdk?.remove();
});

if (node === null) console.log("SKIPPED: the first app, for want of Node 22");

test("its way to the package is that of the other page, and names the archive that comes out", async () => {
  const other = await Bun.file(join(root, "docs", "client.md")).text();
  const way = "run build:client && npm pack ./dist/client";
  expect([page.includes(way), other.includes(way)]).toEqual([true, true]);
  expect(page).toContain(sdk.archive.split("/").at(-1) ?? "no archive");
});

test.skipIf(node === null)(
  "its test passes, without an executable",
  async () => {
    const printed = await command([...(node ?? []), "--test"], sdk.folder);
    expect(printed).toMatch(/pass 1\n[\s\S]*fail 0\n/);
  },
  60_000,
);

test.skipIf(node === null)(
  "what Bob types appears at Alice's, and both are the same people at the next start",
  async () => {
    const start = (...words: string[]) => {
      const child = Bun.spawn([...(node ?? []), "main.mjs", ...words], {
        cwd: sdk.folder,
        stdin: "pipe",
        stdout: "pipe",
        stderr: "inherit",
      });
      const lines = linesOf(child.stdout);
      return { child, line: async () => (await lines.next()).value ?? "" };
    };
    const didIn = (line: string) => line.split(" is ")[1] ?? "";
    const alice = start("alice");
    const first = await alice.line();
    const bob = start("bob", didIn(first));
    const bobs = await bob.line();
    bob.child.stdin.write("milk\n");
    await bob.child.stdin.end();
    expect(await alice.line()).toBe(`+ milk (${didIn(bobs)})`);
    await alice.child.stdin.end();
    expect(await Promise.all([alice.child.exited, bob.child.exited])).toEqual([0, 0]);
    const again = start("alice");
    await again.child.stdin.end();
    expect([await again.line(), await again.child.exited]).toEqual([first, 0]);
  },
  60_000,
);

async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of stream) {
    rest += decoder.decode(bytes, { stream: true });
    for (let end = rest.indexOf("\n"); end >= 0; end = rest.indexOf("\n")) {
      yield rest.slice(0, end);
      rest = rest.slice(end + 1);
    }
  }
}
