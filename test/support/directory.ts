/**
 * A Directory for tests: the real app over a real driver, a clock that tests move by hand, and the
 * bodies that clients send, signed by the keys of `identity.ts`. Each body is made of the request's
 * own members, so that a test can spoil any one of them.
 */

import { jest } from "bun:test";
import { encodeBase64, encodeHex0x, renderPublicKey, utf8 } from "../../src/core/codec/bytes.ts";
import { verifyEd25519 } from "../../src/core/codec/crypto.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { isFault } from "../../src/core/fault.ts";
import { type ActionName, actionNames, actions } from "../../src/core/ledger/actions.ts";
import {
  authorizationMessage,
  documentMessage,
  encodeDidDocument,
  type ProofBinding,
  registrationMessage,
} from "../../src/core/ledger/document-codec.ts";
import { parseIntent, subjectParameter } from "../../src/core/ledger/intents.ts";
import { encodeAuthorization } from "../../src/core/ledger/structures.ts";
import { encodeUpdateProof } from "../../src/core/message/proof.ts";
import { parseDocument } from "../../src/core/schema/identity.ts";
import { createAliasRules } from "../../src/nodes/directory/aliases.ts";
import { createDirectory } from "../../src/nodes/directory/directory.ts";
import type { DirectorySettings } from "../../src/nodes/directory/parts.ts";
import type { Route } from "../../src/nodes/http/route.ts";
import { createInvitations, type Invitations } from "../../src/nodes/operations/invitations.ts";
import { resolutionRoute } from "../../src/nodes/parties/admission.ts";
import { type Blocks, openBlocks } from "../../src/nodes/parties/blocks.ts";
import type { Bundles } from "../../src/nodes/parties/bundles.ts";
import { createMembers } from "../../src/nodes/parties/members.ts";
import { ledgerRecipients } from "../../src/nodes/parties/recipients.ts";
import { openLocalBus } from "../../src/plugins/bus/local.ts";
import { memoryPlugin } from "../../src/plugins/memory/memory.ts";
import type { Ledger, Store, StoreEnvironment, Submission } from "../../src/storage/contract.ts";
import { serverSettings, testApp } from "./app.ts";
import { type Identity, type KeyPair, keyPair } from "./identity.ts";
import { directoryDefault, limitsDefault } from "./settings.ts";

export type Json = Record<string, unknown>;
export type Reply = { readonly status: number; readonly body: Json; readonly headers: Headers };

export type TestDirectory = {
  readonly routes: readonly Route[];
  readonly limits: () => Promise<Json>;
  readonly store: Store;
  readonly ledger: Ledger;
  readonly blocks: Blocks;
  readonly invitations: Invitations;
  /** Those that the Directory reads: a test may change one. */
  readonly settings: DirectorySettings;
  readonly nowMs: () => number;
  readonly advance: (ms: number) => void;
  readonly ask: (
    method: string,
    path: string,
    body?: unknown,
    headers?: Record<string, string>,
  ) => Promise<Reply>;
  /** The submission behind a `202`, once it is settled. */
  readonly settle: (reply: Reply) => Promise<Submission>;
  /** Registers an identity and waits until it is confirmed. */
  readonly register: (identity: Identity, given?: Json) => Promise<Did>;
  /** The same for many at once, in as few blocks as the ledger needs. */
  readonly registerAll: (
    people: readonly (readonly [identity: Identity, given: Json])[],
  ) => Promise<void>;
  readonly close: () => Promise<void>;
};

export const testStartMs = Date.parse("2026-07-16T12:00:00Z");
/** Enough for some hundred registrations on a chain that makes its blocks one after the other. */
const settlePatienceMs = 120_000;
/** Below the requests that a test's app takes at once. */
const askedAtOnce = 16;
/**
 * A chain takes some blocks for these; anyone who waits for more of them at a time is in the way of
 * the blocks.
 */
const settledAtOnce = 128;

