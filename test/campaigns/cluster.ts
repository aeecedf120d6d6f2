/**
 * Several nodes, one nats-server, and PostgreSQL with a synchronous standby, under load, while at
 * random a node or the bus is killed, a primary stops and starts again, a standby is killed, or a
 * primary is lost, its standby promoted, and the old primary comes back and takes writes. A model
 * outside knows what was answered.
 *
 * - lost: stored with an answer, never acknowledged by anybody, and not in a page that must have
 *   it;
 * - doubled: acknowledged with an answer, and held again afterwards;
 * - phantom: held, and never sent.
 *
 * `bun test/campaigns/cluster.ts --kills 300 --nodes 3` prints the figures.
 * `--minutes 30 --per-second 300` kills nothing: messages come at an even pace and live for 90 s, a
 * tenth of them is never acknowledged, and each minute the sizes and dead rows of the database and
 * the memory of the nodes are printed. `--skew 4`: the clock of the last node is 4 s ahead (needs
 * Debian's `faketime`); beyond 5 s it would not start. `--databases 3`: the mailboxes are in three
 * such pairs, and places move between them. `--away 120`: one whole pair is also away for so many
 * seconds, the first half in silence, while everything else goes on; how long senders wait whose
 * recipients are in the others is printed, then and otherwise. With `--away-home` it is the first,
 * which has the ledger, for at most 240 s; half of those senders must be served within 2 s.
 * `--jump`: now and then the clock of the last node goes twenty hours ahead for some seconds (needs
 * faketime). `--cut`: now and then one node, or all, can't reach one of the databases, or a primary
 * stands still, for some seconds. Needs Debian's postgresql and nats-server. Nodes are the
 * executable of this tree, or the one that `--executable` names.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { ClientError } from "../../src/client/base/failure.ts";
import type { Identity } from "../../src/client/keys/keys.ts";
import type { CacheClient } from "../../src/client/net/caches.ts";
import { listenLive } from "../../src/client/net/connections.ts";
import type { Reader } from "../../src/client/net/reader.ts";
import { cachesOf } from "../../src/client/trust/caches.ts";
import { liveEndpoints } from "../../src/client/trust/readers.ts";
import { hourMs, secondMs } from "../../src/core/codec/time.ts";
import { executable, freePort } from "../support/executable.ts";
import { natsAbsence, startNats } from "../support/nats.ts";
import { postgresAbsence } from "../support/postgres.ts";
import { PostgresPair } from "../support/postgres-pair.ts";
import { Ways } from "../support/way.ts";
import { between, openRecipient, pick, ready, timesOf } from "./cluster-people.ts";
import { shiftClock } from "./shifted-clock.ts";
import { residentMib } from "./stage.ts";

const { values: flags } = parseArgs({
  options: {
    kills: { type: "string", default: "300" },
    nodes: { type: "string", default: "3" },
    recipients: { type: "string", default: "8" },
    senders: { type: "string", default: "8" },
    minutes: { type: "string" },
    "per-second": { type: "string", default: "300" },
    skew: { type: "string", default: "0" },
    databases: { type: "string", default: "1" },
    away: { type: "string", default: "0" },
    "away-home": { type: "boolean", default: false },
    jump: { type: "boolean", default: false },
    cut: { type: "boolean", default: false },
    executable: { type: "string" },
  },
});
const absence = postgresAbsence() ?? natsAbsence();
if (absence !== null) throw new Error(absence);
const steadyMinutes = flags.minutes === undefined ? null : Number(flags.minutes);
const kills = steadyMinutes === null ? Number(flags.kills) : 0;
const ttlMs = steadyMinutes === null ? 6 * hourMs : 90 * secondMs;
const ttl = `${ttlMs / secondMs}s`;
/** Of messages that come at an even pace: the rest expires unread, and goes with its partition. */
const acknowledgedShare = steadyMinutes === null ? 1 : 0.9;
const folder = mkdtempSync(join(tmpdir(), "waypost-cluster-"));
const command = [flags.executable ?? (await executable())];

const findings: string[] = [];
let stopped = false;

// --------------------------------------------------------------------------------------- processes

