/**
 * What became of envelopes lately, for the operator who is asked why a message did not arrive: the
 * last results of each sender to each recipient, in memory, and the keyed digest under which log
 * lines name a recipient. The key is kept in a store of the node, so that all processes on it write
 * the same digest, also after a restart, and no one else can see whose it is.
 */
import { encodeHex } from "../core/codec/bytes.ts";
import type { Did, Uuid } from "../core/codec/did.ts";
import { dayMs } from "../core/codec/time.ts";
import { BoundedMap } from "../core/std/bounded.ts";
import { type Receipts, StoreError } from "../storage/contract.ts";

/**
 * The envelope that a request is about. `from` is what the envelope says: only its result
 * shows whether that is proven.
 */
export type RequestedEnvelope = {
  readonly messageId: Uuid;
  readonly to: Did;
  readonly from: Did | null;
};

export type EnvelopeResult = RequestedEnvelope & {
  readonly atMs: number;
  readonly requestId: string;
  readonly route: string;
  readonly status: number;
  readonly code: string | null;
  readonly detail: string | null;
};

export type Results = {
  /** The keyed digest of a recipient: 16 hex digits. */
  readonly digest: (did: Did) => string;
  readonly add: (result: EnvelopeResult) => void;
  /** Of a DID as recipient and as sender. */
  readonly forget: (did: Did) => void;
  /** The newest first; of one sender, or of all. */
  readonly of: (to: Did, from: Did | null) => EnvelopeResult[];
};

type CountedResult = { readonly count: number; readonly result: EnvelopeResult };

/** Pairs of sender and recipient that are remembered: about 10 MB when full. */
const pairsMax = 5_000;
const resultsOfPair = 4;
const digestChars = 16;

/** A receipt must have an end; what the operator decides has none, so it gets 100 years. */
export const keptMs = 36_500 * dayMs;

/**
 * With a slash, as everything that belongs to no mailbox: several databases keep
 * that in the first of them.
 */
const keyName = "/operator-digest-key";

export async function openResults({
  receipts,
  now,
}: {
  receipts: Receipts;
  now: () => number;
}): Promise<Results> {
  const key = await readKey(receipts, now());
  const pseudonym = (did: Did): string =>
    new Bun.CryptoHasher("sha256", key).update(did).digest("hex").slice(0, digestChars);
  // Many results share a millisecond, and clocks go back: the count orders them.
  let added = 0;
  const pairs = new BoundedMap<string, CountedResult[]>(pairsMax);
  return {
    digest: pseudonym,
    add: (result) => {
      const pair = `${result.to} ${result.from ?? ""}`;
      const results = pairs.get(pair) ?? [];
      if (results.unshift({ count: added++, result }) > resultsOfPair) results.pop();
      pairs.set(pair, results);
    },
    forget: (did) => {
      for (const pair of [...pairs].map(([key]) => key))
        if (pair.split(" ").includes(did)) pairs.delete(pair);
    },
    of: (to, from) => {
      const found =
        from === null
          ? [...pairs].flatMap(([, results]) => results)
          : (pairs.get(`${to} ${from}`) ?? []);
      const ofRecipient = found.filter(({ result }) => result.to === to);
      return ofRecipient.sort((a, b) => b.count - a.count).map(({ result }) => result);
    },
  };
}

/** A node starts on a full disk too: then its key lasts as long as the process. */
async function readKey(receipts: Receipts, nowMs: number): Promise<string> {
  const known = await receipts.get(keyName, nowMs);
  if (known !== null) return encodeHex(known);
  const own = crypto.getRandomValues(new Uint8Array(32));
  const earlier = await receipts
    .putIfAbsent(keyName, own, nowMs + keptMs, nowMs)
    .catch((error: unknown) => {
      if (error instanceof StoreError) return null;
      throw error;
    });
  return encodeHex(earlier ?? own);
}
