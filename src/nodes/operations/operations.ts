/**
 * What an operator changes on a running node, by the commands `waypost reload`, `block`, `invite` and `erase`.
 * These routes exist on the Unix sockets of `server.admin_listen` alone: there the file system decides who may ask.
 */
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
import type { Log } from "../http/log.ts";
import { type Answer, type Call, defineRoute, type Route, type RoutePlan } from "../http/route.ts";
import { type BlockChange, type Blocks, parseBlockSubject } from "./blocks.ts";
import { type Erasing, eraseDid, eraseMail } from "./erase.ts";
import { type ExplainParts, explain as explainEnvelope } from "./explain.ts";
import type { Invitation, Use } from "./invitations.ts";

type ReloadOutcome = {
  /** Settings that changed now, as `section.name`. */
  readonly changed: readonly string[];
  /** Settings that differ and need a restart. */
  readonly needsRestart: readonly string[];
};

type OperationsParts = Erasing & {
  /** Reads the configuration again; a text gives the reason why it was not applied. */
  readonly reload: () => Promise<ReloadOutcome | string>;
  /** `null` on a node that knows no recipients. */
  readonly explain: ExplainParts | null;
  /** The client network behind a label of stored entries; `null` for one that sent nothing lately. */
  readonly networkOf: (label: string) => string | null;
  readonly now: () => number;
  readonly log: Log;
};

export function operationRoutes(parts: OperationsParts): Route[] {
  return [
    ...[reloadRoute, eraseRoute, networksRoute].map((route) => route(parts)),
    ...[blockRoutes, invitationRoutes, explainRoutes].flatMap((routes) => routes(parts)),
  ];
}

const bodyBytesMax = 4 << 20;

function operation({ answer, ...plan }: Omit<RoutePlan, "answer" | "codes"> & { readonly answer: string }): Route {
  return defineRoute(
    {
      ...plan,
      answer: [200, answer],
      codes: ["invalid_request", "policy_denied", "not_found", "service_unavailable", "storage_full"],
    },
    { tag: "Node", capacity: "reserved", unavailable: "service_unavailable", bodyBytesMax },
  );
}

function bodyOf<T>(call: Call, check: (value: unknown) => T | Fault): T | Fault {
  const json = parseJson(call.body);
  return isFault(json) ? json : check(json);
}

// ------------------------------------------------------------------------------------------------- reload

function reloadRoute({ reload }: OperationsParts): Route {
  return operation({
    method: "POST",
    path: "/operations/reload",
    id: "reload",
    summary: "Reload the configuration",
    answer: "What changed, and what needs a restart; or why nothing changed.",
    request: reloadBody,
    handle: async (): Promise<Answer> => {
      const outcome = await reload();
      if (typeof outcome === "string") return { status: 200, json: { ok: false, reason: outcome } };
      return { status: 200, json: { ok: true, changed: outcome.changed, needs_restart: outcome.needsRestart } };
    },
  });
}

// ------------------------------------------------------------------------------------------------ explain

function explainRoutes({ explain, now }: OperationsParts): Route[] {
  return explain === null ? [] : [explainRoute(explain, now)];
}

function explainRoute(parts: ExplainParts, now: OperationsParts["now"]): Route {
  return operation({
    method: "POST",
    path: "/operations/explain",
    id: "explain",
    summary: "Explain why an envelope would or would not reach a recipient",
    answer: "What this node would decide, and the last results.",
    request: explainBody,
    handle: async ({ body }) => {
      const explained = await explainEnvelope(parts, body, now);
      return isFault(explained) ? explained : { status: 200, json: explained };
    },
  });
}

const checkNetworksRequest = compileShape(networksBody);

function networksRoute({ networkOf }: OperationsParts): Route {
  return operation({
    method: "POST",
    path: "/operations/networks",
    id: "networks",
    summary: "Name the client networks behind labels of stored entries",
    answer: "By label, the networks that sent something lately.",
    request: networksBody,
    handle: (call) => {
      const body = bodyOf(call, checkNetworksRequest);
      if (isFault(body)) return body;
      const named = body.labels.map((label) => [label, networkOf(label)] as const);
      return { status: 200, json: { networks: Object.fromEntries(named.filter(([, network]) => network !== null)) } };
    },
  });
}

// ------------------------------------------------------------------------------------------------- blocks

const checkBlockRequest = compileShape(blockBody);

