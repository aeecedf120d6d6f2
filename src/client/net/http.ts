/**
 * One exchange with a node: a bounded request, a bounded answer, and one kind of error for every
 * failure. Redirects are not followed, because signed requests name their endpoint. Nothing is
 * retried here: the caller knows whether a repeat is safe.
 * Source: interface "Errors", rules section 3.
 */
import { readCapped } from "../../core/codec/stream.ts";
import { minuteMs } from "../../core/codec/time.ts";
import { withoutTrailingSlashes } from "../../core/message/proof.ts";
import { attempt, ClientError, localError } from "../base/failure.ts";
import { isRecord, problemOf, type Shape } from "../base/shapes.ts";
/** A node, or one endpoint of it. A path prefix in the URL is kept. */
export type Endpoint = {
  readonly url: string;
  readonly timeoutMs: number;
  /** How far its clock is ahead of this machine's; 0 as long as they agree. */
  readonly clock: {
    aheadMs: number;
    /** How many answers have said what time it is. */
    answers: number;
  };
};

export const timeoutMsDefault = 20_000;
/**
 * More than any page of a Cache: 64 MiB of envelopes, or past them one of 25 MiB, and their frame.
 */
const answerBytesMax = 96 * 1_048_576;

/** Checks the URL once, so that a typing error is reported as such. */
export function endpoint(url: string, timeoutMs: number = timeoutMsDefault): Endpoint {
  const parsed = URL.canParse(url) ? new URL(url) : null;
  if (
    parsed === null ||
    !["http:", "https:"].includes(parsed.protocol) ||
    parsed.search !== "" ||
    parsed.hash !== ""
  ) {
    throw localError("invalid_url", `not the address of a node: ${url}`);
  }
  return { url: withoutTrailingSlashes(url), timeoutMs, clock: { aheadMs: 0, answers: 0 } };
}

/** Clocks that differ by less agree: nodes accept five minutes. */
const clockToleranceMs = minuteMs;

/**
 * From the `Date` of an answer. One endpoint's clock counts for that endpoint alone: it may lie.
 */
function readClock({ clock }: Endpoint, response: Response): void {
  const aheadMs = Date.parse(response.headers.get("date") ?? "") - Date.now();
  if (Number.isNaN(aheadMs)) return;
  clock.answers += 1;
  if (Math.abs(aheadMs - clock.aheadMs) < clockToleranceMs) return;
  clock.aheadMs = Math.abs(aheadMs) < clockToleranceMs ? 0 : aheadMs;
}

/** What a clock that differs is called; `null` when it does not. */
export function clockProblem({ url, clock }: Endpoint): ClientError | null {
  if (clock.aheadMs === 0) return null;
  const minutes = Math.round(Math.abs(clock.aheadMs) / minuteMs);
  const direction = clock.aheadMs > 0 ? "behind" : "ahead of";
  return localError(
    "clock_wrong",
    `the clock of this machine is ${minutes} min ${direction} that of ${url}`,
  );
}

/** What is asked of a node. */
export type NodeRequest = {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** Built with `path`, so that every value is percent-encoded. */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** JSON text as it is sent. A caller that signs or repeats a body keeps its bytes. */
  readonly body?: Uint8Array<ArrayBuffer>;
};

/** An answer, whatever its status. */
type Received = { readonly status: number; readonly headers: Headers; readonly bytes: Uint8Array };

/** A path whose values are percent-encoded with no safe characters. */
export function path(strings: TemplateStringsArray, ...values: string[]): string {
  return strings.reduce((text, part, i) => text + encodeURIComponent(values[i - 1] ?? "") + part);
}

/** The query of the values that are given. */
export function queryOf(asked: Readonly<Record<string, string | null | undefined>>): string {
  const given = Object.entries(asked).filter(
    (pair): pair is [string, string] => typeof pair[1] === "string",
  );
  return given.length === 0 ? "" : `?${new URLSearchParams(given)}`;
}

const encoder = new TextEncoder();

export function jsonBody(value: unknown): Uint8Array<ArrayBuffer> {
  return encoder.encode(JSON.stringify(value));
}

