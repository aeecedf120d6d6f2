/**
 * Where a recipient reads: a Cache's routes, and live sessions at a Relay. Every request and the first frame of every
 * session are signed with a nonce of their own, by a key that the service in the recipient's document authorizes.
 * Source: interface "Signed Cache proof", rules sections 5 ("Live sessions") and 6, docs/ledger.md 3.3.
 */
import { encodeBase64 } from "../core/codec/bytes.ts";
import { type Did, parseUuid } from "../core/codec/did.ts";
import type { JsonObject } from "../core/codec/json.ts";
import { dayMs, parseDuration, parseTimestamp, renderTimestamp } from "../core/codec/time.ts";
import type { DidDocument } from "../core/ledger/account.ts";
import {
  ackSubject,
  encodeRetrievalProof,
  type RetrievalOperation,
  retrievalHeaders,
  withoutTrailingSlashes,
} from "../core/message/proof.ts";
import { ackShape, messageStateShape, messagesShape, parseRecord, type Shape, summaryShape } from "./answers.ts";
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
  type StreamEvents,
} from "./http.ts";

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
async function prove(reader: Reader, operation: RetrievalOperation, subject: string): Promise<ProofValues> {
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

/** The first of some keys whose seed is on this device. */
export async function signerOf(keyIds: readonly string[], seedOf: ReaderOptions["seedOf"]): Promise<Signer | null> {
  for (const keyId of keyIds) {
    const seed = await seedOf(keyId);
    if (seed !== null) return { keyId, seed };
  }
  return null;
}

// ----------------------------------------------------------------------------------------------------- live sessions

/** An envelope as JSON, from a Cache or a live session: untrusted. */
export type EnvelopeJson = Readonly<JsonObject>;

export type LiveEnvelope = {
  readonly messageId: string;
  readonly expiresAtMs: number;
  readonly envelope: EnvelopeJson;
};

export type LiveEvents = {
  /** The Relay has accepted the session: later messages arrive here, earlier ones are in the Caches. */
  readonly onReady: () => void;
  /** Resolves with whether the envelope is stored. Only then it is acknowledged. */
  readonly onEnvelope: (chunk: LiveEnvelope) => Promise<boolean>;
};

/** Where the runtime can ping, a Relay that disappeared is noticed after three of these. */
const pingMs = 20_000;
const welcomeMs = 10_000;
const closingMs = 1_000;
/** Close codes of a proof that was refused: trying again would not help. */
const refusedCodes: Readonly<Record<number, string>> = {
  4401: "proof_invalid",
  4403: "proof_not_authorized",
  4409: "proof_replayed",
};

/**
 * Listens until the session ends or `signal` is aborted. Throws `refused` when the Relay refuses the proof, and
 * `unreachable` when the Relay can't be reached.
 */
export async function listenLive(reader: Reader, events: LiveEvents, signal: AbortSignal): Promise<void> {
  if (reader.deviceId === "") throw localError("no_device", "a live session needs the name of a device");
  const url = `${reader.at.url.replace(/^http/, "ws")}${path`/ws/${reader.did}/${reader.deviceId}`}`;
  if (typeof WebSocket === "undefined") throw localError("no_websocket", "this runtime has no WebSocket");
  const socket = new WebSocket(url);
  let ready = false;
  let heardMs = performance.now();
  let failure: unknown = null;
  const { ended, close } = endingOf(socket);
  const fail = (cause: unknown) => {
    failure ??= cause;
    close();
  };
  socket.addEventListener("open", () => void authFrame(reader).then((frame) => socket.send(frame), fail));
  socket.addEventListener("pong", () => {
    heardMs = performance.now();
  });
  socket.addEventListener("message", ({ data }) => {
    heardMs = performance.now();
    const frame = typeof data === "string" ? parseRecord(data) : null;
    if (ready) void receiveFrame(socket, frame, { reader, events }).catch(fail);
    else if (frame?.["type"] === "welcome" && frame["status"] === "ok") {
      ready = true;
      events.onReady();
    }
  });
  const watch = setInterval(() => {
    if (!("ping" in socket) || typeof socket.ping !== "function") return;
    if (performance.now() - heardMs > 3 * pingMs) fail(null);
    else socket.ping();
  }, pingMs);
  const late = setTimeout(() => ready || fail(null), welcomeMs);
  const abort = () => close();
  signal.addEventListener("abort", abort);
  const { code, reason } = await ended;
  clearInterval(watch);
  clearTimeout(late);
  signal.removeEventListener("abort", abort);
  if (failure !== null) throw failure;
  const refused = refusedCodes[code];
  if (refused !== undefined) throw new ClientError("refused", refused, reason || "the Relay refused the proof");
  if (!ready && !signal.aborted)
    throw new ClientError("unreachable", "unreachable", `${reader.at.url} can't be reached`);
}

type Ending = { readonly code: number; readonly reason: string };

/** Closing needs an answer, and a dead network gives none: after a second the session counts as ended. */
function endingOf(socket: WebSocket): { readonly ended: Promise<Ending>; readonly close: () => void } {
  let end: (ending: Ending) => void = () => undefined;
  const ended = new Promise<Ending>((resolve) => {
    end = resolve;
  });
  socket.addEventListener("close", ({ code, reason }) => end({ code, reason }));
  const close = () => {
    socket.close(1000, "done");
    setTimeout(() => end({ code: 1006, reason: "" }), closingMs);
  };
  return { ended, close };
}

async function authFrame(reader: Reader): Promise<string> {
  const { timestamp, nonce, signature } = await prove(reader, "connect", reader.deviceId);
  return JSON.stringify({
    type: "auth",
    service_id: reader.serviceId,
    endpoint: reader.at.url,
    key_id: reader.signer.keyId,
    timestamp,
    nonce,
    signature_b64: signature,
  });
}

/** Frames that are not an envelope to this recipient are not acknowledged; the Relay handles them. */
async function receiveFrame(
  socket: WebSocket,
  frame: Record<string, unknown> | null,
  { reader, events }: { readonly reader: Reader; readonly events: LiveEvents },
): Promise<void> {
  const messageId = typeof frame?.["message_id"] === "string" ? parseUuid(frame["message_id"]) : null;
  if (frame === null || messageId === null || frame["to"] !== reader.did) return;
  const envelope = { messageId, expiresAtMs: expiryOf(frame), envelope: frame as EnvelopeJson };
  if (!(await events.onEnvelope(envelope)) || socket.readyState !== WebSocket.OPEN) return;
  socket.send(JSON.stringify({ type: "ack", message_id: messageId }));
}

function expiryOf({ timestamp, ttl }: Record<string, unknown>): number {
  const sentAtMs = typeof timestamp === "string" ? parseTimestamp(timestamp) : null;
  const lifeMs = typeof ttl === "string" ? parseDuration(ttl) : null;
  return (sentAtMs ?? Date.now()) + (lifeMs ?? dayMs);
}
