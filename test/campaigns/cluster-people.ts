/**
 * What the campaign of the cluster asks its nodes for: whether they are ready, recipients, and how
 * long answers took.
 */
import { firstDocument, register } from "../../src/client/identity/registration.ts";
import { createIdentity, type Identity } from "../../src/client/keys/keys.ts";
import { settleRegistration, waitingDefault } from "../../src/client/net/directory.ts";
import { connect } from "../../src/client/trust/client.ts";

export const pick = <T>(list: readonly T[]): T => list[Math.floor(Math.random() * list.length)]!;
export const between = (least: number, most: number): number =>
  least + Math.random() * (most - least);

const readyMsMax = 120_000;

export async function ready(url: string): Promise<void> {
  const endMs = performance.now() + readyMsMax;
  for (; performance.now() < endMs; await Bun.sleep(50)) {
    const asked = fetch(`${url}/readyz`, { signal: AbortSignal.timeout(2_000) });
    if ((await asked.catch(() => null))?.ok === true) return;
  }
  throw new Error(`${url} does not become ready`);
}

/** One whose messages and mailbox are at all of the nodes. */
export async function openRecipient(name: string, urls: readonly string[]) {
  const identity: Identity = createIdentity(name);
  const [url] = urls as readonly [string];
  const client = connect({ directoryUrl: url, relayUrl: url });
  const first = await firstDocument(identity, { relayUrl: url, cacheUrl: url });
  const service = first.service.map((one) => ({ ...one, serviceEndpoint: [...urls] }));
  const submitted = await register(client, identity, {
    document: { ...first, service },
    alias: null,
  });
  await settleRegistration(client, submitted, waitingDefault);
  return { identity, client };
}

export function timesOf(list: readonly { readonly ms: number }[]): string {
  const sorted = list.map(({ ms }) => ms).sort((a, b) => a - b);
  const at = (part: number) => sorted[Math.floor(sorted.length * part)]?.toFixed(0);
  return `${sorted.length}, half within ${at(0.5)} ms, 99 of 100 within ${at(0.99)} ms`;
}
