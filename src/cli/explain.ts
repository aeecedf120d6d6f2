/**
 * `waypost explain <target>` and `waypost send --explain`: why an envelope would or would not reach a recipient now. Both
 * read record and policies from the Directory and ask every published service for its node. `send --explain` also builds
 * the message and checks it as each node would, with the limits and the clock that the node shows. Nothing is sent.
 * Source: rules sections 2 and 5.
 */
import type { Command } from "commander";
import { failedInResult } from "../app/failure.ts";
import type { NodeLimits, Resolved } from "../client/answers.ts";
import { activeDocument, type Client, documentOf } from "../client/client.ts";
import { directoryClient } from "../client/directory.ts";
import { ClientError, endpoint, orNull } from "../client/http.ts";
import { renderDurationSetting } from "../config/schema.ts";
import { type Did, isDid } from "../core/codec/did.ts";
import { hourMs, parseDuration, secondMs } from "../core/codec/time.ts";
import { type Fault, isFault } from "../core/fault.ts";
import {
  appliedTtlMs,
  checkEnvelopeTime,
  type DeliveryHint,
  decodeEnvelope,
  type EnvelopeLimits,
  verifySender,
} from "../core/message/envelope.ts";
import { askJson, checkEndpoint, clientCommand, countOf, printable, renderBytes, type Session } from "./command.ts";
import { askNode, type NodeFlags } from "./operations.ts";

/** `stops`: no envelope can reach the recipient because of this. */
type Step = { readonly what: string; readonly state: "ok" | "note" | "stops"; readonly detail: string };

const ok = (what: string, detail: string): Step => ({ what, state: "ok", detail });
const note = (what: string, detail: string): Step => ({ what, state: "note", detail });
const stops = (what: string, detail: string): Step => ({ what, state: "stops", detail });

/**
 * `accepted`: a Cache answers, and stores the envelope. `unknown`: nothing stops the envelope, but only an inbox or a Relay
 * is left, and only a delivery shows whether the recipient is there.
 */
type Conclusion = "accepted" | "stopped" | "unknown";

export function registerExplainCommand(program: Command): void {
  const command = program
    .command("explain <target>")
    .description("explain why an envelope would or would not reach a DID, an alias, or an identity of this machine")
    .option("-c, --config <file>", "ask the running node of this configuration file, which knows more")
    .option("--socket <path>", "the same by the Unix socket of the node's admin_listen")
    .option("--sender <did>", "envelopes of this sender, with --config or --socket");
  clientCommand(command, async (session, flags: NodeFlags & { readonly sender?: string }, target: string) => {
    const did = isDid(target) ? target : (await session.find(target)).did;
    if (flags.config !== undefined || flags.socket !== undefined) return explainAtNode(session, flags, did);
    const { steps } = await explainRecipient(session.client, did, { hint: "standard", tag: null });
    const sentences = {
      accepted: `An envelope to ${did} is accepted.`,
      stopped: `No envelope reaches ${did} now.`,
      unknown: `Only a delivery shows whether an envelope reaches ${did}.`,
    };
    const conclusion = concludeFrom(steps);
    const reachable = conclusion === "accepted";
    session.report.result({ ok: true, did, reachable, steps }, render(sentences[conclusion], steps));
  });
}

type NodeAnswer = {
  readonly reachable: boolean;
  readonly digest: string;
  readonly steps: readonly Step[];
  readonly results: readonly Readonly<Record<string, string | number | null>>[];
};

/** What the running node knows and would decide. */
async function explainAtNode(session: Session, flags: NodeFlags & { readonly sender?: string }, did: Did) {
  const answer = await askNode(flags, "/operations/explain", { recipient: did, sender: flags.sender ?? null });
  const { reachable, digest, steps, results } = answer as NodeAnswer;
  const sentence = reachable ? `This node takes envelopes to ${did}.` : `This node brings no envelope to ${did} now.`;
  const lines = results.map((result) => {
    const of = result["sender"] === null ? "unsigned" : `of ${result["sender"]}`;
    const outcome = [result["code"], result["detail"]].filter((text) => text !== null).join(": ");
    return printable(
      `${result["time"]}  ${result["status"]}  ${result["route"]}  ${result["message_id"]} ${of}  ${outcome}`,
    );
  });
  const last = lines.length === 0 ? ["No result since the start of the process."] : ["Last results:", ...lines];
  session.report.result(answer, [render(sentence, steps), `In the log: ${digest}`, ...last].join("\n"));
}

function concludeFrom(steps: readonly Step[]): Conclusion {
  if (steps.some(({ state }) => state === "stops")) return "stopped";
  const offers = (type: string, state: Step["state"]): boolean =>
    steps.some((step) => step.what.startsWith(`service ${type} `) && step.state === state);
  if (offers("SvcCacheService", "ok")) return "accepted";
  return offers("SvcRelayService", "ok") || offers("SvcInboxService", "note") ? "unknown" : "stopped";
}

