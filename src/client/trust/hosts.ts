/**
 * Which hosts an identity has named for its services, as its device remembers them: a service at
 * another one is a stranger's.
 * Source: docs/trust.md "Own devices".
 */
import type { Did } from "../../core/codec/did.ts";
import type { Service } from "../../core/ledger/account.ts";
import { array, object, renderKept, text } from "../base/shapes.ts";
import type { TextStore } from "../keys/key-stores.ts";
import type { Client } from "./client.ts";
import { recall } from "./trust.ts";

/** Of the services that this identity has named: `host:port`. */
const hostsShape = object({ hosts: array(text) });

const hostsMax = 100;

/** The hosts of the services that this identity has named; `null` when none is remembered. */
export async function loadOwnHosts({ known }: Client, did: Did): Promise<readonly string[] | null> {
  return (await recall(known.memory, `hosts/${did}`, hostsShape))?.hosts ?? null;
}

/** Before a change that this device makes, and of the document that it begins with. */
export async function rememberHosts(
  client: Client,
  did: Did,
  services: readonly Pick<Service, "serviceEndpoint">[],
): Promise<void> {
  const known = (await loadOwnHosts(client, did)) ?? [];
  const hosts = new Set([...known, ...services.flatMap((one) => one.serviceEndpoint.map(hostOf))]);
  await keepOwnHosts(client.known.memory, did, [...hosts]);
}

/** Those and no others: also, on a device that is linked, what the one knows that links it. */
export function keepOwnHosts(memory: TextStore, did: Did, hosts: readonly string[]): Promise<void> {
  return memory.save(`hosts/${did}`, renderKept({ hosts: hosts.slice(-hostsMax) }));
}

/** An endpoint that is not a URL stands for itself. */
export const hostOf = (url: string): string => URL.parse(url)?.host ?? url;
