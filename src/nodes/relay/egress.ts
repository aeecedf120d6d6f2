/**
 * Outbound requests to destinations that strangers choose. The law: not one packet goes to an address
 * that the rules refuse, whatever a URL, a name server or an answer says; no destination holds more than
 * its share of the node; and an error tells a sender nothing about networks that he can't see himself.
 * Order: URL rules, a place in the lanes, one resolution, address rules, connection, request.
 * Source: decisions sections 5 and 10 ("Relay", "Failed deliveries").
 */
import { networkInterfaces } from "node:os";
import {
  decideAddresses,
  type Endpoint,
  type EndpointRules,
  type Network,
  parseAddress,
  parseEndpoint,
  parseNetwork,
} from "../../core/message/address.ts";
import type { AttemptError } from "../../core/message/delivery.ts";
import { createMemo } from "../recipients-memo.ts";
import { canConnect, sendPinned } from "./egress-request.ts";
import { createLanes, type LaneLimits, laneLimits } from "./host-limiter.ts";

export type ResolvedAddress = { readonly address: string; readonly ttlSeconds: number };
/** All addresses of a name; throws or answers none when there are none. */
export type Resolver = (host: string) => Promise<readonly ResolvedAddress[]>;

export type CourierOptions = {
  readonly rules: EndpointRules;
  readonly lanes?: LaneLimits;
  readonly resolve?: Resolver;
  readonly connectMs?: number;
  /** Certificates that are trusted besides those of the system, in PEM. */
  readonly ca?: readonly string[];
  /** A clock that never steps back. */
  readonly now?: () => number;
};

export type CourierRequest = {
  /** A URL as a recipient publishes it. */
  readonly endpoint: string;
  /** Path behind the endpoint's own. */
  readonly suffix: string;
  readonly body: Uint8Array;
  readonly headers?: Readonly<Record<string, string>>;
  readonly wantsBody: boolean;
  /** For everything: waiting, resolving, connecting, answering. */
  readonly timeoutMs: number;
};

export type CourierAnswer = {
  readonly httpStatus: number | null;
  readonly error: AttemptError | null;
  /** At most 64 KiB; `null` when none was wanted or none came. */
  readonly body: Uint8Array | null;
  /** Trying again at once is pointless. */
  readonly giveUp: boolean;
  readonly durationMs: number;
};

export type Courier = {
  /** Never throws. */
  post(request: CourierRequest): Promise<CourierAnswer>;
  stats(): { readonly active: number; readonly waiting: number; readonly destinations: number };
  /** Ends every request in flight; later ones answer `destination_unavailable`. */
  close(): void;
};

const resolveMs = 2_000;
const addressesMax = 16;
const verdictMsMax = 60_000;
/** The system's resolver often tells no life time. Old addresses are safe: they have been judged. */
const verdictMsMin = 5_000;
const verdictsMax = 4_096;
const lookupsMax = 64;
/** A destination that answered this recently is not knocked at again before a request. */
const warmMs = 30_000;
const ownAddressesMs = 10_000;

type Outcome = Omit<CourierAnswer, "durationMs">;

export function createCourier(options: CourierOptions): Courier {
  const now = options.now ?? (() => performance.now());
  const lanes = createLanes(options.lanes ?? laneLimits, now);
  const flights = new Set<AbortController>();
  let closed = false;
  const addresses = createMemo({
    load: (host) => resolveInTime(options.resolve ?? systemResolver, host),
    valueMs: (found) =>
      Math.max(verdictMsMin, Math.min(verdictMsMax, ...found.map((entry) => entry.ttlSeconds * 1_000))),
    failureMs: resolveMs,
    entriesMax: verdictsMax,
    loadsMax: lookupsMax,
    now,
  });
  const warm = new Map<string, { address: string; untilMs: number }>();
  const trip: Trip = { options, now, addresses, warm, ownAddresses: ownAddressReader(now) };

  const post = async (request: CourierRequest): Promise<Outcome> => {
    const endpoint = parseEndpoint(request.endpoint, request.suffix, options.rules);
    if (endpoint === null) return refused;
    if (closed) return unavailable(true);
    const deadlineMs = now() + request.timeoutMs;
    const place = await lanes.enter(endpoint.origin, request.timeoutMs);
    if (place === "late") return timedOut;
    if (typeof place === "string") return unavailable(true);
    let outcome: Outcome = unavailable(false);
    const flight = new AbortController();
    flights.add(flight);
    try {
      outcome = await travel(trip, endpoint, { ...request, timeoutMs: deadlineMs - now(), flight });
      return outcome;
    } finally {
      flights.delete(flight);
      // A refused address is an answer about the rules, not a failure of a host.
      place.release(outcome.error === null || outcome.error === "destination_refused");
    }
  };

  return {
    async post(request) {
      const startMs = performance.now();
      const outcome = await post(request);
      return { ...outcome, durationMs: performance.now() - startMs };
    },
    stats: lanes.stats,
    close: () => {
      closed = true;
      for (const flight of flights) flight.abort();
    },
  };
}

const refused: Outcome = { httpStatus: null, error: "destination_refused", body: null, giveUp: true };
const timedOut: Outcome = { httpStatus: null, error: "upstream_timeout", body: null, giveUp: false };

function unavailable(giveUp: boolean): Outcome {
  return { httpStatus: null, error: "destination_unavailable", body: null, giveUp };
}

