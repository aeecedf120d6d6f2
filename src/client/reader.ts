/**
 * Where a recipient reads: its endpoints by its document, and a Cache's routes. Every request is signed with a new nonce,
 * by a key that the service in the recipient's document authorizes.
 * Source: interface "Signed Cache proof", rules section 6.
 */
import { encodeBase64 } from "../core/codec/bytes.ts";
import type { Did } from "../core/codec/did.ts";
import { renderTimestamp } from "../core/codec/time.ts";
import {
  ackSubject,
  encodeRetrievalProof,
  type RetrievalOperation,
  retrievalHeaders,
  withoutTrailingSlashes,
} from "../core/message/proof.ts";
import { ackShape, messageStateShape, messagesShape, type Shape, summaryShape } from "./answers.ts";
import { activeDocument, type Client, signerIn } from "./client.ts";
import { randomUuid, type Signer, signEd25519 } from "./crypto.ts";
import {
  ask,
  ClientError,
  type Endpoint,
  endpoint,
  followEvents,
  jsonBody,
  localError,
  path,
  queryOf,
  type StreamEvents,
} from "./http.ts";
import type { Identity } from "./keys.ts";

/** The most ids that a Cache accepts in one acknowledgement. */
export const ackIdsMax = 1_000;

/** Who reads where: one endpoint of one service of the recipient. */
export type Reader = {
  readonly did: Did;
  readonly serviceId: string;
  readonly at: Endpoint;
  readonly signer: Signer;
  /** Empty when the recipient names no device. */
  readonly deviceId: string;
};

export type CacheClient = ReturnType<typeof cacheClient>;

export function cacheClient(reader: Reader) {
  const { did, at, deviceId } = reader;
  const read = <T>(operation: RetrievalOperation, subject: string, where: string, shape: Shape<T>) =>
    atItsTime(async () =>
      ask(at, { method: "GET", path: where, headers: await proofHeaders(reader, operation, subject) }, shape),
    );
  const summaryPath = deviceId === "" ? path`/cache/summary/${did}` : path`/cache/summary/${did}/${deviceId}`;
  return {
    reader,
    /** A page of at most `limit` entries and about 1 MiB. */
    messages: (cursor: string | undefined, limit: number) =>
      read("pull", "*", `${path`/cache/messages/${did}`}${queryOf({ limit: String(limit), cursor })}`, messagesShape),
    summary: (cursor?: string) => read("summary", "*", `${summaryPath}${queryOf({ cursor })}`, summaryShape),
    message: (messageId: string) =>
      read("pull_message", messageId, path`/cache/message/${did}/${messageId}`, messageStateShape),
    /**
     * Calls `onNews` for every entry that the Cache announces, the waiting ones first. Ends when the
     * Cache ends the stream or `signal` is aborted.
     */
    stream: (events: StreamEvents, signal: AbortSignal) =>
      atItsTime(async () => {
        const headers = await proofHeaders(reader, "stream", "*");
        return followEvents(at, { path: path`/cache/stream/${did}`, headers }, { ...events, signal });
      }),
    /** Removes entries permanently. At most `ackIdsMax` ids; returns those that were there. */
    ack: (messageIds: readonly string[]) =>
      atItsTime(async () => {
        const subject = ackSubject(messageIds);
        const { endpoint: cache_endpoint, ...proof } = await prove(reader, "ack", subject);
        const body = { did, device_id: deviceId, cache_endpoint, ...proof, message_ids: subject.split(",") };
        return ask(at, { method: "POST", path: "/cache/ack", body: jsonBody(body) }, ackShape);
      }),
  };
}

/** Once more with the time of the node: a proof counts at one endpoint alone, so a clock that lies gains nothing. */
async function atItsTime<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof ClientError && error.code === "clock_wrong") return work();
    throw error;
  }
}

/** Signs one request, as members of a JSON body: time and nonce are new each time. */
export async function prove(
  { did, deviceId, serviceId, at, signer }: Reader,
  operation: RetrievalOperation,
  subject: string,
) {
  const timestamp = renderTimestamp(Date.now() + at.clock.aheadMs);
  const claims = {
    operation,
    did,
    deviceId: operation === "pull" ? "" : deviceId,
    serviceId,
    endpoint: at.url,
    keyId: signer.keyId,
    timestamp,
    nonce: randomUuid(),
    subject,
  };
  const signature = await signEd25519(encodeRetrievalProof(claims), signer.seed);
  return {
    service_id: serviceId,
    endpoint: at.url,
    key_id: signer.keyId,
    timestamp,
    nonce: claims.nonce,
    signature_b64: encodeBase64(signature),
  };
}

/** The headers of a request that proves who reads. */
export async function proofHeaders(
  reader: Reader,
  operation: RetrievalOperation,
  subject: string,
): Promise<Record<string, string>> {
  const proof = await prove(reader, operation, subject);
  return {
    [retrievalHeaders.serviceId]: proof.service_id,
    [retrievalHeaders.endpoint]: proof.endpoint,
    [retrievalHeaders.keyId]: proof.key_id,
    [retrievalHeaders.timestamp]: proof.timestamp,
    [retrievalHeaders.nonce]: proof.nonce,
    [retrievalHeaders.signature]: proof.signature_b64,
    ...(reader.deviceId === "" ? {} : { "X-Device-Id": reader.deviceId }),
  };
}

// ------------------------------------------------------------------------------------------------------- endpoints

/** Every Cache that the identity's document names and that one of its keys may read. */
export async function cachesOf(client: Client, identity: Identity, deviceId: string): Promise<CacheClient[]> {
  const readers = await readersOf(client, identity, { type: "SvcCacheService", deviceId });
  if (readers.length > 0) return readers.map(cacheClient);
  throw localError("no_cache", "the document names no Cache that authorizes a key of this device");
}

/** Every Relay that the identity's document names and where one of its keys may listen. */
export async function liveEndpoints(client: Client, identity: Identity, deviceId: string): Promise<Reader[]> {
  const readers = await readersOf(client, identity, { type: "SvcRelayService", deviceId });
  if (readers.length > 0) return readers;
  throw localError("no_relay", "the document names no Relay that authorizes a key of this device");
}

/** By priority. Each Cache may hold a copy, or part of a group. */
async function readersOf(
  client: Client,
  identity: Identity,
  { type, deviceId }: { readonly type: string; readonly deviceId: string },
): Promise<Reader[]> {
  const readers: Reader[] = [];
  const document = await activeDocument(client, identity.did);
  const services = document.service.filter((service) => service.type === type);
  services.sort((a, b) => (a.priority ?? Number.MAX_VALUE) - (b.priority ?? Number.MAX_VALUE));
  for (const { id: serviceId, authorization, serviceEndpoint } of services) {
    const signer = await signerIn(identity, document, authorization ?? []);
    if (signer === null) continue;
    for (const url of new Set(serviceEndpoint.map(withoutTrailingSlashes)))
      readers.push({ did: identity.did, serviceId, at: endpoint(url, client.timeoutMs), signer, deviceId });
  }
  return readers;
}
