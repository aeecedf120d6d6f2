/**
 * The runtime against `core/ledger/ledger.ts`: the same random calls to both, and after each block the same
 * refusals by name, the same events, records, counters, times, alias index and policies. The plugin's own
 * reading tells the state, so it is judged as well. A call that the model refuses goes to the node's
 * validation, and one that it takes goes into a block; whatever ends otherwise is a difference.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Metadata, TypeRegistry } from "@polkadot/types";
import type { EventRecord } from "@polkadot/types/interfaces";
import { decodeUtf8, encodeHex0x } from "../../src/core/bytes.ts";
import { operations } from "../../src/core/identity/authorization.ts";
import { emptyDocument } from "../../src/core/identity/document.ts";
import type { Intent } from "../../src/core/identity/intent.ts";
import type { LedgerCall } from "../../src/core/ledger/call.ts";
import { aliasesNamed, applyCall } from "../../src/core/ledger/ledger.ts";
import { isRefusal, type LedgerError } from "../../src/core/ledger/refusal.ts";
import { encodeDidDocument } from "../../src/core/scale/scale.ts";
import {
  extrinsicHash,
  generalExtrinsic,
  type OperatorKey,
  signedExtrinsic,
} from "../../src/plugins/chain/extrinsic.ts";
import { storageKeys } from "../../src/plugins/chain/keys.ts";
import { isOwned } from "../../src/plugins/chain/lane.ts";
import { readOperatorKey } from "../../src/plugins/chain/store.ts";
import { type RuntimeVersion, readSurface, type Surface } from "../../src/plugins/chain/surface.ts";
import type { Ledger, Store } from "../../src/storage/contract.ts";
import { authorizedCall, identityOf, keyOf, methodOf, registrationOf } from "../support/identity.ts";
import { World } from "../support/world.ts";
import { type Chance, chanceOf, randomCall, type Turn } from "./random-calls.ts";
import { endStand, type Node, openStore, operatorKeyFile, startNode, until } from "./stand.ts";

const slotMs = 6_000;
/** About 25 calls a second; another length or seed by the environment. */
const seriesMs = Number(process.env["DIFFERENTIAL_MS"] ?? "30000");
const seriesSeed = Number(process.env["DIFFERENTIAL_SEED"] ?? "20260716");
const people = 20;

let node: Node;
let store: Store;
let ledger: Ledger;
let surface: Surface;
let registry: TypeRegistry;
let key: OperatorKey;
/** Names of the errors of the pallet by their index. */
let errors: string[];

beforeAll(async () => {
  node = await startNode({ manual: true });
  store = await openStore({ now: Date.now, log: () => {}, fatal: () => {} }, { endpoints: [node.endpoint] });
  ledger = store.capabilities.ledger!;
  key = await readOperatorKey({ operator_key_file: operatorKeyFile, operator_key_type: "sr25519" });
  const genesis = Uint8Array.fromHex((await node.ask<string>("chain_getBlockHash", [0])).slice(2));
  const metadataHex = await node.ask<`0x${string}`>("state_getMetadata");
  const version = await node.ask<RuntimeVersion>("state_getRuntimeVersion");
  const names = { did_registry: "DidRegistry", delivery_policy: "DeliveryPolicy" };
  const { specVersion, transactionVersion } = version;
  const read = readSurface(metadataHex, { version: { specVersion, transactionVersion }, genesis, names });
  if (Array.isArray(read)) throw new Error(read.join("\n"));
  surface = read;
  registry = new TypeRegistry();
  const metadata = new Metadata(registry, metadataHex);
  registry.setMetadata(metadata);
  const pallet = metadata.asLatest.pallets.find(({ name }) => name.eq("DidRegistry"))!;
  errors = registry.lookup
    .getSiType(pallet.errors.unwrap().type)
    .def.asVariant.variants.map(({ name }) => name.toString());
}, 60_000);
afterAll(async () => {
  await store.close();
  await endStand();
});

type Apply = typeof applyCall;
type Run = { readonly differences: string[]; calls: number; taken: number; readonly refusals: Set<string> };

/** Plays rounds until the time is over or something differs. */
async function play(given: {
  readonly seed: number;
  readonly untilMs: number;
  readonly apply: Apply;
  readonly label: string;
}): Promise<Run> {
  const chance = chanceOf(given.seed);
  const identities = Array.from({ length: people }, (_, n) => identityOf(`${given.label} ${given.seed} ${n}`));
  const aliases = Array.from({ length: 100 }, (_, n) => `${given.label}-${given.seed}-${n}`.toLowerCase());
  const world = new World(0);
  world.operator = Uint8Array.from(key.publicKey);
  const run: Run = { differences: [], calls: 0, taken: 0, refusals: new Set() };
  while (Date.now() < given.untilMs && run.differences.length === 0) {
    await round(run, { chance, identities, aliases, world, apply: given.apply });
  }
  return run;
}

