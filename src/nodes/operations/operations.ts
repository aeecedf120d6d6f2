/**
 * What an operator asks of a running node, by the commands `waypost reload`, `block`, `invite`,
 * `members`, `erase` and `audit`. These routes exist on the Unix sockets of `server.admin_listen`
 * alone: the file system decides who may connect, and `server.admin_groups` what each may do.
 */
import type { Static } from "@sinclair/typebox";
import { parseDid } from "../../core/codec/did.ts";
import { secondMs } from "../../core/codec/time.ts";
import { type Fault, fault, isFault } from "../../core/fault.ts";
import { auditedNames } from "../../core/schema/admin.ts";
import {
  auditBody,
  auditPageMax,
  blockBody,
  eraseBody,
  explainBody,
  inviteBody,
  maintenanceBody,
  memberBody,
  membersBody,
  networksBody,
  noticeBody,
  reloadBody,
  revokeBody,
  tierBody,
} from "../../core/schema/schema.ts";
import { networkOfLabel } from "../cache/pools.ts";
import type { Log } from "../http/log.ts";
import type { Route } from "../http/route.ts";
import { type BlockChange, parseBlockSubject } from "../parties/blocks.ts";
import type { Maintenance } from "../parties/maintenance.ts";
import type { Notices } from "../parties/notices.ts";
import type { Admin } from "./admin.ts";
import type { AuditRecord } from "./audit.ts";
import { type Erasing, eraseDid } from "./erase.ts";
import { type ExplainParts, explain as explainEnvelope } from "./explain.ts";
import { type Invitation, type Invitations, invitationId } from "./invitations.ts";
import { listMembers, type MemberParts, setTier, showMember } from "./members.ts";
import { isoOf, type Operation, operation, routesOf } from "./operation.ts";

type ReloadOutcome = {
  /** Settings that changed now, as `section.name`. */
  readonly changed: readonly string[];
  /** Settings that differ and need a restart. */
  readonly needsRestart: readonly string[];
};

type OperationsParts = Erasing & {
  readonly admin: Admin;
  /** Reads the configuration again; a text gives the reason why it was not applied. */
  readonly reload: () => Promise<ReloadOutcome | string>;
  readonly explain: ExplainParts;
  readonly maintenance: Maintenance;
  readonly notices: Notices;
  readonly membership: MemberParts;
  /** URL of the app, where links of invitations lead. */
  readonly app: string | null;
  readonly now: () => number;
  readonly log: Log;
};

export function operationRoutes(parts: OperationsParts): Route[] {
  return [...routesOf(operationsOf(parts), parts), rightsRoute(parts.admin)];
}

function operationsOf(parts: OperationsParts): Operation[] {
  const { directory, explain, now } = parts;
  return [
    ...nodeOperations(parts),
    ...blockOperations(parts),
    ...(directory === null ? [] : invitationOperations(directory.invitations, parts)),
    ...memberOperations(parts.membership),
    auditOperation(parts.admin),
    operation({
      path: "/operations/explain",
      action: "members.explain",
      id: "explain",
      summary: "Explain why an envelope would or would not reach a recipient",
      request: explainBody,
      about: ({ recipient, sender }) =>
        sender === null ? [recipient] : [recipient, `from ${sender}`],
      handle: (asked) => explainEnvelope(explain, asked, now),
    }),
  ];
}

function noticeOperation(notices: Notices): Operation {
  return operation({
    path: "/operations/notice",
    id: "notice",
    action: "notices.publish",
    summary: "Show a signed notice to everybody, or remove it",
    request: noticeBody,
    about: ({ notice }) => (notice === null ? ["none"] : []),
    said: ({ notice }) => [notice?.text ?? null],
    handle: async ({ notice }) => {
      const refused = notice === null ? await notices.remove() : await notices.publish(notice);
      return refused ?? { notice: notices.current() };
    },
  });
}

function maintenanceOperation(maintenance: Maintenance): Operation {
  return operation({
    path: "/operations/maintenance",
    id: "maintenance",
    action: "node.maintenance",
    summary: "Refuse writes for a time, or take them again",
    request: maintenanceBody,
    about: ({ on }) => [on ? "on" : "off"],
    said: ({ message }) => [message],
    handle: async ({ on, message }) => {
      await (on ? maintenance.begin(message) : maintenance.end());
      const state = maintenance.state();
      return {
        since: state === null ? null : isoOf(state.sinceMs),
        message: state?.message ?? null,
      };
    },
  });
}

