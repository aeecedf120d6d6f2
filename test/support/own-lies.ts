/**
 * What a Directory that has an identity of its own, Eve, says of everybody's keys, and what of all
 * that is sent she can open.
 */
import { openPayload } from "../../src/client/mail/unseal.ts";
import { chunkPlaceOf } from "../../src/client/net/caches.ts";
import type { Waypost } from "../../src/client/waypost.ts";
import { proofBytes } from "./lie-stage.ts";
import type { Lie } from "./lying-directory.ts";

export type Envelope = Readonly<Record<string, unknown>>;

/** In `/limits`, delivery resolutions, proofs and records. */
export const ownLies = [
  "limits without self-certifying DIDs",
  "limits without a ledger",
  "limits of another ledger",
  "its own key to seal to",
  "somebody else's resolution, proof and all",
  "no proofs",
  "proofs of garbage",
  "somebody else's proof",
  "somebody else's record",
  "everybody unknown",
] as const;
export type OwnLie = (typeof ownLies)[number];

/** `url` is the Directory that is honest. */
export async function liesOf(url: string, eve: Waypost): Promise<Readonly<Record<OwnLie, Lie>>> {
  const read = async (path: string) => (await fetch(`${url}${path}`)).json();
  const resolution = (await read(`/delivery-resolution/${eve.did}?proof=`)) as object;
  const { recipient_public_key_multibase, recipient_key_id } = resolution as Record<string, string>;
  const record = JSON.stringify(await read(`/resolve/${eve.did}`));
  const proof = await proofBytes(url, eve.did);
  const limits = (change: object): Lie => ({
    json: ({ path, json }) => (path === "/limits" ? { ...json, ...change } : null),
  });
  const toldOf = (prefix: string, say: (did: string, json: object) => object): Lie => ({
    json: ({ path, json }) =>
      path.startsWith(prefix) ? say(path.slice(prefix.length), json) : null,
  });
  const key = { recipient_public_key_multibase, recipient_key_id };
  return {
    "limits without self-certifying DIDs": limits({ self_certifying_dids: false }),
    "limits without a ledger": limits({ genesis_hash: undefined }),
    "limits of another ledger": limits({ genesis_hash: `0x${"ab".repeat(32)}` }),
    "its own key to seal to": toldOf("/delivery-resolution/", (_, json) => ({ ...json, ...key })),
    "somebody else's resolution, proof and all": toldOf("/delivery-resolution/", () => resolution),
    "no proofs": { proof: () => "none" },
    "proofs of garbage": { proof: () => Uint8Array.of(1, 2, 3) },
    "somebody else's proof": { proof: () => proof },
    "somebody else's record": toldOf("/resolve/", (did) =>
      JSON.parse(record.replaceAll(eve.did, did)),
    ),
    "everybody unknown": toldOf("/dids/", (_, json) => ({
      ...json,
      registration_status: "missing",
    })),
  };
}

/** The content, where a secret of the identity opens the envelope, to whomever it is addressed. */
export async function openedBy(me: Waypost, envelope: Envelope): Promise<Uint8Array | null> {
  const secrets = me.identity.agreements.map(({ secret }) => secret);
  const place = {
    messageId: String(envelope["message_id"]),
    to: String(envelope["to"]),
    chunk: chunkPlaceOf(envelope),
  };
  return openPayload(envelope["payload"], place, () => secrets).then(
    ({ data }) => data,
    () => null,
  );
}
