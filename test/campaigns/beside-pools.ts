/**
 * The pools of a mailbox under attack, over sockets and in each store, at the compiled executable:
 * people whom the recipient has acknowledged, or who show its passes, and client networks fill the
 * mailbox as fast as they can and go on, next to 20 known people and newcomers of a new network
 * each. What these send must be taken, each within 500 ms, as often as the floors of rules section
 * 6 promise. Passes must count although the node, or PostgreSQL, is killed right after they were
 * put. Where the recipient reads hourly, it does so after each 60 of both sides.
 *
 * `bun test/campaigns/beside-pools.ts` prints the figures. `--store memory,lmdb,postgres,shards`
 * names the stores, and `--only dids-2,passes:postgres` the lines. `--tries
 * 2880` is one a minute on each side for two days, `--within 500` the limit; `--entries 2000` makes
 * a smaller mailbox, of ten entries for each network and, unless `--each` says how many, for each
 * known person at least. test/property/pools.test.ts plays the same without sockets.
 */
import { parseArgs } from "node:util";
import { proofHeaders } from "../../src/client/net/reader.ts";
import { encodeBase64Url } from "../../src/core/codec/bytes.ts";
import { makePass, passPeriod, showPass } from "../../src/core/message/pass.ts";
import { type PostgresServer, postgresAbsence, startPostgres } from "../support/postgres.ts";
import {
  type Answered,
  acknowledgementOf,
  clientFrom,
  envelopeTo,
  Findings,
  openStage,
  percentile,
  personAt,
  registerAll,
  type Stage,
  type StageClient,
  type StagePerson,
  signedBy,
  tally,
} from "./stage.ts";

const { values } = parseArgs({
  options: {
    tries: { type: "string", default: "100" },
    within: { type: "string", default: "500" },
    only: { type: "string" },
    store: { type: "string", default: "lmdb" },
    entries: { type: "string", default: "10000" },
    each: { type: "string", default: "10" },
  },
});
const tries = Number(values.tries);
const withinMs = Number(values.within);
const findings = new Findings();

type Line = {
  /** People whom the mailbox knows, and who collude. */
  readonly dids: number;
  /** That send as newcomers. */
  readonly networks: number;
  readonly reads: boolean;
  /** Known by passes, and by no acknowledgement. */
  readonly hasPasses: boolean;
};
const line = (dids: number, networks: number, how: "away" | "hourly", hasPasses = false): Line => ({
  dids,
  networks,
  reads: how === "hourly",
  hasPasses,
});
/** A mailbox knows at most 1,000, 20 honest ones among them. */
const lines: Readonly<Record<string, Line>> = {
  none: line(0, 0, "away"),
  "dids-2": line(2, 0, "away"),
  "dids-40-hourly": line(40, 0, "hourly"),
  "dids-150": line(150, 0, "away"),
  "dids-150-hourly": line(150, 0, "hourly"),
  "dids-1000": line(980, 0, "away"),
  "dids-1000-hourly": line(980, 0, "hourly"),
  "networks-16": line(0, 16, "away"),
  "networks-200": line(0, 200, "away"),
  passes: line(150, 200, "hourly", true),
};

/** Of the entries of a mailbox: the floors of rules section 6. */
const floorParts = { known: 0.4, newcomers: 0.3 };
const newcomerFloor = 2;
const honestCount = 20;
/** One a minute. */
const triesAnHour = 60;

function entriesOf({ dids, networks }: Line): number {
  const people = dids + honestCount;
  return Math.max(Number(values.entries), Number(values.each) * people, 10 * networks);
}

/** What the floors promise the honest of each side, of so many tries. */
function promised(one: Line): { known: number; newcomers: number } {
  const { dids, networks, reads } = one;
  if (reads) return { known: tries, newcomers: tries };
  const entries = entriesOf(one);
  const people = Math.ceil((dids + honestCount) / 8) * 8;
  return {
    known: Math.min(tries, honestCount * Math.floor((entries * floorParts.known) / people)),
    newcomers: Math.min(tries, entries * floorParts.newcomers - newcomerFloor * networks),
  };
}

// ------------------------------------------------------------------------------------- the mailbox

const bodyOf = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));
const passSecret = new Uint8Array(32).fill(7);

/** Sends one message; the address is that of its client. */
type Send = (path: string) => Promise<Answered>;

class Mailbox {
  /** What waits in it. */
  private readonly waiting: string[] = [];
  private readonly clients = new Map<string, StageClient>();

  constructor(
    private readonly stage: Stage,
    private readonly bob: StagePerson,
    private readonly hasPasses: boolean,
  ) {}

  client(address: string): StageClient {
    const client = this.clients.get(address) ?? clientFrom(address, this.stage.url, 16);
    this.clients.set(address, client);
    return client;
  }

