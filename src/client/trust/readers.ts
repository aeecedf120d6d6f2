/**
 * Where an identity receives: the Caches and Relays that its document names and that
 * authorize a key of this device.
 * Source: interface "Signed Cache proof".
 */
import { withoutTrailingSlashes } from "../../core/message/proof.ts";
import { localError } from "../base/failure.ts";
import type { Identity } from "../keys/keys.ts";
import { endpoint } from "../net/http.ts";
import type { Reader } from "../net/reader.ts";
import { activeDocument, type Client, signerIn } from "./client.ts";

/** Every Relay that the identity's document names and where one of its keys may listen. */
export function liveEndpoints(client: Client, identity: Identity): Promise<Reader[]> {
  return readersOf(client, identity, "Relay");
}

/** By priority. Each Cache may hold a copy, or part of a group. Throws `no_cache` or `no_relay`. */
export async function readersOf(
  client: Client,
  identity: Identity,
  node: "Cache" | "Relay",
): Promise<Reader[]> {
  const readers: Reader[] = [];
  const document = await activeDocument(client, identity.did);
  const services = document.service.filter(({ type }) => type === `Svc${node}Service`);
  services.sort((a, b) => (a.priority ?? Number.MAX_VALUE) - (b.priority ?? Number.MAX_VALUE));
  for (const { id: serviceId, authorization, serviceEndpoint } of services) {
    const signer = await signerIn(identity, document, authorization ?? []);
    if (signer === null) continue;
    for (const url of new Set(serviceEndpoint.map(withoutTrailingSlashes)))
      readers.push({ did: identity.did, serviceId, at: endpoint(url, client.timeoutMs), signer });
  }
  if (readers.length > 0) return readers;
  throw localError(
    `no_${node.toLowerCase()}`,
    `the document names no ${node} that authorizes a key of this device`,
  );
}
