/**
 * What a recipient does with its mailbox: read entries, chunks, ids and states, and acknowledge.
 * Each request proves the recipient first: decode the proof (form and time), decide it against the
 * document, claim its nonce, then the operation.
 * Source: interface "Signed Cache proof" and "Cached message entry", rules sections 3 and 6.
 */
import type { Config } from "../../config/schema.ts";
import { decodeUtf8, encodeBase64, type VerifySignature } from "../../core/codec/bytes.ts";
import {
  type Did,
  type MailboxKey,
  mailboxOf,
  parseDid,
  parseUuid,
  type Uuid,
} from "../../core/codec/did.ts";
import { parseJsonObject } from "../../core/codec/json.ts";
import { renderTimestamp } from "../../core/codec/time.ts";
import { badInput, type Fault, fault, isFault } from "../../core/fault.ts";
import type { EnvelopeLimits } from "../../core/message/envelope.ts";
import {
  ackIds,
  ackMembers,
  decideRetrievalProof,
  decodeRetrievalProof,
  memberReader,
  proofReplayed,
  type RetrievalRule,
  retrievalHeaders,
} from "../../core/message/proof.ts";
import { ackRequestShape } from "../../core/schema/messages.ts";
import { compileShape } from "../../core/schema/schema.ts";
import type { Slots } from "../../core/std/order.ts";
import type {
  Cursor,
  HeldMessage,
  Mailbox,
  MessageState,
  MessageSummary,
  Page,
  PageRequest,
  RemovedMessage,
  Replay,
} from "../../storage/contract.ts";
import { type Answer, type Call, spliced } from "../http/route.ts";
import type { Members } from "../parties/members.ts";
import { chargeClient, checkClientRate, type RateLimiter } from "../parties/rates.ts";
import type { RecipientSource } from "../parties/recipients.ts";
import {
  entryParts,
  groupParts,
  pageOfGroup,
  renderMore,
  renderSummaryEntry,
  scanWhole,
  startCursor,
  wholeParts,
} from "./entries.ts";
import { type KnownSenders, rememberSenders } from "./known.ts";
import type { ProvenOwner } from "./owner.ts";
import type { AnswerContext, EventSigner } from "./store.ts";

export type RetrieveParts = {
  readonly mailbox: Mailbox;
  readonly replay: Replay;
  readonly known: KnownSenders;
  readonly recipients: RecipientSource;
  readonly verify: VerifySignature;
  readonly settings: Config["cache"];
  readonly limits: EnvelopeLimits;
  readonly signer: EventSigner;
  readonly members?: Pick<Members, "seen">;
  readonly chunkRate: RateLimiter;
  /**
   * Bounds the reads of envelopes at once: what they hold counts nowhere before their answers are
   * there.
   */
  readonly reading: Slots;
  /**
   * One look at a group after the other for each network: what it costs is known only behind it.
   */
  readonly inTurn: <T>(network: string, look: () => Promise<T>) => Promise<T>;
  readonly now: () => number;
};

/** The interface's bound of an acknowledgement. */
export const ackIdsMax = 1_000;
/** Ids in one summary: about 150 KB of JSON. */
export const summaryIdsMax = 1_000;
/** The most entries that a client may ask for in one page. */
const limitMax = 1_000;

/** Faults of form are known at once. */
type ReadReply = Promise<Answer | Fault> | Fault;

// ------------------------------------------------------------------------------------------- reads

/** Whole messages, or a page where `limit` or `cursor` asks for one. */
export function readMessages(parts: RetrieveParts, call: Call): ReadReply {
  const page = parsePage(parts, call);
  if (isFault(page)) return page;
  return provenRead(parts, call, { operation: "pull", subject: "*" }, ({ did, mailbox }) => {
    const context = answerContext(parts, did, call);
    return parts.reading.use(() =>
      page === null
        ? answerWhole(parts, mailbox, context)
        : answerPage(parts, mailbox, page, context),
    );
  });
}

async function answerPage(
  { mailbox }: RetrieveParts,
  recipient: MailboxKey,
  page: PageRequest,
  context: AnswerContext,
): Promise<Answer | Fault> {
  const found = await mailbox.list(recipient, page);
  return isFault(found) ? found : renderMessages(found.entries, found.next, context);
}

/**
 * When one page holds everything, and sets of chunks whole, one call of the store; else envelopes
 * are read as the client reads the answer.
 */
