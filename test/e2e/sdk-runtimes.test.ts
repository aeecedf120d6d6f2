/**
 * The packed SDK in every runtime: `npm pack`, installed from the archive alone, makes the whole
 * journey against running nodes; and what a page must load for it stays small.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import {
  archiveIn,
  command,
  findLinters,
  findRuntimes,
  installPackedSdk,
  type PackedSdk,
  place,
} from "./packed-sdk.ts";

let sdk: PackedSdk;
let nodes: TestNodes;

beforeAll(async () => {
  [sdk, nodes] = await Promise.all([installPackedSdk(), startTestNodes()]);
}, 120_000);
afterAll(async () => {
  await nodes?.stop();
  sdk?.remove();
});

const journey = {
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
};

// In other runtimes the test of an app below makes the same journey.
const fewRights = findRuntimes().find(({ name }) => name === "deno")?.command ?? null;
test.skipIf(fewRights === null)(
  "the packed SDK makes the journey in deno, which lets it use the network and variables and nothing else",
  async () => {
    const program = place(sdk, "test/e2e/journey.mjs", "journey.mjs");
    const printed = await command([...(fewRights ?? []), program], sdk.folder, {
      WAYPOST_URL: nodes.url,
    });
    const { live, ...rest } = JSON.parse(printed.trim().split("\n").at(-1) ?? "");
    expect(rest).toEqual(journey);
    expect(live).toBe(true);
  },
  60_000,
);

for (const { name, command: runtime } of findRuntimes()) {
  if (runtime === null)
    console.log(`SKIPPED: the packed SDK in ${name}, which is not on this machine`);
  test.skipIf(runtime === null)(
    `a test of an app makes the journey at a node of its own in ${name}`,
    async () => {
      place(sdk, "test/e2e/journey.mjs", "journey.mjs");
      const program = place(sdk, "test/e2e/testing-journey.mjs", "testing-journey.mjs");
      const words = [...(runtime ?? [])];
      if (name === "deno") words.push("--allow-read", "--allow-sys");
      const printed = await command([...words, program], sdk.folder);
      const { live, ...rest } = JSON.parse(printed.trim().split("\n").at(-1) ?? "");
      expect(rest).toEqual(journey);
      // Node 20 has no WebSocket; there messages come by a look into the Cache.
      if (name !== "the machine's node") expect(live).toBe(true);
    },
    60_000,
  );
}

for (const { name, command: runtime } of findRuntimes()) {
  test.skipIf(runtime === null)(
    `the packed SDK replaces keys in files in ${name}`,
    async () => {
      const program = place(sdk, "test/e2e/keys-journey.mjs", "keys-journey.mjs");
      const words = [...(runtime ?? [])];
      if (name === "deno") words.push("--allow-read", "--allow-write", "--allow-sys");
      const printed = await command([...words, program], sdk.folder, { WAYPOST_URL: nodes.url });
      expect(JSON.parse(printed.trim().split("\n").at(-1) ?? "")).toEqual({
        failed: [],
        rotated: true,
        chunks: 3,
        sameDid: true,
        replaced: 1,
        isNewer: true,
      });
    },
    60_000,
  );
}

for (const { name, command: runtime } of findRuntimes()) {
  test.skipIf(runtime === null)(
    `each entry of the packed SDK is there in ${name}`,
    async () => {
      const manifest = join(sdk.folder, "node_modules", "@waypost", "client", "package.json");
      const { exports } = await Bun.file(manifest).json();
      const entries = Object.keys(exports).map((entry) => entry.replace(".", "@waypost/client"));
      expect(entries).toEqual(
        ["", "/parts", "/pushed", "/node", "/testing"].map((entry) => `@waypost/client${entry}`),
      );
      const program = join(sdk.folder, "entries.mjs");
      await Bun.write(
        program,
        `const names = {};
for (const entry of ${JSON.stringify(entries)}) names[entry] = Object.keys(await import(entry)).length > 0;
console.log(JSON.stringify(names));`,
      );
      const words = [...(runtime ?? [])];
      if (name === "deno") words.push("--allow-read", "--allow-sys");
      const printed = await command([...words, program], sdk.folder);
      expect(JSON.parse(printed.trim().split("\n").at(-1) ?? "")).toEqual(
        Object.fromEntries(entries.map((entry) => [entry, true])),
      );
    },
    60_000,
  );
}

const linters = findLinters();
if (linters === null) console.log("SKIPPED: publint and attw, which are not installed");
test.skipIf(linters === null)(
  "publint and attw find nothing in the package but that it is made of modules",
  async () => {
    const { publint = [], attw = [] } = linters ?? {};
    expect(await command([...publint, sdk.archive, "--strict"], sdk.folder)).toContain("All good");
    const profile = ["--profile", "esm-only", "--format", "table"];
    expect(await command([...attw, sdk.archive, ...profile], sdk.folder)).toContain("🟢 (ESM)");
    // Canary: an entry without its files.
    const broken = join(sdk.folder, "broken");
    await command(["mkdir", broken], sdk.folder);
    await command(["tar", "xf", sdk.archive, "-C", broken], sdk.folder);
    for (const end of [".js", ".d.ts"])
      await command(["rm", join(broken, "package", "client", `pushed${end}`)], sdk.folder);
    await command(["npm", "pack", "--silent", join(broken, "package")], broken);
    const packed = join(broken, archiveIn(broken));
    for (const check of [
      [...publint, packed],
      [...attw, packed, ...profile],
    ])
      await expect(command(check, broken)).rejects.toThrow("exit 1");
  },
  60_000,
);

// node:sqlite, which holds the lock of an inbox, came with Node 22.5.
for (const { name, command: runtime } of findRuntimes().filter(
  (one) => one.name !== "the machine's node",
)) {
  if (runtime === null)
    console.log(`SKIPPED: keys and files in ${name}, which is not on this machine`);
  test.skipIf(runtime === null)(
    `the packed SDK keeps keys and files in ${name}`,
    async () => {
      const program = place(sdk, "test/e2e/files-journey.mjs", "files-journey.mjs");
      const words = [...(runtime ?? [])];
      if (name === "deno") words.push("--allow-read", "--allow-write", "--allow-sys");
      const printed = await command([...words, program], sdk.folder, { WAYPOST_URL: nodes.url });
      expect(JSON.parse(printed.trim().split("\n").at(-1) ?? "")).toEqual({
        sameDid: true,
        mode: "600",
        chunks: 3,
        received: [["data.bin", true, true]],
        same: true,
        again: 0,
        files: ["data.bin"],
        busy: [true, "busy"],
      });
    },
    60_000,
  );
}

test("the hello world of the documents has at most 7 lines, and runs as it is printed", async () => {
  const printed = await Promise.all(
    ["docs/client.md", "src/client/README.md"].map(async (path) => {
      const text = await Bun.file(join(import.meta.dir, "..", "..", path)).text();
      const block = /```ts\n(import \{ memoryKeys, Waypost \}[\s\S]*?)```/.exec(text)?.[1] ?? "";
      return block.split("\n").filter((line) => line !== "");
    }),
  );
  for (const lines of printed) {
    expect(lines.length).toBeGreaterThan(3);
    expect(lines.length).toBeLessThanOrEqual(7);
    const friend = await Waypost.open({ url: nodes.url, keys: memoryKeys() });
    const program = join(sdk.folder, "printed.mjs");
    const text = lines.join("\n").replace("http://127.0.0.1:7400", nodes.url);
    await Bun.write(program, `const friend = ${JSON.stringify(friend.did)};\n${text}`);
    const child = Bun.spawn(["node", program], {
      cwd: sdk.folder,
      stdout: "pipe",
      stderr: "inherit",
    });
    try {
      for await (const message of friend.messages()) {
        expect(message.text).toBe("hello");
        await message.reply("hello yourself");
        await message.ack();
        break;
      }
      const { value } = await child.stdout.getReader().read();
      expect(new TextDecoder().decode(value)).toBe("hello yourself\n");
    } finally {
      child.kill();
      await child.exited;
    }
  }
}, 60_000);

/**
 * All that a page loads until its first message is sent, its registration included, and what it
 * loads when it also receives (docs/client.md "Browsers").
 */
