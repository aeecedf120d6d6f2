/**
 * The root key of an identity, as its own proof shows it: nothing else orders keyrings.
 * Source: docs/trust.md ("Own devices").
 */
import { encodeHex } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { counters } from "../../core/ledger/actions.ts";
import type { KeyState } from "../../core/ledger/key-proof.ts";
import { isSelfCertifying } from "../../core/ledger/names.ts";
import { type Client, rootKeyOf } from "../trust/client.ts";
import type { ProvenRoot } from "./keyring.ts";

/** What the proof shows now; of a random DID what the Directory says. */
export async function provenRoot(client: Client, did: Did): Promise<ProvenRoot> {
  if (isSelfCertifying(did)) return rootIn(await client.trust.prove(did, null));
  const [root, nonces] = [await rootKeyOf(client, did), await client.directory.nonces(did)];
  const number = Number(nonces[counters.rootPubkey.nonceDomain] ?? "0");
  return { number, root: encodeHex(root) };
}

/** What was last proven, without asking. */
export function lastProven(client: Client, did: Did): ProvenRoot | null {
  const known = client.trust.provenOf(did);
  return known === null ? null : rootIn(known.state);
}

const rootIn = ({ rootKeys }: KeyState): ProvenRoot => {
  const root = rootKeys.at(-1) as Uint8Array;
  return { number: rootKeys.length - 1, root: encodeHex(root) };
};