async function answerWhole(
  parts: RetrieveParts,
  recipient: MailboxKey,
  context: AnswerContext,
): Promise<Answer | Fault> {
  const { mailbox, settings, now } = parts;
  const bounds = {
    entriesMax: settings.retrieve_entries_max,
    bytesMax: settings.retrieve_bytes_max,
  };
  const bytesMax = Math.min(settings.page_bytes_max, bounds.bytesMax);
  const page = { after: null, entriesMax: bounds.entriesMax, bytesMax, nowMs: context.nowMs };
  const found = await mailbox.list(recipient, page);
  if (isFault(found)) return found;
  if (found.next === null && areWhole(found.entries))
    return renderMessages(found.entries, null, context);
  const source = { mailbox, recipient, now };
  return { status: 200, jsonParts: wholeParts(source, await scanWhole(source, bounds), context) };
}

function areWhole(entries: readonly HeldMessage[]): boolean {
  if (entries.every(({ chunk }) => chunk === null)) return true;
  const sets = Map.groupBy(entries, ({ chunk }) => chunk?.groupId);
  return entries.every(
    ({ chunk }) => chunk === null || sets.get(chunk.groupId)?.length === chunk.total,
  );
}

/** So many chunks of a group count as another request. */
const chunksPerCount = 100;

/** Looks a group up, for a page too at a microsecond for each of its chunks. */
function countedChunks<T>(
  { chunkRate, inTurn, settings }: RetrieveParts,
  call: Call,
  look: () => Promise<readonly T[]>,
): Promise<readonly T[] | Fault> {
  return inTurn(call.network, async () => {
    const refused = checkClientRate(chunkRate, call, settings);
    if (refused !== null) return refused;
    const chunks = await look();
    chargeClient(chunkRate, call, Math.floor(chunks.length / chunksPerCount), settings);
    return chunks;
  });
}

/** The whole group, or a page where `limit` or `cursor` asks for one. */
export function readChunks(parts: RetrieveParts, call: Call): ReadReply {
  const groupId = parsePathUuid(call, "messageGroupId");
  if (isFault(groupId)) return groupId;
  const subject = call.params["messageGroupId"] as string;
  const page = parsePage(parts, call);
  if (isFault(page)) return page;
  const { mailbox, now } = parts;
  return provenRead(
    parts,
    call,
    { operation: "chunks", subject },
    async ({ did, mailbox: recipient }) => {
      const context = answerContext(parts, did, call);
      const source = { mailbox, recipient, now };
      const chunks = await countedChunks(parts, call, () =>
        mailbox.chunks(recipient, groupId, call.nowMs),
      );
      if (isFault(chunks)) return chunks;
      const found = page === null ? { entries: chunks, next: null } : pageOfGroup(chunks, page);
      return isFault(found)
        ? found
        : { status: 200, jsonParts: groupParts(source, { chunks, found }, context) };
    },
  );
}

export function readSummary(parts: RetrieveParts, call: Call): ReadReply {
  const entriesMax = parseLimit(call, summaryIdsMax);
  if (isFault(entriesMax)) return entriesMax;
  return provenRead(parts, call, { operation: "summary", subject: "*" }, async ({ mailbox }) => {
    const page = await parts.mailbox.summary(mailbox, pageOf(parts, call, entriesMax));
    return isFault(page) ? page : renderSummary(page);
  });
}

export function readMessage(parts: RetrieveParts, call: Call): ReadReply {
  const messageId = parsePathUuid(call, "messageId");
  if (isFault(messageId)) return messageId;
  const subject = call.params["messageId"] as string;
  return provenRead(parts, call, { operation: "pull_message", subject }, ({ did, mailbox }) =>
    parts.reading.use(async () => {
      const state = await parts.mailbox.message(mailbox, messageId, call.nowMs);
      return renderState(state, messageId, answerContext(parts, did, call));
    }),
  );
}

