/**
 * Key bundles over the stores that have a disk: what was answered with 200 is there after a kill,
 * and moves with the rest from one store to another.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { renderBundle } from "../../src/core/message/bundle.ts";
import { bundleKey, bundleOf, maker, putBundle, registerMaker } from "../support/bundles.ts";
import {
  freePort,
  type RunningNode,
  run,
  scratchFolder,
  startNode,
} from "../support/executable.ts";
import { type PostgresServer, postgresAbsence, startPostgres } from "../support/postgres.ts";

const folder = scratchFolder();
const cwd = folder.path;
const url = `http://127.0.0.1:${freePort()}`;
let server: PostgresServer | null = null;
beforeAll(async () => {
  if (postgresAbsence() !== null) return;
  server = await startPostgres(["fsync=on"]);
}, 120_000);
afterAll(async () => {
  await server?.end();
  folder.remove();
});

const stores = {
  lmdb: () => `plugin = "lmdb"\npath = "${join(cwd, "lmdb")}"`,
  postgres: () => `plugin = "postgres"\nurls = ["${server?.url}"]\nschema = "one"`,
  "postgres in two databases": () => {
    const shards = `{ far = { urls = ["${server?.url}"], schema = "far" } }`;
    return `plugin = "postgres"\nurls = ["${server?.url}"]\nschema = "two"\nshards = ${shards}`;
  },
  "a copy": () => `plugin = "lmdb"\npath = "${join(cwd, "copy")}"`,
};
type StoreName = keyof typeof stores;

function fileOf(name: StoreName): string {
  const path = join(cwd, `${name.replaceAll(" ", "-")}.toml`);
  const sections = [
    `[server]\nlisten = ["${url.slice("http://".length)}"]\nlog_level = "warn"`,
    "[directory]\nenabled = true",
    `[cache]\nenabled = true\npublic_endpoints = ["${url}"]`,
    `[stores.main]\n${stores[name]()}\nblock_time_ms = 50`,
  ];
  writeFileSync(path, `${sections.join("\n")}\n`);
  return path;
}

async function waypost(name: StoreName, ...words: string[]): Promise<void> {
  const { code, stderr, stdout } = await run([...words, "--config", fileOf(name)], { cwd });
  if (code !== 0) throw new Error(stderr + stdout);
}
const serve = (name: StoreName): Promise<RunningNode> =>
  startNode(["serve", "--config", fileOf(name)], { cwd, url });
const shown = async (): Promise<unknown> => (await fetch(`${url}/cache/keys/${maker.did}`)).json();

/** The one that was put last, by store. */
const last = new Map<StoreName, unknown>();

const kept: readonly StoreName[] = ["lmdb", "postgres", "postgres in two databases"];
test.each(kept)(
  "%s keeps a bundle through a kill right after the answer",
  async (name) => {
    if (name !== "lmdb" && server === null) return console.warn(`skipped: ${postgresAbsence()}`);
    if (name !== "lmdb") await waypost(name, "storage", "migrate");
    let node = await serve(name);
    await registerMaker(url);
    for (let round = 1; round <= 2; round++) {
      const bundle = bundleOf(maker, Date.now(), { publicKey: bundleKey(round) });
      expect((await putBundle(url, bundle)).status).toBe(200);
      await node.kill("SIGKILL");
      node = await serve(name);
      expect(await shown()).toEqual(renderBundle(bundle));
      last.set(name, renderBundle(bundle));
    }
    await node.kill("SIGTERM");
  },
  120_000,
);

test("an export has it, and a store that is filled from it serves it", async () => {
  const file = join(cwd, "all.jsonl");
  await waypost("lmdb", "storage", "export", "--to", file);
  await waypost("a copy", "storage", "import", "--from", file);
  const node = await serve("a copy");
  expect(await shown()).toEqual(last.get("lmdb"));
  await node.kill("SIGTERM");
}, 120_000);
