/**
 * What an operator changes on a running node, by the commands `waypost reload`, `block` and `purge --recipient`.
 * These routes exist on the Unix sockets of `server.admin_listen` alone: there the file system decides who may ask.
 * A purge removes everything that waits for a recipient, without a proof of the recipient: for duties such as a court
 * order. Ids stay remembered as after an acknowledgement, so that a late copy of an envelope does not come back.
 */
import { type Did, mailboxOf, parseDid } from "../../core/codec/did.ts";
import { parseJson } from "../../core/codec/json.ts";
import { type Fault, isFault } from "../../core/fault.ts";
import { blockBody, compileShape, explainBody, networksBody, purgeBody, reloadBody } from "../../core/schema/schema.ts";
import type { Mailbox } from "../../storage/contract.ts";
import type { Log } from "../http/log.ts";
import { type Answer, type Call, defineRoute, type Route, type RoutePlan } from "../http/route.ts";
import type { RecipientSource } from "../recipients.ts";
import { type BlockChange, type Blocks, parseBlockSubject } from "./blocks.ts";
import { type ExplainParts, explain as explainEnvelope, waitingPages } from "./explain.ts";

type ReloadOutcome = {
  /** Settings that changed now, as `section.name`. */
  readonly changed: readonly string[];
  /** Settings that differ and need a restart. */
  readonly needsRestart: readonly string[];
};

type OperationsParts = {
  /** Reads the configuration again; a text gives the reason why it was not applied. */
  readonly reload: () => Promise<ReloadOutcome | string>;
  readonly blocks: Blocks;
  /** `null` without a Cache. */
  readonly cache: { readonly mailbox: Mailbox; readonly recipients: RecipientSource } | null;
  /** `null` on a node that knows no recipients. */
  readonly explain: ExplainParts | null;
  /** The client network behind a label of stored entries; `null` for one that sent nothing lately. */
  readonly networkOf: (label: string) => string | null;
  readonly now: () => number;
  readonly log: Log;
};

export function operationRoutes(parts: OperationsParts): Route[] {
  return [reloadRoute(parts), ...blockRoutes(parts), purgeRoute(parts), ...explainRoutes(parts), networksRoute(parts)];
}

const bodyBytesMax = 4 << 20;

function operation({ answer, ...plan }: Omit<RoutePlan, "answer" | "codes"> & { readonly answer: string }): Route {
  return defineRoute(
    {
      ...plan,
      answer: [200, answer],
      codes: ["invalid_request", "policy_denied", "service_unavailable", "storage_full"],
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

// -------------------------------------------------------------------------------------------------- purge

const checkPurgeRequest = compileShape(purgeBody);
/** How many lives are purged for a DID that the ledger no longer has. */
const pastLivesMax = 16;

function purgeRoute({ cache, now, log }: OperationsParts): Route {
  return operation({
    method: "POST",
    path: "/operations/purge",
    id: "purge",
    summary: "Remove all waiting envelopes of a recipient",
    answer: "How many entries and bytes were removed.",
    request: purgeBody,
    handle: async (call) => {
      const body = bodyOf(call, checkPurgeRequest);
      if (isFault(body)) return body;
      const did = parseDid(body.recipient);
      if (isFault(did)) return did;
      if (cache === null) return { status: 200, json: { entries: 0, bytes: 0 } };
      const life = (await cache.recipients.subject(did))?.life ?? pastLivesMax;
      const purged = await purgeRecipient(cache.mailbox, { did, life }, now);
      log("warn", "the operator removed the waiting messages of a recipient", { recipient: did, ...purged });
      return { status: 200, json: purged };
    },
  });
}

type Purged = { readonly entries: number; readonly bytes: number };

/** The mailboxes of the life that the DID has now and of those before; `life` is the present one. */
async function purgeRecipient(
  mailbox: Mailbox,
  { did, life }: { readonly did: Did; readonly life: number },
  now: () => number,
): Promise<Purged> {
  let [entries, bytes] = [0, 0];
  for (let past = 0; past <= life; past++) {
    const key = mailboxOf(did, past);
    for await (const page of waitingPages(mailbox, key, now)) {
      const sizes = new Map(page.map(({ messageId, envelopeBytes }) => [messageId, envelopeBytes]));
      const removed = sizes.size === 0 ? [] : await mailbox.remove(key, [...sizes.keys()], now());
      entries += removed.length;
      for (const { messageId } of removed) bytes += sizes.get(messageId) ?? 0;
    }
  }
  return { entries, bytes };
}
