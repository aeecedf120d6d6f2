/**
 * The Unix sockets of the admin listener. They are served by `node:http`, because Bun's own
 * server does not give the descriptor of a connection, by which the kernel names the user
 * at its other end. Operators' requests are few and their answers short, so an answer is
 * held whole.
 */
import { chmodSync, chownSync, mkdirSync, readdirSync, statSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createSocketServer, type Socket } from "node:net";
import { dirname } from "node:path";
import { errorText } from "../../core/fault.ts";
import type { App, Respond } from "./app.ts";
import { groupId, type Peer, peerOf } from "./peer.ts";
import type { HttpListener } from "./server.ts";

type AdminSocket = {
  readonly app: App;
  readonly path: string;
  /** Name or number of the group that may connect too; `null`: that of the process. */
  readonly group: string | null;
};

const drainPollMs = 20;
const limits = {
  /** Of all users, and of one. The public listener needs the descriptors of the process. */
  connections: 128,
  connectionsOfUser: 32,
  /** Of all, for root and the node's own user alone. */
  connectionsOfOwn: 8,
  /** Until the whole head of a first or next request. */
  idleMs: 5_000,
  /** Until the whole body, after its head. */
  requestMs: 10_000,
};

/**
 * Owner and group alone may connect (mode 0660). Rejects when the path can't be bound, or
 * the group not be given.
 */
export async function listenForPeers({ app, path, group }: AdminSocket): Promise<HttpListener> {
  const gid = group === null ? null : groupNumber(group);
  if (gid !== null) openFolder(dirname(path), gid);
  const peers = new WeakMap<Socket, Peer | null>();
  const open = new Set<Socket>();
  const closing = createClosing(limits.idleMs);
  let answering = 0;
  const http = createServer(async (request, response) => {
    answering += 1;
    const { socket } = request;
    const peer = peers.get(socket) ?? null;
    closing.stop(socket);
    const late = setTimeout(() => socket.destroy(), limits.requestMs);
    request.once("end", () => clearTimeout(late));
    request.once("close", () => clearTimeout(late));
    await answerPeer(app, request, { response, peer }).catch(() => socket.destroy());
    closing.start(socket);
    answering -= 1;
  });
  const hasRoom = (peer: Peer | null): boolean => {
    const isOwn = peer?.uid === 0 || peer?.uid === process.getuid?.();
    if (open.size >= limits.connections - (isOwn ? 0 : limits.connectionsOfOwn)) return false;
    const isSame = (socket: Socket) => peers.get(socket)?.uid === peer?.uid;
    return [...open].filter(isSame).length < limits.connectionsOfUser;
  };
  const bind = () => {
    const server = createSocketServer((socket) => {
      const peer = peerOf(descriptorOf(socket));
      socket.on("error", () => socket.destroy());
      if (!hasRoom(peer)) {
        socket.destroy();
        return;
      }
      peers.set(socket, peer);
      open.add(socket);
      closing.start(socket);
      socket.on("close", () => {
        open.delete(socket);
        closing.stop(socket);
      });
      http.emit("connection", socket);
    });
    const bound = new Promise<void>((resolve, reject) => {
      server.once("listening", resolve);
      server.once("error", reject);
    });
    // The system gives a socket its mode when it is bound, so that it is never open to others.
    const before = process.umask(0o117);
    try {
      server.listen(path);
    } finally {
      process.umask(before);
    }
    if (gid !== null && server.listening) giveToGroup(path, gid);
    return { server, bound };
  };
  const first = bind();
  await first.bound;
  let current: typeof first.server | null = first.server;
  return {
    url: `unix:${path}`,
    pause: () => {
      current?.close();
      current = null;
    },
    resume: () => {
      current ??= bind().server;
    },
    drain: async (timeoutMs) => {
      app.startDraining();
      current?.close();
      const endsAtMs = performance.now() + timeoutMs;
      while (answering > 0 && performance.now() < endsAtMs) await Bun.sleep(drainPollMs);
      for (const socket of open) socket.end();
    },
  };
}

type Closing = {
  /**
   * Ends a connection unless a whole head of a request comes in time: a byte now and then
   * does not help.
   */
  readonly start: (socket: Socket) => void;
  readonly stop: (socket: Socket) => void;
};

function createClosing(afterMs: number): Closing {
  const timers = new Map<Socket, Timer>();
  const stop = (socket: Socket): void => {
    clearTimeout(timers.get(socket));
    timers.delete(socket);
  };
  return {
    start: (socket) => {
      stop(socket);
      if (!socket.destroyed)
        timers.set(
          socket,
          setTimeout(() => socket.destroy(), afterMs),
        );
    },
    stop,
  };
}

