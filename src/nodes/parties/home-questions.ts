/**
 * One question to the home of somebody else's DID: by HTTPS, for a client network whose rate it
 * counts against, with one answer for each way in which there is none.
 * Source: docs/trust.md "Between providers".
 */
import { jsonObjectOf } from "../../core/codec/json.ts";
import { secondMs } from "../../core/codec/time.ts";
import { urlOfHome } from "../../core/ledger/home.ts";
import type { Egress } from "../egress/egress.ts";
import type { RateLimiter } from "./rates.ts";

/**
 * `unknown`: the home says that there is none, or no home is known. `silent`: no verifiable answer.
 */
export type Absence = "unknown" | "silent";

type Asking = {
  readonly egress: Egress;
  /** Questions that a client network may cause. */
  readonly rate: RateLimiter;
  readonly now: () => number;
};

const askMs = 5 * secondMs;
/** Of a Directory that asks for another: it is answered of the own ledger alone. */
export const hopsHeader = "svc-hops";

const answers = new Map<unknown, Absence | "did_deactivated" | "policy_denied">([
  ["404 did_not_found", "unknown"],
  ["404 alias_not_found", "unknown"],
  ["404 not_found", "unknown"],
  ["422 did_deactivated", "did_deactivated"],
  ["403 policy_denied", "policy_denied"],
]);

/**
 * Thrown, so that no one else is answered by what one network's rate refuses: an
 * absence would be remembered.
 */
const refusedByRate = new Error("this client network asks other homes too often");
export const ifRefused =
  <T>(answer: () => T | Promise<T>) =>
  (error: unknown): T | Promise<T> => {
    if (error !== refusedByRate) throw error;
    return answer();
  };
export const silentIfRefused = ifRefused(() => "silent" as const);

/** Throws when the client network has asked too often: before any work of the question. */
export function claimQuestion({ rate, now }: Asking, network: string): void {
  if (rate.claim(network, now()) > 0) throw refusedByRate;
}

/**
 * The guard of outbound requests allows names only by HTTPS, follows no redirect
 * and reads at most 64 KiB.
 */
export async function fetchFromHome(
  { egress }: Asking,
  path: string,
  { home, network }: { readonly home: string; readonly network: string },
): Promise<Uint8Array | Absence | "did_deactivated" | "policy_denied"> {
  const { httpStatus, body } = await egress.send({
    endpoint: urlOfHome(home),
    suffix: path,
    body: null,
    // A Directory that is asked so answers of its own ledger alone.
    headers: { [hopsHeader]: "1" },
    wantsBody: () => true,
    client: network,
    timeoutMs: askMs,
  });
  if (body === null || httpStatus === 200) return body ?? "silent";
  // A status alone may be that of a proxy before it.
  return answers.get(`${httpStatus} ${jsonObjectOf(body)?.["code"]}`) ?? "silent";
}
