/**
 * An honest Directory raises no alarm: two nodes over one PostgreSQL store, with a log and a
 * witness, behind an address that picks either for each request, are asked again and again by the
 * SDK, with and without a policy, while keys and root keys are rotated, aliases come, second
 * devices and clients start anew, nodes restart one after the other, and the store is restored from
 * a dump without loss. A proof or a log that is not believed, or an event that warns, is a finding.
 *
 * `bun test/campaigns/twin.ts --look-ups 100000` ends with 1 on a finding, with 2 without
 * PostgreSQL or nats-server. `--canary`: after a while one of the nodes shows what was true at its
 * start, which must be found.
 */
import { parseArgs } from "node:util";
import { ClientError } from "../../src/client/base/failure.ts";
import { change, replaceDocument } from "../../src/client/identity/change.ts";
import { ed25519PublicKey } from "../../src/client/keys/crypto.ts";
import { type KeyStore, memoryKeys } from "../../src/client/keys/key-stores.ts";
import { changeIdentity } from "../../src/client/keys/stored.ts";
import { activeDocument, findName, trustIn } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import type { ConfigInput } from "../../src/config/schema.ts";
import { postgresPlugin } from "../../src/plugins/postgres/postgres.ts";
import { freePort } from "../support/executable.ts";
import { policyOf, waiting } from "../support/lie-stage.ts";
import { loggedNodes, startWitness } from "../support/log-nodes.ts";
import { keyFiles, testKey } from "../support/logs.ts";
import { natsAbsence, startNats } from "../support/nats.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { postgresAbsence, startPostgres } from "../support/postgres.ts";

const { values } = parseArgs({
  options: {
    "look-ups": { type: "string", default: "100000" },
    people: { type: "string", default: "6" },
    restores: { type: "string", default: "5" },
    canary: { type: "boolean", default: false },
  },
});
const absence = postgresAbsence() ?? natsAbsence();
if (absence !== null) {
  console.log(`skipped: ${absence}`);
  process.exit(2);
}
const lookUpsMax = Number(values["look-ups"]);
const pick = <T>(list: readonly T[]): T => list[Math.floor(Math.random() * list.length)] as T;
const findings: string[] = [];
const counts: Record<string, number> = {};
const count = (what: string) => {
  counts[what] = (counts[what] ?? 0) + 1;
};

// ------------------------------------------------------------------------------------------- nodes

const files = keyFiles();
const [database, bus] = await Promise.all([startPostgres(), startNats()]);
const [log, cosigner] = [
  testKey("twin.example/log", "log"),
  testKey("twin.example/witness", "witness"),
];
const ports = [freePort(), freePort()] as const;
const witness = await startWitness({ ...files, key: cosigner }, [
  [log, `http://127.0.0.1:${ports[0]}/log`],
]);
/** Nodes of their own machines: each has its copy of the log's key and of the last signed head. */
const keyFolders = ports.map(() => keyFiles());
const storeOptions = { urls: [database.url], schema: "twin", block_time_ms: 100, connections: 4 };

function configOf(node: number): ConfigInput {
  const given = {
    logFile: keyFolders[node]?.fileOf(log) ?? "",
    cosigner,
    witnessUrl: witness.url,
    port: ports[node] as number,
  };
  return {
    ...loggedNodes(given),
    stores: { main: { plugin: "postgres", ...storeOptions } },
    bus: { plugin: "nats", servers: [bus.url], subject_prefix: "twin" },
  };
}

const parsed = postgresPlugin.parseOptions(storeOptions);
if (!parsed.ok) throw new Error(JSON.stringify(parsed.problems));
await postgresPlugin.migrate?.(parsed.options);
const nodes: (TestNodes | null)[] = [
  await startTestNodes(configOf(0)),
  await startTestNodes(configOf(1)),
];

/** What the canary's node showed at first. */
const firstAnswers = new Map<string, Uint8Array>();
let isCanaryTelling = false;

/**
 * One address for both nodes. A request that a stopping node refuses goes to the other, as a proxy
 * does.
 */
const front = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  idleTimeout: 120,
  async fetch(request) {
    const { pathname, search } = new URL(request.url);
    const { method } = request;
    const body = method === "GET" ? null : await request.bytes();
    const headers = Object.fromEntries(request.headers);
    const order = Math.random() < 0.5 ? [0, 1] : [1, 0];
    for (let tried = 0; ; tried++) {
      const node = order[tried % 2] as number;
      try {
        const answer = await fetch(`http://127.0.0.1:${ports[node]}${pathname}${search}`, {
          method,
          headers,
          body,
        });
        if (answer.status === 503 && tried < 400 && !pathname.startsWith("/log"))
          throw new Error("it is stopping");
        if (values.canary && node === 1 && pathname.endsWith("/proof"))
          return await canaryAnswer(pathname, answer);
        return new Response(await answer.bytes(), {
          status: answer.status,
          headers: answer.headers,
        });
      } catch (error) {
        if (tried >= 400) throw error;
        await Bun.sleep(tried < 2 ? 0 : 25);
      }
    }
  },
});
const url = `http://127.0.0.1:${front.port}`;

async function canaryAnswer(path: string, answer: Response): Promise<Response> {
  const bytes = await answer.bytes();
  if (answer.ok && bytes.length > 0 && !firstAnswers.has(path)) firstAnswers.set(path, bytes);
  return new Response(((isCanaryTelling ? firstAnswers.get(path) : null) ?? bytes).slice(), {
    status: answer.status,
  });
}

