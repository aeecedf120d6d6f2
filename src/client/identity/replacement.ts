/**
 * What a replacement of all keys would drop from the own record, for the user to tick what stays:
 * before keys are replaced by command, and when an identity is restored. Loaded on demand.
 * Source: docs/client.md "Lost and found", docs/trust.md "Own devices".
 */
import { renderAgreementKey } from "../../core/codec/bytes.ts";
import { bundleAgreement, type DidDocument, parseMethodKey } from "../../core/ledger/account.ts";
import { x25519PublicKey } from "../keys/crypto.ts";
import { heldSeed, type Identity } from "../keys/keys.ts";
import { endpoint } from "../net/http.ts";
import { activeDocument, type Client } from "../trust/client.ts";
import { hostOf, loadOwnHosts } from "../trust/hosts.ts";
import { loadAddedKeys } from "../trust/own.ts";
import { aboutOf } from "./registration.ts";

/**
 * Something of the document. `stays`: this device has made, added or named it, so that it stays
 * unless the user says otherwise.
 */
type Listed = { readonly id: string; readonly stays: boolean };

export type RecordReplacement = {
  /** Keys that sign as the identity, apart from those of this device. */
  readonly methods: readonly (Listed & { readonly publicKey: string })[];
  /** Keys to seal to that this device can't open with; none of them stays. */
  readonly agreements: readonly Listed[];
  readonly services: readonly (Listed & {
    readonly type: string;
    readonly endpoints: readonly string[];
  })[];
};

/** Ids of what stays in the record besides; with `methods`, of methods those alone. */
export type KeptRecord = {
  readonly services?: readonly string[];
  readonly methods?: readonly string[];
};

/**
 * What the user has ticked, as it was shown: who has the keys can put another key or address under
 * the same id before the new ones are in force.
 */
export type KeptParts = {
  readonly services: readonly Pick<
    RecordReplacement["services"][number],
    "id" | "type" | "endpoints"
  >[];
  /** `null`: those that stay by themselves. */
  readonly methods:
    | readonly Pick<RecordReplacement["methods"][number], "id" | "publicKey">[]
    | null;
  /**
   * Hosts that were not this identity's own and are not ticked: nor are they when an earlier
   * choice counts meanwhile.
   */
  readonly left?: readonly string[] | undefined;
};

/**
 * Shows a user what a restoration would take out, before anything changes; one that throws ends it.
 */
export type Choosing = (shown: RecordReplacement) => Promise<KeptRecord>;

/**
 * Of the document that is proven now. `ownHosts` where none are remembered;
 * without them all services stay.
 */
export async function recordReplacement(
  client: Client,
  identity: Identity,
  ownHosts: readonly string[] | null = null,
): Promise<RecordReplacement> {
  const { did } = identity;
  const document = await activeDocument(client, did);
  const added = await loadAddedKeys(client, did);
  const hosts = (await loadOwnHosts(client, did)) ?? ownHosts;
  const opened = await Promise.all(
    identity.agreements.map(async ({ secret }) =>
      renderAgreementKey(await x25519PublicKey(secret)),
    ),
  );
  const methods: { id: string; stays: boolean; publicKey: string }[] = [];
  for (const one of document.verificationMethod) {
    const key = parseMethodKey(one);
    const { id, publicKeyMultibase: publicKey } = one;
    const held = key === null ? null : await heldSeed(identity, key);
    if (held === null) methods.push({ id, publicKey, stays: added.includes(publicKey) });
  }
  return {
    methods,
    // The entry that says that bundles are published is not a key: it stays, and the
    // next bundle is signed anew.
    agreements: document.keyAgreement
      .filter(({ type }) => type !== bundleAgreement.type)
      .filter(({ publicKeyMultibase }) => !opened.includes(publicKeyMultibase))
      .map(({ id }) => ({ id, stays: false })),
    services: document.service.map(({ id, type, serviceEndpoint }) => {
      const stays = hosts === null || serviceEndpoint.some((url) => hosts.includes(hostOf(url)));
      return { id, type, endpoints: serviceEndpoint, stays };
    }),
  };
}

/**
 * Of what was shown, if anything was. A service that stays anyway does so with this
 * identity's own addresses alone.
 */
export function keptParts(
  { services = [], methods }: KeptRecord,
  shown: RecordReplacement | null,
): KeptParts {
  const { services: shownServices = [], methods: shownMethods = [] } = shown ?? {};
  const others = shownServices.filter(({ stays }) => !stays);
  const ticked = others.filter(({ id }) => services.includes(id));
  const unticked = others.filter(({ id }) => !services.includes(id));
  return {
    services: ticked.map(({ id, type, endpoints }) => ({ id, type, endpoints })),
    left: unticked.flatMap(({ endpoints }) => endpoints.map(hostOf)),
    methods:
      methods === undefined
        ? null
        : shownMethods
            .filter(({ id }) => methods.includes(id))
            .map(({ id, publicKey }) => ({ id, publicKey })),
  };
}

/**
 * Before an identity is restored: the services at the nodes of the user's choice (`urls`) are its
 * own, because who had the keys may have named other ones; and what else its user says.
 */
export async function chooseRestored(
  client: Client,
  identity: Identity,
  { choose, urls }: { readonly choose: Choosing; readonly urls: readonly (string | undefined)[] },
): Promise<KeptParts & { readonly own: DidDocument["service"] }> {
  const named = urls.flatMap((url) => (url === undefined ? [] : [hostOf(url)]));
  const known = (await loadOwnHosts(client, identity.did)) ?? (await hostsOf(client));
  const hosts = [...known, ...named];
  const shown = await recordReplacement(client, identity, hosts);
  const kept = keptParts(await choose(shown), shown);
  const { service } = await activeDocument(client, identity.did);
  const own = service.map((one) => {
    const serviceEndpoint = one.serviceEndpoint.filter((at) => hosts.includes(hostOf(at)));
    return { ...one, serviceEndpoint };
  });
  return { ...kept, own };
}

/** Of the node at which an identity is restored, and of those that it names. */
async function hostsOf({ directory, timeoutMs }: Client): Promise<readonly string[]> {
  const { url } = directory.endpoint;
  const about = await aboutOf(endpoint(url, timeoutMs));
  const names = [about.relay_endpoints, about.cache_endpoints, about.directory_endpoints].flat();
  return [url, ...names.filter((one) => one !== undefined)].map(hostOf);
}
