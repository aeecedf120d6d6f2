/**
 * A database that is lost and restored to a point in time, by the steps of docs/run.md: what was
 * answered before that point is there, what came later is not, and what was acknowledged later
 * waits again. The log of its Directory loses nothing.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { cachesOf } from "../../src/client/trust/caches.ts";
import { forget } from "../../src/client/trust/own.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { hourMs } from "../../src/core/codec/time.ts";
import { postgresPlugin } from "../../src/plugins/postgres/postgres.ts";
import { optionsOf } from "../conformance/options.ts";
import { freePort, scratchFolder } from "../support/executable.ts";
import { startWitness } from "../support/log-nodes.ts";
import { keyFiles, testKey, vkeyOf } from "../support/logs.ts";
import { relayAt, startTestNodes, type TestNodes } from "../support/nodes.ts";
import { untilWaiting, waiting } from "../support/people.ts";
import { type PostgresServer, postgresAbsence, startPostgres } from "../support/postgres.ts";
import { pause } from "../support/wait.ts";

const absence = postgresAbsence();
const folder = scratchFolder();
const urls = [freePort(), freePort()].map((port) => `http://127.0.0.1:${port}`);
const sockets = urls.map((_, n) => join(folder.path, `${n}.sock`));
let server: PostgresServer;
let witness: TestNodes | undefined;
let nodes: TestNodes[] = [];

const [logKey, cosigner] = [
  testKey("restored.example/log", "log"),
  testKey("restored.example/witness", "witness"),
];
/** Each process has its own copy. */
const files = [...urls, "witness"].map(() => keyFiles());
const keyFileOf = files.map(({ fileOf }) => fileOf(logKey));

const storeOptions = () => ({ urls: [server.url], connections: 4, block_time_ms: 100 });

async function startAll(): Promise<void> {
  nodes = await Promise.all(
    urls.map((url, n) =>
      startTestNodes({
        server: {
          listen: [url.slice("http://".length)],
          admin_listen: [`unix:${sockets[n]}`],
          drain_timeout: "2s",
        },
        stores: { main: { plugin: "postgres", ...storeOptions() } },
        directory: {
          enabled: true,
          rate_limit_loopback: false,
          log_key_file: keyFileOf[n],
          log_witnesses: [`${vkeyOf(cosigner)} ${witness?.url}/witness`],
        },
        relay: relayAt(url),
        cache: { enabled: true, public_endpoints: urls },
        tiers: { large: { recipient_entries_max: 5_000 } },
      }),
    ),
  );
}
const stopAll = () => Promise.all(nodes.splice(0).map((one) => one.stop()));

beforeAll(async () => {
  if (absence !== null) return;
  server = await startPostgres(["fsync=on", "max_connections=40", "shared_buffers=64MB"]);
  await server.archive();
  await postgresPlugin.migrate?.(optionsOf(postgresPlugin, storeOptions()));
  witness = await startWitness({ fileOf: files.at(-1)!.fileOf, key: cosigner }, [
    [logKey, `${urls[0]}/log`],
  ]);
  await startAll();
}, 120_000);
afterAll(async () => {
  await stopAll();
  await witness?.stop();
  await server?.end();
  for (const { remove } of files) remove();
  folder.remove();
});

async function ask(n: number, operation: string, body?: object): Promise<Record<string, unknown>> {
  const post = { method: "POST", headers: { "content-type": "application/json" } };
  const sent = body === undefined ? {} : { ...post, body: JSON.stringify(body) };
  const reply = await fetch(`http://localhost/operations/${operation}`, {
    unix: sockets[n] as string,
    ...sent,
  });
  const json = (await reply.json()) as Record<string, unknown>;
  if (reply.status !== 200) throw new Error(JSON.stringify(json));
  return json;
}
const block = (subject: string) => ({
  add: [{ subject, sender_only: false, reason: null }],
  remove: [],
});

/** The database's, which is that of recovery. */
async function timeNow(): Promise<string> {
  await pause(5, "what was committed before has an earlier millisecond");
  const time = (await server.sql("select clock_timestamp()")).trim();
  await pause(5, "and what comes next a later one");
  return time;
}

/** Until the archive has everything that is committed. */
async function untilArchived(): Promise<void> {
  const last = (await server.sql("select pg_walfile_name(pg_switch_wal())")).trim();
  const done = "select coalesce(last_archived_wal, '') from pg_stat_archiver";
  while ((await server.sql(done)).trim() < last) await Bun.sleep(50);
}

const open = (n: number, own: Partial<Parameters<typeof Waypost.open>[0]> = {}) =>
  Waypost.open({ url: urls[n] as string, keys: memoryKeys(), waiting, ...own });

/** Of the log: what the database has, and what the witness has cosigned. */
const storedSize = async (): Promise<number> =>
  (await nodes[0]?.stores.capability("directory.ledger", "logs").head(""))?.size ?? 0;