function render(sentence: string, steps: readonly Step[]): string {
  const label = (state: Step["state"]) => (state === "stops" ? "STOPS" : state.padEnd(5));
  return [sentence, ...steps.map(({ what, state, detail }) => printable(`${label(state)}  ${what}: ${detail}`))].join(
    "\n",
  );
}

// ------------------------------------------------------------------------------------------------- recipient

/** The members of a message that decide its destinations. */
type Wish = { readonly hint: DeliveryHint; readonly tag: string | null };

type Explained = { readonly steps: readonly Step[]; readonly personas: readonly string[] };

async function explainRecipient({ directory }: Client, did: Did, wish: Wish): Promise<Explained> {
  const record = await orNull(directory.resolve(did), "did_not_found");
  if (record === null) return { steps: [stops("record", "the ledger has no such DID")], personas: [] };
  if (record.deactivated) return { steps: [stops("record", "the DID is deactivated")], personas: [] };
  const { keyAgreement, service } = documentOf(record, did);
  const links = record.delivery_policy_links;
  const policy = (await orNull(directory.recipientPolicy(links?.recipient_policy ?? did), "policy_not_found"))?.policy;
  const services = await Promise.all(destinationsOf(service, wish, policy?.cache_eligible !== false).map(serviceStep));
  const none = `the document publishes none${service.length === 0 ? "" : " for such an envelope"}`;
  const steps = [
    ok("record", `version ${record.version}, changed ${record.updated_at}`),
    keyAgreement.length > 0
      ? ok("key agreement", `${countOf(keyAgreement.length, "key")} to seal to`)
      : stops("key agreement", "the document lists no key to seal to"),
    policyStep(policy),
    ...linkSteps(links, wish.tag),
    ...(services.length === 0 ? [stops("services", none)] : services),
  ];
  return { steps, personas: links?.persona_policies ?? [] };
}

type Policy = { readonly effective_ttl: number; readonly max_message_bytes: number; readonly cache_eligible: boolean };

function policyStep(policy: Policy | undefined): Step {
  if (policy === undefined) return ok("policy", "none; each node's own limits apply");
  const bounds = `at most ${policy.max_message_bytes} bytes, ${countOf(policy.effective_ttl, "block")}`;
  if (policy.cache_eligible) return ok("policy", `${bounds}; Caches may store envelopes`);
  return note("policy", `${bounds}; no Cache may store envelopes: only live delivery works`);
}

function linkSteps(links: Resolved["delivery_policy_links"], tag: string | null): Step[] {
  const { tag_policies: tags = [], persona_policies: personas = [] } = links ?? {};
  const tagStep = tag === null || tags.includes(tag) ? note : stops;
  return [
    ...(tags.length > 0 ? [tagStep("tags", `only ${tags.join(", ")}, or none`)] : []),
    ...(personas.length > 0 ? [note("personas", `${personas.join(", ")} may restrict which Relays are allowed`)] : []),
  ];
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
  if (type === "SvcInboxService") return note(what, "not tried: only a delivery shows");
  const check = await checkEndpoint(endpoint, type === "SvcRelayService" ? "relay" : "cache");
  if (check.state === "ok") return ok(what, "answers under this address");
  if (check.state === "unknown") return ok(what, "answers, but does not state its public address");
  if (check.state === "unreachable") return note(what, check.reason);
  const isCache = type === "SvcCacheService";
  const effect = isCache ? "it refuses envelopes for this address" : "live sessions do not work there";
  return note(what, `${check.reason}: ${effect}`);
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
  const verdict = concludeFrom(steps);
  const sentence = {
    accepted: `The message to ${to} would be accepted; nothing was sent.`,
    stopped: `The message to ${to} would not be delivered; nothing was sent.`,
    unknown: `Only a delivery shows whether the message reaches ${to}; nothing was sent.`,
  }[verdict];
  session.report.result({ ok: verdict === "accepted", to, verdict, steps }, render(sentence, steps));
  if (verdict !== "accepted") throw failedInResult("the message may not be delivered");
}

const cacheService = "service SvcCacheService ";

const unseen =
  "whom a node serves (403 policy_denied), whether it asks for a signature (403 sender_signature_invalid), how full " +
  "the mailbox is (507 mailbox_full), and whether the recipient listens live";

/** The steps of the recipient, with the answer of each Cache to this message, and the steps of the message. */
async function withMessage({ client, relayUrl }: Session, recipient: Explained, sending: Sending): Promise<Step[]> {
  const message = await sending.build().catch((error: unknown) => {
    if (error instanceof ClientError) return error;
    throw error;
  });
  if (message instanceof ClientError)
    return [...recipient.steps, stops("message", `${message.message} (${message.code})`)];
  const { body, chunks, sizeBytes } = message;
  const isCache = ({ what, state }: Step): boolean => what.startsWith(cacheService) && state === "ok";
  return [
    ...(await Promise.all(recipient.steps.map((step) => (isCache(step) ? cacheStep(step, message) : step)))),
    ok("message", `${renderBytes(sizeBytes)} in ${countOf(chunks, "envelope")} of at most ${body.length} bytes`),
    await signatureStep(client, body),
    ...(await relaySteps(client, relayUrl, { body, personas: recipient.personas })),
    note("not shown", unseen),
  ];
}

