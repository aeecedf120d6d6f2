/**
 * Laws of the ledger capability. The cases sign real calls for DIDs of their own, so they run over
 * an embedded ledger and over a chain that others use as well; they read no time but the present.
 */

import { expect } from "bun:test";
import { verifyEd25519 } from "../../src/core/codec/crypto.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { isFault } from "../../src/core/fault.ts";
import {
  type Account,
  type DeliveryPolicy,
  type DidRecord,
  emptyAccount,
  type PersonaPolicy,
} from "../../src/core/ledger/account.ts";
import { actions, type Intent } from "../../src/core/ledger/actions.ts";
import type { LedgerCall } from "../../src/core/ledger/calls.ts";
import { decodeKeyProof, replayKeyProof } from "../../src/core/ledger/key-proof.ts";
import type { Ledger, Submission } from "../../src/storage/contract.ts";
import {
  authorizedCall,
  certifiedOf,
  documentOf,
  type Identity,
  identityOf,
  keyOf,
  registrationOf,
} from "../support/identity.ts";
import type { ConformanceCase, Subject } from "./kit.ts";

/** A hang, not a slow machine. */
const settledMsMax = 60_000;

type LedgerCase = {
  readonly name: string;
  readonly lasting?: true;
  readonly run: (given: Given) => Promise<void>;
};
type Given = { readonly ledger: Ledger; readonly reopen: () => Promise<Ledger> };

function ledgerOf(store: Subject["store"]): Ledger {
  return store.capabilities.ledger!;
}

/** Somebody whom no ledger has seen before. */
function stranger(): Identity {
  return identityOf(crypto.randomUUID());
}

/** An alias that no one has. */
function freshAlias(): string {
  return `a-${crypto.randomUUID()}`;
}

async function settled(ledger: Ledger, outcome: unknown): Promise<Submission> {
  if (isFault(outcome)) throw new Error(`refused: ${outcome.code} ${outcome.detail}`);
  const { txHash } = outcome as Submission;
  for (const end = Date.now() + settledMsMax; Date.now() < end; await Bun.sleep(2)) {
    const submission = await ledger.submission(txHash);
    if (submission === null) throw new Error("a taken submission is unknown");
    if (["finalized", "failed", "dropped"].includes(submission.state)) return submission;
  }
  throw new Error("a submission did not settle");
}

async function finalized(ledger: Ledger, outcome: unknown): Promise<Submission> {
  const submission = await settled(ledger, outcome);
  expect([submission.state, submission.reason]).toEqual(["finalized", null]);
  return submission;
}

async function registered(ledger: Ledger, alias?: string): Promise<Identity> {
  const identity = stranger();
  const call = registrationOf(identity, {
    timestamp: String(Date.now()),
    ...(alias !== undefined && { alias }),
  });
  await finalized(ledger, await ledger.submit(call, "register"));
  return identity;
}

/** The call for an intent with the counter value that the ledger shows, plus `offset`. */
async function signed(
  ledger: Ledger,
  identity: Identity,
  intent: Intent,
  genesisHash: Uint8Array | null = null,
  offset = 0n,
): Promise<LedgerCall> {
  const { counters } = await ledger.account(identity.did);
  const nonce = counters[actions[intent.action].counter] + offset;
  const terms = { nonce, validUntilMs: BigInt(Date.now() + 600_000), signerKeyId: "root" };
  return authorizedCall(intent, terms, identity.root, genesisHash);
}

function submitIntent(ledger: Ledger, identity: Identity, intent: Intent): Promise<unknown> {
  return signed(ledger, identity, intent).then((call) => ledger.submit(call, intent.action));
}

/** A registered identity of the self-certifying form. */
async function certified(ledger: Ledger): Promise<Identity> {
  const { genesisHash } = await ledger.proofs();
  const identity = certifiedOf(crypto.randomUUID(), genesisHash);
  const binding = { genesisHash, submitter: await ledger.operator() };
  const call = registrationOf(identity, { timestamp: `v3:0:${Date.now() + 60_000}`, binding });
  await finalized(ledger, await ledger.submit(call, "register"));
  return identity;
}

/** The proof leads to what the record shows. */
async function expectProof(ledger: Ledger, did: Did): Promise<void> {
  const proof = decodeKeyProof((await ledger.keyProof(did)) ?? new Uint8Array(0));
  const state = proof === null ? null : replayKeyProof(proof);
  expect(state?.did).toBe(did);
  expect(
    state?.signatures.every((one) => verifyEd25519(one.signature, one.message, one.publicKey)),
  ).toBe(true);
  const { document, rootPubkey } = recordOf(await ledger.account(did));
  expect([state?.document, state?.rootKeys.at(-1)]).toEqual([
    document ?? undefined,
    rootPubkey ?? undefined,
  ]);
}

