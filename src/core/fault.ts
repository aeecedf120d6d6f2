/**
 * The catalogue of refusals: every code a node can answer, with its HTTP status and title.
 * A refusal is a value (`T | Fault`), never an exception; it is rendered in one of two ways, as
 * problem+json or as a DeliveryResult, both in `nodes/http/route.ts`. Codes are stable and public.
 * Source: interface "Errors", rules section 3.
 */
import { decodeUtf8, encodeHex0x } from "./codec/bytes.ts";

const catalogue = {
  invalid_json: [400, "The body is not acceptable JSON"],
  invalid_request: [400, "The request does not have the required shape"],
  invalid_did: [400, "Not a DID of this service"],
  path_body_mismatch: [400, "Path and body don't match"],
  action_mismatch: [400, "The action does not belong to this route"],
  payload_mismatch: [400, "The signed payload does not match the request"],
  invalid_canonical_payload: [400, "The canonical payload can't be decoded"],
  authorization_expired: [400, "The authorization has expired"],
  authorization_too_far_ahead: [400, "The authorization expires too far in the future"],
  envelope_invalid: [400, "The envelope breaks a rule"],
  recipient_mismatch: [400, "Path and envelope name different recipients"],
  proof_missing: [401, "A value of the proof is missing"],
  proof_invalid: [401, "The proof does not verify"],
  proof_expired: [401, "The proof is outside the clock skew"],
  invalid_signature: [403, "The signature does not authorize this"],
  proof_not_authorized: [403, "The proof does not authorize this"],
  policy_denied: [403, "A policy refuses this"],
  sender_signature_invalid: [403, "The sender signature does not verify"],
  unsigned_update_denied: [403, "This update needs a proof"],
  registration_closed: [403, "This Directory takes no registrations"],
  invitation_required: [403, "A registration here needs an invitation"],
  invitation_invalid: [403, "The invitation can't be used"],
  did_not_found: [404, "No such DID"],
  policy_not_found: [404, "No policy exists"],
  component_not_found: [404, "No such component in the document"],
  service_not_found: [404, "The recipient publishes no such service"],
  recipient_not_found: [404, "No such recipient"],
  alias_not_found: [404, "No such alias"],
  not_found: [404, "No such resource"],
  method_not_allowed: [405, "The method is not allowed here"],
  nonce_mismatch: [409, "The nonce is stale"],
  did_already_registered: [409, "The DID is already registered"],
  registration_pending: [409, "Another registration of this DID is pending"],
  alias_taken: [409, "The alias belongs to another DID"],
  alias_exists: [409, "The DID already has this alias"],
  component_exists: [409, "The component already exists"],
  component_in_use: [409, "The component is still in use"],
  document_stale: [409, "A later document has already been accepted"],
  document_needed: [409, "A whole document must come first"],
  proof_replayed: [409, "The nonce of the proof was used before"],
  chunk_conflict: [409, "The chunk contradicts its group"],
  duplicate_conflict: [409, "The message id was used for other content"],
  too_large: [413, "Larger than the advertised limit"],
  unsupported_media_type: [415, "The media type is not supported"],
  log_inconsistent: [422, "The head of the log does not follow"],
  message_expired: [422, "The message has expired"],
  not_deliverable: [422, "The message can't be delivered"],
  did_deactivated: [422, "The DID is deactivated"],
  document_invalid: [422, "The document breaks a rule"],
  chain_submission_rejected: [422, "The chain refused the submission"],
  rate_limited: [429, "Too many requests"],
  internal_error: [500, "Something went wrong in the node"],
  chain_unavailable: [502, "The chain can't be read"],
  destination_unavailable: [502, "The destination can't be reached"],
  cache_unavailable: [502, "The Cache can't be reached"],
  service_unavailable: [503, "A required service is unavailable"],
  shutting_down: [503, "The node is shutting down"],
  upstream_timeout: [504, "The destination did not answer in time"],
  mailbox_full: [507, "The recipient's mailbox is full"],
  storage_full: [507, "The store is full"],
} as const satisfies Record<string, readonly [status: number, title: string]>;

export type FaultCode = keyof typeof catalogue;

