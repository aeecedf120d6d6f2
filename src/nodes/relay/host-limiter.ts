/**
 * Limiter of outbound requests. A few slots for each destination, a bounded queue behind them, a bound over
 * all, and a circuit breaker that opens after repeated failures, so that one dead or slow host can't use up
 * the node. Slots are shared: while more than half are in use, a client network and a destination network
 * get no more than their share. When all are in use, a request ends the oldest slow one of the client with the most; when
 * its client has used up its share, the oldest slow one of its own. So choosing slow hosts delays nobody else for long.
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
  /** A request that takes longer may be ended for one that waits. */
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
  /** Ends the request: another one needs its slot. */
  readonly preempt?: () => void;
};

export type HostLimiter = {
  acquire(destination: string, waitMs: number, requester?: Requester): Promise<Slot | NoSlot>;
  /** Failures in a row of a destination. */
  failuresOf(destination: string): number;
  stats(): { readonly active: number; readonly waiting: number; readonly destinations: number };
};

type Host = {
  active: number;
  waiting: number;
  failures: number;
  /** The circuit refuses every request before this time, and admits one trial after it. */
  openUntilMs: number;
  trial: boolean;
};

type Waiter = { readonly host: Host; readonly client: string | null; readonly admit: () => void };
type Use = { readonly client: string | null; readonly sinceMs: number; preempt: (() => void) | null };

/** A count for each key. Keys whose count is 0 take no memory. */
class KeyCounts {
  private readonly counts = new Map<string, number>();

  of(key: string | null): number {
    return key === null ? 0 : (this.counts.get(key) ?? 0);
  }

  add(key: string | null, change: 1 | -1): void {
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
  /** Both from the oldest to the newest. */
  readonly waiters: Set<Waiter>;
  readonly uses: Set<Use>;
  readonly activeOf: KeyCounts;
  readonly waitingOf: KeyCounts;
  readonly networks: KeyCounts;
};

export function createHostLimiter(limits: HostLimits, now: () => number): HostLimiter {
  const state: State = {
    limits,
    now,
    hosts: new Map(),
    waiters: new Set(),
    uses: new Set(),
    activeOf: new KeyCounts(),
    waitingOf: new KeyCounts(),
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
  const host = hosts.get(destination) ?? { active: 0, waiting: 0, failures: 0, openUntilMs: 0, trial: false };
  hosts.delete(destination);
  hosts.set(destination, host);
  return host;
}

/** Forgets idle hosts: at once when they did not fail, else from the oldest when there are too many. */
function tidy({ hosts, limits }: State, destination: string, host: Host): void {
  const idle = (candidate: Host) => candidate.active + candidate.waiting === 0;
  if (idle(host) && host.failures === 0) hosts.delete(destination);
  for (const [key, candidate] of hosts) {
    if (hosts.size <= limits.destinationsMax) return;
    if (idle(candidate)) hosts.delete(key);
  }
}

function isOpen({ limits, now }: State, host: Host): boolean {
  return host.failures >= limits.failuresToOpen && (now() < host.openUntilMs || host.trial);
}

function hasRoom({ limits, uses, activeOf }: State, host: Host, client: string | null): boolean {
  if (uses.size >= limits.concurrentTotal || host.active >= limits.concurrentPerDestination) return false;
  return isHalfFree({ limits, uses }) || activeOf.of(client) < limits.concurrentPerClient;
}

function isHalfFree({ limits, uses }: Pick<State, "limits" | "uses">): boolean {
  return uses.size < limits.concurrentTotal / 2;
}

function mayWait({ limits, waiters, waitingOf }: State, host: Host, client: string | null): boolean {
  if (host.waiting >= limits.queuedPerDestination || waiters.size >= limits.queuedTotal) return false;
  return waitingOf.of(client) < limits.queuedPerClient;
}

function use(state: State, destination: string, requester: Requester): Slot {
  const { limits, uses, activeOf, networks, now } = state;
  const host = hostOf(state, destination);
  const client = requester.client ?? null;
  const one: Use = { client, sinceMs: now(), preempt: requester.preempt ?? null };
  uses.add(one);
  activeOf.add(client, 1);
  host.active += 1;
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
      activeOf.add(client, -1);
      networks.add(network, -1);
      host.active -= 1;
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
  const { waiters, waitingOf } = state;
  const host = hostOf(state, destination);
  const client = requester.client ?? null;
  return new Promise((resolve) => {
    host.waiting += 1;
    waitingOf.add(client, 1);
    const leave = (result: Slot | NoSlot) => {
      clearTimeout(timer);
      waiters.delete(waiter);
      waitingOf.add(client, -1);
      host.waiting -= 1;
      resolve(result);
      tidy(state, destination, host);
    };
    // The circuit may have opened during the wait.
    const admit = () => leave(isOpen(state, host) ? "open" : use(state, destination, requester));
    const waiter: Waiter = { host, client, admit };
    const timer = setTimeout(() => leave("late"), waitMs);
    waiters.add(waiter);
  });
}

/** Admits waiters while there is room, first of the client with the fewest slots. */
function admitNext(state: State): void {
  for (;;) {
    let next: Waiter | null = null;
    for (const waiter of state.waiters) {
      const isFewer = next === null || state.activeOf.of(waiter.client) < state.activeOf.of(next.client);
      if (isFewer && hasRoom(state, waiter.host, waiter.client)) next = waiter;
    }
    if (next === null) return;
    next.admit();
  }
}

/** Ends the oldest slow request: of the client that holds the most when all slots are in use, else of the same client. */
function preemptFor({ uses, limits, activeOf, now }: State, host: Host, client: string | null): void {
  if (host.active >= limits.concurrentPerDestination) return;
  const isFull = uses.size >= limits.concurrentTotal;
  let victim: Use | null = null;
  for (const one of uses) {
    if (now() - one.sinceMs < limits.slowMs) break;
    if (one.preempt === null || (!isFull && one.client !== client)) continue;
    if (victim === null || activeOf.of(one.client) > activeOf.of(victim.client)) victim = one;
  }
  const end = victim?.preempt;
  if (victim !== null) victim.preempt = null;
  end?.();
}