export type TestDirectoryOptions = {
  readonly options?: Partial<DirectorySettings>;
  /** Opens another driver than a fresh memory store. */
  readonly open?: (environment: StoreEnvironment) => Promise<Store>;
  readonly blockTimeMs?: number;
  readonly startMs?: number;
  /** As in development: refusals of signatures show what was verified. */
  readonly showSignedText?: boolean;
  /** Puts something between the Directory and its ledger. */
  readonly around?: (ledger: Ledger) => Ledger;
};

/** Documents of these tests announce no key bundles. */
const noBundles: Bundles = { find: async () => "not_announced", close: () => {} };

export async function testDirectory(given: TestDirectoryOptions = {}): Promise<TestDirectory> {
  let nowMs = given.startMs ?? testStartMs;
  const environment: StoreEnvironment = { now: () => nowMs, log: () => undefined, fatal: failOn };
  const store = await (given.open ?? openMemory(given.blockTimeMs ?? 10))(environment);
  const { ledger, receipts, replay } = store.capabilities;
  if (ledger === undefined || receipts === undefined || replay === undefined)
    throw new Error("a driver of everything");
  const directorySettings: DirectorySettings = {
    ...directoryDefault,
    unsigned_updates: "allow",
    registration_burst: 1_000_000,
    ...given.options,
  };
  const bus = openLocalBus({ log: () => undefined });
  const blocks = await openBlocks({ receipts, bus, now: () => nowMs, log: () => undefined });
  const invitations = createInvitations({ receipts, now: () => nowMs });
  const members = createMembers({ receipts, keepsDays: true, log: () => undefined });
  const operator = { did: null };
  const directory = createDirectory({
    aliases: createAliasRules({ settings: directorySettings, operator, receipts, members }),
    invitations,
    members,
    blocks,
    ledger: given.around?.(ledger) ?? ledger,
    receipts,
    replay,
    verify: verifyEd25519,
    settings: directorySettings,
    limits: limitsDefault,
  });
  const resolution = resolutionRoute({
    recipients: ledgerRecipients(ledger),
    limits: limitsDefault,
    unavailable: "chain_unavailable",
    ledger,
    bundles: noBundles,
  });
  const app = testApp([...directory.routes, resolution], {
    now: () => nowMs,
    settings: { ...serverSettings, show_signed_text: given.showSignedText ?? false },
  });
  const ask: TestDirectory["ask"] = async (method, path, body, headers = {}) => {
    const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
    const init =
      text === undefined
        ? {}
        : { body: text, headers: { "content-type": "application/json", ...headers } };
    const response = await app.ask(path, { method, ...init });
    const { status, headers: answered } = response;
    const isJson = answered.get("content-type")?.includes("json") === true;
    const read = isJson
      ? ((await response.json()) as Json)
      : { hex: (await response.bytes()).toHex() };
    return { status, body: read, headers: answered };
  };
  const settle = (reply: Reply) =>
    settled(ledger, String(reply.body["tx_hash"] ?? reply.body["tx_id"]));
  const registration = ([identity, members]: readonly [Identity, Json]): Promise<Reply> => {
    const old = directorySettings.registration_proofs?.includes("v1") ?? true;
    const version = old ? {} : { timestamp: `v2:0:${nowMs + 60_000}` };
    return ask(
      "POST",
      "/register-did",
      registerBodyOf(identity, nowMs, { ...version, ...members }),
    );
  };
  const registerAll: TestDirectory["registerAll"] = async (people) => {
    for (let at = 0; at < people.length; at += settledAtOnce) {
      const replies: Reply[] = [];
      const some = people.slice(at, at + settledAtOnce);
      for (let from = 0; from < some.length; from += askedAtOnce) {
        replies.push(
          ...(await Promise.all(some.slice(from, from + askedAtOnce).map(registration))),
        );
      }
      const refused = replies.find(({ status }) => status !== 202);
      if (refused !== undefined)
        throw new Error(`registration answered ${JSON.stringify(refused.body)}`);
      // One after the other: each has its time from when the one before has settled, and no one
      // else asks meanwhile.
      for (const reply of replies) await settle(reply);
    }
    nowMs += 1;
  };
  return {
    routes: directory.routes,
    limits: directory.limits,
    store,
    ledger,
    blocks,
    invitations,
    settings: directorySettings,
    nowMs: () => nowMs,
    advance: (ms) => {
      nowMs += ms;
    },
    ask,
    settle,
    register: async (identity, members = {}) => {
      await registerAll([[identity, members]]);
      return identity.did;
    },
    registerAll,
    close: async () => {
      blocks.close();
      await bus.close();
      await store.close();
    },
  };
}