/** What is called instead of something random. */
type Script = (turn: Turn) => LedgerCall;
type Cast = {
  readonly script?: Script;
  readonly chance: Chance;
  readonly identities: ReturnType<typeof identityOf>[];
  readonly aliases: string[];
  readonly world: World;
  readonly apply: Apply;
};

async function round(run: Run, { script, chance, identities, aliases, world, apply }: Cast): Promise<void> {
  const headMs = Date.now() - slotMs;
  await node.ask("dev_timeTravel", [headMs]);
  const header = await node.ask<{ number: string }>("chain_getHeader");
  const birthHash = await node.ask<string>("chain_getBlockHash");
  const era = { birth: BigInt(header.number), birthHash: Uint8Array.fromHex(birthHash.slice(2)), periodBlocks: 64 };
  let nonce = await accountNonce(birthHash);
  world.nowMs = headMs + slotMs;
  const free = new Set(aliases);
  const block: { readonly bytes: Uint8Array; readonly expected: string; readonly call: LedgerCall }[] = [];
  const asked: Promise<void>[] = [];
  for (const [n, known] of identities.entries()) {
    // Somebody who is deactivated can do nothing any more, and gives his place away.
    const isOver = world.account(known.did).record?.deactivated === true && chance.sometimes(2);
    const person = isOver ? identityOf(`${known.label}+`) : known;
    identities[n] = person;
    const account = world.account(person.did);
    const outcomeOf = (call: LedgerCall) =>
      apply({
        account,
        aliasHolder: (alias: string) => world.aliases.get(alias) ?? null,
        call,
        nowMs: world.nowMs,
        operator: key.publicKey,
        bounds: surface.bounds,
      });
    const turn = { person, account, nowMs: world.nowMs, aliases };
    let call = script?.(turn) ?? randomCall(chance, turn);
    // Left to chance, most calls would be refused, and lists would never fill up.
    for (
      let tries = script === undefined ? chance.one(0, 0, 6, 6, 6) : 0;
      tries > 0 && isRefusal(outcomeOf(call));
      tries--
    )
      call = randomCall(chance, turn);
    // Two calls of one block must not name one alias, so that each can be judged by itself.
    const named = aliasesNamed(call);
    if (named.some((alias) => !free.has(alias) && aliases.includes(alias))) continue;
    for (const alias of named) free.delete(alias);
    for (const alias of account.record?.aliases ?? []) free.delete(alias);
    run.calls++;
    const outcome = outcomeOf(call);
    const bytes = surface.encodeCall(call);
    if (isRefusal(outcome)) run.refusals.add(outcome.error);
    if (isOwned(call)) {
      const expected = isRefusal(outcome) ? outcome.error : eventText(outcome.events);
      block.push({
        bytes: signedExtrinsic(bytes, { era, nonce: nonce++ }, { frame: surface.frame, key }),
        expected,
        call,
      });
    } else if (isRefusal(outcome)) {
      asked.push(
        refusedByNode(run, { bytes: generalExtrinsic(bytes, era, surface.frame), error: outcome.error, call }),
      );
    } else
      block.push({ bytes: generalExtrinsic(bytes, era, surface.frame), expected: eventText(outcome.events), call });
    if (!isRefusal(outcome)) {
      run.taken++;
      write(world, call, outcome);
    }
  }
  await Promise.all(asked);
  const transactions = block.map(({ bytes }) => encodeHex0x(bytes));
  const hash = await node.ask<string>("dev_newBlock", transactions.length === 0 ? [] : [{ transactions }]);
  await compareBlock(run, hash, block);
  await compareState(run, hash, { identities, aliases, world });
}

function write(world: World, call: LedgerCall, outcome: Exclude<ReturnType<Apply>, { error: LedgerError }>): void {
  if (isRefusal(outcome)) return;
  world.accounts.set(call.did, outcome.account);
  for (const alias of outcome.aliases.removed) world.aliases.delete(alias);
  for (const alias of outcome.aliases.set) world.aliases.set(alias, call.did);
  for (const { scope, key: name, policy } of outcome.policies) {
    if (policy === null) world.policies.delete(`${scope} ${name}`);
    else world.policies.set(`${scope} ${name}`, policy);
  }
}

async function accountNonce(block: string): Promise<number> {
  const name = encodeHex0x(storageKeys(surface).account(key.publicKey));
  const [set] = await node.ask<{ changes: [string, string][] }[]>("state_queryStorageAt", [[name], block]);
  const bytes = Uint8Array.fromHex(set!.changes[0]![1].slice(2));
  return new DataView(bytes.buffer).getUint32(0, true);
}

