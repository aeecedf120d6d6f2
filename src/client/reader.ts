/**
 * Where a recipient reads: its endpoints by its document, and a Cache's routes. Every request is signed with a new nonce,
 * by a key that the service in the recipient's document authorizes.
 * Source: interface "Signed Cache proof", rules section 6, docs/ledger.md 3.3.
 */
import { encodeBase64 } from "../core/codec/bytes.ts";
import type { Did } from "../core/codec/did.ts";
import { renderTimestamp } from "../core/codec/time.ts";
import type { DidDocument } from "../core/ledger/account.ts";
import {
  ackSubject,
  encodeRetrievalProof,
  type RetrievalOperation,
  retrievalHeaders,
  withoutTrailingSlashes,
} from "../core/message/proof.ts";
import type { Shape } from "./answers.ts";
import { ackShape, messageStateShape, messagesShape, summaryShape } from "./cache-answers.ts";
import { randomUuid, type Signer, signEd25519 } from "./crypto.ts";
import { ask, ClientError, type Endpoint, endpoint, followEvents, jsonBody, path, type StreamEvents } from "./http.ts";
import { signerOf } from "./keys.ts";

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
  const read = <T>(operation: RetrievalOperation, subject: string, request: Read, shape: Shape<T>) =>
    atItsTime(async () => {
      const headers = await proofHeaders(reader, operation, subject);
      return ask(at, { method: "GET", path: `${request.path}${queryOf(request)}`, headers }, shape);
    });
  return {
    reader,
    /** A page of at most `limit` entries and about 1 MiB. */
    messages: (cursor: string | undefined, limit: number) =>
      read("pull", "*", { path: path`/cache/messages/${did}`, cursor, limit }, messagesShape),
    summary: (cursor?: string) => read("summary", "*", { path: summaryPath(did, deviceId), cursor }, summaryShape),
    message: (messageId: string) =>
      read(
        "pull_message",
        messageId,
        { path: path`/cache/message/${did}/${messageId}`, cursor: undefined },
        messageStateShape,
      ),
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
      atItsTime(async () =>
        ask(at, { method: "POST", path: "/cache/ack", body: await ackBody(reader, messageIds) }, ackShape),
      ),
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

type Read = { readonly path: string; readonly cursor: string | undefined; readonly limit?: number };

function queryOf({ cursor, limit }: Read): string {
  const asked = [
    ...(limit === undefined ? [] : [["limit", String(limit)]]),
    ...(cursor === undefined ? [] : [["cursor", cursor]]),
  ];
  return asked.length === 0 ? "" : `?${new URLSearchParams(asked)}`;
}

function summaryPath(did: string, deviceId: string): string {
  return deviceId === "" ? path`/cache/summary/${did}` : path`/cache/summary/${did}/${deviceId}`;
}

type ProofValues = { readonly timestamp: string; readonly nonce: string; readonly signature: string };

/** Signs one request: time and nonce are new each time. */
export async function prove(reader: Reader, operation: RetrievalOperation, subject: string): Promise<ProofValues> {
  const timestamp = renderTimestamp(Date.now() + reader.at.clock.aheadMs);
  const nonce = randomUuid();
  const text = encodeRetrievalProof({
    operation,
    did: reader.did,
    deviceId: operation === "pull" ? "" : reader.deviceId,
    serviceId: reader.serviceId,
    endpoint: reader.at.url,
    keyId: reader.signer.keyId,
    timestamp,
    nonce,
    subject,
  });
  return { timestamp, nonce, signature: encodeBase64(await signEd25519(text, reader.signer.seed)) };
}

/** The headers of a request that proves who reads. */
export async function proofHeaders(
  reader: Reader,
  operation: RetrievalOperation,
  subject: string,
): Promise<Record<string, string>> {
  const { timestamp, nonce, signature } = await prove(reader, operation, subject);
  return {
    [retrievalHeaders.serviceId]: reader.serviceId,
    [retrievalHeaders.endpoint]: reader.at.url,
    [retrievalHeaders.keyId]: reader.signer.keyId,
    [retrievalHeaders.timestamp]: timestamp,
    [retrievalHeaders.nonce]: nonce,
    [retrievalHeaders.signature]: signature,
    ...(reader.deviceId === "" ? {} : { "X-Device-Id": reader.deviceId }),
  };
}

async function ackBody(reader: Reader, messageIds: readonly string[]): Promise<Uint8Array<ArrayBuffer>> {
  const subject = ackSubject(messageIds);
  const { timestamp, nonce, signature } = await prove(reader, "ack", subject);
  return jsonBody({
    did: reader.did,
    device_id: reader.deviceId,
    service_id: reader.serviceId,
    cache_endpoint: reader.at.url,
    key_id: reader.signer.keyId,
    timestamp,
    nonce,
    signature_b64: signature,
    message_ids: subject.split(","),
  });
}

export type ReaderOptions = {
  readonly serviceType: "SvcCacheService" | "SvcRelayService";
  /** Returns the seed of a key id of the document, or `null` when this device lacks it. */
  readonly seedOf: (keyId: string) => Promise<Uint8Array | null>;
  readonly deviceId: string;
  readonly timeoutMs: number;
};

/**
 * By priority, every endpoint of the document's services of a type that authorize a key of this device.
 * Each Cache may hold a copy, or part of a group.
 */
export async function readersOf(did: Did, document: DidDocument, options: ReaderOptions): Promise<Reader[]> {
  const readers: Reader[] = [];
  const services = document.service.filter((service) => service.type === options.serviceType);
  const priority = (value: number | null) => value ?? Number.POSITIVE_INFINITY;
  services.sort((a, b) => (priority(a.priority) < priority(b.priority) ? -1 : 1));
  for (const service of services) {
    const signer = await signerOf(service.authorization ?? [], options.seedOf);
    if (signer === null) continue;
    for (const url of new Set(service.serviceEndpoint.map(withoutTrailingSlashes))) {
      const at = endpoint(url, options.timeoutMs);
      readers.push({ did, serviceId: service.id, at, signer, deviceId: options.deviceId });
    }
  }
  return readers;
}
