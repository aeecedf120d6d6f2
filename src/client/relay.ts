/**
 * The Relay's route, with the repeats that it is built for: the same bytes again after a passing failure,
 * so that the message is delivered once.
 * Source: interface "Relay" and "DeliveryResult", docs/ledger.md 3.2.
 */

import { isRecord } from "./answers.ts";
import { ClientError, type Endpoint, type Exchange, exchange, path } from "./http.ts";

/** What the Relay reports; further members are kept as they came. */
export type DeliveryReport = {
  readonly success: boolean;
  readonly delivery_mode: string;
  readonly code: string;
  readonly message: string;
  readonly [member: string]: unknown;
};

export type Retrying = {
  /** Further attempts after the first. */
  readonly retries: number;
  /** Pauses before them; the last one holds for all that follow. */
  readonly delaysMs: readonly number[];
  readonly onRetry?: (attempt: number, reason: string, delayMs: number) => void;
};

export const retryingDefault: Retrying = { retries: 3, delaysMs: [1_000, 2_000, 4_000, 8_000] };
const retriedStatuses = [429, 502, 503, 507];
/** A node that asks for a longer pause than this gets the usual one. */
const retryAfterMsMax = 60_000;

/**
 * Posts one envelope until the Relay reports success. Repeats go out byte by byte the same. Throws the
 * last failure: `refused` with the Relay's code, `unreachable` or `timed_out`.
 */
export async function postEnvelope(
  to: Endpoint,
  envelope: { readonly recipient: string; readonly body: Uint8Array<ArrayBuffer> },
  retrying: Retrying,
): Promise<DeliveryReport> {
  const request: Exchange = { method: "POST", path: path`/relay/${envelope.recipient}`, body: envelope.body };
  return retryPassing(() => attemptOnce(to, request), retrying);
}

/** Does it again after a passing failure, as often and with such pauses as `retrying` says. */
export async function retryPassing<T>(work: () => Promise<T>, retrying: Retrying): Promise<T> {
  for (let attempt = 0; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof ClientError) || attempt >= retrying.retries || !isRetried(error)) throw error;
      const delayMs = Math.max(retrying.delaysMs[attempt] ?? retrying.delaysMs.at(-1) ?? 0, askedDelay(error));
      retrying.onRetry?.(attempt + 1, error.code, delayMs);
      await new Promise((resolve) => setTimeout(resolve, delayMs));
    }
  }
}

async function attemptOnce(to: Endpoint, request: Exchange): Promise<DeliveryReport> {
  const { status, json, retryAfterMs } = await exchange(to, request);
  const report = parseReport(json);
  if (report?.success === true && status >= 200 && status <= 299) return report;
  const code = report?.code ?? `http_${status}`;
  throw new ClientError("refused", code, report === null ? `the Relay answered ${status}` : reasonOf(report), {
    status,
    answer: json,
    ...(retryAfterMs === null ? {} : { retryAfterMs }),
  });
}

/** What the Relay says, and beneath it what came of the Cache. */
function reasonOf({ message, cache_result: cacheResult }: DeliveryReport): string {
  const said = isRecord(cacheResult) && typeof cacheResult["code"] === "string" ? cacheResult["code"] : null;
  return said === null ? message : `${message}; Cache: ${said}`;
}

function parseReport(json: unknown): DeliveryReport | null {
  if (!isRecord(json) || typeof json["success"] !== "boolean" || typeof json["code"] !== "string") return null;
  const text = (name: string) => (typeof json[name] === "string" ? json[name] : "");
  return {
    ...json,
    success: json["success"],
    code: json["code"],
    message: text("message"),
    delivery_mode: text("delivery_mode"),
  };
}

function isRetried(error: ClientError): boolean {
  if (error.kind === "unreachable" || error.kind === "timed_out") return true;
  return retriedStatuses.includes(error.status ?? 0);
}

function askedDelay(error: ClientError): number {
  const asked = error.extra.retryAfterMs ?? 0;
  return asked <= retryAfterMsMax ? asked : 0;
}
