/**
 * When the garbage of requests is collected. By itself the runtime waits, on a machine with
 * much memory, until all that it counts has grown to three times its size, and it counts the
 * arrays of the mailboxes' index, which are no garbage: with half a million ids held, 200 MiB
 * of dead objects lie there first. Collections by what requests leave keep that at some tens
 * of MiB whatever the index holds.
 */
import { edenGC, fullGC } from "bun:jsc";

const mebibyte = 2 ** 20;
/** Objects of one request: 8 KB of a store, more of a page. */
const bytesEach = 8 * 1_024;
/** A body is there as bytes, as text, as members and as the envelope that is kept. */
const copiesOfBody = 4;
/** Between two collections of young objects, which take 5 ms while 256 requests are in work. */
const bytesBetween = 40 * mebibyte;
/** By how much survivors may grow between two collections of all objects, which take 30 ms. */
const survivorBytesMax = 24 * mebibyte;

/** The runtime's collector, or that of a test. Both return the bytes that have survived. */
type Heap = {
  readonly collectYoung: () => number;
  readonly collectAll: () => number;
};

const runtimeHeap: Heap = { collectYoung: edenGC, collectAll: fullGC };

/**
 * Returns what is called for each answer with the length of the request's body. It collects
 * when the event loop has sent the answers of this turn.
 */
export function collectByRequests(heap: Heap = runtimeHeap): (bodyBytes: number) => void {
  let made = 0;
  let isDue = false;
  let least = Number.POSITIVE_INFINITY;
  const collect = (): void => {
    [made, isDue] = [0, false];
    const survived = heap.collectYoung();
    least = Math.min(least, survived);
    if (survived - least > survivorBytesMax) least = heap.collectAll();
  };
  return (bodyBytes) => {
    made += bytesEach + copiesOfBody * bodyBytes;
    if (isDue || made < bytesBetween) return;
    isDue = true;
    setImmediate(collect);
  };
}
