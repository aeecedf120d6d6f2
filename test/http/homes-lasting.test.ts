/**
 * What lasts between providers: what is remembered of a home that has vanished, also after a
 * restart; a Relay in a process of its own; and two providers that witness each other's logs, so
 * that keys of both are `logged` for people of both.
 */

import { afterAll, expect, spyOn, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ClientError } from "../../src/client/base/failure.ts";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { verifyEd25519 } from "../../src/core/codec/crypto.ts";
import { dayMs, minuteMs } from "../../src/core/codec/time.ts";
import { deriveDid } from "../../src/core/ledger/names.ts";
import { BoundedMap } from "../../src/core/std/bounded.ts";
import type { Egress } from "../../src/nodes/egress/egress.ts";
import { createHomes } from "../../src/nodes/parties/homes.ts";
import { openMemory } from "../support/directory.ts";
import { executable, freePort } from "../support/executable.ts";
import { keyFiles, testKey, vkeyOf } from "../support/logs.ts";
import { relayAt, startTestNodes } from "../support/nodes.ts";
import { openInbox, startProvider, until } from "../support/providers.ts";
import { scratchPaths } from "../support/scratch.ts";
import { settings as settingsOf } from "../support/settings.ts";
import { pause } from "../support/wait.ts";

const files = keyFiles();
const paths = scratchPaths("homes");
const stops: (() => unknown)[] = [files.remove];
afterAll(async () => {
  for (const stop of stops.toReversed()) await stop();
});
const stopping = <T extends { readonly stop: () => unknown }>(one: T): T => {
  stops.push(one.stop);
  return one;
};

const waiting = { timeoutMs: 60_000, intervalMs: 20 };
const soon = { directory: { home_fresh: 50, home_failure: 100 } };
const open = (home: string, options: Partial<WaypostOptions> = {}) =>
  Waypost.open({ url: `http://${home}`, keys: memoryKeys(), waiting, rotateMs: false, ...options });
const codeAt = async (home: string, path: string): Promise<string> => {
  const answer = await fetch(`http://${home}${path}`);
  return answer.ok ? "found" : ((await answer.json()) as { code: string }).code;
};

test("a home that has vanished is remembered for 30 days, and through a restart", async () => {
  const south = await startProvider({ port: freePort() }, soon);
  const [port, path] = [freePort(), paths()];
  const stores = { main: { plugin: "lmdb", path, block_time_ms: 50 } };
  const north = await startProvider({ port, stores }, soon);
  const bob = await open(south.home, { alias: "bob" });
  const keys = memoryKeys();
  const alice = await open(north.home, { keys });
  expect((await alice.send(`bob@${south.home}`, "hello")).recipient.did).toBe(bob.did);
  await south.stop();
  await pause(80, "the last answer of the home is older than home_fresh");
  expect(await codeAt(north.home, `/dids/${bob.did}/proof`)).toBe("found");
  await north.stop();
  const again = stopping(await startProvider({ port, stores }, soon));
  const later = await open(again.home, { keys });
  const error = await later
    .send(`bob@${south.home}`, "are you there?", { retries: 0 })
    .catch((thrown: unknown) => thrown);
  // The key is believed, and no one takes the message.
  expect((error as ClientError).code).toMatch(/^(destination|cache)_unavailable$/);
  for (const path of [
    `/dids/${bob.did}/proof`,
    `/resolve/${bob.did}`,
    `/aliases/bob?home=${south.home}`,
  ])
    expect([path, await codeAt(again.home, path)]).toEqual([path, "found"]);
}, 60_000);

/** Homes over a store in memory, a clock, and one home that shows a proof or is silent. */
async function homesOver(proof: Uint8Array, more: Partial<DirectorySettings> = {}) {
  const stage = { nowMs: Date.now(), answers: true, asked: 0 };
  const store = await openMemory(10)({ now: () => stage.nowMs, log: () => {}, fatal: () => {} });
  const { receipts } = store.capabilities;
  if (receipts === undefined) throw new Error("memory has receipts");
  const send: Egress["send"] = async ({ suffix }) => {
    stage.asked++;
    const { answers } = stage;
    const body = suffix.endsWith("known=") ? proof : new Uint8Array(0);
    return {
      httpStatus: answers ? 200 : null,
      error: null,
      body: answers ? body : null,
      giveUp: true,
    };
  };
  const egress: Egress = {
    send,
    refuses: () => false,
    stats: () => ({ active: 0, waiting: 0, destinations: 0 }),
    close: () => {},
  };
  const settings = {
    ...settingsOf().directory,
    public_endpoint: "https://own.example.org",
    ...more,
  };
  const homes = () =>
    createHomes({
      egress,
      receipts,
      settings,
      verify: verifyEd25519,
      now: () => stage.nowMs,
      log: () => {},
    });
  return { stage, homes, receipts };
}
type DirectorySettings = ReturnType<typeof settingsOf>["directory"];