const signedSize = async (): Promise<number> =>
  Number((await (await fetch(`${urls[0]}/log/checkpoint`)).text()).split("\n")[1]);

async function take(me: Waypost, count: number): Promise<(string | null)[]> {
  const taken: (string | null)[] = [];
  for await (const message of me.messages()) {
    await message.ack();
    if (taken.push(message.text) === count) break;
  }
  return taken;
}

async function idsWaiting(me: Waypost): Promise<string[]> {
  const [cache] = await cachesOf(me.client, me.identity);
  return ((await cache?.summary())?.messages ?? []).map(({ message_id }) => message_id).sort();
}

describe.skipIf(absence !== null)("a database that is restored to a point in time", () => {
  test("has exactly what was answered before it, and what was acknowledged later waits again", async () => {
    await server.baseBackup();
    const writer = { keys: memoryKeys() };
    const [alice, carol] = await Promise.all([open(0, writer), open(1)]);
    const own = { keys: memoryKeys(), store: memoryStore(), acknowledge: "by-hand" } as const;
    const bob = await open(1, own);
    const ids: string[] = [];
    const send = async (text: string) => ids.push((await alice.send(bob.did, text)).id);
    for (const text of ["one", "two", "three"]) await send(text);
    expect(await take(bob, 1)).toEqual(["one"]);
    await untilWaiting(bob, 2);
    await ask(0, "blocks", block("203.0.113.0/24"));
    await ask(0, "tier", { member: bob.did, tier: "large" });
    const tags = ["before", "after"] as const;
    const claim = (tag: string) =>
      nodes[0]?.stores
        .capability("cache.store", "replay")
        .claim(tag, Date.now() + hourMs, Date.now());
    expect(await claim("before")).toBe(true);

    const sizeThen = await storedSize();
    const time = await timeNow();

    expect(await take(bob, 1)).toEqual(["two"]);
    await untilWaiting(bob, 1);
    await send("four");
    const late = { keys: memoryKeys() };
    const dave = await open(0, late);
    await alice.send(dave.did, "hello");
    while ((await signedSize()) <= sizeThen) await Bun.sleep(50);
    await ask(1, "blocks", block("198.51.100.0/24"));
    await ask(1, "tier", { member: bob.did, tier: null });
    await ask(1, "maintenance", { on: true, message: "new disks" });
    expect(await claim("after")).toBe(true);
    await Promise.all([alice, carol, bob, dave].map((me) => me.close()));
    await untilArchived();
    await stopAll();
    await server.kill();
    await expect(server.recover("2999-01-01")).rejects.toThrow("before configured recovery target");
    await server.recover(time);
    await startAll();
    const line = "entries of the log that the store had lost came back from a witness";
    const restored = () => nodes.flatMap(({ lines }) => lines.map(({ message }) => message));
    while (!restored().includes(line)) await Bun.sleep(50);

    expect(await Promise.all(tags.map(claim))).toEqual([false, true]);
    expect(await ask(1, "blocks")).toMatchObject({ blocks: [{ subject: "203.0.113.0/24" }] });
    expect(await ask(0, "member", { member: bob.did })).toMatchObject({ tier: "large" });
    const node = (await (await fetch(`${urls[0]}/node`)).json()) as Record<string, unknown>;
    expect(node["maintenance"]).toBeNull();
    const resolve = async (did: string) => (await fetch(`${urls[1]}/resolve/${did}`)).status;
    const people = [alice, bob, carol, dave];
    expect(await Promise.all(people.map(({ did }) => resolve(did)))).toEqual([200, 200, 200, 404]);
    const again = await open(0, own);
    expect(await idsWaiting(again)).toEqual(ids.slice(1, 3).sort());
    expect(await take(again, 1)).toEqual(["three"]);
    await untilWaiting(again, 0);
    await again.close();
    const refused = await open(0, late).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: "record_went_back" });
    await forget(dave.client, dave.did, dave.did);
    const returned = await open(0, late);
    expect([returned.did, await resolve(dave.did)]).toEqual([dave.did, 200]);
    const sender = await open(1, writer);
    const { last } = await sender.send(dave.did, "again");
    expect(last?.success).toBe(true);
    await Promise.all([sender.close(), returned.close()]);
  }, 180_000);

  test("is restored once more from the same base, to a later point of the same timeline", async () => {
    await server.baseBackup();
    const dids: string[] = [];
    const register = async () => {
      const me = await open(0);
      dids.push(me.did);
      await me.close();
      return timeNow();
    };
    const [tooEarly, right] = [await register(), await register()];
    await register();
    const restore = async (time: string) => {
      await untilArchived();
      await stopAll();
      await server.kill();
      await server.recover(time);
      await startAll();
      const found = dids.map((did) => fetch(`${urls[1]}/resolve/${did}`));
      return (await Promise.all(found)).map(({ status }) => status);
    };
    expect(await restore(tooEarly)).toEqual([200, 404, 404]);
    expect(await restore(right)).toEqual([200, 200, 404]);
  }, 180_000);
});
