/**
 * Limiter of outbound requests to each destination: a few at a time, a bounded queue behind
 * them, and a circuit breaker that opens after repeated failures, so that one dead or slow
 * host takes no more than that of the node.
 * Source: rules section 5 "Outbound bounds".
 */
import { BoundedMap } from "../../core/std/bounded.ts";

export type HostLimits = {
  readonly concurrent: number;
  readonly queued: number;
  /** Failures in a row that open the circuit. */
  readonly failuresToOpen: number;
  readonly openMs: number;
  /** Destinations whose failures are remembered. */
  readonly destinationsMax: number;
};

export const hostLimits: HostLimits = {
  concurrent: 4,
  queued: 32,
  failuresToOpen: 5,
  openMs: 30_000,
  destinationsMax: 4_096,
};

/** Ends the use of a slot, once; says whether the destination answered at all. */
export type Release = (answered: boolean) => void;
/**
 * `busy`: no slot and no room to wait. `open`: the circuit is open. `late`: no slot came
 * before `signal`.
 */
export type NoSlot = "busy" | "open" | "late";

type HostLimiter = {
  acquire(destination: string, signal: AbortSignal): Promise<Release | NoSlot>;
  stats(): { readonly active: number; readonly waiting: number; readonly destinations: number };
};

type LimitedHost = {
  active: number;
  /** Each admits one request, from the oldest to the newest. */
  readonly waiting: Set<() => void>;
  failures: number;
  /** The circuit refuses every request before this time. The next failure opens it again. */
  openUntilMs: number;
};

export function createHostLimiter(limits: HostLimits, now: () => number): HostLimiter {
  const hosts = new BoundedMap<string, LimitedHost>(limits.destinationsMax);
  const sums = { active: 0, waiting: 0 };

  const isOpen = (host: LimitedHost): boolean =>
    host.failures >= limits.failuresToOpen && now() < host.openUntilMs;

  const use = (destination: string, host: LimitedHost): Release => {
    host.active += 1;
    sums.active += 1;
    return (answered) => release(destination, host, answered);
  };

  const release = (destination: string, host: LimitedHost, answered: boolean): void => {
    host.active -= 1;
    sums.active -= 1;
    host.failures = answered ? 0 : host.failures + 1;
    if (host.failures >= limits.failuresToOpen) host.openUntilMs = now() + limits.openMs;
    for (const admit of host.waiting) if (host.active < limits.concurrent) admit();
    forgetIdle(destination, host);
  };

  const wait = (
    destination: string,
    host: LimitedHost,
    signal: AbortSignal,
  ): Promise<Release | NoSlot> =>
    new Promise((resolve) => {
      const leave = (end: () => Release | NoSlot): void => {
        signal.removeEventListener("abort", leaveLate);
        host.waiting.delete(admitWaiting);
        sums.waiting -= 1;
        resolve(end());
      };
      // The circuit may have opened during the wait.
      const admitWaiting = () => leave(() => (isOpen(host) ? "open" : use(destination, host)));
      const leaveLate = () => leave(() => "late");
      signal.addEventListener("abort", leaveLate);
      host.waiting.add(admitWaiting);
      sums.waiting += 1;
    });

  const forgetIdle = (destination: string, host: LimitedHost): void => {
    if (host.active + host.waiting.size + host.failures === 0 && hosts.get(destination) === host)
      hosts.delete(destination);
  };

  return {
    async acquire(destination, signal) {
      if (signal.aborted) return "late";
      const known = hosts.get(destination);
      const host = known ?? { active: 0, waiting: new Set(), failures: 0, openUntilMs: 0 };
      // The newest again: the one that is forgotten first is the one used longest ago.
      hosts.set(destination, host);
      if (isOpen(host)) return "open";
      if (host.active < limits.concurrent) return use(destination, host);
      return host.waiting.size < limits.queued ? wait(destination, host, signal) : "busy";
    },
    stats: () => ({ ...sums, destinations: hosts.size }),
  };
}
