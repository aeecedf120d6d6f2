/**
 * Sockets: binds an app to an address or a Unix socket, keeps dot segments and other rewritten paths
 * away from it, hands upgrades to live sessions, and drains at the end.
 * The server's own router sees the path as sent while `request.url` has been rewritten (`..`, `%2e%2e`,
 * backslashes); a request that reaches a route only by such a rewriting is refused here.
 * Source: decisions section 9.
 */
import { rmSync, statSync } from "node:fs";
import { connect } from "node:net";
import type { Server, WebSocketHandler } from "bun";
import { type Fault, fault } from "../../core/fault.ts";
import { noAddress } from "./client-address.ts";
import { type App, type Connection, pathOf } from "./pipeline.ts";

/** The seam of live sessions. `Session` is what the server keeps for each open socket. */
export type Upgrade<Session> = {
  readonly matches: (pathname: string) => boolean;
  /** `undefined` when the connection has been upgraded. */
  readonly open: (
    request: Request,
    server: Server<Session>,
    context: UpgradeContext,
  ) => Response | undefined | Promise<Response | undefined>;
  readonly websocket: WebSocketHandler<Session>;
};

export type UpgradeContext = {
  /** Address of the client after trusted proxies. */
  readonly client: string;
  readonly nowMs: number;
  /** Renders a refusal as the shell does. */
  readonly refuse: (refusal: Fault) => Response;
};

export type ListenOptions<Session> = {
  readonly app: App;
  /** `127.0.0.1:7400`, `[::]:7400`, port 0 for a free one, or `unix:/run/waypost.sock`. */
  readonly address: string;
  readonly now: () => number;
  /** Whether other processes may listen on the same port. */
  readonly sharePort?: boolean;
  readonly upgrade?: Upgrade<Session>;
};

export type Listener = {
  /** Base URL without a trailing slash, or the socket path with `unix:`. */
  readonly url: string;
  /** Takes no new connection and resolves when what is in flight is answered, or time is up. */
  readonly drain: (timeoutMs: number) => Promise<void>;
};

/** Seconds; the longest silence of a TCP connection, also of one whose handler is at work. */
const idleTimeoutSeconds = 30;

export function listen<Session>(options: ListenOptions<Session>): Listener {
  const { app, upgrade } = options;
  const respond = (request: Request, server: Server<Session>): Promise<Response> =>
    app.respond(request, connectionOf(request, server));
  const routed = async (request: RoutedRequest, server: Server<Session>): Promise<Response> =>
    isRewritten(request.params) ? app.refuse(request, rewritten()) : respond(request, server);
  const routes = Object.fromEntries(app.routes.map((route) => [route.path, routed]));
  const fetch = async (request: Request, server: Server<Session>): Promise<Response | undefined> => {
    if (upgrade?.matches(pathOf(request.url))) {
      if (app.draining()) return app.refuse(request, fault("shutting_down", "the node is shutting down"));
      return upgrade.open(request, server, upgradeContext(options, request, server));
    }
    return app.refuse(request, fault("not_found", "there is no such route"));
  };
  const shared = {
    routes,
    fetch,
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    development: false,
    error: () => new Response(null, { status: 500, headers: { connection: "close" } }),
    websocket: upgrade?.websocket ?? noWebSocket<Session>(),
  };
  const place = parseListenAddress(options.address);
  if (place === null) throw new Error(`${options.address} is no address to listen on`);
  const server =
    "unix" in place
      ? Bun.serve<Session, string>({ ...shared, unix: place.unix })
      : Bun.serve<Session, string>({
          ...shared,
          // Said because outside development the server would share its port with a second process.
          reusePort: options.sharePort ?? false,
          idleTimeout: idleTimeoutSeconds,
          hostname: place.hostname,
          port: place.port,
        });
  return {
    url: "unix" in place ? options.address : baseUrl(place.hostname, server.port ?? place.port),
    drain: (timeoutMs) => drain(app, server, timeoutMs),
  };
}

/** Without sessions no request is ever upgraded. */
function noWebSocket<Session>(): WebSocketHandler<Session> {
  return { message: (socket) => socket.terminate() };
}

type RoutedRequest = Request & { readonly params?: Readonly<Record<string, string>> };

/**
 * Values that URL rewriting changes: dot segments, backslashes, controls. No identifier of the service
 * holds any of them.
 */
function isRewritten(params: Readonly<Record<string, string>> | undefined): boolean {
  if (params === undefined) return false;
  return Object.values(params).some((value) => value === "." || value === ".." || /[\\\x00-\x1f\x7f]/.test(value));
}

function rewritten(): Fault {
  return fault("invalid_request", "values of a path hold no dot segments, backslashes or control characters");
}

function connectionOf<Session>(request: Request, server: Server<Session>): Connection {
  return {
    peer: server.requestIP(request)?.address ?? noAddress,
    setIdle: (seconds) => server.timeout(request, seconds),
  };
}

function upgradeContext<Session>(
  options: ListenOptions<Session>,
  request: Request,
  server: Server<Session>,
): UpgradeContext {
  return {
    client: options.app.clientOf(request, server.requestIP(request)?.address ?? noAddress),
    nowMs: options.now(),
    refuse: (refusal) => options.app.refuse(request, refusal),
  };
}

export type ListenAddress = { readonly unix: string } | { readonly hostname: string; readonly port: number };

/** `host:port`, `[v6]:port` or `unix:/path`; `null` for anything else. */
export function parseListenAddress(text: string): ListenAddress | null {
  if (text.startsWith("unix:")) return text.length > 5 && text.length < 100 ? { unix: text.slice(5) } : null;
  const m = /^(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})$/.exec(text);
  if (m === null || Number(m[3]) > 65_535) return null;
  return { hostname: (m[1] ?? m[2]) as string, port: Number(m[3]) };
}

/**
 * Removes the file of a Unix socket that nobody listens on any more: a killed process leaves it behind, and
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

/** Only callers of this machine reach it. */
export function isLoopbackListener(text: string): boolean {
  const place = parseListenAddress(text);
  if (place === null) return false;
  if ("unix" in place) return true;
  return place.hostname === "localhost" || place.hostname === "::1" || /^127\.\d+\.\d+\.\d+$/.test(place.hostname);
}

function baseUrl(hostname: string, port: number): string {
  return `http://${hostname.includes(":") ? `[${hostname}]` : hostname}:${port}`;
}

const drainPollMs = 20;

async function drain<Session>(app: App, server: Server<Session>, timeoutMs: number): Promise<void> {
  app.startDraining();
  const stopped = server.stop(false);
  const endsAt = performance.now() + timeoutMs;
  const busy = (): boolean => {
    const { requests, arriving } = app.inFlight();
    return requests + arriving + server.pendingRequests > 0;
  };
  while (busy() && performance.now() < endsAt) await Bun.sleep(drainPollMs);
  await server.stop(true);
  await Promise.race([stopped, Bun.sleep(drainPollMs)]);
}
