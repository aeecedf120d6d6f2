/**
 * Admission of an envelope, shared by the Relay and the Cache: facts about recipient, sender and
 * policy are gathered in parallel, then one pure function decides, in the order of rules section 2
 * ("Order of checks on an envelope"). `GET /delivery-resolution/{target}` answers from the same
 * facts what a sender must know beforehand, on every node that knows recipients.
 * Source: rules sections 2 and 4, interface "Errors".
 */

import type { Config } from "../../config/schema.ts";
import { encodeBase64, type VerifySignature } from "../../core/codec/bytes.ts";
import { type Did, parseDid } from "../../core/codec/did.ts";
import type { JsonObject } from "../../core/codec/json.ts";
import { type Fault, fault, isFault } from "../../core/fault.ts";
import type { DeliveryPolicyLinks } from "../../core/ledger/account.ts";
import { homesOf, parseHome } from "../../core/ledger/home.ts";
import { isSelfCertifying } from "../../core/ledger/names.ts";
import { bundleDigest, renderBundle } from "../../core/message/bundle.ts";
import {
  appliedTtlMs,
  checkExpiry,
  type Envelope,
  type EnvelopeLimits,
  type EnvelopeSender,
  longestTtlMs,
  verifySender,
} from "../../core/message/envelope.ts";
import {
  checkPayloadSize,
  type DeliveryResolution,
  decidePolicy,
  decideResolution,
  type EffectivePolicy,
  isTagListed,
  type PolicyFacts,
} from "../../core/message/policy.ts";
import { withSignedText } from "../../core/message/signed-text.ts";
import { resolutionAnswer } from "../../core/schema/directory.ts";
import { isTag, tagForm } from "../../core/schema/schema.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import type { LedgerReader } from "../../storage/contract.ts";
import type { Answer, Call, Route } from "../http/route.ts";
import type { Blocks } from "./blocks.ts";
import type { Bundles } from "./bundles.ts";
import { foreignDid, type HomesOf, readsHome } from "./foreign.ts";
import type { AskedFor, Foreign } from "./homes.ts";
import { isKnownProof, parseKnown, readKeyProof } from "./proof.ts";
import { foreignSubject, type RecipientSource, type Subject, subjectBytes } from "./recipients.ts";

export type AdmissionFacts = {
  readonly recipient: Subject | null;
  /**
   * `absent`: unsigned, or by a self-certifying DID of another Directory that can't be
   * asked; its reader verifies it.
   */
  readonly signature: "verified" | "invalid" | "absent";
  /** Where the sender is at home, as its own document says, or else the request. */
  readonly senderHome: string | null;
  /**
   * What applies, or its refusal; `null` when the recipient can't receive anyway, and
   * the source was not asked.
   */
  readonly policy: EffectivePolicy | Fault | null;
  /** The recipient is at home at another Directory, and this node serves its own people alone. */
  readonly isForeign: boolean;
  /** The sender is verified and of the own Directory. */
  readonly isOwnSender: boolean;
};

/** A hint: envelopes have no place for it. */
export const senderHomeHeader = "svc-sender-home";

// ------------------------------------------------------------------------------------------ gather

type FactSources = {
  readonly recipients: RecipientSource;
  /** Verifies the sender's signature. */
  readonly verify: VerifySignature;
};

/** What is known of an envelope's parties. Throws `unavailable` when the source can't be asked. */
export function gatherFacts(
  sources: FactSources,
  { to, tag, sender }: Envelope,
  asked: AskedFor,
): AdmissionFacts | Promise<AdmissionFacts> {
  const { recipients } = sources;
  const askedOfRecipient = { home: null, network: asked.network };
  const ofRecipient = gatherRecipientFacts(recipients, to, { tag, asked: askedOfRecipient });
  return sender === null ? ofRecipient : withSender(sources, ofRecipient, { sender, asked });
}

async function withSender(
  { recipients, verify }: FactSources,
  ofRecipient: AdmissionFacts | Promise<AdmissionFacts>,
  { sender, asked }: { readonly sender: EnvelopeSender; readonly asked: AskedFor },
): Promise<AdmissionFacts> {
  const [facts, from] = await Promise.all([ofRecipient, recipients.subject(sender.from, asked)]);
  // An envelope without a recipient is refused anyway.
  const isKnown = from !== null && !from.deactivated && facts.policy !== null;
  const isVerified = isKnown && (await verifySender(sender, from.document, verify));
  const [senderHome = parseHome(asked.home ?? "")] = homesOf(from?.document ?? null);
  return {
    ...facts,
    senderHome,
    isOwnSender: isVerified && from?.foreign === undefined,
    signature: isVerified ? "verified" : unverified(sender.from, from),
  };
}

