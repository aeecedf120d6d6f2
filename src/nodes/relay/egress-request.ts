/**
 * One outbound request to an address that has been checked: the connection goes to that address and to
 * nothing else, TLS is checked for the published name, no redirect is followed, no proxy is used, and
 * the answer is read up to a cap and against a deadline.
 * Source: rules section 5 "Outbound requests".
 */

import { connect } from "node:net";
import type { Endpoint } from "../../core/message/address.ts";
import { late } from "../../core/std/deadline.ts";
import { readCapped } from "../../core/std/read-capped.ts";

export const answerBytesMax = 64 * 1024;
/** How long the body of an answer is read when nobody needs it, so that the connection can be used again. */
const drainMs = 250;

export type PinnedRequest = {
  readonly endpoint: Endpoint;
  /** The checked address, as text. */
  readonly address: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
  /** Whether the body of the answer matters: then an answer over the cap is no answer. */
  readonly wantsBody: boolean;
  readonly timeoutMs: number;
  /** Certificates that are trusted besides those of the system, in PEM. */
  readonly ca: readonly string[];
  /** Ends the request early, as if it could not be reached. */
  readonly abort: AbortController;
};

export type PinnedAnswer =
  | { readonly kind: "answer"; readonly status: number; readonly body: Uint8Array | null }
  | { readonly kind: "timeout" | "unreachable" }
  /** An answer that can't be used: a redirect, or a body over the cap. */
  | { readonly kind: "unusable"; readonly status: number | null };

function bracketed(address: string): string {
  return address.includes(":") ? `[${address}]` : address;
}

function hostHeader(endpoint: Endpoint): string {
  const standard = endpoint.port === (endpoint.scheme === "https" ? 443 : 80);
  return standard ? bracketed(endpoint.host) : `${bracketed(endpoint.host)}:${endpoint.port}`;
}

/** Sends the request. Never throws. */
export async function sendPinned(request: PinnedRequest): Promise<PinnedAnswer> {
  const { endpoint, abort } = request;
  const deadlineMs = performance.now() + request.timeoutMs;
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    abort.abort();
  }, request.timeoutMs);
  try {
    const response = await fetch(
      `${endpoint.scheme}://${bracketed(request.address)}:${endpoint.port}${endpoint.target}`,
      {
        method: "POST",
        headers: {
          "content-type": "application/json",
          accept: "application/json",
          "accept-encoding": "identity",
          "user-agent": "waypost",
          ...request.headers,
          host: hostHeader(endpoint),
        },
        body: request.body as Uint8Array<ArrayBuffer>,
        redirect: "error",
        proxy: false,
        decompress: false,
        signal: abort.signal,
        ...(endpoint.scheme === "https" ? { tls: tlsOf(request) } : {}),
      },
    );
    return await readAnswer(response, request.wantsBody, deadlineMs);
  } catch (error) {
    if (late) return { kind: "timeout" };
    const redirected = (error as { code?: unknown }).code === "UnexpectedRedirect";
    return redirected ? { kind: "unusable", status: null } : { kind: "unreachable" };
  } finally {
    clearTimeout(timer);
  }
}

async function readAnswer(response: Response, wantsBody: boolean, deadlineMs: number): Promise<PinnedAnswer> {
  const { status } = response;
  if (!wantsBody) {
    await readBody(response, Math.min(deadlineMs, performance.now() + drainMs)).catch(() => "over");
    return { kind: "answer", status, body: null };
  }
  const body = await readBody(response, deadlineMs);
  if (body === late) return { kind: "timeout" };
  return body === "over" ? { kind: "unusable", status } : { kind: "answer", status, body };
}

/** A literal address is checked as itself; a name is checked as the name, whatever address it leads to. */
function tlsOf(request: PinnedRequest) {
  const named = request.endpoint.host !== request.address;
  return {
    rejectUnauthorized: true,
    ...(named ? { serverName: request.endpoint.host } : {}),
    ...(request.ca.length > 0 ? { ca: [...request.ca] } : {}),
  };
}

/** The body; when it goes over the cap or does not end in time, the connection is cut. */
function readBody(response: Response, deadlineMs: number): Promise<Uint8Array | "over" | typeof late> {
  return readCapped(response.body, { bytesMax: answerBytesMax, timeoutMs: deadlineMs - performance.now() });
}

/**
 * Whether a TCP connection to the address succeeds in time. `fetch` has no limit of its own for
 * connecting, so a destination that has not answered lately gets a test connection first.
 */
export function canConnect(address: string, port: number, timeoutMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: address, port });
    const settle = (connected: boolean) => {
      clearTimeout(timer);
      // Also ends an attempt that is still waiting for the other side, which would hold a descriptor for minutes.
      socket.destroy();
      resolve(connected);
    };
    const timer = setTimeout(() => settle(false), timeoutMs);
    socket.once("connect", () => settle(true));
    socket.on("error", () => settle(false));
  });
}
