/**
 * Honest people next to attackers. At the compiled executable, each attack runs from loopback
 * addresses of its own, as fast as it may; next to it a sender that the recipient knows, a newcomer
 * at a new address each time, a person in a live session, a newcomer and five envelopes at once of
 * one network to an inbox elsewhere get through in 99 of 100 tries, each below 500 ms. Everything
 * goes over sockets.
 *
 * - `none`: no attack, for comparison.
 * - `known`: a stranger whom the recipient acknowledged under two DIDs fills all that they may of a
 *   mailbox whose recipient is away (H1); test/property/pools.test.ts plays more DIDs and networks,
 *   for two days.
 * - `refused`: one client's envelopes to the recipient are refused, 48 a second (H2).
 * - `ledger`: networks register as fast as they can (M6).
 * - `fan-out`: one client's envelopes of 0.4 MB to people with sixteen inboxes that answer 500
 *   after two seconds (M7).
 * - `hanging`: nine networks send to eight inboxes that answer 500 after nine seconds, more than
 *   the Relay sends at once.
 * - `silent`: sessions of five networks read and never acknowledge what is sent to them (M8).
 * - `unread`: sessions of five networks never read what is sent to them, until the kernel's buffers
 *   and the node's are full.
 *
 * `bun test/campaigns/beside.ts --tries 100` prints the figures; `--only silent` runs some,
 * `--within 500` is the limit.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { proofHeaders } from "../../src/client/net/reader.ts";
import type { JsonObject } from "../../src/core/codec/json.ts";
import { freePort } from "../support/executable.ts";
import type { Plan } from "./beside-attacker.ts";
import {
  type Answered,
  befriend,
  clientFrom,
  envelopeTo,
  Findings,
  openStage,
  percentile,
  personAt,
  registerAll,
  registrationOf,
  type Stage,
  type StageOptions,
  type StagePerson,
  signedBy,
  tally,
} from "./stage.ts";

const { values } = parseArgs({
  options: {
    tries: { type: "string", default: "100" },
    within: { type: "string", default: "500" },
    only: { type: "string" },
  },
});
const tries = Number(values.tries);
const withinMs = Number(values.within);
/** Of 100 tries one may fail. */
const lateMax = Math.ceil(tries / 100);
const everyMs = 50;
const findings = new Findings();

/** Addresses from 127.0.`block`.1 on. */
const addresses = (block: number, count: number) =>
  Array.from({ length: count }, (_, n) => `127.0.${block}.${n + 1}`);
const attackers = addresses(66, 5);

// -------------------------------------------------------------------------------------- the honest

type World = {
  readonly stage: Stage;
  readonly bob: StagePerson;
  readonly alice: StagePerson;
  readonly carol: StagePerson;
  /** Has an inbox elsewhere. */
  readonly dave: StagePerson;
};