function recordOf(account: Account): DidRecord {
  if (account.record === null) throw new Error("the DID has no record");
  return account.record;
}

function codeOf(outcome: unknown): string {
  return isFault(outcome) ? outcome.code : "taken";
}

const recipientPolicy: DeliveryPolicy = {
  effectiveTtlBlocks: 14_400,
  maxMessageBytes: 1_048_576,
  cacheEligible: true,
  replication: 2,
  encryptedHeaderPreviewBytes: null,
  releasePricing: { baseFee: 10n, perKibFee: 1n },
  expirationBehavior: "KeepHeaderPreview",
};
const personaPolicy: PersonaPolicy = {
  releasePricing: { asset: "unit", amount: 2n ** 100n },
  expirationBehavior: { mode: "DeleteOnExpiry", retainUntilMs: null },
  allowedRelays: ["relay-1"],
};

const cases: readonly LedgerCase[] = [
  {
    name: "two reads with one stamp before and after them answer the same",
    run: async ({ ledger }) => {
      const identity = stranger();
      const seen = new Map<number, string>();
      const look = async (): Promise<void> => {
        const before = ledger.stamp();
        const { record } = await ledger.account(identity.did);
        const found = String(record?.deactivated);
        if (before === null || before !== ledger.stamp()) return;
        expect(seen.get(before) ?? found).toBe(found);
        seen.set(before, found);
      };
      await look();
      const registering = ledger.submit(
        registrationOf(identity, { timestamp: String(Date.now()) }),
        "register",
      );
      for (let i = 0; i < 5; i++) await look();
      await finalized(ledger, await registering);
      await look();
      const deactivation: Intent = { action: "deactivate_did", did: identity.did };
      await finalized(ledger, await submitIntent(ledger, identity, deactivation));
      await look();
    },
  },
  {
    name: "what nobody put there is known to be absent",
    async run({ ledger }) {
      const { did } = stranger();
      expect(await ledger.account(did)).toEqual(emptyAccount);
      expect(await ledger.aliasHolder(freshAlias())).toBeNull();
      for (const scope of ["recipient", "tag", "persona"] as const)
        expect(await ledger.policy(scope, did)).toBeNull();
      expect(await ledger.policy("tag", "a tag that is not a DID")).toBeNull();
      expect(await ledger.submission(`0x${"5".repeat(64)}`)).toBeNull();
      expect(await ledger.submission("no hash")).toBeNull();
    },
  },
  {
    name: "the operator has 32 bytes and every bound is positive",
    async run({ ledger }) {
      expect((await ledger.operator()).length).toBe(32);
      for (const bound of Object.values(await ledger.bounds())) expect(bound).toBeGreaterThan(0);
      expect((await ledger.head()).blockTimeMs).toBeGreaterThan(0);
    },
  },
  {
    name: "a registration is pending, then finalized, and then the record stands",
    async run({ ledger }) {
      const [identity, alias] = [stranger(), freshAlias()];
      const call = registrationOf(identity, { timestamp: String(Date.now()), alias });
      const outcome = await ledger.submit(call, "register");
      expect(outcome).toMatchObject({
        did: identity.did,
        call: call.name,
        label: "register",
        reason: null,
      });
      expect((outcome as Submission).txHash).toMatch(/^0x[0-9a-f]{64}$/);
      const submission = await finalized(ledger, outcome);
      expect(submission).toMatchObject({
        ...(outcome as Submission),
        state: "finalized",
        block: submission.block,
      });
      const account = await ledger.account(identity.did);
      expect(account.counters).toEqual(emptyAccount.counters);
      expect(recordOf(account)).toMatchObject({
        owner: await ledger.operator(),
        aliases: [alias],
        document: documentOf(identity),
        version: 1n,
        rootPubkey: identity.root.publicKey,
        links: null,
        deactivated: false,
      });
      expect(await ledger.aliasHolder(alias)).toBe(identity.did);
      const { finalized: head } = await ledger.head();
      expect(head.number).toBeGreaterThanOrEqual(submission.block!.number);
    },
  },
  {
    name: "what the finalized state refuses is a fault and leaves no trace",
    async run({ ledger }) {
      const nobody = stranger();
      const addAlias: Intent = { action: "add_alias", did: nobody.did, alias: freshAlias() };
      expect(codeOf(await submitIntent(ledger, nobody, addAlias))).toBe("did_not_found");
      const forged = {
        ...registrationOf(nobody, { timestamp: String(Date.now()) }),
        signature: new Uint8Array(64),
      };
      expect(codeOf(await ledger.submit(forged, "register"))).toBe("invalid_signature");
      const identity = await registered(ledger);
      const again = registrationOf(identity, { timestamp: String(Date.now() + 1_000) });
      expect(codeOf(await ledger.submit(again, "register"))).toBe("did_already_registered");
      const mine: Intent = { ...addAlias, did: identity.did };
      const early = await ledger.submit(
        await signed(ledger, identity, mine, null, 1n),
        "add_alias",
      );
      expect(isFault(early) && [early.code, early.extra.expected]).toEqual(["nonce_mismatch", "0"]);
      expect(await ledger.account(nobody.did)).toEqual(emptyAccount);
      expect(recordOf(await ledger.account(identity.did)).version).toBe(1n);
    },
  },
  {
    name: "of concurrent calls with one counter value exactly one is taken",
    async run({ ledger }) {
      const identity = await registered(ledger);
      const calls = await Promise.all(
        Array.from({ length: 12 }, () =>
          signed(ledger, identity, { action: "add_alias", did: identity.did, alias: freshAlias() }),
        ),
      );
      const outcomes = await Promise.all(calls.map((call) => ledger.submit(call, "add_alias")));
      const taken = outcomes.filter((outcome) => !isFault(outcome));
      expect(taken).toHaveLength(1);
      expect(
        new Set(outcomes.filter(isFault).map(({ code, extra }) => `${code} ${extra.expected}`)),
      ).toEqual(new Set(["nonce_mismatch 1"]));
      await finalized(ledger, taken[0]);
      const account = await ledger.account(identity.did);
      expect([
        account.counters.alias,
        recordOf(account).version,
        recordOf(account).aliases.length,
      ]).toEqual([1n, 2n, 1]);
    },
  },
  {
    name: "of concurrent calls that take one alias exactly one is taken",
    async run({ ledger }) {
      const [alias, other] = [freshAlias(), freshAlias()];
      const [setter, renamer, ...adders] = await Promise.all([
        registered(ledger),
        registered(ledger, other),
        ...Array.from({ length: 4 }, () => registered(ledger)),
      ]);
      const calls: LedgerCall[] = await Promise.all([
        ...adders.map((identity) =>
          signed(ledger, identity, { action: "add_alias", did: identity.did, alias }),
        ),
        signed(ledger, renamer, {
          action: "update_alias",
          did: renamer.did,
          oldAlias: other,
          newAlias: alias,
        }),
      ]);
      calls.splice(2, 0, { name: "set_alias", did: setter.did, alias });
      const outcomes = await Promise.all(calls.map((call) => ledger.submit(call, call.name)));
      const taken = outcomes.filter((outcome) => !isFault(outcome));
      expect(taken).toHaveLength(1);
      expect(new Set(outcomes.filter(isFault).map(codeOf))).toEqual(new Set(["alias_taken"]));
      const submission = await finalized(ledger, taken[0]);
      expect(await ledger.aliasHolder(alias)).toBe(submission.did);
    },
  },
  {
    name: "a repeated registration makes one record",
    async run({ ledger }) {
      const identity = stranger();
      const call = registrationOf(identity, { timestamp: String(Date.now()) });
      const outcomes = await Promise.all(
        Array.from({ length: 8 }, () => ledger.submit(call, "register")),
      );
      const hashes = new Set(
        outcomes.flatMap((outcome) => (isFault(outcome) ? [] : [outcome.txHash])),
      );
      expect(hashes.size).toBe(1);
      // On a busy machine a block settles the first while the last is still on its way.
      const allowed = ["taken", "registration_pending", "did_already_registered"];
      for (const outcome of outcomes) expect(allowed).toContain(codeOf(outcome));
      await finalized(
        ledger,
        outcomes.find((outcome) => !isFault(outcome)),
      );
      expect(recordOf(await ledger.account(identity.did)).version).toBe(1n);
    },
  },
  {
    name: "a second registration of a DID waits for the first to settle",
    async run({ ledger }) {
      const identity = stranger();
      const first = await ledger.submit(
        registrationOf(identity, { timestamp: String(Date.now()) }),
        "register",
      );
      const other = { ...identity, root: stranger().root };
      const second = await ledger.submit(
        registrationOf(other, { timestamp: String(Date.now()) }),
        "register",
      );
      expect(["registration_pending", "did_already_registered"]).toContain(codeOf(second));
      await finalized(ledger, first);
      expect(recordOf(await ledger.account(identity.did)).rootPubkey).toEqual(
        identity.root.publicKey,
      );
    },
  },
  {
    name: "change after change keeps counters, version and alias index exact",
    async run({ ledger }) {
      const identity = await registered(ledger);
      const { did } = identity;
      const [one, two] = [freshAlias(), freshAlias()];
      const service = {
        id: `${did}#s`,
        type: "T",
        serviceEndpoint: ["u"],
        authorization: [],
        priority: 0,
      };
      const series: Intent[] = [
        { action: "AddService", did, service },
        { action: "add_alias", did, alias: one },
        {
          action: "UpdateService",
          did,
          service: { ...service, authorization: null, priority: 4_294_967_295 },
        },
        { action: "update_alias", did, oldAlias: one, newAlias: two },
        { action: "UpdateRootPubkey", did, newRootPubkey: identity.root.publicKey },
        { action: "RemoveAuthentication", did, id: `${did}#k1` },
        { action: "deactivate_did", did },
      ];
      for (const intent of series)
        await finalized(ledger, await submitIntent(ledger, identity, intent));
      const { counters, record } = await ledger.account(did);
      expect(counters).toEqual({ document: 3n, alias: 2n, rootPubkey: 1n, control: 1n });
      expect(record).toMatchObject({ version: 8n, aliases: [two] });
      expect(record?.document).toMatchObject({
        authentication: [],
        service: [{ ...service, authorization: null, priority: 4_294_967_295 }],
      });
      expect([await ledger.aliasHolder(one), await ledger.aliasHolder(two)]).toEqual([null, did]);
    },
  },
  {
    name: "a call that another one has overtaken fails with its reason",
    async run({ ledger }) {
      const identity = await registered(ledger);
      const [{ did }, alias] = [identity, freshAlias()];
      const [deactivation, addition] = await Promise.all([
        submitIntent(ledger, identity, { action: "deactivate_did", did }),
        submitIntent(ledger, identity, { action: "add_alias", did, alias }),
      ]);
      await finalized(ledger, deactivation);
      const end = isFault(addition) ? addition : (await settled(ledger, addition)).reason;
      const { record } = await ledger.account(did);
      // A ledger may put the two into a block in either order: the addition then came in time.
      expect([record?.deactivated, record?.aliases, end?.code]).toEqual(
        end === null ? [true, [alias], undefined] : [true, [], "did_deactivated"],
      );
      expect(await ledger.aliasHolder(alias)).toBe(end === null ? did : null);
    },
  },
  {
    name: "policies and links are read as they were set",
    async run({ ledger }) {
      const { did } = await registered(ledger);
      const calls: LedgerCall[] = [
        { name: "set_delivery_policy", did, policy: recipientPolicy },
        {
          name: "set_tag_policy",
          did,
          policy: { ...recipientPolicy, replication: null, releasePricing: null },
        },
        { name: "set_persona_policy", did, policy: personaPolicy },
        {
          name: "set_delivery_policy_links",
          did,
          recipientPolicy: did,
          tagPolicies: ["t"],
          personaPolicies: [],
        },
        { name: "set_alias", did, alias: freshAlias() },
      ];
      for (const call of calls) await finalized(ledger, await ledger.submit(call, call.name));
      expect(await ledger.policy("recipient", did)).toEqual(recipientPolicy);
      expect(await ledger.policy("tag", did)).toEqual({
        ...recipientPolicy,
        replication: null,
        releasePricing: null,
      });
      expect(await ledger.policy("persona", did)).toEqual(personaPolicy);
      const { record, counters } = await ledger.account(did);
      expect(record?.links).toEqual({
        recipientPolicy: did,
        tagPolicies: ["t"],
        personaPolicies: [],
      });
      expect([record?.version, record?.aliases.length]).toEqual([3n, 1]);
      expect(counters).toEqual(emptyAccount.counters);
    },
  },
  {
    name: "deletion frees everything but the counters",
    async run({ ledger }) {
      const alias = freshAlias();
      const identity = await registered(ledger, alias);
      const { did } = identity;
      const setPolicy: LedgerCall = { name: "set_delivery_policy", did, policy: recipientPolicy };
      await finalized(ledger, await ledger.submit(setPolicy, setPolicy.name));
      const deletion: Intent = { action: "delete_did", did };
      const call = await signed(ledger, identity, deletion);
      await finalized(ledger, await ledger.submit(call, "delete_did"));
      const { record, counters } = await ledger.account(did);
      expect([record, counters.control]).toEqual([null, 1n]);
      expect([await ledger.aliasHolder(alias), await ledger.policy("recipient", did)]).toEqual([
        null,
        null,
      ]);
      const again = registrationOf(identity, { timestamp: String(Date.now()) });
      await finalized(ledger, await ledger.submit(again, "register"));
      expect(codeOf(await ledger.submit(call, "delete_did"))).toBe("nonce_mismatch");
    },
  },
  {
    name: "a deactivated DID takes no change",
    async run({ ledger }) {
      const identity = await registered(ledger);
      const { did } = identity;
      const deactivation: Intent = { action: "deactivate_did", did };
      await finalized(ledger, await submitIntent(ledger, identity, deactivation));
      expect(recordOf(await ledger.account(did)).deactivated).toBe(true);
      expect(codeOf(await submitIntent(ledger, identity, deactivation))).toBe("did_deactivated");
      expect(
        codeOf(await ledger.submit({ name: "set_alias", did, alias: freshAlias() }, "x")),
      ).toBe("did_deactivated");
    },
  },
  {
    name: "the finalized head never goes back",
    async run({ ledger }) {
      let last = (await ledger.head()).finalized;
      for (let i = 0; i < 3; i++) {
        const identity = stranger();
        const outcome = await ledger.submit(
          registrationOf(identity, { timestamp: String(Date.now()) }),
          "register",
        );
        const { block } = await finalized(ledger, outcome);
        expect(block!.number).toBeGreaterThan(last.number);
        const head = (await ledger.head()).finalized;
        expect(head.number).toBeGreaterThanOrEqual(block!.number);
        expect(head.timeMs).toBeGreaterThanOrEqual(last.timeMs);
        last = head;
      }
    },
  },
  {
    name: "the proof of a self-certifying DID follows every change, and ends with a deletion",
    async run({ ledger }) {
      const { genesisHash } = await ledger.proofs();
      expect(await ledger.keyProof(stranger().did)).toBeNull();
      const identity = await certified(ledger);
      const { did } = identity;
      await expectProof(ledger, did);
      const change = async (intent: Intent, root = identity.root) =>
        finalized(
          ledger,
          await ledger.submit(
            await signed(ledger, { ...identity, root }, intent, genesisHash),
            "c",
          ),
        );
      await change({ action: "RemoveAuthentication", did, id: `${did}#k1` });
      await expectProof(ledger, did);
      await change({ action: "UpdateRootPubkey", did, newRootPubkey: keyOf("next").publicKey });
      await expectProof(ledger, did);
      await change({ action: "delete_did", did }, keyOf("next"));
      expect(await ledger.keyProof(did)).toBeNull();
    },
  },
  {
    name: "the proof of a self-certifying DID stands after the store was opened again",
    lasting: true,
    async run({ ledger, reopen }) {
      const { did } = await certified(ledger);
      await expectProof(await reopen(), did);
    },
  },
  {
    name: "what is finalized stands after the store was opened again",
    lasting: true,
    async run({ ledger, reopen }) {
      const alias = freshAlias();
      const { did } = await registered(ledger, alias);
      const setPolicy: LedgerCall = { name: "set_delivery_policy", did, policy: recipientPolicy };
      const submission = await finalized(ledger, await ledger.submit(setPolicy, setPolicy.name));
      const [account, head] = [await ledger.account(did), (await ledger.head()).finalized];
      const again = await reopen();
      expect(await again.account(did)).toEqual(account);
      expect(await again.aliasHolder(alias)).toBe(did);
      expect(await again.policy("recipient", did)).toEqual(recipientPolicy);
      expect(await again.submission(submission.txHash)).toEqual(submission);
      expect((await again.head()).finalized.number).toBeGreaterThanOrEqual(head.number);
    },
  },
  {
    name: "what was taken before the store was closed settles after it was opened again",
    lasting: true,
    async run({ ledger, reopen }) {
      const identities = Array.from({ length: 20 }, stranger);
      const outcomes = await Promise.all(
        identities.map((identity) =>
          ledger.submit(registrationOf(identity, { timestamp: String(Date.now()) }), "register"),
        ),
      );
      const again = await reopen();
      for (const outcome of outcomes) await finalized(again, outcome);
      for (const { did } of identities) expect(recordOf(await again.account(did)).version).toBe(1n);
    },
  },
];

export const ledgerCases: readonly ConformanceCase[] = cases.map(({ name, lasting, run }) => ({
  name,
  capability: "ledger",
  ...(lasting && { lasting }),
  run: ({ store, reopen }) =>
    run({ ledger: ledgerOf(store), reopen: async () => ledgerOf(await reopen!()) }),
}));
