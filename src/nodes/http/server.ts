/**
 * Sockets: binds an app to an address or a Unix socket, refuses dot segments and other
 * rewritten paths for it, and drains at the end.
 * The server's own router sees the path as sent while `request.url` has been rewritten
 * (`..`, `%2e%2e`, backslashes); a request that reaches a route only by such a rewriting is
 * refused here.
 * Source: rules section 9.
 */
import { rmSync, statSync } from "node:fs";
import { connect } from "node:net";
import type { Server, ServerWebSocket, WebSocketHandler } from "bun";
import { parseListenAddress } from "../../core/message/address.ts";
import { withDeadline } from "../../core/std/bounded.ts";
import type { App, Respond } from "./app.ts";

type ListenOptions = {
  readonly app: App;
  /** `127.0.0.1:7400`, `[::]:7400`, port 0 for a free one, or `unix:/run/waypost.sock`. */
  readonly address: string;
  /** Speaks TLS with it; not on Unix sockets. */
  readonly certificate?: Certificate;
  /** What becomes of connections that a route has made WebSockets. */
  readonly websocket?: WebSocketHandler<unknown>;
  /** Another app that answers all requests for one host. */
  readonly site?: Site;
};

export type Site = { readonly host: string; readonly app: App };

/** A certificate with the chain behind it, and its key, in PEM. */
export type Certificate = { readonly cert: string; readonly key: string };

export type HttpListener = {
  /** Base URL without a trailing slash, or the socket path with `unix:`. */
  readonly url: string;
  /** Refuses new connections, and those that wait; the others go on. */
  readonly pause: () => void;
  /** Listens at the same address again. Throws when it can't; then it is still paused. */
  readonly resume: () => void;
  /**
   * Accepts no new connection. Resolves when the requests in flight are answered, or after
   * the time.
   */
  readonly drain: (timeoutMs: number) => Promise<void>;
};

/** Seconds; the longest silence of a TCP connection, also while its handler works. */
const idleTimeoutSeconds = 30;

export function listen(options: ListenOptions): HttpListener {
  const { app, site, address, certificate } = options;
  const place = parseListenAddress(address);
  if (place === null) throw new Error(`${address} is not an address to listen on`);
  const handlers = handlersOf(options);
  const apps = site === undefined ? [app] : [app, site.app];
  if ("unix" in place) {
    const bind = () => Bun.serve<unknown, string>({ ...handlers, unix: place.unix });
    return listenerOf(apps, address, { first: bind(), again: bind });
  }
  const tls = certificate === undefined ? {} : { tls: certificate };
  const bind = (port: number) =>
    Bun.serve<unknown, string>({
      ...handlers,
      hostname: place.hostname,
      port,
      // Bun shares a port with other processes by default.
      reusePort: false,
      ...tls,
      idleTimeout: idleTimeoutSeconds,
    });
  const first = bind(place.port);
  const port = first.port ?? place.port;
  const host = place.hostname.includes(":") ? `[${place.hostname}]` : place.hostname;
  const url = `${certificate === undefined ? "http" : "https"}://${host}:${port}`;
  return listenerOf(apps, url, { first, again: () => bind(port) });
}

type Binding = { readonly first: Server<unknown>; readonly again: () => Server<unknown> };

function listenerOf(apps: readonly App[], url: string, { first, again }: Binding): HttpListener {
  /** Those that were paused, until their last connection has ended. */
  const former = new Set<Server<unknown>>();
  let current: Server<unknown> | null = first;
  return {
    url,
    pause: () => {
      if (current === null) return;
      const server = current;
      current = null;
      former.add(server);
      void server.stop(false).finally(() => former.delete(server));
    },
    resume: () => {
      current ??= again();
    },
    drain: (timeoutMs) =>
      drain(apps, [...former, ...(current === null ? [] : [current])], timeoutMs),
  };
}

/** What a server answers with, whatever it listens on. */
function handlersOf(options: ListenOptions) {
  const { app, websocket, site } = options;
  const respond: Respond = (request, server) =>
    (site !== undefined && isFor(site, request) ? site.app : app).respondElsewhere(request, server);
  return {
    routes: site === undefined ? app.paths : pathsOfBoth(app, site),
    fetch: respond,
    // Without sessions no request is ever upgraded.
    websocket: websocket ?? { message: (socket: ServerWebSocket<unknown>) => socket.terminate() },
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    development: false,
    error: () => new Response(null, { status: 500, headers: { connection: "close" } }),
  } as const;
}

function isFor({ host }: Site, { headers }: Request): boolean {
  const named = headers.get("host");
  return named === host || named?.toLowerCase() === host;
}

/** The server has one table of paths for all hosts. */
function pathsOfBoth(app: App, site: Site): App["paths"] {
  const names = new Set([...Object.keys(app.paths), ...Object.keys(site.app.paths)]);
  const responderOf = (one: App, path: string) => one.paths[path] ?? one.respondElsewhere;
  return Object.fromEntries(
    [...names].map((path) => {
      const [own, others] = [responderOf(site.app, path), responderOf(app, path)];
      return [
        path,
        (request, connection) => (isFor(site, request) ? own : others)(request, connection),
      ];
    }),
  );
}

/**
 * Removes the file of a Unix socket without a listener: a killed process leaves it behind, and
 * the next one could not bind it. Anything else at the path is left alone.
 */
export async function removeStaleSocket(address: string): Promise<void> {
  const place = parseListenAddress(address);
  if (place === null || !("unix" in place)) return;
  const path = place.unix;
  if (statSync(path, { throwIfNoEntry: false })?.isSocket() !== true) return;
  const refused = await new Promise<boolean>((resolve) => {
    const socket = connect(path, () => {
      socket.destroy();
      resolve(false);
    });
    socket.on("error", (error) => resolve("code" in error && error.code === "ECONNREFUSED"));
  });
  if (refused) rmSync(path, { force: true });
}

const drainPollMs = 20;

/**
 * The server has stopped when its clients are answered; of those who have left, the work
 * goes on.
 */
async function drain(
  apps: readonly App[],
  servers: readonly Server<unknown>[],
  timeoutMs: number,
): Promise<void> {
  for (const app of apps) app.startDraining();
  const endsAtMs = performance.now() + timeoutMs;
  const stopping = servers.map((server) => server.stop(false));
  await withDeadline(Promise.all(stopping), timeoutMs);
  const isBusy = (app: App) => app.inFlight().requests + app.inFlight().bodyBytes > 0;
  while (apps.some(isBusy) && performance.now() < endsAtMs) await Bun.sleep(drainPollMs);
  await Promise.all(servers.map((server) => server.stop(true)));
}
