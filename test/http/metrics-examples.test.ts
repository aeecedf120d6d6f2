/** A node has every metric that the example alerts and the example dashboard name. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

let nodes: TestNodes;
let known: Set<string>;
beforeAll(async () => {
  nodes = await startTestNodes();
  const text = await (await fetch(`${nodes.url}/metrics`)).text();
  known = new Set([...text.matchAll(/^# HELP (\w+)/gm)].map((match) => match[1] as string));
});
afterAll(() => nodes.stop());

test.each(["prometheus/alerts.yml", "grafana/waypost.json"])("%s", async (name) => {
  const text = await Bun.file(`${import.meta.dir}/../../examples/${name}`).text();
  const named = [...text.matchAll(/\bwaypost_\w+/g)].map(([metric]) => metric.replace(/_bucket$/, ""));
  expect(named.length).toBeGreaterThan(5);
  expect(named.filter((metric) => !known.has(metric))).toEqual([]);
});
