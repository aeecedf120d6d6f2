/**
 * Shapes of what an identity publishes, as sent and as answered: its document with the
 * components, its policies and the links to them. The ledger checks counts and lengths
 * (422), not the shape (400).
 * Source: interface "DID document" and the two policy sections, rules sections 1 and 4,
 * docs/ledger.md 1.2 and 2.7.
 */
import { Type } from "@sinclair/typebox";
import type { Did } from "../codec/did.ts";
import { type Fault, isFault } from "../fault.ts";
import {
  type DidDocument,
  expirationBehaviors,
  policyLimits,
  scaleBounds,
} from "../ledger/account.ts";
import { normalizeDocument } from "../ledger/document.ts";
import {
  closed,
  compileShape,
  didText,
  didUrlText,
  feeText,
  namedText,
  nullable,
  u64Text,
  u128Text,
  utf8Text,
} from "./schema.ts";

const componentMembers = {
  id: didUrlText,
  type: Type.String({ examples: ["Multikey"] }),
  controller: didText,
  publicKeyMultibase: Type.String({ description: "`z` and base58btc" }),
};

export const verificationMethodShape = closed(componentMembers);
export const keyAgreementShape = closed(componentMembers);
export const serviceShape = closed({
  id: didUrlText,
  type: Type.String({ examples: ["SvcCacheService"] }),
  serviceEndpoint: Type.Union([Type.String(), Type.Array(Type.String())], {
    description: "1 to 5 URLs, or one",
    examples: [["https://cache.example"]],
  }),
  authorization: Type.Optional(
    Type.Array(Type.String(), { description: "method ids; empty authorizes no one" }),
  ),
  priority: Type.Optional(Type.Integer({ minimum: 0, maximum: 4_294_967_295 })),
});

/** A document as answered: ids are absolute, all four lists are present. */
export const documentShape = Type.Object({
  id: didText,
  verificationMethod: Type.Array(verificationMethodShape),
  authentication: Type.Array(didUrlText),
  keyAgreement: Type.Array(keyAgreementShape),
  service: Type.Array(serviceShape),
});

/**
 * A document as sent: ids may be relative (`#k1`), absent lists are empty, `@context` is
 * left out.
 */
export const documentInShape = closed({
  "@context": Type.Optional(Type.Unknown({ description: "accepted and ignored" })),
  id: didText,
  verificationMethod: Type.Optional(Type.Array(verificationMethodShape)),
  authentication: Type.Optional(Type.Array(Type.String())),
  keyAgreement: Type.Optional(Type.Array(keyAgreementShape)),
  service: Type.Optional(Type.Array(serviceShape)),
});

const checkForm = compileShape(documentInShape);

/** A document from JSON that nothing has checked before. Refuses with `invalid_request`. */
export function parseDocument(json: unknown, did: Did): DidDocument | Fault {
  const form = checkForm(json);
  return isFault(form) ? form : normalizeDocument(form, did);
}

// ---------------------------------------------------------------------------------------- policies

const linkText = utf8Text(1, scaleBounds.policyRefBytes);
const linksMax = { maxItems: scaleBounds.policyRefs };
const linkMembers = {
  recipient_policy: Type.Optional(
    nullable(linkText, "DID whose recipient policy counts; null is none"),
  ),
  tag_policies: Type.Optional(Type.Array(linkText, { ...linksMax, description: "admitted tags" })),
  persona_policies: Type.Optional(
    Type.Array(linkText, { ...linksMax, description: "persona DIDs" }),
  ),
};

/** Either the object or its three members at the top level; the route refuses both together. */
export const linksBody = closed({
  did: didText,
  delivery_policy_links: Type.Optional(closed(linkMembers)),
  ...linkMembers,
});

const expirationBehavior = Type.Union(expirationBehaviors.map((name) => Type.Literal(name)));

const personaPolicyMembers = {
  release_pricing: Type.Optional(
    closed({ asset: utf8Text(0, scaleBounds.assetBytes), amount: u128Text }),
  ),
  expiration_behavior: Type.Optional(
    closed({ mode: expirationBehavior, retain_until: Type.Optional(u64Text) }),
  ),
  allowed_relays: Type.Optional(
    Type.Array(utf8Text(1, scaleBounds.allowedRelayBytes), { maxItems: scaleBounds.allowedRelays }),
  ),
};

export const personaPolicyBody = closed({ did: didText, policy: closed(personaPolicyMembers) });

/** The ledger's own limits. */
const deliveryPolicyMembers = {
  effective_ttl: Type.Integer({
    minimum: 1,
    maximum: policyLimits.effectiveTtlBlocksMax,
    description: "in blocks",
  }),
  max_message_bytes: Type.Integer({ minimum: 1, maximum: policyLimits.maxMessageBytesMax }),
  cache_eligible: Type.Boolean(),
  replication: Type.Optional(Type.Integer({ minimum: 1, maximum: policyLimits.replicationMax })),
  encrypted_header_preview_bytes: Type.Optional(
    Type.Integer({ minimum: 0, maximum: policyLimits.headerPreviewBytesMax }),
  ),
  release_pricing: Type.Optional(closed({ base_fee: feeText, per_kib_fee: feeText })),
  expiration_behavior: Type.Optional(expirationBehavior),
};

/** A policy as nodes read it: a later Directory may add members. */
export const deliveryPolicyShape = Type.Object(deliveryPolicyMembers);
export const personaPolicyShape = Type.Object(personaPolicyMembers);

export const deliveryPolicyBody = closed({ did: didText, policy: closed(deliveryPolicyMembers) });

export const deliveryPolicyAnswer = Type.Object({
  did: didText,
  scope: namedText(["recipient", "tag"]),
  policy: Type.Required(deliveryPolicyShape),
});

export const personaPolicyAnswer = Type.Object({
  did: didText,
  scope: namedText(["persona"]),
  policy: personaPolicyShape,
});
