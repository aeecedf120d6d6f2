/**
 * Outbound requests to destinations that strangers choose. The law: not one packet goes to
 * an address that the rules refuse, whatever a URL, a name server or an answer says; no
 * destination holds more than its share of the node; and an error says nothing about
 * networks that the sender can't see. Order: URL rules, a place of the client, a slot of
 * the host, one resolution, address rules, connection, request. The connection goes to the
 * checked address and to nothing else, TLS is checked for the published name, no redirect
 * is followed, no proxy is used, and the answer is read up to a cap and against a deadline.
 * Source: rules section 5 "Outbound requests", "Outbound bounds".
 */

import { connect } from "node:net";
import { networkInterfaces } from "node:os";
import type { Config } from "../../config/schema.ts";
import { readCapped } from "../../core/codec/stream.ts";
import {
  decideAddresses,
  type EndpointRules,
  isUnreachable,
  type Network,
  parseAddress,
  parseEndpoint,
  parseNetwork,
  registeredName,
  type ServiceEndpoint,
} from "../../core/message/address.ts";
import type { AttemptError } from "../../core/message/delivery.ts";
import { BoundedMap, late, withDeadline } from "../../core/std/bounded.ts";
import { createFairShare } from "../http/capacity.ts";
import { createHostLimiter, type HostLimits, hostLimits } from "./host-limiter.ts";

/** All addresses of a name; throws or answers none when there are none. */
export type Resolver = (host: string) => Promise<readonly string[]>;

export type EgressSettings = Pick<
  Config["relay"],
  | "allow_http"
  | "allow_private"
  | "public_endpoints"
  | "connect_timeout"
  | "destination_requests_max"
>;

export type EgressOptions = {
  readonly settings: EgressSettings;
  readonly hosts?: HostLimits;
  /** Requests in flight or waiting for their destination at once. */
  readonly requestsMax?: number;
  /**
   * All hosts of one registered name share slots and circuit, and public hosts are asked at
   * the usual ports alone.
   */
  readonly byRegisteredName?: boolean;
  readonly resolve?: Resolver;
  /** Certificates that are trusted besides those of the system, in PEM. */
  readonly ca?: readonly string[];
  /** A clock that never steps back. */
  readonly now?: () => number;
};

export type EgressRequest = {
  /** A URL as a recipient publishes it. */
  readonly endpoint: string;
  /** Path behind the endpoint's own. */
  readonly suffix: string;
  /** `null` for a GET. */
  readonly body: Uint8Array | null;
  readonly headers?: Readonly<Record<string, string>>;
  readonly wantsBody: (httpStatus: number) => boolean;
  /** Of the answer; 64 KiB unless it is said. */
  readonly answerBytesMax?: number;
  /** The network of the client on whose behalf the request is made. */
  readonly client?: string;
  /** For everything: waiting, resolving, connecting, answering. */
  readonly timeoutMs: number;
};

export type EgressAnswer = {
  readonly httpStatus: number | null;
  readonly error: AttemptError | null;
  /** `null` when none was wanted or none came. */
  readonly body: Uint8Array | null;
  /** `Retry-After`, as sent. */
  readonly retryAfter?: string | undefined;
  /** Trying again at once is pointless. */
  readonly giveUp: boolean;
  /** Nothing was sent: this node has no place, or the host has no slot or failed too often. */
  readonly notAsked?: "node" | "host";
};

export type Egress = {
  /** Never throws. */
  send(request: EgressRequest): Promise<EgressAnswer>;
  /** Whether it is an address that the Relay sends nothing to. */
  refuses(endpoint: string): boolean;
  stats(): { readonly active: number; readonly waiting: number; readonly destinations: number };
  /**
   * Ends every request in flight or waiting; they and later ones answer
   * `destination_unavailable`.
   */
  close(): void;
};

/** As many as Bun sends at once. */
const requestsMaxDefault = 256;
/** A request that takes longer ends for another one when there is no room. */
const slowMs = 1_000;
const resolveMs = 2_000;
const addressesMax = 16;
const namesMax = 4_096;
/** A destination that answered this recently needs no test connection before a request. */
const recentMs = 30_000;

