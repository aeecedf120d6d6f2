/**
 * The wake hook: tells one configured URL that something arrived for a recipient whom no stream serves,
 * so that a push service may wake his device. It says a digest and a number and nothing else, is off
 * unless configured, and is a hint: what fails is not tried again before the next interval.
 * Bounded: one call per recipient and interval, calls in flight, recipients remembered.
 * Source: decisions section 9 (logs and privacy), `docs/decisions.md` ("Wake hook").
 */
import { utf8 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { sha256 } from "../../core/codec/hash.ts";
import { minuteMs, secondMs } from "../../core/codec/time.ts";
import type { Log } from "../http/log.ts";

export type WakeOptions = {
  /** Set by the operator, so it may be any host; redirects are not followed. */
  readonly url: string;
  readonly intervalMs: number;
  readonly timeoutMs: number;
  readonly inFlightMax: number;
  /** Recipients told of within the last interval; further ones are left out until there is room. */
  readonly recipientsMax: number;
};

export const wakeDefaults: Omit<WakeOptions, "url"> = {
  intervalMs: minuteMs,
  timeoutMs: 5 * secondMs,
  inFlightMax: 8,
  recipientsMax: 10_000,
};

export type WakeHook = {
  /** Counts a new entry; calls at once, or once at the end of the interval that is running. */
  readonly stored: (recipient: Did, streamed: boolean) => void;
  readonly close: () => void;
};

type Waiting = { count: number; timer: ReturnType<typeof setTimeout> };

export function createWakeHook(options: WakeOptions, log: Log): WakeHook {
  const told = new Map<Did, Waiting>();
  const closing = new AbortController();
  let inFlight = 0;

  /** Starts an interval; whatever is counted in it is told when it ends. */
  const interval = (recipient: Did): Waiting => {
    const waiting = { count: 0, timer: setTimeout(() => due(recipient, waiting), options.intervalMs) };
    told.set(recipient, waiting);
    return waiting;
  };
  const due = (recipient: Did, { count }: Waiting) => {
    told.delete(recipient);
    if (count > 0) tell(recipient, count);
  };
  const tell = (recipient: Did, count: number) => {
    const waiting = interval(recipient);
    if (inFlight >= options.inFlightMax) {
      waiting.count = count;
      return;
    }
    inFlight++;
    const signal = AbortSignal.any([closing.signal, AbortSignal.timeout(options.timeoutMs)]);
    post(options.url, { recipient_digest: sha256(utf8(recipient)).toHex(), count }, signal)
      .catch((error: unknown) => {
        if (!closing.signal.aborted) log("warn", "the wake hook failed", { error: describe(error) });
      })
      .finally(() => {
        inFlight--;
      });
  };
  return {
    stored(recipient, streamed) {
      if (streamed || closing.signal.aborted) return;
      const waiting = told.get(recipient);
      if (waiting !== undefined) waiting.count++;
      else if (told.size < options.recipientsMax) tell(recipient, 1);
    },
    close() {
      closing.abort();
      for (const { timer } of told.values()) clearTimeout(timer);
      told.clear();
    },
  };
}

type WakeCall = { readonly recipient_digest: string; readonly count: number };

/** Any 2xx will do; the answer is not read. */
async function post(url: string, call: WakeCall, signal: AbortSignal): Promise<void> {
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(call),
    redirect: "error",
    // A proxy of the environment must not learn of deliveries.
    proxy: false,
    signal,
  } as BunFetchRequestInit);
  await response.body?.cancel();
  if (!response.ok) throw new Error(`status ${response.status}`);
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message.slice(0, 200) : "unknown";
}
