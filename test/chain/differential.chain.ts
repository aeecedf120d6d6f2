/**
 * The runtime and the model agree: thousands of random calls, full lists, every form of an alias.
 * And the comparison would notice if they did not: one rule is changed on either side, and it must
 * be named. On the runtime's side that is a build of the same sources which breaks a rule on
 * command (runtime/README.md).
 */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { encodeHex0x } from "../../src/core/codec/bytes.ts";
import type { Did } from "../../src/core/codec/did.ts";
import type { Service } from "../../src/core/ledger/account.ts";
import { actions, type Intent } from "../../src/core/ledger/actions.ts";
import { emptyDocument } from "../../src/core/ledger/document.ts";
import { encodeDidDocument } from "../../src/core/ledger/document-codec.ts";
import { isRefusal } from "../../src/core/ledger/refusals.ts";
import { applyWithEvents } from "../oracles/ledger-events.ts";
import {
  authorizedCall,
  type Identity,
  identityOf,
  keyOf,
  methodOf,
  registrationOf,
} from "../support/identity.ts";
import { type Apply, type Contest, openContest, type Script } from "./contest.ts";
import { canaryRuntime, endStand, makeBlock, type Node, startNode } from "./stand.ts";

/** twox128 of `DidRegistry` and of `PlainProofs`. */
const plainProofsKey = Uint8Array.fromHex(
  "72b29c5d16546b7d2c5310d5fbada68baf3f929cfecf08e38001b74fff4747a8",
);
/** About 20 calls a second; another length or seed by the environment. */
const seriesCalls = Number(process.env["DIFFERENTIAL_CALLS"] ?? "100");
const seriesSeed = Number(process.env["DIFFERENTIAL_SEED"] ?? "20260716");

afterAll(endStand);

const registers =
  (person: Identity, aheadMs = 0): Script =>
  ({ nowMs, proofs, operator }) =>
    registrationOf(person, {
      timestamp: `v3:0:${nowMs + 600_000 + aheadMs}`,
      docBlob: encodeDidDocument(emptyDocument(person.did)),
      binding: { genesisHash: proofs.genesisHash, submitter: operator },
    });

/** What the root key, or another one, asks for now, until a time from now. */
const intends =
  (
    intent: Intent,
    aheadMs = 600_000,
    signer?: { readonly id: string; readonly key: Identity["root"] },
  ): Script =>
  ({ person, account, nowMs, proofs }) => {
    const nonce = account.counters[actions[intent.action].counter];
    const terms = {
      nonce,
      validUntilMs: BigInt(nowMs + aheadMs),
      signerKeyId: signer?.id ?? "root",
    };
    return authorizedCall(intent, terms, signer?.key ?? person.root, proofs.genesisHash);
  };
/** Ended a minute ago. */
const late = (intent: Intent): Script => intends(intent, -60_000);

