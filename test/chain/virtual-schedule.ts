/**
 * One schedule of the virtual world: clients hand calls to a driver that dies and comes back, over
 * nodes that go down, fall silent, freeze, ban, swallow, lie and fork, on a chain that forks,
 * stalls and is upgraded. A seed decides all of it; the keys that sign are the only thing that
 * differs from run to run. The verdict compares what the driver answered with what the finalized
 * chain holds.
 */
import type { ChainOptions } from "../../src/plugins/chain/chain.ts";
import { openLedger } from "../../src/plugins/chain/driver.ts";
import { type RuntimeMetadata, readMetadata } from "../../src/plugins/chain/metadata.ts";
import { Rpc } from "../../src/plugins/chain/rpc.ts";
import { chainPlugin } from "../../src/plugins/load.ts";
import { MemoryTable } from "../../src/plugins/memory/table.ts";
import type { OrderedTable } from "../../src/storage/table.ts";
import { blockTimeMs, movedBy, operatorOf, VirtualChain } from "./virtual-chain.ts";
import { type World as ClientWorld, client, lookAgain, namedClient } from "./virtual-clients.ts";
import { type Lie, VirtualNode } from "./virtual-node.ts";
import { type Chance, seededChance, VirtualTime } from "./virtual-time.ts";
import { isClean, type Verdict, verdictOf } from "./virtual-verdict.ts";

/** What one node does for good, by default from the tenth block on. */
export type Lasting = {
  readonly node: number;
  readonly fromMs?: number;
  /** When it is over, if it ends. */
  readonly untilMs?: number;
  /** By how much a wrong nonce is too high; by default 40. */
  readonly nonceAhead?: number;
  readonly fault: "stands" | "gone" | "silent" | "swallows" | "bans" | Lie;
};

export type ScheduleOptions = {
  readonly calls: number;
  /** Chosen by the seed when absent. */
  readonly endpoints?: number;
  /** Only these faults happen. */
  readonly faults?: readonly FaultKind[];
  readonly lies?: readonly Lie[];
  /**
   * Of the operator's key: 0 is Ed25519; 1 is sr25519, which is slow, so one seed of eight has it:
   * not the first.
   */
  readonly scheme?: 0 | 1;
  /** When a call that has not ended is stuck; eight hours by default. */
  readonly endMs?: number;
  /** In the place of faults that end. */
  readonly lasting?: readonly Lasting[];
  /** When the driver is killed, and for how long it is away. */
  readonly kill?: { readonly atMs: number; readonly awayMs: number };
  /** How far the driver's clock is from the truth, by the time since the beginning. */
  readonly clock?: (sinceMs: number) => number;
  /** Clients have self-certifying DIDs, change them, and look at their key proofs. */
  readonly names?: true;
  /** For how many blocks each node keeps bodies; for ever by default. */
  readonly keepsBodies?: readonly number[];
  /** For how many blocks each node keeps states; 256 by default. */
  readonly keepsStates?: readonly number[];
  /** The block with an upgrade to a runtime whose pallets have other indices. */
  readonly movedAt?: number;
  /**
   * When another Directory takes its place, which has an outbox of its own and has seen no block.
   */
  readonly freshAtMs?: number;
  /** When a node is down. */
  readonly outage?: { readonly node: number; readonly fromMs: number; readonly untilMs: number };
  /**
   * When clients hand over their calls, in ms since the beginning; by default within 15 minutes.
   */
  readonly callsFromMs?: number;
  readonly callsUntilMs?: number;
  /** How long the world goes on after the last client. */
  readonly restMs?: number;
};

const nodeCount = 3;
const minuteMs = 60_000;
const faultsUntilMs = 30 * minuteMs;
const endMsDefault = 8 * 60 * minuteMs;

const file = new URL("../../runtime/artifacts/waypost-runtime.metadata.hex", import.meta.url);
const hex = `0x${(await Bun.file(file).text()).trim().replace(/^0x/, "")}` as const;
const version = { specName: "waypost", specVersion: 1, transactionVersion: 1 };
const read = readMetadata(hex, { version, genesis: new Uint8Array(32) });
if (Array.isArray(read)) throw new Error(read.join());
const metadata: RuntimeMetadata = read;

