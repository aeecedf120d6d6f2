/**
 * One schedule of the virtual world: clients hand calls to a driver that dies and comes back, over nodes that go
 * down, fall silent, freeze, ban, swallow, lie and fork, on a chain that forks, stalls and is upgraded. A seed decides all
 * of it; the keys that sign are the only thing that differs from run to run. The verdict compares what the driver
 * answered with what the finalized chain holds.
 */
import { isFault } from "../../src/core/fault.ts";
import type { LedgerCall } from "../../src/core/ledger/calls.ts";
import { type ChainOptions, chainPlugin } from "../../src/plugins/chain/chain.ts";
import { type OpenLedger, openLedger } from "../../src/plugins/chain/driver.ts";
import type { OperatorKey } from "../../src/plugins/chain/layouts.ts";
import { type RuntimeMetadata, readMetadata } from "../../src/plugins/chain/metadata.ts";
import { MemoryTable } from "../../src/plugins/memory/table.ts";
import { StoreError } from "../../src/storage/contract.ts";
import type { Table } from "../../src/storage/table.ts";
import { authorizedCall, type Identity, identityOf, registrationOf } from "../support/identity.ts";
import { blockTimeMs, operatorOf, VirtualChain } from "./virtual-chain.ts";
import { type Lie, VirtualNode } from "./virtual-node.ts";
import { type Chance, seededChance, VirtualTime } from "./virtual-time.ts";
import { type Call, isClean, type Verdict, type VerdictParts, verdictOf } from "./virtual-verdict.ts";

/** What one node does from the tenth block on, for good. */
export type Lasting = {
  readonly node: number;
  readonly fault: "stands" | "gone" | "silent" | "swallows" | "bans" | Lie;
};

export type ScheduleOptions = {
  readonly calls: number;
  /** Chosen by the seed when absent. */
  readonly endpoints?: number;
  /** Only these faults happen. */
  readonly faults?: readonly FaultKind[];
  readonly lies?: readonly Lie[];
  /** Of the operator's key: 0 is Ed25519, 1 is sr25519; even seeds have 0. */
  readonly scheme?: 0 | 1;
  /** When a call that has not ended is stuck; eight hours by default. */
  readonly endMs?: number;
  /** In the place of faults that end. */
  readonly lasting?: readonly Lasting[];
  /** When the driver is killed, and for how long it is away. */
  readonly kill?: { readonly atMs: number; readonly awayMs: number };
  /** How far the driver's clock is from the truth, by the time since the beginning. */
  readonly clock?: (sinceMs: number) => number;
};

const nodeCount = 3;
const minuteMs = 60_000;
const faultsUntilMs = 30 * minuteMs;
const callsUntilMs = 15 * minuteMs;
const endMsDefault = 8 * 60 * minuteMs;

const file = new URL("../../runtime/artifacts/waypost-runtime.metadata.hex", import.meta.url);
const hex = `0x${(await Bun.file(file).text()).trim().replace(/^0x/, "")}` as const;
const runtimes = new Map<string, RuntimeMetadata>();
const version = { specName: "waypost", specVersion: 1, transactionVersion: 1 };
const read = readMetadata(hex, { version, genesis: new Uint8Array(32) });
if (Array.isArray(read)) throw new Error(read.join());
const metadata: RuntimeMetadata = read;

/** Of every genesis and version: they have the same metadata, which is read once. */
function addRuntime(genesis: string, specVersion: number): void {
  const frame = { ...metadata.frame, specVersion, genesis: Uint8Array.fromHex(genesis.slice(2)) };
  runtimes.set(`${genesis}/${specVersion}/1`, { ...metadata, frame });
}

type World = VerdictParts & {
  readonly time: VirtualTime;
  readonly chance: Chance;
  readonly nodes: readonly VirtualNode[];
  readonly table: Table;
  readonly options: ChainOptions;
  readonly key: OperatorKey;
  /** The time by the driver's clock. */
  readonly clockMs: () => number;
  driver: OpenLedger | null;
  kill: () => void;
};

