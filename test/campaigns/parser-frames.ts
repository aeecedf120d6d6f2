/**
 * What reaches a node otherwise than as an envelope, as targets of the parser campaign: proofs in
 * headers and bodies, frames of live sessions, messages of the bus, and frames and values of chain
 * nodes. Frames and messages go in where the network hands them over, so that what stands between
 * is attacked as well.
 */

import { decodeUtf8, encodeHex0x, equalBytes, utf8 } from "../../src/core/codec/bytes.ts";
import { verifyEd25519 } from "../../src/core/codec/crypto.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { parseJson } from "../../src/core/codec/json.ts";
import { type Codec, decodeWith, encodeWith } from "../../src/core/codec/scale.ts";
import { isFault } from "../../src/core/fault.ts";
import {
  type DidDocument,
  deliveryPolicyCodec,
  personaPolicyCodec,
  recordCodec,
} from "../../src/core/ledger/account.ts";
import { parseProofTimestamp } from "../../src/core/ledger/document-codec.ts";
import {
  decideRetrievalProof,
  decodeUpdateProof,
  retrievalHeaders,
  updateHeaders,
} from "../../src/core/message/proof.ts";
import { registerBody, replaceDocumentBody } from "../../src/core/schema/directory.ts";
import {
  deliveryPolicyBody,
  linksBody,
  personaPolicyBody,
} from "../../src/core/schema/identity.ts";
import { ackBodyShape } from "../../src/core/schema/messages.ts";
import { compileShape } from "../../src/core/schema/schema.ts";
import { directoryRecipients } from "../../src/nodes/parties/recipients.ts";
import {
  decodeConnectFrame,
  decodeConnectHeaders,
  parseReply,
  parseSessionTarget,
} from "../../src/nodes/relay/live/frames.ts";
import { createRemoteSessions } from "../../src/nodes/relay/live/remote.ts";
import {
  parseBlock,
  parseHash,
  parseHeader,
  parseHex,
  parseStorage,
  parseSyncing,
  parseVersion,
  Rpc,
  type SocketEvents,
} from "../../src/plugins/chain/rpc.ts";
import type { Bus, BusReceiver } from "../../src/storage/bus.ts";
import { presented } from "../support/presented.ts";
import { check, listOf, type Target } from "./parser-kit.ts";

const json = (value: unknown): Uint8Array => utf8(JSON.stringify(value));

// ------------------------------------------------------------------------------------------ proofs

type RetrievalVector = {
  readonly claims: Readonly<Record<string, string>>;
  readonly signature_b64: string;
  readonly now_ms: number;
  readonly subject: { readonly document: DidDocument; readonly deactivated: boolean };
};
const retrievals = listOf("proof/valid/retrieval.json") as RetrievalVector[];
const [retrieval] = retrievals as [RetrievalVector];
const terms = { endpoints: ["https://cache.example"], skewMs: 300_000 };
const target = { did: retrieval.claims["did"] as Did, deviceId: "phone" };

/** One header a line, without what the platform itself refuses to put into headers. */
function headersOf(input: Uint8Array): Headers {
  const headers = new Headers();
  for (const line of new TextDecoder("latin1").decode(input).split("\n")) {
    const colon = line.indexOf(":");
    try {
      headers.append(line.slice(0, colon), line.slice(colon + 1));
    } catch {
      // The server answers 400 before any of our code.
    }
  }
  return headers;
}

const membersOfProof = ({
  claims,
  signature_b64,
}: RetrievalVector): Record<string, string | undefined> => ({
  [retrievalHeaders.serviceId]: claims["service_id"],
  [retrievalHeaders.endpoint]: claims["cache_endpoint"],
  [retrievalHeaders.keyId]: claims["key_id"],
  [retrievalHeaders.timestamp]: claims["timestamp"],
  [retrievalHeaders.nonce]: claims["nonce"],
  [retrievalHeaders.signature]: signature_b64,
});

