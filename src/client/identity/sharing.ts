/**
 * What every replacement of a secret looks at: the other own devices, which have it first, and for
 * how long something sealed to the one before may be waiting. Apart from the replacements, since a
 * page that says hello needs no more of them.
 * Source: docs/trust.md "The sealing key", "Key bundles".
 */
import { dayMs, hourMs, parseDuration, secondMs } from "../../core/codec/time.ts";
import type { DidDocument } from "../../core/ledger/account.ts";
import { endpoint } from "../net/http.ts";
import { readLimits } from "../trust/client.ts";

/** Under which is remembered that Caches are still to end pushes (`identity/push.ts`). */
export const keepingKey = "push/keeping";
/** Likewise, that this device is to subscribe again, or to end what it has not asked for. */
export const renewingKey = "push/renewing";

/** No envelope lives longer, so no secret is kept longer after its key was replaced. */
export const secretKeptMsMax = 30 * dayMs;
/** Clock skew, and senders that read the document a moment before. */
const keptMarginMs = hourMs;
/** A Cache that takes longer to state its limits states none. */
const limitsMsMax = 3 * secondMs;

/** The other devices of the identity. */
export type OtherDevices = {
  /** Of this device's DID among all: 0 is the lowest. */
  readonly rank: number;
  readonly others: number;
  /** Gives them the secrets that are here. Returns whether their Caches have them. */
  readonly share: () => Promise<boolean>;
  /** Asks them for the secret of a published key, in hex. */
  readonly ask: (publicKey: string) => Promise<void>;
};

export const alone: OtherDevices = {
  rank: 0,
  others: 0,
  share: async () => true,
  ask: async () => undefined,
};

/** The longest life that the Caches of the document allow; 30 days for one that states none. */
export async function longestLifeMs(document: DidDocument, timeoutMs: number): Promise<number> {
  const services = document.service.filter(({ type }) => type === "SvcCacheService");
  const urls = new Set(services.flatMap(({ serviceEndpoint }) => serviceEndpoint));
  const lives = [...urls].map(async (url) => {
    const limits = await readLimits(endpoint(url, Math.min(timeoutMs, limitsMsMax)));
    return parseDuration(limits?.max_ttl ?? "") ?? secretKeptMsMax;
  });
  return urls.size === 0
    ? secretKeptMsMax
    : Math.min(Math.max(...(await Promise.all(lives))) + keptMarginMs, secretKeptMsMax);
}
