/**
 * Settings that are valid and probably a mistake, on the executable: `config check` prints a
 * warning for each, and `serve` logs the same and starts.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { executable, freePort, run, scratchFolder, startNode } from "../support/executable.ts";

const scratch = scratchFolder();
const cwd = scratch.path;
beforeAll(async () => {
  await executable();
}, 120_000);
afterAll(scratch.remove);

const endpoint = 'public_endpoints = ["https://cache.example.org"]';

function file(
  name: string,
  { port, store, cache }: { port: number; store: string; cache: string },
): string {
  const path = join(cwd, name);
  const server = `[server]\nlisten = ["127.0.0.1:${port}"]\ntrusted_proxies = ["0.0.0.0/0"]`;
  writeFileSync(
    path,
    `${server}\n[stores.main]\n${store}\n[directory]\nenabled = true\n[cache]\nenabled = true\n${cache}\n`,
  );
  return path;
}

test.each([
  [
    "lmdb",
    'plugin = "lmdb"\npath = "data"',
    `${endpoint}\nstore_bytes_max = "900TiB"`,
    ["server.trusted_proxies.0", "stores.main.path", "cache.store_bytes_max"],
  ],
  [
    "memory",
    'plugin = "memory"',
    endpoint,
    ["server.trusted_proxies.0", "cache.store", "directory.ledger"],
  ],
])(
  "with a store of %s",
  async (name, store, cache, settings) => {
    const port = freePort();
    const config = file(`${name}.toml`, { port, store, cache });
    const checked = await run(["config", "check", "--config", config], { cwd });
    const warnings = [...checked.stderr.matchAll(/^warning: (\S+): (.+)$/gm)].map(
      ([, setting, reason]) => ({
        setting,
        reason,
      }),
    );
    expect([checked.code, warnings.map(({ setting }) => setting)]).toEqual([0, settings]);
    const node = await startNode(["serve", "--config", config], {
      cwd,
      url: `http://127.0.0.1:${port}`,
    });
    expect(await node.kill("SIGTERM")).toBe(0);
    const lines = (await node.output())
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    const logged = lines.filter(({ message }) => message === "a setting needs attention");
    expect(logged.map(({ level, setting, reason }) => ({ level, setting, reason }))).toEqual(
      warnings.map((warning) => ({ level: "warn", ...warning })),
    );
  },
  60_000,
);