const headerTargets: readonly Target[] = [
  {
    name: "retrieval headers",
    samples: retrievals.map((one) =>
      utf8(
        Object.entries(membersOfProof(one))
          .map(([name, value]) => `${name}: ${value}`)
          .join("\n"),
      ),
    ),
    run: async (input) => {
      const headers = headersOf(input);
      const proof = decodeConnectHeaders(headers, { target, terms }, retrieval.now_ms);
      if (isFault(proof)) return `${proof.code} ${proof.detail.slice(0, 40)}`;
      check(proof.signature.length === 64, "a proof in good form has a signature");
      const decided = await decideRetrievalProof(proof, retrieval.subject, verifyEd25519);
      check(isFault(decided), "a proof for another device does not verify");
      return `accepted ${isFault(decided) ? decided.code : ""}`;
    },
  },
  {
    name: "update proof",
    samples: (
      listOf("proof/valid/update.json") as {
        claims: Record<string, string>;
        signature_b64: string;
      }[]
    ).map(({ claims, signature_b64 }) =>
      utf8([claims["key_id"], claims["timestamp"], claims["nonce"], signature_b64].join("\n")),
    ),
    run: (input) => {
      const [keyId = null, timestamp = null, nonce = null, signature = null] = new TextDecoder()
        .decode(input)
        .split("\n");
      const values = { keyId, timestamp, nonce, signature };
      if (timestamp !== null) parseProofTimestamp(timestamp);
      const rule = {
        operation: "set_alias",
        did: target.did,
        ledger: null,
        body: input,
        skewMs: 300_000,
      };
      const proof = decodeUpdateProof(presented(updateHeaders, values), rule, retrieval.now_ms);
      return isFault(proof) ? `${proof.code} ${proof.detail.slice(0, 40)}` : "accepted";
    },
  },
];

// ------------------------------------------------------------------------------------------ bodies

const shapes = [
  registerBody,
  replaceDocumentBody,
  ackBodyShape,
  linksBody,
  deliveryPolicyBody,
  personaPolicyBody,
];
const parseShapes = shapes.map((shape) => compileShape(shape));

const bodyTargets: readonly Target[] = [
  {
    name: "directory and acknowledgement bodies",
    samples: shapes.map((shape) => json(shape["examples"]?.[0] ?? {})),
    run: (input) => {
      const value = parseJson(input);
      if (isFault(value)) return "not JSON";
      const outcomes = parseShapes.map((parse) => {
        const body = parse(value);
        return isFault(body)
          ? (body.extra.errors ?? []).map(({ pointer }) => pointer).join(" ")
          : "accepted";
      });
      return outcomes.includes("accepted")
        ? `accepted ${outcomes.indexOf("accepted")}`
        : outcomes.join("|").slice(0, 300);
    },
  },
];

// ------------------------------------------------------------------------------------------ frames

const auth = {
  type: "auth",
  service_id: "did:svc:1111111111111111111111#relay",
  endpoint: "https://cache.example",
};

const frameTargets: readonly Target[] = [
  {
    name: "live frames",
    samples: [
      json({
        ...auth,
        key_id: "root",
        timestamp: "2026-07-16T12:00:00Z",
        nonce: "12345678",
        signature_b64: `${"A".repeat(86)}==`,
      }),
      json({
        ...auth,
        key_id: "k",
        timestamp: "1784203200",
        nonce: "n".repeat(128),
        signature_b64: retrieval.signature_b64,
      }),
      json({ type: "ack", message_id: "0190b3b4-0000-7000-8000-00000000000a" }),
      json({ type: "pass", message_id: "0190b3b4-0000-7000-8000-00000000000a" }),
      utf8("https://relay.example/ws/did:svc:1111111111111111111111/phone?pass=1"),
    ],
    run: (input) => {
      const asText = decodeUtf8(input);
      const reply = parseReply(input, { canForward: true });
      const acked = reply?.messageId ?? null;
      check(acked === null || /^[0-9a-f-]{36}$/.test(acked), "an acknowledged id is a UUID");
      if (asText !== null)
        check(
          Bun.deepEquals(parseReply(asText, { canForward: true }), reply),
          "a frame is the same as text and as bytes",
        );
      const where =
        asText !== null && URL.canParse(asText) ? parseSessionTarget(pathValues(asText)) : null;
      const proof = decodeConnectFrame(input, { target, terms }, retrieval.now_ms);
      if (acked !== null || (where !== null && !isFault(where)) || !isFault(proof))
        return `accepted ${acked !== null}`;
      return `${proof.code} ${proof.detail.slice(0, 40)} ${where === null ? "" : where.code}`;
    },
  },
];

