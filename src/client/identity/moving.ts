/**
 * An identity receives at other addresses: its document names them from then on.
 * Source: docs/client.md "Opening", docs/run.md "Another address".
 */
import type { DidDocument, Service } from "../../core/ledger/account.ts";
import { heldSeed, type Identity } from "../keys/keys.ts";
import type { Waiting } from "../net/directory.ts";
import { endpoint } from "../net/http.ts";
import { type Client, rootKeyOf } from "../trust/client.ts";
import { rememberHosts } from "../trust/hosts.ts";
import { isAmong, places, type Urls } from "./address.ts";
import { publishEdited } from "./change.ts";
import { aboutOf, checkHomes, homeAt, homeService, serviceAt } from "./registration.ts";

/**
 * Has the document name the given addresses first. Those before stay behind them as long as
 * other nodes answer there, since messages may wait at them. Throws `invalid_url` when the nodes
 * call themselves otherwise.
 */
export async function move(
  client: Client,
  identity: Identity,
  urls: Urls,
  waiting: Waiting,
): Promise<void> {
  const { did } = identity;
  await checkHomes(client, urls);
  const home = await homeAt(client);
  const given = places.map((place) => serviceAt(did, { ...place, url: urls[place.url] }));
  const named = home === null ? given : [...given, homeService(did, home)];
  await rememberHosts(client, did, named);
  const edited = async (document: DidDocument) => {
    let { service } = document;
    for (const one of named) service = await withFirst(client, service, one);
    return { ...document, service };
  };
  const rootSeed = (await heldSeed(identity, await rootKeyOf(client, did))) ?? identity.rootSeed;
  await publishEdited(client, did, { rootSeed, edited, waiting });
}

/**
 * The services with the address of one in front of those of its type; behind
 * them, where there are none.
 */
async function withFirst(
  client: Client,
  services: readonly Service[],
  given: Service,
): Promise<readonly Service[]> {
  const before = services.find(({ type }) => type === given.type);
  // Its id may have been given to a service of another type.
  if (before === undefined) return [...services.filter(({ id }) => id !== given.id), given];

  const [url = ""] = given.serviceEndpoint;
  const own = await aboutOf(endpoint(url, client.timeoutMs));
  const names = [own.relay_endpoints, own.cache_endpoints, own.directory_endpoints].flat();

  const kept: string[] = [];
  for (const one of before.serviceEndpoint) {
    if (isAmong(one, [url, ...names.filter((name) => name !== undefined)])) continue;
    const other = await aboutOf(endpoint(one, client.timeoutMs));
    if (other.roles !== undefined) kept.push(one);
  }

  const isRead = before.authorization !== null && before.authorization.length > 0;
  const { authorization } = isRead ? before : given;
  const after = { ...before, authorization, serviceEndpoint: [url, ...kept] };
  return services.map((one) => (one === before ? after : one));
}
