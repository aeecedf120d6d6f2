/**
 * Where tests of the chat app are: ports that stay over a restart of the nodes, a folder, and the
 * nodes themselves.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ConfigInput } from "../../src/config/schema.ts";
import { freePort } from "../support/executable.ts";
import { relayAt, startTestNodes, type TestNodes } from "../support/nodes.ts";

type PlaceOptions = {
  /** The host that browsers name. Passkeys are for names, not for addresses. */
  readonly host?: "127.0.0.1" | "localhost";
  /** On disk, so that a restart finds it. */
  readonly isKept?: boolean;
  /** Where the nodes are reached, if not where they listen. */
  readonly publicPort?: number;
};

export type Place = ReturnType<typeof appPlace>;

export function appPlace({ host = "127.0.0.1", isKept = false, publicPort }: PlaceOptions = {}) {
  const [nodePort, appPort] = [freePort(), freePort()];
  const scratch = mkdtempSync(join(tmpdir(), "waypost-app-"));
  const kept: ConfigInput = {
    stores: { main: { plugin: "lmdb", path: join(scratch, "data"), block_time_ms: 50 } },
  };
  /** `name`: another host, for both. */
  const urls = (name?: string) => ({
    node: `http://${name ?? "127.0.0.1"}:${publicPort ?? nodePort}`,
    app: `http://${name ?? host}:${appPort}`,
  });
  const start = (more: ConfigInput = {}, name?: string): Promise<TestNodes> => {
    const { node, app } = urls(name);
    const listen = [nodePort, appPort].map((port) => `127.0.0.1:${port}`);
    return startTestNodes({
      ...(isKept ? kept : {}),
      server: { listen, app: new URL(app).host, drain_timeout: "1s" },
      relay: relayAt(node),
      cache: { enabled: true, public_endpoints: [node] },
      ...more,
    });
  };
  return {
    ...urls(),
    urls,
    nodePort,
    scratch,
    start,
    remove: () => rmSync(scratch, { recursive: true, maxRetries: 5 }),
  };
}
