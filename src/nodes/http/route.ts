/**
 * What a node gives the HTTP server: its routes, each with the facts for its documentation, and the form of
 * requests and answers that handlers see. It does not depend on the HTTP framework.
 * Source: interface "Endpoints", rules section 9.
 */
import type { TSchema } from "@sinclair/typebox";
import { type Fault, type FaultCode, fault } from "../../core/fault.ts";
import type { Signed } from "../../core/schema/signing.ts";
import type { Trace } from "./tracing.ts";

/** One request as a handler sees it. */
export type Call = {
  /** Percent-decoded path values, not yet parsed. */
  readonly params: Readonly<Record<string, string>>;
  readonly query: URLSearchParams;
  readonly headers: Headers;
  /** The body as sent, at most the route's `bodyBytesMax`; empty when the route has none. */
  readonly body: Uint8Array;
  readonly requestId: string;
  /** Address of the client after trusted proxies. */
  readonly client: string;
  /** The network under which the client is counted (`clientNetwork`). */
  readonly network: string;
  readonly nowMs: number;
  /** `null` unless this request is traced. */
  readonly trace: Trace | null;
  /** Aborted when the client has gone. */
  readonly signal: AbortSignal;
};

export type Answer = {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Exactly one of the five: a JSON value, ready JSON as text, bytes or parts, or another body with its type. */
  readonly json?: unknown;
  readonly jsonText?: string;
  readonly jsonBytes?: Uint8Array;
  /** For JSON that is too long to hold: the next part is read when the client has read the one before. */
  readonly jsonParts?: Iterator<JsonPart> | AsyncIterator<JsonPart>;
  readonly body?: { readonly contentType: string; readonly content: BodyInit };
  /**
   * For answers that stream: the connection may be silent this long before it is cut, at most 255.
   * Without it, the listener's 30 s hold.
   */
  readonly idleSeconds?: number;
};

/** A part of a long answer. `bytes` is about what `read` answers: room for it is reserved before it is read. */
export type JsonPart = { readonly bytes: number; readonly read: () => Promise<Uint8Array> | Uint8Array };

/** The facts about a route from which `/openapi.json` is made. */
export type Operation = {
  readonly id: string;
  readonly summary: string;
  readonly tag: "Directory" | "Relay" | "Cache" | "Node";
  readonly request?: TSchema;
  /** Headers that every request needs, and others that the route reads. */
  readonly requiredHeaders?: readonly string[];
  readonly headers?: readonly string[];
  readonly query?: readonly string[];
  /** The signature that the request needs. */
  readonly signed?: Signed;
  readonly responses: Readonly<Record<number, { readonly description: string; readonly schema?: TSchema }>>;
  readonly codes: readonly FaultCode[];
};

export type Route = {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** `/dids/:did/nonces`. Path values arrive percent-decoded. */
  readonly path: string;
  readonly operation: Operation;
  /** `null`: the route takes no body. */
  readonly bodyBytesMax: number | null;
  /** `reserved`: acknowledgements and health, which are served even when the node is over capacity. */
  readonly capacity: "normal" | "reserved";
  /** How a `Fault` (also of the server itself) is rendered. */
  readonly faults: "problem" | "delivery";
  /** What an `unavailable` store means here; routes that read the ledger answer `chain_unavailable`. */
  readonly unavailable?: "chain_unavailable" | "service_unavailable";
  /** Headers of every answer of the route, refusals too. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Served from the server's own route table, without the framework. */
  readonly hot?: true;
  /** Called before the body is read: nothing is read from a client above its rate. */
  readonly rateLimit?: (request: Pick<Call, "client" | "network" | "nowMs">) => Fault | null;
  readonly handle: (call: Call) => Promise<Answer | Fault> | Answer | Fault;
};

/** The raw path. A URL without a host (HTTP/1.0) has been refused before. Cost: no parsing. */
export function pathOf(url: string): string {
  const start = url.indexOf("/", url.indexOf("://") + 3);
  if (start < 0) return "/";
  const query = url.indexOf("?", start);
  return query < 0 ? url.slice(start) : url.slice(start, query);
}

// ------------------------------------------------------------------------------------------------- values of a path

/** Which segment of a path is a value, and its name. */
export type PathValue = { readonly name: string; readonly segment: number };

export function valuesOf(path: string): PathValue[] {
  return path
    .split("/")
    .map((text, segment) => ({ name: text.slice(1), segment, isValue: text.startsWith(":") }))
    .filter(({ isValue }) => isValue);
}

export const noValues: Readonly<Record<string, string>> = Object.freeze({});

/** Values of the path as the server's own router read them: it decodes escapes. */
export type RoutedRequest = Request & { readonly params?: Readonly<Record<string, string>> };

/** What no escape, dot segment or other rewriting can stand behind, however the router read it. */
const plainValue = /^[A-Za-z0-9:_-]+$/;

/** Values of the path by name, or a Fault when an escape is not UTF-8 in percent form. */
export function pathValues(
  places: readonly PathValue[],
  request: RoutedRequest,
): Readonly<Record<string, string>> | Fault {
  if (places.length === 0) return noValues;
  const { params } = request;
  if (params !== undefined && places.every(({ name }) => plainValue.test(params[name] ?? ""))) return params;
  const segments = pathOf(request.url).split("/");
  const values: Record<string, string> = Object.create(null);
  for (const { name, segment } of places) {
    const value = decodeSegment(segments[segment] ?? "");
    if (value === null) return fault("invalid_request", "the path has an invalid percent escape");
    values[name] = value;
  }
  return values;
}

function decodeSegment(segment: string): string | null {
  if (!segment.includes("%")) return segment;
  try {
    return decodeURIComponent(segment);
  } catch {
    return null;
  }
}
