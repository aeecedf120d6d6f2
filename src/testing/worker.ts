/**
 * The thread of a test's node: all three nodes over memory, everything local allowed, blocks every
 * 20 ms. It reports its address to the thread that started it, which ends it.
 */
// First: the modules below use what it adds.
import "./runtime.ts";
import { createServer } from "node:net";
import { parentPort } from "node:worker_threads";
import { startNodes } from "../app/compose.ts";
import { checkConfig } from "../config/config.ts";

const host = "127.0.0.1";

/**
 * One that the system gives away at this moment: the node's own address
 * stands in its configuration.
 */
const freePort = (): Promise<number> =>
  new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, host, () => {
      const address = server.address();
      const port = typeof address === "object" && address !== null ? address.port : 0;
      server.close(() => resolve(port));
    });
  });

const port = await freePort();
const url = `http://${host}:${port}`;
const checked = checkConfig({
  server: { listen: [`${host}:${port}`] },
  stores: { main: { plugin: "memory", block_time_ms: 20 } },
  directory: { enabled: true, unsigned_updates: "allow", rate_limit_loopback: false },
  relay: {
    enabled: true,
    public_id: "test",
    public_endpoints: [url],
    allow_http: true,
    allow_private: ["127.0.0.0/8", "::1/128"],
    rate_limit_loopback: false,
  },
  cache: { enabled: true, public_endpoints: [url] },
});
if (!checked.ok) throw new Error(JSON.stringify(checked.problems));
await startNodes(checked.config, {
  // What a test looks at is the answer; an error is a bug of the node.
  log: (level, message, fields) => {
    if (level === "error") console.error(message, fields);
  },
  onFatal: (reason) => {
    throw new Error(reason);
  },
});
parentPort?.postMessage(url);