export async function runSchedule(seed: number, given: ScheduleOptions): Promise<Verdict> {
  const chance = seededChance(seed);
  const time = new VirtualTime();
  const { key, operator } = operatorOf(given.scheme ?? ((seed & 1) as 0 | 1));
  const chain = new VirtualChain(time, chance, operator);
  for (const specVersion of [1, 2, 999]) addRuntime(chain.genesis.hash, specVersion);
  const hidden = new Set<typeof chain.best>();
  const nodes = Array.from({ length: nodeCount }, () => new VirtualNode({ chain, time, chance, hidden }));
  const endpoints = given.endpoints ?? chance.between(1, nodeCount);
  const startMs = time.nowMs;
  const world: World = {
    time,
    chance,
    chain,
    nodes,
    calls: [],
    notes: [],
    table: new MemoryTable(2 ** 30),
    options: optionsOf(endpoints),
    key,
    clockMs: () => time.nowMs + (given.clock?.(time.nowMs - startMs) ?? 0),
    startMs,
    lines: 0,
    driver: null,
    kill: () => {},
    kills: 0,
    falselyMissing: 0,
    refused: 0,
  };
  makeBlocks(world);
  startDriver(world);
  if (given.lasting === undefined) planFaults(world, given, startMs);
  else for (const one of given.lasting) time.after(10 * blockTimeMs, () => beginLasting(nodes, one));
  const { kill } = given;
  if (kill !== undefined) time.after(kill.atMs, () => killDriver(world, kill.awayMs));
  let running = 0;
  for (let n = 0; n < given.calls; n++) {
    running++;
    void client(world, `virtual ${seed % 16} ${n}`).then(() => running--);
  }
  await time.run(startMs + faultsUntilMs, () => false);
  await time.run(startMs + (given.endMs ?? endMsDefault), () => running === 0);
  // What was retracted or swallowed has time to come up again.
  await time.run(time.nowMs + 20 * blockTimeMs, () => false);
  world.kill();
  return verdictOf(world, seed);
}

function optionsOf(endpoints: number): ChainOptions {
  const parsed = chainPlugin.parseOptions({
    endpoints: Array.from({ length: endpoints }, (_, n) => `ws://node-${n}`),
    operator_key_file: "none",
    outbox: "none",
  });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.problems));
  return parsed.options;
}

// ------------------------------------------------------------------------------------------------- the driver

/** A process of its own: killed, it does nothing more, and what it was writing is not written. */
function startDriver(world: World): void {
  const { time, chance, nodes, notes, options } = world;
  let isAlive = true;
  const guarded = (work: () => void) => () => {
    if (isAlive) work();
  };
  const host = {
    nowMs: world.clockMs,
    elapsedMs: () => time.nowMs,
    after: (ms: number, work: () => void) => time.after(ms, guarded(work)),
    chance: chance.next,
    connect: (endpoint: string, events: Parameters<VirtualNode["connect"]>[0]) => {
      const node = nodes[Number(endpoint.at(-1))] as VirtualNode;
      return node.connect({
        onOpen: guarded(events.onOpen),
        onMessage: (data) => isAlive && events.onMessage(data),
        onClose: (reason) => isAlive && events.onClose(reason),
      });
    },
  };
  const table: Table = {
    get: (name) => world.table.get(name),
    range: (prefix, given) => world.table.range(prefix, given),
    commit: (change) =>
      new Promise((resolve, reject) => {
        time.after(chance.between(1, 8), () => isAlive && world.table.commit(change).then(resolve, reject));
      }),
  };
  const environment = {
    now: world.clockMs,
    log: (level: string, message: string, fields?: Record<string, unknown>) => {
      if (level !== "info") world.lines++;
      if (level === "error") notes.push(`${message} ${JSON.stringify(fields)}`);
    },
    fatal: (reason: string) => notes.push(`fatal ${reason}`),
  };
  const driver = openLedger(options, {
    environment,
    key: { ...world.key, address: "virtual" },
    table,
    reserveTable: table,
    host,
    runtimes,
  });
  world.driver = driver;
  world.kill = () => {
    isAlive = false;
    world.driver = null;
  };
}

