/** What a running process takes over from a changed configuration, and what it names as needing a restart. */
import { describe, expect, test } from "bun:test";
import { applyReload, decideReload, parseConfig } from "../../../src/config/config.ts";

const base = `[stores.main]
plugin = "memory"
[directory]
enabled = true
`;

function configOf(more: string) {
  const result = parseConfig(`${base}${more}`);
  if (!result.ok) throw new Error(JSON.stringify(result.problems));
  return result.config;
}

describe("a reload", () => {
  test("of the same file changes nothing", () => {
    expect(decideReload(configOf(""), configOf(""))).toEqual({ changed: [], needsRestart: [] });
  });

  test("applies switches and levels, and names what needs a restart", () => {
    const next = configOf(
      '[server]\nlog_level = "debug"\nlisten = ["127.0.0.1:1"]\n[cache]\nrequire_sender_signature = true\n',
    );
    const plan = decideReload(configOf(""), next);
    expect(plan).toEqual({
      changed: ["server.log_level", "cache.require_sender_signature"],
      needsRestart: ["server.listen"],
    });
  });

  test("names stores as a whole, because their options belong to plugins", () => {
    expect(decideReload(configOf(""), configOf('[stores.two]\nplugin = "memory"\n')).needsRestart).toEqual(["stores"]);
  });

  test("writes into the sections that the nodes read, and leaves the rest", () => {
    const current = configOf("");
    const { server, cache } = current;
    const next = configOf(
      '[server]\nlog_level = "error"\nlisten = ["127.0.0.1:1"]\n[cache]\nrequire_sender_signature = true\n',
    );
    applyReload(current, next, decideReload(current, next));
    expect([server.log_level, server.listen, cache.require_sender_signature]).toEqual([
      "error",
      ["127.0.0.1:7400"],
      true,
    ]);
  });
});
