/**
 * People of other Directories: whether they are at the home that a name gives, and whether they
 * have moved. Loaded only where one of them is written to.
 * Source: docs/trust.md "Between providers".
 */
import { type Did, isDid } from "../../core/codec/did.ts";
import type { DidDocument } from "../../core/ledger/account.ts";
import { homeOfUrl, homesOf, movedType } from "../../core/ledger/home.ts";
import { isSelfCertifying } from "../../core/ledger/names.ts";
import { attempt, ClientError } from "../base/failure.ts";
import type { Client } from "./client.ts";
import { distrust } from "./trust.ts";

/**
 * A host that a name gives must be the one that the proof names: a Directory can't pass
 * off a person of another.
 */
export async function checkHome(client: Client, did: Did, home: string): Promise<void> {
  if (!isSelfCertifying(did))
    throw distrust("proof_missing", `${did} at ${home} is a random DID: nothing can prove it`);
  const { document } = await client.trust.examine(did, null);
  if (!homesOf(document).includes(home))
    throw distrust("home_differs", `${did} says that it is not at home at ${home}`);
}

/**
 * Throws `identity_moved` when the person has left this DID for another one, on another ledger, and
 * that one agrees. The new DID is `expected`.
 */
export async function checkMoved(client: Client, did: Did): Promise<void> {
  const proven = client.trust.provenOf(did);
  for (const next of proven === null ? [] : movedOf(proven.state.document, "to")) {
    client.trust.tellHome(next.did, next.home);
    const state = await attempt(() => client.trust.examine(next.did, null));
    if (
      state instanceof ClientError ||
      !movedOf(state.document, "from").some((one) => one.did === did)
    )
      continue;
    const extra = { expected: next.did };
    throw new ClientError(
      "local",
      "identity_moved",
      `${did} is ${next.did}@${next.home} now: both say so`,
      extra,
    );
  }
}

/** Services by which an identity that has left its ledger and its new DID name each other. */
const movedTypes = { to: movedType, from: "SvcMovedFromService" } as const;

/**
 * The DIDs that a document says it has moved to, or from, with their homes:
 * `https://directory.example/resolve/<DID>`.
 */
function movedOf(
  document: DidDocument,
  way: keyof typeof movedTypes,
): { did: Did; home: string }[] {
  const urls = document.service
    .filter(({ type }) => type === movedTypes[way])
    .flatMap((one) => one.serviceEndpoint);
  return urls.flatMap((url) => {
    const [, origin = "", did = ""] = /^(https?:\/\/[^/]+)\/resolve\/([^/]+)$/.exec(url) ?? [];
    const home = homeOfUrl(origin);
    return home !== null && isDid(did) ? [{ did, home }] : [];
  });
}
