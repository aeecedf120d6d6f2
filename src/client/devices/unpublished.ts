/**
 * Keys that another device has made, and whose document it could not publish before it was
 * lost: what a removed device had in the document still counts. Any device that has the keys
 * in force can publish it.
 * Source: docs/trust.md ("Own devices").
 */
import { equalBytes } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { isSelfCertifying } from "../../core/ledger/names.ts";
import { attempt, ClientError } from "../base/failure.ts";
import { ed25519PublicKey } from "../keys/crypto.ts";
import type { Identity } from "../keys/keys.ts";
import type { OwnIdentity } from "../mail/own-identity.ts";
import { removedKey } from "../store/keys.ts";
import type { OwnStore } from "../store/own-store.ts";
import { peersOf } from "./replica.ts";

/**
 * Whether the root key in force is this device's, and the document that of an earlier one. Throws
 * where the Directory can't be asked.
 */
async function isUnpublished({ client, secrets }: OwnIdentity): Promise<boolean> {
  const { did, rootSeed, nextRootSeed } = secrets;
  if (nextRootSeed !== null || !isSelfCertifying(did)) return false;
  const { rootKeys, baseRoot } = await client.trust.prove(did, null);
  const isHeld = equalBytes(rootKeys.at(-1) as Uint8Array, await ed25519PublicKey(rootSeed));
  return isHeld && baseRoot < rootKeys.length - 1;
}

/**
 * Ends such a removal, at the user's call. Says whether nothing is left to do: the device was one
 * of those that had been removed by it, or a removal of it has ended before. Throws where only the
 * Directory knows that.
 */
export async function isRemoved(
  { identity, table }: OwnStore,
  did: string,
  ring: { readonly devices: () => Promise<readonly { readonly did: Did }[]> },
  publish: (next: Identity) => Promise<void>,
): Promise<boolean> {
  const isEnding = await attempt(() => isUnpublished(identity));
  if (isEnding === true) await publish(identity.secrets);
  const there = [...(await peersOf(table)), ...(await ring.devices())];
  // Without the Directory a removal begins none the less: the next start goes on with it.
  if (there.some((one) => one.did === did)) return false;
  const wasRemoved = (await table.get(removedKey(table, did))) !== null;
  if (wasRemoved && isEnding instanceof ClientError) throw isEnding;
  return isEnding === true || wasRemoved;
}
