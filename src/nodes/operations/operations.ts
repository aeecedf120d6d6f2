/**
 * What an operator changes on a running node, by the commands `waypost reload`, `block`, `invite` and `erase`.
 * These routes exist on the Unix sockets of `server.admin_listen` alone: there the file system decides who may ask.
 */
import type { Static } from "@sinclair/typebox";
import { parseDid } from "../../core/codec/did.ts";
import { secondMs } from "../../core/codec/time.ts";
import { type Fault, isFault } from "../../core/fault.ts";
import {
  blockBody,
  eraseBody,
  explainBody,
  inviteBody,
  memberBody,
  membersBody,
  networksBody,
  reloadBody,
  revokeBody,
} from "../../core/schema/schema.ts";
import { networkOfLabel } from "../cache/pools.ts";
import type { Log } from "../http/log.ts";
import type { Route } from "../http/route.ts";
import { type BlockChange, parseBlockSubject } from "../parties/blocks.ts";
import { type Erasing, eraseDid } from "./erase.ts";
import { type ExplainParts, explain as explainEnvelope } from "./explain.ts";
import type { Invitation, Invitations } from "./invitations.ts";
import { listMembers, type MemberParts, showMember } from "./members.ts";
import { isoOf, operation } from "./operation.ts";

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
  readonly membership: MemberParts;
  /** URL of the app, where links of invitations lead. */
  readonly app: string | null;
  readonly now: () => number;
  readonly log: Log;
};

export function operationRoutes(parts: OperationsParts): Route[] {
  const { directory, explain, now } = parts;
  return [
    ...nodeOperations(parts),
    ...blockRoutes(parts),
    ...(directory === null ? [] : invitationRoutes(directory.invitations, parts)),
    ...memberRoutes(parts.membership),
    operation({
      path: "/operations/explain",
      id: "explain",
      summary: "Explain why an envelope would or would not reach a recipient",
      request: explainBody,
      handle: (asked) => explainEnvelope(explain, asked, now),
    }),
  ];
}

function nodeOperations(parts: OperationsParts): Route[] {
  const { reload, now, log } = parts;
  return [
    operation({
      path: "/operations/reload",
      id: "reload",
      summary: "Reload the configuration",
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
      request: eraseBody,
      handle: async ({ did: text }) => {
        const did = parseDid(text);
        const erased = isFault(did) ? did : await eraseDid(parts, did, now);
        if (!isFault(erased))
          log("warn", "the operator removed what the node holds of a DID", erased);
        return erased;
      },
    }),
  ];
}

// ------------------------------------------------------------------------------------------------- blocks

function blockRoutes({ blocks, log }: OperationsParts): Route[] {
  const path = "/operations/blocks";
  return [
    operation({
      path,
      id: "blocks",
      summary: "The block list",
      request: null,
      handle: () => ({
        blocks: blocks.list().map(({ sinceMs, ...block }) => ({ ...block, since: isoOf(sinceMs) })),
      }),
    }),
    operation({
      path,
      id: "changeBlocks",
      summary: "Block DIDs, senders and networks, or unblock them",
      request: blockBody,
      handle: async (asked) => {
        const change = decodeChange(asked);
        const changed = isFault(change) ? change : await blocks.change(change);
        if (isFault(changed)) return changed;
        log("warn", "the block list was changed", { ...change });
        return { ...changed, entries: blocks.list().length };
      },
    }),
  ];
}

function decodeChange({ add: asked, remove }: Static<typeof blockBody>): BlockChange | Fault {
  const add: BlockChange["add"][number][] = [];
  for (const { subject: text, sender_only, reason } of asked) {
    const parsed = parseBlockSubject(text);
    if (isFault(parsed)) return parsed;
    const kind = parsed.isNetwork ? "network" : sender_only ? "sender" : "did";
    add.push({ subject: parsed.subject, kind, reason });
  }
  // A text that can't be blocked is in no list, and comes back as one that is missing there.
  const removed = remove.map((text) => {
    const parsed = parseBlockSubject(text);
    return isFault(parsed) ? text : parsed.subject;
  });
  return { add, remove: removed };
}

function memberRoutes(membership: MemberParts): Route[] {
  return [
    operation({
      path: "/operations/members",
      id: "members",
      summary: "The members of this node",
      request: membersBody,
      handle: (asked) => listMembers(membership, asked),
    }),
    operation({
      path: "/operations/member",
      id: "member",
      summary: "One member, by DID or alias",
      request: memberBody,
      handle: ({ member }) => showMember(membership, member),
    }),
  ];
}

// ------------------------------------------------------------------------------------------------ invitations

function invitationRoutes(
  invitations: Invitations,
  { app, log }: Pick<OperationsParts, "app" | "log">,
): Route[] {
  const path = "/operations/invitations";
  return [
    operation({
      path,
      id: "invitations",
      summary: "The invitations",
      request: null,
      handle: async () => ({
        invitations: (await invitations.list()).map((one) => ({
          ...renderInvitation(one),
          uses: one.uses.map(({ did, atMs }) => ({ did, at: isoOf(atMs) })),
        })),
      }),
    }),
    operation({
      path,
      id: "invite",
      summary: "Make an invitation",
      request: inviteBody,
      handle: async ({ uses, life_seconds, note }) => {
        const made = await invitations.create({ uses, lifeMs: life_seconds * secondMs, note });
        if (isFault(made)) return made;
        log("info", "an invitation was made", { invitation: made.id, uses });
        return { ...renderInvitation(made), code: made.code, app };
      },
    }),
    operation({
      path: `${path}/revoke`,
      id: "revokeInvitation",
      summary: "Revoke an invitation",
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
