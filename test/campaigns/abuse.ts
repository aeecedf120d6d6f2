/**
 * Strangers against the compiled executable, with an honest person measured next to them.
 * Everything comes over sockets from loopback addresses; each attacker is a process of its own
 * (`abuse-attacker.ts`).
 *
 * - `mailbox`: one keyless client stores to one recipient as fast as it can. A known sender at the
 *   same address, a first-time sender that signs, and an unsigned one, each at another address,
 *   keep getting 202, and a first-time sender at the same address 507 (D450); log and metrics say
 *   who fills whose mailbox. `mailbox-dev` is the same against `waypost dev`.
 * - `networks`: 200 networks, one after the other, store to one recipient what they get. Behind 1,
 *   2, 5, 20 and 80 of them newcomers at further addresses get 202, and behind all of them anyone
 *   the recipient knows; once the recipient has acknowledged a page, newcomers get 202 again.
 * - `store`: one network fills mailboxes of its own, known senders among them. The store keeps room
 *   for the others.
 * - `ids`: one network stores to itself and acknowledges at once, until the store remembers no more
 *   ids for it. Others go on.
 * - `register`: 5,000 registrations from one address. Beyond the pace they are refused.
 * - `relay`: three clients send 40 envelopes a second each to inboxes of their own that answer
 *   after 5 s. An honest delivery to a healthy inbox stays below 500 ms at the 99th percentile.
 *   `relay-beside` is the same with the honest person at the address of one of them.
 * - `slow`: slow heads, slow bodies, and readers of groups of 25 MiB who take a KiB a second.
 *   Memory is bounded, and an honest person is served.
 * - `refusal`: anyone who sends megabytes and is refused early gets the answer.
 * - `tester`: what an honest tester does from one address in a short time is never answered with
 *   429.
 *
 * `bun test/campaigns/abuse.ts --seconds 10` prints the figures; `--only relay` runs one of them.
 */
import { join } from "node:path";
import { parseArgs } from "node:util";
import { proofHeaders } from "../../src/client/net/reader.ts";
import { freePort } from "../support/executable.ts";
import type { Plan } from "./abuse-attacker.ts";
import {
  type Answered,
  acknowledgementOf,
  befriend,
  clientFrom,
  envelopeTo,
  Findings,
  fill,
  openStage,
  percentile,
  personAt,
  registerAll,
  registrationOf,
  residentMib,
  type Stage,
  type StageClient,
  type StageOptions,
  type StagePerson,
  signedBy,
  tally,
} from "./stage.ts";

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "10" },
    only: { type: "string" },
    /** Of what the tester does. */
    share: { type: "string", default: "1" },
  },
});
const seconds = Number(values.seconds);
const findings = new Findings();

/** Starts an attack; the answer ends it and gives its figures. */
function launch(plan: Plan): () => Promise<unknown> {
  const script = join(import.meta.dir, "abuse-attacker.ts");
  const child = Bun.spawn([process.execPath, script, JSON.stringify(plan)], {
    stdin: "pipe",
    stdout: "pipe",
  });
  return async () => {
    child.stdin.end();
    const text = await new Response(child.stdout).text();
    await child.exited;
    return JSON.parse(text);
  };
}

type Measured = {
  readonly statuses: Record<string, number>;
  readonly p50: number;
  readonly p99: number;
};

/** Asks again and again for so long, and says what came back and in which time. */
async function measure(
  ask: () => Promise<Answered>,
  forSeconds: number,
  everyMs: number,
): Promise<Measured> {
  const answers: Answered[] = [];
  const endsAtMs = performance.now() + forSeconds * 1_000;
  while (performance.now() < endsAtMs) {
    answers.push(await ask());
    await Bun.sleep(everyMs);
  }
  const times = answers.map(({ ms }) => ms);
  return {
    statuses: tally(answers.map(({ status }) => status)),
    p50: percentile(times, 50),
    p99: percentile(times, 99),
  };
}

function expectOnly(measured: Measured, status: number, who: string): void {
  findings.expect(
    Object.keys(measured.statuses).join() === String(status),
    `${who}: ${JSON.stringify(measured.statuses)}`,
  );
}