/** A remote sender's key may have changed without this node knowing. */
function unverified(did: Did, from: Subject | null): "invalid" | "absent" {
  const isOpen = from === null ? isSelfCertifying(did) : from.foreign?.isFresh === false;
  return isOpen ? "absent" : "invalid";
}

type AskedRecipient = { readonly tag?: string | null; readonly asked?: AskedFor };
type RememberedFacts = { readonly stamp: number; readonly facts: AdmissionFacts };

const rememberedMax = { entries: 4_096, bytes: 8 * 1024 ** 2 };
const rememberedFacts = new WeakMap<RecipientSource, BoundedMap<Did, RememberedFacts>>();

function factsRememberedOf(source: RecipientSource): BoundedMap<Did, RememberedFacts> {
  const known = rememberedFacts.get(source);
  if (known !== undefined) return known;
  const made = new BoundedMap<Did, RememberedFacts>(rememberedMax.entries, {
    max: rememberedMax.bytes,
    of: ({ facts }) => subjectBytes(facts.recipient) + 5 * JSON.stringify(facts.policy).length,
  });
  rememberedFacts.set(source, made);
  return made;
}

/**
 * What is known of a recipient. Of one of the own ledger, asked for without a tag as most are, it
 * is remembered until the ledger changes: to gather it anew is a twelfth of a store.
 */
export function gatherRecipientFacts(
  source: RecipientSource,
  did: Did,
  { tag = null, asked }: AskedRecipient = {},
): AdmissionFacts | Promise<AdmissionFacts> {
  const stamp = tag === null ? (source.stamp?.() ?? null) : null;
  if (stamp === null) return gatherAnew(source, did, { tag, asked });
  const remembered = factsRememberedOf(source);
  const known = remembered.get(did);
  if (known?.stamp === stamp) return known.facts;
  return gatherAnew(source, did, { tag, asked }).then((facts) => {
    const isOwn = facts.recipient !== null && facts.recipient.foreign === undefined;
    if (isOwn) remembered.set(did, { stamp, facts });
    return facts;
  });
}

async function gatherAnew(
  source: RecipientSource,
  did: Did,
  { tag, asked }: { readonly tag: string | null; readonly asked: AskedFor | undefined },
): Promise<AdmissionFacts> {
  const recipient = await source.subject(did, asked);
  const receives = recipient !== null && !recipient.deactivated;
  const policy = receives ? decidePolicy(await gatherPolicyFacts(source, recipient, tag)) : null;
  const isForeign = recipient?.foreign !== undefined && !(await source.servesGuests());
  const signature = "absent";
  return { recipient, policy, isForeign, signature, senderHome: null, isOwnSender: false };
}

/**
 * What `decidePolicy` needs to know of one recipient and one tag, in one round of parallel reads.
 * The block time is asked only when a policy counts in blocks.
 */
async function gatherPolicyFacts(
  source: RecipientSource,
  recipient: Subject,
  tag: string | null,
): Promise<PolicyFacts> {
  const { links } = recipient;
  const ofRecipient = source.policy("recipient", links?.recipientPolicy ?? recipient.did);
  const hasMore = isTagListed(links, tag) || (links?.personaPolicies.length ?? 0) > 0;
  const [recipientPolicy, more] = hasMore
    ? await Promise.all([ofRecipient, gatherLinked(source, links, tag)])
    : [await ofRecipient, nothingLinked];
  const counts = more.tagPolicy !== null || recipientPolicy !== null;
  const blockTimeMs = counts ? await source.blockTimeMs() : 0;
  return { links, tag, recipientPolicy, blockTimeMs, ...more };
}

/** Of the tag, where it is listed, and of the personas. */
type LinkedPolicies = Pick<PolicyFacts, "tagPolicy" | "personaPolicies">;

const nothingLinked: LinkedPolicies = { tagPolicy: null, personaPolicies: [] };

async function gatherLinked(
  source: RecipientSource,
  links: DeliveryPolicyLinks | null,
  tag: string | null,
): Promise<LinkedPolicies> {
  const [tagPolicy, ...personas] = await Promise.all([
    tag !== null && isTagListed(links, tag) ? source.policy("tag", tag) : null,
    ...(links?.personaPolicies ?? []).map((persona) => source.persona(persona)),
  ]);
  return { tagPolicy, personaPolicies: personas.filter((policy) => policy !== null) };
}

