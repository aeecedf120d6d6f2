/**
 * A pooler in front of a PostgreSQL server, which gives each transaction the session that was free
 * last, as pgbouncer does in its transaction mode. Clients are trusted and need no encryption.
 */
import { connect, createServer, type Socket } from "node:net";

type Session = { readonly socket: Socket; client: Socket | null };
const readyForQuery = "Z".charCodeAt(0);
const idle = "I".charCodeAt(0);

/** Calls back with each message of the protocol: its kind and all of its bytes. */
function messagesOf(socket: Socket, onMessage: (kind: number, bytes: Buffer) => void): void {
  let waiting = Buffer.alloc(0);
  socket.on("data", (data) => {
    waiting = Buffer.concat([waiting, data as Buffer]);
    while (waiting.length >= 5 && waiting.length > waiting.readUInt32BE(1)) {
      const bytes = waiting.subarray(0, waiting.readUInt32BE(1) + 1);
      waiting = waiting.subarray(bytes.length);
      onMessage(bytes[0]!, bytes);
    }
  });
}

export async function startPooler(port: number) {
  const free: Session[] = [];
  const sockets = new Set<Socket>();
  const openSession = (startup: Buffer, client: Socket): Session => {
    const socket = connect(port, "127.0.0.1", () => void socket.write(startup));
    const session: Session = { socket, client };
    sockets.add(socket);
    socket.on("error", () => {});
    messagesOf(socket, (kind, bytes) => {
      session.client?.write(bytes);
      if (kind !== readyForQuery || bytes[5] !== idle) return;
      session.client = null;
      free.push(session);
    });
    return session;
  };
  const server = createServer((client) => {
    let startup: Buffer | null = null;
    let session: Session | null = null;
    sockets.add(client);
    client.on("error", () => {});
    client.on("data", (data) => {
      if (startup === null) {
        startup = data as Buffer;
        session = openSession(startup, client);
        return;
      }
      if (session?.client !== client) {
        session = free.pop() ?? null;
        // Its answer to the startup goes nowhere: the client has one.
        if (session === null) throw new Error("the pool of the test is too small");
        session.client = client;
      }
      session.socket.write(data as Buffer);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address() as { readonly port: number };
  return {
    url: `postgres://waypost@127.0.0.1:${address.port}/postgres`,
    end: () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}
