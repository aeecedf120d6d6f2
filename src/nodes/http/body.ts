/**
 * Request bodies and long answers. A body is read under the route's cap and against a deadline, and counted in the body
 * budget. An answer longer than 64 KiB is sent in chunks as the client reads it: otherwise a client that reads slowly,
 * or not at all, would keep three copies of its answer in memory for 30 s. It is counted until the last chunk is read,
 * and cut off when that takes too long.
 * Source: rules section 9 ("Long answers"), interface "Limits".
 */
import { joinBytes } from "../../core/codec/bytes.ts";
import { type Fault, fault } from "../../core/fault.ts";
import { late, withDeadline } from "../../core/std/bounded.ts";
import type { FairShare } from "./capacity.ts";
import type { JsonParts, Route } from "./route.ts";

type BodyRules = {
  /** `null`: the route takes no body. */
  readonly bytesMax: number | null;
  readonly deadlineMs: number;
  /** Where the bytes are counted, and for whom. */
  readonly budget: FairShare;
  readonly client: string;
};

/** The parts of a request's head that describe its body. */
export type BodyHead = { readonly length: number | null; readonly headers: Headers };

/** A body, and its share of the budget, which the reader releases. */
export type ReadBody = { readonly bytes: Uint8Array; readonly held: number };

export const noBody: ReadBody = { bytes: new Uint8Array(0), held: 0 };

/** Why a body was not read: a refusal, or `null` for no room. Its share of the budget is released. */
type Unread = { readonly fault: Fault | null };

/**
 * What a body counts at least, from its head on, so that by default 16,384 may be arriving at once. Longer ones count as
 * they arrive: connections that announce much and send nothing can't use up the budget.
 */
export const countedBytesMin = 16 * 1024;

export function bodyHeadOf(headers: Headers): BodyHead {
  const announced = headers.get("content-length");
  return { length: announced === null ? null : Number(announced), headers };
}

/**
 * Whether a request has no body. A Request made without a socket has neither header; its `body`, which a GET
 * can't have then, shows it.
 */
export function isBodiless(request: Request, head: BodyHead): boolean {
  if (head.length !== null) return head.length === 0;
  return !head.headers.has("transfer-encoding") && (request.method === "GET" || request.body === null);
}

/**
 * What the head alone refuses: `invalid_request` (a body where none belongs), `unsupported_media_type`, `too_large`.
 * The body stays unread.
 */
export function checkBodyHead(head: BodyHead, bytesMax: number | null, route: Route): Fault | null {
  if (bytesMax === null) return fault("invalid_request", "this route accepts no body");
  const refused = route.takesAnyType ? null : checkMediaType(head);
  if (refused !== null) return refused;
  return head.length === null || head.length <= bytesMax ? null : tooLarge(bytesMax);
}

function checkMediaType({ headers }: BodyHead): Fault | null {
  const contentType = headers.get("content-type");
  const contentEncoding = headers.get("content-encoding");
  if (contentEncoding !== null && contentEncoding.toLowerCase() !== "identity") {
    return fault("unsupported_media_type", "encoded bodies are not accepted; send the JSON as it is");
  }
  if (contentType === "application/json") return null;
  const [essence = "", ...parameters] = (contentType ?? "").split(";").map((part) => part.trim().toLowerCase());
  const known = parameters.every((text) => text === "" || text === "charset=utf-8" || text === 'charset="utf-8"');
  if (essence === "application/json" && known) return null;
  return fault("unsupported_media_type", "bodies must be application/json in UTF-8");
}

/** The body as sent, when its head is acceptable; a body that stalls or ends early is `invalid_request`. */
export async function readBody(request: Request, { length }: BodyHead, rules: BodyRules): Promise<ReadBody | Unread> {
  const { budget, client } = rules;
  if (!budget.take(client, countedBytesMin)) return { fault: null };
  if (length === null || length > countedBytesMin) return readStream(request, rules);
  const bytes = await withDeadline(request.bytes(), rules.deadlineMs).catch(brokenOff);
  // Fewer bytes than announced: the client went away, or the framing was broken.
  if (bytes !== late && bytes.length === length) return { bytes, held: countedBytesMin };
  budget.give(client, countedBytesMin);
  return { fault: bytes === late ? stalled() : fault("invalid_request", "the body ended early") };
}