test("what is remembered counts for 30 days after the home has last confirmed it", async () => {
  const south = stopping(await startProvider({ port: freePort() }));
  const bob = await open(south.home);
  const proof = await (await fetch(`http://${south.home}/dids/${bob.did}/proof`)).bytes();
  const { stage, homes } = await homesOver(proof);
  const asked = { home: south.home, network: "test" };
  const [running, found] = [homes(), { bytes: proof, home: south.home }];
  expect(await running.find(bob.did, asked)).toMatchObject({ ...found, isFresh: true });
  stage.nowMs += 20 * dayMs;
  expect(await running.find(bob.did, asked)).toMatchObject({ ...found, isFresh: true });
  const checkedAtMs = stage.nowMs;
  stage.answers = false;
  stage.nowMs += 29 * dayMs;
  for (const one of [running, homes()])
    expect(await one.find(bob.did, asked)).toMatchObject({ ...found, isFresh: false, checkedAtMs });
  stage.nowMs += 2 * dayMs;
  for (const one of [running, homes()]) expect(await one.find(bob.did, asked)).toBe("silent");
});

test("a home that is named makes its DID known without it at once, and is written once an hour", async () => {
  const south = stopping(await startProvider({ port: freePort() }));
  const bob = await open(south.home);
  const proof = await (await fetch(`http://${south.home}/dids/${bob.did}/proof`)).bytes();
  const { stage, homes, receipts } = await homesOver(proof);
  const put = receipts.put.bind(receipts);
  let writes = 0;
  receipts.put = (...written) => {
    writes++;
    return put(...written);
  };
  const running = homes();
  const unnamed = () => running.find(bob.did, { home: null, network: "test" });
  expect(await unnamed()).toBe("unknown");
  expect(await running.find(bob.did, { home: south.home, network: "test" })).toMatchObject({
    bytes: proof,
  });
  expect(await unnamed()).toMatchObject({ bytes: proof });
  for (let minutes = 0; minutes < 90; minutes++) {
    stage.nowMs += minuteMs;
    expect(await unnamed()).toMatchObject({ isFresh: true });
  }
  expect([stage.asked, writes]).toEqual([92, 2]);
});

test("a network that asks too often is refused alone, and gets what is remembered", async () => {
  const south = stopping(await startProvider({ port: freePort() }));
  const bob = await open(south.home);
  const proof = await (await fetch(`http://${south.home}/dids/${bob.did}/proof`)).bytes();
  const { stage, homes } = await homesOver(proof, { home_rate: 0.001, home_burst: 1 });
  const running = homes();
  const ask = (network: string) => running.find(bob.did, { home: south.home, network });
  const other = deriveDid(new Uint8Array(32), new Uint8Array(32).fill(1));
  expect(await running.find(other, { home: south.home, network: "greedy" })).toBe("silent");
  expect(await ask("greedy")).toBe("silent");
  expect(await ask("modest")).toMatchObject({ bytes: proof, isFresh: true });
  stage.nowMs += minuteMs;
  expect(await ask("greedy")).toMatchObject({ bytes: proof, isFresh: false });
  expect(await ask("another")).toMatchObject({ bytes: proof, isFresh: true });
});

test("homes that are invented while the remembered one is silent cost one replay of the proof", async () => {
  const south = stopping(await startProvider({ port: freePort() }));
  const bob = await open(south.home);
  const proof = await (await fetch(`http://${south.home}/dids/${bob.did}/proof`)).bytes();
  const { stage, homes } = await homesOver(proof);
  await homes().find(bob.did, { home: south.home, network: "test" });
  stage.answers = false;
  stage.nowMs += minuteMs;
  const again = homes();
  // What was replayed is remembered: a proof of 200 rotations takes 3 ms.
  using remembers = spyOn(BoundedMap.prototype, "set");
  for (let n = 0; n < 20; n++)
    expect(
      await again.find(bob.did, { home: `x${n}.evil.example`, network: `${n}` }),
    ).toMatchObject({ bytes: proof, isFresh: false });
  const isReplay = (value: unknown) => value instanceof Object && "proven" in value;
  expect(remembers.mock.calls.filter(([, value]) => isReplay(value)).length).toBe(1);
});

