/**
 * Guardians: the seed of the root key, split so that any two of three people can restore it and none of them alone knows
 * anything. Each gets a share as a sealed message and gives it back on another way, when asked in person. The DID stays and
 * the ledger learns nothing. Two guardians together could take the identity.
 * Source: docs/client.md "Lost and found", D397; Shamir 1979.
 */
import { combine, split } from "shamir-secret-sharing";
import { encodeHex, equalBytes } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { parseMethodKey, sealingKeyOf } from "../../core/ledger/account.ts";
import { localError } from "../base/failure.ts";
import { guardiansShape, shareShape } from "../base/kept.ts";
import { parseKept, renderKept } from "../base/shapes.ts";
import { ed25519PublicKey } from "../keys/crypto.ts";
import { type KeyStore, reliable, type TextStore } from "../keys/key-stores.ts";
import { type Identity, newIdentity, renderIdentity } from "../keys/keys.ts";
import { changeIdentity } from "../keys/stored.ts";
import type { MessageOptions } from "../mail/send.ts";
import { provingAt, waitingDefault } from "../net/directory.ts";
import { activeDocument, type Client, connect, lookUp, rootKeyOf } from "../trust/client.ts";
import { recall } from "../trust/trust.ts";
import { inForce, nextIdentity, publishKeys } from "./new-keys.ts";

export const shareType = "application/vnd.waypost.guardian-share+json";

const [sharesCount, sharesNeeded] = [3, 2];
const memoryKey = "guardians";

type Owner = {
  readonly client: Client;
  readonly identity: Identity;
  readonly send: (
    to: string,
    content: { readonly [member: string]: string | number },
    options: MessageOptions,
  ) => Promise<unknown>;
};

type Share = { readonly did: Did; readonly rootKey: Uint8Array; readonly share: Uint8Array };

/** Remembered before the shares are sent, so that an interrupted appointment is repeated. */
export async function appointGuardians(
  owner: Owner,
  guardians: readonly string[],
  memory: TextStore,
): Promise<void> {
  const dids = new Set(await Promise.all(guardians.map((name) => lookUp(owner.client, name))));
  if (guardians.length !== sharesCount || dids.size !== sharesCount || dids.has(owner.identity.did))
    throw localError("invalid_argument", `guardians are ${sharesCount} different people`);
  const to = [...dids];
  await memory.save(memoryKey, renderKept({ to, rootKey: null }));
  const rootKey = await ed25519PublicKey(owner.identity.rootSeed);
  const shares = await split(owner.identity.rootSeed, sharesCount, sharesNeeded);
  for (const [i, share] of shares.entries()) {
    const content = {
      v: 1,
      did: owner.identity.did,
      rootKey: encodeHex(rootKey),
      share: encodeHex(share),
    };
    await owner.send(to[i] as string, content, { mediaType: shareType, receipt: false });
  }
  await memory.save(memoryKey, renderKept({ to, rootKey }));
}

/** Sends new shares when the guardians have those of another root key. */
export async function renewGuardians(owner: Owner, memory: TextStore): Promise<void> {
  const known = await recall(memory, memoryKey, guardiansShape);
  if (known === null) return;
  const rootKey = await ed25519PublicKey(owner.identity.rootSeed);
  if (known.rootKey === null || !equalBytes(known.rootKey, rootKey))
    await appointGuardians(owner, known.to, memory);
}

export type Restoration = {
  /** Texts of the messages that the guardians got: two, or all three. */
  readonly shares: readonly string[];
  readonly directoryUrl: string;
  readonly keys: KeyStore;
  readonly name?: string;
};

/**
 * Restores the root key, checks it against the public key, and replaces all keys. Throws `share_unreadable`,
 * `share_false`, `name_taken`, and `root_replaced` when the root key was replaced since.
 */
export async function restoreFromGuardians({
  shares,
  directoryUrl,
  name = "default",
  ...rest
}: Restoration): Promise<Identity> {
  const keys = reliable(rest.keys);
  const { did, rootKey, seed } = await rootOf(shares.map(parseShare));
  const client = connect({ directoryUrl, relayUrl: directoryUrl });
  if (!equalBytes(await rootKeyOf(client, did), rootKey))
    throw localError("root_replaced", "the root key was replaced after these shares were made");
  const document = await activeDocument(client, did);
  await provingAt(client);
  const made = newIdentity({ name, did, rootSeed: seed, ledger: client.known.ledger });
  const own = document.verificationMethod.filter((one) =>
    equalBytes(parseMethodKey(one) ?? new Uint8Array(0), rootKey),
  );
  const methods = [...own.map(({ id }) => ({ id, secret: seed })), ...made.methods];
  const sealing = sealingKeyOf(document)?.id;
  const agreements = made.agreements.map((one) => ({ ...one, id: sealing ?? one.id }));
  // Who has lost the keys, or had them stolen, keeps none of them.
  const identity = nextIdentity({ ...made, methods, agreements }, Date.now());
  if (!(await keys.replace(name, null, renderIdentity(identity))))
    throw localError("name_taken", `an identity called ${name} already exists`);
  const renewed = await publishKeys(client, identity, waitingDefault);
  return changeIdentity(keys, identity, (stored) => inForce(stored, renewed));
}

function parseShare(text: string): Share {
  const kept = parseKept(text, shareShape);
  if (kept?.share.length === 33) return kept;
  throw localError("share_unreadable", "this is not a share of a guardian");
}

/** Of three shares, one may be false: the two others show it. */
async function rootOf(shares: readonly Share[]): Promise<Share & { readonly seed: Uint8Array }> {
  for (const [i, a] of shares.entries())
    for (const b of shares.slice(i + 1)) {
      // The last byte numbers the shares of one splitting. One guardian alone must not name the DID.
      if (a.did !== b.did || a.share.at(-1) === b.share.at(-1)) continue;
      const seed = await combine([a.share, b.share]);
      if (equalBytes(await ed25519PublicKey(seed), a.rootKey)) return { ...a, seed };
    }
  throw localError(
    "share_false",
    "these shares lead to no root key: one is false, or they don't belong together",
  );
}
