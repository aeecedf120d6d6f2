/**
 * What an operator changes on a running node, by the commands `waypost reload`, `block`, `invite` and `erase`.
 * These routes exist on the Unix sockets of `server.admin_listen` alone: there the file system decides who may ask.
 */
import type { Static, TSchema } from "@sinclair/typebox";
import { parseDid } from "../../core/codec/did.ts";
import { parseJson } from "../../core/codec/json.ts";
import { secondMs } from "../../core/codec/time.ts";
import { type Fault, isFault } from "../../core/fault.ts";
import {
  blockBody,
  compileShape,
  eraseBody,
  explainBody,
  inviteBody,
  networksBody,
  reloadBody,
  revokeBody,
} from "../../core/schema/schema.ts";
import { networkOfLabel } from "../cache/shares.ts";
import type { Log } from "../http/log.ts";
import type { Call, Route } from "../http/route.ts";
import { type BlockChange, type Blocks, parseBlockSubject } from "./blocks.ts";
import { type Erasing, eraseDid, eraseMail } from "./erase.ts";
import { type ExplainParts, explain as explainEnvelope } from "./explain.ts";
import type { Invitation, Invitations } from "./invitations.ts";

type ReloadOutcome = {
  /** Settings that changed now, as `section.name`. */
  readonly changed: readonly string[];
  /** Settings that differ and need a restart. */
  readonly needsRestart: readonly string[];
};

type OperationsParts = Erasing & {
  /** Reads the configuration again; a text gives the reason why it was not applied. */
  readonly reload: () => Promise<ReloadOutcome | string>;
  readonly explain: ExplainParts;
  readonly now: () => number;
  readonly log: Log;
};

export function operationRoutes(parts: OperationsParts): Route[] {
  const { directory, explain } = parts;
  return [
    ...nodeOperations(parts),
    ...blockRoutes(parts),
    ...(directory === null ? [] : invitationRoutes(directory.invitations, parts.log)),
    explainRoute(explain, parts.now),
  ];
}

const bodyBytesMax = 4 << 20;

type Operation<Shape extends TSchema> = Pick<Route, "path" | "id" | "summary"> & {
  readonly answer: string;
  readonly request: Shape;
  /** The JSON of the answer. */
  readonly handle: (asked: Static<Shape>) => Promise<object | Fault> | object | Fault;
};

function operation<Shape extends TSchema>({ answer, handle, ...plan }: Operation<Shape>): Route {
  const check = compileShape(plan.request);
  return operatorRoute({ ...plan, method: "POST", answer }, async ({ body }) => {
    const json = parseJson(body);
    const asked = isFault(json) ? json : check(json);
    return isFault(asked) ? asked : handle(asked);
  });
}

type OperatorPlan = Pick<Route, "method" | "path" | "id" | "summary" | "request"> & { readonly answer: string };

function operatorRoute({ answer, ...plan }: OperatorPlan, read: (call: Call) => Promise<object | Fault>): Route {
  return {
    ...plan,
    tag: "Node",
    capacity: "reserved",
    bodyBytesMax,
    answer: [200, answer],
    codes: ["invalid_request", "policy_denied", "not_found", "service_unavailable", "storage_full"],
    handle: async (call) => {
      const json = await read(call);
      return isFault(json) ? json : { status: 200, json };
    },
  };
}

function nodeOperations(parts: OperationsParts): Route[] {
  const { reload, now, log } = parts;
  return [
    operation({
      path: "/operations/reload",
      id: "reload",
      summary: "Reload the configuration",
      answer: "What changed, and what needs a restart; or why nothing changed.",
      request: reloadBody,
      handle: async () => {
        const outcome = await reload();
        if (typeof outcome === "string") return { ok: false, reason: outcome };
        return { ok: true, changed: outcome.changed, needs_restart: outcome.needsRestart };
      },
    }),
    operation({
      path: "/operations/networks",
      id: "networks",
      summary: "Name the client networks behind labels of stored entries",
      answer: "By label, the networks that sent something lately.",
      request: networksBody,
      handle: ({ labels }) => {
        const named = labels.map((label) => [label, networkOfLabel(label)] as const);
        return { networks: Object.fromEntries(named.filter(([, network]) => network !== null)) };
      },
    }),
    operation({
      path: "/operations/erase",
      id: "erase",
      summary: "Remove what this node holds of a DID",
      answer: "How many entries, bytes and uses of invitations were removed.",
      request: eraseBody,
      handle: async ({ did: text, mail_only }) => {
        const did = parseDid(text);
        if (isFault(did)) return did;
        const erased = mail_only ? await eraseMail(parts, did, now) : await eraseDid(parts, did, now);
        if (isFault(erased)) return erased;
        const what = mail_only ? "the waiting messages of a recipient" : "what the node holds of a DID";
        log("warn", `the operator removed ${what}`, { ...(mail_only ? { recipient: did } : {}), ...erased });
        return erased;
      },
    }),
  ];
}