type Trip = {
  readonly options: CourierOptions;
  readonly now: () => number;
  readonly addresses: { get(host: string): Promise<readonly ResolvedAddress[]> };
  readonly warm: Map<string, { address: string; untilMs: number }>;
  readonly ownAddresses: () => readonly Network[];
};

type Flight = CourierRequest & { readonly flight: AbortController };

/** Resolves, judges, connects, asks. What is connected to is always what was judged. */
async function travel(trip: Trip, endpoint: Endpoint, request: Flight): Promise<Outcome> {
  const { rules } = trip.options;
  const deadlineMs = trip.now() + request.timeoutMs;
  const found = await addressesOf(trip, endpoint);
  if (found === null) return unavailable(false);
  const judged = { allowPrivate: rules.allowPrivate, ownAddresses: trip.ownAddresses() };
  if (found.length > addressesMax || !decideAddresses(endpoint, found, judged)) return refused;
  const address = await reachable(trip, endpoint, { addresses: found, deadlineMs });
  const leftMs = deadlineMs - trip.now();
  if (address === null) return leftMs <= 0 ? timedOut : unavailable(false);
  const answer = await sendPinned({
    endpoint,
    address,
    headers: request.headers ?? {},
    body: request.body,
    wantsBody: request.wantsBody,
    timeoutMs: leftMs,
    ca: trip.options.ca ?? [],
    abort: request.flight,
  });
  if (answer.kind === "answer" || answer.kind === "unusable") keepWarm(trip, endpoint.origin, address);
  else trip.warm.delete(endpoint.origin);
  switch (answer.kind) {
    case "answer":
      return { httpStatus: answer.status, error: null, body: answer.body, giveUp: false };
    case "unusable":
      return { httpStatus: answer.status, error: "invalid_answer", body: null, giveUp: false };
    case "timeout":
      return timedOut;
    case "unreachable":
      return unavailable(false);
  }
}

async function addressesOf(trip: Trip, endpoint: Endpoint): Promise<readonly string[] | null> {
  if (parseAddress(endpoint.host) !== null) return [endpoint.host];
  try {
    const found = await trip.addresses.get(endpoint.host);
    return found.length === 0 ? null : found.map((entry) => entry.address);
  } catch {
    return null;
  }
}

/** The first of the judged addresses that takes a connection, within the limit for connecting. */
async function reachable(
  trip: Trip,
  endpoint: Endpoint,
  among: { readonly addresses: readonly string[]; readonly deadlineMs: number },
): Promise<string | null> {
  const known = trip.warm.get(endpoint.origin);
  if (known !== undefined && trip.now() < known.untilMs && among.addresses.includes(known.address))
    return known.address;
  const untilMs = Math.min(among.deadlineMs, trip.now() + (trip.options.connectMs ?? 5_000));
  for (const [i, address] of among.addresses.entries()) {
    // Each address gets an equal share of what is left, so that a silent one can't starve the next.
    const shareMs = (untilMs - trip.now()) / (among.addresses.length - i);
    if (shareMs < 1) return null;
    if (await canConnect(address, endpoint.port, shareMs)) return address;
  }
  return null;
}

function keepWarm(trip: Trip, origin: string, address: string): void {
  trip.warm.delete(origin);
  trip.warm.set(origin, { address, untilMs: trip.now() + warmMs });
  if (trip.warm.size > verdictsMax) trip.warm.delete(trip.warm.keys().next().value as string);
}

async function resolveInTime(resolve: Resolver, host: string): Promise<readonly ResolvedAddress[]> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error("the name was not resolved in time")), resolveMs);
  });
  try {
    return await Promise.race([resolve(host), late]);
  } finally {
    clearTimeout(timer);
  }
}

async function systemResolver(host: string): Promise<readonly ResolvedAddress[]> {
  const found = await Bun.dns.lookup(host);
  return found.map((entry) => ({ address: entry.address, ttlSeconds: entry.ttl }));
}

/** The addresses of this machine's own interfaces, read again now and then. */
function ownAddressReader(now: () => number): () => readonly Network[] {
  let read: { networks: readonly Network[]; untilMs: number } | null = null;
  return () => {
    if (read === null || now() >= read.untilMs) {
      const entries = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
      const networks = entries.map((entry) => parseNetwork(entry.address)).filter((network) => network !== null);
      read = { networks, untilMs: now() + ownAddressesMs };
    }
    return read.networks;
  };
}

const proxyVariables = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

/**
 * Start-up check: what in the environment would weaken outbound requests. TLS checks must not be switched
 * off. Proxy variables are never used; set, they mean an operator who expects otherwise, so they are a
 * problem unless he says that he knows (`allowProxyVariables`). They are removed from `env` either way.
 */
export function checkOutboundEnvironment(
  env: Record<string, string | undefined>,
  options: { readonly allowProxyVariables: boolean },
): string[] {
  const problems: string[] = [];
  if (env["NODE_TLS_REJECT_UNAUTHORIZED"] === "0") {
    problems.push("NODE_TLS_REJECT_UNAUTHORIZED=0 switches certificate checks off; unset it");
  }
  for (const name of proxyVariables) {
    const value = env[name];
    if (value === undefined || value === "") continue;
    delete env[name];
    if (!options.allowProxyVariables) problems.push(`${name} is set, but a Relay connects directly; unset it`);
  }
  return problems;
}
