/**
 * What determines a message before it is sent: the recipient's proven key, the sizes that it and
 * the Relay accept, and new random values (`SendPlan`).
 * Source: rules sections 4 and 6, docs/trust.md.
 */
import { decodeBase64, parseAgreementKey } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { hourMs, minuteMs, parseDuration, renderTimestamp } from "../../core/codec/time.ts";
import { announcesBundle } from "../../core/ledger/account.ts";
import { movedType } from "../../core/ledger/home.ts";
import type { KeyState } from "../../core/ledger/key-proof.ts";
import { isSelfCertifying } from "../../core/ledger/names.ts";
import { attempt, ClientError, localError, orNull } from "../base/failure.ts";
import { randomUuid } from "../keys/crypto.ts";
import type { Resolution } from "../net/answers.ts";
import { askTime } from "../net/http.ts";
import { type Client, readDocument, readLimits, trustIn } from "../trust/client.ts";
import { bundleAt, distrust, type NameTrust } from "../trust/trust.ts";
import type { OwnIdentity } from "./own-identity.ts";
import type { FileFacts, RecipientKey } from "./seal.ts";
import {
  chunkBytesDefault,
  chunkCount,
  type MessageOptions,
  recipientKey,
  type SendPlan,
  sealedBytesMargin,
} from "./send.ts";

/** Options of a message, and who sends it. */
type SendChoices = {
  readonly [Name in "ttl" | "tag" | "hint" | "chunkBytes" | "trust"]?:
    | MessageOptions[Name]
    | null
    | undefined;
} & {
  /** Signs as this identity (`senderOf`); `null` signs nothing. */
  readonly sender: SendPlan["sender"];
  /** By which the recipient knows it; random by default. */
  readonly id?: string;
  /** How the name of the recipient was found, for the report. */
  readonly name?: NameTrust | null;
};

/**
 * Everything that determines the envelopes of a message, with the recipient's current key and new
 * random values; `sendPlan` sends it. Throws `did_not_found`, `did_deactivated`, `no_key_agreement`
 * or `too_small` when the recipient accepts too little for any message.
 */
export async function planSend(
  client: Client,
  to: Did,
  file: FileFacts,
  choices: SendChoices,
): Promise<SendPlan> {
  const ttl = choices.ttl ?? "24h";
  if (typeof ttl !== "string" || parseDuration(ttl) === null)
    throw localError("invalid_argument", "ttl is a duration, such as 24h or 1d12h");
  const facts = await attempt(() => recipientFacts(client, to, choices.tag ?? null));
  if (facts instanceof ClientError) {
    // Of who is not believed no keys are waited for.
    if (facts.code === "key_bundle_missing") await trustIn(client, to, choices.trust ?? null);
    throw facts;
  }
  const { recipient, bounds } = facts;
  const services = client.trust.provenOf(to)?.state.document.service ?? [];
  if (services.some(({ type }) => type === movedType))
    await (await import("../trust/places.ts")).checkMoved(client, to);
  const trust = await trustIn(client, to, choices.trust ?? null);
  const sealedMax = leastOf([...bounds, ...(await relayBounds(client))]);
  const plan: SendPlan = {
    id: choices.id ?? randomUuid(),
    seed: crypto.getRandomValues(new Uint8Array(32)),
    to,
    trust,
    name: choices.name ?? null,
    recipient,
    file,
    chunkBytes: decideChunkBytes(sealedMax, {
      asked: choices.chunkBytes ?? chunkBytesDefault,
      sizeBytes: file.sizeBytes,
    }),
    sealedBytesMax: Number.isFinite(sealedMax) ? sealedMax : null,
    timestamp: renderTimestamp(await nextSendMs(client)),
    ttl,
    tag: choices.tag ?? null,
    hint: choices.hint ?? null,
    sender: choices.sender,
  };
  if (plan.hint !== null && chunkCount(plan) > 1)
    throw localError("invalid_argument", "a hint is for messages of one chunk");
  return plan;
}

/**
 * The same, signed by an identity unless it is anonymous, and with the trust
 * that the identity demands.
 */
export async function planFor(
  identity: OwnIdentity,
  to: Did,
  file: FileFacts,
  options: MessageOptions & { readonly id: string },
): Promise<SendPlan> {
  const { id, ttl, tag, hint, chunkBytes, trust = identity.trust } = options;
  // Of an anonymous message no node is asked about an identity of this machine.
  const sender = options.anonymous === true ? null : await identity.author();
  return planSend(identity.client, to, file, { id, ttl, tag, hint, chunkBytes, trust, sender });
}

/**
 * Of the last time, for messages at once. One that was further ahead was by a clock that was wrong:
 * nodes refuse such times.
 */
const aheadMsMax = 2 * minuteMs;

/**
 * By the Relay's clock, and strictly increasing, so that the order of messages shows in their
 * times. It may move what this identity signs by an hour. Throws `clock_wrong`, with which a
 * message waits, for more.
 */
async function nextSendMs({ known, relay }: Client): Promise<number> {
  const isFarOff = () => Math.abs(relay.clock.aheadMs) > hourMs;
  // An answer may have been under way while this machine slept: then only another
  // one mends the difference.
  if (isFarOff()) await askTime(relay);
  if (isFarOff())
    throw new ClientError(
      "timed_out",
      "clock_wrong",
      `the clocks of this machine and of ${relay.url} differ by more than an hour`,
    );
  const nowMs = Date.now() + relay.clock.aheadMs;
  const isAhead = known.sentMs > nowMs + aheadMsMax;
  known.sentMs = isAhead ? nowMs : Math.max(nowMs, known.sentMs + 1);
  return known.sentMs;
}