test("a failure stands for its time, and a network has a client's eighth of a day's bytes to be remembered", async () => {
  const south = stopping(await startProvider({ port: freePort() }));
  const bob = await open(south.home);
  const proof = await (await fetch(`http://${south.home}/dids/${bob.did}/proof`)).bytes();
  const asked = { home: south.home, network: "192.0.2.0/24" };
  const failing = await homesOver(proof, { home_fresh: 3_000, home_failure: 7_000 });
  failing.stage.answers = false;
  const running = failing.homes();
  const count = async (passedMs: number) => {
    failing.stage.nowMs += passedMs;
    expect(await running.find(bob.did, asked)).toBe("silent");
    return failing.stage.asked;
  };
  expect([await count(0), await count(6_999), await count(1)]).toEqual([1, 1, 2]);

  const isKept = async (network_day_bytes: number) => {
    const { homes, receipts, stage } = await homesOver(proof, { network_day_bytes });
    expect(await homes().find(bob.did, asked)).toMatchObject({ bytes: proof });
    return (await receipts.get(`home/did/${bob.did}`, stage.nowMs)) !== null;
  };
  expect([await isKept(8 * proof.length), await isKept(8 * proof.length - 8)]).toEqual([
    true,
    false,
  ]);
});

test("who asks again for an unknown DID without a home causes no read of the store", async () => {
  const { stage, homes, receipts } = await homesOver(new Uint8Array(0));
  const get = receipts.get.bind(receipts);
  let reads = 0;
  receipts.get = (key, nowMs) => {
    reads++;
    return get(key, nowMs);
  };
  const running = homes();
  const did = deriveDid(new Uint8Array(32), new Uint8Array(32).fill(1));
  for (let n = 0; n < 5; n++)
    expect(await running.find(did, { home: null, network: "test" })).toBe("unknown");
  expect([reads, stage.asked]).toEqual([1, 0]);
});

test("two seconds after one process has learnt of a DID, another one that found nothing knows it too", async () => {
  const south = stopping(await startProvider({ port: freePort() }));
  const bob = await open(south.home);
  const proof = await (await fetch(`http://${south.home}/dids/${bob.did}/proof`)).bytes();
  const { stage, homes } = await homesOver(proof);
  const [one, other] = [homes(), homes()];
  const asOther = () => other.find(bob.did, { home: null, network: "test" });
  expect(await asOther()).toBe("unknown");
  await one.find(bob.did, { home: south.home, network: "test" });
  stage.nowMs += 2_000;
  expect(await asOther()).toMatchObject({ bytes: proof });
});

test("a Relay in a process of its own learns of other homes from its Directory", async () => {
  const [north, south] = await Promise.all(
    [freePort(), freePort()].map((port) => startProvider({ port }, soon)),
  );
  if (north === undefined || south === undefined) throw new Error("not started");
  for (const one of [north, south]) stopping(one);
  const url = `http://localhost:${freePort()}`;
  const relay = await startTestNodes({
    server: {
      listen: [url.slice("http://".length).replace("localhost", "127.0.0.1")],
      recipients: `http://${north.home}`,
      drain_timeout: "2s",
    },
    directory: {},
    cache: {},
    relay: relayAt(url),
  });
  stopping(relay);
  const [alice, bob] = [await open(north.home, { relayUrl: url }), await open(south.home)];
  const [atAlice, atBob] = [openInbox(alice), openInbox(bob)];
  stops.push(atAlice.close, atBob.close);
  await until(() =>
    atAlice.events.some((event) => event.type === "connected" && event.what === "live"),
  );
  await alice.send(`${bob.did}@${south.home}`, "hello");
  const read = await atBob.next();
  expect(read.verified).toBe(true);
  await read.reply("hi");
  const answer = await atAlice.next();
  expect([answer.text, answer.verified]).toEqual(["hi", true]);
}, 60_000);

test("a Directory alone explains what it knows of a person of another home", async () => {
  const north = stopping(await startProvider({ port: freePort() }, soon));
  const url = `http://localhost:${freePort()}`;
  const socket = `${paths()}.sock`;
  const alone = await startTestNodes(
    {
      server: {
        listen: [url.replace("http://localhost", "127.0.0.1")],
        admin_listen: [`unix:${socket}`],
      },
      directory: { enabled: true, public_endpoint: url },
      // Its outbound rules count for homes too.
      relay: { ...relayAt(url), enabled: false },
      cache: {},
    },
    soon,
    { resolve: async () => ["127.0.0.1"] },
  );
  stopping(alone);
  const alice = await open(north.home);
  stops.push(() => alice.close());
  expect(
    await codeAt(url.slice("http://".length), `/resolve/${alice.did}?home=${north.home}`),
  ).toBe("found");
  const explained = await fetch("http://localhost/operations/explain", {
    unix: socket,
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ recipient: alice.did, sender: null }),
  });
  expect(await explained.json()).toMatchObject({
    steps: [{ what: "record", state: "ok" }, { what: "policy" }, { what: "block list" }],
  });
}, 60_000);

