/**
 * The example alerts under Prometheus' own unit tests, one incident each, from the series that a
 * node shows; and a full mailbox behind the Relay of a real node, which must show those series.
 */
import { afterAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { freePort, scratchFolder } from "../support/executable.ts";
import { relayAt, startTestNodes } from "../support/nodes.ts";

const promtool = Bun.which("promtool");
if (promtool === null)
  console.log("SKIPPED: the alerts, for want of promtool (package prometheus)");
const folder = scratchFolder();
afterAll(folder.remove);

/** Series by name and labels, with values a minute apart in Prometheus' form: `0+200x60`. */
type Series = Readonly<Record<string, string>>;

const mailboxes = (scope: string) => `waypost_cache_share_refusals_total{scope="${scope}"}`;
const requests = (route: string, status: number) =>
  `waypost_http_requests_total{method="POST",route="${route}",status="${status}"}`;
const unharmed: Series = {
  [mailboxes("mailbox")]: "0x120",
  [mailboxes("new")]: "0x120",
  [mailboxes("disk")]: "0x120",
  [mailboxes("whole")]: "0x120",
  [requests("/relay/:did", 202)]: "0+60x120",
  'waypost_relay_results_total{code="cached",deduped="false"}': "0+60x120",
  'waypost_relay_results_total{code="cache_unavailable",deduped="false"}': "0x120",
  waypost_store_damage_total: "0x120",
  waypost_process_open_fds: "40x120",
  waypost_process_max_fds: "65536x120",
};
const abandoned: Series = {
  [mailboxes("mailbox")]: "0+12x120",
  [requests("/relay/:did", 502)]: "0+4x120",
  [requests("/cache/store", 507)]: "0+4x120",
  'waypost_relay_results_total{code="cache_unavailable",deduped="false"}': "0+4x120",
};

const incidents: readonly (readonly [what: string, series: Series, alerts: readonly string[]])[] = [
  ["nothing", {}, []],
  [
    "one abandoned mailbox to which a bot writes through the Relay",
    abandoned,
    ["WaypostMailboxFull"],
  ],
  [
    "pools of newcomers that are used up",
    { [mailboxes("new")]: "0+1x120" },
    ["WaypostMailboxFull"],
  ],
  ["a full disk behind the Relay", { [mailboxes("disk")]: "0x55 9+9x65" }, ["WaypostCacheFull"]],
  ["one burst against a full store", { [mailboxes("whole")]: "0x57 300x63" }, ["WaypostCacheFull"]],
  [
    "bugs in one of twenty requests",
    { [requests("/cache/store", 500)]: "0+4x120" },
    ["WaypostServerErrors"],
  ],
  [
    "a chain that does not answer",
    { [requests("/register-did", 502)]: "0+4x120" },
    ["WaypostServerErrors"],
  ],
  [
    "a way out that is broken",
    {
      [requests("/relay/:did", 504)]: "0+60x120",
      'waypost_relay_results_total{code="upstream_timeout",deduped="false"}': "0+90x120",
    },
    ["WaypostDeliveriesFail"],
  ],
  [
    "descriptors that are used up",
    { waypost_process_open_fds: "65000x120" },
    ["WaypostDescriptors"],
  ],
  [
    "a Cache that fills",
    { waypost_mailbox_bytes: "95x120", waypost_cache_store_bytes_max: "100x120" },
    ["WaypostCacheFills"],
  ],
  [
    "a damaged record that one request met",
    { waypost_store_damage_total: "0x30 1x90" },
    ["WaypostDamage"],
  ],
  ["a timer that has not run yet", { [timer()]: "0x3000" }, []],
  ["a timer that has not run for days", { [timer()]: "1x3000" }, ["WaypostBackupOld"]],
];

function timer(): string {
  return 'node_systemd_timer_last_trigger_seconds{name="waypost-backup.timer"}';
}

const names = [
  ...["WaypostMailboxFull", "WaypostCacheFull", "WaypostServerErrors", "WaypostDeliveriesFail"],
  ...["WaypostDescriptors", "WaypostBackupOld", "WaypostCacheFills", "WaypostDamage"],
];

/** One incident as Prometheus' unit tests take it: an hour of it, and of a timer two days. */
function ruleTestOf([name, series, alerts]: (typeof incidents)[number]) {
  const all = Object.entries({ ...unharmed, ...series });
  const eval_time = timer() in series ? "49h" : "60m";
  return {
    name,
    interval: "1m",
    input_series: all.map(([one, values]) => ({ series: one, values })),
    promql_expr_test: names.map((alertname) => ({
      expr: `count(ALERTS{alertname="${alertname}",alertstate="firing"}) or vector(0)`,
      eval_time,
      exp_samples: [{ labels: "{}", value: Number(alerts.includes(alertname)) }],
    })),
  };
}

/** What promtool prints of the incidents that go otherwise; nothing when all go as they should. */
async function checked(tests: readonly (typeof incidents)[number][]): Promise<string> {
  const file = join(folder.path, `${crypto.randomUUID()}.yml`);
  const rule_files = [join(import.meta.dir, "../../examples/prometheus/alerts.yml")];
  const text = { rule_files, evaluation_interval: "2m", tests: tests.map(ruleTestOf) };
  writeFileSync(file, JSON.stringify(text));
  const child = Bun.spawn([promtool ?? "", "test", "rules", file], {
    stdout: "pipe",
    stderr: "pipe",
  });
  const said = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  return (await child.exited) === 0 ? "" : said.join("\n");
}

test.skipIf(promtool === null)(
  "each incident fires its own alerts and no others",
  async () => {
    expect(await checked(incidents)).toBe("");
  },
  60_000,
);

test.skipIf(promtool === null)("a test that expects another alert fails", async () => {
  const wrong = ["pages for a mailbox", abandoned, ["WaypostServerErrors"]] as const;
  expect(await checked([wrong])).toContain("FAILED");
});

test("a node shows the series of a full mailbox behind its Relay from its start, and counts there", async () => {
  const url = `http://127.0.0.1:${freePort()}`;
  const nodes = await startTestNodes({
    server: { listen: [url.slice("http://".length)], drain_timeout: "2s" },
    relay: { ...relayAt(url), attempts: 1 },
    cache: { enabled: true, public_endpoints: [url], recipient_entries_max: 1 },
  });
  const refused = async (scope: string) => {
    const text = await (await fetch(`${url}/metrics`)).text();
    const line = text.split("\n").find((one) => one.startsWith(`${mailboxes(scope)} `));
    return line?.split(" ")[1];
  };
  const shown = await Promise.all(["mailbox", "new", "disk", "whole"].map(refused));
  expect(shown).toEqual(["0", "0", "0", "0"]);
  const open = () =>
    Waypost.open({
      url,
      keys: memoryKeys(),
      retries: 0,
      waiting: { timeoutMs: 60_000, intervalMs: 20 },
    });
  const [alice, bob] = [await open(), await open()];
  await alice.send(bob.did, "one");
  await expect(alice.send(bob.did, "two")).rejects.toMatchObject({ code: "mailbox_full" });
  expect(Number(await refused("mailbox"))).toBeGreaterThan(0);
  await Promise.all([alice.close(), bob.close()]);
  await nodes.stop();
});
