/**
 * What a request may cost before its handler runs: the places and bytes in flight, and the reading of
 * the body under the route's cap and against a deadline. Over capacity a refusal is held back for a
 * moment, because an instant one makes clients that retry at once take the processor.
 * Source: decisions section 9, interface "Limits".
 */
import { type Fault, fault } from "../../core/fault.ts";
import { clientKey } from "./client-address.ts";
import { createShares } from "./fair-share.ts";

export type IntakeLimits = {
  /** Requests in work at once on the normal lane. */
  readonly requestsMax: number;
  /** Requests in work at once on the reserved lane (acknowledgements, health). */
  readonly reservedMax: number;
  /** Requests whose bodies are still arriving. They are not in work: slow senders can't use up the places. */
  readonly arrivingMax: number;
  /** Refusals held back at once; beyond them a refusal is instant and ends the connection. */
  readonly parkedMax: number;
  readonly refusalDelayMs: number;
  /**
   * Sum of request bodies held in memory at once, of which one client gets at most half; the reserved lane
   * has a quarter of it for itself besides.
   */
  readonly bodyBytesInFlightMax: number;
  readonly bodyDeadlineMs: number;
};

export type Lane = "normal" | "reserved";

/** Bytes of one request. `release` gives back all that were taken, once. */
export type Hold = {
  readonly take: (bytes: number) => boolean;
  readonly release: () => void;
};

export type Capacity = {
  /** Whether a request could enter its lane now; asked before its body is read. */
  readonly hasRoom: (lane: Lane) => boolean;
  /** A place in work, given back by calling it once; `null` when the lane is full. */
  readonly enter: (lane: Lane) => (() => void) | null;
  /** For a body that is about to arrive, until it has; `null` when too many are arriving already. */
  readonly arrive: (lane: Lane) => (() => void) | null;
  readonly hold: (lane: Lane, client: string) => Hold;
  /** Holds a refusal back; `false` at once when too many are held back already. */
  readonly park: () => Promise<boolean>;
  readonly inFlight: () => InFlight;
};

export type InFlight = {
  readonly requests: number;
  readonly arriving: number;
  readonly bodyBytes: number;
  readonly parked: number;
};

export function createCapacity(limits: IntakeLimits): Capacity {
  const inWork = { normal: 0, reserved: 0 };
  const roomOf = { normal: limits.requestsMax, reserved: limits.reservedMax };
  const arriving = { normal: 0, reserved: 0 };
  const bodies = {
    normal: createShares(limits.bodyBytesInFlightMax, { alone: false }),
    reserved: createShares(limits.bodyBytesInFlightMax / 4, { alone: false }),
  };
  let parked = 0;
  const hasRoom = (lane: Lane): boolean => inWork[lane] < roomOf[lane];
  return {
    hasRoom,
    enter: (lane) => {
      if (!hasRoom(lane)) return null;
      inWork[lane] += 1;
      return once(() => {
        inWork[lane] -= 1;
      });
    },
    arrive: (lane) => {
      if (arriving[lane] >= limits.arrivingMax) return null;
      arriving[lane] += 1;
      return once(() => {
        arriving[lane] -= 1;
      });
    },
    hold: (lane, client) => {
      let taken = 0;
      let key = "";
      return {
        take: (bytes) => {
          if (taken === 0) key = clientKey(client);
          if (!bodies[lane].take(key, bytes)) return false;
          taken += bytes;
          return true;
        },
        release: once(() => {
          if (taken > 0) bodies[lane].give(key, taken);
        }),
      };
    },
    park: async () => {
      if (parked >= limits.parkedMax) return false;
      parked += 1;
      await Bun.sleep(limits.refusalDelayMs);
      parked -= 1;
      return true;
    },
    inFlight: () => ({
      requests: inWork.normal + inWork.reserved,
      arriving: arriving.normal + arriving.reserved,
      bodyBytes: bodies.normal.bytes() + bodies.reserved.bytes(),
      parked,
    }),
  };
}

function once(end: () => void): () => void {
  let ended = false;
  return () => {
    if (!ended) end();
    ended = true;
  };
}

export function overCapacity(): Fault {
  return fault("service_unavailable", "the node has as much in work as it can take; try again shortly", {
    retryAfterSeconds: 1,
  });
}

