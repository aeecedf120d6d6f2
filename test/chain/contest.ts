/**
 * The runtime against the model, `core/ledger/rules.ts`: both are given the same calls, one of each
 * person in each block. A call that the model refuses goes to the node's validation, one that it
 * takes goes into a block, and a call of the operator goes into a block in any case; what ends
 * otherwise is a difference.
 */
import { Metadata, TypeRegistry } from "@polkadot/types";
import { encodeHex0x } from "../../src/core/codec/bytes.ts";
import { embeddedBounds } from "../../src/core/ledger/account.ts";
import type { Applied } from "../../src/core/ledger/action-rules.ts";
import { aliasesNamed, type LedgerCall } from "../../src/core/ledger/calls.ts";
import { isRefusal } from "../../src/core/ledger/refusals.ts";
import { readOperatorKey } from "../../src/plugins/chain/driver.ts";
import { encodeExtrinsic, isOwned } from "../../src/plugins/chain/layouts.ts";
import {
  accountKey,
  entryKey,
  readAccountState,
  readMetadata,
} from "../../src/plugins/chain/metadata.ts";
import type { RuntimeVersion } from "../../src/plugins/chain/rpc.ts";
import type { Store } from "../../src/storage/contract.ts";
import { applyWithEvents } from "../oracles/ledger-events.ts";
import { certifiedOf, type Identity, identityOf } from "../support/identity.ts";
import { World } from "../support/world.ts";
import {
  blockDifferences,
  type ChainSide,
  callText,
  type Expected,
  eventText,
  type Group,
  stateDifferences,
  validated,
} from "./comparison.ts";
import { type Chance, chanceOf, randomCall, type Turn } from "./random-calls.ts";
import { type Node, openStore, operatorKeyFile, until } from "./stand.ts";

const slotMs = 6_000;
const people = 20;
/** How many blocks an extrinsic lives; it goes into the very next one. */
const periodBlocks = 64;

export type Apply = typeof applyWithEvents;
export type Run = {
  readonly differences: string[];
  calls: number;
  taken: number;
  readonly refusals: Set<string>;
};
/** What is called instead of something random. */
export type Script = (turn: Turn) => LedgerCall;

export type Contest = {
  /**
   * Random rounds, until so many calls were made or something differs. The same seed and label are
   * the same people.
   */
  readonly play: (given: {
    readonly seed: number;
    readonly calls: number;
    readonly label: string;
    readonly apply?: Apply;
  }) => Promise<Run>;
  /** One person's calls, one a block. */
  readonly playSteps: (
    person: Identity,
    given: {
      readonly aliases: readonly string[];
      readonly steps: readonly Script[];
      readonly apply?: Apply;
    },
  ) => Promise<Run>;
  readonly close: () => Promise<void>;
};

export async function openContest(node: Node): Promise<Contest> {
  const environment = { now: Date.now, log: () => {}, fatal: () => {} };
  const store = await openStore(environment, { endpoints: [node.endpoint] });
  const chain = await chainSide(node, store);
  return {
    async play({ seed, calls, label, apply = applyWithEvents }) {
      const chance = chanceOf(seed);
      const world = await freshWorld(chain);
      // Every other one is self-certifying: the chain and the first key decide its name.
      const identities = Array.from({ length: people }, (_, n) =>
        personOf(`${label} ${seed} ${n}`, n, world),
      );
      const aliases = Array.from({ length: 40 }, (_, n) =>
        `${label}-${seed}-${n}`.toLowerCase().replaceAll(" ", "."),
      );
      const cast = { chance, identities, aliases, world, apply };
      const run = freshRun();
      while (run.calls < calls && run.differences.length === 0) await round(chain, run, cast);
      return run;
    },
    async playSteps(person, { aliases, steps, apply = applyWithEvents }) {
      const cast = {
        chance: chanceOf(1),
        identities: [person],
        aliases,
        world: await freshWorld(chain),
        apply,
      };
      const run = freshRun();
      for (const script of steps) await round(chain, run, { ...cast, script });
      return run;
    },
    close: () => store.close(),
  };
}

