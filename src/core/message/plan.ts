/**
 * The destinations of one envelope, in the order of delivery, out of the recipient's
 * document, policy and the hint.
 * Source: rules section 5.
 */
import type { Did, Uuid } from "../codec/did.ts";
import type { Service } from "../ledger/account.ts";
import type { DeliveryHint } from "./envelope.ts";
import { withoutTrailingSlashes } from "./proof.ts";

export type Channel = "live" | "inbox" | "relay" | "cache";
export type Destination = { readonly channel: Channel; readonly endpoint: string | null };

/**
 * The settings of a Relay that a delivery keeps to, under their own names; times in
 * milliseconds.
 */
type DeliveryLimits = {
  /** For each destination. */
  readonly attempts: number;
  /** The first wait; each further one at the same destination is twice as long. */
  readonly retry_delay: number;
  /** All requests and waits together; the acknowledgement of a live session has its own time. */
  readonly delivery_budget: number;
  readonly request_timeout: number;
  readonly live_ack_timeout: number;
};

/**
 * Forwards after which an envelope is not forwarded again: enough for a chain of providers,
 * short for a loop.
 */
export const hopsMax = 3;
/**
 * Destinations of one envelope, and of these at one host: a document must not make a Relay
 * repeat what it was sent.
 */
const destinationsMax = 4;
const destinationsPerHostMax = 2;
export type DeliveryFacts = {
  readonly messageId: Uuid;
  readonly recipient: Did;
  readonly hint: DeliveryHint;
  readonly expiresAtMs: number;
  readonly services: readonly Service[];
  /** Whether a session of the recipient may listen, here or in another process. */
  readonly live: boolean;
  /** `Svc-Hops` of the request. */
  readonly hops: number;
  readonly cacheEligible: boolean;
  readonly replication: number;
  /** Public endpoints of this Relay: it does not forward to itself. */
  readonly ownEndpoints: readonly string[];
  readonly limits: DeliveryLimits;
};

export type DeliveryPlan = {
  readonly messageId: Uuid;
  readonly recipient: Did;
  readonly expiresAtMs: number;
  readonly direct: readonly Destination[];
  readonly caches: readonly Destination[];
  readonly copies: number;
  /** The code when there is no destination. */
  readonly nowhere: "service_not_found" | "not_deliverable";
  readonly limits: DeliveryLimits;
};

/**
 * The destinations in their order; one place is the first Cache's. Cost: one pass over the
 * services for each type.
 */
export function planDelivery(facts: DeliveryFacts): DeliveryPlan {
  const inboxes = destinations(facts.services, "SvcInboxService", "inbox");
  const relays = destinations(facts.services, "SvcRelayService", "relay");
  const caches = destinations(facts.services, "SvcCacheService", "cache");
  const usable =
    facts.hint === "cache" ? caches.length : inboxes.length + relays.length + caches.length;

  const own = facts.ownEndpoints.map(withoutTrailingSlashes);
  const cacheAllowed = facts.cacheEligible && facts.hint !== "direct";
  const live: readonly Destination[] = facts.live ? [{ channel: "live", endpoint: null }] : none;
  const forwards =
    facts.hops < hopsMax ? relays.filter(({ endpoint }) => !own.includes(endpoint ?? "")) : none;

  const hasPlace = placesOfOne();
  const lastResort = cacheAllowed ? caches.slice(0, 1).filter(hasPlace) : none;
  const direct =
    facts.hint === "cache" ? none : [...live, ...[...inboxes, ...forwards].filter(hasPlace)];

  return {
    messageId: facts.messageId,
    recipient: facts.recipient,
    expiresAtMs: facts.expiresAtMs,
    direct,
    caches: cacheAllowed ? [...lastResort, ...caches.slice(1).filter(hasPlace)] : none,
    copies: Math.max(1, facts.replication),
    nowhere: usable > 0 ? "not_deliverable" : "service_not_found",
    limits: facts.limits,
  };
}

const none: readonly Destination[] = [];

/** Gives places to the destinations of one envelope, within both bounds. */
function placesOfOne(): (destination: Destination) => boolean {
  const taken: Destination[] = [];
  let hosts: string[] | null = null;
  return (destination) => {
    if (taken.length >= destinationsMax) return false;
    // So many have a place wherever they are; most envelopes have no more.
    if (taken.length >= destinationsPerHostMax) {
      const host = hostOf(destination);
      hosts ??= taken.map(hostOf);
      if (hosts.filter((one) => one === host).length >= destinationsPerHostMax) return false;
      hosts.push(host);
    }
    taken.push(destination);
    return true;
  };
}

function hostOf({ endpoint }: Destination): string {
  return URL.parse(endpoint ?? "")?.host ?? "";
}

function destinations(services: readonly Service[], type: string, channel: Channel): Destination[] {
  return endpointsOf(services, type).map((endpoint) => ({
    channel,
    endpoint: channel === "inbox" ? endpoint : withoutTrailingSlashes(endpoint),
  }));
}

/** The distinct endpoints of the services of a type, in the order in which they are tried. */
export function endpointsOf(services: readonly Service[], type: string): string[] {
  const ordered = services.filter((service) => service.type === type);
  if (ordered.length === 0) return [];
  ordered.sort(
    (a, b) =>
      (a.priority ?? Number.POSITIVE_INFINITY) - (b.priority ?? Number.POSITIVE_INFINITY) || 0,
  );
  const endpoints = new Map<string, string>();
  for (const service of ordered) {
    for (const endpoint of service.serviceEndpoint) {
      const key = withoutTrailingSlashes(endpoint);
      if (!endpoints.has(key)) endpoints.set(key, endpoint);
    }
  }
  return [...endpoints.values()];
}
