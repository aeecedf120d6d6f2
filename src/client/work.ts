/**
 * The proof of work that a Directory asks of whoever registers many DIDs: found here without the person noticing, in
 * slices, so that a page stays responsive meanwhile.
 */
import { searchWork, workBitsMax } from "../core/message/work.ts";
import { type Endpoint, type Exchange, exchange, type Received } from "./http.ts";

/** Tries between two turns of the event loop: about 10 ms. */
const sliceTries = 4_096;

/** Sends, and once more with the work that a 429 asks for. */
export async function exchangeWithWork(to: Endpoint, request: Exchange): Promise<Received> {
  const received = await exchange(to, request);
  const { workBits } = received;
  if (received.status !== 429 || workBits === null || workBits > workBitsMax) return received;
  const nonce = await solveWork(request.body ?? new Uint8Array(0), workBits);
  return exchange(to, { ...request, headers: { ...request.headers, "Svc-Work": nonce } });
}

async function solveWork(body: Uint8Array, bits: number): Promise<string> {
  for (let first = 0; ; first += sliceTries) {
    const nonce = searchWork(body, bits, { first, count: sliceTries });
    if (nonce !== null) return nonce;
    await new Promise((resolve) => setTimeout(resolve));
  }
}
