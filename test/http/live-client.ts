/**
 * A recipient's device in a live session: opens the socket, proves itself, keeps the frames it
 * gets.
 */
import { ed25519 } from "@noble/curves/ed25519.js";
import { encodeBase64 } from "../../src/core/codec/bytes.ts";
import { encodeRetrievalProof, type RetrievalClaims } from "../../src/core/message/proof.ts";
import { freshNonce, type Person, testNowMs } from "../support/cache-node.ts";
import { relayEndpoint } from "../support/relay-node.ts";

export type Frame = Record<string, unknown>;

export function connectClaims(
  person: Person,
  deviceId: string,
  change: Partial<RetrievalClaims> = {},
): RetrievalClaims {
  return {
    operation: "connect",
    did: person.did,
    deviceId,
    serviceId: person.serviceId,
    endpoint: relayEndpoint,
    keyId: person.keyId,
    timestamp: new Date(testNowMs).toISOString(),
    nonce: freshNonce(),
    subject: deviceId,
    ...change,
  };
}

export const signClaims = (person: Person, claims: RetrievalClaims): string =>
  encodeBase64(ed25519.sign(encodeRetrievalProof(claims), person.seed));

export function authFrame(
  person: Person,
  deviceId: string,
  change: Partial<RetrievalClaims> = {},
): Frame {
  const claims = connectClaims(person, deviceId, change);
  return {
    type: "auth",
    service_id: claims.serviceId,
    endpoint: claims.endpoint,
    key_id: claims.keyId,
    timestamp: claims.timestamp,
    nonce: claims.nonce,
    signature_b64: signClaims(person, claims),
  };
}

export function authHeaders(
  person: Person,
  deviceId: string,
  change: Partial<RetrievalClaims> = {},
): Record<string, string> {
  const claims = connectClaims(person, deviceId, change);
  return {
    "X-Service-Id": claims.serviceId,
    "X-Cache-Endpoint": claims.endpoint,
    "X-Key-Id": claims.keyId,
    "X-Timestamp": claims.timestamp,
    "X-Nonce": claims.nonce,
    "X-Signature": signClaims(person, claims),
  };
}

/**
 * The runtime's own WebSocket, which the types of browsers hide: it takes headers and can drop the
 * line.
 */
const Socket = WebSocket as typeof WebSocket &
  (new (
    url: string,
    options: Bun.WebSocketOptions,
  ) => Bun.WebSocket);

export class LiveClient {
  readonly frames: Frame[] = [];
  /** How often the Relay said that the Cache stored something. */
  rings = 0;
  readonly opened: Promise<boolean>;
  readonly closed: Promise<number>;
  /** Called for every envelope after the welcome. */
  onEnvelope: (envelope: Frame) => void = () => undefined;
  readonly #socket: Bun.WebSocket;
  #arrived: () => void = () => undefined;

  constructor(url: string, headers: Record<string, string> = {}) {
    this.#socket = new Socket(url, { headers });
    const opened = Promise.withResolvers<boolean>();
    const closed = Promise.withResolvers<number>();
    this.opened = opened.promise;
    this.closed = closed.promise;
    this.#socket.onopen = () => opened.resolve(true);
    this.#socket.onclose = (event) => {
      opened.resolve(false);
      closed.resolve(event.code);
    };
    this.#socket.onmessage = (event) => {
      const frame = JSON.parse(String(event.data)) as Frame;
      if (frame["type"] === "stored") {
        this.rings++;
        return;
      }
      this.frames.push(frame);
      this.#arrived();
      if (frame["type"] !== "welcome") this.onEnvelope(frame);
    };
  }

  send(frame: unknown): void {
    this.#socket.send(typeof frame === "string" ? frame : JSON.stringify(frame));
  }

  ack(envelope: Frame): void {
    this.send({ type: "ack", message_id: envelope["message_id"] });
  }

  /** The frames, once there are at least `count`. */
  async until(count: number): Promise<Frame[]> {
    while (this.frames.length < count)
      await new Promise<void>((resolve) => (this.#arrived = resolve));
    return this.frames;
  }

  /** Resolves when the server has read all that was sent before. */
  async roundTrip(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#socket.addEventListener("pong", () => resolve(), { once: true });
    this.#socket.ping();
    await promise;
  }

  close(): void {
    this.#socket.close();
  }

  /** Drops the connection without saying goodbye. */
  terminate(): void {
    this.#socket.terminate();
  }
}

export function sessionUrl(base: string, person: { did: string }, deviceId: string): string {
  return `${base.replace("http", "ws")}/ws/${encodeURIComponent(person.did)}/${encodeURIComponent(deviceId)}`;
}

/** A proven session, with its welcome received. */
export async function goLive(
  base: string,
  person: Person,
  deviceId = "phone",
  query = "",
): Promise<LiveClient> {
  const client = new LiveClient(`${sessionUrl(base, person, deviceId)}${query}`);
  await client.opened;
  client.send(authFrame(person, deviceId));
  await client.until(1);
  return client;
}
