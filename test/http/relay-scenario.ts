/**
 * The setup of Relay scenarios: Relays and inboxes that are closed after each test, Bob and his
 * services.
 */
import type { JsonObject } from "../../src/core/codec/json.ts";
import type { Service } from "../../src/core/ledger/account.ts";
import type { Subject } from "../../src/nodes/parties/recipients.ts";
import { createPerson, type Person, signedBy } from "../support/cache-node.ts";
import {
  createTestRelay,
  type Inbox,
  startInbox,
  type TestRelay,
  type TestRelayOptions,
} from "../support/relay-node.ts";

export const cleanups: (() => unknown)[] = [];

export async function cleanUp(): Promise<void> {
  for (const cleanup of cleanups.splice(0)) await cleanup();
}

export async function relayFor(given: TestRelayOptions = {}): Promise<TestRelay> {
  const relay = await createTestRelay(given);
  cleanups.push(relay.close);
  return relay;
}

export function inboxFor(answer?: Inbox["answer"]): Inbox {
  const inbox = startInbox(answer);
  cleanups.push(inbox.stop);
  return inbox;
}

export const status = (code: number) => () => new Response("no", { status: code });
export const inboxAt = (...urls: string[]): Partial<Service> => ({
  type: "SvcInboxService",
  serviceEndpoint: urls,
});
export const cacheAt = (...urls: string[]): Partial<Service> => ({ serviceEndpoint: urls });
export const relayAt = (...urls: string[]): Partial<Service> => ({
  type: "SvcRelayService",
  serviceEndpoint: urls,
});
export const alice = createPerson(2);
export const mallory = createPerson(9);

/**
 * Other content under the id of an envelope, signed by Mallory, whom the Relay knows from then on.
 */
export function ofMallory(relay: TestRelay, envelope: JsonObject): JsonObject {
  relay.recipients.add(mallory);
  return signedBy(mallory, { ...envelope, payload: { garbage: true } });
}

/** A port on which no one listens: taken once and given back. */
export function deadUrl(): string {
  const inbox = startInbox();
  inbox.stop();
  return inbox.url;
}

/** Bob, known to the Relay, with these services. */
export function knownBob(
  relay: TestRelay,
  services: Partial<Service>[],
  change?: Partial<Subject>,
): Person {
  const bob = createPerson(1, services);
  relay.recipients.add(bob, change);
  return bob;
}
