/**
 * Limiter of outbound requests. A few slots for each destination, a bounded queue behind them, a bound over
 * all, and a circuit breaker that opens after repeated failures, so that one dead or slow host can't use up
 * the node. Slots are shared: while more than half are in use, a client network and a destination network
 * get no more than their share; and when all are in use, a request of a client with fewer slots ends the
 * oldest slow request of the client with the most. Destinations that were slow share half of the slots, have a
 * queue of their own, and yield to other requests of the same client. So choosing slow hosts delays no other client, not
 * even clients behind the same address.
 * Source: rules section 5 "Outbound requests".
 */

export type HostLimits = {
  readonly concurrentPerDestination: number;
  readonly queuedPerDestination: number;
  readonly concurrentTotal: number;
  readonly queuedTotal: number;
  /** Shares of the total, and of the queue. They bind while more than half of the total is in use. */
  readonly concurrentPerClient: number;
  readonly queuedPerClient: number;
  readonly concurrentPerNetwork: number;
  /** A request that takes longer may be ended for one that waits, and makes its destination a slow one. */
  readonly slowMs: number;
  /** Failures in a row that open the circuit. */
  readonly failuresToOpen: number;
  readonly openMs: number;
  /** Destinations whose failures are remembered. */
  readonly destinationsMax: number;
};

export const hostLimits: HostLimits = {
  concurrentPerDestination: 4,
  queuedPerDestination: 32,
  concurrentTotal: 256,
  queuedTotal: 1_024,
  concurrentPerClient: 32,
  queuedPerClient: 64,
  concurrentPerNetwork: 64,
  slowMs: 1_000,
  failuresToOpen: 5,
  openMs: 30_000,
  destinationsMax: 4_096,
};

/** A slot in use. */
export type Slot = {
  /** Counts the request under the network of its destination; `false` when that network has used up its share. */
  readonly enterNetwork: (network: string) => boolean;
  /** Called once, with whether the destination answered at all. A preempted request shows nothing about its host. */
  readonly release: (answered: boolean) => void;
};
/** `busy`: no slot and no room to wait. `open`: the circuit is open. `late`: no slot came in time. */
export type NoSlot = "busy" | "open" | "late";

type Requester = {
  /** The network of the client on whose behalf the request is made. */
  readonly client?: string;
  /** Ends the request: another client waits for its slot. */
  readonly preempt?: () => void;
};

export type HostLimiter = {
  acquire(destination: string, waitMs: number, requester?: Requester): Promise<Slot | NoSlot>;
  /** Failures in a row of a destination. */
  failuresOf(destination: string): number;
  stats(): { readonly active: number; readonly waiting: number; readonly destinations: number };
};

type Host = {
  /** From the oldest to the newest. */
  readonly uses: Set<Use>;
  waiting: number;
  failures: number;
  /** The last request took long. */
  wasSlow: boolean;
  /** The circuit refuses every request before this time, and admits one trial after it. */
  openUntilMs: number;
  trial: boolean;
};

type Waiter = {
  readonly host: Host;
  readonly client: string | null;
  readonly slow: boolean;
  readonly admit: () => void;
  readonly refuse: () => void;
};
type Use = {
  readonly client: string | null;
  readonly slow: boolean;
  readonly sinceMs: number;
  preempt: (() => void) | null;
};

/** A count for each key, and their total. Keys whose count is 0 take no memory. */
class KeyCounts {
  total = 0;
  private readonly counts = new Map<string, number>();

  of(key: string | null): number {
    return key === null ? 0 : (this.counts.get(key) ?? 0);
  }

  add(key: string | null, change: 1 | -1): void {
    this.total += change;
    if (key === null) return;
    const count = this.of(key) + change;
    if (count > 0) this.counts.set(key, count);
    else this.counts.delete(key);
  }
}

type State = {
  readonly limits: HostLimits;
  readonly now: () => number;
  readonly hosts: Map<string, Host>;
  readonly waiters: Set<Waiter>;
  /** From the oldest to the newest. */
  readonly uses: Set<Use>;
  /** By client; those to slow destinations apart. */
  readonly fastOf: KeyCounts;
  readonly slowOf: KeyCounts;
  readonly fastWaitingOf: KeyCounts;
  readonly slowWaitingOf: KeyCounts;
  readonly networks: KeyCounts;
};

