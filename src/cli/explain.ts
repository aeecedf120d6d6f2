/**
 * `waypost explain <target>` and `waypost send --explain`: why an envelope would or would not reach a recipient now. Both
 * read record and policies from the Directory and ask every published service for its node. `send --explain` also builds
 * the message and checks it as each node would, with the limits and the clock that the node shows. Nothing is sent.
 * Source: docs/ledger.md 3.2, rules sections 2 and 5.
 */
import type { Command } from "commander";
import { failedInResult } from "../app/failure.ts";
import type { NodeLimits, Resolved } from "../client/answers.ts";
import { activeDocument, type Client, documentOf } from "../client/client.ts";
import { directoryClient } from "../client/directory.ts";
import { ClientError, endpoint, orNull } from "../client/http.ts";
import { renderDurationSetting } from "../config/schema.ts";
import type { Did } from "../core/codec/did.ts";
import { hourMs, parseDuration, secondMs } from "../core/codec/time.ts";
import { type Fault, isFault } from "../core/fault.ts";
import {
  appliedTtlMs,
  checkEnvelopeTime,
  type DeliveryHint,
  decodeEnvelope,
  type Envelope,
  type EnvelopeLimits,
  verifySender,
} from "../core/message/envelope.ts";
import {
  askJson,
  type ConnectionFlags,
  checkEndpoint,
  clientCommand,
  countOf,
  printable,
  renderBytes,
  type Session,
  targetDid,
} from "./command.ts";

/** `stops`: no envelope can reach the recipient because of this. */
type Step = { readonly what: string; readonly state: "ok" | "note" | "stops"; readonly detail: string };

/**
 * `accepted`: a Cache answers, and stores the envelope. `unknown`: nothing stops the envelope, but only an inbox or a Relay
 * is left, and only a delivery shows whether the recipient is there.
 */
type Verdict = "accepted" | "stopped" | "unknown";

export function registerExplainCommand(program: Command): void {
  const command = program
    .command("explain <target>")
    .description("explain why an envelope would or would not reach a DID, an alias, or an identity of this machine");
  clientCommand(command, async (session, _: ConnectionFlags, target: string) => {
    const did = await targetDid(session, target);
    const { steps } = await explainRecipient(session.client, did, anyMessage);
    const verdict = verdictOf(steps);
    const sentence = {
      accepted: `An envelope to ${did} is accepted.`,
      stopped: `No envelope reaches ${did} now.`,
      unknown: `Only a delivery shows whether an envelope reaches ${did}.`,
    }[verdict];
    session.report.result({ ok: true, did, reachable: verdict === "accepted", steps }, render(sentence, steps));
  });
}

function verdictOf(steps: readonly Step[]): Verdict {
  if (steps.some(({ state }) => state === "stops")) return "stopped";
  const offers = (type: string, state: Step["state"]): boolean =>
    steps.some((step) => step.what.startsWith(`service ${type} `) && step.state === state);
  if (offers("SvcCacheService", "ok")) return "accepted";
  return offers("SvcRelayService", "ok") || offers("SvcInboxService", "note") ? "unknown" : "stopped";
}

const stateLabels = { ok: "ok   ", note: "note ", stops: "STOPS" } as const;

function render(sentence: string, steps: readonly Step[]): string {
  const lines = steps.map(({ what, state, detail }) => printable(`${stateLabels[state]}  ${what}: ${detail}`));
  return [sentence, ...lines].join("\n");
}

// ------------------------------------------------------------------------------------------------- recipient

/** The members of a message that decide its destinations. */
type Wish = { readonly hint: DeliveryHint; readonly tag: string | null };
const anyMessage: Wish = { hint: "standard", tag: null };

type Explained = { readonly steps: readonly Step[]; readonly personas: readonly string[] };

function stopped(what: string, detail: string): Explained {
  return { steps: [{ what, state: "stops", detail }], personas: [] };
}