async function refusedByNode(
  run: Run,
  given: { readonly bytes: Uint8Array; readonly error: string; readonly call: LedgerCall },
): Promise<void> {
  const { bytes, error, call } = given;
  const answer = await node.ask<string>("author_submitExtrinsic", [encodeHex0x(bytes)]).then(
    () => "taken",
    (refusal: unknown) => String(refusal),
  );
  const custom = /"custom":(\d+)/.exec(answer)?.[1];
  const name = custom !== undefined ? errors[Number(custom)] : /badProof/.test(answer) ? "InvalidSignature" : answer;
  if (name !== error)
    run.differences.push(`${describeCall(call)}: the model refuses with ${error}, the runtime: ${name}`);
}

async function compareBlock(
  run: Run,
  hash: string,
  expected: readonly { bytes: Uint8Array; expected: string; call: LedgerCall }[],
): Promise<void> {
  const { block } = await node.ask<{ block: { extrinsics: string[] } }>("chain_getBlock", [hash]);
  const places = new Map(
    block.extrinsics.map((text, index) => [extrinsicHash(Uint8Array.fromHex(text.slice(2))), index]),
  );
  const name = encodeHex0x(storageKeys(surface).events);
  const bytes = await node.ask<string>("state_getStorage", [name, hash]);
  const records = registry.createType("Vec<FrameSystemEventRecord>", bytes) as unknown as EventRecord[];
  const said = new Map<number, string[]>();
  for (const { phase, event } of records) {
    if (!phase.isApplyExtrinsic) continue;
    const lines = said.get(phase.asApplyExtrinsic.toNumber()) ?? [];
    said.set(phase.asApplyExtrinsic.toNumber(), lines);
    if (event.section === "didRegistry" || event.section === "deliveryPolicy") lines.push(textOfEvent(event));
    else if (event.method === "ExtrinsicFailed") {
      const error = event.data[0] as unknown as { isModule: boolean; asModule: never; type: string };
      lines.push(error.isModule ? registry.findMetaError(error.asModule).name : error.type);
    }
  }
  for (const one of expected) {
    const place = places.get(extrinsicHash(one.bytes));
    const found = place === undefined ? "not in the block" : (said.get(place) ?? []).join(" ");
    if (found !== one.expected)
      run.differences.push(`${describeCall(one.call)}: the model says ${one.expected}, the runtime: ${found}`);
  }
}

/** Names with the texts of their fields; the account of a registration shows in its record. */
function textOfEvent(event: EventRecord["event"]): string {
  const fields = event.data.flatMap((field) => {
    if (field.toRawType() === "Bytes") return [decodeUtf8(field.toU8a(true)) ?? "?"];
    return event.section === "deliveryPolicy" ? [field.toString().toLowerCase()] : [];
  });
  return `${event.method}(${fields.join(",")})`;
}

function eventText(events: readonly { readonly name: string }[]): string {
  const text = ({ name, account: _, ...fields }: { readonly name: string; readonly account?: unknown }) =>
    `${name}(${Object.values(fields).join(",")})`;
  return events.map(text).join(" ");
}

async function compareState(
  run: Run,
  hash: string,
  { identities, aliases, world }: Pick<Cast, "identities" | "aliases" | "world">,
): Promise<void> {
  await until("the plugin to see the block", async () => (await ledger.head()).finalized.hash === hash);
  const differs = (what: string, found: unknown, expected: unknown) => {
    if (!Bun.deepEquals(found, expected))
      run.differences.push(`${what}: the model has ${show(expected)}, the chain ${show(found)}`);
  };
  await Promise.all([
    ...identities.map(async ({ did }) => differs(did, await ledger.account(did), world.account(did))),
    ...aliases.map(async (alias) => differs(alias, await ledger.aliasHolder(alias), world.aliases.get(alias) ?? null)),
    ...identities.flatMap(({ did }) =>
      (["recipient", "tag", "persona"] as const).map(async (scope) =>
        differs(`${scope} ${did}`, await ledger.policy(scope, did), world.policies.get(`${scope} ${did}`) ?? null),
      ),
    ),
  ]);
}

const show = (value: unknown): string =>
  JSON.stringify(value, (_, part: unknown) =>
    typeof part === "bigint" ? `${part}n` : part instanceof Uint8Array ? part.toHex() : part,
  );
const describeCall = (call: LedgerCall): string => `${call.name} ${show(call)}`.slice(0, 600);