export function createHostLimiter(limits: HostLimits, now: () => number): HostLimiter {
  const state: State = {
    limits,
    now,
    hosts: new Map(),
    waiters: new Set(),
    uses: new Set(),
    fastOf: new KeyCounts(),
    slowOf: new KeyCounts(),
    fastWaitingOf: new KeyCounts(),
    slowWaitingOf: new KeyCounts(),
    networks: new KeyCounts(),
  };
  return {
    async acquire(destination, waitMs, requester = {}) {
      const host = hostOf(state, destination);
      const client = requester.client ?? null;
      if (isOpen(state, host)) return "open";
      if (hasRoom(state, host, client)) return use(state, destination, requester);
      if (!mayWait(state, host, client)) return "busy";
      preemptFor(state, host, client);
      if (hasRoom(state, host, client)) return use(state, destination, requester);
      return wait(state, destination, { requester, waitMs });
    },
    failuresOf: (destination) => state.hosts.get(destination)?.failures ?? 0,
    stats: () => ({ active: state.uses.size, waiting: state.waiters.size, destinations: state.hosts.size }),
  };
}

function hostOf({ hosts }: State, destination: string): Host {
  const host: Host = hosts.get(destination) ?? {
    uses: new Set(),
    waiting: 0,
    failures: 0,
    wasSlow: false,
    openUntilMs: 0,
    trial: false,
  };
  hosts.delete(destination);
  hosts.set(destination, host);
  return host;
}

/** Forgets idle hosts: at once when they neither failed nor were slow, else from the oldest when there are too many. */
function tidy({ hosts, limits }: State, destination: string, host: Host): void {
  const idle = (candidate: Host) => candidate.uses.size + candidate.waiting === 0;
  if (idle(host) && host.failures === 0 && !host.wasSlow) hosts.delete(destination);
  if (hosts.size <= limits.destinationsMax) return;
  for (const [key, candidate] of hosts) {
    if (idle(candidate)) hosts.delete(key);
    if (hosts.size <= limits.destinationsMax) return;
  }
}

function isOpen({ limits, now }: State, host: Host): boolean {
  return host.failures >= limits.failuresToOpen && (now() < host.openUntilMs || host.trial);
}

function isSlow({ limits, now }: State, { wasSlow, uses }: Host): boolean {
  if (wasSlow) return true;
  for (const oldest of uses) return now() - oldest.sinceMs >= limits.slowMs;
  return false;
}

function hasRoom(state: State, host: Host, client: string | null): boolean {
  const { limits, uses, fastOf, slowOf } = state;
  if (uses.size >= limits.concurrentTotal || host.uses.size >= limits.concurrentPerDestination) return false;
  if (isSlow(state, host))
    return slowOf.total < limits.concurrentTotal / 2 && slowOf.of(client) < limits.concurrentPerClient;
  return isHalfFree(state) || fastOf.of(client) < limits.concurrentPerClient;
}

/** Whether the queue has room. A waiting request to a slow destination is refused to make room for one to another. */
function mayWait(state: State, host: Host, client: string | null): boolean {
  const { limits, waiters, fastWaitingOf, slowWaitingOf } = state;
  if (host.waiting >= limits.queuedPerDestination) return false;
  if (isSlow(state, host)) {
    const hasPlace = waiters.size < limits.queuedTotal && slowWaitingOf.total < limits.queuedTotal / 2;
    return hasPlace && slowWaitingOf.of(client) < limits.queuedPerClient;
  }
  const isOwnFull = fastWaitingOf.of(client) >= limits.queuedPerClient;
  if (!isOwnFull && waiters.size < limits.queuedTotal) return true;
  for (const waiter of waiters) {
    if ((isOwnFull && (waiter.slow || waiter.client !== client)) || !isSlow(state, waiter.host)) continue;
    waiter.refuse();
    return true;
  }
  return false;
}