function explainRoute(parts: ExplainParts, now: OperationsParts["now"]): Route {
  return operation({
    path: "/operations/explain",
    id: "explain",
    summary: "Explain why an envelope would or would not reach a recipient",
    answer: "What this node would decide, and the last results.",
    request: explainBody,
    handle: (asked) => explainEnvelope(parts, asked, now),
  });
}

// ------------------------------------------------------------------------------------------------- blocks

function blockRoutes({ blocks, log }: OperationsParts): Route[] {
  const path = "/operations/blocks";
  const listed = { id: "blocks", summary: "The block list", answer: "The entries, oldest first." };
  return [
    operatorRoute({ method: "GET", path, ...listed }, async () => ({ blocks: renderBlocks(blocks) })),
    operation({
      path,
      id: "changeBlocks",
      summary: "Block DIDs, senders and networks, or unblock them",
      answer: "How many entries were added and removed.",
      request: blockBody,
      handle: async (asked) => {
        const change = decodeChange(asked);
        if (isFault(change)) return change;
        const changed = await blocks.change(change);
        if (isFault(changed)) return changed;
        log("warn", "the block list was changed", { ...change });
        return { ...changed, entries: blocks.list().length };
      },
    }),
  ];
}

function renderBlocks(blocks: Blocks): unknown[] {
  return blocks.list().map(({ subject, kind, sinceMs, reason }) => ({ subject, kind, since: isoOf(sinceMs), reason }));
}

function decodeChange({ add: asked, remove }: Static<typeof blockBody>): BlockChange | Fault {
  const add: BlockChange["add"][number][] = [];
  for (const { subject: text, sender_only, reason } of asked) {
    const parsed = parseBlockSubject(text);
    if (isFault(parsed)) return parsed;
    const kind = parsed.isNetwork ? "network" : sender_only ? "sender" : "did";
    add.push({ subject: parsed.subject, kind, reason });
  }
  return { add, remove: remove.map(removedSubject) };
}

/** A text that can't be blocked is in no list. */
function removedSubject(text: string): string {
  const parsed = parseBlockSubject(text);
  return isFault(parsed) ? text : parsed.subject;
}

// ------------------------------------------------------------------------------------------------ invitations

function invitationRoutes(invitations: Invitations, log: Log): Route[] {
  const path = "/operations/invitations";
  const listed = {
    id: "invitations",
    summary: "The invitations",
    answer: "Those that can be used or ended in the last 90 days, with who used them.",
  };
  return [
    operatorRoute({ method: "GET", path, ...listed }, async () => ({
      invitations: (await invitations.list()).map((one) => ({
        ...renderInvitation(one),
        uses: one.uses.map(({ did, atMs }) => ({ did, at: isoOf(atMs) })),
      })),
    })),
    operation({
      path,
      id: "invite",
      summary: "Make an invitation",
      answer: "The invitation, with the code that is not shown again.",
      request: inviteBody,
      handle: async ({ uses, life_seconds, note }) => {
        const made = await invitations.create({ uses, lifeMs: life_seconds * secondMs, note });
        if (isFault(made)) return made;
        log("info", "an invitation was made", { invitation: made.id, uses });
        return { ...renderInvitation(made), code: made.code };
      },
    }),
    operation({
      path: `${path}/revoke`,
      id: "revokeInvitation",
      summary: "Revoke an invitation",
      answer: "The invitation, which nobody can use any more.",
      request: revokeBody,
      handle: async ({ id }) => {
        const revoked = await invitations.revoke(id);
        if (isFault(revoked)) return revoked;
        log("info", "an invitation was revoked", { invitation: revoked.id });
        return renderInvitation(revoked);
      },
    }),
  ];
}

const isoOf = (ms: number): string => new Date(ms).toISOString();

function renderInvitation(one: Invitation): Record<string, unknown> {
  const { id, createdAtMs, expiresAtMs, revokedAtMs, usesMax, note } = one;
  return {
    id,
    created_at: isoOf(createdAtMs),
    expires_at: isoOf(expiresAtMs),
    revoked_at: revokedAtMs === null ? null : isoOf(revokedAtMs),
    uses_max: usesMax,
    note,
  };
}
