/**
 * The packed SDK in every runtime: `npm pack`, installed from the archive alone, makes the whole journey
 * against running nodes; and what a page must load for it stays small.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { command, findRuntimes, installPackedSdk, type PackedSdk, place } from "../support/packed-sdk.ts";

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
      const program = place(sdk, "test/support/journey.mjs", "journey.mjs");
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

/** Measured, and to be lowered: the cryptography alone is 24 KB. */
const helloBytesMax = 50_000;
const firstRegistrationBytesMax = 12_000;

test("a page that says hello loads little", async () => {
  const entry = join(sdk.folder, "hello.js");
  await Bun.write(
    entry,
    `import { memoryKeys, Waypost } from "@waypost/client";
const me = await Waypost.open({ url: "http://127.0.0.1:7400", keys: memoryKeys() });
await me.send(me.did, "hello");
for await (const message of me.messages()) { console.log(message.text); await message.ack(); }`,
  );
  const built = await Bun.build({
    entrypoints: [entry],
    target: "browser",
    minify: true,
    splitting: true,
    outdir: join(sdk.folder, "out"),
  });
  expect(built.success).toBe(true);
  const sizes = new Map<string, number>();
  const texts = new Map<string, string>();
  for (const output of built.outputs) {
    const text = await output.text();
    const name = output.path.split("/").at(-1) ?? "";
    texts.set(name, text);
    sizes.set(name, Bun.gzipSync(text, { level: 9 }).length);
    expect(/\beval\(|new Function\(|from"node:|require\("/.test(text) ? name : null).toBeNull();
  }
  const atOnce = new Set<string>();
  const follow = (name: string): void => {
    if (atOnce.has(name)) return;
    atOnce.add(name);
    for (const [, found = ""] of (texts.get(name) ?? "").matchAll(/(?:from|import)"\.\/([^"]+)"/g)) follow(found);
  };
  follow("hello.js");
  const sum = (names: Iterable<string>) => [...names].reduce((total, name) => total + (sizes.get(name) ?? 0), 0);
  const [loaded, later] = [sum(atOnce), sum([...sizes.keys()].filter((name) => !atOnce.has(name)))];
  console.log(`hello world: ${loaded} bytes of gzip at once, ${later} more at the first registration`);
  expect(loaded).toBeLessThan(helloBytesMax);
  expect(later).toBeLessThan(firstRegistrationBytesMax);
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
