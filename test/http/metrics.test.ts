/**
 * Metrics of a node: Prometheus' own checker finds no mistake in the text, and the
 * example alerts and the example dashboard name no other metric.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

let nodes: TestNodes;
beforeAll(async () => {
  nodes = await startTestNodes();
});
afterAll(() => nodes.stop());

const metrics = async (): Promise<string> => (await fetch(`${nodes.url}/metrics`)).text();

const promtool = Bun.which("promtool");
if (promtool === null) console.log("SKIPPED: promtool, which is not on this machine");
test.skipIf(promtool === null)("promtool finds nothing in /metrics", async () => {
  await fetch(`${nodes.url}/limits`);
  const child = Bun.spawn([promtool ?? "", "check", "metrics"], {
    stdin: "pipe",
    stdout: "pipe",
    stderr: "pipe",
  });
  child.stdin.write(await metrics());
  await child.stdin.end();
  const said = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  expect([await child.exited, ...said]).toEqual([0, "", ""]);
});

test.skipIf(promtool === null)(
  "promtool finds nothing in the alerts and the scrape configuration",
  async () => {
    for (const [kind, name] of [
      ["rules", "alerts.yml"],
      ["config", "prometheus.yml"],
    ] as const) {
      const file = `${import.meta.dir}/../../examples/prometheus/${name}`;
      const child = Bun.spawn([promtool ?? "", "check", kind, file], {
        stdout: "pipe",
        stderr: "pipe",
      });
      expect([name, await child.exited, await new Response(child.stderr).text()]).toEqual([
        name,
        0,
        "",
      ]);
    }
  },
);

test("each alert has a row in docs/run.md", async () => {
  const root = `${import.meta.dir}/../..`;
  const alerts = await Bun.file(`${root}/examples/prometheus/alerts.yml`).text();
  const names = [...alerts.matchAll(/^ +- alert: (\w+)$/gm)].map(([, name]) => name ?? "");
  const page = await Bun.file(`${root}/docs/run.md`).text();
  const rows = page.split("\n").filter((line) => line.startsWith("| `Waypost"));
  expect(names.length).toBeGreaterThan(15);
  expect(names.filter((name) => !rows.some((row) => row.includes(`\`${name}\``)))).toEqual([]);
  const named = rows.flatMap((row) => [...row.matchAll(/`(Waypost\w+)`/g)].map(([, one]) => one));
  expect(named.filter((name) => !names.includes(name ?? ""))).toEqual([]);
});

test.each(["prometheus/alerts.yml", "grafana/waypost.json"])(
  "a node has every metric in %s",
  async (name) => {
    const known = new Set(
      [...(await metrics()).matchAll(/^# HELP (\w+)/gm)].map((match) => match[1]),
    );
    // Of nodes with a certificate: tls.test.ts.
    known.add("waypost_tls_certificate_not_after_seconds");
    // Of nodes that push: push.test.ts.
    known.add("waypost_push_requests_total");
    // Of nodes with a database: postgres-clock.test.ts and postgres-standby.test.ts.
    known.add("waypost_store_clock_ahead_seconds").add("waypost_store_standbys");
    const text = await Bun.file(`${import.meta.dir}/../../examples/${name}`).text();
    const named = [...text.matchAll(/\bwaypost_\w+/g)].map(([metric]) =>
      metric.replace(/_bucket$/, ""),
    );
    expect(named.length).toBeGreaterThan(5);
    expect(named.filter((metric) => !known.has(metric))).toEqual([]);
  },
);

/** What docs/run.md asks when something is wrong, and what says nothing over time. */
const withoutPanel: readonly string[] = [
  ...["waypost_ledger_finalized_block", "waypost_bus_subscriptions"],
  ...["waypost_relay_attempts_total", "waypost_relay_outbound_active"],
  ...["waypost_key_bundles_total", "waypost_http_refusals_unlogged_total"],
  ...["waypost_http_answer_bytes_waiting", "waypost_http_refusals_delayed"],
  "waypost_process_start_time_seconds",
];

test("the dashboard or an alert names each metric of a node", async () => {
  const root = `${import.meta.dir}/../../examples`;
  const files = ["prometheus/alerts.yml", "grafana/waypost.json"];
  const texts = await Promise.all(files.map((file) => Bun.file(`${root}/${file}`).text()));
  const named = new Set(
    [...texts.join("\n").matchAll(/\bwaypost_\w+/g)].map(([name]) => name.replace(/_bucket$/, "")),
  );
  const all = [...(await metrics()).matchAll(/^# HELP (\w+)/gm)].map(([, name]) => name ?? "");
  expect(all.length).toBeGreaterThan(25);
  expect(all.filter((name) => !named.has(name))).toEqual([...withoutPanel]);
});
