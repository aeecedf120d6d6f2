/**
 * The requests that are measured, as bytes for a socket: each call of what they return makes the
 * next one.
 */
import type { Reader } from "../src/client/net/reader.ts";
import { createSigner } from "../src/core/codec/native.ts";
import {
  ackSubject,
  encodeRetrievalProof,
  encodeSenderText,
  retrievalHeaders,
} from "../src/core/message/proof.ts";
import type { Registered } from "./registered.ts";

export const payloadBytes = 1_024;

export function getting(path: string): () => Buffer<ArrayBuffer> {
  const request = Buffer.from(`GET ${path} HTTP/1.1\r\nhost: bench\r\n\r\n`);
  return () => request;
}

export function posting(
  path: string,
  to: string,
  nextId: () => string = () => crypto.randomUUID(),
): () => Buffer<ArrayBuffer> {
  const payload = {
    ciphertext_b64: crypto.getRandomValues(new Uint8Array(payloadBytes)).toBase64(),
  };
  const timestamp = new Date().toISOString();
  const bodyOf = (message_id: string) =>
    JSON.stringify({ message_id, to, timestamp, ttl: "1h", payload });
  const length = bodyOf(crypto.randomUUID()).length;
  const head = `POST ${path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: ${length}\r\n\r\n`;
  return () => Buffer.from(head + bodyOf(nextId()));
}

/** A sender signs each of its envelopes. */
export function postingSigned(
  path: string,
  to: string,
  { did, sender }: Registered,
): () => Buffer<ArrayBuffer> {
  const sign = signerOf(sender.seed);
  const payload = {
    ciphertext_b64: crypto.getRandomValues(new Uint8Array(payloadBytes)).toBase64(),
  };
  const timestamp = new Date().toISOString();
  return () => {
    const ids = { message_id: crypto.randomUUID(), from: did, to, sender_key_id: sender.keyId };
    const members = { ...ids, timestamp, ttl: "1h", payload };
    const body = JSON.stringify({
      ...members,
      sender_signature: sign(encodeSenderText(members)).toBase64(),
    });
    const head = `POST ${path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: ${body.length}`;
    return Buffer.from(`${head}\r\n\r\n${body}`);
  };
}

function signerOf(seed: Uint8Array): (message: Uint8Array) => Uint8Array {
  const sign = createSigner(seed);
  if (sign === null) throw new Error("the seed is not a key");
  return sign;
}

type FreshProof = {
  readonly timestamp: string;
  readonly nonce: string;
  readonly signature: string;
};

/** Signs with the native signer, which is cheap beside what checking costs the node. */
function proving(reader: Reader, operation: "ack" | "pull"): (subject: string) => FreshProof {
  const { did, serviceId, at } = reader;
  const { keyId, seed } = reader.signer;
  const sign = signerOf(seed);
  return (subject) => {
    const timestamp = new Date().toISOString();
    const nonce = crypto.randomUUID();
    const claims = {
      operation,
      did,
      deviceId: "",
      serviceId,
      endpoint: at.url,
      keyId,
      timestamp,
      nonce,
      subject,
    };
    return { timestamp, nonce, signature: sign(encodeRetrievalProof(claims)).toBase64() };
  };
}

/**
 * Of an id that the mailbox does not hold it costs the proof, its claim and one write, without a
 * store for each.
 */
export function acknowledging(reader: Reader, nextIds: () => string[]): () => Buffer<ArrayBuffer> {
  const prove = proving(reader, "ack");
  return () => {
    const message_ids = nextIds();
    const { timestamp, nonce, signature } = prove(ackSubject(message_ids));
    const body = JSON.stringify({
      did: reader.did,
      device_id: "",
      service_id: reader.serviceId,
      cache_endpoint: reader.at.url,
      key_id: reader.signer.keyId,
      timestamp,
      nonce,
      signature_b64: signature,
      message_ids,
    });
    const head = `POST /cache/ack HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`;
    return Buffer.from(head + body);
  };
}

export function pulling(reader: Reader): () => Buffer<ArrayBuffer> {
  const prove = proving(reader, "pull");
  return () => {
    const { timestamp, nonce, signature } = prove("*");
    const headers = {
      host: "bench",
      [retrievalHeaders.serviceId]: reader.serviceId,
      [retrievalHeaders.endpoint]: reader.at.url,
      [retrievalHeaders.keyId]: reader.signer.keyId,
      [retrievalHeaders.timestamp]: timestamp,
      [retrievalHeaders.nonce]: nonce,
      [retrievalHeaders.signature]: signature,
    };
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
    return Buffer.from(
      `GET /cache/messages/${reader.did} HTTP/1.1\r\n${lines.join("\r\n")}\r\n\r\n`,
    );
  };
}
