/**
 * From settings to nodes: the one place where the names of the configuration become the options of the
 * Directory, the Relay and the Cache, and where they are given their stores and their recipients.
 */

import type { Config } from "../config/schema.ts";
import { parseNetwork } from "../core/message/address.ts";
import type { AdmissionRules } from "../core/message/admission.ts";
import { deliveryLimits } from "../core/message/delivery.ts";
import type { EnvelopeLimits } from "../core/message/envelope.ts";
import { type Cache, type CacheParts, createCache } from "../nodes/cache/cache.ts";
import { createWakeHook, wakeDefaults } from "../nodes/cache/wake.ts";
import { createDirectory, type Directory } from "../nodes/directory/directory.ts";
import { directoryBodyBytesMax } from "../nodes/directory/parts.ts";
import type { Log } from "../nodes/http/log.ts";
import type { Metrics } from "../nodes/http/metrics.ts";
import type { Route } from "../nodes/http/route.ts";
import { removeStaleSocket, type Upgrade } from "../nodes/http/server.ts";
import { directoryRecipients, ledgerRecipients, type RecipientSource } from "../nodes/recipients.ts";
import { type Courier, createCourier, type Resolver } from "../nodes/relay/egress.ts";
import { laneLimits } from "../nodes/relay/host-limiter.ts";
import type { Peers } from "../nodes/relay/live/live.ts";
import { frameSlackBytes } from "../nodes/relay/live/peer-frames.ts";
import { createPeers, peerLimits } from "../nodes/relay/live/peers.ts";
import { type SessionSocket, sessionLimits } from "../nodes/relay/live/registry.ts";
import { createSessions, type LiveSessions } from "../nodes/relay/live/sessions.ts";
import { createRelay, type Relay, rateKeysMax } from "../nodes/relay/relay.ts";
import type { OpenStores } from "../storage/bind.ts";
import type { Bus } from "../storage/bus.ts";
import { failed, isSystemRefusal } from "./failure.ts";
import { exposedText, isExposed, readSigner } from "./signing-key.ts";
import { ledgerOfRecipients } from "./stores.ts";

/** What differs between running for real and running in a test. */
export type NodeOverrides = {
  /** How names of destinations become addresses. */
  readonly resolve?: Resolver;
  /** Certificates that outbound requests trust besides those of the system, in PEM. */
  readonly ca?: readonly string[];
};

export type ComposeParts = NodeOverrides & {
  readonly stores: OpenStores;
  readonly bus: Bus;
  readonly now: () => number;
  readonly log: Log;
  readonly metrics: Metrics;
};

type Consumer = "relay" | "cache";
type NodeParts = ComposeParts & { readonly recipients: (node: Consumer) => RecipientSource };

export type ComposedNodes = {
  readonly routes: readonly Route[];
  /** What `/limits` answers. */
  readonly limits: () => Promise<Readonly<Record<string, unknown>>>;
  readonly upgrade?: Upgrade<SessionSocket>;
  /** What `/readyz` asks besides the stores. */
  readonly probes: Readonly<Record<string, () => Promise<unknown>>>;
  /** Ends streams and live sessions, which would hold the drain up. */
  readonly endLasting: () => void;
  /** Ends what is left when all requests are answered. */
  readonly close: () => void;
};

export async function composeNodes(config: Config, overrides: ComposeParts): Promise<ComposedNodes> {
  const parts = { ...overrides, recipients: sharedRecipients(config, overrides.stores) };
  const directory = config.directory.enabled ? composeDirectory(config, parts) : null;
  const cache = config.cache.enabled ? await composeCache(config, parts) : null;
  const peers = config.relay.enabled ? composePeers(config, parts) : null;
  const sessions = config.relay.enabled ? await composeSessions(config, { ...parts, peers }) : null;
  const relay = config.relay.enabled ? composeRelay(config, { ...parts, cache, sessions, peers }) : null;
  return {
    routes: [...(directory?.routes ?? []), ...(relay?.routes ?? []), ...(cache?.routes ?? [])],
    limits: async () => ({ ...bodyLimit(config), ...(await directory?.limits()), ...relay?.limits, ...cache?.limits }),
    ...(sessions === null ? {} : { upgrade: sessions.upgrade }),
    probes: recipientProbes(config, parts.recipients),
    endLasting: () => {
      sessions?.close();
      cache?.close();
    },
    close: () => {
      relay?.close();
      peers?.close();
    },
  };
}