export function createEgress(options: EgressOptions): Egress {
  const { settings } = options;
  const now = options.now ?? (() => performance.now());
  const hosts = createHostLimiter(
    options.hosts ?? { ...hostLimits, concurrent: settings.destination_requests_max },
    now,
  );
  const requests = createPlaces(now, options.requestsMax ?? requestsMaxDefault);
  const slotOf = ({ host, origin }: ServiceEndpoint): string =>
    options.byRegisteredName === true ? registeredName(host) : origin;
  let closed = false;
  const state: EgressState = {
    options,
    rules: { ...endpointRules(settings), usualPorts: options.byRegisteredName === true },
    now,
    recent: new BoundedMap(namesMax),
  };

  const sendInSlot = async (
    endpoint: ServiceEndpoint,
    request: EgressRequest,
    place: RequestPlace,
  ): Promise<EgressAnswer> => {
    const release = await hosts.acquire(slotOf(endpoint), place.abort.signal);
    if (typeof release === "string") return place.end ?? hostBusy;
    let outcome = unavailable;
    try {
      outcome = place.end ?? (await sendRequest(state, endpoint, { ...request, place }));
      // It may have given way at the last moment.
      if (place.end === gaveWay) outcome = gaveWay;
      return outcome;
    } finally {
      // A refused address, or a request that gave way, shows nothing about the host.
      release(
        outcome === gaveWay || outcome.error === null || outcome.error === "destination_refused",
      );
    }
  };

  return {
    async send(request) {
      const endpoint = parseEndpoint(request.endpoint, request.suffix, state.rules);
      if (endpoint === null) return refused;
      const place = closed ? null : requests.take(request.client ?? "", request.timeoutMs);
      if (place === null) return busy;
      try {
        return await sendInSlot(endpoint, request, place);
      } finally {
        requests.give(place);
      }
    },
    refuses: (text) => {
      const endpoint = parseEndpoint(text, "", state.rules);
      return endpoint === null || isUnreachable(endpoint, state.rules);
    },
    stats: hosts.stats,
    close: () => {
      closed = true;
      requests.endAll();
    },
  };
}

type RequestPlace = {
  readonly client: string;
  readonly abort: AbortController;
  readonly takenAtMs: number;
  readonly untilMs: number;
  /** The answer of a request that was ended: too late, to give way, or because the node closes. */
  end: EgressAnswer | null;
  /** Of its host, once that was resolved. */
  address: string | null;
};

/**
 * Places of requests, those included that wait for a slot of their host: with a host that
 * hangs, they wait as long. A client network gets half of what the others leave. Where that
 * is too little, a slow request gives way: the oldest of the network, or to the address, with
 * the most, while it has more than this network, else this network's own. So hosts that hang
 * cost those who chose them their places, and not others at the same address; many names of
 * one machine count as one.
 */
function createPlaces(now: () => number, requestsMax: number) {
  const share = createFairShare(requestsMax, { shrinks: true });
  const held = new Set<RequestPlace>();
  /** Whatever still runs is cut: a body that has not ended, say. */
  const cut = (place: RequestPlace, end: EgressAnswer | null): void => {
    place.end ??= end;
    place.abort.abort();
  };
  const endRequest = (place: RequestPlace, end: EgressAnswer | null = null): void => {
    if (!held.delete(place)) return;
    share.give(place.client, 1);
    cut(place, end);
  };
  /** The slow request that gives way to one of this client. */
  const slowBefore = (client: string): RequestPlace | undefined => {
    const ofClient = Map.groupBy(held, (place) => place.client);
    const ofAddress = Map.groupBy(held, ({ address }) => address);
    const countOf = ({ client, address }: RequestPlace): number => {
      const there = address === null ? 0 : (ofAddress.get(address)?.length ?? 0);
      return Math.max(ofClient.get(client)?.length ?? 0, there);
    };
    const own = ofClient.get(client)?.length ?? 0;
    return [...held]
      .filter(({ takenAtMs }) => now() - takenAtMs >= slowMs)
      .filter((place) => place.client === client || countOf(place) > own)
      .sort((a, b) => countOf(b) - countOf(a))[0];
  };
  /** Whether the share counts one request more of the client, or in the place of another one. */
  const makeRoom = (client: string): boolean => {
    while (!share.take(client, 1)) {
      const slow = slowBefore(client);
      if (slow === undefined) return false;
      if (slow.client === client) {
        held.delete(slow);
        cut(slow, gaveWay);
        return true;
      }
      endRequest(slow, gaveWay);
    }
    return true;
  };
  return {
    take(client: string, timeoutMs: number): RequestPlace | null {
      if (!makeRoom(client)) return null;
      const takenAtMs = now();
      const place: RequestPlace = {
        client,
        abort: new AbortController(),
        takenAtMs,
        untilMs: takenAtMs + timeoutMs,
        end: null,
        address: null,
      };
      held.add(place);
      const timer = setTimeout(() => {
        place.end ??= timedOut;
        place.abort.abort();
      }, timeoutMs);
      place.abort.signal.addEventListener("abort", () => clearTimeout(timer));
      return place;
    },
    give: endRequest,
    endAll: () => {
      for (const place of held) endRequest(place, busy);
    },
  };
}

