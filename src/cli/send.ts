/**
 * `waypost send`: one file, sealed to a recipient's key and given to the Relay, in chunks when it is large. The same command
 * continues an interrupted chunk set. `waypost explain <target>` and `waypost send --explain`: why an envelope would or would
 * not reach a recipient now. Both read record and policies from the Directory and ask every published service for its node.
 * `send --explain` also builds the message and checks it as each node would, with the limits and the clock that the node
 * shows. Nothing is sent.
 * Source: docs/ledger.md 3.2, rules sections 2 and 5.
 */
import { basename } from "node:path";
import { type Command, Option } from "commander";
import { failed, failedInResult } from "../app/failure.ts";
import type { NodeLimits, Resolved } from "../client/answers.ts";
import { activeDocument, type Client, documentOf, planSend, senderOf } from "../client/client.ts";
import { directoryClient } from "../client/directory.ts";
import { ClientError, endpoint, orNull } from "../client/http.ts";
import {
  buildEnvelope,
  type ChunkProgress,
  chunkCount,
  retryingDefault,
  type SendPlan,
  type Sent,
  type Source,
  sendPlan,
} from "../client/send.ts";
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
  addIdentityFlag,
  askJson,
  type ConnectionFlags,
  checkEndpoint,
  chooseIdentity,
  clientCommand,
  countOf,
  parseBetween,
  parseCount,
  parseTtl,
  printable,
  renderBar,
  renderBytes,
  type Session,
  targetDid,
} from "./command.ts";
import { removeIfThere } from "./files/files.ts";
import { fileSource, findUnfinished, outboxFolder, saveProgress } from "./files/outbox.ts";

type SendFlags = ConnectionFlags & {
  readonly to: string;
  readonly file: string;
  readonly as?: string;
  readonly anonymous?: boolean;
  readonly ttl: string;
  readonly tag?: string;
  readonly hint?: "direct" | "cache";
  readonly retries: number;
  readonly chunkBytes?: number;
  readonly explain?: boolean;
};

export function registerSendCommands(program: Command): void {
  registerSend(program);
  registerExplain(program);
}

function registerSend(program: Command): void {
  const command = program
    .command("send")
    .description("send a file, end-to-end encrypted")
    .requiredOption("--to <target>", "a DID, an alias, or an identity of this machine")
    .requiredOption("--file <path>", "the file")
    .option("--anonymous", "do not sign as any identity")
    .option("--ttl <duration>", "how long the message may wait for the recipient: 24h, 1d12h", parseTtl, "24h")
    .option("--tag <text>", "a public tag, for the recipient's policies")
    .addOption(
      new Option("--hint <hint>", "deliver only directly, or straight to a Cache").choices(["direct", "cache"]),
    )
    .option("--retries <number>", "retries for each chunk", parseCount, retryingDefault.retries)
    .option("--chunk-bytes <number>", "bytes of the file in one envelope (default: 1 MiB)", parseBetween(1, 16_777_216))
    .option("--explain", "send nothing; report whether the message would be accepted, and why (exit code 1 if not)");
  clientCommand(addIdentityFlag(command), (session, flags: SendFlags) =>
    (flags.explain === true ? explainFile : sendFile)(session, flags),
  );
}

function readSource({ report }: Session, { file }: SendFlags): Promise<Source> {
  report.progress(`reading ${file}`);
  return fileSource(file, Bun.file(file).type.split(";")[0] || "application/octet-stream");
}

async function planFile(session: Session, to: Did, { file }: Source, flags: SendFlags): Promise<SendPlan> {
  const { client } = session;
  const sender = flags.anonymous === true ? null : await senderOf(client, await chooseIdentity(session, flags.as));
  const plan = await planSend(client, to, file, {
    ttl: flags.ttl,
    tag: flags.tag ?? null,
    hint: flags.hint ?? null,
    sender,
    ...(flags.chunkBytes === undefined ? {} : { chunkBytes: flags.chunkBytes }),
  });
  if (plan.hint !== null && chunkCount(plan) > 1) throw failed("--hint is for files of one chunk");
  return plan;
}

