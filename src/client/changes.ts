/**
 * Changes of an identity, submitted and waited for: every change of its document, and the
 * updates whose proof travels in headers. Apart from `client.ts`, because a program needs this once a week
 * and loads it then.
 * Source: interface "States and transitions", rules section 4.
 */
import type { Intent } from "../core/ledger/intents.ts";
import type { Accepted, Resolved } from "./answers.ts";
import { nonceDomainOf, type OwnerUpdate, type Signer, signIntent, signOwnerUpdate } from "./change.ts";
import type { Client } from "./client.ts";
import { confirmChange, confirmDeletion, type Waiting } from "./confirm.ts";
import { provingAt } from "./proving.ts";
import { recordShows } from "./settled.ts";

/** `record` is `null` when nobody waited, and after a deletion. */
export type Changed = { readonly accepted: Accepted; readonly record: Resolved | null };

/** Signs and submits a change with the counter value of now, and waits for it when `waiting` is given. */
export async function change(
  client: Client,
  intent: Intent,
  options: { readonly signer: Signer; readonly waiting: Waiting | null },
): Promise<Changed> {
  const { directory } = client;
  const domain = nonceDomainOf(intent.action);
  const [nonces, { genesisHash }] = await Promise.all([directory.nonces(intent.did), provingAt(client)]);
  const value = BigInt(nonces[domain] ?? "0");
  const submission = await signIntent(intent, options.signer, { nonce: value, nowMs: Date.now(), genesisHash });
  const send = domain === "alias_nonce" ? directory.updateAlias : directory.update;
  const accepted = await send(submission);
  if (options.waiting === null) return { accepted, record: null };
  const submitted = { did: intent.did, txHash: accepted.tx_hash };
  if (intent.action === "delete_did") {
    await confirmDeletion(directory, submitted, options.waiting);
    return { accepted, record: null };
  }
  const holds = (record: Resolved) => recordShows(intent, record);
  const expected = { ...submitted, counter: { domain, value }, holds };
  return { accepted, record: await confirmChange(directory, expected, options.waiting) };
}

/** The same for primary alias, policy links and policies, whose proof travels in headers. */
export async function changeAsOwner(
  client: Client,
  update: OwnerUpdate,
  options: { readonly signer: Signer; readonly waiting: Waiting | null },
): Promise<Changed> {
  const accepted = await client.directory.submitExtrinsic(await signOwnerUpdate(update, options.signer, Date.now()));
  if (options.waiting === null) return { accepted, record: null };
  const expected = { did: update.did, txHash: accepted.tx_hash, counter: null, holds: () => true };
  return { accepted, record: await confirmChange(client.directory, expected, options.waiting) };
}
