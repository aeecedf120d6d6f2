/**
 * Puts the Directory, the Relay and the Cache together: each gets its section of the configuration, its
 * stores, and the source of its recipients.
 */

import { isPublicEndpoint } from "../config/kinds.ts";
import type { Config } from "../config/schema.ts";
import type { VerifySignature } from "../core/codec/bytes.ts";
import type { Did } from "../core/codec/did.ts";
import { type Cache, createCache } from "../nodes/cache/cache.ts";
import { createAliasRules } from "../nodes/directory/aliases.ts";
import { createDirectory, type Directory } from "../nodes/directory/directory.ts";
import { createLog, entryRoute } from "../nodes/directory/log.ts";
import { type DirectoryParts, directoryBodyBytesMax } from "../nodes/directory/parts.ts";
import { forgetRegistration } from "../nodes/directory/register.ts";
import { createEgress, type Resolver } from "../nodes/egress/egress.ts";
import { hostLimits } from "../nodes/egress/host-limiter.ts";
import type { Log } from "../nodes/http/log.ts";
import type { Metrics } from "../nodes/http/metrics.ts";
import type { Route } from "../nodes/http/route.ts";
import { type Erasing, followDeletions } from "../nodes/operations/erase.ts";
import { createInvitations, type Invitations } from "../nodes/operations/invitations.ts";
import type { MemberParts } from "../nodes/operations/members.ts";
import { resolutionRoute } from "../nodes/parties/admission.ts";
import { type Blocks, openBlocks } from "../nodes/parties/blocks.ts";
import { type Bundles, createBundles } from "../nodes/parties/bundles.ts";
import { createHomes, type Homes } from "../nodes/parties/homes.ts";
import { openMaintenance } from "../nodes/parties/maintenance.ts";
import { createMembers, type Members } from "../nodes/parties/members.ts";
import { openNotices } from "../nodes/parties/notices.ts";
import {
  directoryRecipients,
  ledgerRecipients,
  noRecipients,
  type RecipientSource,
  withHomes,
} from "../nodes/parties/recipients.ts";
import { rememberRecipients } from "../nodes/parties/remembered.ts";
import { announceChange, createBell } from "../nodes/parties/signals.ts";
import { openTiers, type Tiers } from "../nodes/parties/tiers.ts";
import { createSessions } from "../nodes/relay/live/session.ts";
import { createRelay } from "../nodes/relay/relay.ts";
import { openResults, type Results } from "../nodes/results.ts";
import { createWitness } from "../nodes/witness/witness.ts";
import { postgresOptions } from "../plugins/postgres/postgres.ts";
import type { OpenStores } from "../storage/bind.ts";
import type { Bus } from "../storage/bus.ts";
import type { Ledger } from "../storage/contract.ts";
import { addressesOf, type Keys } from "./keys.ts";
import { registerMemberMetrics } from "./metrics.ts";
import { adminOf, directoryReceipts, receiptsOf } from "./operating.ts";

/** Tests set these; a running node has none. */
export type NodeOverrides = {
  /** How names of destinations become addresses. */
  readonly resolve?: Resolver;
  /** Certificates that outbound requests trust besides those of the system, in PEM. */
  readonly ca?: readonly string[];
};

export type ComposeParts = NodeOverrides &
  Keys & {
    readonly stores: OpenStores;
    readonly bus: Bus;
    /** Verifies what clients sign; one for the process (`createPoolVerifier`). */
    readonly verify: VerifySignature;
    readonly now: () => number;
    readonly log: Log;
    readonly metrics: Metrics;
  };

type KnownParts = ComposeParts & { readonly homes?: Homes };
type NodeParts = KnownParts & {
  readonly recipients: RecipientSource;
  readonly blocks: Blocks;
  readonly tiers: Tiers;
  readonly members: Members;
  readonly digest: Results["digest"];
};

export type ComposedNodes = Awaited<ReturnType<typeof composeNodes>>;

