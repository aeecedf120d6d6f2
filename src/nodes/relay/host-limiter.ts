/**
 * Places for outbound requests: a few at a time for each destination, a bounded queue behind them, a
 * bound over all, and a circuit that opens after repeated failures, so that one dead or slow host can't
 * use up the node.
 * Source: decisions section 5 "Outbound requests".
 */

export type LaneLimits = {
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

export const laneLimits: LaneLimits = {
  concurrentPerDestination: 4,
  queuedPerDestination: 32,
  concurrentTotal: 256,
  queuedTotal: 1_024,
  failuresToOpen: 5,
  openMs: 30_000,
  destinationsMax: 4_096,
};

/** A place in work. `release` is called once, with whether the destination answered at all. */
export type Place = { readonly release: (answered: boolean) => void };
/** `busy`: no place and no room to wait. `open`: the circuit is open. `late`: no place came in time. */
export type NoPlace = "busy" | "open" | "late";

export type Lanes = {
  enter(destination: string, waitMs: number): Promise<Place | NoPlace>;
  stats(): { readonly active: number; readonly waiting: number; readonly destinations: number };
};

type Lane = {
  active: number;
  waiting: number;
  failures: number;
  /** The circuit lets nobody through before this time, and one alone after it. */
  openUntilMs: number;
  trial: boolean;
};

type Waiter = { readonly destination: string; readonly lane: Lane; readonly admit: () => void };

export function createLanes(limits: LaneLimits, now: () => number): Lanes {
  const lanes = new Map<string, Lane>();
  const waiters = new Set<Waiter>();
  let active = 0;

  const laneOf = (destination: string): Lane => {
    const lane = lanes.get(destination) ?? { active: 0, waiting: 0, failures: 0, openUntilMs: 0, trial: false };
    lanes.delete(destination);
    lanes.set(destination, lane);
    return lane;
  };

  /** Forgets idle lanes: those without failures at once, the others from the oldest when there are too many. */
  const tidy = (destination: string, lane: Lane) => {
    const idle = (candidate: Lane) => candidate.active + candidate.waiting === 0;
    if (idle(lane) && lane.failures === 0) lanes.delete(destination);
    if (lanes.size <= limits.destinationsMax) return;
    for (const [key, candidate] of lanes) {
      if (idle(candidate)) lanes.delete(key);
      if (lanes.size <= limits.destinationsMax) return;
    }
  };

  const isOpen = (lane: Lane) => lane.failures >= limits.failuresToOpen && (now() < lane.openUntilMs || lane.trial);
  const hasRoom = (lane: Lane) => active < limits.concurrentTotal && lane.active < limits.concurrentPerDestination;

  const admitNext = () => {
    for (const waiter of waiters) {
      if (active >= limits.concurrentTotal) return;
      if (hasRoom(waiter.lane)) waiter.admit();
    }
  };

  const place = (destination: string, lane: Lane): Place => {
    active++;
    lane.active++;
    if (lane.failures >= limits.failuresToOpen) lane.trial = true;
    let released = false;
    return {
      release: (answered) => {
        if (released) return;
        released = true;
        active--;
        lane.active--;
        lane.trial = false;
        lane.failures = answered ? 0 : lane.failures + 1;
        if (lane.failures >= limits.failuresToOpen) lane.openUntilMs = now() + limits.openMs;
        tidy(destination, lane);
        admitNext();
      },
    };
  };

  const wait = (destination: string, lane: Lane, waitMs: number): Promise<Place | NoPlace> =>
    new Promise((resolve) => {
      lane.waiting++;
      const leave = (result: Place | NoPlace) => {
        clearTimeout(timer);
        waiters.delete(waiter);
        lane.waiting--;
        resolve(result);
        tidy(destination, lane);
      };
      // The circuit may have opened while this one waited.
      const waiter: Waiter = {
        destination,
        lane,
        admit: () => leave(isOpen(lane) ? "open" : place(destination, lane)),
      };
      const timer = setTimeout(() => leave("late"), waitMs);
      waiters.add(waiter);
    });

  return {
    async enter(destination, waitMs) {
      const lane = laneOf(destination);
      if (isOpen(lane)) return "open";
      if (hasRoom(lane)) return place(destination, lane);
      if (lane.waiting >= limits.queuedPerDestination || waiters.size >= limits.queuedTotal) return "busy";
      return wait(destination, lane, waitMs);
    },
    stats: () => ({ active, waiting: waiters.size, destinations: lanes.size }),
  };
}