// -------------------------------------------------------------------------------------------------- the chain

function makeBlocks(world: World): void {
  const { time, chance, chain, nodes } = world;
  chain.onBest = (before, now) => {
    // What a block that was taken back held waits again, unless the node has lost it.
    if (now.parent !== before) {
      for (const node of nodes.filter(({ state }) => state.fork === null))
        for (const extrinsic of before.extrinsics) if (chance.likely(0.7)) node.pool.set(extrinsic.hash, extrinsic);
    }
    for (const node of nodes) {
      if (node.state.isDown || node.state.frozen !== null || node.state.fork !== null) continue;
      node.prune();
      node.announce();
    }
  };
  const turn = () => {
    time.after(blockTimeMs, turn);
    const running = nodes.filter(({ state }) => !state.isDown && state.frozen === null);
    for (const node of running.filter(({ state }) => state.fork !== null)) {
      // The slots of the others stay empty on its fork.
      if (!chance.likely(0.4)) continue;
      node.buildAlone();
      node.prune();
      node.announce();
    }
    const up = running.filter(({ state }) => state.fork === null);
    const author = up[chance.below(up.length)];
    if (author === undefined) return;
    gossip(up, chance);
    const { best } = chain;
    const sibling = best.parent !== null && best.number - 1 > chain.finalized.number && chance.likely(0.08);
    const made = chain.produce(sibling ? (best.parent as typeof best) : best, author.offer());
    // A branch of two blocks takes the other one back.
    if (sibling && chance.likely(0.5)) chain.produce(made, author.offer());
  };
  turn();
}

function gossip(up: readonly VirtualNode[], chance: Chance): void {
  for (const from of up)
    for (const to of up)
      for (const [hash, extrinsic] of from === to ? [] : from.pool)
        if (!to.state.swallows && chance.likely(0.8)) to.pool.set(hash, extrinsic);
}

// ------------------------------------------------------------------------------------------------- the faults

/** Without those that were added later: a seed of before plans the same schedule with these. */
export const firstFaultKinds = [
  "down",
  "silent",
  "swallow",
  "ban",
  "lie",
  "freeze",
  "stall",
  "kill",
  "long kill",
  "upgrade",
] as const;
export const faultKinds = [...firstFaultKinds, "partition", "slow upgrade", "ill pool"] as const;
export type FaultKind = (typeof faultKinds)[number];
const lies: readonly Lie[] = ["head", "version", "keys", "block", "genesis", "garbage", "hash"];
/** Lies about a state that nothing but a second endpoint can find out. */
const deepLies: readonly Lie[] = ["nonce", "events"];

function planFaults(world: World, given: ScheduleOptions, startMs: number): void {
  const { time, chance, nodes, options } = world;
  for (const { state } of nodes) state.keepsStates = [12, 64, 256][chance.below(3)] as number;
  const kinds = given.faults ?? faultKinds;
  for (let n = chance.between(6, 14); n > 0; n--) {
    const kind = kinds[chance.below(kinds.length)] as FaultKind;
    const atMs = chance.below(faultsUntilMs - 5 * minuteMs);
    const node = nodes[chance.below(nodes.length)] as VirtualNode;
    const reported = given.lies ?? (options.endpoints.length > 1 ? [...lies, ...deepLies] : lies);
    const lie = reported[chance.below(reported.length)] as Lie;
    const lengthMs = chance.between(4_000, 120_000);
    time.after(atMs, () => begin(world, { kind, node, lie, lengthMs }));
  }
  // Whatever still goes on then ends.
  time.after(faultsUntilMs - (time.nowMs - startMs), () => {
    world.chain.lag = 2;
    for (const node of nodes) node.rejoin();
    for (const { state } of nodes)
      Object.assign(state, { isDown: false, isSilent: false, swallows: false, bans: false, lie: null, frozen: null });
  });
}