function groupNumber(group: string): number {
  const gid = groupId(group);
  if (gid === null) throw new Error(`server.admin_group: this system has no group ${group}`);
  return gid;
}

/**
 * The folder of a socket, for its owner and the group (mode 0750). A folder with anything
 * but sockets is not opened.
 */
function openFolder(folder: string, gid: number): void {
  mkdirSync(folder, { recursive: true, mode: 0o750 });
  const found = readdirSync(folder, { withFileTypes: true }).find((entry) => !entry.isSocket());
  if (found !== undefined)
    throw new Error(
      `with server.admin_group it needs a folder of its own, and ${folder} has ${found.name}`,
    );
  giveToGroup(folder, gid);
  if ((statSync(folder).mode & 0o777) !== 0o750) chmodSync(folder, 0o750);
}

function giveToGroup(path: string, gid: number): void {
  const { uid, gid: before } = statSync(path);
  if (before === gid) return;
  try {
    chownSync(path, uid, gid);
  } catch (error) {
    throw new Error(
      `${path} can't be given to server.admin_group; is the node's user in that group? ${errorText(error)}`,
    );
  }
}

/** Bun's sockets have it where Node keeps it, in the handle; -1 when the connection is gone. */
function descriptorOf(socket: Socket): number {
  const handle: unknown = Reflect.get(socket, "_handle");
  const descriptor: unknown =
    typeof handle === "object" && handle !== null && "fd" in handle ? handle.fd : null;
  return typeof descriptor === "number" ? descriptor : -1;
}

type PeerReply = { readonly response: ServerResponse; readonly peer: Peer | null };

async function answerPeer(
  app: App,
  asked: IncomingMessage,
  { response, peer }: PeerReply,
): Promise<void> {
  const { method = "GET", url = "/" } = asked;
  const headers = new Headers();
  for (let at = 0; at + 1 < asked.rawHeaders.length; at += 2)
    headers.append(asked.rawHeaders[at] ?? "", asked.rawHeaders[at + 1] ?? "");
  const path = url.split("?")[0] ?? "";
  const { respond, params } = routeOf(app, path);
  const hasBody = method !== "GET" && method !== "HEAD";
  const request = new Request(`http://localhost${url.startsWith("/") ? url : "/"}`, {
    method,
    headers,
    ...(hasBody ? { body: bodyOf(asked), duplex: "half" } : {}),
  });
  const connection = { requestIP: () => null, upgrade: () => false, peer };
  const reply = await respond(Object.assign(request, { params }), connection);
  if (reply === undefined) throw new Error("a route of the admin socket opened a WebSocket");
  const content = Buffer.from(await reply.arrayBuffer());
  const fields = Object.fromEntries(reply.headers);
  const length = method === "HEAD" ? {} : { "content-length": content.length };
  response.writeHead(reply.status, { ...fields, ...length });
  response.end(content);
}

/** Read as the pipeline asks for it. */
function bodyOf(asked: IncomingMessage): ReadableStream<Uint8Array> {
  const chunks: AsyncIterator<Uint8Array> = asked[Symbol.asyncIterator]();
  return new ReadableStream({
    pull: async (controller) => {
      const { done, value } = await chunks.next();
      if (done === true) controller.close();
      else controller.enqueue(value);
    },
  });
}

type FoundRoute = {
  readonly respond: Respond;
  /** Percent-decoded values of the path. */
  readonly params: Readonly<Record<string, string>>;
};

/** By the path as it was sent: dot segments and other rewritings lead to no route. */
function routeOf(app: App, path: string): FoundRoute {
  const exact = app.paths[path];
  if (exact !== undefined) return { respond: exact, params: {} };
  const given = path.split("/");
  for (const [pattern, respond] of Object.entries(app.paths)) {
    const names = pattern.split("/");
    const fits = (name: string, at: number) => name.startsWith(":") || name === given[at];
    if (names.length !== given.length || !names.every(fits)) continue;
    const params = names.flatMap((name, at) =>
      name.startsWith(":") ? [[name.slice(1), decodeValue(given[at] ?? "")] as const] : [],
    );
    return { respond, params: Object.fromEntries(params) };
  }
  return { respond: app.respondElsewhere, params: {} };
}

/** U+FFFD, which no route takes, for an invalid escape. */
function decodeValue(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return "\ufffd";
  }
}
