/**
 * Puts the Directory, the Relay and the Cache together: each gets its section of the
 * configuration, its stores, and the source of its recipients.
 */

import { isPublicEndpoint } from "../config/kinds.ts";
import type { Config } from "../config/schema.ts";
import type { VerifySignature } from "../core/codec/bytes.ts";
import type { Did } from "../core/codec/did.ts";
import { type Cache, createCache } from "../nodes/cache/cache.ts";
import { createAliasRules } from "../nodes/directory/aliases.ts";
import { createDirectory, type Directory } from "../nodes/directory/directory.ts";
import { createLog } from "../nodes/directory/log.ts";
import { entryRoute } from "../nodes/directory/log-entry.ts";
import { type DirectoryParts, directoryBodyBytesMax } from "../nodes/directory/parts.ts";
import { forgetRegistration } from "../nodes/directory/register.ts";
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
import { type Maintenance, openMaintenance } from "../nodes/parties/maintenance.ts";
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
import { createSessions, type LiveSessions } from "../nodes/relay/live/session.ts";
import { createRelay, type Relay } from "../nodes/relay/relay.ts";
import { openResults, type Results } from "../nodes/results.ts";
import { createWitness } from "../nodes/witness/witness.ts";
import { postgresOptions } from "../plugins/postgres/postgres.ts";
import type { OpenStores } from "../storage/bind.ts";
import type { Bus } from "../storage/bus.ts";
import type { Ledger } from "../storage/contract.ts";
import { addressesOf, type Keys } from "./keys.ts";
import { registerMemberMetrics } from "./metrics.ts";
import { adminOf, directoryReceipts, receiptsOf } from "./operating.ts";
import { type NodeOverrides, type Outbound, outboundOf } from "./outbound.ts";

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

/**
 * What the operator and the members have decided or left, the same in each process on the
 * store.
 */
type Decisions = {
  readonly blocks: Blocks;
  readonly tiers: Tiers;
  readonly maintenance: Maintenance;
  readonly results: Results;
  readonly members: Members;
};

type KnownParts = ComposeParts & { readonly homes?: Homes };
type NodeParts = KnownParts &
  Pick<Decisions, "blocks" | "tiers" | "members"> & {
    readonly recipients: RecipientSource;
    readonly digest: Results["digest"];
    readonly outbound: Outbound;
  };

export type ComposedNodes = Awaited<ReturnType<typeof composeNodes>>;