const storeFrom = (client: StageClient, make: () => unknown) => () =>
  client.post("/cache/store", make());

// ----------------------------------------------------------------------------------------- mailbox

/** Waits until the attacker has what it gets. */
async function untilRefused(client: StageClient): Promise<void> {
  for (let tries = 0; tries < 240; tries++) {
    const metrics = (await client.ask({ path: "/metrics" })).body;
    if (/cache_share_refusals_total\{[^}]*\} [1-9]/.test(metrics)) return;
    await Bun.sleep(250);
  }
  findings.expect(false, "the attacker was not refused within a minute");
}

async function attackMailbox(stage: Stage): Promise<void> {
  const near = clientFrom("127.0.0.1", stage.url);
  const far = clientFrom("127.0.0.2", stage.url);
  const third = clientFrom("127.0.0.3", stage.url);
  const [bob, alice, carol] = [
    await personAt(stage.url),
    await personAt(stage.url),
    await personAt(stage.url),
  ];
  await registerAll(near, [bob, alice, carol]);
  await befriend(near, bob, alice);
  const end = launch({ kind: "flood", url: stage.url, from: "127.0.0.1", to: bob.did });
  await untilRefused(near);
  // Behind the flood two newcomers' networks have 168 messages each, and these send 100.
  const [known, beside, signed, unsigned] = (await Promise.all(
    [
      storeFrom(near, () => signedBy(alice, envelopeTo(bob))),
      storeFrom(near, () => signedBy(carol, envelopeTo(bob))),
      storeFrom(third, () => signedBy(carol, envelopeTo(bob))),
      storeFrom(far, () => envelopeTo(bob)),
    ].map((store) => measure(store, seconds, 10 * seconds)),
  )) as [Measured, Measured, Measured, Measured];
  console.log("  attacker", JSON.stringify(await end()));
  console.log("  known sender, same address", JSON.stringify(known));
  console.log("  first-time sender that signs, same address", JSON.stringify(beside));
  console.log("  first-time sender that signs, another address", JSON.stringify(signed));
  console.log("  unsigned, another address", JSON.stringify(unsigned));
  expectOnly(known, 202, "a known sender");
  expectOnly(beside, 507, "a first-time sender at the attacker's address");
  expectOnly(signed, 202, "a first-time sender at another address");
  expectOnly(unsigned, 202, "an unsigned sender at another address");
  await stage.node().kill("SIGTERM");
  const line = (await stage.node().output())
    .split("\n")
    .find((text) => text.includes("a mailbox refuses envelopes"));
  findings.expect(line !== undefined, "no line says who fills the mailbox");
  console.log(`  ${line}`);
}

// ---------------------------------------------------------------------------------------- networks

const networks = 200;

async function attackFromNetworks(stage: Stage): Promise<void> {
  const near = clientFrom("127.0.0.1", stage.url);
  const [bob, alice] = [await personAt(stage.url), await personAt(stage.url)];
  await registerAll(near, [bob, alice]);
  await befriend(near, bob, alice);
  const taken: number[] = [];
  for (let network = 1; network <= networks; network++) {
    const { taken: got, last } = await fill(`127.0.1.${network}`, stage.url, () => envelopeTo(bob));
    taken.push(got);
    findings.expect(last.status === 507, `network ${network} ends with ${last.status}`);
    if (![1, 2, 5, 20, 80, networks].includes(network)) continue;
    const newcomers = await storeAsNewcomers(stage, bob, network);
    const known: number[] = [];
    for (let i = 0; i < 20; i++)
      known.push((await near.post("/cache/store", signedBy(alice, envelopeTo(bob)))).status);
    console.log(
      `  behind ${network}: newcomers ${JSON.stringify(tally(newcomers))}, known ${JSON.stringify(tally(known))}`,
    );
    const promised = network === networks ? known : [...newcomers, ...known];
    findings.expect(
      promised.every((status) => status === 202),
      `behind ${network} networks`,
    );
  }
  console.log(`  taken by each network: ${taken.join(" ")}`);
  const { body } = await near.ask({
    path: `/cache/messages/${bob.did}?limit=100`,
    headers: await proofHeaders(bob.reader, "pull", "*"),
  });
  const ids = (JSON.parse(body) as { messages: { message_id: string }[] }).messages.map(
    (one) => one.message_id,
  );
  const acked = await near.post("/cache/ack", await acknowledgementOf(bob.reader, ids));
  const newcomers = await storeAsNewcomers(stage, bob, networks + 1);
  console.log(
    `  ${ids.length} acknowledged (${acked.status}): newcomers ${JSON.stringify(tally(newcomers))}`,
  );
  findings.expect(
    newcomers.every((status) => status === 202),
    "the recipient could not open the mailbox again",
  );
}