/** An upgrade to a live session with its proof, as it goes over the wire. */
async function upgradeOf(person: StagePerson, deviceId: string, url: string): Promise<string> {
  const headers = {
    Host: new URL(url).host,
    Upgrade: "websocket",
    Connection: "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": btoa("0123456789abcdef"),
    ...(await proofHeaders(person.live, "connect", deviceId)),
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  return [`GET /ws/${person.did}/${deviceId} HTTP/1.1`, ...lines, "", ""].join("\r\n");
}

/** A session that acknowledges whatever it gets; returns a function that ends it. */
async function goLive(person: StagePerson, url: string): Promise<() => void> {
  const headers = await proofHeaders(person.live, "connect", "phone");
  const Socket = WebSocket as typeof WebSocket &
    (new (
      url: string,
      options: Bun.WebSocketOptions,
    ) => Bun.WebSocket);
  const socket = new Socket(`${url.replace("http", "ws")}/ws/${person.did}/phone`, { headers });
  const { promise, resolve } = Promise.withResolvers<void>();
  socket.onmessage = ({ data }) => {
    const { type, message_id } = JSON.parse(String(data)) as {
      readonly type?: string;
      readonly message_id?: string;
    };
    if (type === "welcome") resolve();
    else socket.send(JSON.stringify({ type: "ack", message_id }));
  };
  await promise;
  return () => socket.close();
}

/** So many tries, one after the other, at a pace. */
async function tryAgain(who: string, send: (n: number) => Promise<Answered>): Promise<void> {
  const answers: Answered[] = [];
  for (let n = 0; n < tries; n++) {
    const answer = await send(n);
    answers.push(answer);
    await Bun.sleep(Math.max(0, everyMs - answer.ms));
  }
  const passed = answers.filter(({ status, ms }) => status >= 200 && status < 300 && ms < withinMs);
  const times = answers.map(({ ms }) => ms);
  const figures = `p50 ${Math.round(percentile(times, 50))} p99 ${Math.round(percentile(times, 99))} ms`;
  console.log(
    `  ${who}: ${passed.length} of ${tries}, ${figures}, ${JSON.stringify(tally(answers.map((a) => a.status)))}`,
  );
  const other = answers.find(({ status }) => status < 200 || status >= 300)?.body ?? "";
  findings.expect(
    tries - passed.length <= lateMax,
    `${who}: ${passed.length} of ${tries} ${other.slice(0, 300)}`,
  );
}

async function measureHonest({ stage, bob, alice, carol, dave }: World): Promise<void> {
  const near = clientFrom("127.0.90.1", stage.url);
  const live = clientFrom("127.0.91.1", stage.url);
  const office = clientFrom("127.0.92.1", stage.url);
  const newcomer = (block: number, to: StagePerson) => async (n: number) => {
    const client = clientFrom(`127.${block}.${Math.floor(n / 200)}.${(n % 200) + 1}`, stage.url);
    const answer = await client.post("/relay", envelopeTo(to));
    client.close();
    return answer;
  };
  await Promise.all([
    tryAgain("known sender", () => near.post("/relay", signedBy(alice, envelopeTo(bob)))),
    tryAgain("five of one network to an inbox", async () => {
      const five = Array.from({ length: 5 }, () =>
        office.post("/relay", signedBy(alice, envelopeTo(dave))),
      );
      const answers = await Promise.all(five);
      // Below the rate of a network.
      await Bun.sleep(3 * everyMs);
      const [first] = answers.sort((a, b) => b.status - a.status || b.ms - a.ms);
      return first as Answered;
    }),
    tryAgain("newcomer", newcomer(1, bob)),
    tryAgain("newcomer to an inbox", newcomer(2, dave)),
    tryAgain("live session", () => live.post("/relay", envelopeTo(carol))),
  ]);
}

// ------------------------------------------------------------------------------------- the attacks

type Attack = Omit<Plan, "url">;
const nothing: Attack = {
  posts: null,
  sessions: { heads: [], from: attackers, reads: true },
  inbox: null,
};
const bodiesOf = (envelopes: readonly unknown[]) =>
  envelopes.map((envelope) => JSON.stringify(envelope));
const fast = 100_000;

const attackerCount = 2;
async function knownStranger({ stage, bob }: World): Promise<Attack> {
  const client = clientFrom(attackers[0] as string, stage.url);
  const people = await Promise.all(
    Array.from({ length: attackerCount }, () => personAt(stage.url)),
  );
  await registerAll(client, people);
  for (const person of people) await befriend(client, bob, person);
  const bodies = people.flatMap((person) =>
    bodiesOf(Array.from({ length: 1_500 }, () => signedBy(person, envelopeTo(bob)))),
  );
  const posts = {
    path: "/cache/store",
    bodies,
    from: attackers.slice(0, 1),
    connections: 32,
    perSecond: fast,
  };
  return { ...nothing, posts };
}

async function refusedClient({ bob, alice }: World): Promise<Attack> {
  const bodies = bodiesOf(
    Array.from({ length: 500 }, () => ({ ...signedBy(alice, envelopeTo(bob)), ttl: "2h" })),
  );
  return {
    ...nothing,
    posts: { path: "/relay", bodies, from: attackers.slice(0, 1), connections: 16, perSecond: 48 },
  };
}

async function growingLedger({ stage }: World): Promise<Attack> {
  const people = await Promise.all(Array.from({ length: 4_000 }, () => personAt(stage.url)));
  const bodies = await Promise.all(
    people.map(async (person) => new TextDecoder().decode(await registrationOf(person))),
  );
  const posts = { path: "/register-did", bodies, from: attackers, connections: 8, perSecond: fast };
  return { ...nothing, posts };
}

const fresh = { message_id: "$id" };
const large = { ...fresh, payload: { ciphertext_b64: "A".repeat(400_000) } };

async function fanOut({ stage }: World): Promise<Attack> {
  const inboxPort = freePort();
  const people = await Promise.all(Array.from({ length: 20 }, () => personAt(stage.url)));
  const many = people.map((person) => {
    const service = Array.from({ length: 4 }, (_, n) => ({
      id: `${person.did}#inbox${n}`,
      type: "SvcInboxService",
      serviceEndpoint: Array.from(
        { length: 4 },
        (_, m) => `http://127.0.${n}.${m + 2}:${inboxPort}/${person.did}`,
      ),
      authorization: null,
      priority: null,
    }));
    return { ...person, document: { ...person.document, service } };
  });
  await registerAll(clientFrom(attackers[0] as string, stage.url), many);
  const bodies = bodiesOf(many.map((person) => envelopeTo(person, large)));
  const posts = {
    path: "/relay",
    bodies,
    from: attackers.slice(0, 1),
    connections: 100,
    perSecond: 50,
  };
  return { ...nothing, posts, inbox: { port: inboxPort, delayMs: 2_000 } };
}

async function hangingInboxes({ stage }: World): Promise<Attack> {
  const port = freePort();
  const inboxes = addresses(67, 8).map((address) => `http://${address}:${port}/in`);
  const people = await Promise.all(inboxes.map((inbox) => personAt(stage.url, inbox)));
  await registerAll(clientFrom(attackers[0] as string, stage.url), people);
  const bodies = bodiesOf(people.map((person) => envelopeTo(person, fresh)));
  // Each takes half of what the former ones leave, so that nothing is left.
  const from = addresses(66, 9).flatMap((address, n) =>
    new Array<string>([128, 64, 32, 16, 8, 4, 2, 1, 1][n] ?? 0).fill(address),
  );
  const posts = { path: "/relay", bodies, from, connections: 4, perSecond: 400 };
  return { ...nothing, posts, inbox: { port, delayMs: 9_000 } };
}

/** Sessions of ten people, sixteen each, and envelopes for them. */
async function heldSessions(
  { stage }: World,
  {
    reads,
    change,
    perSecond,
  }: { readonly reads: boolean; readonly change: JsonObject; readonly perSecond: number },
): Promise<Attack> {
  const people = await Promise.all(Array.from({ length: 10 }, () => personAt(stage.url)));
  await registerAll(clientFrom(attackers[0] as string, stage.url), people);
  const heads = await Promise.all(
    people.flatMap((person) =>
      Array.from({ length: 16 }, (_, n) => upgradeOf(person, `d${n}`, stage.url)),
    ),
  );
  const bodies = bodiesOf(people.map((person) => envelopeTo(person, change)));
  const posts = { path: "/relay", bodies, from: attackers, connections: 64, perSecond };
  return { posts, sessions: { heads, from: addresses(66, 10), reads }, inbox: null };
}

type Scene = {
  readonly attack: (world: World) => Promise<Attack>;
  readonly options?: StageOptions;
};
/** Loopback addresses count like those of strangers. */
const counted = ["rate_limit_loopback = true"];
const scenes: Readonly<Record<string, Scene>> = {
  none: { attack: async () => nothing },
  known: { attack: knownStranger },
  refused: { attack: refusedClient },
  ledger: { attack: growingLedger },
  "fan-out": { attack: fanOut },
  hanging: { attack: hangingInboxes },
  silent: {
    attack: (world) => heldSessions(world, { reads: true, change: fresh, perSecond: 400 }),
  },
  unread: {
    attack: (world) => heldSessions(world, { reads: false, change: large, perSecond: 40 }),
  },
};

// -------------------------------------------------------------------------------------------- main

/** Starts the attacker, and returns when it attacks; the answer ends it and gives its figures. */
async function launch(plan: Plan, folder: string): Promise<() => Promise<string>> {
  const file = join(folder, "attack.json");
  writeFileSync(file, JSON.stringify(plan));
  const script = join(import.meta.dir, "beside-attacker.ts");
  const child = Bun.spawn([process.execPath, script, file], { stdin: "pipe", stdout: "pipe" });
  const lines = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (!text.includes("ready\n")) text += (await lines.read()).value ?? "";
  return async () => {
    child.stdin.end();
    for (let more = await lines.read(); !more.done; more = await lines.read()) text += more.value;
    await child.exited;
    return text.split("\n")[1] ?? "";
  };
}

const gatherMs = 2_000;

const elsewhere = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  fetch: () => Bun.sleep(50).then(() => new Response("taken")),
});

for (const [name, { attack, options = { lines: { cache: counted } } }] of Object.entries(scenes)) {
  if (values.only !== undefined && !values.only.split(",").includes(name)) continue;
  console.log(name);
  const stage = await openStage(options);
  try {
    const [bob, alice, carol] = [
      await personAt(stage.url),
      await personAt(stage.url),
      await personAt(stage.url),
    ];
    const dave = await personAt(stage.url, `http://127.0.0.1:${elsewhere.port}/in`);
    const client = clientFrom("127.0.90.1", stage.url);
    await registerAll(client, [bob, alice, carol, dave]);
    await befriend(client, bob, alice);
    const leave = await goLive(carol, stage.url);
    const world = { stage, bob, alice, carol, dave };
    const end = await launch({ url: stage.url, ...(await attack(world)) }, stage.folder);
    await Bun.sleep(gatherMs);
    await measureHonest(world);
    console.log(`  attacker: ${await end()}`);
    leave();
  } finally {
    await stage.close();
  }
}
await elsewhere.stop(true);
findings.exit();