export async function composeNodes(config: Config, given: ComposeParts) {
  const outbound = outboundOf(config, given);
  const decisions = await openDecisions(config, given);
  const { maintenance, results } = decisions;
  registerMemberMetrics(given.metrics, decisions.members, given.now);
  const homes = composeHomes(config, { ...given, outbound });
  const known = homes === null ? given : { ...given, homes };
  const recipients = recipientsOf(config, known);
  const parts = { ...known, ...decisions, recipients, digest: results.digest, outbound };
  const notices = await openNotices({
    ...parts,
    receipts: receiptsOf(config, given.stores),
    operator: config.operator,
  });
  const { directory, erasing, deletions } = composeRegistry(config, { ...parts, results });
  const { cache, sessions, relay } = composeDelivery(config, parts);
  const bundles = composeBundles(config, parts, cache);
  const publisher = composeLog(config, parts);
  const entries = homes === null ? [] : [entryRoute(homes, null)];
  const closing = [relay, cache, homes, bundles, publisher, notices, deletions];
  return {
    routes: [
      ...(directory?.routes ?? []),
      ...(relay?.routes ?? []),
      ...(sessions?.routes ?? []),
      ...(cache?.routes ?? []),
      ...(publisher?.routes ?? entries),
      ...witnessRoutes(config, parts),
      ...(bundles === null ? [] : resolutionRoutes(config, { ...parts, bundles })),
    ],
    /** What `/limits` answers. */
    limits: async () => ({
      max_http_body_bytes: largestBody(config),
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
      admin: adminOf(config, given),
      maintenance,
      notices,
      explain: {
        ...parts,
        relay: relay === null ? null : refusingOf(config, { relay, sessions }),
        cache: cache?.explained ?? null,
      },
      ...erasing,
      membership: membershipOf(config, parts),
    },
    probes: probesOf(config, recipients),
    /** Ends live sessions, which would hold the drain up. */
    endLasting: () => sessions?.close(),
    /** Ends what is left when all requests are answered. */
    close: () => {
      for (const one of closing) one?.close();
      for (const one of [decisions.blocks, decisions.tiers, maintenance]) one.close();
    },
  };
}

async function openDecisions(config: Config, given: ComposeParts): Promise<Decisions> {
  const { stores, log } = given;
  const kept = { ...given, receipts: receiptsOf(config, stores) };
  return {
    blocks: await openBlocks({ ...kept, operator: config.operator }),
    tiers: await openTiers({ ...kept, config }),
    maintenance: await openMaintenance(kept),
    results: await openResults(kept),
    members: createMembers({
      receipts: config.directory.enabled ? directoryReceipts(stores) : kept.receipts,
      keepsDays: config.server.last_seen,
      log,
    }),
  };
}

/** How the Relay of this process would treat an envelope. */
function refusingOf(
  { relay: rules }: Config,
  { relay, sessions }: { readonly relay: Relay; readonly sessions: LiveSessions | null },
) {
  const mayListen = (did: Did) => sessions?.mayListen(did) ?? false;
  return { rules, refuses: relay.refuses, mayListen };
}

/**
 * The Directory, where this process has one, and the end of DIDs, which a Cache without one
 * follows too.
 */
function composeRegistry(config: Config, parts: NodeParts & { readonly results: Results }) {
  const { stores, bus } = parts;
  const ledger = config.directory.enabled ? stores.capability("directory.ledger", "ledger") : null;
  const invitations =
    ledger === null ? null : createInvitations({ ...parts, receipts: directoryReceipts(stores) });
  const erasing = erasingOf(config, { ...parts, invitations });
  const deletions = followDeletions({ ...parts, ...erasing });
  if (ledger === null || invitations === null) return { directory: null, erasing, deletions };
  const onSubmitted = announceChange(bus);
  const expectDeletion = deletions.expect;
  const directory = composeDirectory(config, {
    ...parts,
    ledger,
    onSubmitted,
    invitations,
    expectDeletion,
  });
  return { directory, erasing, deletions };
}

const takesEnvelopes = ({ relay, cache }: Config): boolean => relay.enabled || cache.enabled;

/** Of any route of the node. Directories accept no envelopes. */
function largestBody(config: Config): number {
  return takesEnvelopes(config) ? config.limits.body_bytes_max : directoryBodyBytesMax;
}

/**
 * What `/readyz` asks besides the stores: a Directory elsewhere. Ledgers of this process
 * are probed with their stores.
 */
function probesOf(
  config: Config,
  recipients: RecipientSource,
): Record<string, () => Promise<unknown>> {
  const isElsewhere = isPublicEndpoint(config.server.recipients);
  if (!isElsewhere || !takesEnvelopes(config)) return {};
  return { recipients: () => recipients.blockTimeMs() };
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

/**
 * What the list of members is made of: no ledger where recipients are looked up at a
 * Directory elsewhere.
 */
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
  const egress = parts.outbound.bundles();
  return createBundles({
    ...parts,
    egress,
    own: cache === null ? null : { ...cache, endpoints: settings.public_endpoints },
    skewMs: limits.clock_skew,
  });
}

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
function composeHomes(
  { directory }: Config,
  parts: ComposeParts & Pick<NodeParts, "outbound">,
): Homes | null {
  if (!directory.enabled || directory.public_endpoint === null) return null;
  return createHomes({
    ...parts,
    egress: parts.outbound.homes(),
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
  const { stores, pushKey, eventKey, outbound } = parts;
  const { limits, server } = config;
  const push =
    pushKey === null ? null : { key: pushKey, ...outbound.pushes(), settings: config.push };
  const bell = createBell(bus);
  const of = { ...parts, bell, limits };
  const cache = config.cache.enabled
    ? createCache({
        ...of,
        mailbox: stores.capability("cache.store", "mailbox"),
        replay: stores.capability("cache.store", "replay"),
        receipts: stores.capability("cache.store", "receipts"),
        sign: eventKey.sign,
        operator: config.operator,
        settings: config.cache,
        ...(push === null ? {} : { push }),
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
    egress: outbound.deliveries(),
    localCache: cache === null ? null : { ...cache, endpoints: config.cache.public_endpoints },
    settings: config.relay,
    sleep: (ms) => Bun.sleep(ms),
    random: Math.random,
  });
  return { cache, sessions, relay };
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
