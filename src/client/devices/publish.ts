/**
 * Publishes the keys of an identity after a removal of a device or a restoration: root key, methods, and the key that others
 * seal to. Called again after an interruption, it does what is left.
 * Source: docs/client.md "Devices" and "Guardians", D281.
 */
import { equalBytes, renderAgreementKey, renderPublicKey } from "../../core/codec/bytes.ts";
import type { DidDocument } from "../../core/ledger/account.ts";
import { isSelfCertifying } from "../../core/trust/names.ts";
import { change, replaceDocument } from "../change.ts";
import { activeDocument, type Client, rootKeyOf } from "../client.ts";
import { ed25519PublicKey, x25519PublicKey } from "../crypto.ts";
import type { Waiting } from "../directory.ts";
import type { Identity } from "../keys.ts";

/** `next` has the new secrets behind the old ones, and a new root key as the next. */
export async function publishKeys(client: Client, next: Identity, waiting: Waiting): Promise<Identity> {
  const { did, nextRootSeed } = next;
  const rootSeed = nextRootSeed ?? next.rootSeed;
  const newRootPubkey = await ed25519PublicKey(rootSeed);
  if (!equalBytes(await rootKeyOf(client, did), newRootPubkey)) {
    const signer = { keyId: "root", seed: next.rootSeed };
    await change(client, { action: "UpdateRootPubkey", did, newRootPubkey }, { signer, waiting });
  }
  const before = await activeDocument(client, did);
  const document = await withNewKeys(before, next);
  if (isSelfCertifying(did)) await replaceDocument(client, did, { rootSeed, edited: () => document, waiting });
  else {
    const options = { signer: { keyId: "root", seed: rootSeed }, waiting };
    for (const [i, verificationMethod] of document.verificationMethod.entries())
      if (verificationMethod !== before.verificationMethod[i])
        await change(client, { action: "UpdateVerificationMethod", did, verificationMethod }, options);
    for (const keyAgreement of document.keyAgreement)
      await change(client, { action: "UpdateKeyAgreement", did, keyAgreement }, options);
  }
  return { ...next, rootSeed, nextRootSeed: null };
}

/** Of each id the last secret counts. Others of the key agreements could be opened by a lost or removed device: they go. */
async function withNewKeys(document: DidDocument, { did, methods, agreements }: Identity): Promise<DidDocument> {
  const verificationMethod = document.verificationMethod.map(async (method) => {
    const held = methods.findLast(({ id }) => id === method.id);
    const key = held === undefined ? method.publicKeyMultibase : renderPublicKey(await ed25519PublicKey(held.secret));
    return key === method.publicKeyMultibase ? method : { ...method, publicKeyMultibase: key };
  });
  const keyAgreement = agreements.slice(-1).map(async ({ id, secret }) => ({
    ...{ id, type: "Multikey", controller: did },
    ...document.keyAgreement.find((one) => one.id === id),
    publicKeyMultibase: renderAgreementKey(await x25519PublicKey(secret)),
  }));
  return {
    ...document,
    verificationMethod: await Promise.all(verificationMethod),
    keyAgreement: await Promise.all(keyAgreement),
  };
}