async function explainRecipient(client: Client, did: Did, wish: Wish): Promise<Explained> {
  const record = await orNull(client.directory.resolve(did), "did_not_found");
  if (record === null) return stopped("record", "the ledger has no such DID");
  if (record.deactivated) return stopped("record", "the DID is deactivated");
  const { keyAgreement, service } = documentOf(record, did);
  const links = record.delivery_policy_links;
  const policy = await policyOf(client, links?.recipient_policy ?? did);
  const wanted = destinationsOf(service, wish, policy.isCacheEligible);
  const services = await Promise.all(wanted.map(serviceStep));
  const none =
    service.length === 0 ? "the document publishes none" : "the document publishes none for such an envelope";
  const steps: Step[] = [
    { what: "record", state: "ok", detail: `version ${record.version}, changed ${record.updated_at}` },
    keyStep(keyAgreement.length),
    policy.step,
    ...linkSteps(links, wish.tag),
    ...services,
    ...(services.length === 0 ? [{ what: "services", state: "stops", detail: none } as const] : []),
  ];
  return { steps, personas: links?.persona_policies ?? [] };
}

function keyStep(count: number): Step {
  if (count > 0) return { what: "key agreement", state: "ok", detail: `${countOf(count, "key")} to seal to` };
  return { what: "key agreement", state: "stops", detail: "the document lists no key to seal to" };
}

async function policyOf(client: Client, did: string): Promise<{ step: Step; isCacheEligible: boolean }> {
  const found = await orNull(client.directory.recipientPolicy(did), "policy_not_found");
  const what = "policy";
  if (found === null)
    return { step: { what, state: "ok", detail: "none; each node's own limits apply" }, isCacheEligible: true };
  const { effective_ttl, max_message_bytes, cache_eligible } = found.policy;
  const cache = cache_eligible
    ? "Caches may store envelopes"
    : "no Cache may store envelopes: only live delivery works";
  const detail = `at most ${max_message_bytes} bytes, ${countOf(effective_ttl, "block")}; ${cache}`;
  return { step: { what, state: cache_eligible ? "ok" : "note", detail }, isCacheEligible: cache_eligible };
}

function linkSteps(links: Resolved["delivery_policy_links"], tag: string | null): Step[] {
  const steps: Step[] = [];
  const tags = links?.tag_policies ?? [];
  const isAdmitted = tag === null || tags.includes(tag);
  if (tags.length > 0)
    steps.push({ what: "tags", state: isAdmitted ? "note" : "stops", detail: `only ${tags.join(", ")}, or none` });
  const personas = links?.persona_policies ?? [];
  if (personas.length > 0) {
    const detail = `${personas.join(", ")} may restrict which Relays are allowed`;
    steps.push({ what: "personas", state: "note", detail });
  }
  return steps;
}

type Service = { readonly type: string; readonly serviceEndpoint: readonly string[]; readonly priority: number | null };
type Destination = { readonly type: string; readonly endpoint: string };

/** The order of delivery: inbox, Relay, Cache; within a type by priority. A hint and a policy leave some out. */
function destinationsOf(services: readonly Service[], { hint }: Wish, isCacheEligible: boolean): Destination[] {
  const direct = hint === "cache" ? [] : ["SvcInboxService", "SvcRelayService"];
  const cache = hint === "direct" || !isCacheEligible ? [] : ["SvcCacheService"];
  const priorityOf = ({ priority }: Service): number => priority ?? Number.MAX_SAFE_INTEGER;
  return [...direct, ...cache].flatMap((type) =>
    services
      .filter((service) => service.type === type)
      .sort((a, b) => priorityOf(a) - priorityOf(b))
      .flatMap((service) => service.serviceEndpoint.map((endpoint) => ({ type, endpoint }))),
  );
}

async function serviceStep({ type, endpoint }: Destination): Promise<Step> {
  const what = `service ${type} ${endpoint}`;
  // An inbox belongs to the recipient and need not be a node; asking it anything would be a delivery.
  if (type === "SvcInboxService") return { what, state: "note", detail: "not tried: only a delivery shows" };
  const check = await checkEndpoint(endpoint, type === "SvcRelayService" ? "relay" : "cache");
  if (check.state === "ok") return { what, state: "ok", detail: "answers under this address" };
  if (check.state === "unknown") return { what, state: "ok", detail: "answers, but does not state its public address" };
  const effect =
    type === "SvcCacheService" ? "it refuses envelopes for this address" : "live sessions do not work there";
  return { what, state: "note", detail: check.state === "wrong" ? `${check.reason}: ${effect}` : check.reason };
}

// --------------------------------------------------------------------------------------------------- message

