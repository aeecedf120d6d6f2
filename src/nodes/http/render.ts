/**
 * From `Answer | Fault` to a Response. A Fault has two renderings: problem+json (RFC 9457), and the
 * DeliveryResult of the Relay. Nothing but the Fault's own words reaches the client.
 * Source: interface "DeliveryResult" and "Errors", decisions section 3.
 */
import { type Fault, isFault } from "../../core/fault.ts";
import type { Answer } from "./route.ts";

export type RenderOptions = {
  readonly requestId: string;
  readonly faults: "problem" | "delivery";
  /** Ends the connection: the body of the request was not read. */
  readonly close: boolean;
};

export function renderResponse(outcome: Answer | Fault, options: RenderOptions): Response {
  return isFault(outcome) ? renderFault(outcome, options) : renderAnswer(outcome, options);
}

function renderAnswer(answer: Answer, options: RenderOptions): Response {
  const headers: Record<string, string> = { "x-request-id": options.requestId, "cache-control": "no-store" };
  if (options.close) headers["connection"] = "close";
  headers["content-type"] = answer.body?.contentType ?? "application/json";
  if (answer.headers !== undefined) for (const [name, value] of Object.entries(answer.headers)) headers[name] = value;
  return new Response(answerContent(answer), { status: answer.status, headers });
}

function answerContent(answer: Answer): BodyInit {
  if (answer.jsonBytes !== undefined) return answer.jsonBytes as Uint8Array<ArrayBuffer>;
  if (answer.body !== undefined) return answer.body.content;
  return JSON.stringify(answer.json ?? null);
}

function renderFault(fault: Fault, options: RenderOptions): Response {
  const delivery = options.faults === "delivery";
  const headers: Record<string, string> = {
    "content-type": delivery ? "application/json" : "application/problem+json",
    "x-request-id": options.requestId,
    "cache-control": "no-store",
  };
  if (options.close) headers["connection"] = "close";
  const retryAfter = fault.extra.retryAfterSeconds ?? (fault.status === 503 || fault.status === 429 ? 1 : undefined);
  if (retryAfter !== undefined) headers["retry-after"] = String(retryAfter);
  const body = delivery ? renderDeliveryFault(fault, options.requestId) : renderProblem(fault, options.requestId);
  return new Response(JSON.stringify(body), { status: fault.status, headers });
}

/** The problem+json body of a refusal, with the members `error` and `message` for clients of the family. */
export function renderProblem(fault: Fault, requestId: string): Record<string, unknown> {
  return {
    type: `/problems/${fault.code}`,
    title: fault.title,
    status: fault.status,
    detail: fault.detail,
    code: fault.code,
    request_id: requestId,
    ...(fault.extra.errors === undefined ? {} : { errors: fault.extra.errors }),
    ...(fault.extra.expected === undefined ? {} : { expected: fault.extra.expected }),
    error: fault.code,
    message: fault.detail,
  };
}

/** The DeliveryResult of a request that was refused before any delivery was tried. */
export function renderDeliveryFault(fault: Fault, requestId: string): Record<string, unknown> {
  return {
    success: false,
    delivery_mode: "failed",
    http_status: fault.status,
    code: fault.code,
    message: fault.detail,
    retry_count: 0,
    cache_attempted: false,
    cache_result: null,
    ndr: null,
    details: {
      request_id: requestId,
      ...(fault.extra.errors === undefined ? {} : { errors: fault.extra.errors }),
    },
  };
}
