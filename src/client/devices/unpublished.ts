/**
 * Keys that another device has made, and whose document it could not publish before it was
 * lost: what a removed device had in the document still counts. Any device that has the keys
 * in force can publish it.
 * Source: docs/trust.md ("Own devices").
 */
import { decodeHex, equalBytes } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { parseMethodKey } from "../../core/ledger/account.ts";
import { isSelfCertifying } from "../../core/ledger/names.ts";
import { attempt, ClientError, localError } from "../base/failure.ts";
import { ed25519PublicKey } from "../keys/crypto.ts";
import { type Identity, nameOfSeed } from "../keys/keys.ts";
import type { OwnIdentity } from "../mail/own-identity.ts";
import { removedKey } from "../store/keys.ts";
import type { OwnStore } from "../store/own-store.ts";
import { activeDocument } from "../trust/client.ts";
import { provenRoot } from "./proven.ts";
import { peersOf } from "./replica.ts";

/**
 * Whether the document is of the root key in force: `here` when it is not and this device has that
 * key, `elsewhere` when it lacks it.
 */
type Publishing = "done" | "here" | "elsewhere";

/** Throws where the Directory can't be asked. */
async function publishingOf({ client, secrets }: OwnIdentity): Promise<Publishing> {
  const { did, rootSeed, nextRootSeed } = secrets;
  const root = await provenRoot(client, did);
  const inForce = decodeHex(root.root) as Uint8Array;
  const seeds = nextRootSeed === null ? [rootSeed] : [rootSeed, nextRootSeed];
  const isIt = async (seed: Uint8Array) => equalBytes(inForce, await ed25519PublicKey(seed));
  const areIt = await Promise.all(seeds.map(isIt));
  const held = seeds.find((_, i) => areIt[i]);
  const isPublished = isSelfCertifying(did)
    ? (await client.trust.prove(did, null)).baseRoot === root.number
    : root.number === 0 || (held !== undefined && (await hasMethodOf(client, secrets, held)));
  if (isPublished) return "done";
  return held === undefined ? "elsewhere" : "here";
}

/**
 * What nothing proves, the document shows to who has the keys: those that were made with the root
 * key are in it or not.
 */
async function hasMethodOf(
  client: OwnIdentity["client"],
  { did, methods }: Identity,
  rootSeed: Uint8Array,
): Promise<boolean> {
  const made = methods.filter(({ under }) => under === nameOfSeed(rootSeed));
  const own = await Promise.all(made.map(({ secret }) => ed25519PublicKey(secret)));
  const { verificationMethod } = await activeDocument(client, did);
  return verificationMethod.some((one) => {
    const key = parseMethodKey(one);
    return key !== null && own.some((each) => equalBytes(each, key));
  });
}

/**
 * Ends such a removal, at the user's call. Says whether nothing is left to do: the device was one
 * of those that had been removed by it, or a removal of it has ended before. Throws where only the
 * Directory knows that, and `behind` where only a device with the keys in force can end it.
 */
export async function isRemoved(
  { identity, table }: OwnStore,
  did: string,
  ring: { readonly devices: () => Promise<readonly { readonly did: Did }[]> },
  publish: (held: Identity) => Promise<unknown>,
): Promise<boolean> {
  const publishing = await attempt(() => publishingOf(identity));
  if (publishing === "here") await publish(identity.secrets);
  const there = [...(await peersOf(table)), ...(await ring.devices())];
  // Without the Directory a removal begins none the less: the next start goes on with it.
  if (there.some((one) => one.did === did)) return false;
  const wasRemoved = (await table.get(removedKey(table, did))) !== null;
  if (wasRemoved && publishing instanceof ClientError) throw publishing;
  if (wasRemoved && publishing === "elsewhere")
    throw localError(
      "behind",
      "another device has replaced the keys, and the document is not theirs yet: open that device, or one that has them",
    );
  return publishing === "here" || wasRemoved;
}
