/**
 * One kind of error for every failure of the SDK, what may be tried again, when, and
 * how a loop waits for that.
 * Source: interface "Errors", rules section 3.
 */

import { minuteMs } from "../../core/codec/time.ts";
import { deferred } from "../../core/std/deferred.ts";
import { isRecord, problemOf, type Shape } from "./shapes.ts";

/**
 * How an exchange failed. `unreadable` is an answer that breaks the interface, `distrusted` one
 * that signatures or the memory of this client contradict (docs/trust.md).
 */
export type ClientErrorKind =
  | "refused"
  | "unreachable"
  | "timed_out"
  | "unreadable"
  | "distrusted"
  | "local";

/**
 * Every failure of the SDK. `code` is the node's code when it `refused`; otherwise it repeats the
 * kind, or names the problem on this side (`local`).
 */
export class ClientError extends Error {
  override readonly name = "ClientError";
  constructor(
    readonly kind: ClientErrorKind,
    readonly code: string,
    message: string,
    readonly extra: {
      readonly status?: number;
      /** With `nonce_mismatch`: the counter value that would be accepted. */
      readonly expected?: string;
      readonly retryAfterMs?: number;
      /** The answer as received, if it was JSON. */
      readonly answer?: unknown;
      readonly cause?: unknown;
    } = {},
  ) {
    super(message, extra.cause === undefined ? undefined : { cause: extra.cause });
  }

  get status(): number | null {
    return this.extra.status ?? null;
  }
}

/** What the work returns, or why it failed. Anything else that it throws is a bug. */
export async function attempt<T>(work: () => Promise<T>): Promise<T | ClientError> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof ClientError) return error;
    throw error;
  }
}

const temporaryStatuses = [425, 429, 502, 503, 504, 507];

/** Whether the same request may succeed later: the node was not reached, or says so. */
export function isTemporary({ kind, status }: ClientError): boolean {
  return kind === "unreachable" || kind === "timed_out" || temporaryStatuses.includes(status ?? 0);
}

export function localError(code: string, message: string): ClientError {
  return new ClientError("local", code, message);
}

/** The value of a read, or `null` when it fails with one of the codes: there is none. */
export async function orNull<T>(read: Promise<T>, ...codes: string[]): Promise<T | null> {
  const result = await attempt(() => read);
  if (!(result instanceof ClientError)) return result;
  if (codes.includes(result.code)) return null;
  throw result;
}

/** Resolves after `ms`, or at once when `signal` is aborted. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const endPause = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", endPause);
      resolve();
    };
    const timer = setTimeout(endPause, ms);
    signal.addEventListener("abort", endPause);
  });
}

/**
 * Wakes a waiting loop. It calls `begin` before it reads, and `next` when nothing is left: what
 * came since ends that wait.
 */
export class Wakeup {
  #isWoken = false;
  #abortWait: () => void = () => undefined;

  begin(): void {
    this.#isWoken = false;
  }

  wake(): void {
    this.#isWoken = true;
    this.#abortWait();
  }

  async next(timeoutMs: number, signal: AbortSignal): Promise<void> {
    if (this.#isWoken) return;
    const woken = new AbortController();
    this.#abortWait = () => woken.abort();
    await pause(timeoutMs, AbortSignal.any([woken.signal, signal]));
  }
}

const backoffMsMin = 500;
const backoffMsMax = 30_000;

/**
 * A random part of a time that doubles with each failure, so that clients of one node
 * don't come back together.
 */
export function backoffMs(failures: number): number {
  const most = Math.min(backoffMsMin * 2 ** Math.min(failures, 10), backoffMsMax);
  return most / 2 + Math.random() * (most / 2);
}

/** The pause that a node asks for, at most a minute: one that asks for more gets the usual one. */
export function askedPauseMs({ extra: { retryAfterMs = 0 } }: ClientError): number {
  return retryAfterMs <= minuteMs ? retryAfterMs : 0;
}

// ------------------------------------------------------------------------------------ trying again

export type Retrying = {
  /** Further attempts after the first; 3 by default. */
  readonly retries?: number | undefined;
  /** Nothing is tried again later than this after the beginning. */
  readonly withinMs?: number | undefined;
  /** When it is aborted, nothing is tried again. */
  readonly signal?: AbortSignal | undefined;
};

export const retriesDefault = 3;

/**
 * Repeats the work after a temporary failure: after about a second, two, four, or
 * when the node asks for it.
 */
export async function retryTemporary<T>(
  work: () => Promise<T>,
  { retries = retriesDefault, withinMs, signal = new AbortController().signal }: Retrying,
): Promise<T> {
  const endsAtMs = performance.now() + (withinMs ?? Number.POSITIVE_INFINITY);
  for (let failures = 1; ; failures++) {
    const result = await attempt(work);
    if (!(result instanceof ClientError)) return result;
    // After 504 the Relay has tried for as long as its destinations may take.
    if (failures > retries || !isTemporary(result) || result.status === 504) throw result;
    const pauseMs = Math.max(backoffMs(failures), askedPauseMs(result));
    if (performance.now() + pauseMs > endsAtMs) throw result;
    await pause(pauseMs, signal);
    if (signal.aborted) throw result;
  }
}

type Insisting = {
  readonly signal: AbortSignal;
  /** Of the first failure. */
  readonly report: (error: ClientError) => void;
  /** Whether another try is worth nothing. */
  readonly isFinal: (error: ClientError) => Promise<boolean>;
};

/** Again after each failure until it succeeds, with longer and longer pauses. */
export async function insist(
  work: () => Promise<unknown>,
  { signal, report, isFinal }: Insisting,
): Promise<void> {
  for (let failures = 0; !signal.aborted; failures++) {
    const result = await attempt(work);
    if (!(result instanceof ClientError)) return;
    if (failures === 0) report(result);
    if (await isFinal(result)) return;
    await pause(backoffMs(failures), signal);
  }
}

/** What is thrown when the signal of a call was aborted. */
export const abortedError = (): ClientError =>
  localError("aborted", "the signal of this call was aborted");

/** The result of the work, unless the signal comes first; what comes later is undone. */
export async function untilAborted<T>(
  work: Promise<T>,
  signal: AbortSignal,
  undo: (late: T) => unknown,
): Promise<T> {
  const stopped = deferred<never>();
  const stop = () => stopped.reject(abortedError());
  if (signal.aborted) stop();
  else signal.addEventListener("abort", stop, { once: true });
  stopped.promise.catch(() => undefined);
  try {
    return await Promise.race([work, stopped.promise]);
  } catch (error) {
    if (signal.aborted) work.then(undo, () => undefined);
    throw error;
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

/**
 * Throws `invalid_argument` for a name that is not an option, because a typing error would be
 * ignored otherwise, and for a value of another shape. `undefined` counts as not given.
 */
export function checkGiven(given: object, shapes: Readonly<Record<string, Shape<unknown>>>): void {
  if (!isRecord(given)) throw localError("invalid_argument", "options are an object");
  for (const [name, value] of Object.entries(given)) {
    const shape = shapes[name];
    if (shape === undefined) throw localError("invalid_argument", `there is no option ${name}`);
    const problem = value === undefined ? null : problemOf(shape, value, name);
    if (problem !== null) throw localError("invalid_argument", problem);
  }
}