  /** Known people sign, or show a pass; the address counts for nothing then. */
  known(person: StagePerson, address: string): Send {
    if (!this.hasPasses)
      return (path) => this.post(address, path, signedBy(person, envelopeTo(this.bob)));
    const naming = { secret: passSecret, namingKey: new Uint8Array(32) };
    const pass = makePass(naming, person.did, passPeriod(Date.now()));
    return (path) => {
      const envelope = envelopeTo(this.bob);
      return this.post(address, path, envelope, { "svc-pass": showPass(pass, bodyOf(envelope)) });
    };
  }

  newcomer(address: string): Send {
    return (path) => this.post(address, path, envelopeTo(this.bob));
  }

  private async post(
    address: string,
    path: string,
    envelope: { readonly [name: string]: unknown },
    more: Readonly<Record<string, string>> = {},
  ): Promise<Answered> {
    const headers = { "content-type": "application/json", ...more };
    const body = bodyOf(envelope);
    const answered = await this.client(address).ask({ method: "POST", path, headers, body });
    if (isTaken(answered)) this.waiting.push(String(envelope["message_id"]));
    return answered;
  }

  /** The recipient acknowledges everything. */
  async read(): Promise<void> {
    while (this.waiting.length > 0) {
      const ids = this.waiting.splice(0, 1_000);
      const body = await acknowledgementOf(this.bob.reader, ids);
      const { status, body: text } = await this.client("127.0.90.1").post("/cache/ack", body);
      if (status !== 200) throw new Error(`an acknowledgement was answered with ${status} ${text}`);
    }
  }

  async putPasses(passes: number): Promise<void> {
    const body = bodyOf({ secret: encodeBase64Url(passSecret), passes, revoked: [] });
    const hash = new Bun.CryptoHasher("sha256").update(body).digest("hex");
    const proof = await proofHeaders(this.bob.reader, "pass", hash);
    const headers = { "content-type": "application/json", ...proof };
    const path = `/cache/pass/${this.bob.did}`;
    const answered = await this.client("127.0.90.1").ask({ method: "PUT", path, headers, body });
    if (answered.status !== 200) throw new Error(`passes were answered with ${answered.body}`);
  }

  close(): void {
    for (const client of this.clients.values()) client.close();
  }
}

function isTaken({ status }: Answered): boolean {
  return status >= 200 && status < 300;
}

// -------------------------------------------------------------------------------------- the attack

/** So many first messages, before they are acknowledged, fit a small mailbox too. */
const firstAtOnce = 100;
/** At once, over all attackers. */
const floodsAtOnce = 32;
/**
 * While honest people send, with a pause: they take what becomes free, and leave the processor to
 * the others.
 */
const goingOnAtOnce = 4;
const goingOnPauseMs = 10;

async function inParallel<T>(all: readonly T[], work: (one: T) => Promise<void>): Promise<void> {
  const waiting = [...all];
  const next = async (): Promise<void> => {
    for (let one = waiting.shift(); one !== undefined; one = waiting.shift()) await work(one);
  };
  await Promise.all(Array.from({ length: floodsAtOnce }, next));
}

/** All of them send, in turn, until each is refused. */
async function flood(attackers: readonly Send[]): Promise<void> {
  for (let going = attackers; going.length > 0; ) {
    const next: Send[] = [];
    await inParallel(going, async (send) => {
      if (isTaken(await send("/cache/store"))) next.push(send);
    });
    going = next;
  }
}

/** They take at once what becomes free; returns what ends it. */
function goOn(attackers: readonly Send[]): () => Promise<void> {
  let [stopped, turn] = [false, 0];
  const one = async (): Promise<void> => {
    while (!stopped && attackers.length > 0) {
      await attackers[turn++ % attackers.length]?.("/cache/store");
      await Bun.sleep(goingOnPauseMs);
    }
  };
  const all = Promise.all(Array.from({ length: goingOnAtOnce }, one));
  return async () => {
    stopped = true;
    await all;
  };
}

// -------------------------------------------------------------------------------------- the honest

const addressOf = (block: number, n: number) =>
  `127.${block}.${Math.floor(n / 200)}.${(n % 200) + 1}`;

type Outcomes = { readonly known: Answered[]; readonly newcomers: Answered[] };

/** Of each side. */
const honestAtOnce = 4;

/** So many of each side. */
async function sendBoth(mailbox: Mailbox, people: readonly Send[], count: number, all: Outcomes) {
  const first = all.known.length;
  let place = first;
  const next = async (): Promise<void> => {
    while (place < first + count) {
      const mine = place++;
      const newcomer = mailbox.newcomer(addressOf(1, mine));
      const known = people[mine % people.length] as Send;
      const [one, other] = await Promise.all([known("/relay"), newcomer("/relay")]);
      all.known.push(one);
      all.newcomers.push(other);
    }
  };
  await Promise.all(Array.from({ length: honestAtOnce }, next));
}

