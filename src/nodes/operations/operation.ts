/** A route of the operator's socket: JSON in, JSON out. */
import type { Static, TSchema } from "@sinclair/typebox";
import { parseJson } from "../../core/codec/json.ts";
import { type Fault, isFault } from "../../core/fault.ts";
import { compileShape } from "../../core/schema/schema.ts";
import type { Route } from "../http/route.ts";

const bodyBytesMax = 4 << 20;

type Operation<S extends TSchema> = Pick<Route, "path" | "id" | "summary"> & {
  /** `null` for one that only reads. */
  readonly request: S | null;
  /** The JSON of the answer. */
  readonly handle: (asked: Static<S>) => Promise<object | Fault> | object | Fault;
};

export function operation<S extends TSchema>({ request, handle, ...plan }: Operation<S>): Route {
  const check = request === null ? null : compileShape(request);
  return {
    ...plan,
    ...(request === null ? { method: "GET" } : { method: "POST", request, bodyBytesMax }),
    tag: "Node",
    capacity: "reserved",
    answer: [200, "What was done, or found."],
    codes: ["invalid_request", "policy_denied", "not_found", "service_unavailable", "storage_full"],
    handle: async ({ body }) => {
      const json = check === null ? null : parseJson(body);
      const asked = check === null || isFault(json) ? json : check(json);
      const done = isFault(asked) ? asked : await handle(asked as Static<S>);
      return isFault(done) ? done : { status: 200, json: done };
    },
  };
}

export const isoOf = (ms: number): string => new Date(ms).toISOString();
