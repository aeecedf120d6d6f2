/**
 * A client that asks without end, as the operator sees it: a few lines, one `warn` with its
 * network, and a metric.
 */
import { expect, test } from "bun:test";
import { freePort } from "../support/executable.ts";
import { relayAt, startTestNodes } from "../support/nodes.ts";

type Fields = Readonly<Record<string, unknown>>;

test("a flood from one network is sampled in the log, named in one warn and counted", async () => {
  const url = `http://127.0.0.1:${freePort()}`;
  const nodes = await startTestNodes({
    server: {
      listen: [url.slice("http://".length)],
      trusted_proxies: ["127.0.0.1"],
      drain_timeout: "2s",
    },
    relay: { ...relayAt(url), client_rate: 1, rate_limit_loopback: true },
  });
  const did = "did:svc:5555555555555555555555";
  const headers = { "x-forwarded-for": "203.0.113.9", "content-type": "application/json" };
  const ask = async () => {
    const answer = await fetch(`${url}/relay/${did}`, { method: "POST", headers, body: "{}" });
    await answer.text();
    return answer.status;
  };
  let refused = 0;
  for (let round = 0; round < 20; round++) {
    const statuses = await Promise.all(Array.from({ length: 20 }, ask));
    refused += statuses.filter((status) => status === 429).length;
  }
  expect(refused).toBeGreaterThan(300);
  const lines = nodes.lines.map(({ fields }) => (fields ?? {}) as Fields);
  const logged = lines.filter(({ status }) => status === 429);
  expect(logged.length).toBeLessThan(60);
  expect(logged.every(({ recipient }) => /^[0-9a-f]{16}$/.test(String(recipient)))).toBe(true);
  const metrics = await (await fetch(`${url}/metrics`)).text();
  expect(metrics).toContain(`waypost_http_refusals_total{code="rate_limited"} ${refused}\n`);
  const unlogged = Number(/^waypost_http_refusals_unlogged_total (\d+)$/m.exec(metrics)?.[1]);
  expect(unlogged).toBe(refused - logged.length);
  const warned = () => nodes.lines.filter(({ message }) => message.includes("asks too often"));
  while (warned().length === 0) await Bun.sleep(50);
  expect(warned()).toMatchObject([
    { level: "warn", fields: { network: "203.0.113.0/24", times: refused } },
  ]);
  await nodes.stop();
}, 30_000);
