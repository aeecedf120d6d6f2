/**
 * Raw HTTP over a socket, for requests that no client library would send: the bytes are sent as
 * given, and the result is what came back when the server closes the connection or falls silent.
 */
import { connect } from "node:net";

export type RawAnswer = {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body: string;
  readonly closed: boolean;
  readonly all: string;
};

const silenceMs = 300;

export function sendRaw(url: string, text: string | Uint8Array): Promise<RawAnswer> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    let all = "";
    let timer: ReturnType<typeof setTimeout> | undefined;
    const socket = connect(Number(port), hostname, () => socket.write(text));
    const finish = (closed: boolean): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(readRaw(all, closed));
    };
    const wait = (): void => {
      clearTimeout(timer);
      timer = setTimeout(() => finish(false), all === "" ? 5_000 : silenceMs);
    };
    wait();
    socket.on("data", (bytes) => {
      all += bytes.toString("latin1");
      wait();
    });
    socket.on("close", () => finish(true));
    socket.on("error", () => finish(true));
  });
}

/**
 * Sends bytes, half-closes, and answers what came back until the end; for many requests in a short
 * time.
 */
export function sendOnce(url: string, bytes: Uint8Array): Promise<string> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    let all = "";
    const socket = connect(Number(port), hostname, () => socket.end(bytes));
    const finish = (): void => {
      socket.destroy();
      resolve(all);
    };
    socket.setTimeout(1_000, finish);
    socket.on("data", (part) => {
      all += part.toString("latin1");
      if (all.includes("\r\n\r\n")) finish();
    });
    socket.on("close", finish);
    socket.on("error", finish);
  });
}

function readRaw(all: string, closed: boolean): RawAnswer {
  const [head = "", ...rest] = all.split("\r\n\r\n");
  const [first = "", ...lines] = head.split("\r\n");
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const colon = line.indexOf(":");
    headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim();
  }
  return {
    status: Number(first.split(" ")[1] ?? 0),
    headers,
    body: rest.join("\r\n\r\n"),
    closed,
    all,
  };
}