/**
 * Sends and reads, whatever the status. Throws `unreachable`, `timed_out`, or `unreadable`
 * for more than `bytesMax`.
 */
async function exchange(
  to: Endpoint,
  request: NodeRequest,
  bytesMax = answerBytesMax,
): Promise<Received> {
  const { method, path, headers, body } = request;
  const signal = AbortSignal.timeout(to.timeoutMs);
  const content = body === undefined ? null : { "Content-Type": "application/json" };
  try {
    const response = await fetch(`${to.url}${path}`, {
      method,
      headers: { Accept: "application/json", ...content, ...headers },
      ...(body === undefined ? {} : { body }),
      redirect: "error",
      signal,
    });
    readClock(to, response);
    const bytes = await readCapped(response.body, { bytesMax });
    if (bytes === "over")
      throw new ClientError("unreadable", "too_large", "the answer is too large");
    return { status: response.status, headers: response.headers, bytes };
  } catch (cause) {
    if (cause instanceof ClientError) throw cause;
    const [code, what] = signal.aborted
      ? (["timed_out", `did not answer in ${to.timeoutMs / 1_000} s`] as const)
      : (["unreachable", "can't be reached"] as const);
    throw new ClientError(code, code, `${to.url} ${what}`, { cause });
  }
}

/** `undefined` for no content. Throws `unreadable` for anything else that is not JSON. */
function parsedAnswer({ url }: Endpoint, { status, bytes }: Received): unknown {
  if (bytes.length === 0) return undefined;
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (cause) {
    const problem = `${url} answered ${status} without JSON: is that the address of a node?`;
    throw new ClientError("unreadable", "unreadable", problem, { status, cause });
  }
}

/** The bytes of a 200, at most `bytesMax`. */
export async function askBytes(
  to: Endpoint,
  request: NodeRequest,
  bytesMax: number,
): Promise<Uint8Array> {
  const received = await exchange(to, request, bytesMax);
  if (received.status !== 200) throw refusal(to, received);
  return received.bytes;
}

/** The checked answer of a 2xx. Any other status throws `refused` with the node's code. */
export async function fetchChecked<T>(
  to: Endpoint,
  request: NodeRequest,
  shape: Shape<T>,
): Promise<T> {
  const received = await exchange(to, request);
  if (received.status < 200 || received.status > 299) throw refusal(to, received);
  const answer = parsedAnswer(to, received);
  const problem = problemOf(shape, answer, "the answer");
  if (problem === null) return answer as T;
  const extra = { status: received.status, answer };
  throw new ClientError(
    "unreadable",
    "unreadable",
    `${to.url} returned an unexpected answer: ${problem}`,
    extra,
  );
}

/** Has a node say what time it is. Where it can't be asked, what it said before counts. */
export async function askTime(to: Endpoint): Promise<void> {
  await attempt(() => exchange(to, { method: "GET", path: "/healthz" }));
}

/**
 * The time by that node's clock of now: since it answered last, this machine's may have been set.
 */
export async function timeAt(to: Endpoint): Promise<number> {
  await askTime(to);
  return Date.now() + to.clock.aheadMs;
}

/** Codes of nodes for a time that is not theirs. */
const clockCodes = ["proof_expired", "authorization_expired", "authorization_too_far_ahead"];

function refusal(to: Endpoint, received: Received): ClientError {
  const { status } = received;
  const json = parsedAnswer(to, received);
  const body = isRecord(json) ? json : {};
  const text = (name: string) => (typeof body[name] === "string" ? body[name] : undefined);
  const said = text("code") ?? text("error") ?? `http_${status}`;
  const wrong = clockCodes.includes(said) ? clockProblem(to) : null;
  const reason =
    wrong?.message ?? text("detail") ?? text("message") ?? `the node answered ${status}`;
  const expected = text("expected");
  // Whole seconds.
  const pause = received.headers.get("retry-after") ?? "";
  return new ClientError("refused", wrong?.code ?? said, reason, {
    status,
    answer: json,
    ...(expected === undefined ? {} : { expected }),
    ...(/^[0-9]{1,6}$/.test(pause) ? { retryAfterMs: Number(pause) * 1_000 } : {}),
  });
}
