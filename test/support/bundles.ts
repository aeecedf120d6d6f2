/**
 * Key bundles of a person of `cache-node.ts`, and of anyone else who has a DID and a key that
 * signs.
 */
import { ed25519, x25519 } from "@noble/curves/ed25519.js";
import { encodeBase64, renderAgreementKey } from "../../src/core/codec/bytes.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { dayMs } from "../../src/core/codec/time.ts";
import { bundleAgreement } from "../../src/core/ledger/account.ts";
import {
  bundleKeyBytes,
  bundleKeyId,
  encodeBundleText,
  type KeyBundle,
  renderBundle,
} from "../../src/core/message/bundle.ts";
import { encodeRetrievalProof } from "../../src/core/message/proof.ts";
import { keyPair, methodOf } from "./identity.ts";
import { registerAt } from "./nodes.ts";

type BundleMaker = { readonly did: Did; readonly seed: Uint8Array; readonly keyId: string };

/** A key that parses, filled with a number of at most 12. */
export const bundleKey = (fill: number): Uint8Array => new Uint8Array(bundleKeyBytes).fill(fill);

/** Signed by the maker; valid for seven days where `change` says nothing else. */
export function bundleOf(
  { did, seed, keyId }: BundleMaker,
  issuedAtMs: number,
  change: Partial<Omit<KeyBundle, "signature">> = {},
): KeyBundle {
  const publicKey = change.publicKey ?? bundleKey(7);
  const unsigned = {
    did,
    keyId: bundleKeyId(publicKey),
    publicKey,
    issuedAtMs,
    notAfterMs: issuedAtMs + 7 * dayMs,
    signer: keyId,
    ...change,
  };
  return { ...unsigned, signature: ed25519.sign(encodeBundleText(unsigned), seed) };
}

const seed = new Uint8Array(32).fill(4);
const makerDid = "did:svc:1111111111111111111144" as Did;
/** One whose document `registerMaker` makes. */
export const maker: BundleMaker = { did: makerDid, seed, keyId: `${makerDid}#root` };

/**
 * Registers `maker` at the nodes of an address, with a document that announces bundles at their
 * Cache.
 */
export async function registerMaker(url: string): Promise<void> {
  const { did } = maker;
  const identity = { did, root: keyPair(seed), label: "own" };
  const method = methodOf(did, "root", identity.root);
  const agreement = (id: string, type: string, publicKeyMultibase: string) => ({
    id: `${did}#${id}`,
    type,
    controller: did,
    publicKeyMultibase,
  });
  await registerAt(url, identity, {
    id: did,
    verificationMethod: [method],
    authentication: [method.id],
    keyAgreement: [
      agreement("x", "X25519KeyAgreementKey2020", renderAgreementKey(x25519.getPublicKey(seed))),
      agreement("v2", bundleAgreement.type, bundleAgreement.publicKeyMultibase),
    ],
    service: [
      {
        id: `${did}#cache`,
        type: "SvcCacheService",
        serviceEndpoint: [url],
        authorization: [method.id],
      },
    ],
  });
}

/** `PUT /cache/keys/{did}` by `maker`. */
export function putBundle(url: string, bundle: KeyBundle): Promise<Response> {
  const body = JSON.stringify(renderBundle(bundle));
  const claims = {
    operation: "keys",
    did: maker.did,
    deviceId: "",
    serviceId: `${maker.did}#cache`,
    endpoint: url,
    keyId: maker.keyId,
    timestamp: new Date().toISOString(),
    nonce: crypto.randomUUID(),
    subject: new Bun.CryptoHasher("sha256").update(body).digest("hex"),
  };
  return fetch(`${url}/cache/keys/${maker.did}`, {
    method: "PUT",
    headers: {
      "content-type": "application/json",
      "X-Service-Id": claims.serviceId,
      "X-Cache-Endpoint": claims.endpoint,
      "X-Key-Id": claims.keyId,
      "X-Timestamp": claims.timestamp,
      "X-Nonce": claims.nonce,
      "X-Signature": encodeBase64(ed25519.sign(encodeRetrievalProof(claims), seed)),
    },
    body,
  });
}
