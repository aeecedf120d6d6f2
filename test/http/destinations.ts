/**
 * Destinations for tests of outbound requests: honest servers, servers that write what a test says
 * byte for byte, listeners that only count connections, and an egress that may reach 127.0.0.1 and
 * nothing else.
 */

import { dlopen } from "bun:ffi";
import { connect } from "node:net";
import { utf8 } from "../../src/core/codec/bytes.ts";
import {
  createEgress,
  type Egress,
  type EgressAnswer,
  type EgressOptions,
  type EgressSettings,
} from "../../src/nodes/egress/egress.ts";
import { inboxCertificate, inboxKey } from "../support/certificates.ts";
import { relayDefault } from "../support/settings.ts";
import { pause } from "../support/wait.ts";

/** What a test has opened, in order. */
export const cleanups: (() => unknown)[] = [];

export function cleanUp(): void {
  for (const cleanup of cleanups.splice(0)) cleanup();
}

/** Counts every TCP connection to a port, whatever is said on it. */
export function sniff(hostname: string, port = 0) {
  const sniffer = { connections: 0, port: 0 };
  const listener = Bun.listen({
    hostname,
    port,
    socket: {
      open: (socket) => {
        sniffer.connections++;
        socket.end();
      },
      data: () => undefined,
    },
  });
  sniffer.port = listener.port;
  cleanups.push(() => listener.stop(true));
  return sniffer;
}

export function serve(respond: (request: Request) => Response | Promise<Response>, tls = false) {
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    idleTimeout: 30,
    fetch: respond,
    ...(tls ? { tls: { cert: inboxCertificate, key: inboxKey } } : {}),
  });
  cleanups.push(() => server.stop(true));
  return server.port as number;
}

/**
 * A port that takes no further connection and refuses none: its queue is full, and no one accepts.
 * Linux only.
 */
export async function fullPort(): Promise<number> {
  const { symbols: calls } = dlopen("libc.so.6", {
    socket: { args: ["i32", "i32", "i32"], returns: "i32" },
    listen: { args: ["i32", "i32"], returns: "i32" },
    getsockname: { args: ["i32", "ptr", "ptr"], returns: "i32" },
    close: { args: ["i32"], returns: "i32" },
  });
  const descriptor = calls.socket(2, 1, 0);
  cleanups.push(() => calls.close(descriptor));
  calls.listen(descriptor, 0);
  const [address, length] = [new Uint8Array(16), Uint32Array.of(16)];
  calls.getsockname(descriptor, address, length);
  const port = new DataView(address.buffer).getUint16(2);
  for (let n = 0; n < 3; n++) {
    const socket = connect({ host: "127.0.0.1", port });
    socket.on("error", () => undefined);
    cleanups.push(() => socket.destroy());
  }
  await pause(50, "the connections that fill the queue");
  return port;
}

/** A server that writes what a test says, byte for byte. */
export function serveRaw(onRequest: (write: (text: string) => void, end: () => void) => void) {
  const listener = Bun.listen<{ open: boolean; asked: boolean }>({
    hostname: "127.0.0.1",
    port: 0,
    socket: {
      open: (socket) => {
        socket.data = { open: true, asked: false };
      },
      data: (socket) => {
        if (socket.data.asked) return;
        socket.data.asked = true;
        onRequest(
          (text) => {
            if (socket.data.open) socket.write(text);
          },
          () => socket.end(),
        );
      },
      close: (socket) => {
        socket.data.open = false;
      },
    },
  });
  cleanups.push(() => listener.stop(true));
  return listener.port;
}

export const egressSettings = (more: Partial<EgressSettings> = {}): EgressSettings => ({
  ...relayDefault,
  allow_http: true,
  allow_private: ["127.0.0.1/32"],
  ...more,
});

export function egress(more: Partial<EgressOptions> = {}): Egress {
  const created = createEgress({ settings: egressSettings(), ...more });
  cleanups.push(() => created.close());
  return created;
}

export const at = (...addresses: string[]): readonly string[] => addresses;

type More = { readonly wantsBody?: boolean; readonly timeoutMs?: number; readonly client?: string };

export const post = async (sender: Egress, endpoint: string, more: More = {}) => {
  const startMs = performance.now();
  const answer = await sender.send({
    ...(more.client === undefined ? {} : { client: more.client }),
    endpoint,
    suffix: "",
    body: utf8('{"x":1}'),
    wantsBody: () => more.wantsBody ?? false,
    timeoutMs: more.timeoutMs ?? 3_000,
  });
  return { ...answer, durationMs: performance.now() - startMs };
};

export const verdict = ({ httpStatus, error }: EgressAnswer) => [httpStatus, error];