const serverSettings = [
  "fsync=on",
  "max_connections=80",
  "shared_buffers=256MB",
  "max_wal_size=2GB",
];
const databases = await Promise.all(
  Array.from({ length: Number(flags.databases) }, () => PostgresPair.start(serverSettings)),
);
const database = databases[0]!;
const shards = databases.slice(1).map((pair, n) => ({ name: `shard_${n}`, pair }));
const bus = await startNats();
const urls = Array.from({ length: Number(flags.nodes) }, () => `http://127.0.0.1:${freePort()}`);
const ways = await Ways.open(flags.cut ? urls : [], databases);
const environment = {
  PATH: process.env["PATH"] ?? "",
  HOME: folder,
  WAYPOST_STORES__MAIN__PLUGIN: "postgres",
  WAYPOST_STORES__MAIN__BLOCK_TIME_MS: "500",
  ...(steadyMinutes === null ? {} : { WAYPOST_STORES__MAIN__PARTITION_MS: "60000" }),
  WAYPOST_SERVER__LOG_LEVEL: "warn",
  WAYPOST_DIRECTORY__RATE_LIMIT_LOOPBACK: "false",
  WAYPOST_RELAY__RATE_LIMIT_LOOPBACK: "false",
  WAYPOST_CACHE__RATE_LIMIT_LOOPBACK: "false",
  WAYPOST_BUS__PLUGIN: "nats",
  WAYPOST_BUS__SERVERS: JSON.stringify([bus.url]),
  WAYPOST_RELAY__PUBLIC_ENDPOINTS: JSON.stringify(urls),
  WAYPOST_CACHE__PUBLIC_ENDPOINTS: JSON.stringify(urls),
  WAYPOST_RELAY__ALLOW_HTTP: "true",
  WAYPOST_RELAY__ALLOW_PRIVATE: '["127.0.0.0/8"]',
};
/** Of a node, or of commands, which are never cut off. */
const configOf = (url: string): string => join(folder, `waypost${new URL(url).port}.toml`);
const configFile = configOf("http://127.0.0.1");
for (const url of [...urls, "http://127.0.0.1"]) {
  const stores = [database, ...shards.map(({ pair }) => pair)].map(
    (pair, n) =>
      `[stores.main${n === 0 ? "" : `.shards.shard_${n - 1}`}]\nurls = ${JSON.stringify(ways.serversFor(url, pair))}\n`,
  );
  const nodes =
    '[directory]\nenabled = true\n[relay]\nenabled = true\npublic_id = "campaign"\n[cache]\nenabled = true\n';
  writeFileSync(configOf(url), `${stores.join("")}${nodes}`);
}

const skewed =
  Number(flags.skew) === 0
    ? {}
    : {
        LD_PRELOAD: "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
        FAKETIME: `${Number(flags.skew) > 0 ? "+" : ""}${flags.skew}s`,
        FAKETIME_DONT_FAKE_MONOTONIC: "1",
      };

/** Of the last node alone: this process keeps its own. */
const ownClock = Date.now;
const jumping = flags.jump ? shiftClock(folder) : null;
Date.now = ownClock;
/** Until its clock is back, it refuses proofs and envelopes as too old, and everything else. */
const hasJumped = (url: string) => url === urls.at(-1) && (jumping?.offsetMs() ?? 0) !== 0;

/**
 * Starts a node, and again whenever it ends, as a supervisor does: one that finds no database ends
 * and says so.
 */
async function supervise(url: string): Promise<void> {
  while (!ending) {
    const child = Bun.spawn([...command, "serve", "--config", configOf(url)], {
      cwd: folder,
      env: {
        ...environment,
        ...(url === urls.at(-1) ? { ...skewed, ...jumping?.environment } : {}),
        WAYPOST_SERVER__LISTEN: JSON.stringify([url.slice("http://".length)]),
      },
      stdout: Bun.file(join(folder, `node-${new URL(url).port}.log`)),
      stderr: Bun.file(join(folder, `node-${new URL(url).port}.errors`)),
    });
    nodes.set(url, child);
    await child.exited;
    if (child.signalCode === "SIGKILL") continue;
    ended++;
    if (child.signalCode !== null) findings.push(`a node ended by ${child.signalCode}`);
    await Bun.sleep(500);
  }
}

const nodes = new Map<string, Bun.Subprocess>();
let ended = 0;
let ending = false;

const migrated = Bun.spawnSync([...command, "storage", "migrate", "--config", configFile], {
  env: environment,
});
if (migrated.exitCode !== 0) throw new Error(`${migrated.stdout}${migrated.stderr}`);
for (const url of urls) void supervise(url);
await Promise.all(urls.map(ready));

