/**
 * Bounds what requests cost before their handlers run: active requests, and bytes of
 * bodies, also of those that are still arriving, each in total and shared fairly between
 * clients. A refusal over capacity is delayed for a moment, because clients that retry at
 * once would use up the processor. Long answers share the event loop. Cost: a few lookups
 * in small maps for each request; nothing is allocated.
 * Source: rules section 9, interface "Limits".
 */
import type { Config } from "../../config/schema.ts";
import { type Fault, fault } from "../../core/fault.ts";
import type { Log } from "./log.ts";

/**
 * `requests_max`: active requests; as many again are reserved. `body_bytes_in_flight`:
 * request bodies in memory at once; a quarter more is reserved. A request whose body is
 * arriving counts here alone: slow senders can't use up the places.
 */
type Bounds = Pick<
  Config["server"],
  "requests_max" | "body_bytes_in_flight" | "body_deadline" | "refusal_delay"
>;

/** Refusals delayed at once; beyond them a refusal is instant and ends the connection. */
const delayedRefusalsMax = 4_096;

/**
 * What a body counts at least, from its head on, so that by default 16,384 may be arriving
 * at once. Longer ones count as they arrive: connections that announce much and send
 * nothing can't use up the budget.
 */
export const countedBytesMin = 16 * 1024;

/** Bodies of one network that arrive also when others have filled three quarters of the room. */
const littleBytesMax = 128 * 1024;

// -------------------------------------------------------------------------------------- fair share

/**
 * A resource shared by clients: bounded in total, and per client to half of that, so that
 * no single client can use up the room of all.
 */
export type FairShare = {
  /** `false`, and nothing is counted, when the client's part or the whole would be exceeded. */
  readonly take: (client: string, amount: number) => boolean;
  readonly give: (client: string, amount: number) => void;
  /** Whether there is room for the least amount. */
  readonly hasRoom: (client: string) => boolean;
  readonly max: number;
  readonly total: number;
};

type ShareOptions = {
  /**
   * A client may have half of what the others leave, so that a few can't use up the whole
   * together.
   */
  readonly shrinks?: boolean;
  /**
   * Of a share that shrinks, the last quarter is for clients that hold at most so much: fourteen
   * that each take half of what is left, one after the other, would else leave nothing. One that
   * is alone may have half of all.
   */
  readonly littleMax?: number;
  /** Whether a client counts in the total alone. */
  readonly isSpared?: (client: string) => boolean;
};

export function createFairShare(max: number, options: ShareOptions = {}): FairShare {
  const { shrinks = false, littleMax = 0, isSpared = () => false } = options;
  const little = Math.min(littleMax, max / 8);
  const held = new Map<string, number>();
  let total = 0;
  const partOf = (client: string, own: number): number => {
    if (isSpared(client)) return max;
    const others = shrinks ? total - own : 0;
    const room = others > 0 && little > 0 ? max * (3 / 4) : max;
    return Math.max(1, (room - others) / 2);
  };
  return {
    max,
    take(client, amount) {
      const before = held.get(client) ?? 0;
      const own = before + amount;
      if (total + amount > max || own > Math.max(little, partOf(client, before))) return false;
      held.set(client, own);
      total += amount;
      return true;
    },
    give(client, amount) {
      total -= amount;
      const left = (held.get(client) ?? 0) - amount;
      if (left > 0) held.set(client, left);
      else held.delete(client);
    },
    hasRoom(client) {
      const own = held.get(client) ?? 0;
      return total < max && own < partOf(client, own);
    },
    get total() {
      return total;
    },
  };
}

// ---------------------------------------------------------------------------------------- capacity

/** Places of active requests, and the bytes of their bodies. */
export type Room = {
  readonly work: FairShare;
  readonly bodyBytes: FairShare;
};

export type Capacity = {
  readonly bounds: Bounds;
  readonly normal: Room;
  /**
   * Of acknowledgements and health: they are short, and must not wait for the load that
   * they relieve.
   */
  readonly reserved: Room;
  /** Requests blocked on another client (a live delivery), as many as may be active. */
  readonly waiting: FairShare;
  /** Bytes of long answers that clients have not read yet. */
  readonly answerBytes: FairShare;
  delayedRefusals: number;
};

export function createCapacity(bounds: Bounds): Capacity {
  const { requests_max: requestsMax, body_bytes_in_flight: bodyBytesMax } = bounds;
  return {
    bounds,
    normal: {
      work: createFairShare(requestsMax),
      bodyBytes: createFairShare(bodyBytesMax, { shrinks: true, littleMax: littleBytesMax }),
    },
    reserved: { work: createFairShare(requestsMax), bodyBytes: createFairShare(bodyBytesMax / 4) },
    waiting: createFairShare(requestsMax, { shrinks: true }),
    answerBytes: createFairShare(bodyBytesMax),
    delayedRefusals: 0,
  };
}

/** Delays a refusal; `false` at once when too many are delayed already. */
export async function delayRefusal(capacity: Capacity): Promise<boolean> {
  if (capacity.delayedRefusals >= delayedRefusalsMax) return false;
  capacity.delayedRefusals += 1;
  await Bun.sleep(capacity.bounds.refusal_delay);
  capacity.delayedRefusals -= 1;
  return true;
}

/** What operators read of a limit that refused. */
const capacityNames = {
  requests: { limit: "active requests", setting: "server.requests_max" },
  bytes: { limit: "bytes of bodies and answers in memory", setting: "server.body_bytes_in_flight" },
} as const;

export type CapacityLimit = keyof typeof capacityNames;

type Refusing = { readonly log: Log; readonly isDue: (what: string) => boolean };

/**
 * The refusal, of which one a minute is logged. One client network may have used up its
 * half alone.
 */
export function overCapacity(
  { log, isDue }: Refusing,
  limit: CapacityLimit,
  network: string,
): Fault {
  if (isDue("capacity")) {
    const what =
      "the node is at capacity and refuses requests; this is logged once a minute at most";
    log("warn", what, { ...capacityNames[limit], network });
  }
  return fault("service_unavailable", "the node is at capacity; try again shortly", {
    retryAfterSeconds: 1,
  });
}

export type RequestsInFlight = {
  /** Answered now, or waiting for what another client does. */
  readonly requests: number;
  readonly bodyBytes: number;
  readonly delayedRefusals: number;
};

export function inFlight({
  normal,
  reserved,
  waiting,
  delayedRefusals,
}: Capacity): RequestsInFlight {
  return {
    requests: normal.work.total + reserved.work.total + waiting.total,
    bodyBytes: normal.bodyBytes.total + reserved.bodyBytes.total,
    delayedRefusals,
  };
}

// -------------------------------------------------------------------- iterations of the event loop

let last = Promise.resolve();

/**
 * For what occupies the event loop for milliseconds, 4 for a mebibyte of an answer: each
 * call gets an iteration of its own, so that a hundred clients that read long answers do
 * not make everybody else wait for all of them.
 */
export function nextIteration(): Promise<void> {
  last = last.then(() => new Promise((resolve) => void setImmediate(resolve)));
  return last;
}

let iteration: Promise<void> | null = null;

/**
 * The end of this iteration of the event loop, the same for all who wait for it. Requests
 * that arrived together then do the same step one after the other, so that the processor
 * finds its code and its data in the caches: with eight connections or more that saves a
 * fifth to a third of the processor time of a store.
 * Cost: about a microsecond for a request that is alone.
 */
export function iterationEnd(): Promise<void> {
  iteration ??= new Promise((resolve) =>
    setImmediate(() => {
      iteration = null;
      resolve();
    }),
  );
  return iteration;
}