async function signatureStep(client: Client, body: Uint8Array): Promise<Step> {
  const what = "signature";
  const envelope = decodeEnvelope(body, limitsOf({}));
  if (isFault(envelope)) return stops(what, envelope.detail);
  const { sender } = envelope;
  if (sender === null) return note(what, "none: the recipient sees no sender, and a node may refuse that");
  if (verifySender(sender, await activeDocument(client, sender.from)))
    return ok(what, `by ${sender.keyId}, and it verifies`);
  return stops(what, `${sender.keyId} does not verify against the document of ${sender.from}`);
}

/** Without bounds where a node states none. */
function limitsOf(shown: NodeLimits): EnvelopeLimits {
  const unbounded = Number.MAX_SAFE_INTEGER;
  const durationOf = (text: string | undefined, otherwise: number): number => parseDuration(text ?? "") ?? otherwise;
  return {
    body_bytes_max: shown.max_http_body_bytes ?? unbounded,
    unchunked_bytes_max: shown.max_unchunked_bytes ?? unbounded,
    chunk_bytes_max: shown.max_chunk_bytes ?? unbounded,
    header_bytes_max: shown.max_header_bytes ?? unbounded,
    ttl_max: durationOf(shown.max_ttl, unbounded),
    ttl_default: durationOf(shown.default_ttl, 24 * hourMs),
    clock_skew: (shown.max_clock_skew_seconds ?? unbounded / secondMs) * secondMs,
  };
}

type NodeView = { readonly limits: NodeLimits; readonly lifeText: string };

/** Checks the message as the node at `url` would, by its own clock; a text is the reason why it can't take it. */
async function checkAsNode(url: string, body: Uint8Array): Promise<NodeView | string> {
  const ready = await askJson(url, "/readyz");
  if (typeof ready === "string") return ready;
  if (ready.status !== 200) return `answers ${ready.status}: it is not ready`;
  const limits = (await orNull(directoryClient(endpoint(url)).limits(), "not_found")) ?? {};
  const allowed = limitsOf(limits);
  const envelope = decodeEnvelope(body, allowed);
  if (isFault(envelope)) return refusalText(envelope);
  const untimely = checkEnvelopeTime(envelope, ready.dateMs ?? Date.now(), allowed);
  if (untimely !== null) return refusalText(untimely);
  return { limits, lifeText: `for at most ${renderDurationSetting(appliedTtlMs(envelope, allowed, null))}` };
}

function refusalText({ code, detail }: Fault): string {
  return `would refuse it: ${detail} (${code})`;
}

type Relayed = { readonly body: Uint8Array; readonly personas: readonly string[] };

/** The Relay that the sender gives the message to. */
async function relaySteps(client: Client, url: string, { body, personas }: Relayed): Promise<Step[]> {
  const what = `your Relay ${url}`;
  const about = await askJson(url, "/node");
  if (typeof about === "string") return [stops(what, about)];
  const roles = about.status === 200 && Array.isArray(about.json["roles"]) ? about.json["roles"] : null;
  if (roles !== null && !roles.includes("relay")) return [stops(what, "no relay answers there")];
  const view = await checkAsNode(url, body);
  if (typeof view === "string") return [stops(what, view)];
  const publicId = roles === null ? null : String(about.json["relay_public_id"]);
  const ofPersonas = await Promise.all(personas.map((persona) => personaStep(client, persona, publicId)));
  return [ok(what, `accepts it, ${view.lifeText}`), ...ofPersonas];
}

async function personaStep(client: Client, persona: string, publicId: string | null): Promise<Step> {
  const what = `persona ${persona}`;
  const found = await orNull(client.directory.personaPolicy(persona), "policy_not_found");
  const allowed = found?.policy["allowed_relays"];
  if (!Array.isArray(allowed) || allowed.length === 0) return ok(what, "allows every Relay");
  if (publicId === null) return note(what, "your Relay does not state its public id");
  if (allowed.includes(publicId)) return ok(what, `allows ${publicId}`);
  return stops(what, `does not allow your Relay ${publicId}: only ${allowed.join(", ")}`);
}

/** Compares the message with the limits of a Cache. A refusal is a note: a live session may still accept it. */
async function cacheStep({ what }: Step, { body, chunks }: BuiltMessage): Promise<Step> {
  const view = await checkAsNode(what.slice(cacheService.length), body);
  if (typeof view === "string") return note(what, view);
  const { max_mailbox_bytes: bytesMax = Infinity, max_mailbox_entries: entriesMax = Infinity } = view.limits;
  const fewer = "for a recipient: less than this message";
  if (body.length * chunks > bytesMax) return note(what, `stores at most ${renderBytes(bytesMax)} ${fewer}`);
  if (chunks > entriesMax) return note(what, `stores at most ${entriesMax} envelopes ${fewer}`);
  return ok(what, `would store it ${view.lifeText}`);
}