// ------------------------------------------------------------------------------------------ decide

/** The operator's own rules, which apply besides the recipient's policy. */
export type OperatorRules = Pick<Config["relay"], "require_sender_signature">;

/** What differs between the Relay and the Cache. */
export type AdmissionRules = {
  readonly operator: OperatorRules;
  /** The operator's block list. */
  readonly blocks?: Pick<Blocks, "checkParties"> | undefined;
  readonly limits: EnvelopeLimits;
  /**
   * Whether own senders reach recipients of other Directories, where only
   * own recipients are served.
   */
  readonly servesOwnSenders?: boolean;
  /** What the node needs of the recipient's document. */
  readonly checkRecipient?: (recipient: Subject) => Fault | null;
  /** What the node needs of the policy, before the size. */
  readonly checkPolicy: (policy: EffectivePolicy) => Fault | null;
};

export type Admission = {
  readonly recipient: Subject;
  /** The sender whose signature verifies. */
  readonly sender: Did | null;
  readonly policy: EffectivePolicy;
  readonly ttlMs: number;
  /** The longest life that recipient and node together allow. */
  readonly ttlMsMax: number;
  readonly expiresAtMs: number;
};

/**
 * 404 `recipient_not_found`, 422 `did_deactivated`, 403 `sender_signature_invalid` or
 * `policy_denied`, 413 `too_large`, 422 `message_expired`, and what the two checks of the node
 * refuse.
 */
export function decideAdmission(
  envelope: Envelope,
  facts: AdmissionFacts,
  rules: AdmissionRules,
  nowMs: number,
): Admission | Fault {
  const { recipient, policy } = facts;
  if (recipient === null) return fault("recipient_not_found", "the recipient does not exist");
  if (recipient.deactivated || policy === null)
    return fault("did_deactivated", "the recipient is deactivated");
  const refused =
    rules.checkRecipient?.(recipient) ??
    checkSignature(envelope, facts.signature, rules.operator) ??
    checkGuest(facts, rules) ??
    rules.blocks?.checkParties(envelope.to, envelope.sender?.from ?? null) ??
    null;
  if (refused !== null) return refused;
  if (isFault(policy)) return policy;
  const denied = rules.checkPolicy(policy) ?? checkPayloadSize(policy, envelope.payloadBytes);
  if (denied !== null) return denied;
  const ttlMs = appliedTtlMs(envelope, rules.limits, policy.ttlMs);
  const expired = checkExpiry(envelope, ttlMs, nowMs);
  if (expired !== null) return expired;
  const ttlMsMax = longestTtlMs(rules.limits, policy.ttlMs);
  const sender = facts.signature === "verified" ? (envelope.sender?.from ?? null) : null;
  return { recipient, sender, policy, ttlMs, ttlMsMax, expiresAtMs: envelope.timestampMs + ttlMs };
}

/**
 * Where the operator chooses who registers, the operator also chooses whose mail is kept and
 * forwarded (D460).
 */
function checkGuest(facts: AdmissionFacts, { servesOwnSenders = false }: AdmissionRules) {
  if (!facts.isForeign || (servesOwnSenders && facts.isOwnSender)) return null;
  const but = servesOwnSenders ? "; others are reached by what its own people sign" : "";
  return fault("policy_denied", `this node serves recipients of its own Directory${but}`);
}

/**
 * 403 `sender_signature_invalid` when a signature is supplied and does not verify, or
 * is required and missing.
 */
function checkSignature(
  { sender }: Envelope,
  signature: AdmissionFacts["signature"],
  operator: OperatorRules,
): Fault | null {
  if (sender !== null && signature === "invalid") {
    const refusal = fault("sender_signature_invalid", "the sender signature does not verify");
    return withSignedText(refusal, sender.signedBytes);
  }
  if (signature !== "absent" || !operator.require_sender_signature) return null;
  const lack =
    sender === null ? "the envelope is not signed" : "the keys of its sender can't be learnt now";
  return fault(
    "sender_signature_invalid",
    `this node accepts senders that it can verify, and ${lack}`,
  );
}

// -------------------------------------------------------------------------- resolution for senders

type ResolutionParts = HomesOf & {
  readonly recipients: RecipientSource;
  readonly limits: Config["limits"];
  /** When what recipients are looked up in can't be read: a ledger, or a Directory elsewhere. */
  readonly unavailable: "chain_unavailable" | "service_unavailable";
  /** The ledger, where this node has one: it keeps what proves the keys of recipients. */
  readonly ledger: Pick<LedgerReader, "keyProof"> | null;
  readonly bundles: Bundles;
};

