/**
 * What is remembered of recipients while their ledger changes under it, over memory and a disk:
 * whatever is answered without a read is what the ledger says in that moment. The same run with a
 * ledger that never says that it changed must find it out.
 */
import { expect, test } from "bun:test";
import type { Did } from "../../src/core/codec/did.ts";
import { isFault } from "../../src/core/fault.ts";
import type { DeliveryPolicy, PersonaPolicy } from "../../src/core/ledger/account.ts";
import { actions, type Intent } from "../../src/core/ledger/actions.ts";
import type { LedgerCall } from "../../src/core/ledger/calls.ts";
import { decidePolicy } from "../../src/core/message/policy.ts";
import { gatherRecipientFacts } from "../../src/nodes/parties/admission.ts";
import { ledgerRecipients } from "../../src/nodes/parties/recipients.ts";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import { openLmdb } from "../../src/plugins/lmdb/store.ts";
import { memoryPlugin } from "../../src/plugins/memory/memory.ts";
import type { Ledger, Store } from "../../src/storage/contract.ts";
import { testEnvironment } from "../conformance/kit.ts";
import { optionsOf } from "../conformance/options.ts";
import { seeded } from "../conformance/samples.ts";
import { authorizedCall, type Identity, identityOf, registrationOf } from "../support/identity.ts";
import { personaOf, policyOf } from "../support/policies.ts";
import { folderInMemory, scratchPaths } from "../support/scratch.ts";

const newPath = scratchPaths("recipient-facts", folderInMemory());
const blockTimeMs = 10;
const drivers: Readonly<Record<string, (path: string) => Promise<Store>>> = {
  memory: (_path) =>
    memoryPlugin.open(optionsOf(memoryPlugin, { block_time_ms: blockTimeMs }), testEnvironment()),
  lmdb: (path) => {
    const options = { path, block_time_ms: blockTimeMs, reserve_bytes: 8 * 1024 * 1024 };
    return openLmdb(optionsOf(lmdbPlugin, options), testEnvironment());
  },
};

const relaysOf = (n: number): PersonaPolicy => personaOf([`relay-${n}`]);
const sizeOf = (n: number): DeliveryPolicy => policyOf({ maxMessageBytes: 1_024 + n });

/** A change of a DID, or of who it is linked to; many are refused, as of one that is gone. */
async function changeOf(
  ledger: Ledger,
  who: Identity,
  cast: readonly Did[],
  n: number,
): Promise<LedgerCall> {
  const { did } = who;
  const signed = async (intent: Intent): Promise<LedgerCall> => {
    const { counters } = await ledger.account(did);
    const nonce = counters[actions[intent.action].counter];
    const validUntilMs = BigInt(Date.now() + 600_000);
    return authorizedCall(intent, { nonce, validUntilMs, signerKeyId: "root" }, who.root);
  };
  const recipientPolicy = cast[n % cast.length] ?? did;
  const links = { recipientPolicy, tagPolicies: [], personaPolicies: n % 2 === 0 ? cast : [] };
  const choices = [
    () => registrationOf(who, { timestamp: String(Date.now()) }),
    () => ({ name: "set_delivery_policy", did, policy: sizeOf(n) }) as const,
    () => ({ name: "set_delivery_policy_links", did, ...links }) as const,
    () => ({ name: "set_persona_policy", did, policy: relaysOf(n) }) as const,
    () => signed({ action: n % 60 === 4 ? "deactivate_did" : "delete_did", did }),
    () => signed({ action: "RemoveAuthentication", did, id: `${did}#k1` }),
  ];
  const choice = choices[n % choices.length] ?? choices[0];
  return (choice as () => LedgerCall | Promise<LedgerCall>)();
}

/** What the ledger says in this moment: each read looks before it waits. */
async function truthOf(ledger: Ledger, did: Did, cast: readonly Did[]): Promise<unknown> {
  const reading = ledger.account(did);
  const policies = cast.map((one) => ledger.policy("recipient", one));
  const relays = cast.map((one) => ledger.policy("persona", one));
  const { record, life } = await reading;
  if (record === null) return null;
  const { document, deactivated, links } = record;
  const named = cast.findIndex((one) => one === (links?.recipientPolicy ?? did));
  const recipientPolicy = (await policies[named]) ?? null;
  const linked = links?.personaPolicies.length ? await Promise.all(relays) : [];
  const policy = decidePolicy({
    ...{ links, tag: null, tagPolicy: null, recipientPolicy, blockTimeMs },
    personaPolicies: linked.filter((one) => one !== null),
  });
  const recipient = { did, document, deactivated, links, life };
  return { recipient, policy: deactivated ? null : policy };
}

/** How many answers were remembered ones, and which of them were not what the ledger said. */
async function play(ledger: Ledger, seed: number, changesMax = 150) {
  const random = seeded(seed);
  const people = [0, 1, 2].map((n) => identityOf(`remembered ${seed} ${n}`));
  const cast = people.map(({ did }) => did);
  const source = ledgerRecipients(ledger);
  const [found, wrong] = [{ remembered: 0, changed: 0 }, [] as unknown[]];
  let isOver = false;
  const look = async (): Promise<void> => {
    for (let i = 0; !isOver; i++) {
      const did = cast[i % cast.length] as Did;
      const facts = gatherRecipientFacts(source, did);
      if (!(facts instanceof Promise)) {
        const { recipient, policy } = facts;
        const truth = await truthOf(ledger, did, cast);
        found.remembered++;
        if (!Bun.deepEquals({ recipient, policy }, truth))
          wrong.push([{ recipient, policy }, truth]);
      }
      await facts;
      if (i % 20 === 0) await Bun.sleep(0);
    }
  };
  const change = async (): Promise<void> => {
    for (let i = 0; i < changesMax; i++) {
      const n = Math.floor(random() * 1_000);
      const who = people[Math.floor(random() * people.length)] as Identity;
      const taken = await ledger.submit(await changeOf(ledger, who, cast, n), "change");
      if (!isFault(taken)) found.changed++;
      if (random() < 0.3) await Bun.sleep(blockTimeMs * random());
    }
    await Bun.sleep(3 * blockTimeMs);
    isOver = true;
  };
  await Promise.all([look(), look(), change()]);
  return { ...found, wrong };
}

for (const [name, open] of Object.entries(drivers)) {
  test(`over ${name}, nothing is remembered of a recipient that its ledger does not say any more`, async () => {
    const path = newPath();
    let store = await open(path);
    for (const seed of [1, 2]) {
      const played = await play(store.capabilities.ledger as Ledger, seed);
      expect(played.wrong.slice(0, 3)).toEqual([]);
      expect(played.remembered).toBeGreaterThan(100);
      expect(played.changed).toBeGreaterThan(20);
      // What was remembered before a restart is nobody's afterwards.
      await store.close();
      store = await open(path);
    }
    await store.close();
  }, 60_000);

  test(`over ${name}, a ledger that does not say that it changed is found out`, async () => {
    const store = await open(newPath());
    const ledger = store.capabilities.ledger as Ledger;
    const silent = new Proxy(ledger, {
      get: (of, member) => {
        if (member === "stamp") return () => 1;
        const value = Reflect.get(of, member);
        return typeof value === "function" ? value.bind(of) : value;
      },
    });
    expect((await play(silent, 1)).wrong.length).toBeGreaterThan(0);
    await store.close();
  }, 60_000);
}
