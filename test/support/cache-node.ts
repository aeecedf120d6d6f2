/**
 * A Cache for tests: the real node over the memory driver, a clock that tests set, recipients that
 * tests write, and people who sign proofs and envelopes with @noble/curves.
 */

import { ed25519 } from "@noble/curves/ed25519.js";
import type { Config } from "../../src/config/schema.ts";
import { encodeBase58, encodeBase64, renderPublicKey, utf8 } from "../../src/core/codec/bytes.ts";
import { verifyEd25519 } from "../../src/core/codec/crypto.ts";
import type { Did } from "../../src/core/codec/did.ts";
import type { JsonObject } from "../../src/core/codec/json.ts";
import { minuteMs } from "../../src/core/codec/time.ts";
import type {
  DeliveryPolicy,
  DidDocument,
  PersonaPolicy,
  Service,
} from "../../src/core/ledger/account.ts";
import {
  ackSubject,
  encodeRetrievalProof,
  encodeSenderText,
  type RetrievalClaims,
} from "../../src/core/message/proof.ts";
import { type Cache, type CacheParts, createCache } from "../../src/nodes/cache/cache.ts";
import { createMetrics, type Metrics } from "../../src/nodes/http/metrics.ts";
import type { RecipientSource, Subject } from "../../src/nodes/parties/recipients.ts";
import { memoryPlugin } from "../../src/plugins/memory/memory.ts";
import {
  type Capabilities,
  type Mailbox,
  type Receipts,
  StoreError,
} from "../../src/storage/contract.ts";
import { withMethods } from "../conformance/options.ts";
import { type LoggedLine, type TestApp, testApp } from "./app.ts";
import { cacheDefault, limitsDefault } from "./settings.ts";

export const cacheEndpoint = "https://cache.example";
export const testNowMs = Date.parse("2026-07-16T12:00:00Z");

// ------------------------------------------------------------------------------------------ people

export type Person = {
  readonly did: Did;
  readonly seed: Uint8Array;
  readonly keyId: string;
  readonly serviceId: string;
  readonly document: DidDocument;
};

export function createPerson(number: number, services: Partial<Service>[] = [{}]): Person {
  const seed = new Uint8Array(32).fill(number);
  const did =
    `did:svc:${encodeBase58(ed25519.getPublicKey(seed).slice(0, 16)).padEnd(22, "z")}` as Did;
  const keyId = `${did}#k1`;
  const publicKeyMultibase = renderPublicKey(ed25519.getPublicKey(seed));
  const method = { id: keyId, type: "Multikey", controller: did, publicKeyMultibase };
  const service = services.map((change, place) => ({
    id: `${did}#cache${place === 0 ? "" : place}`,
    type: "SvcCacheService",
    serviceEndpoint: [cacheEndpoint],
    authorization: [keyId],
    priority: null,
    ...change,
  }));
  const document = {
    id: did,
    verificationMethod: [method],
    authentication: [keyId],
    keyAgreement: [],
    service,
  };
  return { did, seed, keyId, serviceId: `${did}#cache`, document };
}

export type ProofValues = Omit<RetrievalClaims, "did"> & { readonly did: string };

let nonces = 0;
/** A nonce that no other call of this process answers. */
export function freshNonce(): string {
  return `nonce-${String(++nonces).padStart(8, "0")}`;
}

function claimsOf(person: Person, change: Partial<ProofValues>): RetrievalClaims {
  return {
    operation: "pull",
    did: person.did,
    deviceId: "",
    serviceId: person.serviceId,
    endpoint: cacheEndpoint,
    keyId: person.keyId,
    timestamp: new Date(testNowMs).toISOString(),
    nonce: freshNonce(),
    subject: "*",
    ...(change as Partial<RetrievalClaims>),
  };
}

/** The headers of a read, signed by the person; `change` alters what is signed and sent alike. */
export function proofHeaders(
  person: Person,
  change: Partial<ProofValues> = {},
): Record<string, string> {
  const claims = claimsOf(person, change);
  return {
    "X-Service-Id": claims.serviceId,
    "X-Cache-Endpoint": claims.endpoint,
    "X-Key-Id": claims.keyId,
    "X-Timestamp": claims.timestamp,
    "X-Nonce": claims.nonce,
    "X-Signature": encodeBase64(ed25519.sign(encodeRetrievalProof(claims), person.seed)),
    ...(claims.deviceId === "" ? {} : { "X-Device-Id": claims.deviceId }),
  };
}

