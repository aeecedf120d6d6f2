/**
 * What a request may cost before its handler runs: requests in work, bodies that are still arriving, and bytes of
 * bodies, each bounded in all and shared fairly between clients. A refusal over capacity is delayed for a moment,
 * because an instant one makes clients that retry at once take the processor.
 * Cost: a few lookups in small maps for each request; nothing is allocated.
 * Source: rules section 9, interface "Limits".
 */
import type { Config } from "../../config/schema.ts";
import { type Fault, fault } from "../../core/fault.ts";

export type CapacityLimits = {
  /** Requests in work at once; of these one client gets at most half. */
  readonly requestsMax: number;
  /** The same for acknowledgements and health, which are served even when the node is over capacity. */
  readonly reservedRequestsMax: number;
  /** Requests whose bodies are still arriving. They are not in work: slow senders can't use up the places. */
  readonly readingMax: number;
  /** Refusals delayed at once; beyond them a refusal is instant and ends the connection. */
  readonly delayedRefusalsMax: number;
  readonly refusalDelayMs: number;
  /** Sum of request bodies in memory at once, of which one client gets at most half. A quarter more is reserved. */
  readonly bodyBytesMax: number;
  readonly bodyDeadlineMs: number;
};

/** What operators set, and the constants beside it. */
export function capacityLimits(server: Config["server"]): CapacityLimits {
  return {
    requestsMax: server.requests_max,
    // Acknowledgements and health are short, and must not wait behind what they relieve.
    reservedRequestsMax: Math.max(16, Math.ceil(server.requests_max / 4)),
    // An arriving body costs a socket and the 8 KiB that are read at once, not a place in work.
    readingMax: 16_384,
    delayedRefusalsMax: 4_096,
    refusalDelayMs: 500,
    bodyBytesMax: server.body_bytes_in_flight,
    bodyDeadlineMs: server.body_deadline,
  };
}

// -------------------------------------------------------------------------------------------- fair share

/**
 * An amount held for clients: bounded in all, and for each client to half of that, so that nobody alone can use up
 * the room of everybody. The table has an entry only for clients that hold something.
 */
export type FairShare = {
  max: number;
  clientMax: number;
  /** One amount larger than the whole is admitted when nothing else is held. */
  readonly allowOversizeWhenIdle: boolean;
  readonly held: Map<string, number>;
  total: number;
};

export function createFairShare(max: number, options: { readonly allowOversizeWhenIdle?: boolean } = {}): FairShare {
  const { allowOversizeWhenIdle = false } = options;
  return { max, clientMax: Math.max(1, max / 2), allowOversizeWhenIdle, held: new Map(), total: 0 };
}

/** `false`, and nothing taken, when the client's half or the whole would be exceeded. */
export function takeShare(share: FairShare, client: string, amount: number): boolean {
  const own = (share.held.get(client) ?? 0) + amount;
  const fits = own <= share.clientMax && share.total + amount <= share.max;
  if (!fits && !(share.allowOversizeWhenIdle && share.total === 0)) return false;
  share.held.set(client, own);
  share.total += amount;
  return true;
}

export function giveShare(share: FairShare, client: string, amount: number): void {
  const own = (share.held.get(client) ?? 0) - amount;
  if (own > 0) share.held.set(client, own);
  else share.held.delete(client);
  share.total -= amount;
}

// ---------------------------------------------------------------------------------------------- capacity

/** The rooms of a node: most requests, and those that are served even over capacity. */
export type Room = {
  readonly work: FairShare;
  readonly reading: FairShare;
  readonly bodyBytes: FairShare;
};

export type Capacity = {
  limits: CapacityLimits;
  readonly normal: Room;
  readonly reserved: Room;
  delayedRefusals: number;
};

export function createCapacity(limits: CapacityLimits): Capacity {
  const room = (requestsMax: number, bodyBytesMax: number): Room => ({
    work: createFairShare(requestsMax),
    reading: createFairShare(limits.readingMax),
    bodyBytes: createFairShare(bodyBytesMax),
  });
  return {
    limits,
    normal: room(limits.requestsMax, limits.bodyBytesMax),
    reserved: room(limits.reservedRequestsMax, limits.bodyBytesMax / 4),
    delayedRefusals: 0,
  };
}

/** Takes other limits from now on; what is held above them drains by itself. */
export function changeCapacity(capacity: Capacity, limits: CapacityLimits): void {
  const next = createCapacity(limits);
  capacity.limits = limits;
  for (const room of ["normal", "reserved"] as const)
    for (const share of ["work", "reading", "bodyBytes"] as const) {
      const { max, clientMax } = next[room][share];
      Object.assign(capacity[room][share], { max, clientMax });
    }
}

/** Whether a request of the client could be in work now; asked before its body is read. */
export function hasRoom({ work }: Room, client: string): boolean {
  return work.total < work.max && (work.held.get(client) ?? 0) < work.clientMax;
}

/** Delays a refusal; `false` at once when too many are delayed already. */
export async function delayRefusal(capacity: Capacity): Promise<boolean> {
  if (capacity.delayedRefusals >= capacity.limits.delayedRefusalsMax) return false;
  capacity.delayedRefusals += 1;
  await Bun.sleep(capacity.limits.refusalDelayMs);
  capacity.delayedRefusals -= 1;
  return true;
}

export function overCapacity(): Fault {
  return fault("service_unavailable", "the node has as much in work as it can take; try again shortly", {
    retryAfterSeconds: 1,
  });
}

export type InFlight = {
  readonly requests: number;
  readonly reading: number;
  readonly bodyBytes: number;
  readonly delayedRefusals: number;
};

export function inFlight({ normal, reserved, delayedRefusals }: Capacity): InFlight {
  return {
    requests: normal.work.total + reserved.work.total,
    reading: normal.reading.total + reserved.reading.total,
    bodyBytes: normal.bodyBytes.total + reserved.bodyBytes.total,
    delayedRefusals,
  };
}