export function resolutionRoute(parts: ResolutionParts): Route {
  return readsHome({
    method: "GET",
    path: "/delivery-resolution/:target",
    id: "deliveryResolution",
    tag: "Directory",
    capacity: "normal",
    summary: "The key to seal to and the sizes that one recipient accepts",
    query: ["tag", "proof", "keys"],
    answer: [200, "Key and constraints at the finalized head.", resolutionAnswer],
    codes: [
      "invalid_did",
      "did_not_found",
      "component_not_found",
      "did_deactivated",
      "policy_denied",
      parts.unavailable,
    ],
    handle: (call) => resolve(call, parts),
  });
}

async function resolve(call: Call, parts: ResolutionParts): Promise<Answer | Fault> {
  const { recipients, limits, ledger } = parts;
  const did = parseDid(call.params["target"] ?? "");
  if (isFault(did)) return did;
  const tag = call.query.get("tag");
  if (tag !== null && !isTag(tag)) return fault("invalid_request", `tag: must be ${tagForm}`);
  const known = parseKnown(call, "proof");
  if (isFault(known)) return known;
  const knownKeys = parseKnown(call, "keys");
  if (isFault(knownKeys)) return knownKeys;
  const own = await recipients.subject(did, {
    home: call.query.get("home"),
    network: call.network,
  });
  const foreign =
    own === null && parts.homes !== undefined ? await foreignDid(parts, did, call) : null;
  if (isFault(foreign)) return foreign;
  const recipient = foreign === null ? own : foreignSubject(foreign);
  const receives = recipient !== null && !recipient.deactivated;
  const policy = receives ? await gatherPolicyFacts(recipients, recipient, tag) : null;
  const resolution = decideResolution({ recipient, policy });
  if (isFault(resolution)) return resolution;
  const allowed =
    foreign === null ? resolution.messageBytesMax : await boundAtHome(parts, foreign, call);
  if (isFault(allowed)) return allowed;
  const kept =
    known === null || ledger === null || foreign !== null ? null : await readKeyProof(ledger, did);
  const proof = known === null ? null : (foreign?.bytes ?? kept);
  const shown =
    proof === null
      ? {}
      : { key_proof: isKnownProof(proof, known ?? "") ? "" : encodeBase64(proof) };
  const bundle =
    knownKeys === null || recipient === null
      ? {}
      : await findBundle(parts, recipient, { call, known: knownKeys });
  return {
    status: 200,
    json: {
      ...renderResolution(did, { ...resolution, messageBytesMax: allowed }, limits),
      ...shown,
      ...bundle,
    },
  };
}

/** The key bundle that counts now, unless the client knows it, or why there is none. */
async function findBundle(
  { bundles }: ResolutionParts,
  recipient: Subject,
  { call, known }: { readonly call: Call; readonly known: string },
): Promise<JsonObject> {
  const found = await bundles.find(recipient, call);
  if (typeof found === "string") return { key_bundle_sha256: null, key_bundle_missing: found };
  const digest = bundleDigest(found);
  return known === digest
    ? { key_bundle_sha256: digest }
    : { key_bundle_sha256: digest, key_bundle: renderBundle(found) };
}

/** What the home of a recipient says of its policies. */
async function boundAtHome(
  { homes }: ResolutionParts,
  of: Foreign,
  call: Call,
): Promise<number | null | Fault> {
  const allowed = (await homes?.bytesMax(of, call.query.get("tag"), call.network)) ?? null;
  return allowed === "denied"
    ? fault("policy_denied", "the recipient's policies do not accept this tag")
    : allowed;
}

function renderResolution(
  target: string,
  { key, messageBytesMax }: DeliveryResolution,
  limits: Config["limits"],
) {
  const bounded = (bytesMax: number) => Math.min(bytesMax, messageBytesMax ?? bytesMax);
  return {
    target,
    encryption_profile: "direct",
    recipient_key_id: key.id,
    recipient_public_key_multibase: key.publicKeyMultibase,
    policy: {
      effective_constraints: {
        max_chunk_bytes: bounded(limits.chunk_bytes_max),
        max_unchunked_message_bytes: bounded(limits.unchunked_bytes_max),
        max_http_envelope_bytes: limits.body_bytes_max,
        ...(messageBytesMax === null ? {} : { max_message_bytes: messageBytesMax }),
      },
    },
  };
}
