/**
 * Shapes of policies and of the links to them, as written and as answered. Bounds that are numbers of a schema stand
 * here; those of texts in bytes, and of fees, are checked by the route.
 * Source: interface "Recipient delivery policy" and "Persona delivery policy", docs/ledger.md 2.7.
 */
import { Type } from "@sinclair/typebox";
import { scaleBounds } from "../ledger/bounds.ts";
import { exampleDid } from "../ledger/example.ts";
import { expirationBehaviors, policyLimits } from "../ledger/policy.ts";
import { closed, didText, namedText, nullable, open, u64Text, u128Text } from "./schema.ts";

const linkText = Type.String({ minLength: 1 });
const linkMembers = {
  recipient_policy: Type.Optional(nullable(linkText, "DID whose recipient policy counts; null is none")),
  tag_policies: Type.Optional(Type.Array(linkText, { description: "admitted tags" })),
  persona_policies: Type.Optional(Type.Array(linkText, { description: "persona DIDs" })),
};

export const exampleLinks = { recipient_policy: exampleDid, tag_policies: ["news"], persona_policies: [] };

/** One of two forms: the object, or its three members at the top level; the route refuses both together. */
export const linksBody = closed(
  { did: didText, delivery_policy_links: Type.Optional(closed(linkMembers, exampleLinks)), ...linkMembers },
  { did: exampleDid, delivery_policy_links: exampleLinks },
);

const expirationBehavior = Type.Union(expirationBehaviors.map((name) => Type.Literal(name)));

const personaPolicyMembers = {
  release_pricing: Type.Optional(
    closed({ asset: Type.String({ maxLength: scaleBounds.assetBytes }), amount: u128Text }),
  ),
  expiration_behavior: Type.Optional(closed({ mode: expirationBehavior, retain_until: Type.Optional(u64Text) })),
  allowed_relays: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: scaleBounds.allowedRelayBytes }), {
      maxItems: scaleBounds.allowedRelays,
    }),
  ),
};

const examplePersonaPolicy = {
  release_pricing: { asset: "SVC", amount: "1000" },
  expiration_behavior: { mode: "DeleteOnExpiry", retain_until: "1893456000000" },
  allowed_relays: ["relay-1"],
};

export const personaPolicyBody = closed(
  { did: didText, policy: closed(personaPolicyMembers) },
  { did: exampleDid, policy: examplePersonaPolicy },
);

/** The ledger's own limits; those of fees, which are texts, are checked by the route. */
const deliveryPolicyMembers = {
  effective_ttl: Type.Integer({ minimum: 1, maximum: policyLimits.effectiveTtlBlocksMax, description: "in blocks" }),
  max_message_bytes: Type.Integer({ minimum: 1, maximum: policyLimits.maxMessageBytesMax }),
  cache_eligible: Type.Boolean(),
  replication: Type.Optional(Type.Integer({ minimum: 1, maximum: policyLimits.replicationMax })),
  encrypted_header_preview_bytes: Type.Optional(
    Type.Integer({ minimum: 0, maximum: policyLimits.headerPreviewBytesMax }),
  ),
  release_pricing: Type.Optional(closed({ base_fee: u128Text, per_kib_fee: u128Text })),
  expiration_behavior: Type.Optional(expirationBehavior),
};

const exampleDeliveryPolicy = {
  effective_ttl: 14_400,
  max_message_bytes: 1_048_576,
  cache_eligible: true,
  replication: 2,
  encrypted_header_preview_bytes: 256,
  release_pricing: { base_fee: "10", per_kib_fee: "1" },
  expiration_behavior: "DeleteOnExpiry",
};

export const deliveryPolicyBody = closed(
  { did: didText, policy: closed(deliveryPolicyMembers) },
  { did: exampleDid, policy: exampleDeliveryPolicy },
);

export const deliveryPolicyAnswer = open(
  {
    did: didText,
    scope: namedText(["recipient", "tag"]),
    policy: Type.Required(Type.Object(deliveryPolicyMembers)),
  },
  { did: exampleDid, scope: "recipient", policy: exampleDeliveryPolicy },
);

export const personaPolicyAnswer = open(
  { did: didText, scope: namedText(["persona"]), policy: Type.Object(personaPolicyMembers) },
  { did: exampleDid, scope: "persona", policy: examplePersonaPolicy },
);
