/**
 * The Caches of an identity, to be read: apart from who may read, since what only puts
 * something there needs no more.
 */
import type { Identity } from "../keys/keys.ts";
import { type CacheClient, cacheClient } from "../net/caches.ts";
import type { Client } from "./client.ts";
import { readersOf } from "./readers.ts";

/** Every Cache that the identity's document names and that one of its keys may read. */
export async function cachesOf(client: Client, identity: Identity): Promise<CacheClient[]> {
  return (await readersOf(client, identity, "Cache")).map(cacheClient);
}
