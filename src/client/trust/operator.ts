/**
 * Whom reports go to: the identity that the node of the own Directory names, remembered like that
 * of an alias. The node can name anyone, also the author of what is reported: a name that differs
 * from the remembered one is shown to the user first.
 * Source: docs/trust.md "The operator".
 */
import { type Did, isDid } from "../../core/codec/did.ts";
import { about } from "../net/about.ts";
import type { About } from "../net/answers.ts";
import type { Client } from "./client.ts";
import { distrust, loadAlias } from "./trust.ts";

/** `before`: whom the node named before, where that was somebody else. */
export type Operator = { readonly did: Did; readonly before: Did | null };

/** No alias has a space. */
export const operatorName = ({ directory }: Pick<Client, "directory">): string =>
  `operator of ${directory.endpoint.url}`;

/** `null` where the node names no one. Nothing is remembered. */
export const operatorAt = async (client: Client): Promise<Operator | null> =>
  operatorIn(client, await about(client.directory.endpoint));

/** The same in what the node says of itself. */
export async function operatorIn(client: Client, said: About): Promise<Operator | null> {
  const did = said.operator?.did ?? null;
  if (did === null || !isDid(did)) return null;
  const before = await loadAlias(client.known.memory, operatorName(client));
  return { did, before: before === did ? null : before };
}

/**
 * Remembers the operator that the node names, if it is the remembered one, or the one whom the user
 * has `agreed` to. Throws `identity_changed`, and what a proof of the identity throws.
 */
export async function believeOperator(
  client: Client,
  { did, before }: Operator,
  agreed: Did | null,
): Promise<void> {
  if (agreed !== null && agreed !== did)
    throw distrust("identity_changed", `the node names ${did} as its operator, and not ${agreed}`);
  const name = operatorName(client);
  if (agreed !== null && before !== null) await client.trust.forget(name);
  await client.trust.nameOf(name, did);
}
