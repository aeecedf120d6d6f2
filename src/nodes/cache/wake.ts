/**
 * Calls one configured URL when something arrived for a recipient without a stream, so that a push service may wake the
 * device. The call has a digest and a number and nothing else. It is a hint: a failed call is not repeated before
 * the next interval. Bounded: one call per recipient and interval, calls in flight, recipients remembered.
 * Source: rules section 9 (logs and privacy), `docs/rules.md` ("Wake hook").
 */
import type { Config } from "../../config/schema.ts";
import { utf8 } from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/crypto.ts";
import type { Did } from "../../core/codec/did.ts";
import { secondMs } from "../../core/codec/time.ts";
import { errorText } from "../../core/fault.ts";
import type { Log } from "../http/log.ts";

type WakeTarget = {
  /** Set by the operator, so it may be any host; redirects are not followed. */
  readonly url: string;
  readonly settings: Pick<Config["cache"], "wake_interval">;
};

/** Bounds that no operator has a reason to change: a push service is slow at worst, and a hint may be lost. */
type WakeBounds = {
  readonly timeoutMs: number;
  readonly inFlightMax: number;
  /** Recipients called for within the last interval; further ones are left out until there is room. */
  readonly recipientsMax: number;
};

const wakeBounds: WakeBounds = { timeoutMs: 5 * secondMs, inFlightMax: 8, recipientsMax: 10_000 };

export type WakeHook = {
  /** Counts a new entry; calls at once, or once at the end of the interval that is running. */
  readonly stored: (recipient: Did, streamed: boolean) => void;
  readonly close: () => void;
};

type WakeInterval = { count: number; timer: ReturnType<typeof setTimeout> };

export function createWakeHook({ url, settings }: WakeTarget, log: Log, tighter: Partial<WakeBounds> = {}): WakeHook {
  const bounds = { ...wakeBounds, ...tighter };
  const intervals = new Map<Did, WakeInterval>();
  const closing = new AbortController();
  let inFlight = 0;

  /** Starts an interval; whatever is counted in it is reported when it ends. */
  const interval = (recipient: Did): WakeInterval => {
    const waiting = { count: 0, timer: setTimeout(() => ended(recipient, waiting), settings.wake_interval) };
    intervals.set(recipient, waiting);
    return waiting;
  };
  const ended = (recipient: Did, { count }: WakeInterval) => {
    intervals.delete(recipient);
    if (count > 0) call(recipient, count);
  };
  const call = (recipient: Did, count: number) => {
    const waiting = interval(recipient);
    if (inFlight >= bounds.inFlightMax) {
      waiting.count = count;
      return;
    }
    inFlight++;
    const signal = AbortSignal.any([closing.signal, AbortSignal.timeout(bounds.timeoutMs)]);
    post(url, { recipient_digest: sha256(utf8(recipient)).toHex(), count }, signal)
      .catch((error: unknown) => {
        if (!closing.signal.aborted) log("warn", "the wake hook failed", { error: errorText(error).slice(0, 200) });
      })
      .finally(() => {
        inFlight--;
      });
  };
  return {
    stored(recipient, streamed) {
      if (streamed || closing.signal.aborted) return;
      const waiting = intervals.get(recipient);
      if (waiting !== undefined) waiting.count++;
      else if (intervals.size < bounds.recipientsMax) call(recipient, 1);
    },
    close() {
      closing.abort();
      for (const { timer } of intervals.values()) clearTimeout(timer);
      intervals.clear();
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
    // A proxy from the environment must not learn of deliveries.
    proxy: false,
    signal,
  } as BunFetchRequestInit);
  await response.body?.cancel();
  if (!response.ok) throw new Error(`status ${response.status}`);
}
