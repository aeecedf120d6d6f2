/**
 * The catalogue of refusals: every code a node can answer, with its HTTP status and title.
 * A refusal is a value (`T | Fault`), never an exception; it is rendered in one of two ways, as
 * problem+json or as a DeliveryResult, both in `nodes/http/route.ts`. Codes are stable and public.
 * Source: interface "Errors", rules section 3.
 */

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
  alias_reserved: [403, "The alias is reserved"],
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
  bundle_stale: [409, "A later key bundle has already been accepted"],
  document_needed: [409, "A whole document must come first"],
  proof_replayed: [409, "The nonce of the proof was used before"],
  chunk_conflict: [409, "The chunk contradicts its group"],
  duplicate_conflict: [409, "The message id was used for other content"],
  too_large: [413, "Larger than the advertised limit"],
  unsupported_media_type: [415, "The media type is not supported"],
  not_a_node: [421, "This address is not a node's"],
  log_inconsistent: [422, "The head of the log does not follow"],
  message_expired: [422, "The message has expired"],
  not_deliverable: [422, "The message can't be delivered"],
  did_deactivated: [422, "The DID is deactivated"],
  document_invalid: [422, "The document breaks a rule"],
  chain_submission_rejected: [422, "The chain refused the submission"],
  alias_changed: [429, "The alias was changed lately"],
  rate_limited: [429, "Too many requests"],
  internal_error: [500, "Something went wrong in the node"],
  chain_unavailable: [502, "The chain can't be read"],
  destination_unavailable: [502, "The destination can't be reached"],
  cache_unavailable: [502, "The Cache can't be reached"],
  service_unavailable: [503, "A required service is unavailable"],
  maintenance: [503, "The node takes nothing new for a time"],
  shutting_down: [503, "The node is shutting down"],
  upstream_timeout: [504, "The destination did not answer in time"],
  mailbox_full: [507, "The recipient's mailbox is full"],
  storage_full: [507, "The store is full"],
} as const satisfies Record<string, readonly [status: number, title: string]>;

export type FaultCode = keyof typeof catalogue;

/** One error of an input: its place (RFC 6901 JSON pointer into the body) and its description. */
export type InputError = { readonly pointer: string; readonly message: string };

/**
 * A longer name is not repeated: its pointer stops at the parent, so that an answer stays
 * small.
 */
export const pointerNameCharsMax = 128;

export type FaultExtra = {
  /** Input errors, for 400 answers. */
  readonly errors?: readonly InputError[];
  /** The counter value that would be accepted, as decimal text, with `nonce_mismatch`. */
  readonly expected?: string;
  /** Whole seconds for the `Retry-After` header. */
  readonly retryAfterSeconds?: number;
  /**
   * With refused signatures: the verified text, made only from what the client sent. Shown
   * only in development.
   */
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
  return new Fault(code, `${pointer === "" ? "body" : pointer}: ${message}`, {
    errors: [{ pointer, message }],
  });
}

/** Status and title of a code, for documentation pages. */
export function describeFault(code: FaultCode): { code: FaultCode; status: number; title: string } {
  const [status, title] = catalogue[code];
  return { code, status, title };
}

// ----------------------------------------------------------------------------------- thrown errors

/** What the operating system refused has these too. */
type SystemError = { readonly code: string; readonly syscall: string; readonly path: string };

/**
 * The message of a thrown value, which need not be an `Error`. For operators, in a sentence
 * that names what failed.
 */
export function errorText(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code, syscall, path, message }: Error & Partial<SystemError> = error;
  const isTaken = code === "EEXIST" && syscall === "mkdir";
  return isTaken ? `${path} exists already: a folder was to be made there` : message;
}

/** The same with the stack, if it has one. For logs of bugs. */
export function errorStack(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