async function explainFile(session: Session, flags: SendFlags): Promise<void> {
  const to = await targetDid(session, flags.to);
  const source = await readSource(session, flags);
  const build = async () => {
    const plan = await planFile(session, to, source, flags);
    const { sizeBytes } = plan.file;
    const { body } = await buildEnvelope(plan, 0, await source.read(0, Math.min(plan.chunkBytes, sizeBytes)));
    return { body, sizeBytes, chunks: chunkCount(plan) };
  };
  await explainSending(session, to, { build, hint: flags.hint ?? "standard", tag: flags.tag ?? null });
}

async function sendFile(session: Session, flags: SendFlags): Promise<void> {
  const to = await targetDid(session, flags.to);
  const source = await readSource(session, flags);
  const plan = await planFile(session, to, source, flags);
  const sent = await sendResumably(session, plan, source, flags.retries);
  const { file } = plan;
  const code = sent.last?.code ?? "delivered";
  session.report.result(
    {
      ok: true,
      to,
      file: basename(file.name),
      size_bytes: file.sizeBytes,
      sha256: file.sha256.toHex(),
      chunks: sent.chunks,
      message_group_id: sent.groupId,
      message_ids: sent.messageIds,
      code,
      delivery_mode: sent.last?.delivery_mode ?? null,
    },
    `${printable(file.name)} (${renderBytes(file.sizeBytes)}) ${outcomes[sent.last?.delivery_mode ?? ""] ?? code} ${to}`,
  );
}

/** The result in words, by the delivery mode of the last chunk. */
const outcomes: Readonly<Record<string, string>> = {
  direct: "was delivered to",
  forwarded: "was forwarded towards",
  cache: "waits in the Cache of",
};

async function sendResumably(session: Session, fresh: SendPlan, source: Source, retries: number): Promise<Sent> {
  const { report, keysFolder, client } = session;
  const folder = outboxFolder(keysFolder);
  const chunked = chunkCount(fresh) > 1;
  const unfinished = chunked ? await findUnfinished(folder, fresh, Date.now()) : null;
  const plan = unfinished === null ? fresh : { ...unfinished.plan, sender: fresh.sender };
  const from = unfinished?.delivered ?? 0;
  if (from > 0) report.note(`continuing after ${from} of ${chunkCount(plan)} chunks`);
  const name = printable(plan.file.name);
  let state = chunked ? await saveProgress(folder, plan, from) : null;
  const onDelivered = async ({ chunk, chunks }: ChunkProgress) => {
    report.progress(`${name} ${renderBar(chunk + 1, chunks)}`);
    if (chunked) state = await saveProgress(folder, plan, chunk + 1);
  };
  const onRetry = (attempt: number, reason: string, delayMs: number) =>
    report.progress(`attempt ${attempt} failed (${reason}), again in ${delayMs / 1_000} s`);
  report.progress(`${name} ${renderBar(from, chunkCount(plan))}`);
  const sent = await sendPlan(plan, source, {
    relay: client.relay,
    retrying: { ...retryingDefault, retries, onRetry },
    from,
    onDelivered,
  });
  if (state !== null) await removeIfThere(state);
  return sent;
}

// ---------------------------------------------------------------------------------------------------------- explain

/** `stops`: no envelope can reach the recipient because of this. */
type Step = { readonly what: string; readonly state: "ok" | "note" | "stops"; readonly detail: string };

/**
 * `accepted`: a Cache answers, and stores the envelope. `unknown`: nothing stops the envelope, but only an inbox or a Relay
 * is left, and only a delivery shows whether the recipient is there.
 */
type Verdict = "accepted" | "stopped" | "unknown";

function registerExplain(program: Command): void {
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
async function explainSending(session: Session, to: Did, sending: Sending): Promise<void> {
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
