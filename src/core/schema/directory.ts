/**
 * Shapes of the Directory: closed bodies and open answers. A text whose refusal has its own
 * code (DIDs, actions, payloads) is only a text here and parsed by its route; counts and
 * lengths inside a document are the ledger's.
 * Source: interface "Resources and their fields" and "Endpoints", rules section 4.
 */
import { type Static, type TProperties, type TSchema, Type } from "@sinclair/typebox";
import type { FaultCode } from "../fault.ts";
import { type ActionItem, type ActionName, actionRows, actions } from "../ledger/actions.ts";
import { memberOf } from "../ledger/intents.ts";
import {
  documentInShape,
  documentShape,
  keyAgreementShape,
  serviceShape,
  verificationMethodShape,
} from "./identity.ts";
import { keyBundleShape } from "./messages.ts";
import {
  aliasText,
  closed,
  didText,
  didUrlText,
  isoText,
  limitsShape,
  namedText,
  nullable,
  signatureText,
  timestampText,
  txHashText,
  u64Text,
} from "./schema.ts";

const docBlobText = Type.String({
  description: "the SCALE document as 0x hex, Base64 or URL-safe Base64",
});
const publicKeyText = Type.String({
  description: "0x hex, hex, or z base58btc of an Ed25519 key",
  examples: ["z6MkvDqGT54cXesYGvABpF1UapVNwjCqRcafi4Px6Thv5T3Z"],
});
const proofTimestampText = Type.String({
  format: "proof-timestamp",
  description:
    "a timestamp (version 1), or v2:<nonce>:<expiry in milliseconds>, or the same with v3",
  examples: ["2026-07-16T12:00:00Z"],
});

// ------------------------------------------------------------------------------------ registration

const registrationMembers = {
  did: didText,
  did_document: documentInShape,
  root_pubkey: Type.Optional(publicKeyText),
  alias: Type.Optional(aliasText),
};

export const registerBody = closed({
  ...registrationMembers,
  timestamp: proofTimestampText,
  signature: signatureText,
});

export const registeredAnswer = Type.Object({
  status: Type.Literal("accepted"),
  registration_status: Type.Literal("pending"),
  tx_id: txHashText,
  did: didText,
  did_document: documentShape,
});

export const registrationStatusAnswer = Type.Object({
  did: didText,
  source: Type.Literal("chain"),
  registered: Type.Boolean(),
  registration_status: namedText(["confirmed", "pending", "missing"]),
  did_document: Type.Optional(documentShape),
  version: Type.Optional(Type.Integer({ minimum: 1 })),
  tx_id: Type.Optional(txHashText),
});

// ------------------------------------------------------------------------------------- preparation

const validUntil = Type.Union(
  [u64Text, Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })],
  {
    description: "Unix time in milliseconds, as text or as an integer",
    examples: ["1893456000000"],
  },
);
const signerKeyId = Type.Optional(
  Type.String({ description: "root or <did>#<fragment>", default: "root", examples: ["root"] }),
);

export const prepareRegistrationBody = closed(registrationMembers);

export const preparedAnswer = Type.Object({
  did: didText,
  action: Type.String(),
  nonce_domain: nullable(
    namedText(["document_nonce", "alias_nonce", "root_pubkey_nonce", "control_nonce"]),
  ),
  payload_to_sign: Type.String({ description: "0x hex of the bytes to sign" }),
  request: Type.Object({}, { description: "the complete body to submit, without signature" }),
  submit: Type.Object(
    { method: Type.String(), path: Type.String() },
    { description: "where the body goes once the signature is added" },
  ),
  expires_at: isoText,
  proof_version: Type.Optional(namedText(["v2", "v3", "plain"])),
  genesis_hash: Type.Optional(
    Type.String({ description: "genesis hash of the ledger that version 3 binds" }),
  ),
  operator_account: Type.Optional(
    Type.String({ description: "and, in a registration, the Directory's account" }),
  ),
});

/** The body of a preparation: DID and action, who signs, then the members of that action. */
function prepareBody<M extends TProperties>(action: string, members: M) {
  return closed({ ...prepareMembers, action: namedText([action]), ...members });
}

const prepareMembers = { did: didText, action: Type.String(), signer_key_id: signerKeyId };

/**
 * What `POST /dids/{did}/prepare` documents; each action is checked by the shape of its
 * members.
 */
export function anyPrepareBody(actions: readonly string[]) {
  return Type.Object(
    { ...prepareMembers, action: namedText(actions) },
    {
      description:
        "did, action, and the members that the route of the action accepts besides its authorization",
    },
  );
}

// ---------------------------------------------------------------------------------- signed updates

/** The shape of each item in a body. Its length and its rules are a matter of the ledger. */
const itemShapes: { readonly [I in ActionItem]: TSchema } = {
  verificationMethod: verificationMethodShape,
  keyAgreement: keyAgreementShape,
  service: serviceShape,
  id: didUrlText,
  alias: aliasText,
  oldAlias: aliasText,
  newAlias: aliasText,
  newRootPubkey: publicKeyText,
};