/** Two messages each from ten addresses that no one has seen yet. */
async function storeAsNewcomers(stage: Stage, to: StagePerson, round: number): Promise<number[]> {
  const statuses: number[] = [];
  for (let place = 1; place <= 10; place++) {
    const client = clientFrom(`127.1.${round}.${place}`, stage.url, 2);
    for (let i = 0; i < 2; i++)
      statuses.push((await client.post("/cache/store", envelopeTo(to))).status);
    client.close();
  }
  return statuses;
}

const storeEntries = 20_000;

async function attackStore(stage: Stage): Promise<void> {
  const near = clientFrom("127.0.0.1", stage.url);
  const own = await Promise.all(Array.from({ length: 12 }, () => personAt(stage.url)));
  const [carol, dave] = [await personAt(stage.url), await personAt(stage.url)];
  await registerAll(near, [...own, carol, dave]);
  for (const person of own) await befriend(near, person, own[0] as StagePerson);
  let taken = 0;
  const refusals: string[] = [];
  for (const person of own) {
    for (const make of [
      () => envelopeTo(person),
      () => signedBy(own[0] as StagePerson, envelopeTo(person)),
    ]) {
      const { taken: got, last } = await fill("127.0.3.1", stage.url, make);
      taken += got;
      refusals.push(`${last.status} ${(JSON.parse(last.body) as { code: string }).code}`);
    }
  }
  console.log(
    `  one network has ${taken} of ${storeEntries} entries; refusals ${JSON.stringify(tally(refusals))}`,
  );
  findings.expect(refusals.at(-1) === "507 storage_full", `it ends with ${refusals.at(-1)}`);
  findings.expect(taken <= storeEntries * 0.76, `it has ${taken}`);
  const far = clientFrom("127.0.3.2", stage.url);
  const honest = await measure(
    storeFrom(far, () => envelopeTo(carol)),
    3,
    20,
  );
  console.log("  unsigned, another address, another recipient", JSON.stringify(honest));
  expectOnly(honest, 202, "an honest sender");
  const metrics = (await near.ask({ path: "/metrics" })).body;
  findings.expect(
    /cache_share_refusals_total\{scope="store"\} [1-9]/.test(metrics),
    "no metric counts it",
  );
}

const ids = 4_000;

async function attackIds(stage: Stage): Promise<void> {
  const client = clientFrom("127.0.3.1", stage.url);
  const far = clientFrom("127.0.3.2", stage.url);
  const [own, carol] = [await personAt(stage.url), await personAt(stage.url)];
  await registerAll(far, [own, carol]);
  let taken = 0;
  let last: Answered | null = null;
  while (last === null && taken <= ids) {
    const envelopes = Array.from({ length: 100 }, () => envelopeTo(own));
    const answers = await Promise.all(
      envelopes.map((envelope) => client.post("/cache/store", envelope)),
    );
    const names = envelopes.map((envelope) => String(envelope["message_id"]));
    taken += answers.filter(({ status }) => status === 202).length;
    last = answers.find(({ status }) => status !== 202) ?? null;
    await client.post("/cache/ack", await acknowledgementOf(own.reader, names));
  }
  console.log(
    `  one network has left ${taken} of ${ids} ids; then ${last?.status} ${last?.body.slice(0, 160)}`,
  );
  findings.expect(last?.status === 507 && taken <= ids * 0.76, `it has left ${taken}`);
  const honest = await measure(
    storeFrom(far, () => envelopeTo(carol)),
    seconds,
    20,
  );
  console.log("  unsigned, another address, another recipient", JSON.stringify(honest));
  expectOnly(honest, 202, "an honest sender");
}