// --------------------------------------------------------------------------------------- the model

/** An acknowledgement that was tried without an answer may have been carried out. */
type Sent = {
  readonly expiresAtMs: number;
  readonly kept: boolean;
  answered: boolean;
  tried: boolean;
  acknowledged: boolean;
  live: boolean;
};
const sent = new Map<string, Sent>();
const counts = { unclear: 0, live: 0, unread: 0 };
/** How long each answered send took, with what was sent again. */
const answers: { readonly to: string; readonly begunMs: number; readonly ms: number }[] = [];
/** While one of the databases is away: from when to when, and whose mailboxes are there. */
const away = { fromMs: 0, toMs: 0, keys: "", isHome: false };
/** Of each recipient: answered, and not seen by a pull yet. */
const unseen = new Map<string, Set<string>>();

const people: Identity[] = [];
const readers = new Map<Identity, CacheClient[]>();
for (let n = 0; n < Number(flags.recipients); n++) {
  const { identity, client } = await openRecipient(`recipient-${n}`, urls);
  people.push(identity);
  unseen.set(identity.did, new Set());
  readers.set(identity, await cachesOf(client, identity));
  // Every other recipient also listens, at a node that changes with each connection.
  if (steadyMinutes === null && n % 2 === 0) void listen(await liveEndpoints(client, identity));
}

async function listen(reachable: readonly Reader[]): Promise<void> {
  while (!stopped) {
    const stop = new AbortController();
    const lasting = setTimeout(() => stop.abort(), between(1_000, 10_000));
    const events = {
      onReady: () => {},
      onEnvelope: async ({
        envelope,
      }: {
        readonly envelope: Readonly<Record<string, unknown>>;
      }) => {
        const known = sent.get(String(envelope["message_id"]));
        if (known === undefined) findings.push(`phantom ${String(envelope["message_id"])}`);
        else known.live = true;
        counts.live++;
        return true;
      },
    };
    await listenLive(pick(reachable), "phone", events, stop.signal).catch(() => {});
    clearTimeout(lasting);
    await Bun.sleep(100);
  }
}

/** Sends the same bytes until a node answers: by the Relay or straight to a Cache. */
async function sendOne(recipient = pick(people)): Promise<void> {
  const messageId = crypto.randomUUID();
  const kept = Math.random() >= acknowledgedShare;
  const to = recipient.did;
  const nowMs = Date.now();
  const expiresAtMs = nowMs + ttlMs;
  const state: Sent = {
    expiresAtMs,
    kept,
    answered: false,
    tried: false,
    acknowledged: false,
    live: false,
  };
  sent.set(messageId, state);
  const body = JSON.stringify({
    message_id: messageId,
    to,
    timestamp: new Date(nowMs).toISOString(),
    ttl,
    payload: { ciphertext_b64: Buffer.from(messageId.repeat(20)).toString("base64") },
  });
  const path = Math.random() < 0.5 ? "/relay" : "/cache/store";
  const begunMs = performance.now();
  for (let tries = 1; !state.answered; tries++) {
    const headers = { "content-type": "application/json" };
    const request = { method: "POST", headers, body, signal: AbortSignal.timeout(20_000) };
    const url = pick(urls);
    const couldJump = hasJumped(url);
    const answer = await fetch(`${url}${path}`, request).catch(() => null);
    const text = (await answer?.text().catch(() => null)) ?? null;
    if (answer !== null && text !== null && answer.ok) {
      state.answered = true;
      answers.push({ to, begunMs, ms: performance.now() - begunMs });
      unseen.get(to)?.add(messageId);
    } else if (
      answer !== null &&
      answer.status < 500 &&
      answer.status !== 429 &&
      !(couldJump || hasJumped(url))
    ) {
      findings.push(`refused with ${answer.status}: ${text}`);
      return;
    } else {
      counts.unclear++;
      // A message that has got old while no one answered would be refused.
      if (stopped || performance.now() - begunMs > 60_000) return;
      await Bun.sleep(between(20, Math.min(2_000, 100 * 2 ** tries)));
    }
  }
}

const openTo = new Map<Identity, number>();
const openToMax = 2;
const pageMax = 100;

/**
 * What was answered before a pull began, no one has acknowledged, and lasts until the pull has
 * ended, must be in it. Pages that are full prove nothing.
 */
