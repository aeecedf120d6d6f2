/**
 * Identities that are registered at running nodes by the parts of the SDK, with their name as
 * alias.
 */
import { firstDocument, register } from "../../src/client/identity/registration.ts";
import { createIdentity, type Identity } from "../../src/client/keys/keys.ts";
import { settleRegistration } from "../../src/client/net/directory.ts";
import type { Client } from "../../src/client/trust/client.ts";
import { waiting } from "./people.ts";

/** With Relay and Cache at these addresses. */
export async function enrolAt(
  client: Client,
  name: string,
  urls: { readonly relayUrl: string; readonly cacheUrl: string },
): Promise<Identity> {
  const identity = createIdentity(name);
  const document = await firstDocument(identity, urls);
  const registered = await register(client, identity, { document, alias: name });
  await settleRegistration(client, registered, waiting);
  return identity;
}
