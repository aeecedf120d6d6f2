/**
 * What a running process takes over from a changed configuration, and what it names as needing a
 * restart.
 */
import { describe, expect, test } from "bun:test";
import { parseConfig, reload } from "../../../src/config/config.ts";

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
    expect(reload(configOf(""), configOf(""))).toEqual({ changed: [], needsRestart: [] });
  });

  test("names stores as a whole, because their options belong to plugins", () => {
    expect(
      reload(configOf(""), configOf('[stores.two]\nplugin = "memory"\n')).needsRestart,
    ).toEqual(["stores"]);
  });

  test("writes rates, their bursts and the level into the sections that the nodes read, and leaves the rest", () => {
    const current = configOf("");
    const { server, relay, cache } = current;
    const next = configOf(
      '[server]\nlog_level = "error"\nlisten = ["127.0.0.1:1"]\n[relay]\nclient_rate = 7\ndelivery_budget = "2s"\n[cache]\nrequire_sender_signature = true\n',
    );
    expect(reload(current, next)).toEqual({
      changed: ["server.log_level", "relay.client_rate"],
      needsRestart: ["server.listen", "relay.delivery_budget", "cache.require_sender_signature"],
    });
    expect([server.log_level, server.listen, cache.require_sender_signature]).toEqual([
      "error",
      ["127.0.0.1:7400"],
      false,
    ]);
    expect([relay.client_rate, relay.client_burst, relay.delivery_budget]).toEqual([7, 28, 10_000]);
  });
});
