/**
 * The apps of a process over memory, asked without a socket: what the admin listener shows of the
 * main one.
 */
import { afterEach, expect, test } from "bun:test";
import { openKeys } from "../../../src/app/keys.ts";
import { composeNodes } from "../../../src/app/nodes.ts";
import { createApps } from "../../../src/app/serving.ts";
import { openConfiguredBus, openConfiguredStores } from "../../../src/app/stores.ts";
import { checkConfig } from "../../../src/config/config.ts";
import type { ConfigInput } from "../../../src/config/schema.ts";
import type { App } from "../../../src/nodes/http/app.ts";
import { createMetrics } from "../../../src/nodes/http/metrics.ts";

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});

async function appsOf(input: ConfigInput) {
  const checked = checkConfig({ stores: { main: { plugin: "memory" } }, ...input });
  if (!checked.ok) throw new Error(JSON.stringify(checked.problems));
  const { config } = checked;
  const log = () => {};
  const now = () => Date.now();
  const bus = await openConfiguredBus(config, { log });
  const stores = await openConfiguredStores(config, {
    now,
    log,
    bus,
    fatal: () => {},
    removableMs: now,
    gauge: () => {},
  });
  const parts = {
    ...(await openKeys(config, log)),
    stores,
    bus,
    log,
    now,
    metrics: createMetrics(),
    verify: async () => true,
  };
  const nodes = await composeNodes(config, parts);
  ends.push(
    () => nodes.close(),
    () => bus.close(),
    () => stores.close(),
  );
  const apps = await createApps(config, { ...parts, nodes, reload: async () => "no file" });
  return { ...apps, nodes };
}

async function ask(app: App, path: string): Promise<Response> {
  const respond = app.paths[path] ?? app.respondElsewhere;
  const connection = { requestIP: () => ({ address: "127.0.0.1" }), upgrade: () => false };
  const response = await respond(new Request(`http://127.0.0.1${path}`), connection);
  if (response === undefined) throw new Error(`${path} became a WebSocket`);
  return response;
}

async function answer(app: App, path: string): Promise<string> {
  const response = await ask(app, path);
  const { code = "ok" } = (await response.json()) as { readonly code?: string };
  return `${response.status} ${code}`;
}

const directory = { enabled: true };

test("the admin listener reports that the main one drains, and answers on itself", async () => {
  const { main, admin } = await appsOf({ server: { admin_listen: ["127.0.0.1:0"] }, directory });
  if (admin === null) throw new Error("there is no admin app");
  expect([await answer(main, "/readyz"), await answer(admin, "/readyz")]).toEqual([
    "200 ok",
    "200 ok",
  ]);
  main.startDraining();
  expect(await answer(main, "/healthz")).toBe("503 shutting_down");
  expect(await answer(admin, "/readyz")).toBe("503 shutting_down");
  expect(await answer(admin, "/healthz")).toBe("200 ok");
});

test("what the nodes decide about maintenance is shown on /node", async () => {
  const { main, nodes } = await appsOf({ directory });
  await nodes.maintenance.begin("moving");
  expect(await (await ask(main, "/node")).json()).toMatchObject({
    maintenance: { message: "moving" },
  });
});

test("metrics stand on the admin listener alone once there is one, and operations on none that is no socket", async () => {
  const apart = await appsOf({ server: { admin_listen: ["127.0.0.1:0"] }, directory });
  expect([
    "/metrics" in apart.main.paths,
    "/metrics" in (apart.admin?.paths ?? {}),
    apart.operator,
  ]).toEqual([false, true, null]);
  const { main, admin } = await appsOf({ directory });
  expect(["/metrics" in main.paths, admin]).toEqual([true, null]);
});
