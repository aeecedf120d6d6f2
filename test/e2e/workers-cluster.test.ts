/**
 * Two executables of two threads each on one PostgreSQL and one nats-server: each answers what another stored, sessions
 * are reached from all of them, a failed database or bus comes back by itself, and a revoked key reads nothing a second
 * later. Reports when the servers are missing.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { change } from "../../src/client/change.ts";
import { type Client, cachesOf, connect, liveEndpoints } from "../../src/client/client.ts";
import { ed25519PublicKey } from "../../src/client/crypto.ts";
import { waitingDefault } from "../../src/client/directory.ts";
import { createIdentity, type Identity } from "../../src/client/keys.ts";
import { listenLive, proofHeaders, type Reader } from "../../src/client/reader.ts";
import { firstDocument, register, settleRegistration } from "../../src/client/registration.ts";
import { listPending } from "../../src/client/retrieve.ts";
import { renderPublicKey } from "../../src/core/codec/bytes.ts";
import { executable, freePort, type RunningNode, run, scratchFolder, startNode } from "../support/executable.ts";
import { type NatsServer, natsAbsence, startNats } from "../support/nats.ts";
import { type PostgresServer, postgresAbsence, startPostgres } from "../support/postgres.ts";

const absence = postgresAbsence() ?? natsAbsence();
const urls = { a: `http://127.0.0.1:${freePort()}`, b: `http://127.0.0.1:${freePort()}` };
const waiting = { ...waitingDefault, timeoutMs: 20_000, intervalMs: 20 };

/** Each request on a connection of its own, so that the system spreads them over the workers. */
const alone = { "content-type": "application/json", connection: "close" };

function envelope(to: string, messageId: string): string {
  const payload = { ciphertext_b64: "AAAA" };
  return JSON.stringify({ message_id: messageId, to, timestamp: new Date().toISOString(), ttl: "1h", payload });
}

async function post(url: string, body: string): Promise<{ status: number; mode: unknown }> {
  const response = await fetch(url, { method: "POST", body, headers: alone });
  const answer: unknown = await response.json();
  return { status: response.status, mode: Reflect.get(Object(answer), "delivery_mode") };
}

async function until(holds: () => boolean | Promise<boolean>, what: string, ms = 30_000): Promise<void> {
  for (const endMs = performance.now() + ms; !(await holds()); await Bun.sleep(20))
    if (performance.now() > endMs) throw new Error(`it did not come to that in time: ${what}`);
}