export type BodyRules = {
  /** `null`: the route takes no body. */
  readonly bytesMax: number | null;
  readonly deadlineMs: number;
  readonly hold: Hold;
};

const noBytes = new Uint8Array(0);

/**
 * Announced bodies up to this size are read in one piece. Longer ones count only as they arrive, so that
 * connections that announce much and send nothing can't use up the bytes in flight: by default all that
 * may be arriving at once hold half of them.
 */
const atOnceBytesMax = 8 * 1024;

/**
 * The body as sent. Refuses with `invalid_request` (a body where none belongs, or one that stalls),
 * `unsupported_media_type`, `too_large`; `null` when too many bytes are in flight. Both leave the rest
 * unread: the answer must end the connection.
 */
export async function readBody(request: Request, rules: BodyRules): Promise<Uint8Array | Fault | null> {
  const announced = request.headers.get("content-length");
  const length = announced === null ? null : Number(announced);
  // A Request made without a socket carries neither header: its `body` tells.
  const streamed = length === null && (request.headers.has("transfer-encoding") || request.body !== null);
  if (!streamed && (length ?? 0) === 0) return noBytes;
  if (rules.bytesMax === null) return fault("invalid_request", "this route takes no body");
  const refusal = refuseMediaType(request.headers) ?? refuseLength(length, rules.bytesMax);
  if (refusal !== null) return refusal;
  if (length === null || length > atOnceBytesMax) return readStream(request, rules.bytesMax, rules);
  return rules.hold.take(length) ? readKnown(request, length, rules.deadlineMs) : null;
}

function refuseMediaType(headers: Headers): Fault | null {
  if (headers.has("content-encoding") && headers.get("content-encoding")?.toLowerCase() !== "identity") {
    return fault("unsupported_media_type", "encoded bodies are not taken; send the JSON as it is");
  }
  const type = headers.get("content-type") ?? "";
  if (type === "application/json") return null;
  const [essence = "", ...parameters] = type.split(";").map((part) => part.trim().toLowerCase());
  const known = parameters.every((text) => text === "" || text === "charset=utf-8" || text === 'charset="utf-8"');
  if (essence === "application/json" && known) return null;
  return fault("unsupported_media_type", "bodies are application/json in UTF-8");
}

function refuseLength(length: number | null, bytesMax: number): Fault | null {
  if (length === null || length <= bytesMax) return null;
  return tooLarge(bytesMax);
}

function tooLarge(bytesMax: number): Fault {
  return fault("too_large", `the body may have at most ${bytesMax} bytes`);
}

function stalled(): Fault {
  return fault("invalid_request", "the body did not arrive in time");
}

async function readKnown(request: Request, length: number, deadlineMs: number): Promise<Uint8Array | Fault> {
  const bytes = await beforeDeadline(request.bytes(), deadlineMs);
  if (bytes === null) return stalled();
  // Fewer bytes than announced: the client went away, or the framing was broken.
  return bytes.length === length ? bytes : fault("invalid_request", "the body ended early");
}

async function readStream(request: Request, bytesMax: number, rules: BodyRules): Promise<Uint8Array | Fault | null> {
  const reader = (request.body ?? new Blob([]).stream()).getReader();
  const deadline = performance.now() + rules.deadlineMs;
  const parts: Uint8Array[] = [];
  const giveUp = (outcome: Fault | null): Fault | null => {
    reader.cancel().catch(() => undefined);
    return outcome;
  };
  for (let size = 0; ; ) {
    const step = await beforeDeadline(reader.read(), deadline - performance.now());
    if (step === null) return giveUp(stalled());
    if (step.done) return joined(parts, size);
    size += step.value.length;
    if (size > bytesMax) return giveUp(tooLarge(bytesMax));
    if (!rules.hold.take(step.value.length)) return giveUp(null);
    parts.push(step.value);
  }
}

function joined(parts: readonly Uint8Array[], size: number): Uint8Array {
  if (parts.length === 1) return parts[0] as Uint8Array;
  const out = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** The promise's value, or `null` when time runs out first or the client breaks off. */
async function beforeDeadline<T>(promise: Promise<T>, ms: number): Promise<T | null> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<null>((resolve) => {
    timer = setTimeout(() => resolve(null), Math.max(0, ms));
  });
  try {
    return await Promise.race([promise.catch(() => null), late]);
  } finally {
    clearTimeout(timer);
  }
}
