/**
 * Tiers of members: a quota and a rate of their own for those to whom the operator gives one, over
 * the store of this run, until it is taken away, also after a restart; and nothing changes for
 * anybody else.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { checkConfig } from "../../src/config/config.ts";
import type { ConfigInput } from "../../src/config/schema.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { freePort, run, scratchFolder } from "../support/executable.ts";
import {
  registerSelfSender,
  relayAt,
  type SelfSender,
  startTestNodes,
  type TestNodes,
} from "../support/nodes.ts";

const folder = scratchFolder();
const url = `http://127.0.0.1:${freePort()}`;
const socket = join(folder.path, "admin.sock");
const inputOf = (tiers: NonNullable<ConfigInput["tiers"]>): ConfigInput => ({
  server: {
    listen: [url.slice("http://".length)],
    admin_listen: [`unix:${socket}`],
    drain_timeout: "2s",
  },
  stores: { main: { plugin: "lmdb", path: join(folder.path, "store"), block_time_ms: 20 } },
  directory: { enabled: true, rate_limit_loopback: false },
  relay: relayAt(url),
  cache: { enabled: true, public_endpoints: [url], recipient_entries_max: 20 },
  tiers,
});
const tiers = { small: { recipient_entries_max: 2 }, slow: { recipient_rate: 1 } };

let nodes: TestNodes;
let one: SelfSender;
let other: SelfSender;
beforeAll(async () => {
  nodes = await startTestNodes(inputOf(tiers));
  one = await registerSelfSender(url, "did:svc:tiersTesttiersTest2222" as Did);
  other = await registerSelfSender(url, "did:svc:tiersTesttiersTest3333" as Did);
}, 60_000);
afterAll(async () => {
  await nodes.stop();
  folder.remove();
});

const command = (...words: string[]) => run([...words, "--socket", socket], { cwd: folder.path });

async function statusesOf(to: SelfSender, count: number, path = "/cache/store"): Promise<number[]> {
  const statuses: number[] = [];
  for (let n = 0; n < count; n++) {
    const headers = { "content-type": "application/json" };
    const sent = { method: "POST", headers, body: to.envelope() };
    statuses.push((await fetch(url + path, sent)).status);
  }
  return statuses;
}

async function rowOf({ did }: SelfSender): Promise<Record<string, unknown>> {
  const { stdout } = await command("members", "show", did, "--json");
  return JSON.parse(stdout) as Record<string, unknown>;
}

describe("a tier", () => {
  test("is the member's quota from the next envelope on, and nobody else's", async () => {
    expect(await statusesOf(one, 1)).toEqual([202]);
    const given = await command("members", "set-tier", one.did, "small");
    expect([given.code, given.stdout]).toEqual([0, `${one.did} has the tier small\n`]);
    // Who may give tiers and nothing else is shown nothing else of a member.
    const again = await command("members", "set-tier", one.did, "small", "--json");
    const shown = Object.keys(JSON.parse(again.stdout) as object);
    expect(shown.filter((name) => name !== "ok").sort()).toEqual(["did", "tier"]);
    expect(await statusesOf(one, 2)).toEqual([202, 507]);
    expect(await statusesOf(other, 3)).toEqual([202, 202, 202]);
    const limits = (await (await fetch(`${url}/limits`)).json()) as Record<string, unknown>;
    expect(limits["max_mailbox_entries"]).toBe(20);
  }, 60_000);

  test("is shown by members and explain, and found in the table", async () => {
    expect([(await rowOf(one))["tier"], (await rowOf(other))["tier"]]).toEqual(["small", null]);
    expect((await command("members", "list")).stdout).toContain(`${one.did}  (tier small, `);
    const { stdout } = await command("members", "export");
    const [head = "", ...rows] = stdout.split(/\r?\n/);
    const at = head.split(",").indexOf("tier");
    expect(rows.find((row) => row.startsWith(one.did))?.split(",")[at]).toBe("small");
    expect((await command("explain", one.did)).stdout).toContain("full: 2 of 2");
  }, 60_000);

  test("outlives a restart, and counts as none where the configuration lost it", async () => {
    await nodes.stop();
    nodes = await startTestNodes(inputOf(tiers));
    expect(await statusesOf(one, 1)).toEqual([507]);
    const next = checkConfig(inputOf({ slow: tiers.slow }));
    if (!next.ok) throw new Error(JSON.stringify(next.problems));
    expect((await nodes.reload(next.config)).changed).toEqual(["tiers"]);
    expect(await statusesOf(one, 1)).toEqual([202]);
    expect((await rowOf(one))["tier"]).toBe("small");
    for (const words of [["show", one.did], ["list"]])
      expect((await command("members", ...words)).stdout).toContain(
        "small: has no table in the configuration, so the default counts",
      );
  }, 60_000);

  test("has a rate of its own at the Relay", async () => {
    expect((await command("members", "set-tier", other.did, "slow")).code).toBe(0);
    const statuses = await statusesOf(other, 14, "/relay");
    expect(statuses.slice(0, 9)).toEqual(Array.from({ length: 9 }, () => 202));
    expect(statuses).toContain(429);
    expect((await command("members", "set-tier", other.did, "default")).code).toBe(0);
    expect((await statusesOf(other, 1, "/relay"))[0]).toBe(202);
  }, 60_000);

  test("must be one of the configuration, and the member one of this node", async () => {
    const unknown = await command("members", "set-tier", one.did, "gold");
    expect([unknown.code, unknown.stderr]).toEqual([
      1,
      expect.stringContaining("the configuration has no tier gold"),
    ]);
    const stranger = await command("members", "set-tier", "did:svc:11111111111111111111", "slow");
    expect([stranger.code, stranger.stderr]).toEqual([
      1,
      expect.stringContaining("is not a member of this node"),
    ]);
    const named = checkConfig(inputOf({ default: { recipient_rate: 1 } }));
    expect(named).toMatchObject({ ok: false, problems: [{ setting: "tiers" }] });
  }, 60_000);

  test("goes with an erasure", async () => {
    const before = checkConfig(inputOf(tiers));
    if (!before.ok) throw new Error(JSON.stringify(before.problems));
    await nodes.reload(before.config);
    expect(await statusesOf(one, 1)).toEqual([507]);
    expect((await command("erase", one.did, "--yes")).code).toBe(0);
    expect((await command("block", "remove", one.did)).code).toBe(0);
    expect(await statusesOf(one, 4)).toEqual([202, 202, 202, 202]);
  }, 60_000);
});
