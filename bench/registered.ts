/** A new DID on a node that is measured: how to read its mail there, and how to sign as it. */

import { firstDocument, register } from "../src/client/identity/registration.ts";
import type { Signer } from "../src/client/keys/crypto.ts";
import { createIdentity } from "../src/client/keys/keys.ts";
import { settleRegistration, waitingDefault } from "../src/client/net/directory.ts";
import type { Reader } from "../src/client/net/reader.ts";
import { cachesOf } from "../src/client/trust/caches.ts";
import { connect, senderOf } from "../src/client/trust/client.ts";

export type Registered = Reader & { readonly sender: Signer };

export async function registered(url: string): Promise<Registered> {
  const client = connect({ directoryUrl: url, relayUrl: url });
  const identity = createIdentity("bench");
  const document = await firstDocument(identity, { relayUrl: url, cacheUrl: url });
  await settleRegistration(
    client,
    await register(client, identity, { document, alias: null }),
    waitingDefault,
  );
  const [cache] = await cachesOf(client, identity);
  if (cache === undefined) throw new Error("the identity has no Cache");
  return { ...cache.reader, sender: await senderOf(client, identity) };
}