function checkSeen(identity: Identity, expected: readonly string[], ids: readonly string[]): void {
  const waiting = unseen.get(identity.did)!;
  for (const messageId of ids) waiting.delete(messageId);
  for (const messageId of ids.length < pageMax ? expected : []) {
    if (!waiting.delete(messageId)) continue;
    const { tried, live, expiresAtMs } = sent.get(messageId)!;
    if (tried || live) continue;
    if (expiresAtMs <= Date.now()) counts.unread++;
    else findings.push(`lost ${messageId}`);
  }
}

/** Pulls at any node and acknowledges most of it; answers how many were held. */
async function pullOnce(identity: Identity, all: boolean): Promise<number> {
  const expected = [...unseen.get(identity.did)!];
  const { messages } = await pick(readers.get(identity)!).messages(undefined, pageMax);
  const ids = messages.map((one) => one.message_id);
  checkSeen(identity, expected, ids);
  for (const messageId of ids) {
    const state = sent.get(messageId);
    if (state === undefined) findings.push(`phantom ${messageId}`);
    else if (state.acknowledged) findings.push(`doubled ${messageId}`);
  }
  const read = ids.filter((messageId) => sent.get(messageId)?.kept !== true);
  const chosen = all ? read : read.filter(() => Math.random() < 0.8);
  if (chosen.length > 0) {
    for (const messageId of chosen) sent.get(messageId)!.tried = true;
    await pick(readers.get(identity)!).ack(chosen, { isAccepted: true });
    for (const messageId of chosen) sent.get(messageId)!.acknowledged = true;
  }
  return read.length;
}

async function pullForEver(identity: Identity): Promise<void> {
  while (!stopped) {
    await pullOnce(identity, false).catch((error: unknown) => {
      if (!(error instanceof ClientError)) throw error;
    });
    await (steadyMinutes === null
      ? Bun.sleep(between(100, 500))
      : Bun.sleep(between(1_000, 3_000)));
  }
}

// ------------------------------------------------------------------------------------ an even pace

/** As many sends as are due by now begin, whatever became of most of those before. */
async function sendAtPace(perSecond: number): Promise<void> {
  const begunMs = performance.now();
  const open = new Set<Promise<void>>();
  for (let begun = 0; !stopped; await Bun.sleep(5)) {
    for (const due = ((performance.now() - begunMs) * perSecond) / 1_000; begun < due; begun++) {
      if (open.size >= openMax) {
        left++;
        continue;
      }
      const one = sendOne().finally(() => open.delete(one));
      open.add(one);
    }
    mostOpen = Math.max(mostOpen, open.size);
  }
  await Promise.all(open);
}

/** Sends that wait for an answer; those that were due beyond them are counted and left out. */
const openMax = 2_000;
let mostOpen = 0;
let left = 0;

/** One line: what the database holds and what is dead in it, and the memory of the nodes. */
async function measureNow(minute: number): Promise<void> {
  const tables = await database.sql(`
    select coalesce(substring(relname from '^[a-z]+'), relname) as kind, count(*), sum(n_live_tup), sum(n_dead_tup),
      max(n_dead_tup), sum(pg_total_relation_size(relid)) / 1024, sum(autovacuum_count)
    from pg_stat_user_tables where schemaname = 'waypost' group by 1 having sum(n_live_tup + n_dead_tup) > 0 order by 1`);
  const size = await database.sql("select pg_database_size(current_database()) / 1024 / 1024");
  const resident = [...nodes.values()].map(({ pid }) => residentMib(pid));
  const answered = [...sent.values()].filter((state) => state.answered).length;
  console.log(
    `minute ${minute}: database ${size.trim()} MiB, nodes ${resident.join(" ")} MiB, ${answered} answered, ` +
      `${mostOpen} at most open, ${left} left out, ${counts.unclear} tries without an answer`,
  );
  mostOpen = 0;
  console.log(
    `  table|tables|live|dead|most dead|KiB|autovacuums: ${tables.trim().replaceAll("\n", "  ")}`,
  );
}

// ----------------------------------------------------------------------------------------- the run

