/**
 * Per-host limiter of outbound requests: a few slots for each destination, a bounded queue behind them, a
 * bound over all, and a circuit breaker that opens after repeated failures, so that one dead or slow host
 * can't use up the node.
 * Source: rules section 5 "Outbound requests".
 */

export type HostLimits = {
  readonly concurrentPerDestination: number;
  readonly queuedPerDestination: number;
  readonly concurrentTotal: number;
  readonly queuedTotal: number;
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
  failuresToOpen: 5,
  openMs: 30_000,
  destinationsMax: 4_096,
};

/** A slot in use. `release` is called once, with whether the destination answered at all. */
export type Slot = { readonly release: (answered: boolean) => void };
/** `busy`: no slot and no room to wait. `open`: the circuit is open. `late`: no slot came in time. */
export type NoSlot = "busy" | "open" | "late";

export type HostLimiter = {
  acquire(destination: string, waitMs: number): Promise<Slot | NoSlot>;
  stats(): { readonly active: number; readonly waiting: number; readonly destinations: number };
};

type Host = {
  active: number;
  waiting: number;
  failures: number;
  /** The circuit lets nobody through before this time, and one alone after it. */
  openUntilMs: number;
  trial: boolean;
};

type Waiter = { readonly destination: string; readonly host: Host; readonly admit: () => void };

export function createHostLimiter(limits: HostLimits, now: () => number): HostLimiter {
  const hosts = new Map<string, Host>();
  const waiters = new Set<Waiter>();
  let active = 0;

  const hostOf = (destination: string): Host => {
    const host = hosts.get(destination) ?? { active: 0, waiting: 0, failures: 0, openUntilMs: 0, trial: false };
    hosts.delete(destination);
    hosts.set(destination, host);
    return host;
  };

  /** Forgets idle hosts: those without failures at once, the others from the oldest when there are too many. */
  const tidy = (destination: string, host: Host) => {
    const idle = (candidate: Host) => candidate.active + candidate.waiting === 0;
    if (idle(host) && host.failures === 0) hosts.delete(destination);
    if (hosts.size <= limits.destinationsMax) return;
    for (const [key, candidate] of hosts) {
      if (idle(candidate)) hosts.delete(key);
      if (hosts.size <= limits.destinationsMax) return;
    }
  };

  const isOpen = (host: Host) => host.failures >= limits.failuresToOpen && (now() < host.openUntilMs || host.trial);
  const hasRoom = (host: Host) => active < limits.concurrentTotal && host.active < limits.concurrentPerDestination;

  const admitNext = () => {
    for (const waiter of waiters) {
      if (active >= limits.concurrentTotal) return;
      if (hasRoom(waiter.host)) waiter.admit();
    }
  };

  const use = (destination: string, host: Host): Slot => {
    active++;
    host.active++;
    if (host.failures >= limits.failuresToOpen) host.trial = true;
    let released = false;
    return {
      release: (answered) => {
        if (released) return;
        released = true;
        active--;
        host.active--;
        host.trial = false;
        host.failures = answered ? 0 : host.failures + 1;
        if (host.failures >= limits.failuresToOpen) host.openUntilMs = now() + limits.openMs;
        tidy(destination, host);
        admitNext();
      },
    };
  };

  const wait = (destination: string, host: Host, waitMs: number): Promise<Slot | NoSlot> =>
    new Promise((resolve) => {
      host.waiting++;
      const leave = (result: Slot | NoSlot) => {
        clearTimeout(timer);
        waiters.delete(waiter);
        host.waiting--;
        resolve(result);
        tidy(destination, host);
      };
      // The circuit may have opened while this one waited.
      const waiter: Waiter = {
        destination,
        host,
        admit: () => leave(isOpen(host) ? "open" : use(destination, host)),
      };
      const timer = setTimeout(() => leave("late"), waitMs);
      waiters.add(waiter);
    });

  return {
    async acquire(destination, waitMs) {
      const host = hostOf(destination);
      if (isOpen(host)) return "open";
      if (hasRoom(host)) return use(destination, host);
      if (host.waiting >= limits.queuedPerDestination || waiters.size >= limits.queuedTotal) return "busy";
      return wait(destination, host, waitMs);
    },
    stats: () => ({ active, waiting: waiters.size, destinations: hosts.size }),
  };
}