/** One error of an input: its place (RFC 6901 JSON pointer into the body) and its description. */
export type InputError = { readonly pointer: string; readonly message: string };

/** A longer name is not repeated: its pointer stops at the parent, so that an answer stays small. */
export const pointerNameCharsMax = 128;

export type FaultExtra = {
  /** Input errors, for 400 answers. */
  readonly errors?: readonly InputError[];
  /** The counter value that would be accepted, as decimal text, with `nonce_mismatch`. */
  readonly expected?: string;
  /** Whole seconds for the `Retry-After` header. */
  readonly retryAfterSeconds?: number;
  /** With refused signatures: the verified text, made only from what the client sent. Shown only in development. */
  readonly signedText?: string;
  /** Headers of the answer. */
  readonly headers?: Readonly<Record<string, string>>;
};

/** A refusal. `detail` is shown to the caller: it names no path, address or secret. */
export class Fault {
  constructor(
    readonly code: FaultCode,
    readonly detail: string,
    readonly extra: FaultExtra = {},
  ) {}

  get status(): number {
    return catalogue[this.code][0];
  }

  get title(): string {
    return catalogue[this.code][1];
  }
}

export const faultCodes = Object.keys(catalogue) as FaultCode[];

export function fault(code: FaultCode, detail: string, extra?: FaultExtra): Fault {
  return new Fault(code, detail, extra);
}

export function isFault(value: unknown): value is Fault {
  return value instanceof Fault;
}

/** An input error of a body: 400 with the pointer to the member at fault. */
export function badInput(code: FaultCode, pointer: string, message: string): Fault {
  return new Fault(code, `${pointer === "" ? "body" : pointer}: ${message}`, { errors: [{ pointer, message }] });
}

/** Status and title of a code, for documentation pages. */
export function describeFault(code: FaultCode): { code: FaultCode; status: number; title: string } {
  const [status, title] = catalogue[code];
  return { code, status, title };
}

// ------------------------------------------------------------------------------------------------------ JSON pointers

/** The JSON pointer (RFC 6901) along these names and list indices. Without any it is "", the whole document. */
export function jsonPointer(...steps: readonly (string | number)[]): string {
  return steps.map((step) => `/${typeof step === "number" ? step : escapeName(step)}`).join("");
}

function escapeName(name: string): string {
  return name.replaceAll("~", "~0").replaceAll("/", "~1");
}

// ------------------------------------------------------------------------------------------------------ thrown errors

