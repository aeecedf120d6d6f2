/**
 * Who reads at a node, and the proof of each request: signed with a new nonce, by a key that the
 * service in the document authorizes.
 * Source: interface "Signed Cache proof".
 */
import { encodeBase64 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { renderTimestamp } from "../../core/codec/time.ts";
import {
  encodeRetrievalProof,
  type ProofNames,
  type RetrievalOperation,
  retrievalHeaders,
} from "../../core/message/proof.ts";
import { randomUuid, type Signer, signEd25519 } from "../keys/crypto.ts";
import type { Endpoint } from "./http.ts";

/** Who reads where: one endpoint of one service of the recipient. */
export type Reader = {
  readonly did: Did;
  readonly serviceId: string;
  readonly at: Endpoint;
  readonly signer: Signer;
};

/**
 * The proof of one request under the names of its place: time and nonce are new each time. Only a
 * live session has a device.
 */
export async function proveRequest(
  { did, serviceId, at, signer }: Reader,
  { operation, subject }: { readonly operation: RetrievalOperation; readonly subject: string },
  names: ProofNames,
): Promise<Record<string, string>> {
  const claims = {
    operation,
    did,
    deviceId: operation === "connect" ? subject : "",
    serviceId,
    endpoint: at.url,
    keyId: signer.keyId,
    timestamp: renderTimestamp(Date.now() + at.clock.aheadMs),
    nonce: randomUuid(),
    subject,
  };
  const signature = encodeBase64(await signEd25519(encodeRetrievalProof(claims), signer.seed));
  const values = { ...claims, signature };
  return Object.fromEntries(
    Object.entries(names).map(([name, as]) => [as, values[name as keyof ProofNames]]),
  );
}

/** The headers of a request that proves who reads. */
export const proofHeaders = (reader: Reader, operation: RetrievalOperation, subject: string) =>
  proveRequest(reader, { operation, subject }, retrievalHeaders);
