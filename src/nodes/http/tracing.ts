/**
 * Traces by OTLP over HTTP in JSON: one span for each request that is traced, with one span below it for each of the
 * five statements of a handler (decode, gather, decide, commit, render). The variables of OpenTelemetry configure it,
 * so a collector that knows them needs nothing of ours. Off, it costs one comparison with null for each request.
 * Source: W3C Trace Context level 1; OpenTelemetry Protocol 1.x, "OTLP/HTTP" and "JSON Protobuf Encoding".
 */
import { errorText } from "../../core/fault.ts";
import { withoutTrailingSlashes } from "../../core/message/proof.ts";
import { withDeadline } from "../../core/std/bounded.ts";
import type { Log } from "./log.ts";

type Stage = "decode" | "gather" | "decide" | "commit" | "render";

/** The trace of one request. */
export type Trace = {
  /** Begins a stage and ends the one before. */
  readonly stage: (stage: Stage) => void;
  /** For requests that are made on behalf of this one. */
  readonly traceparent: string;
};

export type RequestTrace = Trace & { readonly end: (status: number) => void };

export type Tracer = {
  /** `null` when the caller, or the share of requests that is sampled, leaves this one out. */
  readonly begin: (route: string, method: string, headers: Headers) => RequestTrace | null;
  /** Spans dropped since the start, because the collector was unreachable or too slow. */
  readonly dropped: () => number;
  /** Sends what waits, within the time of one request. */
  readonly close: () => Promise<void>;
};

type TracingSettings = {
  /** Where spans go, `http://127.0.0.1:4318/v1/traces`. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly serviceName: string;
  /** Of requests without a `traceparent`; the flag of one decides for its request. */
  readonly sampledShare: number;
};

type Environment = Readonly<Record<string, string | undefined>>;

/** Settings from the variables of OpenTelemetry; `null` when they name no collector, a problem when they are invalid. */
export function tracingSettings(env: Environment): TracingSettings | string | null {
  const own = env["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
  const base = env["OTEL_EXPORTER_OTLP_ENDPOINT"];
  if (env["OTEL_SDK_DISABLED"] === "true" || env["OTEL_TRACES_EXPORTER"] === "none") return null;
  if (!own && !base) return null;
  const url = own ? own : `${withoutTrailingSlashes(base as string)}/v1/traces`;
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol))
    return `OTEL_EXPORTER_OTLP_ENDPOINT: ${url} is not an http or https URL`;
  const protocol = env["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] ?? env["OTEL_EXPORTER_OTLP_PROTOCOL"] ?? "http/json";
  if (protocol !== "http/json") return `OTEL_EXPORTER_OTLP_PROTOCOL: only http/json is supported, not ${protocol}`;
  const share = Number(env["OTEL_TRACES_SAMPLER_ARG"] ?? "1");
  if (!(share >= 0 && share <= 1)) return "OTEL_TRACES_SAMPLER_ARG: must be from 0 to 1";
  const headers = parseHeaders(env["OTEL_EXPORTER_OTLP_TRACES_HEADERS"] ?? env["OTEL_EXPORTER_OTLP_HEADERS"] ?? "");
  return { url, headers, serviceName: env["OTEL_SERVICE_NAME"] ?? "waypost", sampledShare: share };
}

/** `name=value,name=value`, values percent-encoded. */
function parseHeaders(text: string): Record<string, string> {
  const pairs = text.split(",").map((pair) => pair.split("=", 2) as [string, string?]);
  return Object.fromEntries(
    pairs.flatMap(([name, value]) => (value === undefined ? [] : [[name.trim(), decodeURIComponent(value.trim())]])),
  );
}

// ------------------------------------------------------------------------------------------------ tracer

/** About 1 KiB each as JSON. */
const waitingMax = 2_048;
const batchMax = 512;
const sendEveryMs = 1_000;
const sendTimeoutMs = 5_000;
const closeMsMax = 1_000;

type Span = Readonly<Record<string, unknown>>;

type TracerParts = { readonly version: string; readonly now: () => number; readonly log: Log };