/** The last two segments of a path, as the server's table hands them over. */
function pathValues(url: string): Record<string, string> {
  const [did = "", deviceId = ""] = new URL(url).pathname.split("/").slice(-2);
  return { did, deviceId };
}

// --------------------------------------------------------------------------------------------- bus

/** A bus on which no one else is: it hands over what the campaign says. */
function openMuteBus() {
  const handlers = new Map<string, BusReceiver>();
  const published: string[] = [];
  const fetched = { answer: new Uint8Array(0) };
  const bus: Bus = {
    plugin: "mute",
    messageBytesMax: 1 << 20,
    publish: (subject) => void published.push(subject),
    mayReach: () => true,
    subscribe: (subject, handler) => {
      handlers.set(subject, handler);
      return { ready: Promise.resolve(), unsubscribe: () => handlers.delete(subject) };
    },
    request: async () => fetched.answer,
    stats: () => ({ connected: true, subscriptions: handlers.size, dropped: 0 }),
    close: async () => undefined,
  };
  return { bus, handlers, fetched };
}

const mute = openMuteBus();
let heard = "";
const remote = createRemoteSessions(mute.bus, {
  deliver: async ({ envelope, timeoutMs }) => {
    check(
      typeof timeoutMs === "number" && envelope.messageId.length === 36,
      "a delivery has an id and a time",
    );
    heard = "accepted delivery";
    return "gone";
  },
  makeWay: async ({ did, deviceId }, isOlder) => {
    check(did.startsWith("did:svc:") && typeof deviceId === "string", "a join names a device");
    heard = `accepted join ${isOlder(1)}`;
  },
});
remote.listen(target.did);
directoryRecipients("https://directory.example", { bus: mute.bus });

const busTargets: readonly Target[] = [
  {
    name: "bus messages",
    samples: [
      json({
        from: "a",
        did: target.did,
        deviceId: "phone",
        joinCount: 3,
        reply: "relay.joined.1",
      }),
      json({ from: "a", name: "b", timeoutMs: 100 }),
      utf8(
        `0190b3b4-0000-7000-8000-00000000000a\n{"message_id":"0190b3b4-0000-7000-8000-00000000000a"}`,
      ),
      utf8(target.did),
    ],
    run: async (input) => {
      heard = "refused";
      check(mute.handlers.size >= 3, "three subjects are subscribed to");
      mute.fetched.answer = input.slice();
      const offer = json({ from: "a", name: "b", timeoutMs: 100 });
      for (const handler of mute.handlers.values())
        for (const message of [input, offer]) await handler(message.slice());
      return heard;
    },
  },
];

// ------------------------------------------------------------------------------------------ chains

const hash = `0x${"ab".repeat(32)}`;
const header = {
  parentHash: hash,
  number: "0x1f",
  stateRoot: hash,
  extrinsicsRoot: hash,
  digest: { logs: ["0x0642414245", "0x05424142450101"] },
};
const answer = (result: unknown) => json({ jsonrpc: "2.0", id: 1, result });
const parseAnswers: readonly ((result: unknown) => unknown)[] = [
  parseHash,
  parseHeader,
  parseBlock,
  parseVersion,
  parseSyncing,
  parseHex,
  (count) => parseVersion({ specName: "waypost", specVersion: count, transactionVersion: count }),
  parseStorage([hash], hash),
];

