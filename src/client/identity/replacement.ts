/**
 * What a replacement of all keys would drop from the own record, for the user to tick what stays. Loaded on demand.
 * Source: docs/client.md "Lost and found", docs/trust.md "Own devices".
 */
import { renderAgreementKey } from "../../core/codec/bytes.ts";
import { bundleAgreement, parseMethodKey } from "../../core/ledger/account.ts";
import { x25519PublicKey } from "../keys/crypto.ts";
import { heldSeed, type Identity } from "../keys/keys.ts";
import { activeDocument, type Client } from "../trust/client.ts";
import { hostOf, loadOwnHosts } from "../trust/hosts.ts";
import { loadAddedKeys } from "../trust/own.ts";

/** Something of the document. `stays`: this device has made, added or named it, so that it stays unless the user says otherwise. */
type Listed = { readonly id: string; readonly stays: boolean };

export type RecordReplacement = {
  /** Keys that sign as the identity, apart from those of this device. */
  readonly methods: readonly (Listed & { readonly publicKey: string })[];
  /** Keys to seal to that this device can't open with; none of them stays. */
  readonly agreements: readonly Listed[];
  readonly services: readonly (Listed & {
    readonly type: string;
    readonly endpoints: readonly string[];
  })[];
};

/** Of the document that is proven now. */
export async function recordReplacement(
  client: Client,
  identity: Identity,
): Promise<RecordReplacement> {
  const { did } = identity;
  const document = await activeDocument(client, did);
  const [added, hosts] = [await loadAddedKeys(client, did), await loadOwnHosts(client, did)];
  const opened = await Promise.all(
    identity.agreements.map(async ({ secret }) =>
      renderAgreementKey(await x25519PublicKey(secret)),
    ),
  );
  const methods: { id: string; stays: boolean; publicKey: string }[] = [];
  for (const one of document.verificationMethod) {
    const key = parseMethodKey(one);
    const { id, publicKeyMultibase: publicKey } = one;
    const held = key === null ? null : await heldSeed(identity, key);
    if (held === null) methods.push({ id, publicKey, stays: added.includes(publicKey) });
  }
  return {
    methods,
    // That bundles are published is no key: it stays, and the next bundle is signed anew.
    agreements: document.keyAgreement
      .filter(({ type }) => type !== bundleAgreement.type)
      .filter(({ publicKeyMultibase }) => !opened.includes(publicKeyMultibase))
      .map(({ id }) => ({ id, stays: false })),
    services: document.service.map(({ id, type, serviceEndpoint }) => {
      const stays = hosts === null || serviceEndpoint.some((url) => hosts.includes(hostOf(url)));
      return { id, type, endpoints: serviceEndpoint, stays };
    }),
  };
}
