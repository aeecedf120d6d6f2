/**
 * From settings to nodes: the one place where the names of the configuration become the options of the
 * Directory, the Relay and the Cache, and where they are given their stores and their recipients.
 */

import { existsSync } from "node:fs";
import type { Config } from "../config.ts";
import type { AdmissionRules } from "../core/admission.ts";
import { decodeHex } from "../core/bytes.ts";
import { createSigner } from "../core/ed25519.ts";
import type { EnvelopeLimits } from "../core/envelope.ts";
import { type Cache, type CacheParts, createCache } from "../nodes/cache.ts";
import { createDirectory, type Directory } from "../nodes/directory.ts";
import { directoryBodyBytesMax } from "../nodes/directory-parts.ts";
import type { Route } from "../nodes/http.ts";
import type { Upgrade } from "../nodes/listen.ts";
import type { Log } from "../nodes/log.ts";
import type { Metrics } from "../nodes/metrics.ts";
import { directoryRecipients, ledgerRecipients, type RecipientSource } from "../nodes/recipients.ts";
import type { OpenStores } from "../storage/bind.ts";
import { ledgerOfRecipients } from "./compose-stores.ts";
import { failed } from "./outcome.ts";

/** What differs between running for real and running in a test. */
export type NodeOverrides = Record<never, never>;

export type ComposeParts = NodeOverrides & {
  readonly stores: OpenStores;
  readonly now: () => number;
  readonly log: Log;
  readonly metrics: Metrics;
};

export type ComposedNodes = {
  readonly routes: readonly Route[];
  /** What `/limits` answers. */
  readonly limits: () => Promise<Readonly<Record<string, unknown>>>;
  readonly upgrade?: Upgrade<unknown>;
  readonly stop?: () => Promise<void>;
};

export async function composeNodes(config: Config, parts: ComposeParts): Promise<ComposedNodes> {
  const directory = config.directory.enabled ? composeDirectory(config, parts) : null;
  const cache = config.cache.enabled ? await composeCache(config, parts) : null;
  return {
    routes: [...(directory?.routes ?? []), ...(cache?.routes ?? [])],
    limits: async () => ({ ...bodyLimit(config), ...(await directory?.limits()), ...cache?.limits }),
    stop: async () => cache?.close(),
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

async function composeCache(config: Config, { stores, now }: ComposeParts): Promise<Cache> {
  const { cache } = config;
  const [first, ...others] = cache.public_endpoints;
  if (first === undefined) throw failed("cache.public_endpoints: at least one");
  return createCache({
    mailbox: stores.capability("cache.store", "mailbox"),
    replay: stores.capability("cache.store", "replay"),
    recipients: recipientsOf("cache", config, stores),
    sign: await readSigner(cache.signing_key_file),
    now,
    options: {
      publicEndpoints: [first, ...others],
      limits: envelopeLimits(config),
      admission: admissionRules(cache),
      quota: {
        recipientEntriesMax: cache.recipient_entries_max,
        recipientBytesMax: cache.recipient_bytes_max,
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

/** The Directory of this process, a ledger by name, or a Directory elsewhere. */
function recipientsOf(node: "relay" | "cache", config: Config, stores: OpenStores): RecipientSource {
  const { recipients } = config[node];
  if (recipients === "local") return ledgerRecipients(stores.capability("directory.ledger", "ledger"));
  if (ledgerOfRecipients(recipients) !== null)
    return ledgerRecipients(stores.capability(`${node}.recipients`, "ledger"));
  return directoryRecipients(recipients);
}

/** A file with 64 hex digits: the seed of the key that signs event proofs. */
async function readSigner(file: string | null): Promise<CacheParts["sign"]> {
  if (file === null) return null;
  if (!existsSync(file)) throw failed(`cache.signing_key_file: there is no ${file}`);
  const seed = decodeHex((await Bun.file(file).text()).trim());
  const sign = seed === null ? null : createSigner(seed);
  if (sign === null) throw failed("cache.signing_key_file: the file must hold 32 bytes in hex");
  return sign;
}
