/** The server itself closes connections beyond the bound; those of other networks and short ones continue. */
import { afterEach, expect, test } from "bun:test";
import { connect, type Socket } from "node:net";
import { startConnectionGuard } from "../../src/nodes/http/connections.ts";
import { createMetrics } from "../../src/nodes/http/metrics.ts";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const isLinux = process.platform === "linux";
const connectionsMax = 40;

/** Opens connections that have begun a request: before its first byte the kernel keeps a connection to itself. */
async function open(port: number, localAddress: string, count: number): Promise<Socket[]> {
  const sockets: Socket[] = [];
  for (let i = 0; i < count; i++) {
    const socket = connect({ host: "127.0.0.1", port, localAddress });
    socket.on("error", () => undefined);
    socket.write("GET / HTTP/1.1\r\n");
    sockets.push(socket);
  }
  await Bun.sleep(300);
  cleanups.push(() => sockets.forEach((socket) => void socket.destroy()));
  return sockets;
}

test.skipIf(!isLinux)(
  "the newest of whoever has most go, those of another stay, and the log says so once",
  async () => {
    const server = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response("served") });
    cleanups.push(() => server.stop(true));
    const port = server.port as number;
    const lines: string[] = [];
    const metrics = createMetrics();
    const guard = startConnectionGuard({
      ports: () => [port],
      connectionsMax,
      trustedProxies: () => [],
      log: (level, message, fields) => lines.push(`${level} ${message} ${JSON.stringify(fields)}`),
      metrics,
      now: Date.now,
    });
    cleanups.push(() => guard?.close());
    const others = await open(port, "127.0.0.3", 5);
    const many = await open(port, "127.0.0.2", 50);
    const isOpen = (socket: Socket): boolean => !socket.destroyed && !socket.readableEnded && !socket.closed;
    for (let tries = 0; many.filter(isOpen).length > connectionsMax - 5 && tries < 100; tries++) await Bun.sleep(50);
    expect([many.filter(isOpen).length, others.filter(isOpen).length]).toEqual([connectionsMax - 5, 5]);
    expect(await (await fetch(`http://127.0.0.1:${port}/`)).text()).toBe("served");
    expect(lines.length).toBe(1);
    expect(lines[0]).toContain('"networks":["127.0.0.0/24"]');
    expect(await metrics.render()).toContain('http_connections_closed_total{scope="total"} 15');
  },
);