const personOf = (label: string, n: number, { proofs }: World): Identity =>
  n % 2 === 0 ? identityOf(label) : certifiedOf(label, proofs.genesisHash);

const freshRun = (): Run => ({ differences: [], calls: 0, taken: 0, refusals: new Set() });

async function freshWorld({ key, ledger, node }: ChainSide): Promise<World> {
  const world = new World(0);
  const finalized = () => node.ask<string>("chain_getFinalizedHead");
  await until("the head", async () => (await ledger.head()).finalized.hash === (await finalized()));
  world.operator = Uint8Array.from(key.publicKey);
  world.proofs = await ledger.proofs();
  return world;
}

async function chainSide(node: Node, store: Store): Promise<ChainSide> {
  const { ledger } = store.capabilities;
  if (ledger === undefined) throw new Error("the chain driver has no ledger");
  const key = await readOperatorKey({
    operator_key_file: operatorKeyFile,
    operator_key_type: "sr25519",
  });
  const genesis = Uint8Array.fromHex((await node.ask<string>("chain_getBlockHash", [0])).slice(2));
  const metadataHex = await node.ask<`0x${string}`>("state_getMetadata");
  const version = await node.ask<RuntimeVersion>("state_getRuntimeVersion");
  const metadata = readMetadata(metadataHex, { version, genesis });
  if (Array.isArray(metadata)) throw new Error(metadata.join("\n"));
  const registry = new TypeRegistry();
  const described = new Metadata(registry, metadataHex);
  registry.setMetadata(described);
  const pallet = described.asLatest.pallets.find(({ name }) => name.eq("DidRegistry"));
  const { variants } = registry.lookup.getSiType(pallet!.errors.unwrap().type).def.asVariant;
  return {
    node,
    ledger,
    metadata,
    registry,
    key,
    errors: variants.map(({ name }) => name.toString()),
  };
}

type Cast = Group & {
  readonly identities: Identity[];
  readonly script?: Script;
  readonly chance: Chance;
  readonly apply: Apply;
};

async function round(chain: ChainSide, run: Run, cast: Cast): Promise<void> {
  const { node, metadata, key } = chain;
  const { chance, identities, aliases, world } = cast;
  const { era, nonce: firstNonce } = await beginBlock(chain, cast);
  let nonce = firstNonce;
  const free = new Set(aliases);
  const block: Expected[] = [];
  const asked: Promise<void>[] = [];
  for (const [n, known] of identities.entries()) {
    // Somebody who is deactivated can do nothing any more, and gives his place away.
    const isOver = world.account(known.did).record?.deactivated === true && chance.sometimes(2);
    const person = isOver ? personOf(`${known.label}+`, n, world) : known;
    identities[n] = person;
    const call = nextCall(chain, cast, person);
    // Two calls of one block must not name one alias, so that each can be checked by itself.
    const named = aliasesNamed(call);
    if (named.some((alias) => !free.has(alias) && aliases.includes(alias))) continue;
    for (const alias of named) free.delete(alias);
    for (const alias of world.account(person.did).record?.aliases ?? []) free.delete(alias);
    run.calls++;
    const outcome = outcomeOf(chain, cast, call);
    if (isRefusal(outcome)) run.refusals.add(outcome.error);
    const expected = isRefusal(outcome) ? outcome.error : eventText(outcome.events);
    const terms = { era, nonce: isOwned(call) ? nonce++ : null, tip: 0n };
    const { extrinsic: bytes } = encodeExtrinsic(call, terms, { frame: metadata.frame, key });
    if (!isOwned(call) && isRefusal(outcome))
      asked.push(askToRefuse(chain, run, { bytes, expected, call }));
    else block.push({ bytes, expected, call });
    if (isRefusal(outcome)) continue;
    run.taken++;
    write(world, call, outcome);
  }
  await Promise.all(asked);
  const transactions = block.map(({ bytes }) => encodeHex0x(bytes));
  const hash = await node.ask<string>(
    "dev_newBlock",
    transactions.length === 0 ? [] : [{ transactions }],
  );
  run.differences.push(...(await blockDifferences(chain, hash, block)));
  run.differences.push(...(await stateDifferences(chain, hash, cast)));
}

