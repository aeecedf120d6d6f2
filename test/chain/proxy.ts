/**
 * A proxy between the plugin and a node: it passes everything on, and on command it cuts, refuses,
 * or answers in the node's place. So a test can have a node that dies, hangs, lies or loses what it
 * received.
 */

type Request = { readonly id: number; readonly method: string; readonly params: unknown[] };
/** What to answer instead of the node: a result, an error, silence, or nothing of that. */
export type Answer =
  | { readonly result: unknown }
  | { readonly error: { code: number; message: string } }
  | "silence"
  | null;

export type NodeProxy = {
  readonly endpoint: string;
  /** Decides over every request that passes. */
  answer: (request: Request) => Answer;
  /** Requests that passed, by method. */
  readonly seen: Map<string, number>;
  /** Drops every connection, and refuses new ones until `mend`. */
  readonly cut: () => void;
  readonly mend: () => void;
  readonly close: () => void;
};

export function openProxy(target: string): NodeProxy {
  let isCut = false;
  const seen = new Map<string, number>();
  const open = new Set<Bun.ServerWebSocket<{ upstream: WebSocket; waiting: string[] }>>();
  const proxy: NodeProxy = {
    endpoint: "",
    answer: () => null,
    seen,
    cut: () => {
      isCut = true;
      for (const socket of open) socket.terminate();
    },
    mend: () => {
      isCut = false;
    },
    close: () => {
      for (const socket of open) socket.terminate();
      void server.stop(true);
    },
  };
  const server = Bun.serve<{ upstream: WebSocket; waiting: string[] }>({
    hostname: "127.0.0.1",
    port: 0,
    fetch(request, self) {
      if (isCut) return new Response(null, { status: 503 });
      const data = { upstream: new WebSocket(target), waiting: [] };
      return self.upgrade(request, { data }) ? undefined : new Response(null, { status: 400 });
    },
    websocket: {
      maxPayloadLength: 64 * 1024 * 1024,
      open(socket) {
        open.add(socket);
        const { upstream, waiting } = socket.data;
        upstream.onopen = () => {
          for (const text of waiting.splice(0)) upstream.send(text);
        };
        upstream.onmessage = ({ data }) => void socket.send(String(data));
        upstream.onclose = () => socket.terminate();
      },
      message(socket, text) {
        const request = JSON.parse(String(text)) as Request;
        seen.set(request.method, (seen.get(request.method) ?? 0) + 1);
        const answer = proxy.answer(request);
        if (answer === "silence") return;
        if (answer !== null) {
          socket.send(JSON.stringify({ jsonrpc: "2.0", id: request.id, ...answer }));
          return;
        }
        const { upstream, waiting } = socket.data;
        if (upstream.readyState === WebSocket.OPEN) upstream.send(String(text));
        else waiting.push(String(text));
      },
      close(socket) {
        open.delete(socket);
        socket.data.upstream.close();
      },
    },
  });
  return Object.assign(proxy, { endpoint: `ws://127.0.0.1:${server.port}` });
}