/** Directories take no envelopes; `/limits` names the largest body that any route of the node takes. */
function bodyLimit({ relay, cache, limits }: Config): Record<string, unknown> {
  return { max_http_body_bytes: relay.enabled || cache.enabled ? limits.body_bytes_max : directoryBodyBytesMax };
}

function composeDirectory({ directory }: Config, { stores }: ComposeParts): Directory {
  return createDirectory({
    ledger: stores.capability("directory.ledger", "ledger"),
    receipts: stores.capability("directory.store", "receipts"),
    replay: stores.capability("directory.store", "replay"),
    options: {
      registrationProofs: directory.registration_proofs,
      unsignedUpdates: directory.unsigned_updates,
      skewMs: directory.clock_skew,
      authorizationAheadMsMax: directory.authorization_max_ahead,
      preparedLifeMs: directory.prepared_life,
      pendingBlocks: directory.pending_blocks,
    },
  });
}

async function composeCache(config: Config, { stores, recipients, now, log }: NodeParts): Promise<Cache> {
  const { cache } = config;
  const [first, ...others] = cache.public_endpoints;
  if (first === undefined) throw failed("cache.public_endpoints: at least one");
  const wake =
    cache.wake_url === null
      ? null
      : createWakeHook({ ...wakeDefaults, url: cache.wake_url, intervalMs: cache.wake_interval }, log);
  const node = createCache({
    mailbox: stores.capability("cache.store", "mailbox"),
    replay: stores.capability("cache.store", "replay"),
    recipients: recipients("cache"),
    sign: await signerOf(cache.signing_key_file, log),
    now,
    options: {
      publicEndpoints: [first, ...others],
      limits: envelopeLimits(config),
      admission: admissionRules(cache),
      quota: {
        recipientEntriesMax: cache.recipient_entries_max,
        recipientBytesMax: cache.recipient_bytes_max,
        shares: [],
        storeEntriesMax: cache.store_entries_max,
        storeBytesMax: cache.store_bytes_max,
      },
      skewMs: cache.clock_skew,
      pageEntriesMax: cache.page_entries_max,
      pageBytesMax: cache.page_bytes_max,
      summaryEntriesMax: cache.summary_entries_max,
      ackIdsMax: cache.ack_ids_max,
      stream: {
        streamsMax: cache.streams_max,
        perRecipientMax: cache.recipient_streams_max,
        heartbeatMs: cache.stream_heartbeat,
        lifeMsMax: cache.stream_life,
        entriesPerReadMax: cache.page_entries_max,
      },
    },
    ...(wake === null ? {} : { onStored: wake.stored }),
  });
  const close = () => {
    node.close();
    wake?.close();
  };
  return { ...node, close };
}

function composePeers({ relay, limits }: Config, { log }: NodeParts): Peers | null {
  if (relay.peer_listen === null) return null;
  return createPeers({
    address: relay.peer_listen,
    peers: relay.peers,
    limits: {
      ...peerLimits,
      joinMs: sessionLimits.joinMs,
      presenceMax: relay.sessions_max,
      frameBytesMax: limits.body_bytes_max + frameSlackBytes,
    },
    log,
  });
}

/** Peers that are up are linked in milliseconds; for those that are not, the start does not wait longer. */
const linkedMs = 1_500;

async function composeSessions(config: Config, parts: NodeParts & { peers: Peers | null }): Promise<LiveSessions> {
  const { relay } = config;
  const { peers, stores, now, log } = parts;
  if (relay.peer_listen !== null) await removeStaleSocket(relay.peer_listen);
  const sessionParts = {
    recipients: parts.recipients("relay"),
    replay: stores.capability("relay.store", "replay"),
    endpoints: relay.public_endpoints,
    skewMs: relay.clock_skew,
    limits: {
      ...sessionLimits,
      socketsMax: relay.sessions_max,
      sessionsPerDidMax: relay.recipient_sessions_max,
      exemptLoopback: !relay.rate_limit_loopback,
    },
    peers,
    now,
    log,
  };
  try {
    const sessions = createSessions(sessionParts);
    await peers?.linked(linkedMs);
    return sessions;
  } catch (error) {
    throw isSystemRefusal(error) ? failed(`relay.peer_listen: ${error.message}`) : error;
  }
}

type RelayNeighbours = {
  readonly cache: Cache | null;
  readonly sessions: LiveSessions | null;
  readonly peers: Peers | null;
};