const sentBytesMax = 56 * 1_024;
const helloBytesMax = 68 * 1_024;
/** With the first recipient who publishes a key bundle. */
const bundledBytesMax = 67 * 1_024;
/** With the own one too, which a new identity puts right after its registration. */
const ownBundleBytesMax = 71 * 1_024;

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
  const built = await Bun.build({
    entrypoints: [entry],
    target: "browser",
    minify: true,
    splitting: true,
    outdir,
  });
  expect(built.success).toBe(true);
  const chunks = new Map<string, { readonly text: string; readonly gzip: number }>();
  for (const output of built.outputs) {
    const text = await output.text();
    chunks.set(output.path.split("/").at(-1) ?? "", {
      text,
      gzip: Bun.gzipSync(text, { level: 9 }).length,
    });
    expect(
      /\beval\(|new Function\(|from"node:|require\("/.test(text) ? output.path : null,
    ).toBeNull();
  }
  const textOf = (name: string) => chunks.get(name)?.text ?? "";
  const imported = (name: string, form: RegExp) =>
    [...textOf(name).matchAll(form)].map(([, found = ""]) => found);
  const loaded = new Set<string>();
  const load = (name: string): void => {
    if (loaded.has(name)) return;
    loaded.add(name);
    for (const found of imported(name, /(?:from|import)"\.\/([^"]+)"/g)) load(found);
  };
  load("hello.js");
  const atOnce = loaded.size;
  // Of the parts that are loaded on demand, a first message needs the registration, and receiving
  // has a part of its own; no chunks that go on, no rotation, no look at the own record, no log, no
  // fingerprints, no local store, devices, push, backup or guardians, and no curves in JavaScript.
  const wanted = new Set([...loaded].flatMap((name) => imported(name, /import\("\.\/([^"]+)"\)/g)));
  const holds = (name: string, words: string): boolean =>
    textOf(name).includes(words) ||
    imported(name, /(?:from|import)"\.\/([^"]+)"/g).some(
      (one) => !loaded.has(one) && holds(one, words),
    );
  // Of two with the same part, the one that brings less.
  const closure = (name: string, into = new Set<string>()): Set<string> => {
    if (into.has(name) || loaded.has(name)) return into;
    into.add(name);
    for (const one of imported(name, /(?:from|import)"\.\/([^"]+)"/g)) closure(one, into);
    return into;
  };
  const partWith = (words: string) =>
    [...wanted]
      .filter((name) => holds(name, words))
      .toSorted((a, b) => closure(a).size - closure(b).size)[0] ?? "";
  expect(wanted.size).toBe(22);
  const sum = () => [...loaded].reduce((total, name) => total + (chunks.get(name)?.gzip ?? 0), 0);
  load(partWith("invalid_alias"));
  const sentBytes = sum();
  const plain = new Set(loaded);
  load(partWith("key_bundle_missing"));
  const bundledBytes = sum();
  load(partWith("bundles/put"));
  const ownBundleBytes = sum();
  loaded.clear();
  for (const name of plain) loaded.add(name);
  load(partWith('type:"unreadable"'));
  console.log(
    `a first message: ${sentBytes} bytes of gzip, ${atOnce} files at once; to a key bundle: ${bundledBytes}, with an own one: ${ownBundleBytes}; with receiving: ${sum()}`,
  );
  expect(sentBytes).toBeLessThan(sentBytesMax);
  expect(bundledBytes).toBeGreaterThan(sentBytes + 5_000);
  expect(bundledBytes).toBeLessThan(bundledBytesMax);
  expect(ownBundleBytes).toBeGreaterThan(bundledBytes + 1_000);
  expect(ownBundleBytes).toBeLessThan(ownBundleBytesMax);
  expect(sum()).toBeLessThan(helloBytesMax);
  expect(sum()).toBeGreaterThan(sentBytes);
}, 120_000);

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
  const options =
    "--noEmit --strict --skipLibCheck false --target es2022 --module nodenext --lib es2023,dom --types";
  const tsc = join(import.meta.dir, "..", "..", "node_modules", ".bin", "tsc");
  expect(await command([tsc, ...options.split(" "), "", program], sdk.folder)).toBe("");
}, 60_000);
