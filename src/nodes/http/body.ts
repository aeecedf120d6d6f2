/**
 * Request bodies and long answers. A body is read under the route's cap and against a
 * deadline, and counted in the body budget. An answer longer than 64 KiB is sent in chunks
 * as the client reads it: otherwise a client that reads slowly, or not at all, would keep
 * three copies of its answer in memory for 30 s. It is counted until the last chunk is
 * read, and cut off when that takes too long.
 * Source: rules sections 6 ("Long answers") and 9 ("Bodies"), interface "Limits".
 */
import { joinBytes } from "../../core/codec/bytes.ts";
import { type Fault, fault, isFault } from "../../core/fault.ts";
import { late, withDeadline } from "../../core/std/bounded.ts";
import { countedBytesMin, type FairShare, nextIteration } from "./capacity.ts";
import { type Answer, type JsonParts, partsOf, type Route, splice, splicedBytes } from "./route.ts";

type BodyRules = {
  readonly bytesMax: number;
  readonly deadlineMs: number;
  /** Where the bytes are counted, and for whom. */
  readonly budget: FairShare;
  readonly client: string;
};

/** A body, and its share of the budget, which the reader releases. */
export type ReadBody = { readonly bytes: Uint8Array; readonly held: number };

/** `full`: the budget has no room. */
export type BodyOutcome = ReadBody | Fault | "full";

export const noBody: ReadBody = { bytes: new Uint8Array(0), held: 0 };

/** The bytes that a head announces; `null` when it announces no number. */
export function announcedBytes(headers: Headers): number | null {
  const announced = headers.get("content-length");
  return announced === null ? null : Number(announced);
}

/**
 * Whether a request has no body. A Request made without a socket has neither header; its
 * `body`, which a GET can't have then, shows it.
 */
export function isBodiless(request: Request, announced: number | null): boolean {
  if (announced !== null) return announced === 0;
  return (
    !request.headers.has("transfer-encoding") && (request.method === "GET" || request.body === null)
  );
}

/**
 * What the head alone refuses: `invalid_request` (a body where none belongs),
 * `unsupported_media_type`, `too_large`.
 */
export function checkBodyHead(
  headers: Headers,
  announced: number | null,
  route: Route,
): Fault | null {
  const { bodyBytesMax: bytesMax } = route;
  if (bytesMax === undefined) return fault("invalid_request", "this route accepts no body");
  const refused = route.takesAnyType ? null : checkMediaType(headers);
  if (refused !== null) return refused;
  return announced === null || announced <= bytesMax ? null : tooLarge(bytesMax);
}

function checkMediaType(headers: Headers): Fault | null {
  const contentType = headers.get("content-type");
  const contentEncoding = headers.get("content-encoding");
  if (contentEncoding !== null && contentEncoding.toLowerCase() !== "identity") {
    return fault(
      "unsupported_media_type",
      "encoded bodies are not accepted; send the JSON as it is",
    );
  }
  if (contentType === "application/json") return null;
  const [essence = "", ...parameters] = (contentType ?? "")
    .split(";")
    .map((part) => part.trim().toLowerCase());
  const known = parameters.every(
    (text) => text === "" || text === "charset=utf-8" || text === 'charset="utf-8"',
  );
  if (essence === "application/json" && known) return null;
  return fault("unsupported_media_type", "bodies must be application/json in UTF-8");
}

/**
 * The body as sent, when its head is acceptable; a body that stalls or ends early is
 * `invalid_request`, one that the budget has no room for is `full`. What a refused body
 * counted is released.
 */
export function readBody(
  request: Request,
  announced: number | null,
  rules: BodyRules,
): BodyOutcome | Promise<BodyOutcome> {
  const { budget, client, deadlineMs } = rules;
  if (!budget.take(client, countedBytesMin)) return "full";
  if (announced === null || announced > countedBytesMin) return readStream(request, rules);
  const reading = request.bytes();
  // Most bodies came with their head: a timer for each would be a twentieth of a store.
  const arrived = Bun.peek(reading);
  if (arrived instanceof Uint8Array) return shortBody(arrived, announced, rules);
  return withDeadline(reading, deadlineMs)
    .catch(brokenOff)
    .then((bytes) => shortBody(bytes, announced, rules));
}

function shortBody(
  bytes: Uint8Array | typeof late,
  announced: number,
  { budget, client }: BodyRules,
): BodyOutcome {
  // Fewer bytes than announced: the client went away, or the framing was broken.
  if (bytes !== late && bytes.length === announced) return { bytes, held: countedBytesMin };
  budget.give(client, countedBytesMin);
  return bytes === late ? stalled() : fault("invalid_request", "the body ended early");
}

async function readStream(
  request: Request,
  { bytesMax, budget, client, ...rules }: BodyRules,
): Promise<BodyOutcome> {
  const reader = (request.body ?? new Blob([]).stream()).getReader();
  const deadlineMs = performance.now() + rules.deadlineMs;
  const chunks: Uint8Array[] = [];
  let [received, held] = [0, countedBytesMin];
  const readNext = async (): Promise<BodyOutcome | null> => {
    const step = await withDeadline(reader.read(), deadlineMs - performance.now()).catch(brokenOff);
    if (step === late) return stalled();
    if (step.done) return { bytes: joinBytes(chunks), held };
    received += step.value.length;
    if (received > bytesMax) return tooLarge(bytesMax);
    if (received > held && !budget.take(client, received - held)) return "full";
    held = Math.max(held, received);
    chunks.push(step.value);
    return null;
  };
  let read = await readNext();
  while (read === null) read = await readNext();
  if (read === "full" || isFault(read)) {
    budget.give(client, held);
    // A read that is still waiting breaks off.
    reader.releaseLock();
    chunks.length = 0;
    collectAfter(received);
  }
  return read;
}

