/**
 * Destinations for tests of outbound requests: honest servers, servers that say what they are told byte
 * for byte, listeners that only count connections, and couriers that may reach 127.0.0.1 and nothing else.
 */

import { utf8 } from "../../src/core/codec/bytes.ts";
import { type EndpointRules, parseNetwork } from "../../src/core/message/address.ts";
import {
  type Courier,
  type CourierAnswer,
  type CourierOptions,
  createCourier,
  type ResolvedAddress,
} from "../../src/nodes/relay/egress.ts";
import { inboxCertificate, inboxKey } from "./certificates.ts";

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

/** A server that writes what it is told, byte for byte. */
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

const only127001 = [parseNetwork("127.0.0.1/32")!];
export const rules = (more: Partial<EndpointRules> = {}): EndpointRules => ({
  allowHttp: true,
  allowPrivate: only127001,
  ownRelays: [],
  ...more,
});

export function courier(more: Partial<CourierOptions> = {}): Courier {
  const created = createCourier({ rules: rules(), ...more });
  cleanups.push(() => created.close());
  return created;
}

export const at = (...addresses: string[]): readonly ResolvedAddress[] =>
  addresses.map((address) => ({ address, ttlSeconds: 0 }));

export const post = (sender: Courier, endpoint: string, more: { wantsBody?: boolean; timeoutMs?: number } = {}) =>
  sender.post({
    endpoint,
    suffix: "",
    body: utf8('{"x":1}'),
    wantsBody: more.wantsBody ?? false,
    timeoutMs: more.timeoutMs ?? 3_000,
  });

export const verdict = ({ httpStatus, error }: CourierAnswer) => [httpStatus, error];