type Fault = { readonly kind: FaultKind; readonly node: VirtualNode; readonly lie: Lie; readonly lengthMs: number };

const flags = { down: "isDown", silent: "isSilent", swallow: "swallows", ban: "bans" } as const;

function begin(world: World, { kind, node, lie, lengthMs }: Fault): void {
  const { time, chain, chance, nodes } = world;
  const { state } = node;
  const standsApart = () => nodes.some((one) => one.state.frozen !== null || one.state.fork !== null);
  if (kind === "down") node.stop();
  switch (kind) {
    case "down":
    case "silent":
    case "swallow":
    case "ban":
      node.disturb({ [flags[kind]]: true }, lengthMs);
      return;
    case "lie":
      // One liar at a time: two that agree are the truth for whoever asks two.
      if (nodes.every((one) => one.state.lie === null)) node.disturb({ lie }, lengthMs);
      return;
    case "freeze":
      // Most nodes go on, or there is no chain.
      if (!standsApart()) node.disturb({ frozen: node.best }, 3 * lengthMs);
      return;
    case "partition":
      // The majority goes on, and only its blocks become final.
      if (standsApart() || state.isDown) return;
      node.cutOff();
      time.after(3 * lengthMs, () => node.rejoin());
      return;
    case "stall":
      chain.lag = chance.between(10, 90);
      time.after(5 * lengthMs, () => Object.assign(chain, { lag: 2 }));
      return;
    case "kill":
    case "long kill":
      killDriver(world, kind === "kill" ? lengthMs : 10 * lengthMs);
      return;
    case "ill pool":
      // For good, as long as the driver knows another node.
      if (world.options.endpoints.length > 1 && nodes.every((one) => !one.state.poolFails)) state.poolFails = true;
      return;
    case "slow upgrade":
    case "upgrade":
      if (chain.upgradeAt !== Number.POSITIVE_INFINITY) return;
      chain.upgradeAt = chain.best.number + 2;
      // Real nodes compile the new runtime first, all at once: they make no blocks and answer nobody.
      if (kind === "slow upgrade") {
        const stop = () => nodes.map((one) => one.disturb({ isSilent: true, frozen: one.best }, lengthMs));
        time.after(3 * blockTimeMs, () => standsApart() || stop());
      }
  }
}

function beginLasting(nodes: readonly VirtualNode[], { node: index, fault }: Lasting): void {
  const node = nodes[index] as VirtualNode;
  if (fault === "gone") node.stop();
  else if (fault === "stands") Object.assign(node.state, { frozen: node.best, frozenFinal: node.finalized });
  else if (fault === "silent") node.state.isSilent = true;
  else if (fault === "swallows" || fault === "bans") node.state[fault] = true;
  else node.state.lie = fault;
}

function killDriver(world: World, awayMs: number): void {
  if (world.driver === null) return;
  world.kill();
  world.kills++;
  world.time.after(awayMs, () => startDriver(world));
}

// ------------------------------------------------------------------------------------------------ the clients

/** Registers a DID; then, for some, an alias with a proof, or a primary alias by the operator. */
async function client(world: World, label: string): Promise<void> {
  const { time, chance } = world;
  await time.sleep(chance.below(callsUntilMs));
  const identity = identityOf(label);
  const done = await perform(world, identity, registration(identity));
  if (done.state !== "finalized") return;
  if (chance.likely(0.15)) {
    const alias = `${label.replaceAll(" ", "-")}`;
    const terms = { nonce: 0n, validUntilMs: BigInt(time.nowMs + 24 * 3_600_000), signerKeyId: "root" };
    await perform(
      world,
      identity,
      authorizedCall({ did: identity.did, action: "add_alias", alias }, terms, identity.root),
    );
  } else if (chance.likely(0.1)) {
    await perform(world, identity, { name: "set_alias", did: identity.did, alias: `p-${label.replaceAll(" ", "-")}` });
  }
  await checkPresence(world, identity);
}