export async function composeNodes(config: Config, overrides: ComposeParts) {
  const blocks = await openBlocks({
    ...overrides,
    receipts: receiptsOf(config, overrides.stores),
    operator: config.operator,
  });
  const tiers = await openTiers({
    ...overrides,
    receipts: receiptsOf(config, overrides.stores),
    config,
  });
  const maintenance = await openMaintenance({
    ...overrides,
    receipts: receiptsOf(config, overrides.stores),
  });
  const results = await openResults({
    ...overrides,
    receipts: receiptsOf(config, overrides.stores),
  });
  const members = createMembers({
    receipts: config.directory.enabled
      ? directoryReceipts(overrides.stores)
      : receiptsOf(config, overrides.stores),
    keepsDays: config.server.last_seen,
    log: overrides.log,
  });
  registerMemberMetrics(overrides.metrics, members, overrides.now);
  const homes = composeHomes(config, overrides);
  const known = { ...overrides, ...(homes === null ? {} : { homes }) };
  const parts = {
    ...known,
    recipients: recipientsOf(config, known),
    blocks,
    tiers,
    members,
    digest: results.digest,
  };
  const notices = await openNotices({
    ...parts,
    receipts: receiptsOf(config, overrides.stores),
    operator: config.operator,
  });
  const { stores, bus } = overrides;
  const takesEnvelopes = config.relay.enabled || config.cache.enabled;
  const ledger = config.directory.enabled ? stores.capability("directory.ledger", "ledger") : null;
  const onSubmitted = announceChange(bus);
  const invitations =
    ledger === null
      ? null
      : createInvitations({ ...overrides, receipts: directoryReceipts(stores) });
  const erasing = erasingOf(config, { ...parts, invitations, results });
  const deletions = followDeletions({ ...parts, ...erasing });
  const directory =
    ledger === null || invitations === null
      ? null
      : composeDirectory(config, {
          ...parts,
          ledger,
          onSubmitted,
          invitations,
          expectDeletion: deletions.expect,
        });
  const { cache, sessions, relay } = composeDelivery(config, parts);
  const bundles = composeBundles(config, parts, cache);
  const mayListen = (did: Did) => sessions?.mayListen(did) ?? false;
  const publisher = composeLog(config, parts);
  // A Directory elsewhere. The ledgers of this process are probed with their stores.
  const isAsked = takesEnvelopes && isPublicEndpoint(config.server.recipients);
  const asked: Record<string, () => Promise<unknown>> = isAsked
    ? { recipients: () => parts.recipients.blockTimeMs() }
    : {};
  return {
    routes: [
      ...(directory?.routes ?? []),
      ...(relay?.routes ?? []),
      ...(sessions?.routes ?? []),
      ...(cache?.routes ?? []),
      ...(publisher?.routes ?? (homes === null ? [] : [entryRoute(homes, null)])),
      ...witnessRoutes(config, parts),
      ...(bundles === null ? [] : resolutionRoutes(config, { ...parts, bundles })),
    ],
    /** What `/limits` answers. */
    limits: async () => ({
      // Directories accept no envelopes; this is the largest body that any route of the node accepts.
      max_http_body_bytes: takesEnvelopes ? config.limits.body_bytes_max : directoryBodyBytesMax,
      ...(await directory?.limits()),
      ...relay?.limits(),
      ...cache?.limits(),
    }),
    ...(sessions === null ? {} : { websocket: sessions.websocket }),
    maintenance,
    notices,
    /** What became of envelopes lately. */
    results,
    /** What operations on a running node reach. */
    operated: {
      admin: adminOf(config, overrides),
      maintenance,
      notices,
      explain: {
        ...parts,
        maintenance,
        results,
        relay: relay === null ? null : { rules: config.relay, refuses: relay.refuses, mayListen },
        cache: cache?.explained ?? null,
      },
      ...erasing,
      membership: membershipOf(config, parts),
    },
    /** What `/readyz` asks besides the stores. */
    probes: asked,
    /** Ends live sessions, which would hold the drain up. */
    endLasting: () => sessions?.close(),
    /** Ends what is left when all requests are answered. */
    close: () => {
      relay?.close();
      cache?.close();
      homes?.close();
      bundles?.close();
      publisher?.close();
      blocks.close();
      tiers.close();
      maintenance.close();
      notices.close();
      deletions.close();
    },
  };
}

/** What the process can remove of a DID. */
function erasingOf(
  config: Config,
  {
    stores,
    recipients,
    blocks,
    tiers,
    members,
    invitations,
    results,
  }: NodeParts & Pick<Erasing, "results"> & { readonly invitations: Invitations | null },
): Erasing {
  const { server, cache } = config;
  const isElsewhere = isPublicEndpoint(server.recipients);
  const ledger = cache.enabled && !isElsewhere ? ledgerOf(config, stores) : null;
  return {
    blocks,
    tiers,
    members,
    results,
    directory:
      invitations === null
        ? null
        : { invitations, forget: (did) => forgetRegistration(directoryReceipts(stores), did) },
    cache: cache.enabled
      ? {
          mailbox: stores.capability("cache.store", "mailbox"),
          receipts: stores.capability("cache.store", "receipts"),
        }
      : null,
    lifeOf: async (did) => {
      if (ledger !== null) return (await ledger.account(did)).life;
      return cache.enabled ? ((await recipients.subject(did))?.life ?? null) : 0;
    },
  };
}