export function ackBody(
  person: Person,
  messageIds: readonly string[],
  change: Partial<ProofValues> = {},
): Record<string, unknown> {
  const claims = claimsOf(person, { operation: "ack", subject: ackSubject(messageIds), ...change });
  return {
    did: claims.did,
    message_ids: messageIds,
    ...(claims.deviceId === "" ? {} : { device_id: claims.deviceId }),
    service_id: claims.serviceId,
    cache_endpoint: claims.endpoint,
    key_id: claims.keyId,
    timestamp: claims.timestamp,
    nonce: claims.nonce,
    signature_b64: encodeBase64(ed25519.sign(encodeRetrievalProof(claims), person.seed)),
  };
}

export function uuidOf(number: number): string {
  return `0190b3b4-0000-7000-8000-${number.toString(16).padStart(12, "0")}`;
}

export function envelopeTo(
  person: { did: string },
  number: number,
  change: JsonObject = {},
): JsonObject {
  return {
    message_id: uuidOf(number),
    to: person.did,
    timestamp: new Date(testNowMs).toISOString(),
    payload: { ciphertext_b64: "aGVsbG8=" },
    ...change,
  };
}

export function chunkTo(
  person: Person,
  number: number,
  place: { group: number; sequence: number; total: number },
): JsonObject {
  return envelopeTo(person, number, {
    message_group_id: uuidOf(place.group),
    sequence_number: place.sequence,
    total_chunks: place.total,
    delivery_hint: "chunked",
  });
}

export function signedBy(sender: Person, envelope: JsonObject): JsonObject {
  const named: JsonObject = { ...envelope, from: sender.did, sender_key_id: sender.keyId };
  return {
    ...named,
    sender_signature: encodeBase64(ed25519.sign(encodeSenderText(named), sender.seed)),
  };
}

// -------------------------------------------------------------------------------------------- node

export type TestRecipients = RecipientSource & {
  readonly subjects: Map<string, Subject>;
  readonly policies: Map<string, DeliveryPolicy>;
  readonly personas: Map<string, PersonaPolicy>;
  reachable: boolean;
  asked: number;
  readonly add: (person: Person, change?: Partial<Subject>) => void;
};

function createRecipients(): TestRecipients {
  const answer = async <T>(value: T): Promise<T> => {
    recipients.asked++;
    if (!recipients.reachable) throw new StoreError("unavailable", "the source is switched off");
    return value;
  };
  const recipients: TestRecipients = {
    servesGuests: async () => true,
    subjects: new Map(),
    policies: new Map(),
    personas: new Map(),
    reachable: true,
    asked: 0,
    add: ({ did, document }, change) =>
      void recipients.subjects.set(did, {
        did,
        document,
        deactivated: false,
        links: null,
        life: 0,
        ...change,
      }),
    subject: (did) => answer(recipients.subjects.get(did) ?? null),
    policy: (scope, key) => answer(recipients.policies.get(`${scope}:${key}`) ?? null),
    persona: (key) => answer(recipients.personas.get(key) ?? null),
    blockTimeMs: () => answer(6_000),
  };
  return recipients;
}

export type TestCache = TestApp & {
  readonly cache: Cache;
  readonly clock: { nowMs: number };
  readonly recipients: TestRecipients;
  readonly mailbox: Mailbox;
  readonly capabilities: NonNullable<TestCacheOptions["shared"]>;
  /** What the Cache itself logs and counts. */
  readonly cacheLines: LoggedLine[];
  readonly cacheMetrics: Metrics;
  /** The mailboxes of new entries, as other processes hear of them. */
  readonly stored: string[];
  readonly store: (envelope: JsonObject | string) => Promise<Response>;
  readonly ack: (body: unknown) => Promise<Response>;
  readonly read: (path: string, headers: Record<string, string>) => Promise<Response>;
};

/** One client of a test stands for many of the world. */
const unlimited = { client_rate: 1e6, client_burst: 1e6, stranger_share: 100 };