/** Of every version: they have the same metadata, which is read once, but for indices that move. */
function runtimesOf(
  genesis: string,
  { names, movedAt }: ScheduleOptions,
): Map<string, RuntimeMetadata> {
  const absent = new Set(names ? [] : ["ComponentCallsLeft" as const]);
  const { callIndices } = metadata.frame;
  const moved = new Map(
    [...callIndices].map(([name, [pallet = 0, index = 0]]) => [
      name,
      Uint8Array.of(pallet + movedBy, index),
    ]),
  );
  return new Map(
    [1, 2, 999].map((specVersion) => {
      const frame = {
        ...metadata.frame,
        specVersion,
        callIndices: specVersion === 2 && movedAt !== undefined ? moved : callIndices,
        genesis: Uint8Array.fromHex(genesis.slice(2)),
      };
      return [`${genesis}/${specVersion}/1`, { ...metadata, frame, absent }];
    }),
  );
}

type World = ClientWorld & {
  readonly nodes: readonly VirtualNode[];
  table: OrderedTable;
  readonly options: ChainOptions;
  readonly runtimes: Map<string, RuntimeMetadata>;
  /** The time by the driver's clock. */
  readonly clockMs: () => number;
  kill: () => void;
};

export async function runSchedule(seed: number, given: ScheduleOptions): Promise<Verdict> {
  const chance = seededChance(seed);
  const time = new VirtualTime();
  const { key, operator } = operatorOf(given.scheme ?? (seed % 8 === 3 ? 1 : 0));
  const chain = new VirtualChain(time, chance, operator, given.names);
  const hidden = new Set<typeof chain.best>();
  const nodes = Array.from(
    { length: nodeCount },
    () => new VirtualNode({ chain, time, chance, hidden }),
  );
  for (const [n, keepsBodies] of given.keepsBodies?.entries() ?? [])
    Object.assign((nodes[n] as VirtualNode).state, { keepsBodies });
  for (const [n, keepsStates] of given.keepsStates?.entries() ?? [])
    Object.assign((nodes[n] as VirtualNode).state, { keepsStates });
  if (given.movedAt !== undefined)
    Object.assign(chain, { movesIndices: true, upgradeAt: given.movedAt });
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
    runtimes: runtimesOf(chain.genesis.hash, given),
    key,
    clockMs: () => time.nowMs + (given.clock?.(time.nowMs - startMs) ?? 0),
    startMs,
    callsFromMs: given.callsFromMs ?? 0,
    callsUntilMs: given.callsUntilMs ?? 15 * minuteMs,
    lines: 0,
    driver: null,
    kill: () => {},
    kills: 0,
    falselyMissing: 0,
    refused: 0,
    proven: 0,
    unproven: 0,
    unprovenAtEnd: 0,
  };
  makeBlocks(world);
  startDriver(world);
  if (given.lasting === undefined) planFaults(world, given, startMs);
  else
    for (const one of given.lasting) {
      time.after(one.fromMs ?? 10 * blockTimeMs, () => beginLasting(nodes, one));
      if (one.untilMs !== undefined) time.after(one.untilMs, () => endLasting(nodes, one));
    }
  const { kill, outage } = given;
  if (outage !== undefined) {
    const node = nodes[outage.node] as VirtualNode;
    time.after(outage.fromMs, () => node.stop());
    time.after(outage.untilMs, () => Object.assign(node.state, { isDown: false }));
  }
  if (kill !== undefined) time.after(kill.atMs, () => killDriver(world, kill.awayMs));
  if (given.freshAtMs !== undefined)
    time.after(given.freshAtMs, () => {
      world.kill();
      world.table = new MemoryTable(2 ** 30);
      startDriver(world);
    });
  let running = 0;
  for (let n = 0; n < given.calls; n++) {
    running++;
    const label = `virtual ${seed % 16} ${n}`;
    void (given.names ? namedClient(world, label) : client(world, label)).then(() => running--);
  }
  await time.run(startMs + faultsUntilMs, () => false);
  await time.run(startMs + (given.endMs ?? endMsDefault), () => running === 0);
  // What was retracted or swallowed has time to come up again.
  await time.run(time.nowMs + (given.restMs ?? 20 * blockTimeMs), () => false);
  if (given.names) await lookAgain(world);
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

