/**
 * Distinct recipients, each with a live session at one node; then that node is killed, and all of
 * them reconnect to another one, each as the SDK does. Every session must be back, and a message to
 * it must arrive there.
 *
 * `ulimit -n 65536; bun test/campaigns/sessions.ts --sessions 10000` prints how long the sessions
 * took to open, the memory of the node for each, and how long the storm lasted. Nodes, database,
 * bus and clients share the machine. Needs Debian's postgresql and nats-server.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { backoffMs, ClientError } from "../../src/client/base/failure.ts";
import { listenLive } from "../../src/client/net/connections.ts";
import { endpoint } from "../../src/client/net/http.ts";
import type { Reader } from "../../src/client/net/reader.ts";
import { executable, freePort } from "../support/executable.ts";
import { natsAbsence, startNats } from "../support/nats.ts";
import { postgresAbsence, startPostgres } from "../support/postgres.ts";
import {
  envelopeTo,
  Findings,
  personAt,
  registrationOf,
  residentMib,
  type StagePerson,
} from "./stage.ts";

const { values: flags } = parseArgs({
  options: {
    sessions: { type: "string", default: "10000" },
    seconds: { type: "string", default: "300" },
  },
});
const absence = postgresAbsence() ?? natsAbsence();
if (absence !== null) {
  console.log(`skipped: ${absence}`);
  process.exit(2);
}
const count = Number(flags.sessions);
const findings = new Findings();
const folder = mkdtempSync(join(tmpdir(), "waypost-sessions-"));
const main = await executable();
const [database, bus] = await Promise.all([
  startPostgres(["max_connections=60", "shared_buffers=256MB"]),
  startNats(),
]);
const urls = [0, 1].map(() => `http://127.0.0.1:${freePort()}`);
const lines = {
  "stores.main": ['plugin = "postgres"', `urls = ["${database.url}"]`, "block_time_ms = 500"],
  server: ['log_level = "warn"'],
  bus: ['plugin = "nats"', `servers = ["${bus.url}"]`],
  directory: ["enabled = true", "rate_limit_loopback = false"],
  relay: [
    ...["enabled = true", 'public_id = "campaign"', `public_endpoints = ${JSON.stringify(urls)}`],
    ...["allow_http = true", 'allow_private = ["127.0.0.0/8"]', "rate_limit_loopback = false"],
    // One network may have half of them, and all clients are one here.
    `sessions_max = ${4 * count}`,
  ],
  cache: [
    "enabled = true",
    `public_endpoints = ${JSON.stringify(urls)}`,
    "rate_limit_loopback = false",
  ],
};
const config = join(folder, "waypost.toml");
writeFileSync(
  config,
  Object.entries(lines)
    .map(([section, own]) => `[${section}]\n${own.join("\n")}\n`)
    .join("\n"),
);

async function startNode(url: string): Promise<Bun.Subprocess> {
  const listen = JSON.stringify([url.slice("http://".length)]);
  const env = { PATH: process.env["PATH"] ?? "", HOME: folder, WAYPOST_SERVER__LISTEN: listen };
  const log = Bun.file(join(folder, `node-${new URL(url).port}.log`));
  const child = Bun.spawn([main, "serve", "--config", config], {
    env,
    stdout: log,
    stderr: log,
  });
  const isReady = async () => (await fetch(`${url}/readyz`).catch(() => null))?.ok === true;
  while (!(await isReady())) {
    if (child.exitCode !== null) throw new Error(`a node ended: ${await log.text()}`);
    await Bun.sleep(50);
  }
  return child;
}

async function each<T>(
  list: readonly T[],
  atOnce: number,
  work: (one: T, n: number) => Promise<void>,
): Promise<void> {
  let next = 0;
  const run = async () => {
    for (let n = next++; n < list.length; n = next++) await work(list[n]!, n);
  };
  await Promise.all(Array.from({ length: atOnce }, run));
}

async function servedByAll(): Promise<StagePerson> {
  const person = await personAt(urls[1]!);
  const service = person.document.service.map((one) => ({ ...one, serviceEndpoint: urls }));
  return { ...person, document: { ...person.document, service } };
}

const seconds = (sinceMs: number) => ((performance.now() - sinceMs) / 1_000).toFixed(1);

type Session = {
  readonly person: StagePerson;
  tries: number;
  ready: boolean;
  readonly heard: Set<string>;
};
/** The node that takes the sessions, as a proxy would choose it. */
let serving = urls[0]!;
const ending = new AbortController();
const refusals = new Map<string, number>();