function blockRoutes({ blocks, log }: OperationsParts): Route[] {
  const path = "/operations/blocks";
  return [
    operation({
      method: "GET",
      path,
      id: "blocks",
      summary: "The block list",
      answer: "The entries, oldest first.",
      handle: () => ({ status: 200, json: { blocks: renderBlocks(blocks) } }),
    }),
    operation({
      method: "POST",
      path,
      id: "changeBlocks",
      summary: "Block DIDs, senders and networks, or unblock them",
      answer: "How many entries were added and removed.",
      request: blockBody,
      handle: async (call) => {
        const change = decodeChange(call);
        if (isFault(change)) return change;
        const changed = await blocks.change(change);
        if (isFault(changed)) return changed;
        log("warn", "the block list was changed", { ...change });
        return { status: 200, json: { ...changed, entries: blocks.list().length } };
      },
    }),
  ];
}

function renderBlocks(blocks: Blocks): unknown[] {
  return blocks.list().map(({ subject, kind, sinceMs, reason }) => ({
    subject,
    kind,
    since: new Date(sinceMs).toISOString(),
    reason,
  }));
}

function decodeChange(call: Call): BlockChange | Fault {
  const body = bodyOf(call, checkBlockRequest);
  if (isFault(body)) return body;
  const add: BlockChange["add"][number][] = [];
  for (const { subject: text, sender_only, reason } of body.add) {
    const parsed = parseBlockSubject(text);
    if (isFault(parsed)) return parsed;
    const kind = parsed.isNetwork ? "network" : sender_only ? "sender" : "did";
    add.push({ subject: parsed.subject, kind, reason });
  }
  return { add, remove: body.remove.map(removedSubject) };
}

/** A text that can't be blocked is in no list. */
function removedSubject(text: string): string {
  const parsed = parseBlockSubject(text);
  return isFault(parsed) ? text : parsed.subject;
}

// ------------------------------------------------------------------------------------------------ invitations

const checkInviteRequest = compileShape(inviteBody);
const checkRevokeRequest = compileShape(revokeBody);

function invitationRoutes({ directory, log }: OperationsParts): Route[] {
  if (directory === null) return [];
  const { invitations } = directory;
  const path = "/operations/invitations";
  return [
    operation({
      method: "GET",
      path,
      id: "invitations",
      summary: "The invitations",
      answer: "Those that can be used or ended in the last 90 days, with who used them.",
      handle: async () => ({
        status: 200,
        json: {
          invitations: (await invitations.list()).map((one) => ({
            ...renderInvitation(one),
            uses: one.uses.map(renderUse),
          })),
        },
      }),
    }),
    operation({
      method: "POST",
      path,
      id: "invite",
      summary: "Make an invitation",
      answer: "The invitation, with the code that is not shown again.",
      request: inviteBody,
      handle: async (call) => {
        const body = bodyOf(call, checkInviteRequest);
        if (isFault(body)) return body;
        const { uses, life_seconds, note } = body;
        const made = await invitations.create({ uses, lifeMs: life_seconds * secondMs, note });
        if (isFault(made)) return made;
        log("info", "an invitation was made", { invitation: made.id, uses });
        return { status: 200, json: { ...renderInvitation(made), code: made.code } };
      },
    }),
    operation({
      method: "POST",
      path: `${path}/revoke`,
      id: "revokeInvitation",
      summary: "Revoke an invitation",
      answer: "The invitation, which nobody can use any more.",
      request: revokeBody,
      handle: async (call) => {
        const body = bodyOf(call, checkRevokeRequest);
        const revoked = isFault(body) ? body : await invitations.revoke(body.id);
        if (isFault(revoked)) return revoked;
        log("info", "an invitation was revoked", { invitation: revoked.id });
        return { status: 200, json: renderInvitation(revoked) };
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

const renderUse = ({ did, atMs }: Use) => ({ did, at: isoOf(atMs) });

// -------------------------------------------------------------------------------------------------- erasure

const checkEraseRequest = compileShape(eraseBody);

function eraseRoute(parts: OperationsParts): Route {
  const { now, log } = parts;
  return operation({
    method: "POST",
    path: "/operations/erase",
    id: "erase",
    summary: "Remove what this node holds of a DID",
    answer: "How many entries, bytes and uses of invitations were removed.",
    request: eraseBody,
    handle: async (call) => {
      const body = bodyOf(call, checkEraseRequest);
      if (isFault(body)) return body;
      const did = parseDid(body.did);
      if (isFault(did)) return did;
      const erased = body.mail_only ? await eraseMail(parts, did, now) : await eraseDid(parts, did, now);
      if (isFault(erased)) return erased;
      const what = body.mail_only ? "the waiting messages of a recipient" : "what the node holds of a DID";
      log("warn", `the operator removed ${what}`, { ...(body.mail_only ? { recipient: did } : {}), ...erased });
      return { status: 200, json: erased };
    },
  });
}