test("providers that witness each other make keys of both logged for people of both", async () => {
  const [northPort, southPort] = [freePort(), freePort()];
  const keysOf = (name: string) => ({
    log: testKey(`${name}.example/log`, "log"),
    witness: testKey(`${name}.example/witness`, "witness"),
  });
  const [n, s] = [keysOf("north"), keysOf("south")];
  const startOne = (own: typeof n, other: typeof n, port: number, otherPort: number) =>
    startProvider(
      {
        port,
        directory: {
          log_key_file: files.fileOf(own.log),
          log_witnesses: [`${vkeyOf(other.witness)} http://127.0.0.1:${otherPort}/witness`],
        },
        witness: {
          key_file: files.fileOf(own.witness),
          logs: [`${vkeyOf(other.log)} http://127.0.0.1:${otherPort}/log`],
        },
      },
      soon,
    );
  const [north, south] = await Promise.all([
    startOne(n, s, northPort, southPort),
    startOne(s, n, southPort, northPort),
  ]);
  for (const one of [north, south]) stopping(one);
  const policy = `witness n ${vkeyOf(n.witness)}\nwitness s ${vkeyOf(s.witness)}\ngroup any 1 n s\nquorum any\n`;
  const [alice, bob] = [
    await open(north.home, { policy }),
    await open(south.home, { policy, alias: "bob" }),
  ];
  const [atAlice, atBob] = [openInbox(alice), openInbox(bob)];
  stops.push(atAlice.close, atBob.close);
  const logged = { trust: "logged" } as const;
  expect((await alice.send(`bob@${south.home}`, "hello", logged)).recipient).toMatchObject({
    trust: "logged",
    name: "logged",
  });
  const read = await atBob.next();
  expect([read.verified, read.trust]).toEqual([true, "logged"]);
  expect((await read.reply("hi", logged)).recipient.trust).toBe("logged");
  // The next looks continue the heads of both logs.
  await open(south.home);
  expect((await alice.send(bob.did, "again", logged)).recipient.trust).toBe("logged");
  expect((await alice.send((await open(north.home)).did, "at home", logged)).recipient.trust).toBe(
    "logged",
  );
  const alarms = [...atAlice.events, ...atBob.events].filter(
    ({ type }) => type === "failed" || type === "stranger_change",
  );
  expect(alarms).toEqual([]);
}, 60_000);

test("the commands send to alias@home, receive from there and remember whom", async () => {
  const [north, south] = await Promise.all(
    [freePort(), freePort()].map((port) => startProvider({ port }, soon)),
  );
  if (north === undefined || south === undefined) throw new Error("not started");
  for (const one of [north, south]) stopping(one);
  const folder = paths();
  mkdirSync(folder);
  writeFileSync(join(folder, "hello.txt"), "hello");
  const waypost = async (home: string, name: string, ...args: string[]) => {
    const env = { ...process.env, WAYPOST_URL: `http://${home}`, WAYPOST_KEYS: join(folder, name) };
    const command = [await executable(), ...args, "--json"];
    const child = Bun.spawn(command, { cwd: folder, env, stdout: "pipe", stderr: "pipe" });
    return {
      json: JSON.parse((await new Response(child.stdout).text()).trim().split("\n")[0] ?? "{}"),
    };
  };
  const alice = await waypost(north.home, "alice", "did", "create", "--name", "alice");
  const bob = await waypost(south.home, "bob", "did", "create", "--name", "bob", "--alias", "bob");
  const send = () =>
    waypost(north.home, "alice", "send", "--to", `bob@${south.home}`, "--file", "hello.txt");
  expect((await send()).json).toMatchObject({
    ok: true,
    to: bob.json.did,
    recipient: { trust: "proven", name: "told" },
  });
  expect((await send()).json.recipient).toEqual({ trust: "proven", name: "remembered" });
  const service = {
    id: "#directory",
    type: "SvcDirectoryService",
    serviceEndpoint: `http://${south.home}`,
  };
  const moved = await waypost(
    south.home,
    "bob",
    "did",
    "change",
    "UpdateService",
    JSON.stringify({ service }),
  );
  expect(moved.json.ok).toBe(true);
  const received = await waypost(south.home, "bob", "receive", "--out", "inbox");
  expect(JSON.stringify(received.json)).toContain(alice.json.did);
  expect(JSON.stringify(received.json)).toContain('"from_verified":true,"from_trust":"proven"');
  const back = await waypost(
    south.home,
    "bob",
    "send",
    "--to",
    alice.json.did,
    "--file",
    "hello.txt",
  );
  expect(back.json).toMatchObject({ ok: true, recipient: { trust: "proven", name: null } });
}, 120_000);