/**
 * The next block's time is the present, for both sides; its extrinsics are born in the head. The
 * model knows no allowance for calls with a proof (limits.chain.ts has its test), so everybody's is
 * made whole.
 */
async function beginBlock({ node, key }: ChainSide, { identities, world }: Cast) {
  const headMs = Date.now() - slotMs;
  await node.ask("dev_timeTravel", [headMs]);
  const allowances = identities.map(({ did }) => encodeHex0x(entryKey("ProofAllowances", did)));
  await node.ask("dev_setStorage", [allowances.map((key) => [key, null])]);
  world.nowMs = headMs + slotMs;
  const { number } = await node.ask<{ number: string }>("chain_getHeader");
  const hash = await node.ask<string>("chain_getBlockHash");
  const account = encodeHex0x(accountKey(key.publicKey));
  const state = await node.ask<string>("state_getStorage", [account, hash]);
  const birthHash = Uint8Array.fromHex(hash.slice(2));
  return {
    era: { birth: BigInt(number), birthHash, periodBlocks },
    nonce: readAccountState(Uint8Array.fromHex(state.slice(2))).nonce,
  };
}

function nextCall(chain: ChainSide, cast: Cast, person: Identity): LedgerCall {
  const { script, chance, aliases, world } = cast;
  const { proofs, operator, nowMs } = world;
  const turn = { person, account: world.account(person.did), nowMs, aliases, proofs, operator };
  if (script !== undefined) return script(turn);
  let call = randomCall(chance, turn);
  // Left to chance, most calls would be refused, and lists would never fill up.
  for (
    let tries = chance.one(0, 0, 6, 6, 6);
    tries > 0 && isRefusal(outcomeOf(chain, cast, call));
    tries--
  ) {
    call = randomCall(chance, turn);
  }
  return call;
}

function outcomeOf({ key, metadata }: ChainSide, { apply, world }: Cast, call: LedgerCall) {
  return apply({
    account: world.account(call.did),
    aliasHolder: (alias: string) => world.aliases.get(alias) ?? null,
    aliasReserve: (alias: string) => world.reserves.get(alias) ?? null,
    ownerReplaces: "none" as const,
    call,
    nowMs: world.nowMs,
    operator: key.publicKey,
    proofs: world.proofs,
    bounds: metadata.bounds,
  });
}

function write(world: World, call: LedgerCall, outcome: Applied): void {
  world.accounts.set(call.did, outcome.account);
  for (const alias of outcome.aliases.removed) {
    world.aliases.delete(alias);
    world.reserves.set(alias, outcome.reserve);
    // The chain keeps the last eight of a DID, the program all.
    const own = [...world.reserves].filter(([, { did }]) => did === call.did);
    if (own.length > embeddedBounds.aliases) world.reserves.delete(own[0]![0]);
  }
  for (const alias of outcome.aliases.set) {
    world.aliases.set(alias, call.did);
    world.reserves.delete(alias);
  }
  for (const { scope, key: name, policy } of outcome.policies) {
    if (policy === null) world.policies.delete(`${scope} ${name}`);
    else world.policies.set(`${scope} ${name}`, policy);
  }
}

async function askToRefuse(
  chain: ChainSide,
  run: Run,
  { bytes, expected, call }: Expected,
): Promise<void> {
  const found = await validated(chain, bytes);
  if (found !== expected) {
    run.differences.push(
      `${callText(call)}: the model refuses with ${expected}, the runtime: ${found}`,
    );
  }
}
