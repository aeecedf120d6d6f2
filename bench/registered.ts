/** A new DID on a node that is measured, and how to read its mail there. */

import { cachesOf, connect } from "../src/client/client.ts";
import { waitingDefault } from "../src/client/directory.ts";
import { createIdentity } from "../src/client/keys.ts";
import type { Reader } from "../src/client/reader.ts";
import { firstDocument, register, settleRegistration } from "../src/client/registration.ts";

export async function registered(url: string): Promise<Reader> {
  const client = connect({ directoryUrl: url, relayUrl: url });
  const identity = createIdentity("bench");
  const document = await firstDocument(identity, { relayUrl: url, cacheUrl: url });
  await settleRegistration(client, await register(client, identity, { document, alias: null }), waitingDefault);
  const [cache] = await cachesOf(client, identity, "");
  if (cache === undefined) throw new Error("the identity has no Cache");
  return cache.reader;
}