/** The same ledger with another way of taking calls. */
export function withSubmit(ledger: Ledger, submit: Ledger["submit"]): Ledger {
  return new Proxy(ledger, {
    get(target, name) {
      if (name === "submit") return submit;
      const operation: unknown = Reflect.get(target, name);
      return typeof operation === "function" ? operation.bind(target) : operation;
    },
  });
}

export function failOn(reason: string): never {
  throw new Error(`the store gave up: ${reason}`);
}

export function openMemory(blockTimeMs: number): (environment: StoreEnvironment) => Promise<Store> {
  return async (environment) => {
    const parsed = memoryPlugin.parseOptions({ block_time_ms: blockTimeMs });
    if (!parsed.ok) throw new Error("the memory driver refuses its options");
    return memoryPlugin.open(parsed.options, environment);
  };
}

/**
 * Nothing that the embedded ledger takes during `act` gets into a block, however busy the machine
 * is: its timer stands still. Afterwards the block is made.
 */
export async function beforeBlock<T>(act: () => Promise<T>): Promise<T> {
  jest.useFakeTimers();
  try {
    return await act();
  } finally {
    jest.runOnlyPendingTimers();
    jest.useRealTimers();
  }
}

async function settled(ledger: Ledger, txHash: string): Promise<Submission> {
  const deadline = performance.now() + settlePatienceMs;
  while (performance.now() < deadline) {
    const submission = await ledger.submission(txHash);
    if (submission !== null && submission.state !== "pending" && submission.state !== "in_block")
      return submission;
    await Bun.sleep(5);
  }
  throw new Error(`${txHash} did not settle`);
}

// -------------------------------------------------------------------------------------- identities

/** The key and DID of the worked vectors: seed of 32 bytes 07. */
export function vectorIdentity(): Identity {
  return {
    did: "did:svc:1111111111111111111111" as Did,
    root: keyPair(new Uint8Array(32).fill(7)),
    label: "vector",
  };
}

/** A document whose method `#k1` holds the root key itself, with a Cache service. */
export function simpleDocument(identity: Identity): Json {
  const { did, root } = identity;
  const method = {
    id: `${did}#k1`,
    type: "Multikey",
    controller: did,
    publicKeyMultibase: renderPublicKey(root.publicKey),
  };
  const service = {
    id: `${did}#cache`,
    type: "SvcCacheService",
    serviceEndpoint: ["https://cache.example"],
    authorization: [method.id],
  };
  return {
    id: did,
    verificationMethod: [method],
    authentication: [method.id],
    keyAgreement: [],
    service: [service],
  };
}

// ------------------------------------------------------------------------------------------ bodies

export function documentBlobOf(document: unknown, did: Did): Uint8Array {
  const parsed = parseDocument(document, did);
  if (isFault(parsed)) throw new Error(parsed.detail);
  return encodeDidDocument(parsed);
}

/**
 * A version 1 registration unless `members` names another timestamp; version 3 needs a `binding`.
 */
