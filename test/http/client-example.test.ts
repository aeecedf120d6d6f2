/**
 * The program of docs/client.md, run against nodes as it stands, and the functions that the page
 * names.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

const root = join(import.meta.dir, "..", "..");
let nodes: TestNodes;

beforeAll(async () => {
  nodes = await startTestNodes();
});
afterAll(() => nodes.stop());

const plain = (text: string): string =>
  text
    .replace(/did:svc:[1-9A-HJ-NP-Za-km-z]+/g, "<did>")
    .replace(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, "<id>");

const expected = `sent photo.raw in 3 chunks
received Meet me at noon. (<did>)
received {"place":"harbour","seats":3} (<did>)
received photo.raw (<did>)
answer: I will be there. (to a message)
refused: alias_not_found
`;

test("the example of the SDK runs and prints what it did", async () => {
  const child = Bun.spawn([process.execPath, "examples/client.ts"], {
    cwd: root,
    env: { ...process.env, WAYPOST_URL: nodes.url },
    stdout: "pipe",
    stderr: "pipe",
  });
  const [code, stdout, stderr] = await Promise.all([
    child.exited,
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  expect([code, stderr, plain(stdout)]).toEqual([0, "", expected]);
}, 120_000);

test("docs/client.md names functions that are there", async () => {
  const page = await Bun.file(join(root, "docs", "client.md")).text();
  const rows = [...page.matchAll(/^\| `(waypost\/client[^`]*)` \| (.+) \|$/gm)];
  const { exports } = (await Bun.file(join(root, "package.json")).json()) as { exports: object };
  const entries = Object.keys(exports).filter((entry) => entry.startsWith("./client"));
  const named = rows.map(([, parts = ""]) => parts.replace("waypost", "."));
  expect(named.sort()).toEqual(entries.sort());
  for (const [, parts = "", text = ""] of rows) {
    const modules = [(await import(parts)) as object];
    const exported = new Set(modules.flatMap((module: object) => Object.keys(module)));
    for (const [, name] of text.matchAll(/`(\w+)`/g))
      expect([parts, name, exported.has(name as string)]).toEqual([parts, name, true]);
  }
});