export function createTracer(settings: TracingSettings, parts: TracerParts): Tracer {
  const waiting: Span[] = [];
  let dropped = 0;
  let failing = false;
  let sending: Promise<void> | null = null;
  const sendBatch = async (): Promise<void> => {
    const spans = waiting.splice(0, batchMax);
    try {
      await send(settings, parts.version, spans);
      failing = false;
    } catch (error) {
      dropped += spans.length;
      if (!failing) parts.log("warn", "the trace collector does not answer", { reason: errorText(error) });
      failing = true;
    }
  };
  const flush = (): Promise<void> => {
    if (sending === null && waiting.length > 0)
      sending = sendBatch().finally(() => {
        sending = null;
      });
    return sending ?? Promise.resolve();
  };
  const timer = setInterval(() => void flush(), sendEveryMs);
  timer.unref();
  const put = (span: Span): void => {
    if (waiting.length >= waitingMax) dropped += 1;
    else waiting.push(span);
  };
  return {
    begin: (route, method, headers) => {
      const parent = parseTraceparent(headers.get("traceparent"));
      const isSampled = parent === null ? Math.random() < settings.sampledShare : parent.sampled;
      return isSampled ? traceOf({ route, method, parent, now: parts.now, put }) : null;
    },
    dropped: () => dropped,
    close: async () => {
      clearInterval(timer);
      // A collector that hangs must not hold the end of the process up, nor the store that it keeps until then.
      await withDeadline(flush().then(flush), closeMsMax);
    },
  };
}

type Beginning = {
  readonly route: string;
  readonly method: string;
  readonly parent: Parent | null;
  readonly now: () => number;
  readonly put: (span: Span) => void;
};

/** Durations come from a clock that does not jump; the time of the beginning is the machine's. */
function traceOf({ route, method, parent, now, put }: Beginning): RequestTrace {
  const traceId = parent?.traceId ?? randomHex(16);
  const spanId = randomHex(8);
  const [beganMs, beganAt] = [now(), performance.now()];
  const nanos = (at: number): string => (BigInt(Math.round((beganMs + at - beganAt) * 1_000)) * 1_000n).toString();
  let open: { readonly stage: Stage; readonly at: number } | null = null;
  const endStage = (at: number): void => {
    if (open === null) return;
    const times = { startTimeUnixNano: nanos(open.at), endTimeUnixNano: nanos(at) };
    put({ traceId, spanId: randomHex(8), parentSpanId: spanId, name: open.stage, kind: spanKind.internal, ...times });
  };
  return {
    traceparent: `00-${traceId}-${spanId}-01`,
    stage: (stage) => {
      const at = performance.now();
      endStage(at);
      open = { stage, at };
    },
    end: (status) => {
      const at = performance.now();
      endStage(at);
      open = null;
      put({
        traceId,
        spanId,
        ...(parent === null ? {} : { parentSpanId: parent.spanId }),
        name: `${method} ${route}`,
        kind: spanKind.server,
        startTimeUnixNano: nanos(beganAt),
        endTimeUnixNano: nanos(at),
        attributes: [
          textAttribute("http.request.method", method),
          textAttribute("http.route", route),
          { key: "http.response.status_code", value: { intValue: String(status) } },
        ],
        status: status >= 500 ? { code: 2 } : {},
      });
    },
  };
}

const spanKind = { internal: 1, server: 2 } as const;

type Parent = { readonly traceId: string; readonly spanId: string; readonly sampled: boolean };

const traceparentForm = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?$/;

/** `null` for none, a malformed one, and ids of zeros. */
function parseTraceparent(text: string | null): Parent | null {
  const match = text === null || text.length > 256 || text.startsWith("ff") ? null : traceparentForm.exec(text);
  const [, traceId = "", spanId = "", flags = ""] = match ?? [];
  if (match === null || /^0+$/.test(traceId) || /^0+$/.test(spanId)) return null;
  return { traceId, spanId, sampled: (Number.parseInt(flags, 16) & 1) === 1 };
}

function randomHex(bytes: number): string {
  return crypto.getRandomValues(new Uint8Array(bytes)).toHex();
}

function textAttribute(key: string, stringValue: string): unknown {
  return { key, value: { stringValue } };
}

async function send({ url, headers, serviceName }: TracingSettings, version: string, spans: Span[]): Promise<void> {
  const attributes = [textAttribute("service.name", serviceName), textAttribute("service.version", version)];
  const body = { resourceSpans: [{ resource: { attributes }, scopeSpans: [{ scope: { name: "waypost" }, spans }] }] };
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(sendTimeoutMs),
    proxy: false,
  });
  await response.arrayBuffer();
  if (!response.ok) throw new Error(`the collector answered ${response.status}`);
}
