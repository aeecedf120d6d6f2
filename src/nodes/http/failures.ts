/**
 * What the client gets for what a handler threw, and what the log says: a line with the stack for each bug, and one
 * line for an outage, while which every request fails for the same reason. The metric of refusals counts them all.
 */
import { minuteMs } from "../../core/codec/time.ts";
import { type Fault, fault } from "../../core/fault.ts";
import { BoundedMap } from "../../core/std/bounded-map.ts";
import { errorStack, errorText } from "../../core/std/error-text.ts";
import { StoreError } from "../../storage/contract.ts";
import type { Log } from "./log.ts";
import type { Route } from "./route.ts";

export type Failures = {
  readonly faultOf: (
    error: unknown,
    route: Pick<Route, "path" | "unavailable">,
    at: { readonly requestId: string; readonly nowMs: number },
  ) => Fault;
};

/** Silence after which the same reason is a new outage. */
const outageEndMs = minuteMs;
const reasonsMax = 100;

export function createFailures(log: Log): Failures {
  const lastMs = new BoundedMap<string, number>(reasonsMax);
  const begins = (reason: string, nowMs: number): boolean => {
    const isNew = nowMs - (lastMs.get(reason) ?? Number.NEGATIVE_INFINITY) >= outageEndMs;
    lastMs.set(reason, nowMs);
    return isNew;
  };
  return {
    faultOf: (error, route, { requestId, nowMs }) => {
      const refusal = error instanceof StoreError ? storeFault(error, route) : internalError();
      const where = { request_id: requestId, route: route.path };
      const reason = errorText(error);
      if (refusal.code === "internal_error") {
        log("error", "a request failed", { ...where, error: errorStack(error) });
      } else if (begins(reason, nowMs)) {
        log("warn", "requests fail, and are answered so until this is over", { ...where, error: reason });
      }
      return refusal;
    },
  };
}

function storeFault(error: StoreError, route: Pick<Route, "unavailable">): Fault {
  switch (error.code) {
    case "unavailable":
      return route.unavailable === "chain_unavailable"
        ? fault("chain_unavailable", "the ledger can't be read at the moment")
        : fault("service_unavailable", "a store or a source of this node can't be reached at the moment");
    case "full":
      return fault("storage_full", "the store has no room for this");
    case "closed":
      return fault("shutting_down", "the node is shutting down");
    case "corrupt":
      return internalError();
  }
}

export function internalError(): Fault {
  return fault("internal_error", "something went wrong in the node; the request id names the entry in its log");
}
