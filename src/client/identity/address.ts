/**
 * Where an identity receives: what its document names, compared with the addresses that
 * `open` was given. They differ when the nodes have got others, or when the identity goes to
 * other nodes (`moving.ts`).
 * Source: docs/client.md "Opening", docs/run.md "Another address".
 */
import type { Did } from "../../core/codec/did.ts";
import type { DidDocument } from "../../core/ledger/account.ts";
import { sameEndpoint } from "../../core/message/proof.ts";
import { endpoint } from "../net/http.ts";
import { activeDocument, type Client, type NodeUrls } from "../trust/client.ts";
import { hostOf, loadOwnHosts, rememberHosts } from "../trust/hosts.ts";

/** The addresses that `open` was given. */
export type Urls = NodeUrls;

/** Where the document has an identity listen, and its messages wait. */
type Addresses = { readonly relay: readonly string[]; readonly cache: readonly string[] };

export const places = [
  { type: "SvcRelayService", fragment: "relay", member: "relay_endpoints", url: "relayUrl" },
  { type: "SvcCacheService", fragment: "cache", member: "cache_endpoints", url: "cacheUrl" },
] as const;

const namedAt = ({ service }: DidDocument, wanted: string): string[] =>
  service.filter(({ type }) => type === wanted).flatMap((one) => one.serviceEndpoint);

export const isAmong = (url: string, list: readonly string[]): boolean =>
  list.some((one) => sameEndpoint(one, url));

/**
 * What the document names instead of the nodes at the given addresses; `null` when it names these,
 * under any address that they call their own, or when they can't be asked. The given ones are
 * remembered as this identity's own.
 */
export async function addressesElsewhere(
  client: Client,
  did: Did,
  urls: Urls,
): Promise<Addresses | null> {
  await rememberOwnHosts(client, did, urls);
  const document = await activeDocument(client, did);
  const elsewhere = places.map(async ({ type, member, url }) => {
    const [given, named] = [urls[url], namedAt(document, type)];
    if (isAmong(given, named)) return false;
    // Loaded by those alone whose address is another one.
    const { aboutOf } = await import("./registration.ts");
    const own = (await aboutOf(endpoint(given, client.timeoutMs)))[member] ?? [];
    return isAmong(given, own) && !own.some((one) => isAmong(one, named));
  });
  if (!(await Promise.all(elsewhere)).includes(true)) return null;
  return {
    relay: namedAt(document, "SvcRelayService"),
    cache: namedAt(document, "SvcCacheService"),
  };
}

/**
 * The addresses that `open` was given are this identity's own, whichever device had the document
 * name them; and on a device that knows none, as after a restoration, the services that the
 * document has when it begins.
 */
async function rememberOwnHosts(client: Client, did: Did, urls: Urls): Promise<void> {
  const known = await loadOwnHosts(client, did);
  const first = known === null ? (await activeDocument(client, did)).service : [];
  const given = [urls.relayUrl, urls.cacheUrl];
  if (known !== null && given.every((url) => known.includes(hostOf(url)))) return;
  await rememberHosts(client, did, [...first, { serviceEndpoint: given }]);
}
