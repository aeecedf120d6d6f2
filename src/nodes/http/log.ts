/**
 * The log: one JSON object a line. It never holds payloads, ciphertext, signatures or full client
 * addresses: callers give names, counts and codes, and `maskAddress` cuts an address to its
 * network. Lines are collected and written together; when the reader of the log is too slow, lines
 * are dropped and counted rather than kept in memory without bound.
 * Source: docs/run.md, "Watch".
 */
import { minuteMs } from "../../core/codec/time.ts";
import { errorText, type Fault, isFault } from "../../core/fault.ts";
import { clientNetwork, storingNetwork } from "../../core/message/address.ts";
import type { DeliveryResult } from "../../core/message/delivery.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import { StoreError } from "../../storage/contract.ts";

const logLevels = ["debug", "info", "warn", "error"] as const;
type LogLevel = (typeof logLevels)[number];

type LogFields = Readonly<Record<string, unknown>>;

export type Log = (
  level: LogLevel,
  message: string,
  fields?: Readonly<Record<string, unknown>>,
) => void;

export type LogSink = {
  readonly log: Log;
  readonly flush: () => Promise<void>;
  /** Changes the least level that is written. */
  readonly setLevel: (level: LogLevel) => void;
};

/** Where lines go: `write` resolves when they have left the process. */
type LineWriter = (text: string) => Promise<void>;

const pendingCharactersMax = 1 << 20;
const gatherMs = 50;

export function createLog(options: {
  readonly level: LogLevel;
  readonly now: () => number;
  readonly write: LineWriter;
}): LogSink {
  let least = logLevels.indexOf(options.level);
  let pending: string[] = [];
  let pendingCharacters = 0;
  let dropped = 0;
  let writing: Promise<void> | null = null;
  let timer: ReturnType<typeof setTimeout> | null = null;

  const writeOut = async (): Promise<void> => {
    while (pending.length > 0) {
      const lines = pending;
      pending = [];
      pendingCharacters = 0;
      if (dropped > 0) pending.push(lineOf("warn", "log lines were dropped", { dropped }));
      dropped = 0;
      await options.write(lines.join("")).catch(() => undefined);
    }
    writing = null;
  };
  const lineOf = (level: LogLevel, message: string, fields?: LogFields): string =>
    `${JSON.stringify({ time: new Date(options.now()).toISOString(), level, message, ...fields })}\n`;
  const flush = (): Promise<void> => {
    if (timer !== null) clearTimeout(timer);
    timer = null;
    if (pending.length > 0) writing ??= writeOut();
    return writing ?? Promise.resolve();
  };
  return {
    log: (level, message, fields) => {
      if (logLevels.indexOf(level) < least) return;
      if (pendingCharacters > pendingCharactersMax) {
        dropped += 1;
        return;
      }
      const line = lineOf(level, message, fields);
      pendingCharacters += line.length;
      pending.push(line);
      if (writing === null) timer ??= setTimeout(() => void flush(), gatherMs);
    },
    flush,
    setLevel: (level) => {
      least = logLevels.indexOf(level);
    },
  };
}

const remindedMax = 1_000;

/** Whether something is to be said again: at once, then once a minute. */
export function onceAMinute(now: () => number): (what: string) => boolean {
  const lastMs = new BoundedMap<string, number>(remindedMax);
  return (what) => {
    const isDue = now() - (lastMs.get(what) ?? Number.NEGATIVE_INFINITY) >= minuteMs;
    if (isDue) lastMs.set(what, now());
    return isDue;
  };
}

/**
 * A store that is full or does not answer fails everything that needs it: requests, sweeps, blocks.
 * Of the lines whose `error` says so, one a minute goes out for each reason.
 */
export function joinOutages(log: Log, now: () => number): Log {
  const isDue = onceAMinute(now);
  return (level, message, fields) => {
    const error = fields?.["error"];
    const isOutage = error instanceof StoreError && error.code !== "corrupt";
    if (isOutage && !isDue(error.code === "busy" ? "unavailable" : error.code)) return;
    log(level, message, error instanceof Error ? { ...fields, error: errorText(error) } : fields);
  };
}

/** The network of an address: /24 of IPv4, /48 of IPv6; other texts (`unix`) and `::1` stay. */
export function maskAddress(text: string): string {
  if (text === "::1") return text;
  return storingNetwork(clientNetwork(text)).replace(/^(\d+\.\d+\.\d+)\.\d+$/, "$1.0/24");
}

const traceparentForm =
  /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?$/;

/**
 * The caller's trace, which the log names and the Relay passes on; `null` for none and for a
 * malformed one.
 * Source: W3C Trace Context level 1.
 */
export function traceparentOf(headers: Headers) {
  const text = headers.get("traceparent");
  const match = text === null || text.length > 256 ? null : traceparentForm.exec(text);
  return match === null ? null : { text: match[0], traceId: match[1] ?? "" };
}

/** What a refusal says; of a Relay's result its own words, or those of the Cache that refused. */
export function loggedOutcome(result: Fault | { readonly json?: unknown }): {
  readonly code: string | null;
  readonly detail: string | null;
} {
  if (isFault(result)) return { code: result.code, detail: result.detail };
  const {
    success,
    code,
    message,
    cache_result: stored,
  } = (result.json ?? {}) as Partial<DeliveryResult>;
  if (success !== false) return { code: code ?? null, detail: null };
  const refused =
    typeof stored?.["code"] === "string"
      ? { code: stored["code"], detail: String(stored["message"]) }
      : null;
  return refused ?? { code: code ?? null, detail: message ?? null };
}