async function restartNode(node: number): Promise<void> {
  await nodes[node]?.stop();
  nodes[node] = await startTestNodes(configOf(node));
  count("node restarts");
}

/** Both nodes stop, and go on over a restored store. */
async function restore(): Promise<void> {
  await Promise.all(nodes.map((node) => node?.stop()));
  await database.restore(storeOptions.schema);
  for (const node of [0, 1]) nodes[node] = await startTestNodes(configOf(node));
  count("restores");
}

// ------------------------------------------------------------------------------------------ people

type Person = {
  readonly keys: KeyStore;
  readonly alias: string;
  readonly policy?: string;
  me: Waypost;
};

/** Codes that say that the Directory is not believed. */
const isAlarm = (error: unknown) => error instanceof ClientError && error.kind === "distrusted";

function listen(me: Waypost, name: string): Waypost {
  me.on((event) => {
    if (event.type === "stranger_change") findings.push(`${name}: ${JSON.stringify(event)}`);
    if (event.type !== "failed") return;
    if (isAlarm(event.error))
      findings.push(`${name}: ${event.what} ${event.error.code} ${event.error.message}`);
    else count(`passing failures (${event.error.code})`);
  });
  return me;
}

const optionsOf = ({ keys, alias, policy }: Omit<Person, "me">) => ({
  url: `http://127.0.0.1:${ports[0]}`,
  directoryUrl: url,
  keys,
  alias,
  waiting,
  rotateMs: false as const,
  ...(policy === undefined ? {} : { policy }),
});

async function openPerson(index: number): Promise<Person> {
  const [keys, alias] = [memoryKeys(), `person-${index}`];
  const policy = index % 2 === 0 ? { policy: policyOf(cosigner) } : {};
  const person = { keys, alias, ...policy };
  return { ...person, me: listen(await Waypost.open(optionsOf(person)), alias) };
}

const people = await Promise.all(
  Array.from({ length: Number(values.people) }, (_, index) => openPerson(index)),
);

/** As a message does it, without the message. */
async function lookUp(from: Person, to: Person): Promise<void> {
  const { client } = from.me;
  try {
    const { did } = Math.random() < 0.3 ? await findName(client, to.alias) : to.me;
    await activeDocument(client, did);
    await trustIn(client, did);
    count("look-ups");
  } catch (error) {
    if (isAlarm(error))
      findings.push(`${from.alias} about ${to.alias}: ${(error as ClientError).message}`);
    else count(`passing failures (${error instanceof ClientError ? error.code : error})`);
  }
}

/** Another device of the same identity replaces the key that others seal to. */
async function rotateKey(person: Person): Promise<void> {
  const device = listen(
    await Waypost.open({ ...optionsOf(person), rotateMs: 0 }),
    `${person.alias}'s device`,
  );
  await device.rotate();
  await device.watch();
  count("rotations by a second device");
}

async function rotateRoot(person: Person): Promise<void> {
  const { me, keys } = person;
  const next = crypto.getRandomValues(new Uint8Array(32));
  const signer = { keyId: "root", seed: me.identity.rootSeed };
  const intent = {
    action: "UpdateRootPubkey",
    did: me.did,
    newRootPubkey: await ed25519PublicKey(next),
  } as const;
  await change(me.client, intent, { signer, waiting });
  await replaceDocument(me.client, me.did, { rootSeed: next, edited: (one) => one, waiting });
  const held = { id: `${me.did}#root`, secret: signer.seed };
  // As it is stored: another program on the same keys may have made a secret that is not here.
  await changeIdentity(keys, me.identity, (stored) => ({
    ...stored,
    rootSeed: next,
    methods: [...stored.methods, held],
  }));
  await reopen(person);
  count("root rotations");
}

async function reopen(person: Person): Promise<void> {
  person.me = listen(await Waypost.open(optionsOf(person)), person.alias);
  await person.me.watch();
  count("restarts of a client");
}

/** One change after the other, next to the look-ups. */
async function changeThings(): Promise<void> {
  const cycle = [
    rotateKey,
    reopen,
    rotateRoot,
    () => restartNode(changes % 2 === 0 ? 0 : 1),
    rotateKey,
    reopen,
    rotateKey,
  ];
  for (; !isOver(); changes++) {
    await cycle[changes % cycle.length]?.(pick(people));
    await Bun.sleep(Math.random() * 100);
  }
}

// --------------------------------------------------------------------------------------------- run

const done = () => counts["look-ups"] ?? 0;
let [target, changes, changesLeast] = [0, 0, 0];
const isOver = () => (done() >= target && changes >= changesLeast) || findings.length > 20;

async function lookUpAll(): Promise<void> {
  const work = async (from: Person) => {
    while (!isOver()) await lookUp(from, pick(people));
  };
  await Promise.all([...people, ...people].map(work));
}

const parts = Math.max(1, Math.min(Number(values.restores) + 1, 20));
for (let part = 1; part <= parts && findings.length === 0; part++) {
  target = Math.round((lookUpsMax * part) / parts);
  changesLeast = 7 * part;
  isCanaryTelling = part > 1;
  await Promise.all([changeThings(), lookUpAll()]);
  console.log(`${done()} look-ups; ${JSON.stringify(counts)}; ${findings.length} findings`);
  if (part < parts) await restore();
}

await Promise.all(nodes.map((node) => node?.stop()));
await front.stop(true);
await Promise.all([witness.stop(), bus.end(), database.end()]);
for (const one of [files, ...keyFolders]) one.remove();
for (const finding of findings.slice(0, 20)) console.log(finding);
process.exit(findings.length === 0 ? 0 : 1);