/** A message as it would be sent. */
type BuiltMessage = {
  readonly chunks: number;
  readonly sizeBytes: number;
  /** Of the first and largest envelope. */
  readonly body: Uint8Array;
};

type Sending = Wish & {
  /** Seals the message; throws the refusal that a sender would get. */
  readonly build: () => Promise<BuiltMessage>;
};

/** Reports whether the message would be accepted. Ends with exit code 1 unless it would. */
export async function explainSending(session: Session, to: Did, sending: Sending): Promise<void> {
  const recipient = await explainRecipient(session.client, to, sending);
  const isStopped = recipient.steps.some(({ state }) => state === "stops");
  const steps = isStopped ? recipient.steps : await withMessage(session, recipient, sending);
  const verdict = verdictOf(steps);
  const sentence = {
    accepted: `The message to ${to} would be accepted; nothing was sent.`,
    stopped: `The message to ${to} would not be delivered; nothing was sent.`,
    unknown: `Only a delivery shows whether the message reaches ${to}; nothing was sent.`,
  }[verdict];
  session.report.result({ ok: verdict === "accepted", to, verdict, steps }, render(sentence, steps));
  if (verdict !== "accepted") throw failedInResult("the message may not be delivered");
}

/** The steps of the recipient, with the answer of each Cache to this message, and the steps of the message. */
async function withMessage(session: Session, recipient: Explained, sending: Sending): Promise<Step[]> {
  const message = await sending.build().catch((error: unknown) => {
    if (error instanceof ClientError) return error;
    throw error;
  });
  if (message instanceof ClientError)
    return [...recipient.steps, { what: "message", state: "stops", detail: `${message.message} (${message.code})` }];
  const { body, chunks, sizeBytes } = message;
  const detail = `${renderBytes(sizeBytes)} in ${countOf(chunks, "envelope")} of at most ${body.length} bytes`;
  return [
    ...(await Promise.all(recipient.steps.map((step) => (isCache(step) ? cacheStep(step, message) : step)))),
    { what: "message", state: "ok", detail },
    await signatureStep(session.client, body),
    ...(await relaySteps(session, { message, personas: recipient.personas })),
    { what: "not shown", state: "note", detail: unseen },
  ];
}

const cacheService = "service SvcCacheService ";
const isCache = ({ what, state }: Step): boolean => what.startsWith(cacheService) && state === "ok";

const unseen =
  "whom a node serves (403 policy_denied), whether it asks for a signature (403 sender_signature_invalid), how full " +
  "the mailbox is (507 mailbox_full), and whether the recipient listens live";

async function signatureStep(client: Client, body: Uint8Array): Promise<Step> {
  const what = "signature";
  const envelope = decodeEnvelope(body, loosest);
  if (isFault(envelope)) return { what, state: "stops", detail: envelope.detail };
  const { sender } = envelope;
  if (sender === null)
    return { what, state: "note", detail: "none: the recipient sees no sender, and a node may refuse that" };
  if (verifySender(sender, await activeDocument(client, sender.from)))
    return { what, state: "ok", detail: `by ${sender.keyId}, and it verifies` };
  return { what, state: "stops", detail: `${sender.keyId} does not verify against the document of ${sender.from}` };
}

/** The limits assumed of a node that states none. */
const loosest: EnvelopeLimits = {
  body_bytes_max: Number.MAX_SAFE_INTEGER,
  unchunked_bytes_max: Number.MAX_SAFE_INTEGER,
  chunk_bytes_max: Number.MAX_SAFE_INTEGER,
  header_bytes_max: Number.MAX_SAFE_INTEGER,
  ttl_max: Number.MAX_SAFE_INTEGER,
  ttl_default: 24 * hourMs,
  clock_skew: Number.MAX_SAFE_INTEGER,
};

function limitsOf(shown: NodeLimits): EnvelopeLimits {
  const durationOf = (text: string | undefined): number | undefined =>
    (text === undefined ? null : parseDuration(text)) ?? undefined;
  const skew = shown.max_clock_skew_seconds;
  return {
    body_bytes_max: shown.max_http_body_bytes ?? loosest.body_bytes_max,
    unchunked_bytes_max: shown.max_unchunked_bytes ?? loosest.unchunked_bytes_max,
    chunk_bytes_max: shown.max_chunk_bytes ?? loosest.chunk_bytes_max,
    header_bytes_max: shown.max_header_bytes ?? loosest.header_bytes_max,
    ttl_max: durationOf(shown.max_ttl) ?? loosest.ttl_max,
    ttl_default: durationOf(shown.default_ttl) ?? loosest.ttl_default,
    clock_skew: skew === undefined ? loosest.clock_skew : skew * secondMs,
  };
}