describe("the runtime and the model", () => {
  test(
    "agree on every call, event and record",
    async () => {
      const run = await play({ seed: seriesSeed, untilMs: Date.now() + seriesMs, apply: applyCall, label: "both" });
      console.log(`${run.calls} calls, ${run.taken} taken, refusals: ${[...run.refusals].sort().join(" ")}`);
      expect(run.differences).toEqual([]);
      expect(run.taken).toBeGreaterThan(30);
      expect(run.refusals.size).toBeGreaterThan(10);
    },
    seriesMs + 40_000,
  );

  test("agree where lists are full", async () => {
    const person = identityOf(`full ${seriesSeed}`);
    const { did } = person;
    const aliases = Array.from({ length: 9 }, (_, n) => `full-${seriesSeed}-${n}`);
    const range = (length: number, intent: (n: number) => Intent) => Array.from({ length }, (_, n) => intent(n));
    const method = (mark: string, n: number) => methodOf(did, `${mark}${n}`, keyOf(`full ${n}`));
    const service = (n: number) => ({
      id: `${did}#s${n}`,
      type: "T",
      serviceEndpoint: ["u"],
      authorization: null,
      priority: null,
    });
    const intents: Intent[] = [
      ...range(9, (n) => ({ did, action: "add_alias", alias: aliases[n]! })),
      ...range(11, (n) => ({ did, action: "add_device", control: { kind: "add_device", deviceId: `d${n}` } })),
      ...range(6, (n) => ({ did, action: "AddVerificationMethod", verificationMethod: method("m", n) })),
      ...range(5, (n) => ({ did, action: "AddAuthentication", id: `${did}#m${n}` })),
      ...range(6, (n) => ({ did, action: "AddKeyAgreement", keyAgreement: method("x", n) })),
      ...range(5, (n) => ({ did, action: "AddService", service: service(n) })),
      { did, action: "tombstone_device", control: { kind: "tombstone_device", deviceId: "d1" } },
      { did, action: "add_device", control: { kind: "add_device", deviceId: "d1" } },
      { did, action: "add_device", control: { kind: "add_device", deviceId: "d".repeat(64) } },
      {
        did,
        action: "UpdateService",
        service: { ...service(1), authorization: Array.from({ length: 8 }, (_, n) => `${did}#${n}`) },
      },
      { did, action: "RemoveVerificationMethod", id: `${did}#m0` },
      { did, action: "delete_did", control: { kind: "delete_did" } },
    ];
    const world = new World(0);
    world.operator = Uint8Array.from(key.publicKey);
    const run: Run = { differences: [], calls: 0, taken: 0, refusals: new Set() };
    const docBlob = encodeDidDocument(emptyDocument(did));
    const steps: Script[] = [
      ({ nowMs }) => registrationOf(person, { timestamp: String(nowMs), docBlob }),
      ...intents.map(
        (intent): Script =>
          ({ account, nowMs }) => {
            const nonce = account.counters[operations[intent.action].counter];
            return authorizedCall(
              intent,
              { nonce, validUntilMs: BigInt(nowMs + 600_000), signerKeyId: "root" },
              person.root,
            );
          },
      ),
      ({ nowMs }) => registrationOf(person, { timestamp: String(nowMs + 60_000), docBlob }),
    ];
    for (const script of steps) {
      await round(run, { script, chance: chanceOf(1), identities: [person], aliases, world, apply: applyCall });
    }
    expect(run.differences).toEqual([]);
    expect([...run.refusals].sort()).toEqual([
      "InvalidDocument",
      "ServiceTooLong",
      "TooManyAliases",
      "TooManyDevices",
      "VerificationMethodInUse",
    ]);
    expect([run.calls, run.taken]).toEqual([steps.length, steps.length - 8]);
  }, 90_000);

  /** One rule changed on the model's side, each of which the comparison must notice. */
  const canaries: Readonly<Record<string, Apply>> = {
    "a DID may have no alias": (input) => applyCall({ ...input, bounds: { ...input.bounds, aliases: 0 } }),
    "authorizations live two minutes longer": (input) => applyCall({ ...input, nowMs: input.nowMs - 120_000 }),
    "every alias is free": (input) => applyCall({ ...input, aliasHolder: () => null }),
    "another account owns what is registered": (input) => applyCall({ ...input, operator: new Uint8Array(32) }),
    "an event is left out": (input) => {
      const outcome = applyCall(input);
      return isRefusal(outcome) ? outcome : { ...outcome, events: outcome.events.slice(1) };
    },
  };
  for (const [number, [name, apply]] of Object.entries(canaries).entries()) {
    test(`would be told apart if ${name}`, async () => {
      const run = await play({ seed: number + 1, untilMs: Date.now() + 40_000, apply, label: "canary" });
      expect(run.differences.length).toBeGreaterThan(0);
    }, 60_000);
  }
});
