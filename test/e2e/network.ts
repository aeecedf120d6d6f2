/**
 * A network between clients and a server that can fail: data sent meanwhile is lost, nothing is
 * refused or closed, and new connections get no answer. When it works again, earlier connections
 * are broken.
 */
import type { Socket } from "bun";

export type Network = {
  readonly lose: () => void;
  readonly restore: () => void;
  readonly close: () => void;
};

type End = { other: Socket<End> | null; early: Uint8Array[] };

export function openNetwork(port: number, serverPort: number): Network {
  let lost = false;
  const ends = new Set<Socket<End>>();
  const pass = (from: Socket<End>, bytes: Uint8Array): void => {
    if (lost) return;
    const { data } = from;
    // What a socket does not take now is sent before what comes later.
    data.early.push(bytes.slice());
    if (data.other !== null) flush(data.other);
  };
  const flush = (to: Socket<End>): void => {
    const waiting = to.data.other?.data.early ?? [];
    while (waiting.length > 0) {
      const [first] = waiting;
      if (first === undefined) return;
      const written = to.write(first);
      if (written < first.length) {
        waiting[0] = first.subarray(Math.max(written, 0));
        return;
      }
      waiting.shift();
    }
  };
  const gone = (socket: Socket<End>): void => {
    ends.delete(socket);
    if (!lost) socket.data.other?.end();
  };
  const server = {
    data: pass,
    drain: flush,
    close: gone,
    error: gone,
  };
  const listener = Bun.listen<End>({
    hostname: "127.0.0.1",
    port,
    socket: {
      ...server,
      async open(client) {
        client.data = { other: null, early: [] };
        ends.add(client);
        if (lost) return;
        try {
          const data: End = { other: client, early: [] };
          const far = await Bun.connect<End>({
            hostname: "127.0.0.1",
            port: serverPort,
            data,
            socket: server,
          });
          client.data.other = far;
          ends.add(far);
          flush(far);
        } catch {
          client.end();
        }
      },
    },
  });
  return {
    lose: () => {
      lost = true;
    },
    restore: () => {
      for (const end of ends) end.terminate();
      ends.clear();
      lost = false;
    },
    close: () => listener.stop(true),
  };
}
