/**
 * Ways to servers that a test can close as a broken network does: what is sent waits, and new
 * connections stay silent, until it is open again.
 */
import { connect, createServer, type Server, type Socket } from "node:net";
import type { PostgresPair } from "./postgres-pair.ts";

class Way {
  private readonly sockets = new Set<Socket>();
  private isClosed = false;
  /** Connections that came while it was closed. */
  private waiting: (() => void)[] = [];

  private constructor(
    private readonly server: Server,
    private readonly to: number,
  ) {}

  /** To a port of this machine. */
  static async open(to: number): Promise<Way> {
    const server = createServer();
    const way = new Way(server, to);
    server.on("connection", (socket) => way.take(socket));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return way;
  }

  get port(): number {
    return (this.server.address() as { readonly port: number }).port;
  }

  private take(near: Socket): void {
    this.sockets.add(near);
    near.on("error", () => {});
    near.on("close", () => this.sockets.delete(near));
    near.pause();
    const join = (): void => {
      if (near.destroyed) return;
      const far = connect(this.to, "127.0.0.1");
      this.sockets.add(far);
      far.on("close", () => this.sockets.delete(far));
      for (const [one, other] of [
        [near, far],
        [far, near],
      ] as const) {
        one.on("data", (bytes) => void other.write(bytes));
        one.on("error", () => other.destroy());
        one.on("close", () => other.destroy());
      }
      near.resume();
    };
    if (this.isClosed) this.waiting.push(join);
    else join();
  }

  close(): void {
    this.isClosed = true;
    for (const socket of this.sockets) socket.pause();
  }

  reopen(): void {
    this.isClosed = false;
    for (const socket of this.sockets) socket.resume();
    for (const join of this.waiting.splice(0)) join();
  }

  end(): void {
    this.server.close();
    for (const socket of this.sockets) socket.destroy();
  }
}

type WayOf = { readonly url: string; readonly pair: PostgresPair; readonly to: string };

/** From each of some nodes to both servers of each database. Other nodes go straight to them. */
export class Ways {
  private constructor(private readonly all: readonly (WayOf & { readonly way: Way })[]) {}

  /** `urls` name the nodes. */
  static async open(urls: readonly string[], pairs: readonly PostgresPair[]): Promise<Ways> {
    const wanted = urls.flatMap((url) =>
      pairs.flatMap((pair) => pair.urls.map((to) => ({ url, pair, to }))),
    );
    const opened = wanted.map(async (one) => ({
      ...one,
      way: await Way.open(Number(new URL(one.to).port)),
    }));
    return new Ways(await Promise.all(opened));
  }

  /** How a node names the servers of a database. */
  serversFor(url: string, pair: PostgresPair): string[] {
    return pair.urls.map((to) => {
      const way = this.all.find((one) => one.url === url && one.to === to)?.way;
      return way === undefined ? to : to.replace(`:${new URL(to).port}/`, `:${way.port}/`);
    });
  }

  /** For so long these nodes can't reach the database. */
  async cut(pair: PostgresPair, urls: readonly string[], ms: number): Promise<void> {
    const cut = this.all.filter((one) => one.pair === pair && urls.includes(one.url));
    for (const { way } of cut) way.close();
    await Bun.sleep(ms);
    for (const { way } of cut) way.reopen();
  }

  end(): void {
    for (const { way } of this.all) way.end();
  }
}