function declareCluster(): void {
  const scratch = scratchFolder();
  const running: RunningNode[] = [];
  const client: Client = connect({ directoryUrl: urls.a, relayUrl: urls.a });
  let database: PostgresServer;
  let bus: NatsServer;
  let bob: Identity;

  /** Node A has the Directory; B asks it over HTTP, and remembers what it answered. */
  const start = async (name: "a" | "b"): Promise<void> => {
    const folder = join(scratch.path, name);
    const directory = name === "a" ? "[directory]\nenabled = true\nrate_limit_loopback = false" : "";
    const recipients = name === "a" ? "" : `recipients = "${urls.a}"`;
    const local = `allow_http = true\nallow_private = ["127.0.0.0/8"]\nrate_limit_loopback = false\n${recipients}`;
    const sections = [
      `[server]\nlisten = ["${urls[name].slice("http://".length)}"]\nworkers = 2\ndrain_timeout = "2s"`,
      `[stores.main]\nplugin = "postgres"\nurls = ["${database.url}"]\nblock_time_ms = 100`,
      `[bus]\nplugin = "nats"\nservers = ["${bus.url}"]`,
      directory,
      `[relay]\nenabled = true\npublic_id = "cluster"\npublic_endpoints = ["${urls.a}", "${urls.b}"]\n${local}`,
      `[cache]\nenabled = true\npublic_endpoints = ["${urls.a}", "${urls.b}"]\n${recipients}`,
    ];
    mkdirSync(folder);
    writeFileSync(join(folder, "waypost.toml"), `${sections.join("\n")}\n`);
    if (name === "a") expect((await run(["storage", "migrate"], { cwd: folder })).code).toBe(0);
    running.push(await startNode(["serve"], { cwd: folder, url: urls[name] }));
  };
  const enrol = async (): Promise<Identity> => {
    const identity = createIdentity("bob");
    const first = await firstDocument(identity, { relayUrl: urls.a, cacheUrl: urls.a });
    const service = first.service.map((one) => ({ ...one, serviceEndpoint: [urls.a, urls.b] }));
    const document = { ...first, service };
    await settleRegistration(client, await register(client, identity, { document, alias: null }), waiting);
    return identity;
  };
  const held = async (): Promise<Set<string>> => {
    const { pending, unreachable } = await listPending(await cachesOf(client, bob, ""));
    expect(unreachable).toEqual([]);
    return new Set(pending.flatMap((message) => message.held.map(({ messageId }) => messageId)));
  };
  /** Stores one message after the other at both nodes until `stop`; answers the ids that were answered with 202. */
  const storing = (stop: () => boolean, answered: string[], refused: Set<number>): Promise<unknown> =>
    Promise.all(
      [urls.a, urls.b, urls.a, urls.b].map(async (url) => {
        while (!stop()) {
          const id = crypto.randomUUID();
          const { status } = await post(`${url}/cache/store`, envelope(bob.did, id));
          if (status === 202) answered.push(id);
          else refused.add(status);
        }
      }),
    );

  beforeAll(async () => {
    await executable();
    [database, bus] = await Promise.all([startPostgres(["fsync=on", "max_connections=60"]), startNats()]);
    await start("a");
    await start("b");
    bob = await enrol();
  }, 240_000);
  afterAll(async () => {
    await Promise.all(running.map((node) => node.kill("SIGKILL")));
    await Promise.all([database?.end(), bus?.end()]);
    scratch.remove();
  }, 60_000);

  test("each thread answers what any other stored", async () => {
    const ids = Array.from({ length: 24 }, () => crypto.randomUUID());
    const answers = await Promise.all(
      ids.map((id, n) => post(`${n % 2 === 0 ? urls.a : urls.b}/cache/store`, envelope(bob.did, id))),
    );
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([202]));
    const known = await held();
    expect(ids.filter((id) => !known.has(id))).toEqual([]);
    // The thread of the stores does not name itself.
    for (const node of running)
      for (const end of [/"status":202,"ms":[0-9.]+}$/m, /"status":202,"ms":[0-9.]+,"worker":1}$/m])
        await until(() => end.test(node.printed()), `a line like ${end}`);
  }, 60_000);

  test("a database that is away is 503, comes back by itself, and nothing answered is lost", async () => {
    const answered: string[] = [];
    const refused = new Set<number>();
    let stopped = false;
    const work = storing(() => stopped, answered, refused);
    await until(() => answered.length >= 20, "20 stores before");
    await database.stop("immediate");
    await until(() => refused.has(503), "a refusal while the database is away");
    const before = answered.length;
    await database.start();
    await until(() => answered.length >= before + 20, "20 stores after");
    stopped = true;
    await work;
    expect(refused).toEqual(new Set([503]));
    const known = await held();
    expect(answered.filter((id) => !known.has(id))).toEqual([]);
    for (const url of Object.values(urls))
      await until(async () => (await fetch(`${url}/readyz`)).ok, `${url} is ready`);
  }, 120_000);

  test("a session is reached from all workers, and while the bus is away messages go to the Cache", async () => {
    const places = await liveEndpoints(client, bob, "laptop");
    const place = places.find(({ at }) => at.url === urls.b);
    if (place === undefined) throw new Error("no Relay to listen at");
    const stop = new AbortController();
    const got: string[] = [];
    const ready = Promise.withResolvers<void>();
    const onEnvelope = async ({ messageId }: { readonly messageId: string }) => got.push(messageId) > 0;
    const ended = listenLive(place, { onReady: ready.resolve, onEnvelope }, stop.signal);
    await Promise.race([ready.promise, ended]);
    const sendAll = async (): Promise<{ ids: string[]; modes: Set<string> }> => {
      const ids = Array.from({ length: 12 }, () => crypto.randomUUID());
      const sent = await Promise.all(
        ids.map((id, n) => post(`${n % 2 === 0 ? urls.a : urls.b}/relay`, envelope(bob.did, id))),
      );
      return { ids, modes: new Set(sent.map(({ status, mode }) => `${status} ${mode}`)) };
    };
    const direct = await sendAll();
    expect(direct.modes).toEqual(new Set(["200 direct"]));
    expect(got.toSorted()).toEqual(direct.ids.toSorted());
    await bus.stop();
    // Those that reach the worker of the session need no bus.
    const away = await sendAll();
    expect([...away.modes].filter((mode) => mode !== "200 direct")).toEqual(["202 cache"]);
    const known = new Set([...(await held()), ...got]);
    expect(away.ids.filter((id) => !known.has(id))).toEqual([]);
    await bus.start();
    await until(async () => (await sendAll()).modes.has("200 direct"), "the session is reached again");
    await until(async () => (await sendAll()).modes.size === 1, "from every worker");
    stop.abort();
    await ended;
  }, 120_000);

  test("a revoked key reads nowhere a second later", async () => {
    const readers = (await cachesOf(client, bob, "")).map(({ reader }) => reader);
    expect(readers.map(({ at }) => at.url).sort()).toEqual(Object.values(urls).sort());
    /** The last pull that was begun and answered with 200, for each node. */
    const lastRead = new Map<string, number>();
    const statuses = new Map<string, Set<number>>();
    let stopped = false;
    const pulling = readers.flatMap((reader) =>
      Array.from({ length: 4 }, async () => {
        while (!stopped) {
          const begunMs = performance.now();
          const status = await pull(reader);
          if (status === 200) lastRead.set(reader.at.url, Math.max(begunMs, lastRead.get(reader.at.url) ?? 0));
          statuses.set(reader.at.url, (statuses.get(reader.at.url) ?? new Set()).add(status));
          await Bun.sleep(10);
        }
      }),
    );
    await until(() => lastRead.size === 2, "both nodes let the key read");
    const publicKey = await ed25519PublicKey(crypto.getRandomValues(new Uint8Array(32)));
    const verificationMethod = {
      id: `${bob.did}#root`,
      type: "Multikey",
      controller: bob.did,
      publicKeyMultibase: renderPublicKey(publicKey),
    };
    const signer = { keyId: "root", seed: bob.rootSeed };
    await change(
      client,
      { action: "UpdateVerificationMethod", did: bob.did, verificationMethod },
      { signer, waiting: { ...waiting, intervalMs: 10 } },
    );
    const revokedMs = performance.now();
    await Bun.sleep(3_000);
    stopped = true;
    await Promise.all(pulling);
    for (const [url, atMs] of lastRead) expect([url, atMs - revokedMs < 1_000]).toEqual([url, true]);
    for (const seen of statuses.values()) expect([...seen].sort()).toEqual([200, 401]);
  }, 60_000);
}

async function pull(reader: Reader): Promise<number> {
  const headers = { ...(await proofHeaders(reader, "pull", "*")), connection: "close" };
  const response = await fetch(`${reader.at.url}/cache/messages/${reader.did}?limit=1`, { headers });
  await response.arrayBuffer();
  return response.status;
}

if (absence === null) declareCluster();
else test(`skipped: ${absence}`, () => {});