// ------------------------------------------------------------------------------------- registering

const registrations = 5_000;
/** What a network may do at once and each second, of the defaults. */
const pace = { burst: 3_000, perSecond: 10 };

async function attackDirectory(stage: Stage): Promise<void> {
  const client = clientFrom("127.0.0.1", stage.url);
  const bodies = await Promise.all(
    Array.from({ length: registrations }, async () => registrationOf(await personAt(stage.url))),
  );
  const startMs = performance.now();
  const answers: Answered[] = [];
  const queue = [...bodies.entries()];
  const one = async (): Promise<void> => {
    for (let next = queue.pop(); next !== undefined; next = queue.pop()) {
      answers[next[0]] = await client.post("/register-did", next[1]);
    }
  };
  await Promise.all(Array.from({ length: 32 }, one));
  const tookSeconds = (performance.now() - startMs) / 1_000;
  const statuses = tally(answers.map(({ status }) => status));
  console.log(`  ${registrations} in ${tookSeconds.toFixed(1)} s: ${JSON.stringify(statuses)}`);
  findings.expect(
    (statuses[202] ?? 0) <= pace.burst + pace.perSecond * (tookSeconds + 1),
    "more than the pace",
  );
  findings.expect((statuses[429] ?? 0) > 0, "nothing was refused");
  const other = await clientFrom("127.0.0.2", stage.url).post(
    "/register-did",
    await registrationOf(await personAt(stage.url)),
  );
  findings.expect(other.status === 202, `another network gets ${other.status}`);
  console.log(`  another network: ${other.status}`);
}

// ------------------------------------------------------------------------------------------- relay

const attackers = 3;
const inboxesEach = 30;
const slowInboxMs = 5_000;

async function attackRelay(stage: Stage, honestAddress: string): Promise<void> {
  const client = clientFrom("127.0.0.9", stage.url);
  const [slowPort, fastPort] = [freePort(), freePort()];
  const ends = [
    launch({ kind: "inbox", port: slowPort, answerAfterMs: slowInboxMs }),
    launch({ kind: "inbox", port: fastPort, answerAfterMs: 0 }),
  ];
  const inboxes = Array.from(
    { length: attackers * inboxesEach },
    (_, i) => `http://127.0.1.${i + 1}:${slowPort}/in`,
  );
  const victims = await Promise.all(inboxes.map((inbox) => personAt(stage.url, inbox)));
  const friend = await personAt(stage.url, `http://127.0.0.1:${fastPort}/in`);
  await registerAll(client, [...victims, friend]);
  for (let attacker = 0; attacker < attackers; attacker++) {
    const to = victims
      .slice(attacker * inboxesEach, (attacker + 1) * inboxesEach)
      .map(({ did }) => did);
    const from = `127.0.0.${11 + attacker}`;
    ends.unshift(launch({ kind: "relay", url: stage.url, from, to, perSecond: 40 }));
  }
  await Bun.sleep(5_000);
  const honest = clientFrom(honestAddress, stage.url);
  const measured = await measure(() => honest.post("/relay", envelopeTo(friend)), seconds, 60);
  for (const end of ends) console.log("  ", JSON.stringify(await end()));
  console.log(`  honest from ${honestAddress}`, JSON.stringify(measured));
  expectOnly(measured, 200, "an honest delivery");
  findings.expect(
    measured.p99 < 500,
    `an honest delivery takes ${measured.p99} ms at the 99th percentile`,
  );
}

// --------------------------------------------------------------------------------------- slow ones

const groupChunks = 25;
const readers = 100;
/** Above what the node has at rest: bodies, answers and the sockets of 700 slow connections. */
const growthMibMax = 768;
/** A hundred long answers begin at once; each keeps the node busy for 0.1 s in all. */
const slowMsMax = 2_000;