function endpointRules(settings: EgressSettings): EndpointRules {
  return {
    allowHttp: settings.allow_http,
    allowPrivate: settings.allow_private.map(parseNetwork).filter((network) => network !== null),
    ownRelays: settings.public_endpoints,
  };
}

function noAnswer(error: AttemptError, more: Partial<EgressAnswer> = {}): EgressAnswer {
  return { httpStatus: null, error, body: null, giveUp: false, ...more };
}

const refused = noAnswer("destination_refused", { giveUp: true });
const timedOut = noAnswer("upstream_timeout");
const gaveWay = noAnswer("upstream_timeout", { giveUp: true });
/** Trying again at once is pointless. */
const busy = noAnswer("destination_unavailable", { giveUp: true, notAsked: "node" });
const hostBusy = noAnswer("destination_unavailable", { giveUp: true, notAsked: "host" });
const unavailable = noAnswer("destination_unavailable");

type EgressState = {
  readonly options: EgressOptions;
  readonly rules: EndpointRules;
  readonly now: () => number;
  /** Addresses that took a connection lately, by origin. */
  readonly recent: BoundedMap<string, { readonly address: string; readonly untilMs: number }>;
};

type PlacedRequest = EgressRequest & { readonly place: RequestPlace };

/** Resolves, checks, connects, asks. The connection always goes to an address that was checked. */
async function sendRequest(
  state: EgressState,
  endpoint: ServiceEndpoint,
  request: PlacedRequest,
): Promise<EgressAnswer> {
  const { place } = request;
  const found = await addressesOf(state, endpoint, place.abort.signal);
  if (found === null) return place.end ?? unavailable;
  const own = { allowPrivate: state.rules.allowPrivate, ownAddresses: ownAddresses() };
  if (found.length > addressesMax || !decideAddresses(endpoint, found, own)) return refused;
  place.address = found[0] ?? null;
  const address = await reachable(state, endpoint, { addresses: found, place });
  if (address === null) return place.end ?? (place.untilMs <= state.now() ? timedOut : unavailable);
  const answer =
    place.end ?? (await sendPinned(endpoint, address, request, state.options.ca ?? []));
  if (answer.error === null || answer.error === "invalid_answer")
    state.recent.set(endpoint.origin, { address, untilMs: state.now() + recentMs });
  else state.recent.delete(endpoint.origin);
  return answer;
}

async function addressesOf(
  state: EgressState,
  endpoint: ServiceEndpoint,
  signal: AbortSignal,
): Promise<readonly string[] | null> {
  if (parseAddress(endpoint.host) !== null) return [endpoint.host];
  const ended = new Promise<null>((resolve) => {
    signal.addEventListener("abort", () => resolve(null));
  });
  const resolving = (state.options.resolve ?? systemResolver)(endpoint.host);
  try {
    const found = await withDeadline(Promise.race([resolving, ended]), resolveMs);
    return found === late || found === null || found.length === 0 ? null : found;
  } catch {
    return null;
  }
}

/**
 * The first of the checked addresses that accepts a connection, within the limit for
 * connecting.
 */
async function reachable(
  state: EgressState,
  endpoint: ServiceEndpoint,
  among: { readonly addresses: readonly string[]; readonly place: RequestPlace },
): Promise<string | null> {
  const { untilMs: deadlineMs, abort } = among.place;
  const known = state.recent.get(endpoint.origin);
  if (known !== undefined && state.now() < known.untilMs && among.addresses.includes(known.address))
    return known.address;
  const untilMs = Math.min(deadlineMs, state.now() + state.options.settings.connect_timeout);
  for (const [i, address] of among.addresses.entries()) {
    // Each address gets an equal share of what is left, so that a silent one can't starve the next.
    const shareMs = (untilMs - state.now()) / (among.addresses.length - i);
    if (shareMs < 1 || abort.signal.aborted) return null;
    if (await canConnect({ address, port: endpoint.port }, shareMs, abort.signal)) return address;
  }
  return null;
}

