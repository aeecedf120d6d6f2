/**
 * An action of the operator: a name, a typed input, a result. The admin socket serves each as a
 * route that takes and answers JSON; whether the user may do it, the log and the audit are
 * here, once for all of them.
 */
import type { Static, TSchema } from "@sinclair/typebox";
import { parseJson } from "../../core/codec/json.ts";
import { type Fault, isFault } from "../../core/fault.ts";
import type { AdminAction } from "../../core/schema/admin.ts";
import { compileShape } from "../../core/schema/schema.ts";
import type { Log } from "../http/log.ts";
import type { Peer } from "../http/peer.ts";
import type { Call, Route } from "../http/route.ts";
import type { Admin } from "./admin.ts";

const bodyBytesMax = 4 << 20;

/** Who asks: `null` where the system does not name the user. */
type Actor = { readonly user: string | null };

type Plan<S extends TSchema> = Pick<Route, "path" | "id" | "summary"> & {
  readonly action: AdminAction;
  /** `null` for one that only reads. */
  readonly request: S | null;
  /** Whom or what it concerns, one each, for the audit. */
  readonly about?: (asked: Static<S>) => readonly string[];
  /** What the operator wrote for people, such as reasons. */
  readonly said?: (asked: Static<S>) => readonly (string | null)[];
  /** What it concerned, as the answer names it. */
  readonly found?: (done: Readonly<Record<string, unknown>>) => readonly unknown[];
  /** What of `about` it did not concern, as the answer shows. */
  readonly missed?: (done: Readonly<Record<string, unknown>>) => readonly unknown[];
  /** The JSON of the answer. */
  readonly handle: (asked: Static<S>, actor: Actor) => Promise<object | Fault> | object | Fault;
};

type AskedOperation = {
  readonly about: readonly string[];
  readonly said: readonly string[];
  readonly found: (done: object) => readonly string[];
  readonly missed: (done: object) => readonly string[];
  readonly perform: (actor: Actor) => Promise<object | Fault> | object | Fault;
};

export type Operation = Pick<Route, "path" | "id" | "summary"> & {
  readonly action: AdminAction;
  readonly request: TSchema | null;
  readonly decode: (body: Uint8Array) => AskedOperation | Fault;
};

export function operation<S extends TSchema>(plan: Plan<S>): Operation {
  const { handle, about, said, found, missed, request, ...rest } = plan;
  const check = request === null ? null : compileShape(request);
  const askedOf = (asked: Static<S>): AskedOperation => ({
    about: about?.(asked) ?? [],
    said: (said?.(asked) ?? []).filter((text) => text !== null),
    found: (done) => (found?.({ ...done }) ?? []).map(String),
    missed: (done) => (missed?.({ ...done }) ?? []).map(String),
    perform: (actor) => handle(asked, actor),
  });
  return {
    ...rest,
    request,
    decode: (body) => {
      // Without a schema there is nothing that it could read.
      if (check === null) return askedOf(null as Static<S>);
      const json = parseJson(body);
      const asked = isFault(json) ? json : check(json);
      return isFault(asked) ? asked : askedOf(asked as Static<S>);
    },
  };
}

type Serving = { readonly admin: Admin; readonly log: Log };

/** The routes of the admin socket. */
export function routesOf(operations: readonly Operation[], serving: Serving): Route[] {
  return operations.map(({ path, id, summary, request, ...one }) => ({
    path,
    id,
    summary,
    ...(request === null ? { method: "GET" } : { method: "POST", request, bodyBytesMax }),
    tag: "Node",
    capacity: "reserved",
    answer: [200, "What was done, or found."],
    codes: [
      "invalid_request",
      "invalid_signature",
      "policy_denied",
      "not_found",
      "service_unavailable",
      "storage_full",
    ],
    handle: async ({ body, peer }: Call) => {
      const done = await perform(one, { body, peer }, serving);
      return isFault(done) ? done : { status: 200, json: done };
    },
  }));
}

async function perform(
  { action, decode }: Pick<Operation, "action" | "decode">,
  { body, peer }: { readonly body: Uint8Array; readonly peer: Peer | null },
  { admin, log }: Serving,
): Promise<object | Fault> {
  const asked = decode(body);
  if (isFault(asked)) return asked;
  const actor = { user: peer?.user ?? null };
  const logged = { action, user: actor.user, uid: peer?.uid ?? null };
  // Before it is done: what a crash or a full store keeps out of the audit is in the log,
  // without whom it concerns.
  log("info", "an operator asks", logged);
  const { about, said } = asked;
  const audited = { ...logged, about, said };
  try {
    const done = admin.check(action, peer) ?? (await asked.perform(actor));
    if (isFault(done)) await admin.audit.add({ ...audited, outcome: done.code });
    else {
      const all = new Set([...about, ...asked.found(done)]);
      for (const one of asked.missed(done)) all.delete(one);
      await admin.audit.add({ ...audited, about: [...all], outcome: "done" });
    }
    return done;
  } catch (error) {
    await admin.audit.add({ ...audited, outcome: "internal_error" });
    throw error;
  }
}

export const isoOf = (ms: number): string => new Date(ms).toISOString();