/** What the list of members is made of: no ledger where recipients are looked up at a Directory elsewhere. */
function membershipOf(
  config: Config,
  { stores, members, blocks, tiers }: NodeParts,
): Omit<MemberParts, "now"> {
  const isElsewhere = isPublicEndpoint(config.server.recipients);
  const hasLedger = config.directory.enabled || !isElsewhere;
  const hasNode = config.directory.enabled || config.relay.enabled || config.cache.enabled;
  const ledger = hasLedger && hasNode ? ledgerOf(config, stores) : null;
  return {
    members,
    blocks,
    tiers,
    ledger,
    mailbox: config.cache.enabled ? stores.capability("cache.store", "mailbox") : null,
  };
}

/** A Directory resolves from its own ledger, another node from its source of recipients. */
function resolutionRoutes(
  config: Config,
  { stores, recipients, ...known }: NodeParts & { readonly bundles: Bundles },
): Route[] {
  const { directory, limits } = config;
  if (directory.enabled) {
    const ledger = stores.capability("directory.ledger", "ledger");
    const recipients = ledgerRecipients(ledger);
    const unavailable = "chain_unavailable";
    return [resolutionRoute({ ...known, recipients, limits, unavailable, ledger })];
  }
  const isElsewhere = isPublicEndpoint(config.server.recipients);
  const unavailable = isElsewhere ? "service_unavailable" : "chain_unavailable";
  const { bundles } = known;
  return [resolutionRoute({ recipients, limits, unavailable, ledger: null, bundles })];
}

/** What senders learn of the keys of recipients; `null` where no node knows recipients. */
function composeBundles(
  { directory, relay, cache: settings, limits }: Config,
  parts: NodeParts,
  cache: Cache | null,
): Bundles | null {
  if (!directory.enabled && !relay.enabled && !settings.enabled) return null;
  const egress = createEgress({
    settings: { ...relay, public_endpoints: [] },
    hosts: bundleHosts,
    requestsMax: bundlesMax,
    ...definedOf(parts),
  });
  return createBundles({
    ...parts,
    egress,
    own: cache === null ? null : { ...cache, endpoints: settings.public_endpoints },
    skewMs: limits.clock_skew,
  });
}

/** Of the 256 requests that Bun sends at once. */
const bundlesMax = 128;
/** A group may have all its members at one Cache. */
const bundleHosts = { ...hostLimits, concurrent: 16, queued: 128 };

function composeDirectory(
  config: Config,
  parts: NodeParts &
    Pick<DirectoryParts, "ledger" | "onSubmitted" | "invitations" | "expectDeletion">,
): Directory {
  const { stores } = parts;
  const { directory, limits } = config;
  return createDirectory({
    ...parts,
    receipts: directoryReceipts(stores),
    aliases: createAliasRules({
      ...parts,
      receipts: directoryReceipts(stores),
      settings: directory,
      operator: config.operator,
    }),
    operator: config.operator,
    replay: stores.capability("directory.store", "replay"),
    settings: directory,
    limits,
  });
}

/** Who is at home at other Directories; `null` for a Directory that no other can reach. */
function composeHomes({ directory, relay }: Config, parts: ComposeParts): Homes | null {
  if (!directory.enabled || directory.public_endpoint === null) return null;
  const settings = { ...relay, public_endpoints: [], destination_requests_max: 4 };
  const egress = createEgress({ settings, ...definedOf(parts) });
  return createHomes({
    ...parts,
    egress,
    receipts: directoryReceipts(parts.stores),
    settings: directory,
  });
}

/** The log of the Directory's ledger. */
function composeLog({ directory }: Config, parts: NodeParts) {
  const { logKey, stores } = parts;
  if (logKey === null) return null;
  const witnesses = addressesOf(directory.log_witnesses);
  return createLog({
    ...parts,
    logKey,
    witnesses,
    logs: stores.capability("directory.ledger", "logs"),
  });
}