/** The members of an action besides `did`, `action` and the authorization. */
function itemMembers(action: ActionName): Record<never, TSchema> {
  return Object.fromEntries(
    actionRows[action].items.map((item) => [memberOf(item), itemShapes[item]]),
  );
}

/** What the description says of the route of an action, and the codes of the action's own rules. */
export const actionTexts: {
  readonly [A in ActionName]: readonly [summary: string, ...codes: FaultCode[]];
} = {
  AddVerificationMethod: ["Add a verification method", "component_exists", "document_invalid"],
  UpdateVerificationMethod: [
    "Replace a verification method",
    "component_not_found",
    "document_invalid",
  ],
  RemoveVerificationMethod: [
    "Remove a verification method",
    "component_not_found",
    "component_in_use",
  ],
  AddAuthentication: [
    "List a verification method in authentication",
    "component_not_found",
    "component_exists",
    "document_invalid",
  ],
  RemoveAuthentication: ["Remove a verification method from authentication", "component_not_found"],
  AddKeyAgreement: ["Add a key agreement", "component_exists", "document_invalid"],
  UpdateKeyAgreement: ["Replace a key agreement", "component_not_found", "document_invalid"],
  RemoveKeyAgreement: ["Remove a key agreement", "component_not_found"],
  AddService: ["Add a service", "component_exists", "document_invalid"],
  UpdateService: ["Replace a service", "component_not_found", "document_invalid"],
  RemoveService: ["Remove a service", "component_not_found"],
  UpdateRootPubkey: [
    "Rotate the root key; the signed structure is (did, new root key, nonce, valid_until, signer_key_id)",
    "document_invalid",
  ],
  add_alias: [
    "Add an alias",
    "alias_reserved",
    "alias_changed",
    "alias_taken",
    "alias_exists",
    "document_invalid",
  ],
  update_alias: [
    "Rename an alias in its place",
    "alias_reserved",
    "alias_changed",
    "alias_taken",
    "alias_exists",
    "alias_not_found",
  ],
  remove_alias: ["Remove an alias", "alias_not_found"],
  deactivate_did: ["Deactivate a DID permanently; its record stays"],
  delete_did: ["Delete a DID, its aliases and its policies; its counters stay"],
};

const authorizationMembers = {
  nonce: u64Text,
  valid_until: validUntil,
  signer_key_id: signerKeyId,
  canonical_payload: Type.String({
    description: "the signed SCALE structure as 0x hex, Base64 or URL-safe Base64",
  }),
  signature: signatureText,
};

export const authorizationShape = Type.Object({
  did: didText,
  action: Type.String(),
  ...authorizationMembers,
});

/**
 * The body of a signed update. Alias bodies have a fresh `timestamp` that the signature
 * leaves out.
 */
export function updateBody(action: ActionName) {
  const timestamped = actions[action].counter === "alias";
  return closed({
    did: didText,
    action: namedText([action]),
    ...itemMembers(action),
    ...(timestamped ? { timestamp: timestampText } : {}),
    ...authorizationMembers,
  });
}

export function prepareUpdateBody(action: ActionName) {
  return prepareBody(action, itemMembers(action));
}

// ---------------------------------------------------------------------------- document replacement

/** `document` or `doc_blob`: exactly one, which the route checks. */
const eitherDocument = {
  document: Type.Optional(documentInShape),
  doc_blob: Type.Optional(docBlobText),
};

export const replaceDocumentBody = closed({
  did: didText,
  ...eitherDocument,
  timestamp: proofTimestampText,
  pubkey: publicKeyText,
  signature: signatureText,
});

export const prepareDocumentBody = prepareBody("replace_document", eitherDocument);

export const primaryAliasBody = closed({ did: didText, alias: aliasText });

// ------------------------------------------------------------------------------ accepted mutations

/** `202` of every change but a registration. */
export const acceptedAnswer = Type.Object({
  status: Type.Literal("accepted"),
  did: didText,
  tx_hash: txHashText,
  message: Type.String(),
  action: Type.Optional(Type.String({ examples: ["UpdateVerificationMethod"] })),
  alias: Type.Optional(aliasText),
  extrinsic: Type.Optional(Type.String({ examples: ["set_delivery_policy_links"] })),
});

export const deviceInvitationBody = closed({ did: didText });

export const deviceInvitationAnswer = Type.Object({
  invitation: Type.String({ description: "a code that registers one DID, with `Svc-Invitation`" }),
  expires_at: isoText,
});

// ------------------------------------------------------------------------------------------- reads

export const noncesAnswer = Type.Object({
  did: didText,
  document_nonce: u64Text,
  alias_nonce: Type.Optional(u64Text),
  root_pubkey_nonce: u64Text,
  control_nonce: Type.Optional(u64Text),
});

const linksAnswer = Type.Object({
  recipient_policy: nullable(Type.String()),
  tag_policies: Type.Array(Type.String()),
  persona_policies: Type.Array(Type.String()),
});

