/**
 * DNS rebinding: a stranger's page whose own name leads to this machine must not pass for a page of
 * it.
 */
import { expect, test } from "bun:test";
import { isPrivateHost } from "../../src/core/message/address.ts";
import { startTestNodes } from "../support/nodes.ts";

test("where policies change without a proof, a page of another host changes and reads nothing", async () => {
  const nodes = await startTestNodes();
  const did = "did:svc:1111111111111111111111";
  const ask = async (host: string) => {
    const change = await fetch(`${nodes.url}/dids/${did}/alias`, {
      method: "PUT",
      headers: { "content-type": "application/json", host },
      body: "{}",
    });
    const read = await fetch(`${nodes.url}/limits`, { headers: { host } });
    return [change.status, read.status];
  };
  expect(await ask("page.example")).toEqual([403, 403]);
  expect(await ask("localhost:7400")).toEqual([400, 200]);
  await nodes.stop();
});

test("a name in public_endpoints is accepted there, and every name where proofs are needed", async () => {
  const input = (unsigned_updates: "allow" | "deny") => ({
    stores: { main: { plugin: "memory" } },
    directory: { enabled: true, unsigned_updates },
    relay: { enabled: false },
    cache: { enabled: true, public_endpoints: ["https://try.example.org"] },
  });
  for (const [updates, host, status] of [
    ["allow", "try.example.org", 200],
    ["allow", "page.example", 403],
    ["deny", "page.example", 200],
  ] as const) {
    const nodes = await startTestNodes(input(updates));
    expect([
      updates,
      host,
      (await fetch(`${nodes.url}/limits`, { headers: { host } })).status,
    ]).toEqual([updates, host, status]);
    await nodes.stop();
  }
});

test.each([
  ["localhost", true],
  ["LOCALHOST:7400", true],
  ["app.localhost", true],
  ["127.0.0.1:7400", true],
  ["192.168.1.7", true],
  ["[::1]:7400", true],
  ["[fe80::1]", true],
  ["waypost:7401", true],
  ["node.local", true],
  ["waypost.default.svc.cluster.local:7401", true],
  ["page.example", false],
  ["127.0.0.1.page.example", false],
  ["localhost.page.example:7400", false],
  ["page.example.", false],
  ["internal.example.org", false],
  ["0x7f.1", false],
  ["", false],
])("%s is a name of this machine: %p", (host, isPrivate) =>
  expect(isPrivateHost(host)).toBe(isPrivate),
);
