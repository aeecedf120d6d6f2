/**
 * For each code of the catalogue: what usually causes it, and what a client does about it. Shown at `/problems`.
 * Source: interface "Errors", rules section 3.
 */
import type { FaultCode } from "./fault.ts";

type Problem = { readonly cause: string; readonly remedy: string };

const again = "Try again later, at the earliest after Retry-After.";
const newNonce = "Read GET /dids/{did}/nonces, build the payload anew and sign it.";
const proofAnew = "Make the proof anew with the current time and a new nonce.";
const readDocument = "Read GET /resolve/{did} for what stands now.";

export const problems: Readonly<Record<FaultCode, Problem>> = {
  invalid_json: {
    cause: "The body is not UTF-8 JSON, names a member twice, or is nested too deeply.",
    remedy: "Send plain JSON; see errors and the bounds in /limits.",
  },
  invalid_request: {
    cause: "A member, header or path value is missing, unknown or of the wrong form; or the body did not arrive.",
    remedy: "Compare with the schema of the operation; errors points at each member.",
  },
  invalid_did: {
    cause: "The text is not did:svc: with 16 to 96 base58btc characters.",
    remedy: "Use the DID as it was registered, percent-encoded in paths.",
  },
  path_body_mismatch: {
    cause: "The body names another DID or subject than the path.",
    remedy: "Use the same value in both.",
  },
  action_mismatch: {
    cause: "The member action names another action than the route's.",
    remedy: "Use the action that the operation documents.",
  },
  payload_mismatch: {
    cause: "The signed payload decodes, but says something else than the other members.",
    remedy: "Build the payload from the very values of the request; detail names the first that differs.",
  },
  invalid_canonical_payload: {
    cause: "canonical_payload is not hex or Base64, or not the SCALE structure of the action.",
    remedy: "Encode as /docs/signing shows, or let POST /dids/{did}/prepare do it.",
  },
  authorization_expired: { cause: "valid_until or the expiry of the proof has passed.", remedy: newNonce },
  authorization_too_far_ahead: {
    cause: "valid_until, or the time of the proof, lies further ahead than the node allows.",
    remedy: "Use an end within the hour, and check the clock of this machine.",
  },
  envelope_invalid: {
    cause: "A member of the envelope breaks a rule.",
    remedy: "errors points at each member; the schema of POST /cache/store names the rules.",
  },
  recipient_mismatch: {
    cause: "The path names another recipient than the envelope.",
    remedy: "Use the same DID in both, or POST /relay.",
  },
  proof_missing: {
    cause: "A header or member of the proof is missing.",
    remedy: "Send all values that /docs/signing lists.",
  },
  proof_invalid: {
    cause: "The signature does not verify over the text that the node builds from the request.",
    remedy: "Compare the text with /docs/signing, line by line; in development mode signed_text shows the node's.",
  },
  proof_expired: {
    cause: "The timestamp of the proof is outside the permitted clock skew.",
    remedy: `${proofAnew} Check the clock of this machine.`,
  },
  invalid_signature: {
    cause: "The signature does not verify, or its key may not sign this.",
    remedy: "Sign the decoded payload with root or a key listed in authentication.",
  },
  proof_not_authorized: {
    cause: "The document does not authorize the key, the service or the endpoint of the proof.",
    remedy: `${readDocument} Use a key that the service lists, and the endpoint exactly as it stands there.`,
  },
  policy_denied: {
    cause: "The recipient's policy, or a list of the operator, refuses the envelope.",
    remedy: "Read GET /delivery-policies/recipients/{did}; sending the same again does not help.",
  },
  sender_signature_invalid: {
    cause: "The sender signature does not verify, its key is not in authentication, or the node wants one.",
    remedy: "Sign the text of /docs/signing with a key of the sender's document.",
  },
  unsigned_update_denied: {
    cause: "The update needs a proof in headers.",
    remedy: "Send the update proof of /docs/signing.",
  },
  did_not_found: {
    cause: "No DID of this name is registered, or its registration is not settled yet.",
    remedy: "Register it, or wait until GET /registration-status/{did} says confirmed.",
  },
  policy_not_found: {
    cause: "Nobody has set this policy.",
    remedy: "Nothing to do: without a policy the limits of the node hold.",
  },
  component_not_found: { cause: "The document holds no component of this id.", remedy: readDocument },
  service_not_found: {
    cause: "The recipient publishes no service of the kind this delivery needs, or not at this node.",
    remedy: "Send through a node that the recipient's document names.",
  },
  recipient_not_found: {
    cause: "The recipient is not registered where this node looks DIDs up.",
    remedy: "Check the DID; after a registration wait until it is confirmed.",
  },
  alias_not_found: { cause: "Nobody holds this alias.", remedy: "Check its spelling." },
  not_found: { cause: "No route has this path.", remedy: "Compare with /openapi.json; a trailing slash counts." },
  method_not_allowed: { cause: "The path exists for other methods.", remedy: "Use one of the header Allow." },
  nonce_mismatch: { cause: "Another update was accepted first, or the nonce was guessed.", remedy: newNonce },
  did_already_registered: { cause: "The DID has a record.", remedy: "Update it, or register another DID." },
  registration_pending: {
    cause: "Another registration of the DID waits for a block.",
    remedy: "Wait until GET /registration-status/{did} is no longer pending.",
  },
  alias_taken: { cause: "Another DID holds the alias.", remedy: "Choose another." },
  alias_exists: { cause: "The DID holds the alias already.", remedy: "Nothing to do." },
  component_exists: { cause: "The document holds a component of this id.", remedy: "Update it, or use another id." },
  component_in_use: {
    cause: "Another part of the document names the component.",
    remedy: "Take it out of authentication and authorizations first.",
  },
  document_stale: {
    cause: "A document with a later time has been accepted.",
    remedy: "Sign the document anew with the current time.",
  },
  proof_replayed: { cause: "The nonce was used before with this operation, DID and key.", remedy: proofAnew },
  chunk_conflict: {
    cause: "Another envelope holds this place of the group, or the group has another total.",
    remedy: "Use a new message_group_id for other content.",
  },
  duplicate_conflict: {
    cause: "The message id was used for other content.",
    remedy: "Use a new message_id; repeat a message with identical bytes only.",
  },
  too_large: {
    cause: "Body, payload, chunk or header exceeds a limit of the node or of the recipient.",
    remedy: "Read /limits and the recipient's policy; split the message into chunks.",
  },
  unsupported_media_type: {
    cause: "The body is not application/json in UTF-8, or is encoded.",
    remedy: "Send Content-Type: application/json, without Content-Encoding.",
  },
  message_expired: {
    cause: "timestamp plus the applied life has passed.",
    remedy: "Send a new message; check the clock of this machine.",
  },
  not_deliverable: {
    cause: "No destination of the recipient fits what the envelope asks for.",
    remedy: "Use another delivery_hint, or ask the recipient to publish a service.",
  },
  did_deactivated: { cause: "The DID is deactivated.", remedy: "None: it receives nothing any more." },
  document_invalid: { cause: "The document breaks a rule of the ledger.", remedy: "errors points at each place." },
  chain_submission_rejected: {
    cause: "The ledger refused the call.",
    remedy: "detail says why; read the current state before another try.",
  },
  rate_limited: { cause: "Too many requests from this network or to this recipient.", remedy: again },
  internal_error: {
    cause: "A bug of the node.",
    remedy: "Tell the operator the request_id: it names the entry in the log.",
  },
  chain_unavailable: { cause: "The ledger can't be read at the moment.", remedy: again },
  destination_unavailable: { cause: "The recipient's destination can't be reached or refuses.", remedy: again },
  cache_unavailable: { cause: "The recipient's Cache can't be reached or refuses.", remedy: again },
  service_unavailable: { cause: "The node is at its capacity, or a store or source is away.", remedy: again },
  shutting_down: { cause: "The node is being stopped or restarted.", remedy: again },
  upstream_timeout: {
    cause: "The destination did not answer in time; it may have taken the message.",
    remedy: "Repeat with identical bytes: a repeat is recognized by its message_id.",
  },
  mailbox_full: {
    cause: "The recipient's mailbox, or the share of this sender or network in it, is full.",
    remedy: "Try again after the recipient has retrieved; detail names what is full.",
  },
  storage_full: { cause: "The store of the node is full.", remedy: again },
};