function composeRelay(config: Config, parts: NodeParts & RelayNeighbours): Relay {
  const { relay } = config;
  return createRelay({
    recipients: parts.recipients("relay"),
    receipts: parts.stores.capability("relay.store", "receipts"),
    courier: composeCourier(relay, parts),
    cacheDoor: parts.cache === null ? null : { endpoints: config.cache.public_endpoints, store: parts.cache.store },
    sessions: parts.sessions,
    peers: parts.peers,
    options: {
      publicId: relay.public_id,
      publicEndpoints: relay.public_endpoints,
      envelope: envelopeLimits(config),
      delivery: {
        ...deliveryLimits,
        attemptsPerDestination: relay.attempts,
        retryWaitMs: relay.retry_delay,
        totalMs: relay.delivery_budget,
        cacheReserveMs: relay.cache_reserve,
        requestMs: relay.request_timeout,
        liveAckMs: relay.live_ack_timeout,
      },
      admission: admissionRules(relay),
      clientRate: { perSecond: relay.client_rate, burst: relay.client_burst, keysMax: rateKeysMax },
      recipientRate: { perSecond: relay.recipient_rate, burst: relay.recipient_burst, keysMax: rateKeysMax },
      exemptLoopback: !relay.rate_limit_loopback,
      skewMs: relay.clock_skew,
    },
    now: parts.now,
    sleep: (ms) => Bun.sleep(ms),
    random: Math.random,
    log: parts.log,
    metrics: parts.metrics,
  });
}

function composeCourier(relay: Config["relay"], overrides: NodeOverrides): Courier {
  return createCourier({
    rules: {
      allowHttp: relay.allow_http,
      allowPrivate: relay.allow_private.map(parseNetwork).filter((network) => network !== null),
      ownRelays: relay.public_endpoints,
    },
    lanes: {
      ...laneLimits,
      concurrentPerDestination: relay.destination_requests_max,
      queuedPerDestination: relay.destination_queue_max,
      concurrentTotal: relay.outbound_requests_max,
    },
    connectMs: relay.connect_timeout,
    ...(overrides.resolve === undefined ? {} : { resolve: overrides.resolve }),
    ...(overrides.ca === undefined ? {} : { ca: overrides.ca }),
  });
}

function envelopeLimits({ limits }: Config): EnvelopeLimits {
  return {
    bodyBytesMax: limits.body_bytes_max,
    unchunkedBytesMax: limits.unchunked_bytes_max,
    chunkBytesMax: limits.chunk_bytes_max,
    headerBytesMax: limits.header_bytes_max,
    ttlMsMax: limits.ttl_max,
    ttlMsDefault: limits.ttl_default,
    futureMsMax: limits.clock_ahead,
  };
}

function admissionRules(node: Config["relay"] | Config["cache"]): AdmissionRules {
  return {
    requireSenderSignature: node.require_sender_signature,
    allowRecipients: new Set(node.allow_recipients),
    denyRecipients: new Set(node.deny_recipients),
    allowSenders: new Set(node.allow_senders),
    denySenders: new Set(node.deny_senders),
  };
}

/** One source for each answer of the configuration, so that all nodes of the process share what it remembers. */
function sharedRecipients(config: Config, stores: OpenStores): NodeParts["recipients"] {
  const sources = new Map<string, RecipientSource>();
  return (node) => {
    const name = config[node].recipients;
    const source = sources.get(name) ?? recipientsOf(node, config, stores);
    sources.set(name, source);
    return source;
  };
}

/** Directories elsewhere. The ledgers of this process are probed with their stores. */
function recipientProbes(config: Config, sourceOf: NodeParts["recipients"]): ComposedNodes["probes"] {
  const consumers: readonly Consumer[] = ["relay", "cache"];
  const asking = consumers.filter((node) => config[node].enabled && isDirectoryUrl(config[node].recipients));
  return Object.fromEntries(asking.map((node) => [`${node} recipients`, () => sourceOf(node).blockTimeMs()]));
}

function isDirectoryUrl(recipients: string): boolean {
  return recipients !== "local" && ledgerOfRecipients(recipients) === null;
}

/** The Directory of this process, a ledger by name, or a Directory elsewhere. */
function recipientsOf(node: Consumer, config: Config, stores: OpenStores): RecipientSource {
  const { recipients } = config[node];
  if (recipients === "local") return ledgerRecipients(stores.capability("directory.ledger", "ledger"));
  if (ledgerOfRecipients(recipients) !== null)
    return ledgerRecipients(stores.capability(`${node}.recipients`, "ledger"));
  return directoryRecipients(recipients);
}

async function signerOf(file: string | null, log: Log): Promise<CacheParts["sign"]> {
  if (file === null) return null;
  const sign = await readSigner(file);
  if (isExposed(file)) log("warn", exposedText(file));
  return sign;
}