describe("the runtime and the model", () => {
  let node: Node;
  let contest: Contest;
  beforeAll(async () => {
    node = await startNode({ manual: true });
    contest = await openContest(node);
  });
  afterAll(() => contest.close());

  test("agree on every call, event and record", async () => {
    const run = await contest.play({ seed: seriesSeed, calls: seriesCalls, label: "both" });
    console.log(
      `${run.calls} calls, ${run.taken} taken, refusals: ${[...run.refusals].sort().join(" ")}`,
    );
    expect(run.differences).toEqual([]);
    expect(run.taken).toBeGreaterThan(30);
    expect(run.refusals.size).toBeGreaterThan(10);
  });

  test("agree on a chain that accepts only version 3", async () => {
    const key = encodeHex0x(plainProofsKey);
    const onChain = async (plain: boolean) => {
      await node.ask("dev_setStorage", [[[key, plain ? "0x01" : "0x00"]]]);
      await makeBlock(node);
    };
    await onChain(false);
    const person = identityOf(`strict ${seriesSeed}`);
    const old =
      (stamp: (nowMs: number) => string): Script =>
      ({ nowMs }) =>
        registrationOf(person, { timestamp: stamp(nowMs) });
    const plain: Script = ({ account, nowMs }) =>
      authorizedCall(
        { did: person.did, action: "deactivate_did" },
        {
          nonce: account.counters.control,
          validUntilMs: BigInt(nowMs + 600_000),
          signerKeyId: "root",
        },
        person.root,
      );
    const steps = [
      old(String),
      old((nowMs) => `v2:0:${nowMs + 600_000}`),
      registers(person),
      plain,
    ];
    const reported = await contest.playSteps(person, { aliases: [], steps });
    const run = await contest.play({ seed: seriesSeed, calls: seriesCalls / 2, label: "strict" });
    await onChain(true);
    expect([...reported.differences, ...run.differences]).toEqual([]);
    expect([reported.taken, ...reported.refusals]).toEqual([
      1,
      "ProofVersionRefused",
      "InvalidSignature",
    ]);
    expect(run.taken).toBeGreaterThan(10);
  });

  test("agree where lists are full", async () => {
    const person = identityOf(`full ${seriesSeed}`);
    const aliases = Array.from({ length: 9 }, (_, n) => `full-${seriesSeed}-${n}`);
    const intents = fullLists(person, aliases);
    const steps = [
      registers(person),
      ...intents.map((intent) => intends(intent)),
      registers(person, 60_000),
    ];
    const run = await contest.playSteps(person, { aliases, steps });
    expect(run.differences).toEqual([]);
    const refusals = [
      "InvalidDocument",
      "ServiceTooLong",
      "TooManyAliases",
      "VerificationMethodInUse",
    ];
    expect([...run.refusals].sort()).toEqual(refusals);
    expect([run.calls, run.taken]).toEqual([steps.length, steps.length - 6]);
  });

  test("agree on every form of an alias, whose length counts in bytes", async () => {
    const person = identityOf(`forms ${seriesSeed}`);
    const { did } = person;
    const normal = `form-${seriesSeed}`;
    const good = [
      ` \t\n\f\r${normal.toUpperCase()}\r\n `,
      `${" ".repeat(400)}${normal}`,
      "x".repeat(64),
    ];
    const bad = [
      "é".repeat(32),
      "é".repeat(33),
      "\u00a0".repeat(33),
      `\v${"x".repeat(64)}`,
      `@${"y".repeat(200)}`,
      " a b ",
    ];
    const steps = [
      registers(person),
      ...[...good.slice(0, 2), ...bad].map(
        (alias): Script =>
          () => ({ name: "set_alias", did, alias }),
      ),
      // The longest one: the owner can't change an alias any more.
      (() => ({ name: "set_alias", did, alias: good[2]! })) satisfies Script as Script,
      intends({ did, action: "update_alias", oldAlias: normal, newAlias: good[2]! }),
      ...[...good.slice(0, 2), ...bad].map(
        (alias): Script =>
          (turn) => {
            // The payload has an alias in normal form, the argument one in any form.
            const call = intends({ did, action: "add_alias", alias: normal })(turn);
            return call.name === "add_alias" ? { ...call, alias } : call;
          },
      ),
    ];
    const run = await contest.playSteps(person, { aliases: [normal, "x".repeat(64)], steps });
    expect(run.differences).toEqual([]);
    expect([...run.refusals].sort()).toEqual([
      "AliasAlreadyExists",
      "AliasTooLong",
      "InvalidAlias",
      "RootKeyRequired",
    ]);
    // Registered, set twice, renamed, and the former one added again.
    expect(run.taken).toBe(5);
  });

  const plainly =
    (person: Identity, alias?: string): Script =>
    ({ nowMs }) =>
      registrationOf(person, { timestamp: String(nowMs), ...(alias !== undefined && { alias }) });
  type Cast = {
    readonly person: Identity;
    readonly other: Identity;
    readonly named: Intent & { readonly alias: string };
  };
  type ModelCanary = readonly [
    rule: string,
    apply: Apply,
    difference: RegExp,
    steps: (cast: Cast) => readonly Script[],
  ];
  /**
   * One rule changed on the model's side, the difference that must be found, and the calls that
   * lead to it.
   */
  const canaries: readonly ModelCanary[] = [
    [
      "a DID may have no alias",
      (input) => applyWithEvents({ ...input, bounds: { ...input.bounds, aliases: 0 } }),
      /^add_alias .*: the model refuses with TooManyAliases, the runtime: taken$/m,
      ({ person, named }) => [plainly(person), intends(named)],
    ],
    [
      "authorizations live two minutes longer",
      (input) => applyWithEvents({ ...input, nowMs: input.nowMs - 120_000 }),
      /: the model .*, the runtime: .*(AuthorizationExpired|RegistrationExpired)/,
      ({ person, named }) => [plainly(person), late(named)],
    ],
    [
      "every alias is free",
      (input) =>
        applyWithEvents({
          ...input,
          aliasHolder: () => null,
          aliasReserve: () => null,
          ownerReplaces: "all",
        }),
      /the runtime: (.*(AliasConflict|AliasTaken|AliasAlreadyExists)|not in the block)|^alias /,
      ({ person, other, named: { alias } }) => [plainly(person, alias), plainly(other, alias)],
    ],
    [
      "another account owns what is registered",
      (input) => applyWithEvents({ ...input, operator: new Uint8Array(32) }),
      /^did:svc:\w+ record owner: the model has "0{64}", the chain "d43593c7/m,
      ({ person }) => [plainly(person)],
    ],
    [
      "an event is left out",
      (input) => {
        const outcome = applyWithEvents(input);
        return isRefusal(outcome) ? outcome : { ...outcome, events: outcome.events.slice(1) };
      },
      /: the model says .*, the runtime: \w+\(did:svc:/,
      ({ person }) => [plainly(person)],
    ],
  ];
  test.each(canaries)(
    "would be distinguished if, for the model, %s",
    async (rule, apply, difference, steps) => {
      const [person, other] = [identityOf(`person: ${rule}`), identityOf(`other: ${rule}`)];
      const alias = rule.toLowerCase().replaceAll(" ", "-");
      const cast = {
        person,
        other,
        named: { did: person.did, action: "add_alias", alias },
      } as const;
      const run = await contest.playSteps(person, { aliases: [alias], steps: steps(cast), apply });
      expect(run.differences.join("\n")).toMatch(difference);
    },
  );
});

describe("the model and a runtime that breaks rules on command", () => {
  let node: Node;
  let contest: Contest;
  beforeAll(async () => {
    node = await startNode({ manual: true, runtime: canaryRuntime });
    contest = await openContest(node);
  });
  afterAll(async () => {
    await contest.close();
    await node.kill();
  });

  /** Chooses the rule by its number in the pallet's `canary.rs`; 0 is none. */
  const breakRule = (rule: number): Promise<unknown> => {
    const key = `0x${Buffer.from(":canary").toString("hex")}`;
    return node.ask("dev_setStorage", [[[key, `0x${rule.toString(16).padStart(2, "0")}`]]]);
  };

  test("agree while no rule is broken", async () => {
    await breakRule(0);
    const run = await contest.play({ seed: seriesSeed, calls: seriesCalls / 4, label: "unbroken" });
    expect(run.differences).toEqual([]);
    expect(run.taken).toBeGreaterThan(10);
  });

  const [nobodys, dear] = [identityOf("nobody's"), identityOf("fees")];
  const [ended, unlisted, changed] = [
    identityOf("ended"),
    identityOf("unlisted"),
    identityOf("changed"),
  ];
  const [silent, again, kept] = [identityOf("silent"), identityOf("again"), identityOf("kept")];
  const methodKey = keyOf("unlisted method");
  const changes = ({ did }: Identity): Intent => ({
    did,
    action: "AddService",
    service: serviceOf(did, 0),
  });
  const deletes = (person: Identity): Steps => ({
    person,
    steps: [registers(person), intends({ did: person.did, action: "delete_did" })],
  });
  const [held, elsewhere, released] = [
    identityOf("held"),
    identityOf("elsewhere"),
    identityOf("released"),
  ];
  const foreign: Script = ({ nowMs }) =>
    authorizedCall(
      { did: elsewhere.did, action: "deactivate_did" },
      { nonce: 0n, validUntilMs: BigInt(nowMs + 600_000), signerKeyId: "root" },
      elsewhere.root,
      new Uint8Array(32),
    );
  const pricing = { baseFee: 10n ** 15n + 1n, perKibFee: 0n };
  const expensive: Script = () => {
    const limits = {
      effectiveTtlBlocks: 1,
      maxMessageBytes: 1,
      cacheEligible: true,
      replication: null,
    };
    const rest = {
      encryptedHeaderPreviewBytes: null,
      releasePricing: pricing,
      expirationBehavior: null,
    };
    return { name: "set_delivery_policy", did: dear.did, policy: { ...limits, ...rest } };
  };
  const unbound: Script = ({ nowMs, proofs: { genesisHash } }) =>
    registrationOf(nobodys, {
      timestamp: `v3:0:${nowMs + 600_000}`,
      binding: { genesisHash, submitter: null },
    });

  type Steps = {
    readonly person: Identity;
    readonly aliases?: readonly string[];
    readonly steps: readonly Script[];
  };
  /** The runtime's first broken rule is about devices, which no call of ours names. */
  const firstRule = 2;
  /** With the calls that lead to the rule. */
  const canaries: readonly (readonly [rule: string, difference: RegExp, steps: Steps])[] = [
    [
      "fees have no bound",
      /^set_\w+_policy .*: the model says ReleaseFeeTooLarge, the runtime: PolicySet\(/m,
      { person: dear, steps: [registers(dear), expensive] },
    ],
    [
      "authorizations never end",
      /: the model refuses with \w+AuthorizationExpired, the runtime: (?!.*Expired)/m,
      { person: ended, steps: [registers(ended), late(changes(ended))] },
    ],
    [
      "methods sign that are not listed",
      /: the model refuses with InvalidSignature, the runtime: (?!InvalidSignature)/m,
      {
        person: unlisted,
        steps: [
          registers(unlisted),
          intends({
            did: unlisted.did,
            action: "AddVerificationMethod",
            verificationMethod: methodOf(unlisted.did, "m", methodKey),
          }),
          intends(changes(unlisted), 600_000, { id: `${unlisted.did}#m`, key: methodKey }),
        ],
      },
    ],
    [
      "no counter is raised",
      /^did:svc:\w+ counters \w+: the model has "1n", the chain "0n"$/m,
      { person: changed, steps: [registers(changed), intends(changes(changed))] },
    ],
    [
      "a deletion is not reported",
      /: the model says DidDeleted\(did:svc:\w+\), the runtime: $/m,
      deletes(silent),
    ],
    [
      "a change keeps the version",
      /^did:svc:\w+ record version: the model has "2n", the chain "1n"$/m,
      { person: kept, steps: [registers(kept), intends(changes(kept))] },
    ],
    [
      "deleted aliases stay taken",
      /^alias \S+: the model has null, the chain "did:svc:/m,
      {
        person: held,
        aliases: ["held"],
        steps: [
          registers(held),
          intends({ did: held.did, action: "add_alias", alias: "held" }),
          intends({ did: held.did, action: "delete_did" }),
        ],
      },
    ],
    [
      "a registration is anybody's",
      /^register_\S+ .*: the model says InvalidSignature, the runtime: Registered\(/m,
      { person: nobodys, steps: [unbound] },
    ],
    [
      "an authorization is for every chain",
      /: the model refuses with InvalidSignature, the runtime: taken$/m,
      { person: elsewhere, steps: [registers(elsewhere), foreign] },
    ],
    [
      "a deletion begins no life",
      /^did:svc:\w+ life: the model has 1, the chain 0$/m,
      deletes(again),
    ],
    [
      "a released alias is anybody's",
      /^register_\S+ .*: the model says .*AliasConflict\(.*, the runtime: .*AliasSet\(/m,
      {
        person: released,
        aliases: ["released"],
        steps: [
          registers(released),
          intends({ did: released.did, action: "add_alias", alias: "released" }),
          intends({ did: released.did, action: "delete_did" }),
          ({ nowMs, proofs, operator }) =>
            registrationOf(released, {
              timestamp: `v3:0:${nowMs + 660_000}`,
              alias: "released",
              docBlob: encodeDidDocument(emptyDocument(released.did)),
              binding: { genesisHash: proofs.genesisHash, submitter: operator },
            }),
        ],
      },
    ],
  ];
  test.each(
    canaries.map(
      ([rule, difference, steps], index) => [rule, firstRule + index, difference, steps] as const,
    ),
  )("are distinguished when, for the runtime, %s", async (_, number, difference, steps) => {
    await breakRule(number);
    const run = await contest.playSteps(steps.person, { aliases: [], ...steps });
    await breakRule(0);
    expect(run.differences.join("\n")).toMatch(difference);
  });
});

/**
 * Fills every list of a record, one entry too many each, and looks at what a full one still takes.
 */
function fullLists({ did }: Identity, aliases: readonly string[]): Intent[] {
  const range = (length: number, intent: (n: number) => Intent) =>
    Array.from({ length }, (_, n) => intent(n));
  const method = (mark: string, n: number) => methodOf(did, `${mark}${n}`, keyOf(`full ${n}`));
  const keys = Array.from({ length: 8 }, (_, n) => `${did}#${n}`);
  return [
    ...aliases.map((alias): Intent => ({ did, action: "add_alias", alias })),
    ...range(6, (n) => ({
      did,
      action: "AddVerificationMethod",
      verificationMethod: method("m", n),
    })),
    ...range(5, (n) => ({ did, action: "AddAuthentication", id: `${did}#m${n}` })),
    ...range(6, (n) => ({ did, action: "AddKeyAgreement", keyAgreement: method("x", n) })),
    ...range(5, (n) => ({ did, action: "AddService", service: serviceOf(did, n) })),
    { did, action: "UpdateService", service: { ...serviceOf(did, 1), authorization: keys } },
    { did, action: "RemoveVerificationMethod", id: `${did}#m0` },
    { did, action: "delete_did" },
  ];
}

const serviceOf = (did: Did, n: number): Service => {
  return {
    id: `${did}#s${n}`,
    type: "T",
    serviceEndpoint: ["u"],
    authorization: null,
    priority: null,
  };
};