async function attackSlowly(stage: Stage): Promise<void> {
  const client = clientFrom("127.0.0.1", stage.url);
  const [bob, carol] = [await personAt(stage.url), await personAt(stage.url)];
  await registerAll(client, [bob, carol]);
  // A newcomer's network has no room for 25 MB.
  await befriend(client, bob, carol);
  const group = Bun.randomUUIDv7();
  const payload = { ciphertext_b64: "A".repeat(1_000_000) };
  for (let sequence = 0; sequence < groupChunks; sequence++) {
    const place = { message_group_id: group, sequence_number: sequence, total_chunks: groupChunks };
    const chunk = envelopeTo(bob, { payload, ...place, delivery_hint: "chunked" });
    const { status, body } = await client.post("/cache/store", signedBy(carol, chunk));
    if (status !== 202) throw new Error(`a chunk was answered with ${status} ${body}`);
  }
  const before = residentMib(stage.node().pid);
  const heads = await Promise.all(Array.from({ length: readers }, () => headOfChunks(bob, group)));
  const ends = [
    launch({ kind: "headers", url: stage.url, from: "127.0.0.21", connections: 300 }),
    launch({ kind: "bodies", url: stage.url, from: "127.0.0.22", connections: 300 }),
    launch({
      kind: "readers",
      url: stage.url,
      from: "127.0.0.23",
      heads: heads.slice(readers / 2),
    }),
    launch({
      kind: "readers",
      url: stage.url,
      from: "127.0.0.24",
      heads: heads.slice(0, readers / 2),
    }),
  ];
  let most = before;
  const watch = setInterval(() => {
    most = Math.max(most, residentMib(stage.node().pid));
  }, 100);
  await Bun.sleep(3_000);
  const honest = await measure(
    storeFrom(client, () => envelopeTo(carol)),
    seconds,
    20,
  );
  const mine = await client.ask({
    path: `/cache/chunks/${bob.did}/${group}`,
    headers: await chunkHeaders(bob, group),
  });
  clearInterval(watch);
  for (const end of ends) console.log("  ", JSON.stringify(await end()));
  console.log("  honest stores", JSON.stringify(honest));
  console.log(
    `  the same group for an honest reader: ${mine.status}, ${mine.body.length} B in ${Math.round(mine.ms)} ms`,
  );
  console.log(`  memory: ${before} MiB before, at most ${most} MiB`);
  expectOnly(honest, 202, "an honest store");
  findings.expect(mine.status === 200, `an honest reader gets ${mine.status}`);
  findings.expect(
    honest.p99 < slowMsMax,
    `an honest store takes ${honest.p99} ms at the 99th percentile`,
  );
  findings.expect(most - before <= growthMibMax, `memory grew by ${most - before} MiB`);
}

async function chunkHeaders(
  { reader }: StagePerson,
  group: string,
): Promise<Record<string, string>> {
  return await proofHeaders(reader, "chunks", group);
}

async function headOfChunks(person: StagePerson, group: string): Promise<string> {
  const lines = Object.entries(await chunkHeaders(person, group)).map(
    ([name, value]) => `${name}: ${value}\r\n`,
  );
  return `GET /cache/chunks/${person.did}/${group} HTTP/1.1\r\nHost: a.example\r\n${lines.join("")}\r\n`;
}

// ---------------------------------------------------------------------------------------- refusals

async function refuseMegabytes(stage: Stage): Promise<void> {
  const client = clientFrom("127.0.0.31", stage.url, 8);
  const text = (mib: number) => `{"payload":"${"a".repeat(mib * 1_048_576)}"}`;
  const cases: [string, string, string, number, number][] = [
    ["a body above the limit", "POST", "/cache/ack", 4, 413],
    ["an unknown route", "POST", "/nowhere", 8, 404],
    ["a wrong method", "PUT", "/cache/store", 8, 405],
    ["a registration above the limit", "POST", "/register-did", 16, 413],
  ];
  for (const [name, method, path, mib, expected] of cases) {
    const body = text(mib);
    const asks = Array.from({ length: 20 }, () =>
      client.ask({ method, path, headers: { "content-type": "application/json" }, body }),
    );
    const statuses = tally((await Promise.all(asks)).map(({ status }) => status));
    console.log(`  ${name}, ${mib} MiB: ${JSON.stringify(statuses)}`);
    findings.expect(statuses[expected] === 20, `${name} gets ${JSON.stringify(statuses)}`);
  }
  const limited = await openStage({
    lines: { cache: ["client_rate = 1", "rate_limit_loopback = true"] },
  });
  const eager = clientFrom("127.0.0.32", limited.url, 8);
  const asks = Array.from({ length: 20 }, () => eager.post("/cache/store", text(1)));
  const statuses = tally((await Promise.all(asks)).map(({ status }) => status));
  console.log(`  beyond the rate, 1 MiB: ${JSON.stringify(statuses)}`);
  findings.expect((statuses[0] ?? 0) === 0, `beyond the rate: ${JSON.stringify(statuses)}`);
  await limited.close();
}