function judge(who: string, answers: readonly Answered[], least: number): void {
  const taken = answers.filter(isTaken);
  const late = taken.filter(({ ms }) => ms >= withinMs).length;
  const p99 = Math.round(
    percentile(
      taken.map(({ ms }) => ms),
      99,
    ),
  );
  const statuses = JSON.stringify(tally(answers.map(({ status }) => status)));
  const percent = Math.round((100 * taken.length) / answers.length);
  console.log(
    `  ${who}: ${taken.length} of ${answers.length} (${percent} %, at least ${least}), p99 ${p99} ms, ${late} late, ${statuses}`,
  );
  const refused = answers.find((answered) => !isTaken(answered))?.body ?? "";
  findings.expect(taken.length >= least, `${who}: ${taken.length} taken ${refused.slice(0, 200)}`);
  findings.expect(late === 0, `${who}: ${late} later than ${withinMs} ms`);
}

/**
 * The process that keeps the passes ends as by `kill -9`, and starts again; in memory nothing would
 * be left.
 */
async function kill(store: string, { url, node, start }: Stage, bob: StagePerson): Promise<void> {
  if (store === "memory") return;
  if (store === "lmdb") {
    await node().kill("SIGKILL");
    return start();
  }
  for (const server of servers) {
    await server.kill();
    await server.start();
  }
  const client = clientFrom("127.0.90.1", url);
  while ((await client.ask({ path: `/resolve/${bob.did}` })).status !== 200) await Bun.sleep(50);
  client.close();
}

async function play(one: Line, store: string, stage: Stage): Promise<void> {
  const bob = await personAt(stage.url);
  const people: StagePerson[] = [];
  for (let n = 0; n < honestCount + one.dids; n++) people.push(await personAt(stage.url));
  const mailbox = new Mailbox(stage, bob, one.hasPasses);
  const near = mailbox.client("127.0.90.1");
  await registerAll(near, one.hasPasses ? [bob] : [bob, ...people]);
  if (one.hasPasses) {
    await mailbox.putPasses(people.length);
    await kill(store, stage, bob);
  }
  // With passes all come from one network, where few newcomers would get through.
  const addressOfKnown = (n: number) => addressOf(3, one.hasPasses ? 0 : n % 64);
  const sends = people.map((person, n) => mailbox.known(person, addressOfKnown(n)));
  // Each writes once and is acknowledged: where there are no passes, this makes them known.
  for (let n = 0; n < sends.length; n += firstAtOnce) {
    await inParallel(sends.slice(n, n + firstAtOnce), async (send) => {
      const { status, body } = await send("/cache/store");
      if (status !== 202) throw new Error(`a first message was answered with ${status} ${body}`);
    });
    await mailbox.read();
  }
  const honest = sends.slice(0, honestCount);
  const networks = Array.from({ length: one.networks }, (_, n) =>
    mailbox.newcomer(addressOf(2, n)),
  );
  const attackers = [...sends.slice(honestCount), ...networks];
  if (!one.reads) await flood(attackers);
  const end = goOn(attackers);
  const all: Outcomes = { known: [], newcomers: [] };
  while (all.known.length < tries) {
    if (one.reads) await mailbox.read();
    if (one.reads) await flood(attackers);
    await sendBoth(mailbox, honest, Math.min(triesAnHour, tries - all.known.length), all);
  }
  await end();
  const least = promised(one);
  judge("known people", all.known, least.known);
  judge("newcomers", all.newcomers, least.newcomers);
  mailbox.close();
}

// ------------------------------------------------------------------------------------------ stores

const servers: PostgresServer[] = [];
let databases = 0;

/** A new database. */
async function newDatabase(): Promise<string> {
  const server = servers[0] ?? (await startPostgres(["max_connections=60"]));
  servers[0] = server;
  const name = `pools_${++databases}`;
  await server.sql(`create database ${name}`);
  return server.url.replace(/postgres$/, name);
}

const block = "block_time_ms = 100";
/** Two days go by in a minute. */
const fast = "client_rate = 100000";

/** Lines of the store: PostgreSQL in one database, or with the mailboxes in two. */
async function storeLines(name: string): Promise<readonly string[]> {
  const main = ['plugin = "postgres"', `urls = ["${await newDatabase()}"]`, block];
  if (name === "postgres") return main;
  return [...main, "[stores.main.shards.second]", `urls = ["${await newDatabase()}"]`];
}

/** `dids-2` in each store, or `dids-2:memory` in that one. */
function isChosen(name: string, store: string): boolean {
  const only = values.only?.split(",") ?? Object.keys(lines);
  return only.includes(name) || only.includes(`${name}:${store}`);
}

for (const store of values.store.split(",")) {
  const isOwn = store === "memory" || store === "lmdb";
  const absence = isOwn ? null : postgresAbsence();
  if (absence !== null) {
    console.log(`${store}: ${absence}`);
    continue;
  }
  for (const [name, one] of Object.entries(lines)) {
    if (!isChosen(name, store)) continue;
    console.log(`${name} over ${store}`);
    const stage = await openStage({
      store: isOwn ? store : await storeLines(store),
      lines: {
        cache: [`recipient_entries_max = ${entriesOf(one)}`, fast],
        relay: [fast],
      },
    });
    try {
      await play(one, store, stage);
    } finally {
      await stage.close();
    }
  }
}
for (const server of servers) await server.end();
findings.exit();
