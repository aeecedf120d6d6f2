/**
 * The packed SDK in every runtime: `npm pack`, installed from the archive alone, makes the whole journey
 * against running nodes; and what a page must load for it stays small.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { command, findRuntimes, installPackedSdk, type PackedSdk, place } from "./packed-sdk.ts";

let sdk: PackedSdk;
let nodes: TestNodes;

beforeAll(async () => {
  [sdk, nodes] = await Promise.all([installPackedSdk(), startTestNodes()]);
}, 120_000);
afterAll(async () => {
  await nodes?.stop();
  sdk?.remove();
});

for (const { name, command: runtime } of findRuntimes()) {
  if (runtime === null) console.log(`SKIPPED: the packed SDK in ${name}, which is not on this machine`);
  test.skipIf(runtime === null)(
    `the packed SDK makes the journey in ${name}`,
    async () => {
      const program = place(sdk, "test/e2e/journey.mjs", "journey.mjs");
      const printed = await command([...(runtime ?? []), program], sdk.folder, { WAYPOST_URL: nodes.url });
      const { live, ...rest } = JSON.parse(printed.trim().split("\n").at(-1) ?? "");
      expect(rest).toEqual({
        garbage: 202,
        text: "hello",
        verified: [true, true],
        chunks: 3,
        same: true,
        name: "data.bin",
        reply: ["hello yourself", true],
        json: { once: true },
        sameDid: true,
        refused: [true, "alias_not_found"],
        unreadable: true,
      });
      // Node 20 has no WebSocket; there messages come by the Cache's stream.
      if (name !== "the machine's node") expect(live).toBe(true);
    },
    60_000,
  );
}

/** All that the page loads until it says hello, its first registration included (docs/client.md "Browsers"). */
const helloBytesMax = 40_000;

test("a page that says hello loads little", async () => {
  const entry = join(sdk.folder, "hello.js");
  await Bun.write(
    entry,
    `import { memoryKeys, Waypost } from "@waypost/client";
const me = await Waypost.open({ url: "http://127.0.0.1:7400", keys: memoryKeys() });
await me.send(me.did, "hello");
for await (const message of me.messages()) { console.log(message.text); await message.ack(); }`,
  );
  const outdir = join(sdk.folder, "out");
  const built = await Bun.build({ entrypoints: [entry], target: "browser", minify: true, splitting: true, outdir });
  expect(built.success).toBe(true);
  const chunks = new Map<string, { readonly text: string; readonly gzip: number }>();
  for (const output of built.outputs) {
    const text = await output.text();
    chunks.set(output.path.split("/").at(-1) ?? "", { text, gzip: Bun.gzipSync(text, { level: 9 }).length });
    expect(/\beval\(|new Function\(|from"node:|require\("/.test(text) ? output.path : null).toBeNull();
  }
  const textOf = (name: string) => chunks.get(name)?.text ?? "";
  const imported = (name: string, form: RegExp) => [...textOf(name).matchAll(form)].map(([, found = ""]) => found);
  const loaded = new Set<string>();
  const load = (name: string): void => {
    if (loaded.has(name)) return;
    loaded.add(name);
    for (const found of imported(name, /(?:from|import)"\.\/([^"]+)"/g)) load(found);
  };
  load("hello.js");
  const atOnce = loaded.size;
  // Of what is loaded when it is wanted the first registration is; a rotation and the curves in JavaScript are not.
  const wanted = [...loaded].flatMap((name) => imported(name, /import\("\.\/([^"]+)"\)/g));
  const registration = wanted.filter((name) => textOf(name).includes("svc:register:v3|"));
  expect([wanted.length, registration.length]).toEqual([3, 1]);
  for (const name of registration) load(name);
  const sum = [...loaded].reduce((total, name) => total + (chunks.get(name)?.gzip ?? 0), 0);
  console.log(`hello world: ${sum} bytes of gzip in ${loaded.size} files, ${atOnce} of them at once`);
  expect(sum).toBeLessThan(helloBytesMax);
}, 30_000);

test("the types of the packed SDK stand by themselves", async () => {
  const program = join(sdk.folder, "typed.ts");
  await Bun.write(
    program,
    `import { indexedDbKeys, type Message, Waypost, type WaypostEvent } from "@waypost/client";
import { connect, lookUp } from "@waypost/client/parts";
export async function first(url: string): Promise<string | null> {
  const me = await Waypost.open({ url, keys: indexedDbKeys() });
  me.on((event: WaypostEvent) => { if (event.type === "unreadable") console.log(event.reason); });
  for await (const message of me.messages()) { const one: Message = message; return one.text; }
  return lookUp(connect({ directoryUrl: url, relayUrl: url }), "alice");
}`,
  );
  const options = "--noEmit --strict --skipLibCheck false --target es2022 --module nodenext --lib es2023,dom --types";
  const tsc = join(import.meta.dir, "..", "..", "node_modules", ".bin", "tsc");
  expect(await command([tsc, ...options.split(" "), "", program], sdk.folder)).toBe("");
}, 60_000);