export const resolvedAnswer = Type.Object({
  did: didText,
  document: nullable(documentShape),
  aliases: Type.Array(aliasText),
  root_pubkey: nullable(publicKeyText),
  version: Type.Integer({ minimum: 1 }),
  deactivated: Type.Boolean(),
  life: Type.Optional(
    Type.Integer({
      minimum: 1,
      description: "number of earlier deletions of the DID; absent if none",
    }),
  ),
  updated_at: isoText,
  delivery_policy_links: nullable(linksAnswer),
  home: Type.Optional(
    Type.String({
      description:
        "of a DID at another Directory: its host; `updated_at` is when it was last asked",
    }),
  ),
});

/** What nodes elsewhere read of a record. */
export const subjectShape = Type.Object({
  document: Type.Optional(Type.Unknown()),
  deactivated: Type.Boolean(),
  life: resolvedAnswer.properties.life,
  home: resolvedAnswer.properties.home,
  delivery_policy_links: Type.Optional(nullable(linksAnswer)),
});

export const aliasAnswer = Type.Object({ alias: aliasText, did: didText });

export const submissionAnswer = Type.Object({
  tx_hash: txHashText,
  did: didText,
  action: Type.Optional(Type.String()),
  extrinsic: Type.Optional(Type.String()),
  state: namedText(["pending", "in_block", "finalized", "failed", "dropped"]),
  reason: nullable(Type.Object({ code: Type.String(), message: Type.String() })),
  block_hash: nullable(Type.String()),
  block_number: nullable(Type.Integer()),
  submitted_at: isoText,
});

/** `GET /delivery-resolution/{target}`. */
export const resolutionAnswer = Type.Object({
  target: didText,
  encryption_profile: Type.String({
    description: "`direct`: seal to the key",
    examples: ["direct"],
  }),
  recipient_key_id: didUrlText,
  recipient_public_key_multibase: Type.String({
    description: "X25519, z base58btc, bare or with `ec 01`",
  }),
  key_proof: Type.Optional(
    Type.String({
      description:
        "Base64 of the key proof, if `proof` asks for it; empty if `proof` names this one",
    }),
  ),
  key_bundle_sha256: Type.Optional(
    nullable(
      Type.String(),
      "if `keys` asks for it: SHA-256 in hex over the signed text of the key bundle that counts now, `null` without one",
    ),
  ),
  key_bundle: Type.Optional(keyBundleShape),
  key_bundle_missing: Type.Optional(
    namedText(["not_announced", "none", "invalid", "unavailable", "rate_limited"]),
  ),
  policy: Type.Object({
    effective_constraints: Type.Object({
      max_chunk_bytes: Type.Integer(),
      max_unchunked_message_bytes: Type.Integer(),
      max_http_envelope_bytes: Type.Integer(),
      max_message_bytes: Type.Optional(
        Type.Integer({ description: "of the policy, for one envelope or chunk" }),
      ),
    }),
  }),
});

/** What a Directory adds to `GET /limits`. */
const directoryLimitsShape = Type.Object({
  block_time_ms: Type.Number({ description: "block time, in which effective_ttl counts" }),
  max_directory_body_bytes: Type.Integer(),
  max_authorization_ahead_seconds: Type.Number(),
  max_proof_life_seconds: Type.Number(),
  registration_proofs: Type.Array(namedText(["v3", "v2", "v1"]), {
    description: "accepted versions, the best first",
  }),
  authorization_proofs: Type.Array(namedText(["v3", "plain"]), {
    description: "accepted forms of signed payloads",
  }),
  genesis_hash: Type.String({
    description: "names the ledger in proofs of version 3: 0x and 64 hex digits",
  }),
  operator_account: Type.String({
    description: "submits registrations; proofs of version 3 name it: 0x and 64 hex",
  }),
  self_certifying_dids: Type.Boolean({
    description: "whether the ledger holds DIDs of that form to their rules",
  }),
  unsigned_updates: namedText(["allow", "deny"]),
  registration: namedText(["open", "invite", "closed"]),
  registration_rate_per_second: Type.Integer(),
  registration_burst: Type.Integer(),
  change_rate_per_second: Type.Integer({
    description: "changes of all DIDs from one client network",
  }),
  change_burst: Type.Integer(),
  operator_contact: nullable(
    Type.String({ description: "where members reach the operator: mailto: or https" }),
  ),
  operator_rules: nullable(Type.String({ description: "https URL of the rules of this node" })),
});
export type DirectoryLimits = Static<typeof directoryLimitsShape>;
/** What nodes elsewhere read of them. */
export const blockTimeShape = Type.Object({
  block_time_ms: Type.Integer({ minimum: 1 }),
  registration: Type.Optional(Type.String()),
});

/** Answer of `GET /limits` on any node. */
export const nodeLimitsShape = Type.Composite([limitsShape, Type.Partial(directoryLimitsShape)]);