/** A client that has disconnected counts as one that stalls: no one reads the answer. */
function brokenOff(): typeof late {
  return late;
}

/**
 * Bytes of a refused body that are read and thrown away: a little more than the largest
 * body that a node accepts by default.
 */
const discardedBytesMax = 32 * 1024 * 1024;
const discardMs = 5_000;
/** A client that pauses for this long waits for the answer. */
const silenceMs = 500;

/**
 * Reads on after a refusal. A connection that is closed while its client still writes is
 * reset, and the client never sees the answer. Bounded in bytes and time; a client that
 * announces more gets the answer at once, and perhaps the reset. It counts like any body
 * that begins, so that others which are arriving may go on.
 */
export async function discardBody(
  request: Request,
  { budget, client }: Pick<BodyRules, "budget" | "client">,
) {
  if (
    (announcedBytes(request.headers) ?? 0) > discardedBytesMax ||
    request.body === null ||
    request.body.locked
  )
    return;
  if (!budget.take(client, countedBytesMin)) return;
  const reader = request.body.getReader();
  const untilMs = performance.now() + discardMs;
  for (let size = 0; size <= discardedBytesMax && performance.now() < untilMs; ) {
    const step = await withDeadline(reader.read(), silenceMs).catch(brokenOff);
    if (step === late || step.done) break;
    size += step.value.length;
  }
  reader.cancel().catch(brokenOff);
  budget.give(client, countedBytesMin);
}

/**
 * Counted bytes of long answers, and of bodies that broke off, after whose end memory is
 * collected: by itself the runtime lets gigabytes gather. Two rounds of 250 MB of such
 * bodies took 474 MiB without it, and 222 with it.
 */
const collectedBytes = 64 * 1024 ** 2;
let endedBytes = 0;

/** A full collection, which stops the event loop. */
function collectAfter(bytes: number): void {
  endedBytes += bytes;
  if (endedBytes < collectedBytes) return;
  endedBytes = 0;
  Bun.gc(true);
}

function tooLarge(bytesMax: number): Fault {
  return fault("too_large", `the body may have at most ${bytesMax} bytes`);
}

function stalled(): Fault {
  return fault("invalid_request", "the body did not arrive in time");
}

// ------------------------------------------------------------------------------------ long answers

/** Answers up to this size are left to the server and not counted. */
const shortAnswerBytesMax = 64 * 1024;
const chunkBytes = 256 * 1024;
/**
 * What an unread answer holds of its largest part, measured under
 * `test/campaigns/unread.ts`: what the store read, the spliced part, the server's own copy,
 * and those of parts that the kernel took before.
 */
const answerCopies = 3;

/** What of an answer is too long to go out at once; `null` of a short one. */
export function longParts({ jsonParts, body }: Answer, method: string): JsonParts | null {
  if (method === "HEAD") return null;
  if (jsonParts !== undefined) return jsonParts;
  const content = body?.content ?? "";
  // A text is a small page or refusal of our own.
  if (typeof content === "string" || content instanceof ReadableStream) return null;
  const parts = partsOf(content);
  const bytes = splicedBytes(parts);
  return bytes > shortAnswerBytesMax ? { bytes, parts: [splice(parts)] } : null;
}

/** `deadlineMs`: how long a client may take to read one chunk. */
type StreamRules = Omit<BodyRules, "bytesMax">;

/**
 * The parts as the client reads them: one is in memory at a time, and room for the largest
 * is taken until the end; `null` when clients keep too much waiting already. Throws when
 * the first part can't be read, so that a status can still say it. The answer is cut off
 * when a later one can't be read, or a chunk is not read within the deadline.
 */
export async function streamParts(
  { bytes, parts }: JsonParts,
  { budget, client, deadlineMs }: StreamRules,
): Promise<ReadableStream<Uint8Array> | null> {
  // An answer always goes out where no one else waits, however long its parts are.
  const counted = Math.min(answerCopies * bytes, budget.max / 2);
  if (!budget.take(client, counted)) {
    collectAfter(answerCopies * bytes);
    return null;
  }
  const chunks = (async function* () {
    try {
      if (bytes > shortAnswerBytesMax) await nextIteration();
      for await (const part of parts) {
        collectAfter(answerCopies * part.length);
        for (let at = 0; at < part.length; at += chunkBytes)
          yield part.subarray(at, at + chunkBytes);
        if (bytes > shortAnswerBytesMax) await nextIteration();
      }
    } finally {
      budget.give(client, counted);
    }
  })();
  let first: IteratorResult<Uint8Array, void> | null = await chunks.next();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const endBody = (): void => {
    clearTimeout(timer);
    chunks.return().catch(brokenOff);
  };
  const watch = (controller: ReadableStreamDefaultController): void => {
    timer = setTimeout(() => {
      endBody();
      controller.error(new Error("the client did not read its answer in time"));
    }, deadlineMs);
  };
  const pull = async (controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> => {
    clearTimeout(timer);
    const step = first ?? (await chunks.next());
    first = null;
    if (step.done) return controller.close();
    controller.enqueue(step.value);
    watch(controller);
  };
  return new ReadableStream<Uint8Array>(
    { start: watch, pull, cancel: endBody },
    { highWaterMark: 0 },
  );
}