/** Removes the named entries and returns their ids. */
export async function acknowledge(parts: RetrieveParts, call: Call): Promise<Answer | Fault> {
  const request = decodeAck(parts, call);
  if (isFault(request)) return request;
  const { did, proof } = request;
  const subject = await parts.recipients.subject(did);
  const claim = await decideRetrievalProof(proof, subject, parts.verify);
  if (isFault(claim)) return claim;
  const mailbox = mailboxOf(did, subject?.life ?? 0);
  const removed = await parts.mailbox.claimAndRemove(
    claim,
    mailbox,
    request.messageIds,
    call.nowMs,
  );
  if (removed === null) return proofReplayed();
  parts.members?.seen(did, call.nowMs);
  if (!isUnaccepted(call.headers)) await rememberSenders(parts.known, mailbox, removed, call.nowMs);
  return renderAck(removed);
}

/**
 * The recipient's user has accepted none of those who sent what is acknowledged: they stay
 * newcomers.
 */
function isUnaccepted(headers: Headers): boolean {
  return headers.get("svc-accepted") === "none";
}

function answerContext(parts: RetrieveParts, recipient: Did, call: Call): AnswerContext {
  return { recipient, nowMs: call.nowMs, signer: parts.signer };
}

/**
 * The page that `limit` or `cursor` asks for; `null` when neither is there. 400 `invalid_request`.
 */
function parsePage(parts: RetrieveParts, call: Call): PageRequest | Fault | null {
  if (call.query.size === 0 || (!call.query.has("limit") && !call.query.has("cursor"))) return null;
  const twice = ["limit", "cursor"].find((name) => call.query.getAll(name).length > 1);
  if (twice !== undefined) return fault("invalid_request", `${twice} must be given once`);
  const entriesMax = parseLimit(call, parts.settings.page_entries_max);
  return isFault(entriesMax) ? entriesMax : pageOf(parts, call, entriesMax);
}

/** `?limit=`: 1 to 1,000 entries, or 400 `invalid_request`. */
function parseLimit(call: Call, absent: number): number | Fault {
  const text = call.query.get("limit");
  if (text === null) return absent;
  if (/^[1-9]\d{0,3}$/.test(text) && Number(text) <= limitMax) return Number(text);
  return fault("invalid_request", `limit must be a number from 1 to ${limitMax}`);
}

function pageOf({ settings }: RetrieveParts, call: Call, entriesMax: number): PageRequest {
  const after = parseCursor(call.query.get("cursor"));
  return { after, entriesMax, bytesMax: settings.page_bytes_max, nowMs: call.nowMs };
}

function parseCursor(text: string | null): Cursor | null {
  return text === startCursor ? null : text;
}

// ------------------------------------------------------------------------------------------- proof

type Proven = Pick<ProvenOwner, "did" | "proof">;
/** The headers of a read, for the description of the routes. */
export const proofHeaderNames = Object.values(retrievalHeaders);

/** Runs a read for the one request that presents a valid proof with a new nonce. */
export async function provenRead(
  parts: RetrieveParts,
  call: Call,
  action: Pick<RetrievalRule, "operation" | "subject">,
  read: (proven: ProvenOwner) => Promise<Answer | Fault>,
): Promise<Answer | Fault> {
  const decoded = decodeRead(parts, call, action);
  if (isFault(decoded)) return decoded;
  const { did, proof } = decoded;
  const subject = await parts.recipients.subject(did);
  const claim = await decideRetrievalProof(proof, subject, parts.verify);
  if (isFault(claim)) return claim;
  if (!(await parts.replay.claim(claim.tag, claim.untilMs, call.nowMs))) return proofReplayed();
  parts.members?.seen(did, call.nowMs);
  const mailbox = mailboxOf(did, subject?.life ?? 0);
  return read({ did, proof, mailbox, document: subject?.document ?? null });
}

/**
 * The proof in the headers of a read. `pull` has no device line, whatever header is sent; the
 * others take the header when it is there.
 */
function decodeRead(
  parts: RetrieveParts,
  call: Call,
  { operation, subject }: Pick<RetrievalRule, "operation" | "subject">,
): Proven | Fault {
  const did = parseDid(call.params["did"] ?? "");
  if (isFault(did)) return did;
  const deviceId = operation === "pull" ? "" : headerText(call.headers.get("x-device-id") ?? "");
  const rule = ruleOf(parts, { operation, did, deviceId, subject, names: retrievalHeaders });
  const proof = decodeRetrievalProof((name) => call.headers.get(name), rule, call.nowMs);
  return isFault(proof) ? proof : { did, proof };
}