async function systemResolver(host: string): Promise<readonly string[]> {
  return (await Bun.dns.lookup(host)).map(({ address }) => address);
}

/** Of this machine's interfaces: a look costs about 50 µs. */
function ownAddresses(): Network[] {
  const entries = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return entries.map(({ address }) => parseNetwork(address)).filter((network) => network !== null);
}

// ------------------------------------------------------------------------------------- one request

const answerBytesMaxDefault = 64 * 1024;
/**
 * How long the body of an answer is read when it is not needed, so that the connection can
 * be used again.
 */
const drainMs = 250;

function bracketed(address: string): string {
  return address.includes(":") ? `[${address}]` : address;
}

function hostHeader(endpoint: ServiceEndpoint): string {
  const standard = endpoint.port === (endpoint.scheme === "https" ? 443 : 80);
  return standard ? bracketed(endpoint.host) : `${bracketed(endpoint.host)}:${endpoint.port}`;
}

/** Sends the request to a checked address. Never throws. */
async function sendPinned(
  endpoint: ServiceEndpoint,
  address: string,
  { place, body, headers, wantsBody, answerBytesMax }: PlacedRequest,
  ca: readonly string[],
): Promise<EgressAnswer> {
  try {
    const response = await fetch(
      `${endpoint.scheme}://${bracketed(address)}:${endpoint.port}${endpoint.target}`,
      {
        method: body === null ? "GET" : "POST",
        headers: {
          ...(body === null ? {} : { "content-type": "application/json" }),
          accept: body === null ? "*/*" : "application/json",
          "accept-encoding": "identity",
          "user-agent": "waypost",
          ...headers,
          host: hostHeader(endpoint),
        },
        ...(body === null ? {} : { body: body as Uint8Array<ArrayBuffer> }),
        redirect: "error",
        proxy: false,
        decompress: false,
        signal: place.abort.signal,
        ...(endpoint.scheme === "https" ? { tls: tlsOf(endpoint.host, address, ca) } : {}),
      },
    );
    return await readAnswer(response, wantsBody, answerBytesMax);
  } catch (error) {
    const redirected = (error as { code?: unknown }).code === "UnexpectedRedirect";
    return place.end ?? (redirected ? noAnswer("invalid_answer") : unavailable);
  }
}

async function readAnswer(
  response: Response,
  wantsBody: EgressRequest["wantsBody"],
  bytesMax: number = answerBytesMaxDefault,
): Promise<EgressAnswer> {
  const { status: httpStatus } = response;
  const retryAfter = response.headers.get("retry-after") ?? undefined;
  const answer = { httpStatus, error: null, giveUp: false, retryAfter };
  const reading = readCapped(response.body, { bytesMax });
  if (!wantsBody(httpStatus)) {
    await withDeadline(reading, drainMs).catch(() => "over");
    return { ...answer, body: null };
  }
  const body = await reading;
  return body === "over" ? noAnswer("invalid_answer", { httpStatus }) : { ...answer, body };
}

/**
 * A literal address is checked as itself; a name is checked as the name, whatever address
 * it leads to.
 */
function tlsOf(host: string, address: string, ca: readonly string[]) {
  return {
    rejectUnauthorized: true,
    ...(host === address ? {} : { serverName: host }),
    ...(ca.length > 0 ? { ca: [...ca] } : {}),
  };
}

/**
 * Whether a TCP connection to the address succeeds in time. `fetch` has no limit for
 * connecting, so a destination that has not answered lately gets a test connection first.
 */
function canConnect(
  { address, port }: { readonly address: string; readonly port: number },
  timeoutMs: number,
  signal: AbortSignal,
): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: address, port });
    const endAttempt = (connected: boolean) => {
      clearTimeout(timer);
      // Also ends an attempt that is still waiting for the other side, which would hold a
      // descriptor for minutes.
      socket.destroy();
      resolve(connected);
    };
    const timer = setTimeout(() => endAttempt(false), timeoutMs);
    signal.addEventListener("abort", () => endAttempt(false));
    socket.once("connect", () => endAttempt(true));
    socket.on("error", () => endAttempt(false));
  });
}