/** What one connection makes of a frame: the result of its only request, or how that ended. */
async function receive(frame: unknown): Promise<{ readonly result: unknown } | string> {
  const events: SocketEvents[] = [];
  const host = {
    nowMs: () => 0,
    elapsedMs: () => 0,
    after: () => () => undefined,
    connect: (_endpoint: string, given: SocketEvents) => {
      events.push(given);
      return { send: () => undefined, close: () => undefined };
    },
    chance: () => 0,
  };
  const opening = Rpc.open("wss://node.example/secret-key-1", {
    waitMs: 1,
    signal: new AbortController().signal,
    host,
  });
  const [socket] = events;
  if (socket === undefined) throw new Error("the connection was not opened");
  socket.onOpen();
  const rpc = await opening;
  const asked = rpc.ask("chain_getHeader", [], 1).then(
    (result) => ({ result }),
    (error: unknown) => {
      check(
        error instanceof Error && !error.message.includes("secret-key-1"),
        "no error holds the key of an endpoint",
      );
      return error instanceof Error ? error.message.slice(0, 60) : "";
    },
  );
  socket.onMessage(frame);
  // Ends what was not answered.
  rpc.close();
  return asked;
}

function parsed(parse: (result: unknown) => unknown, result: unknown): string {
  try {
    const value = parse(result);
    return value === null ? "null" : typeof value;
  } catch (error) {
    // The session leaves a node whose answer has no form; running out of stack would be a defect.
    check(
      error instanceof Error && !(error instanceof RangeError) && !(error instanceof TypeError),
      String(error),
    );
    return "-";
  }
}

const roundTrips = <T>(codec: Codec<T>, bytes: Uint8Array): boolean => {
  const value = decodeWith(codec, bytes);
  if (value === null) return false;
  check(equalBytes(encodeWith(codec, value), bytes), "a value of the chain encodes to its bytes");
  return true;
};

const policyBytes = encodeWith(deliveryPolicyCodec, {
  effectiveTtlBlocks: 100,
  maxMessageBytes: 1_000,
  cacheEligible: true,
  replication: 2,
  encryptedHeaderPreviewBytes: 16,
  releasePricing: { baseFee: 1n, perKibFee: 2n },
  expirationBehavior: "KeepHeaderPreview",
});

const chainTargets: readonly Target[] = [
  {
    name: "chain frames",
    samples: [
      ...[header, { block: { header, extrinsics: ["0x2804"] } }, hash, null, 7, true].map(answer),
      answer({ specName: "waypost", specVersion: 1, transactionVersion: 1 }),
      answer({ isSyncing: false, peers: 3 }),
      answer([{ block: hash, changes: [[hash, "0x0100"]] }]),
      json({
        jsonrpc: "2.0",
        id: 1,
        error: { code: 1010, message: "Invalid Transaction", data: { why: "Stale" } },
      }),
      json({
        jsonrpc: "2.0",
        method: "chain_finalizedHead",
        params: { subscription: "s", result: header },
      }),
    ],
    run: async (input) => {
      const answered = await receive(new TextDecoder().decode(input));
      if (typeof answered === "string") return answered;
      return `accepted ${parseAnswers.map((parse) => parsed(parse, answered.result)).join(" ")}`;
    },
  },
  {
    name: "chain values",
    samples: [
      policyBytes,
      encodeWith(personaPolicyCodec, {
        releasePricing: { asset: "unit", amount: 5n },
        expirationBehavior: { mode: "DeleteOnExpiry", retainUntilMs: 9n },
        allowedRelays: ["relay.example"],
      }),
      encodeWith(recordCodec, {
        owner: new Uint8Array(32).fill(1),
        aliases: ["alice"],
        devices: [],
        document: retrieval.subject.document,
        version: 3n,
        updatedAtMs: 1_784_203_200_000n,
        rootPubkey: new Uint8Array(32).fill(7),
        links: { recipientPolicy: null, tagPolicies: ["a"], personaPolicies: [] },
        deactivated: false,
      }),
    ],
    run: (input) => {
      const found = [roundTrips(deliveryPolicyCodec, input), roundTrips(personaPolicyCodec, input)];
      const record = decodeWith(recordCodec, input);
      if (record !== null) encodeHex0x(encodeWith(recordCodec, record));
      const isFound = record !== null || found.includes(true);
      return isFound ? `accepted ${found.join(" ")} ${record !== null}` : "refused";
    },
  },
];

// -------------------------------------------------------------------------------------------- CBOR

export const frameAndProofTargets: readonly Target[] = [
  ...headerTargets,
  ...bodyTargets,
  ...frameTargets,
  ...busTargets,
  ...chainTargets,
];