const work = [
  ...(steadyMinutes === null
    ? Array.from({ length: Number(flags.senders) }, async () => {
        // Those to a place that is closed do not hold up the others.
        while (!stopped) {
          const to = pick(people);
          const open = openTo.get(to) ?? 0;
          if (open < openToMax) {
            openTo.set(to, open + 1);
            await Promise.race([
              sendOne(to).finally(() => openTo.set(to, openTo.get(to)! - 1)),
              Bun.sleep(250),
            ]);
          } else await Bun.sleep(5);
        }
        while ([...openTo.values()].some((open) => open > 0)) await Bun.sleep(50);
      })
    : [sendAtPace(Number(flags["per-second"]))]),
  ...people.map(pullForEver),
];
/** Moves random places until the end, and kills half of the movers. */
async function movePlaces(): Promise<void> {
  const names = ["home", ...shards.map(({ name }) => name)];
  while (!stopped && names.length > 1) {
    const first = Math.floor(between(1, 1_000));
    const given = [
      "--to",
      pick(names),
      "--places",
      `${first}-${first + 20}`,
      "--config",
      configFile,
    ];
    const mover = Bun.spawn([...command, "storage", "move-places", ...given], {
      env: environment,
      stderr: "ignore",
    });
    const killing = setTimeout(
      () => mover.kill("SIGKILL"),
      Math.random() < 0.5 ? between(300, 3_000) : 60_000,
    );
    await mover.exited;
    clearTimeout(killing);
    if (mover.exitCode === 0) faults.moved += 21;
    await Bun.sleep(1_000);
  }
}

/** One database next to the first, or the first. */
async function leaveForLong(awayMs: number): Promise<void> {
  if (awayMs === 0 || databases.length === 1) return;
  const one = flags["away-home"] ? database : pick(databases.slice(1));
  // A node that starts has read nothing of the ledger yet, and one that lost the bus remembers
  // nothing for half a minute.
  away.isHome = flags["away-home"];
  if (away.isHome) await Promise.all(urls.map(ready)).then(() => Bun.sleep(40_000));
  while (one.isBusy) await Bun.sleep(100);
  one.isBusy = true;
  away.keys = await one.sql(`select m.key from waypost.mailbox m
    join waypost.place p on p.no = waypost.place_of(m.key) and p.state in ('here', 'leaving')`);
  away.fromMs = performance.now();
  const leaving = one.leave(awayMs / 2, awayMs / 2);
  await Bun.sleep(awayMs);
  away.toMs = performance.now();
  await leaving;
  await Promise.all(urls.map(ready));
  away.isHome = false;
  one.isBusy = false;
}

function printTimes(): void {
  const others = answers.filter(({ to }) => !away.keys.includes(to));
  const isDuring = ({ begunMs }: { readonly begunMs: number }) =>
    begunMs > away.fromMs && begunMs < away.toMs;
  const during = others.filter(isDuring);
  console.log(`sends to recipients of the other databases, while one was away: ${timesOf(during)}`);
  const quick = during.filter(({ ms }) => ms < 2_000).length;
  if (flags["away-home"] && quick < Math.max(10, during.length / 2))
    findings.push(`without the first database ${quick} of ${during.length} were served in time`);
  console.log(`otherwise: ${timesOf(others.filter((one) => !isDuring(one)))}`);
}

type Fault = "node" | "bus" | DatabaseFault | "jump";
type DatabaseFault = "primary" | "standby" | "failover" | "frozen" | "cut";
const faults = {
  node: 0,
  bus: 0,
  primary: 0,
  standby: 0,
  failover: 0,
  frozen: 0,
  cut: 0,
  jump: 0,
  moved: 0,
};
const perRound: readonly Fault[] = [
  "node",
  "node",
  "node",
  "bus",
  "primary",
  "standby",
  "standby",
  "failover",
  "failover",
  ...(flags.jump ? (["jump"] as const) : []),
  ...(flags.cut ? (["frozen", "cut", "cut"] as const) : []),
];
const busy = new Set<Promise<void>>();

/** Twenty hours are beyond the end of every partition and of the grace behind it. */
async function jumpAhead(): Promise<void> {
  faults.jump++;
  const url = urls.at(-1)!;
  jumping?.setOffset(20 * hourMs);
  await Bun.sleep(between(3_000, 6_000));
  const answer = await fetch(`${url}/readyz`, { signal: AbortSignal.timeout(5_000) }).catch(
    () => null,
  );
  if (answer?.ok === true) findings.push("a node with a wrong clock is ready");
  jumping?.setOffset(0);
}