async function readStream(request: Request, rules: BodyRules): Promise<ReadBody | Unread> {
  const reader = (request.body ?? new Blob([]).stream()).getReader();
  const deadlineMs = performance.now() + rules.deadlineMs;
  const bytesMax = rules.bytesMax ?? 0;
  const chunks: Uint8Array[] = [];
  let [received, held] = [0, countedBytesMin];
  const giveUp = async (refusal: Fault | null): Promise<Unread> => {
    chunks.length = 0;
    // What is thrown away counts like any body that begins, so that others which are arriving may go on.
    rules.budget.give(rules.client, held - countedBytesMin);
    if (refusal === null || refusal.code === "too_large") await drainReader(reader);
    else reader.cancel().catch(brokenOff);
    rules.budget.give(rules.client, countedBytesMin);
    return { fault: refusal };
  };
  for (;;) {
    const step = await withDeadline(reader.read(), deadlineMs - performance.now()).catch(brokenOff);
    if (step === late) return giveUp(stalled());
    if (step.done) return { bytes: joinBytes(chunks), held };
    received += step.value.length;
    if (received > bytesMax) return giveUp(tooLarge(bytesMax));
    if (received > held && !rules.budget.take(rules.client, received - held)) return giveUp(null);
    held = Math.max(held, received);
    chunks.push(step.value);
  }
}

/** A client that has disconnected counts as one that stalls: no one reads the answer. */
function brokenOff(): typeof late {
  return late;
}

// ------------------------------------------------------------------------------------------ discarded bodies

/**
 * Bytes of a refused body that are read and thrown away: a little more than the largest body that a node accepts by
 * default.
 */
const drainBytesMax = 32 * 1024 * 1024;
const drainMs = 5_000;
/** A client that pauses for this long waits for the answer. */
const silenceMs = 500;

/**
 * Reads on after a refusal. A connection that is closed while its client still writes is reset, and the client never
 * sees the answer. Bounded in bytes and time; a client that announces more gets the answer at once, and perhaps the reset.
 */
export async function drainBody(
  request: Request,
  head: BodyHead,
  options: { readonly announcedOnly: boolean },
): Promise<void> {
  if ((head.length ?? 0) > drainBytesMax || (options.announcedOnly && head.length === null)) return;
  if (request.body === null || request.bodyUsed) return;
  await drainReader(request.body.getReader());
}

async function drainReader(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
  const untilMs = performance.now() + drainMs;
  for (let size = 0; size <= drainBytesMax && performance.now() < untilMs; ) {
    const step = await withDeadline(reader.read(), silenceMs).catch(brokenOff);
    if (step === late || step.done) break;
    size += step.value.length;
  }
  reader.cancel().catch(brokenOff);
}

function tooLarge(bytesMax: number): Fault {
  return fault("too_large", `the body may have at most ${bytesMax} bytes`);
}

function stalled(): Fault {
  return fault("invalid_request", "the body did not arrive in time");
}

// ----------------------------------------------------------------------------------------- long answers

export type ResponseStreams = {
  readonly budget: FairShare;
  /** What one answer counts at most: an answer always goes out where nobody else waits, however long its parts are. */
  readonly countedBytesMax: () => number;
  /** How long a client may take to read one chunk. */
  readonly deadlineMs: number;
  /** Awaited before a large part is read, which occupies the event loop: 4 ms for a mebibyte. */
  readonly nextIteration: () => Promise<void>;
};

/** Answers up to this size are left to the server and not counted. */
export const shortAnswerBytesMax = 64 * 1024;
const chunkBytes = 256 * 1024;

/**
 * The parts as the client reads them: one is in memory at a time, and room for the largest is taken until the end; `null`
 * when clients keep too much waiting already. Throws when the first part can't be read, so that a status can still say it.
 * The answer is cut off when a later one can't be read, or a chunk is not read within the deadline.
 */
export async function streamParts(
  { budget, countedBytesMax, deadlineMs, nextIteration }: ResponseStreams,
  { bytes, parts }: JsonParts,
  client: string,
): Promise<ReadableStream<Uint8Array> | null> {
  const counted = Math.min(bytes, countedBytesMax());
  if (!budget.take(client, counted)) return null;
  let left = new Uint8Array(0);
  let ended = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const end = (): void => {
    clearTimeout(timer);
    if (!ended) budget.give(client, counted);
    ended = true;
  };
  const watch = (controller: ReadableStreamDefaultController): void => {
    timer = setTimeout(() => {
      end();
      controller.error(new Error("the client did not read its answer in time"));
    }, deadlineMs);
  };
  /** Whether there is something to send. */
  const read = async (): Promise<boolean> => {
    while (left.length === 0) {
      if (bytes > shortAnswerBytesMax) await nextIteration();
      const step = await parts.next();
      // The client may have gone during the wait.
      if (step.done === true || ended) return false;
      left = step.value;
    }
    return true;
  };
  const pull = async (controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> => {
    clearTimeout(timer);
    try {
      if (await read()) {
        controller.enqueue(left.subarray(0, chunkBytes));
        left = left.subarray(chunkBytes);
        watch(controller);
      } else if (!ended) {
        end();
        controller.close();
      }
    } catch (error) {
      end();
      throw error;
    }
  };
  try {
    await read();
  } catch (error) {
    end();
    throw error;
  }
  return new ReadableStream<Uint8Array>({ start: watch, pull, cancel: end }, { highWaterMark: 0 });
}