type NodeView = { readonly limits: NodeLimits; readonly ttlMs: number };

/** Checks the message as the node at `url` would, by its own clock; a text is the reason why it can't be asked. */
async function checkAsNode(url: string, body: Uint8Array): Promise<NodeView | Fault | string> {
  const ready = await askJson(url, "/readyz");
  if (typeof ready === "string") return ready;
  if (ready.status !== 200) return `answers ${ready.status}: it is not ready`;
  const limits = await orNull(directoryClient(endpoint(url)).limits(), "not_found");
  const allowed = limits === null ? loosest : limitsOf(limits);
  const envelope: Envelope | Fault = decodeEnvelope(body, allowed);
  if (isFault(envelope)) return envelope;
  const untimely = checkEnvelopeTime(envelope, ready.dateMs ?? Date.now(), allowed);
  return untimely ?? { limits: limits ?? {}, ttlMs: appliedTtlMs(envelope, allowed, null) };
}

type Relayed = { readonly message: BuiltMessage; readonly personas: readonly string[] };

/** The Relay that the sender gives the message to. */
async function relaySteps({ client, relayUrl }: Session, { message, personas }: Relayed): Promise<Step[]> {
  const what = `your Relay ${relayUrl}`;
  const about = await askJson(relayUrl, "/node");
  if (typeof about === "string") return [{ what, state: "stops", detail: about }];
  const roles = about.status === 200 && Array.isArray(about.json["roles"]) ? about.json["roles"] : null;
  if (roles !== null && !roles.includes("relay")) return [{ what, state: "stops", detail: "no relay answers there" }];
  const view = await checkAsNode(relayUrl, message.body);
  if (typeof view === "string") return [{ what, state: "stops", detail: view }];
  if (isFault(view)) return [{ what, state: "stops", detail: refusalText(view) }];
  const publicId = roles === null ? null : String(about.json["relay_public_id"]);
  const taken: Step = { what, state: "ok", detail: `accepts it, for at most ${renderDurationSetting(view.ttlMs)}` };
  return [taken, ...(await Promise.all(personas.map((persona) => personaStep(client, persona, publicId))))];
}

async function personaStep(client: Client, persona: string, publicId: string | null): Promise<Step> {
  const what = `persona ${persona}`;
  const found = await orNull(client.directory.personaPolicy(persona), "policy_not_found");
  const allowed = found?.policy["allowed_relays"];
  if (!Array.isArray(allowed) || allowed.length === 0) return { what, state: "ok", detail: "allows every Relay" };
  if (publicId === null) return { what, state: "note", detail: "your Relay does not state its public id" };
  if (allowed.includes(publicId)) return { what, state: "ok", detail: `allows ${publicId}` };
  return { what, state: "stops", detail: `does not allow your Relay ${publicId}: only ${allowed.join(", ")}` };
}

/** Compares the message with the limits of a Cache. A refusal is a note: a live session may still accept it. */
async function cacheStep({ what }: Step, { body, chunks }: BuiltMessage): Promise<Step> {
  const view = await checkAsNode(what.slice(cacheService.length), body);
  if (typeof view === "string") return { what, state: "note", detail: view };
  if (isFault(view)) return { what, state: "note", detail: refusalText(view) };
  const { max_mailbox_bytes: bytesMax, max_mailbox_entries: entriesMax } = view.limits;
  if (bytesMax !== undefined && body.length * chunks > bytesMax)
    return {
      what,
      state: "note",
      detail: `stores at most ${renderBytes(bytesMax)} for a recipient: less than this message`,
    };
  if (entriesMax !== undefined && chunks > entriesMax)
    return {
      what,
      state: "note",
      detail: `stores at most ${entriesMax} envelopes for a recipient: less than this message`,
    };
  return { what, state: "ok", detail: `would store it for at most ${renderDurationSetting(view.ttlMs)}` };
}

function refusalText({ code, detail }: Fault): string {
  return `would refuse it: ${detail} (${code})`;
}