export function registerBodyOf(
  identity: Identity,
  nowMs: number,
  members: Json = {},
  binding: ProofBinding | null = null,
): Json {
  const { did, root } = identity;
  const body = {
    did,
    timestamp: new Date(nowMs).toISOString(),
    did_document: simpleDocument(identity),
    root_pubkey: renderPublicKey(root.publicKey),
    ...members,
  };
  const { timestamp } = body;
  const alias = "alias" in body ? String(body.alias) : null;
  const docBlob = documentBlobOf(body.did_document, did);
  const message = registrationMessage(
    { did, alias, timestamp, pubkey: root.publicKey, docBlob },
    binding,
  );
  return { ...body, signature: encodeBase64(root.sign(message ?? utf8("nothing"))) };
}

export function replaceBodyOf(identity: Identity, given: { timestamp: string } & Json): Json {
  const { did, root } = identity;
  const { doc_blob: blob, document, ...rest } = given;
  const docBlob = blob === undefined ? documentBlobOf(document, did) : (blob as Uint8Array);
  const message = documentMessage({ did, timestamp: given.timestamp, docBlob });
  return {
    did,
    ...(blob === undefined ? { document } : { doc_blob: encodeHex0x(docBlob) }),
    pubkey: renderPublicKey(root.publicKey),
    ...rest,
    signature: encodeBase64(root.sign(message ?? utf8("nothing"))),
  };
}

/** The routes of the signed actions, as the scenarios go over them. */
export const updates = actionNames.map((action) => ({
  action,
  ...actions[action].route,
  subject: subjectParameter(actions[action].route.path) ?? undefined,
}));
export type Update = (typeof updates)[number];

export type Terms = {
  readonly nonce: string;
  readonly validUntilMs: number;
  readonly signerKeyId?: string;
  readonly signer?: KeyPair;
  /** Signs in version 3 for this ledger. */
  readonly genesisHash?: Uint8Array;
};

/** The body of a signed update. Alias bodies carry `timestamp` among the members. */
export function updateBodyOf(
  identity: Identity,
  action: ActionName,
  members: Json,
  terms: Terms,
): Json {
  const { did } = identity;
  const signerKeyId = terms.signerKeyId ?? "root";
  const intent = parseIntent(action, members, did);
  if (isFault(intent)) throw new Error(intent.detail);
  const validUntilMs = BigInt(terms.validUntilMs);
  const payload = encodeAuthorization(intent, {
    nonce: BigInt(terms.nonce),
    validUntilMs,
    signerKeyId,
  });
  const { genesisHash } = terms;
  const message =
    genesisHash === undefined
      ? payload
      : authorizationMessage(actions[action].counter, genesisHash, payload);
  return {
    did,
    action,
    ...members,
    nonce: terms.nonce,
    valid_until: String(terms.validUntilMs),
    signer_key_id: signerKeyId,
    canonical_payload: encodeHex0x(payload),
    signature: encodeBase64((terms.signer ?? identity.root).sign(message)),
  };
}

/** The proof headers of an update without a payload. */
export function proofHeadersOf(
  identity: Identity,
  given: {
    readonly operation: string;
    readonly body: string;
    readonly timestamp: string;
    readonly nonce?: string;
    readonly keyId?: string;
    readonly signer?: KeyPair;
    /** As in `/limits`; version 1 without one. */
    readonly ledger?: string;
  },
): Record<string, string> {
  const {
    operation,
    body,
    timestamp,
    nonce = crypto.randomUUID(),
    keyId = "root",
    ledger = null,
  } = given;
  const claims = {
    operation,
    did: identity.did,
    keyId,
    timestamp,
    nonce,
    ledger,
    body: utf8(body),
  };
  const signature = (given.signer ?? identity.root).sign(encodeUpdateProof(claims));
  return {
    "x-key-id": keyId,
    "x-timestamp": timestamp,
    "x-nonce": nonce,
    ...(ledger === null ? {} : { "x-ledger": ledger }),
    "x-signature": encodeBase64(signature),
  };
}