/** As the SDK's loop: again after each end, behind a pause that grows. */
async function keepSession(session: Session): Promise<void> {
  for (let failures = 0; !ending.signal.aborted; ) {
    const reader: Reader = { ...session.person.live, at: endpoint(serving, 30_000) };
    const events = {
      onReady: () => {
        failures = 0;
        session.ready = true;
      },
      onEnvelope: async ({ messageId }: { readonly messageId: string }) => {
        session.heard.add(messageId);
        return true;
      },
    };
    session.tries++;
    const error = await listenLive(reader, "phone", events, ending.signal).then(
      () => null,
      (thrown: unknown) => thrown,
    );
    if (ending.signal.aborted) return;
    const code =
      error instanceof ClientError ? error.code : error === null ? "ended" : String(error);
    refusals.set(code, (refusals.get(code) ?? 0) + 1);
    session.ready = false;
    await Bun.sleep(backoffMs(failures++));
  }
}

/** Prints when each part of the sessions was there. */
async function allReady(what: string, sinceMs: number): Promise<void> {
  const parts = [0.5, 0.9, 0.99, 1];
  const reached: string[] = [];
  for (
    const endMs = sinceMs + Number(flags.seconds) * 1_000;
    parts.length > 0;
    await Bun.sleep(20)
  ) {
    const ready = sessions.filter((one) => one.ready).length;
    while (parts.length > 0 && ready >= parts[0]! * count)
      reached.push(`${parts.shift()! * 100} % ${seconds(sinceMs)} s`);
    if (performance.now() < endMs) continue;
    findings.expect(false, `${count - ready} of ${count} sessions are not there`);
    break;
  }
  const tries = sessions.reduce((sum, one) => sum + one.tries, 0);
  console.log(
    `${what}: ${reached.join(", ")}; ${tries} tries, ended: ${JSON.stringify(Object.fromEntries(refusals))}`,
  );
}

/** A message to each of some recipients arrives in its session. */
async function checkDelivery(): Promise<void> {
  const some = sessions.filter((_, n) => n % Math.ceil(count / 200) === 0);
  await each(some, 16, async ({ person, heard }) => {
    const envelope = envelopeTo(person);
    const body = JSON.stringify(envelope);
    const headers = { "content-type": "application/json" };
    const answer = await fetch(`${urls[1]}/relay`, { method: "POST", headers, body });
    if (!answer.ok)
      findings.expect(false, `a message was answered with ${answer.status} ${await answer.text()}`);
    const id = String(envelope["message_id"]);
    for (const endMs = performance.now() + 30_000; !heard.has(id) && performance.now() < endMs; )
      await Bun.sleep(20);
    if (!heard.has(id)) findings.expect(false, `a message to ${person.did} did not come live`);
  });
  console.log(`${some.length} messages sent to live sessions`);
}

const migrated = Bun.spawnSync([main, "storage", "migrate", "--config", config]);
if (migrated.exitCode !== 0) throw new Error(`${migrated.stdout}${migrated.stderr}`);
const nodes: Bun.Subprocess[] = [];
nodes[1] = await startNode(urls[1]!);
const begunMs = performance.now();
const people = await Promise.all(Array.from({ length: count }, servedByAll));

const sessions: Session[] = people.map((person) => ({
  person,
  tries: 0,
  ready: false,
  heard: new Set(),
}));
try {
  const headers = { "content-type": "application/json" };
  await each(people, 64, async (person) => {
    const body = Buffer.from(await registrationOf(person));
    for (;;) {
      const { status } = await fetch(`${urls[1]}/register-did`, { method: "POST", headers, body });
      if (status === 202) return;
      if (status < 500) throw new Error(`a registration was answered with ${status}`);
      await Bun.sleep(100);
    }
  });
  await each(people, 64, async ({ did }) => {
    while (!(await fetch(`${urls[1]}/resolve/${did}`)).ok) await Bun.sleep(50);
  });
  console.log(`${count} registrations over HTTP in ${seconds(begunMs)} s`);
  nodes[0] = await startNode(urls[0]!);
  const before = nodes.map(({ pid }) => residentMib(pid));
  const openingMs = performance.now();
  const work = sessions.map(keepSession);
  await allReady("opened", openingMs);
  await Bun.sleep(2_000);
  const kib = (n: number) =>
    (((residentMib(nodes[n]!.pid) - before[n]!) * 1_024) / count).toFixed(1);
  console.log(`${kib(0)} KiB for each session at its node, ${kib(1)} at the other`);
  for (const one of sessions) Object.assign(one, { ready: false, tries: 0 });
  refusals.clear();
  const killedMs = performance.now();
  serving = urls[1]!;
  nodes[0]!.kill("SIGKILL");
  await allReady("after the node was killed", killedMs);
  await checkDelivery();
  console.log(`${residentMib(nodes[1]!.pid)} MiB at the other node afterwards`);
  ending.abort();
  await Promise.all(work);
} finally {
  for (const node of nodes) node.kill("SIGKILL");
  await Promise.all([database.end(), bus.end()]);
  rmSync(folder, { recursive: true, force: true });
}
findings.exit();
