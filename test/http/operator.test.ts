/** Who runs the node: what `[operator]` says, and where. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import type { ConfigInput } from "../../src/config/schema.ts";
import { freePort } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

const url = `http://127.0.0.1:${freePort()}`;
const operator = {
  did: "did:svc:11111111111111111111",
  contact: "mailto:admin@example.org",
  rules: "https://example.org/rules",
  welcome: "Welcome. Be kind.",
};
const input: ConfigInput = {
  server: { listen: [url.slice("http://".length)], drain_timeout: "2s" },
  stores: { main: { plugin: "memory" } },
  directory: { enabled: true },
  operator,
};

let nodes: TestNodes;
beforeAll(async () => {
  nodes = await startTestNodes(input);
});
afterAll(() => nodes.stop());

test("the node shows who runs it", async () => {
  expect(await (await fetch(`${url}/node`)).json()).toMatchObject({ operator });
});

test("the limits name contact and rules", async () => {
  const named = { operator_contact: operator.contact, operator_rules: operator.rules };
  expect(await (await fetch(`${url}/limits`)).json()).toMatchObject(named);
});
