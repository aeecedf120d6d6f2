/**
 * Publishes the keys that a removal made: root key, methods, and the key that others seal to. Called again after an
 * interruption, it does what is left.
 * Source: docs/client.md "Devices", D281.
 */
import { equalBytes, renderAgreementKey, renderPublicKey } from "../../core/codec/bytes.ts";
import type { DidDocument } from "../../core/ledger/account.ts";
import { isSelfCertifying } from "../../core/trust/names.ts";
import { change, replaceDocument } from "../change.ts";
import { activeDocument, type Client, rootKeyOf } from "../client.ts";
import { ed25519PublicKey, x25519PublicKey } from "../crypto.ts";
import type { Waiting } from "../directory.ts";
import type { Identity } from "../keys.ts";

/** `next` has the new secrets behind the old ones, and the new root key as the next. */
export async function publishKeys(client: Client, next: Identity, waiting: Waiting): Promise<Identity> {
  const { did, nextRootSeed } = next;
  const rootSeed = nextRootSeed ?? next.rootSeed;
  const newRootPubkey = await ed25519PublicKey(rootSeed);
  if (!equalBytes(await rootKeyOf(client, did), newRootPubkey)) {
    const signer = { keyId: "root", seed: next.rootSeed };
    await change(client, { action: "UpdateRootPubkey", did, newRootPubkey }, { signer, waiting });
  }
  const document = await withNewKeys(await activeDocument(client, did), next);
  if (isSelfCertifying(did)) await replaceDocument(client, did, { rootSeed, edited: () => document, waiting });
  else {
    const options = { signer: { keyId: "root", seed: rootSeed }, waiting };
    for (const verificationMethod of document.verificationMethod)
      await change(client, { action: "UpdateVerificationMethod", did, verificationMethod }, options);
    for (const keyAgreement of document.keyAgreement)
      await change(client, { action: "UpdateKeyAgreement", did, keyAgreement }, options);
  }
  return { ...next, rootSeed, nextRootSeed: null };
}

/** Of each id the last secret counts. Others of the key agreements could be opened by the removed device: they go. */
async function withNewKeys(document: DidDocument, { methods, agreements }: Identity): Promise<DidDocument> {
  const sealing = agreements.at(-1);
  const verificationMethod = document.verificationMethod.map(async (method) => {
    const held = methods.findLast(({ id }) => id === method.id);
    const key = held === undefined ? null : renderPublicKey(await ed25519PublicKey(held.secret));
    return key === null ? method : { ...method, publicKeyMultibase: key };
  });
  const keyAgreement = document.keyAgreement
    .filter(({ id }) => id === sealing?.id)
    .map(async (one) => ({
      ...one,
      publicKeyMultibase: renderAgreementKey(await x25519PublicKey(sealing?.secret ?? new Uint8Array(32))),
    }));
  return {
    ...document,
    verificationMethod: await Promise.all(verificationMethod),
    keyAgreement: await Promise.all(keyAgreement),
  };
}