function isHalfFree({ limits, uses }: State): boolean {
  return uses.size < limits.concurrentTotal / 2;
}

function use(state: State, destination: string, { client, preempt }: Requester): Slot {
  const { limits, uses, networks, now } = state;
  const host = hostOf(state, destination);
  const one: Use = { client: client ?? null, slow: isSlow(state, host), sinceMs: now(), preempt: preempt ?? null };
  const counts = one.slow ? state.slowOf : state.fastOf;
  uses.add(one);
  counts.add(one.client, 1);
  host.uses.add(one);
  if (host.failures >= limits.failuresToOpen) host.trial = true;
  let network: string | null = null;
  return {
    enterNetwork: (entered) => {
      if (!isHalfFree(state) && networks.of(entered) >= limits.concurrentPerNetwork) return false;
      network = entered;
      networks.add(entered, 1);
      return true;
    },
    release: (answered) => {
      if (!uses.delete(one)) return;
      counts.add(one.client, -1);
      networks.add(network, -1);
      host.uses.delete(one);
      host.wasSlow = now() - one.sinceMs >= limits.slowMs;
      host.trial = false;
      host.failures = answered ? 0 : host.failures + 1;
      if (host.failures >= limits.failuresToOpen) host.openUntilMs = now() + limits.openMs;
      tidy(state, destination, host);
      admitNext(state);
    },
  };
}

function wait(
  state: State,
  destination: string,
  { requester, waitMs }: { readonly requester: Requester; readonly waitMs: number },
): Promise<Slot | NoSlot> {
  const { waiters } = state;
  const host = hostOf(state, destination);
  const client = requester.client ?? null;
  const slow = isSlow(state, host);
  const counts = slow ? state.slowWaitingOf : state.fastWaitingOf;
  return new Promise((resolve) => {
    host.waiting++;
    counts.add(client, 1);
    const leave = (result: Slot | NoSlot) => {
      clearTimeout(timer);
      waiters.delete(waiter);
      counts.add(client, -1);
      host.waiting--;
      resolve(result);
      tidy(state, destination, host);
    };
    // The circuit may have opened during the wait.
    const admit = () => leave(isOpen(state, host) ? "open" : use(state, destination, requester));
    const waiter: Waiter = { host, client, slow, admit, refuse: () => leave("busy") };
    const timer = setTimeout(() => leave("late"), waitMs);
    waiters.add(waiter);
  });
}

/** Admits waiters while there is room: first of the client with the fewest slots, and to slow destinations last. */
function admitNext(state: State): void {
  for (;;) {
    let next: Waiter | null = null;
    let least = Number.POSITIVE_INFINITY;
    for (const waiter of state.waiters) {
      if (!hasRoom(state, waiter.host, waiter.client)) continue;
      const rank = activeOf(state, waiter.client) + (isSlow(state, waiter.host) ? state.limits.concurrentTotal : 0);
      if (rank >= least) continue;
      least = rank;
      next = waiter;
    }
    if (next === null) return;
    next.admit();
  }
}

function activeOf({ fastOf, slowOf }: State, client: string | null): number {
  return fastOf.of(client) + slowOf.of(client);
}

/**
 * Ends the oldest slow request of the client that holds the most, when all slots are in use and it holds clearly more
 * than this one. A request to a destination that is not slow ends any, and one of its own client when that has its
 * share.
 */
function preemptFor(state: State, host: Host, client: string | null): void {
  const { uses, limits, now } = state;
  if (host.uses.size >= limits.concurrentPerDestination) return;
  const own = activeOf(state, client);
  const mayEndAny = !isSlow(state, host);
  const isFull = uses.size >= limits.concurrentTotal;
  let victim: Use | null = null;
  for (const one of uses) {
    if (now() - one.sinceMs < limits.slowMs) break;
    const held = activeOf(state, one.client);
    const mayEnd = isFull ? mayEndAny || held >= own + 2 : mayEndAny && one.client === client;
    if (one.preempt === null || !mayEnd) continue;
    if (victim === null || held > activeOf(state, victim.client)) victim = one;
  }
  const end = victim?.preempt;
  if (victim !== null) victim.preempt = null;
  end?.();
}
