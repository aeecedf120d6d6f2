/**
 * Gathers what `decidePolicy` needs to know of one recipient and one tag, in one round of parallel reads,
 * and the time of a block only for a policy that counts in blocks.
 * Shared by the Relay and the Cache, so that both judge by the same policy.
 * Source: decisions section 4 ("Recipient policy").
 */
import type { PersonaPolicy, PolicyFacts } from "../core/message/policy.ts";
import type { RecipientSource, Subject } from "./recipients.ts";

/** Throws `unavailable` when the source can't be asked: no policy is ever guessed. */
export async function gatherPolicyFacts(
  source: RecipientSource,
  recipient: Subject,
  tag: string | null,
): Promise<PolicyFacts> {
  const { links } = recipient;
  const personas = links?.personaPolicies ?? [];
  const [tagPolicy, recipientPolicy, ...personaPolicies] = await Promise.all([
    tag === null ? null : source.policy("tag", tag),
    source.policy("recipient", links?.recipientPolicy ?? recipient.did),
    ...personas.map((persona) => source.persona(persona)),
  ]);
  const counts = tagPolicy !== null || recipientPolicy !== null;
  const blockTimeMs = counts ? await source.blockTimeMs() : 0;
  const known = personaPolicies.filter((policy): policy is PersonaPolicy => policy !== null);
  return { links, tag, tagPolicy, recipientPolicy, personaPolicies: known, blockTimeMs };
}