/** Settings of the Cache that differ from their defaults, and what else a test changes. */
export type TestCacheOptions = Partial<Config["cache"]> & {
  readonly limits?: Partial<Config["limits"]>;
  readonly sign?: CacheParts["sign"];
  /** Methods that stand in front of the memory driver's mailbox. */
  readonly wrap?: (mailbox: Mailbox) => Partial<Mailbox>;
  readonly memory?: Record<string, unknown>;
  /** In front of the memory driver's. */
  readonly claim?: CacheParts["replay"]["claim"];
  readonly push?: CacheParts["push"];
  /** The same for its receipts. */
  readonly receipts?: (receipts: Receipts) => Partial<Receipts>;
  /** Of the memory driver, shared with another Cache. */
  readonly shared?: Required<Pick<Capabilities, "mailbox" | "replay" | "receipts">>;
  readonly bell?: CacheParts["bell"];
  readonly trustedProxies?: string[];
  /** Where members report to an operator. */
  readonly reporting?: Required<Pick<CacheParts, "members" | "operator">>;
};

export async function createTestCache(options: TestCacheOptions = {}): Promise<TestCache> {
  const {
    sign = null,
    wrap = () => ({}),
    memory,
    push,
    shared,
    receipts: wrapReceipts = () => ({}),
    limits,
    bell,
    claim,
    trustedProxies = [],
    reporting,
    ...changed
  } = options;
  const parsed = memoryPlugin.parseOptions(memory);
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.problems));
  const clock = { nowMs: testNowMs };
  const now = () => clock.nowMs;
  const opened = await memoryPlugin.open(parsed.options, { now, log: () => {}, fatal: () => {} });
  const { mailbox: held, replay, receipts: records } = shared ?? opened.capabilities;
  if (held === undefined || replay === undefined || records === undefined)
    throw new Error("memory lacks a capability");
  const receipts = withMethods("receipts", records, wrapReceipts(records));
  const mailbox = withMethods("mailbox", held, wrap(held));
  const recipients = createRecipients();
  const stored: string[] = [];
  const lines: LoggedLine[] = [];
  const metrics = createMetrics();
  const cache = createCache({
    mailbox,
    verify: verifyEd25519,
    replay: claim === undefined ? replay : withMethods("replay", replay, { claim }),
    receipts,
    log: (level, message, fields) => lines.push({ level, message, fields: { ...fields } }),
    digest: (did) => new Bun.CryptoHasher("sha256").update(did).digest("hex").slice(0, 16),
    metrics,
    recipients,
    sign,
    now,
    settings: { ...cacheDefault, ...unlimited, public_endpoints: [cacheEndpoint], ...changed },
    limits: { ...limitsDefault, ...limits },
    bell: {
      ring: (did) => {
        stored.push(did);
        bell?.ring(did);
      },
      isHeard: (did) => bell?.isHeard(did) ?? false,
    },
    ...(push === undefined ? {} : { push }),
    ...(reporting ?? {}),
  });
  // Room for the races that tests run on one route.
  const app = testApp(cache.routes, {
    now,
    // A client that doesn't read for a while is not cut off, however busy the machine is.
    server: { trusted_proxies: trustedProxies, requests_max: 256, body_deadline: minuteMs },
  });
  const post = (path: string, body: unknown) =>
    app.ask(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: typeof body === "string" ? body : JSON.stringify(body),
    });
  return {
    ...app,
    cache,
    clock,
    cacheLines: lines,
    cacheMetrics: metrics,
    recipients,
    mailbox,
    capabilities: { mailbox: held, replay, receipts: records },
    stored,
    store: (envelope) => post("/cache/store", envelope),
    ack: (body) => post("/cache/ack", body),
    read: (path, headers) => app.ask(path, { headers }),
  };
}

/** Status and code of a refusal, status and `ok` of anything else. */
export async function outcomeOf(response: Response | Promise<Response>): Promise<string> {
  const answered = await response;
  const body = (await answered.json()) as { code?: string };
  return `${answered.status} ${body.code ?? "ok"}`;
}

export const encodedDid = (person: Person): string => encodeURIComponent(person.did);
export const bytesOfJson = (value: unknown): Uint8Array => utf8(JSON.stringify(value));

/** Makes Caches that know these people. */
export function cachesKnowing(...people: readonly Person[]) {
  return async (options: TestCacheOptions = {}): Promise<TestCache> => {
    const node = await createTestCache(options);
    for (const person of people) node.recipients.add(person);
    return node;
  };
}