const registrations = new Map<string, LedgerCall>();

/** Signed once for all schedules that have the same label. */
function registration(identity: Identity): LedgerCall {
  const known = registrations.get(identity.label);
  if (known !== undefined) return known;
  const call = registrationOf(identity, { timestamp: "1800000000000" });
  registrations.set(identity.label, call);
  return call;
}

async function perform(world: World, identity: Identity, call: LedgerCall): Promise<Call> {
  const { time, chance } = world;
  const one: Call = { call, identity, txHash: null, state: null, reason: "", acceptedMs: 0, endedMs: 0 };
  world.calls.push(one);
  let attempts = 0;
  while (one.txHash === null) {
    const { driver } = world;
    const outcome = driver === null ? null : await patient(world, driver.ledger.submit(call, "virtual"));
    if (outcome === null) attempts += driver === null ? 0 : 1;
    else if (isFault(outcome)) {
      // An attempt without an answer may have been taken: then the second one meets it.
      if (attempts === 0) {
        world.refused++;
        world.notes.push(`refused ${call.name}: ${outcome.code} ${outcome.detail}`);
      }
      return one;
    } else one.txHash = outcome.txHash;
    if (one.txHash === null) await time.sleep(chance.between(1_000, 10_000));
  }
  one.acceptedMs = time.nowMs;
  for (;;) {
    await time.sleep(chance.between(5_000, 15_000));
    const submission = await world.driver?.ledger.submission(one.txHash);
    if (submission === null) world.notes.push(`${call.name} of ${call.did} is unknown`);
    if (submission == null || submission.state === "pending" || submission.state === "in_block") continue;
    one.endedMs = time.nowMs;
    one.state = submission.state;
    one.reason = submission.reason?.detail ?? "";
    return one;
  }
}

/** `null` for no answer within a minute, as when the process dies, and for a store that is unavailable. */
async function patient<T>(world: World, work: Promise<T>): Promise<T | null> {
  const answer = work.catch((error: unknown) => {
    if (error instanceof StoreError && error.code === "unavailable") return null;
    throw error;
  });
  return Promise.race([answer, world.time.sleep(minuteMs).then(() => null)]);
}

async function checkPresence(world: World, { did }: Identity): Promise<void> {
  for (let n = 0; n < 3; n++) {
    await world.time.sleep(world.chance.between(10_000, 5 * minuteMs));
    const { driver } = world;
    const account = driver === null ? null : await patient(world, driver.ledger.account(did));
    if (account !== null && account.record === null) world.falselyMissing++;
  }
}

/** bun run virtual-schedule.ts [schedules] [calls] [first seed] */
if (import.meta.main) {
  const [schedules = 10, calls = 100, first = 1] = process.argv.slice(2).map(Number);
  let bad = 0;
  const total = { accepted: 0, kills: 0, blocks: 0, retracted: 0 };
  const beganMs = performance.now();
  for (let seed = first; seed < first + schedules; seed++) {
    const verdict = await runSchedule(seed, { calls });
    total.accepted += verdict.accepted;
    total.kills += verdict.kills;
    total.blocks += verdict.blocks;
    total.retracted += verdict.retracted;
    if (isClean(verdict)) continue;
    bad++;
    console.log(JSON.stringify({ ...verdict, notes: verdict.notes.slice(0, 6) }));
  }
  const seconds = Math.round((performance.now() - beganMs) / 1_000);
  console.log(
    `${schedules} schedules of ${calls} calls in ${seconds} s, ${bad} with a finding ${JSON.stringify(total)}`,
  );
}