// -------------------------------------------------------------------------------------- the driver

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
  const table: OrderedTable = {
    get: (name) => world.table.get(name),
    range: (prefix, given) => world.table.range(prefix, given),
    prefetch: (keys) => world.table.prefetch(keys),
    commit: (change) =>
      new Promise((resolve, reject) => {
        time.after(
          chance.between(1, 8),
          () => isAlive && world.table.commit(change).then(resolve, reject),
        );
      }),
  };
  const driver = openLedger(options, {
    log: (level: string, message: string, fields?: Record<string, unknown>) => {
      if (level !== "info") world.lines++;
      if (level === "error") notes.push(`${message} ${JSON.stringify(fields)}`);
    },
    fatal: (reason: string) => notes.push(`fatal ${reason}`),
    key: { ...world.key, address: "virtual" },
    table,
    host,
    runtimes: world.runtimes,
    connect: Rpc.open,
  });
  world.driver = driver;
  world.kill = () => {
    isAlive = false;
    world.driver = null;
  };
}

// --------------------------------------------------------------------------------------- the chain

function makeBlocks(world: World): void {
  const { time, chance, chain, nodes } = world;
  chain.onBest = (before, now) => {
    // What a block that was taken back held waits again, unless the node has lost it.
    if (now.parent !== before) {
      for (const node of nodes.filter(({ state }) => state.fork === null))
        for (const extrinsic of before.extrinsics)
          if (chance.likely(0.7)) node.pool.set(extrinsic.hash, extrinsic);
    }
    for (const node of nodes) {
      if (node.state.isDown || node.state.frozen !== null || node.state.fork !== null) continue;
      node.prune();
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
    }
    const up = running.filter(({ state }) => state.fork === null);
    const author = up[chance.below(up.length)];
    if (author === undefined) return;
    gossip(up, chance);
    const { best } = chain;
    const sibling =
      best.parent !== null && best.number - 1 > chain.finalized.number && chance.likely(0.08);
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

// -------------------------------------------------------------------------------------- the faults

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
const deepLies: readonly Lie[] = ["nonce"];

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
      Object.assign(state, {
        isDown: false,
        isSilent: false,
        swallows: false,
        bans: false,
        lie: null,
        frozen: null,
      });
  });
}

type Fault = {
  readonly kind: FaultKind;
  readonly node: VirtualNode;
  readonly lie: Lie;
  readonly lengthMs: number;
};

const flags = { down: "isDown", silent: "isSilent", swallow: "swallows", ban: "bans" } as const;

function begin(world: World, { kind, node, lie, lengthMs }: Fault): void {
  const { time, chain, chance, nodes } = world;
  const { state } = node;
  const standsApart = () =>
    nodes.some((one) => one.state.frozen !== null || one.state.fork !== null);
  if (kind === "down") node.stop();
  switch (kind) {
    case "down":
    case "silent":
    case "swallow":
    case "ban":
      node.disturb({ [flags[kind]]: true }, lengthMs);
      return;
    case "lie":
      // One liar at a time: two that agree are the truth for anyone who asks two.
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
      if (world.options.endpoints.length > 1 && nodes.every((one) => !one.state.poolFails))
        state.poolFails = true;
      return;
    case "slow upgrade":
    case "upgrade":
      if (chain.upgradeAt !== Number.POSITIVE_INFINITY) return;
      chain.upgradeAt = chain.best.number + 2;
      // Real nodes compile the new runtime first, all at once: they make no blocks and answer no
      // one.
      if (kind === "slow upgrade") {
        const stop = () =>
          nodes.map((one) => one.disturb({ isSilent: true, frozen: one.best }, lengthMs));
        time.after(3 * blockTimeMs, () => standsApart() || stop());
      }
  }
}

function beginLasting(nodes: readonly VirtualNode[], given: Lasting): void {
  const { fault, nonceAhead = 40 } = given;
  const node = nodes[given.node] as VirtualNode;
  node.state.nonceAhead = nonceAhead;
  if (fault === "gone") node.stop();
  else if (fault === "stands")
    Object.assign(node.state, { frozen: node.best, frozenFinal: node.finalized });
  else if (fault === "silent") node.state.isSilent = true;
  else if (fault === "swallows" || fault === "bans") node.state[fault] = true;
  else node.state.lie = fault;
}

function endLasting(nodes: readonly VirtualNode[], { node }: Lasting): void {
  const healed = { isDown: false, isSilent: false, swallows: false, bans: false, lie: null };
  Object.assign((nodes[node] as VirtualNode).state, healed, { frozen: null, frozenFinal: null });
}

function killDriver(world: World, awayMs: number): void {
  if (world.driver === null) return;
  world.kill();
  world.kills++;
  world.time.after(awayMs, () => startDriver(world));
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