/** The key to seal to, and how many bytes the recipient accepts. */
type RecipientFacts = {
  readonly recipient: RecipientKey;
  readonly bounds: readonly (number | undefined)[];
};

async function recipientFacts(
  client: Client,
  to: Did,
  tag: string | null,
): Promise<RecipientFacts> {
  const proof = isSelfCertifying(to) ? client.trust.known(to) : null;
  const kept = await client.known.memory.load(bundleAt(to));
  const home = await client.trust.homeOf(to);
  const asked = { tag, proof, keys: kept?.slice(0, 64) ?? "", home };
  const resolution = await orNull(
    client.directory.deliveryResolution(to, asked),
    "component_not_found",
  );
  if (resolution !== null) return readResolution(client, resolution, { to, kept });
  // Without a key to seal to: the record says whether it is deactivated.
  return { recipient: recipientKey(await readDocument(client, to)), bounds: [] };
}

async function readResolution(
  client: Client,
  answer: Resolution,
  { to, kept }: { readonly to: Did; readonly kept: string | null },
): Promise<RecipientFacts> {
  const { encryption_profile: profile } = answer;
  if (profile !== "direct")
    throw localError("unknown_profile", `${to} is sealed to by ${profile}, not known here`);
  const sizes = answer.policy?.effective_constraints;
  const state = isSelfCertifying(to) ? await provenState(client, answer, to) : null;
  const isPlain = kept === null && !mayHaveBundle(answer, state);
  const bundled = isPlain
    ? null
    : await (await import("./seal-hybrid.ts")).hybrid.bundleKey(client, {
        to,
        state,
        answer,
        kept,
      });
  const known = () => (state === null ? toldKey(answer) : recipientKey(state.document));
  return {
    recipient: bundled ?? known(),
    bounds: [sizes?.max_chunk_bytes, sizes?.max_unchunked_message_bytes, sizes?.max_message_bytes],
  };
}

/** Which of its forms it has is decided by what is loaded then. */
const mayHaveBundle = (answer: Resolution, state: KeyState | null): boolean =>
  state === null ? answer.key_bundle_sha256 !== undefined : announcesBundle(state.document);

/**
 * Not the key that the answer names, but that of the proven document. A node without a
 * ledger shows no proof: then the Directory is asked, since only an empty one says that the
 * proof is still the known one.
 */
async function provenState(
  { trust }: Client,
  { key_proof: text }: Resolution,
  to: Did,
): Promise<KeyState> {
  const bytes = text === undefined ? null : decodeBase64(text);
  if (text !== undefined && bytes === null)
    throw distrust("proof_invalid", `the Directory's proof of ${to} is not Base64`);
  const isForgotten = bytes?.length === 0 && trust.known(to) === "";
  return trust.examine(to, isForgotten ? null : bytes);
}

function toldKey(resolution: Resolution): RecipientKey {
  const publicKey = parseAgreementKey(resolution.recipient_public_key_multibase);
  if (publicKey === null)
    throw new ClientError("unreadable", "unreadable", "the Directory returned no key");
  return { keyId: resolution.recipient_key_id, publicKey };
}

/**
 * Nothing proves a policy: a smaller bound would make a node's lie of a byte a flood of envelopes.
 */
const partBytesMin = 4_096;

const leastOf = (bounds: readonly (number | undefined)[]): number =>
  Math.min(...bounds.filter((bytes) => bytes !== undefined));

/** As much as node and recipient allow, at most 1 MiB: a larger file is sent in chunks. */
function decideChunkBytes(
  sealedMax: number,
  { asked, sizeBytes }: { readonly asked: number; readonly sizeBytes: number },
): number {
  const allowed = sealedMax - sealedBytesMargin;
  if (allowed >= Math.max(1, Math.min(sizeBytes, partBytesMin))) return Math.min(asked, allowed);
  throw localError(
    "too_small",
    `the recipient accepts messages of at most ${sealedMax} bytes: too few for any file`,
  );
}

const limitsKeptMs = 5 * minuteMs;

/**
 * What an empty mailbox surely has for a client network of which no sender is known, if it is not
 * smaller itself: a half of the smallest pool (D450).
 */
const newcomerBytes = 2_097_152;
/** Of an envelope without its ciphertext, which is in Base64, in either version. */
const envelopeBytes = 3_584;

/**
 * The payload of an envelope that an empty mailbox surely takes, where the
 * node says how large it is.
 */
function roomIn(mailboxBytes: number | undefined): number | undefined {
  if (mailboxBytes === undefined) return undefined;
  return Math.floor(((Math.min(newcomerBytes, mailboxBytes) - envelopeBytes) * 3) / 4);
}

/**
 * The Relay's own limits. One that names none, or can't be reached yet, gets
 * chunks of the usual size.
 */
async function relayBounds(client: Client): Promise<(number | undefined)[]> {
  const { known } = client;
  if (known.limits === null || known.limits.untilMs < Date.now()) {
    const value = await readLimits(client.relay);
    known.limits = value === null ? null : { value, untilMs: Date.now() + limitsKeptMs };
  }
  const { max_chunk_bytes, max_unchunked_bytes, max_mailbox_bytes } = known.limits?.value ?? {};
  return [max_chunk_bytes, max_unchunked_bytes, roomIn(max_mailbox_bytes)];
}