/** The rule of one request, with what all proofs to one Cache have in common. */
function ruleOf(
  { settings, limits }: RetrieveParts,
  {
    operation,
    did,
    deviceId,
    subject,
    names,
  }: Omit<RetrievalRule, "serviceType" | "endpoints" | "skewMs">,
): RetrievalRule {
  // Member by member: a spread costs a microsecond here.
  const endpoints = settings.public_endpoints;
  const skewMs = limits.clock_skew;
  return {
    operation,
    did,
    deviceId,
    subject,
    names,
    serviceType: "SvcCacheService",
    endpoints,
    skewMs,
  };
}

/** Headers arrive as Latin-1; a name that was sent as UTF-8, as it is signed, is read as UTF-8. */
function headerText(value: string): string {
  if (!/[\u0080-\u00ff]/.test(value)) return value;
  return decodeUtf8(Buffer.from(value, "latin1")) ?? value;
}

/**
 * An id in the path: its normal form, or 400 `invalid_request`. The subject of the proof is its
 * text as sent.
 */
function parsePathUuid(call: Call, name: string): Uuid | Fault {
  return (
    parseUuid(call.params[name] ?? "") ??
    fault("invalid_request", `${name} in the path must be a UUID`)
  );
}

const checkAckBody = compileShape(ackRequestShape);

/** Refuses with `invalid_json`, `invalid_request`, `invalid_did`, or as `decodeRetrievalProof`. */
function decodeAck(
  parts: RetrieveParts,
  call: Call,
): (Proven & { messageIds: readonly Uuid[] }) | Fault {
  const members = parseJsonObject(call.body);
  if (isFault(members)) return members;
  const body = checkAckBody(members);
  if (isFault(body)) return body;
  const did = parseDid(body.did);
  if (isFault(did)) return did;
  const named = ackIds(body.message_ids);
  const messageIds = parseMessageIds(body.message_ids, named);
  if (isFault(messageIds)) return messageIds;
  const deviceId = body.device_id ?? "";
  const subject = named.join(",");
  const rule = ruleOf(parts, { operation: "ack", did, deviceId, subject, names: ackMembers });
  const proof = decodeRetrievalProof(memberReader(members), rule, call.nowMs);
  return isFault(proof) ? proof : { did, proof, messageIds };
}

/**
 * The ids among `texts`, in any order: at least one must be `named`, because blank entries are
 * ignored.
 */
function parseMessageIds(texts: readonly string[], named: readonly string[]): Uuid[] | Fault {
  if (texts.length > ackIdsMax)
    return badInput("invalid_request", "/message_ids", `must have at most ${ackIdsMax} entries`);
  if (named.length === 0)
    return badInput("invalid_request", "/message_ids", "must name at least one message");
  const ids = named.map(parseUuid);
  if (ids.every((id) => id !== null)) return ids;
  const index = texts.findIndex((text) => text.trim() !== "" && parseUuid(text.trim()) === null);
  return badInput("invalid_request", `/message_ids/${index}`, "must be a UUID");
}

// ------------------------------------------------------------------------------------------ render

function renderMessages(
  entries: readonly HeldMessage[],
  next: Cursor | null,
  context: AnswerContext,
): Answer {
  const head = `{"count":${entries.length},"messages":[`;
  return spliced([head, ...entryParts(entries, context), `]${renderMore(next)}}`]);
}

function renderState(state: MessageState, messageId: Uuid, context: AnswerContext): Answer {
  switch (state.state) {
    case "active":
      return spliced([
        '{"state":"active","message":',
        ...entryParts([state.message], context),
        "}",
      ]);
    case "expired": {
      const { expiresAtMs, headerPreview } = state;
      return ok({
        state: "expired",
        message: null,
        message_id: messageId,
        expires_at: renderTimestamp(expiresAtMs),
        header_preview: headerPreview === null ? null : encodeBase64(headerPreview),
      });
    }
    case "acked":
    case "absent":
      return ok({ state: state.state, message: null });
  }
}

function ok(json: unknown): Answer {
  return { status: 200, json };
}

function renderSummary(page: Page<MessageSummary>): Answer {
  const messages = page.entries.map(renderSummaryEntry);
  return ok({
    count: messages.length,
    messages,
    has_more: page.next !== null,
    ...(page.next === null ? {} : { next_cursor: page.next }),
  });
}

function renderAck(removed: readonly RemovedMessage[]): Answer {
  return ok({ acked: removed.length, message_ids: removed.map(({ messageId }) => messageId) });
}