// ------------------------------------------------------------------------------------------ tester

const share = Number(values.share);
const testerRegistrations = 2_500 * share;
const testerStores = 20_000 * share;
const testerRefused = 5_000 * share;
/**
 * One network of newcomers gets some 500 entries of a mailbox by default: 400 each are within that.
 */
const recipients = 50;

/**
 * Registers, stores over 256 connections to several recipients, and asks for much that is refused.
 */
async function beTester(stage: Stage): Promise<void> {
  const client = clientFrom("127.0.0.1", stage.url, 256);
  const people = await Promise.all(Array.from({ length: recipients }, () => personAt(stage.url)));
  await registerAll(client, people);
  const fresh = Array.from({ length: testerRegistrations }, async () =>
    registrationOf(await personAt(stage.url)),
  );
  const registrations = await Promise.all(fresh);
  const all: (() => Promise<Answered>)[] = [
    ...registrations.map((body) => () => client.post("/register-did", body)),
    ...Array.from({ length: testerStores }, (_, i) => {
      const to = people[i % recipients] as StagePerson;
      return () => client.post("/cache/store", envelopeTo(to));
    }),
    ...Array.from(
      { length: testerRefused / 2 },
      () => () => client.post("/cache/store", { not: "an envelope" }),
    ),
    ...Array.from(
      { length: testerRefused / 2 },
      () => () => client.ask({ path: "/resolve/did:svc:nobody" }),
    ),
  ];
  const statuses: number[] = [];
  const startMs = performance.now();
  const one = async (): Promise<void> => {
    for (let next = all.pop(); next !== undefined; next = all.pop())
      statuses.push((await next()).status);
  };
  await Promise.all(Array.from({ length: 256 }, one));
  const counts = tally(statuses);
  console.log(
    `  ${statuses.length} requests in ${((performance.now() - startMs) / 1_000).toFixed(1)} s: ${JSON.stringify(counts)}`,
  );
  const expected: Record<string, number> = {
    202: testerRegistrations + testerStores,
    400: testerRefused,
  };
  for (const status of new Set([...Object.keys(expected), ...Object.keys(counts)]))
    findings.expect(
      counts[status] === expected[status],
      `${counts[status] ?? 0} × ${status}, expected ${expected[status] ?? 0}`,
    );
}

// -------------------------------------------------------------------------------------------- main

const campaigns: Record<
  string,
  { readonly options?: StageOptions; readonly run: (stage: Stage) => Promise<void> }
> = {
  mailbox: { run: attackMailbox },
  "mailbox-dev": { options: { mode: "dev" }, run: attackMailbox },
  networks: { run: attackFromNetworks },
  store: {
    options: { lines: { cache: [`store_entries_max = ${storeEntries}`] } },
    run: attackStore,
  },
  ids: { options: { lines: { "stores.main": [`message_ids_max = ${ids}`] } }, run: attackIds },
  register: { run: attackDirectory },
  relay: { run: (stage) => attackRelay(stage, "127.0.0.1") },
  "relay-beside": { run: (stage) => attackRelay(stage, "127.0.0.11") },
  slow: { run: attackSlowly },
  refusal: { run: refuseMegabytes },
  tester: { run: beTester },
};

for (const [name, { options, run }] of Object.entries(campaigns)) {
  if (values.only !== undefined && values.only !== name) continue;
  console.log(name);
  const stage = await openStage(options);
  try {
    await run(stage);
  } finally {
    await stage.close();
  }
}
findings.exit();