function nodeOperations(parts: OperationsParts): Operation[] {
  const { reload, now, log } = parts;
  return [
    maintenanceOperation(parts.maintenance),
    noticeOperation(parts.notices),
    operation({
      path: "/operations/reload",
      action: "node.reload",
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
      action: "storage.networks",
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
      action: "members.erase",
      id: "erase",
      summary: "Remove what this node holds of a DID",
      request: eraseBody,
      about: ({ did }) => [did],
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

// ------------------------------------------------------------------------------------------ blocks

function blockOperations({ blocks, log }: OperationsParts): Operation[] {
  const path = "/operations/blocks";
  return [
    operation({
      path,
      action: "blocks.list",
      id: "blocks",
      summary: "The block list",
      request: null,
      handle: () => ({
        blocks: blocks.list().map(({ sinceMs, ...block }) => ({ ...block, since: isoOf(sinceMs) })),
      }),
    }),
    operation({
      path,
      action: "blocks.change",
      id: "changeBlocks",
      summary: "Block DIDs, senders and networks, or unblock them",
      request: blockBody,
      about: ({ add, remove }) => [
        ...add.map(({ subject }) => `+ ${subject}`),
        ...remove.map((subject) => `- ${subject}`),
      ],
      said: ({ add }) => add.map(({ reason }) => reason),
      missed: ({ missing }) => (Array.isArray(missing) ? missing.map((one) => `- ${one}`) : []),
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
    const kindOfDid = sender_only ? "sender" : "did";
    const kind = parsed.isNetwork ? "network" : kindOfDid;
    add.push({ subject: parsed.subject, kind, reason });
  }
  // A text that can't be blocked is in no list, and comes back as one that is missing there.
  const removed = remove.map((text) => {
    const parsed = parseBlockSubject(text);
    return isFault(parsed) ? text : parsed.subject;
  });
  return { add, remove: removed };
}

function memberOperations(membership: MemberParts): Operation[] {
  return [
    operation({
      path: "/operations/members",
      action: "members.list",
      id: "members",
      summary: "The members of this node",
      request: membersBody,
      about: ({ search }) => (search === null ? [] : [search]),
      handle: (asked) => listMembers(membership, asked),
    }),
    operation({
      path: "/operations/member",
      action: "members.show",
      id: "member",
      summary: "One member, by DID or alias",
      request: memberBody,
      about: ({ member }) => [member],
      found: ({ did }) => [did],
      handle: ({ member }) => showMember(membership, member),
    }),
    operation({
      path: "/operations/tier",
      id: "setTier",
      action: "members.tier",
      summary: "Give a member a tier",
      request: tierBody,
      about: ({ member, tier }) => [member, `tier ${tier ?? "default"}`],
      found: ({ did }) => [did],
      handle: (asked) => setTier(membership, asked),
    }),
  ];
}

// ------------------------------------------------------------------------------------------- audit

function auditOperation({ audit }: Admin): Operation {
  return operation({
    path: "/operations/audit",
    id: "audit",
    action: "audit.list",
    summary: "Who did what on this node, newest first",
    request: auditBody,
    handle: async ({ user, action, about, limit }) => {
      if (action !== null && !auditedNames.includes(action))
        return fault(
          "invalid_request",
          `there is no action ${action}; there are ${auditedNames.join(", ")}`,
        );
      const found = await audit.list({ user, action, about, limit: limit ?? auditPageMax });
      return { records: found.map(renderRecord) };
    },
  });
}

function renderRecord({ atMs, untilMs, ...record }: AuditRecord): Record<string, unknown> {
  return { at: isoOf(atMs), until: isoOf(untilMs), ...record };
}

/** Anyone who can open the socket may ask what they may do, and it says nothing else. */
function rightsRoute(admin: Admin): Route {
  return {
    method: "GET",
    path: "/operations/rights",
    id: "rights",
    summary: "What the user of this connection may do",
    tag: "Node",
    capacity: "reserved",
    answer: [200, "The user, and its actions."],
    handle: ({ peer }) => ({
      status: 200,
      json: { user: peer?.user ?? null, actions: admin.actionsOf(peer) },
    }),
  };
}

// ------------------------------------------------------------------------------------- invitations

/** Never the code, which is a secret while the invitation lasts. */
function invitationNamed(named: string): string {
  return /^[0-9a-f]+$/.test(named) ? named : invitationId(named);
}

function invitationOperations(
  invitations: Invitations,
  { app, log }: Pick<OperationsParts, "app" | "log">,
): Operation[] {
  const path = "/operations/invitations";
  return [
    operation({
      path,
      action: "invitations.list",
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
      action: "invitations.create",
      id: "invite",
      summary: "Make an invitation",
      request: inviteBody,
      said: ({ note }) => [note],
      found: ({ id }) => [id],
      handle: async ({ uses, life_seconds, note }) => {
        const made = await invitations.create({ uses, lifeMs: life_seconds * secondMs, note });
        if (isFault(made)) return made;
        log("info", "an invitation was made", { invitation: made.id, uses });
        return { ...renderInvitation(made), code: made.code, app };
      },
    }),
    operation({
      path: `${path}/revoke`,
      action: "invitations.revoke",
      id: "revokeInvitation",
      summary: "Revoke an invitation",
      request: revokeBody,
      about: ({ id }) => [invitationNamed(id)],
      found: ({ id }) => [id],
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
  const { id, createdAtMs, expiresAtMs, revokedAtMs, usesMax, deviceOf } = one;
  const note = deviceOf === undefined ? one.note : `device of ${deviceOf}`;
  return {
    id,
    created_at: isoOf(createdAtMs),
    expires_at: isoOf(expiresAtMs),
    revoked_at: revokedAtMs === null ? null : isoOf(revokedAtMs),
    uses_max: usesMax,
    note,
  };
}