/** The message of a thrown value, which need not be an `Error`. For operators, in a sentence that names what failed. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The same with the stack, if it has one. For logs of bugs. */
export function errorStack(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

// -------------------------------------------------------------------------------------------------------- signed text

/**
 * Adds the bytes that were verified to the refusal of a signature, as text or else as hex: a client sees which line
 * differs from its own. They hold nothing but what the client sent, and only a node in development shows them.
 */
export function withSignedText(refusal: Fault, signed: Uint8Array): Fault {
  const text = decodeUtf8(signed);
  const isText = text !== null && !/[\u0000-\u0009\u000b-\u001f\u007f]/.test(text);
  return fault(refusal.code, refusal.detail, { ...refusal.extra, signedText: isText ? text : encodeHex0x(signed) });
}

// ----------------------------------------------------------------------------------------------------------- remedies

const again = "Try again later, at the earliest after Retry-After.";
const newNonce =
  "Read GET /dids/{did}/nonces, build a new payload and sign it: another update came first, or time ran out.";
const proofAnew = "Make a new proof with the current time and a new nonce.";
const readDocument = "Read GET /resolve/{did} for the current document.";
const confirmed = "until GET /registration-status/{did} answers confirmed.";

/** What a client does about each code, and what usually causes it where the title does not say so. Shown at `/problems`. */
export const remedies: Readonly<Record<FaultCode, string>> = {
  invalid_json: "Send UTF-8 JSON that names no member twice and is not nested deeply; detail names the problem.",
  invalid_request: "Compare with the schema of the operation; errors points at each member that is missing or wrong.",
  invalid_did: "Use did:svc: with 16 to 96 base58btc characters, percent-encoded in paths.",
  path_body_mismatch: "Use the same DID or subject in the path and in the body.",
  action_mismatch: "Use the action that the operation documents.",
  payload_mismatch: "Build the payload from the values of the request; detail names the first member that differs.",
  invalid_canonical_payload: "Send the SCALE structure in hex or Base64, or let POST /dids/{did}/prepare make it.",
  authorization_expired: newNonce,
  authorization_too_far_ahead: "Use an expiry within the next hour, and check the clock of this machine.",
  envelope_invalid: "Correct what errors points at; the schema of POST /cache/store names the rules.",
  recipient_mismatch: "Use the same DID in the path and in the envelope, or POST /relay.",
  proof_missing: "Send all headers or members of the proof that /docs lists.",
  proof_invalid: "Compare the signed text with /docs, line by line; in development mode signed_text shows the node's.",
  proof_expired: `${proofAnew} Check the clock of this machine.`,
  invalid_signature: "Sign the decoded payload with root or a key listed in authentication.",
  proof_not_authorized: `${readDocument} Use a key that the service lists, and the endpoint exactly as the service has it.`,
  policy_denied:
    "Don't repeat it: the recipient's policy (GET /delivery-policies/recipients/{did}) or the operator's list refuses it.",
  sender_signature_invalid:
    "Sign the text of /docs with a key in authentication of a sender that is registered where this node looks DIDs up.",
  unsigned_update_denied: "Send the update proof of /docs in headers.",
  registration_closed: "Ask the operator, or register at another Directory.",
  invitation_required: "Ask the operator for an invitation, and send its code in the header Svc-Invitation.",
  invitation_invalid: "Ask for another one: detail says whether it is unknown, expired, revoked or used up.",
  did_not_found: `Register it, or wait ${confirmed}`,
  policy_not_found: "Nothing to do: without a policy the limits of the node hold.",
  component_not_found: readDocument,
  service_not_found: "Send through a node that the recipient's document names.",
  recipient_not_found: `Check the DID, and which Directory it belongs to; after a registration wait ${confirmed}`,
  alias_not_found: "Check its spelling.",
  not_found: "Compare with /openapi.json; a trailing slash counts.",
  method_not_allowed: "Use a method of the header Allow.",
  nonce_mismatch: newNonce,
  did_already_registered: "Update it, or register another DID.",
  registration_pending: "Wait until GET /registration-status/{did} is no longer pending.",
  alias_taken: "Choose another.",
  alias_exists: "Nothing to do.",
  component_exists: "Update it, or use another id.",
  component_in_use: "Remove the method from authentication first.",
  document_stale: "Sign the document again with the current time: one with a later time has been accepted.",
  document_needed:
    "PUT /dids/{did}/document/proof: after eight changes, or with a new root key, the whole document is signed.",
  proof_replayed: proofAnew,
  chunk_conflict: "Use a new message_group_id for other content, or for another number of chunks.",
  duplicate_conflict: "Use a new message_id; repeat a message only with identical bytes.",
  too_large: "Read /limits and the recipient's policy; split the message into chunks.",
  unsupported_media_type: "Send Content-Type: application/json in UTF-8, without Content-Encoding.",
  log_inconsistent: "Compare the log with its last signed head; after a restore, docs/run.md says how to go on.",
  message_expired: "Send a new message; check the clock of this machine.",
  not_deliverable: "Use another delivery_hint, or ask the recipient to publish a service that accepts it.",
  did_deactivated: "None: a deactivation is final.",
  document_invalid: "Correct what errors or detail names.",
  chain_submission_rejected: "detail has the reason; read the current state before another try.",
  rate_limited: `${again} The network or the recipient has had too many.`,
  internal_error: "Report the request_id to the operator; it names the entry in the log.",
  chain_unavailable: again,
  destination_unavailable: again,
  cache_unavailable: again,
  service_unavailable: `${again} The node is at capacity, or can't reach a store or a source of recipients.`,
  shutting_down: again,
  upstream_timeout: "Repeat with identical bytes: the destination may have it, and recognizes the message_id.",
  mailbox_full: "Try again after the recipient has retrieved; detail names what is full.",
  storage_full: `${again} detail names what is full.`,
};