function witnessRoutes({ witness }: Config, parts: NodeParts): readonly Route[] {
  const { witnessKey, stores } = parts;
  if (witnessKey === null) return [];
  const watched = addressesOf(witness.logs);
  return createWitness({
    ...parts,
    ...witnessKey,
    watched,
    logBytesMax: witness.log_bytes_max,
    logs: stores.capability("witness.store", "logs"),
  });
}

/** Relay and Cache, which deliver to each other where both run in this process. */
function composeDelivery(config: Config, { bus, ...parts }: NodeParts) {
  const { stores, pushKey, eventKey } = parts;
  const { limits, server } = config;
  const bell = createBell(bus);
  const of = { ...parts, bell, limits };
  const pushing = (requestsMax: number) =>
    createEgress({
      settings: config.relay,
      hosts: pushHosts,
      requestsMax,
      byRegisteredName: true,
      ...definedOf(parts),
    });
  const cache = config.cache.enabled
    ? createCache({
        ...of,
        mailbox: stores.capability("cache.store", "mailbox"),
        replay: stores.capability("cache.store", "replay"),
        receipts: stores.capability("cache.store", "receipts"),
        sign: eventKey.sign,
        operator: config.operator,
        settings: config.cache,
        ...(pushKey === null
          ? {}
          : {
              push: {
                key: pushKey,
                egress: pushing(pushesMax),
                confirmations: pushing(confirmationsMax),
                settings: config.push,
              },
            }),
      })
    : null;
  if (!config.relay.enabled) return { cache, sessions: null, relay: null };
  const sessions = createSessions({
    ...of,
    // One process without others holds all sessions.
    ...(bus.plugin === "local" ? {} : { bus }),
    changes: bus,
    replay: stores.capability("relay.store", "replay"),
    settings: config.relay,
    showSignedText: server.show_signed_text,
  });
  const relay = createRelay({
    ...of,
    sessions,
    receipts: stores.capability("relay.store", "receipts"),
    egress: createEgress({ settings: config.relay, ...definedOf(parts) }),
    localCache: cache === null ? null : { ...cache, endpoints: config.cache.public_endpoints },
    settings: config.relay,
    sleep: (ms) => Bun.sleep(ms),
    random: Math.random,
  });
  return { cache, sessions, relay };
}

/** Of the 256 requests that Bun sends at once. */
const [pushesMax, confirmationsMax] = [64, 32];
/** Most devices of the world are behind three push services. */
const pushHosts = { ...hostLimits, concurrent: 32, queued: 128 };

function definedOf({ resolve, ca }: NodeOverrides): NodeOverrides {
  return { ...(resolve === undefined ? {} : { resolve }), ...(ca === undefined ? {} : { ca }) };
}

/** The ledger of the Directory of this process, or the one that `ledger:<store>` names. */
function ledgerOf({ server }: Config, stores: OpenStores): Ledger {
  return stores.capability(
    server.recipients === "local" ? "directory.ledger" : "server.recipients",
    "ledger",
  );
}

/** A submission is in the next block; more than that is for blocks that failed. */
const blocksOfChange = 5;

/** Of a ledger that is in a database which can be away while others work; else `null`. */
function sharedBlockMs({ server, directory, stores }: Config): number | null {
  const name =
    server.recipients === "local" ? directory.ledger : server.recipients.slice("ledger:".length);
  const store = stores[name];
  if (store?.plugin !== "postgres") return null;
  return postgresOptions.shape.block_time_ms.parse(store["block_time_ms"]);
}

/** Where the nodes of this process look up recipients and senders. */
function recipientsOf(
  config: Config,
  { stores, bus, homes }: Pick<KnownParts, "stores" | "bus" | "homes">,
): RecipientSource {
  const { recipients } = config.server;
  const guests = {
    setting: config.cache.recipients,
    isOpen: () => config.directory.registration === "open",
  };
  if (!config.directory.enabled && !config.relay.enabled && !config.cache.enabled)
    return noRecipients;
  if (isPublicEndpoint(recipients))
    return directoryRecipients(recipients, { bus, guests: guests.setting });
  const ledger = ledgerRecipients(ledgerOf(config, stores));
  const blockMs = sharedBlockMs(config);
  const changeMs = blocksOfChange * (blockMs ?? 0);
  const source = blockMs === null ? ledger : rememberRecipients(ledger, { bus, changeMs });
  return recipients === "local" ? withHomes(source, homes, guests) : source;
}