async function killNode(): Promise<void> {
  const url = pick(urls);
  nodes.get(url)!.kill("SIGKILL");
  faults.node++;
  // Now and then the next one is killed before this one is back.
  if (Math.random() < 0.7) await ready(url);
}

async function killBus(): Promise<void> {
  faults.bus++;
  await bus.stop();
  await Bun.sleep(between(0, 1_000));
  await bus.start();
}

/** Goes on while other faults come to the other databases. */
async function breakDatabase(kind: DatabaseFault): Promise<void> {
  while (databases.every(({ isBusy }) => isBusy)) await Bun.sleep(50);
  const one = pick(databases.filter(({ isBusy }) => !isBusy));
  one.isBusy = true;
  faults[kind]++;
  const breaking = {
    primary: () => one.restartPrimary(between(0, 1_000)),
    standby: () => one.loseStandby(between(0, 5_000), between(200, 2_000)),
    failover: async () => {
      const calls = await one.failOver(between(200, 2_000), between(500, 8_000));
      if (calls > 0) findings.push(`an old primary was called ${calls} times`);
    },
    frozen: async () => {
      one.freezePrimary();
      await Bun.sleep(between(1_000, 15_000));
      one.thawPrimary();
    },
    cut: () => ways.cut(one, Math.random() < 0.5 ? urls : [pick(urls)], between(1_000, 15_000)),
  };
  const broken = breaking[kind]().catch(
    (error: unknown) => void findings.push(`${kind}: ${error}`),
  );
  const over = broken.then(() => {
    one.isBusy = false;
    busy.delete(over);
  });
  busy.add(over);
}

const moving = movePlaces();
let leaving: Promise<void> = Promise.resolve();
try {
  // At first one of each kind.
  const next: Fault[] = [...new Set(perRound)];
  for (let kill = 0; kill < kills && findings.length === 0; ) {
    await Bun.sleep(between(100, 1_500));
    if (next.length === 0) next.push(...[...perRound].sort(() => Math.random() - 0.5));
    const fault = next.pop()!;
    // What restarts then has read nothing of the ledger yet.
    if (away.isHome && (fault === "node" || fault === "bus")) continue;
    kill++;
    if (fault === "node") await killNode();
    else if (fault === "bus") await killBus();
    else if (fault === "jump") await jumpAhead();
    else await breakDatabase(fault);
    if (kill === Math.ceil(kills / 4)) leaving = leaveForLong(Number(flags.away) * secondMs);
    if (kill % 20 === 0)
      console.log(`${kill} faults, ${sent.size} sent, ${findings.length} findings`);
  }
  for (let minute = 1; minute <= (steadyMinutes ?? 0) && findings.length === 0; minute++) {
    await Bun.sleep(60_000);
    await measureNow(minute);
  }
  await Promise.all([leaving, ...busy]);
  await Promise.all(urls.map(ready));
  stopped = true;
  await Promise.all([...work, moving]);
  for (const identity of people) while ((await pullOnce(identity, true)) > 0);
  const answered = [...sent.values()].filter((state) => state.answered).length;
  const acknowledged = [...sent.values()].filter((state) => state.acknowledged).length;
  console.log(
    `killed: ${faults.node} nodes, ${faults.bus} times the bus, ${faults.primary} primaries and ${faults.standby} standbys; ` +
      `${faults.failover} failovers, after each of which the old primary came back; ${faults.frozen} primaries stood still; ` +
      `${faults.cut} times nodes were cut off from a database; ${faults.jump} jumps of a clock; ${faults.moved} places moved; ` +
      `${ended} nodes ended without a database; ` +
      `${answered} answered, ${acknowledged} acknowledged, ${counts.live} live, ${counts.unread} expired before anybody could pull them, ${counts.unclear} tries without an answer; ` +
      `lost, doubled, phantom or refused: ${findings.length}`,
  );
  if (away.toMs > 0) printTimes();
  for (const finding of findings.slice(0, 20)) console.log(`  ${finding}`);
} finally {
  ending = true;
  for (const child of nodes.values()) child.kill("SIGKILL");
  ways.end();
  await bus.end();
  await Promise.all(databases.map((one) => one.end()));
  if (findings.length === 0) rmSync(folder, { recursive: true, force: true });
  else console.log(`logs of the nodes: ${folder}`);
}
process.exit(findings.length === 0 ? 0 : 1);
