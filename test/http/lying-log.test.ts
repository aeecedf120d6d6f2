/**
 * What a client makes of a log beyond the table of lies (`lies.test.ts`): what it needs a policy
 * for, keeps, and reports once.
 */
import { afterAll, beforeAll, describe, expect, setSystemTime, test } from "bun:test";
import { ClientError } from "../../src/client/base/failure.ts";
import { replaceDocument } from "../../src/client/identity/change.ts";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { type KeyStore, memoryKeys } from "../../src/client/keys/key-stores.ts";
import { renderIdentity } from "../../src/client/keys/keys.ts";
import type { WaypostEvent } from "../../src/client/mail/message.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { equalBytes } from "../../src/core/codec/bytes.ts";
import { sha256 } from "../../src/core/codec/crypto.ts";
import type { Did } from "../../src/core/codec/did.ts";
import {
  decodeLogEntry,
  encodeLogEntry,
  encodeOldHead,
  keyOfDid,
  type LogEntry,
  valueOfProof,
} from "../../src/core/trust/log.ts";
import { type Checkpoint, parseCheckpoint, renderNote } from "../../src/core/trust/note.ts";
import { noteOf, policyOf, proofBytes, untilLogged, waiting } from "../support/lie-stage.ts";
import { type LogPair, startLogPair } from "../support/log-nodes.ts";
import { keyFiles, TestLog, testKey, vkeyOf } from "../support/logs.ts";
import { type Lie, type LyingDirectory, lyingDirectory } from "../support/lying-directory.ts";

const files = keyFiles();
const proxies: LyingDirectory[] = [];
let made: LogPair;
beforeAll(async () => {
  made = await startLogPair("liar", files.fileOf);
});
afterAll(async () => {
  await Promise.all([
    ...proxies.map((proxy) => proxy.stop()),
    made.nodes.stop(),
    made.witness.stop(),
  ]);
  files.remove();
});

const open = (options: Partial<WaypostOptions> = {}) =>
  Waypost.open({ url: made.nodes.url, keys: memoryKeys(), waiting, rotateMs: false, ...options });

function proxied(): LyingDirectory {
  const proxy = lyingDirectory(made.nodes.url);
  proxies.push(proxy);
  return proxy;
}

/** A client of a lying Directory that has a policy. */
async function victimOf(proxy: LyingDirectory, options: Partial<WaypostOptions> = {}) {
  const me = await open({ directoryUrl: proxy.url, policy: policyOf(made.cosigner), ...options });
  const events: WaypostEvent[] = [];
  me.on((event) => events.push(event));
  return {
    me,
    events,
    codes: () => events.map((event) => (event.type === "failed" ? event.error.code : event.type)),
  };
}

const codeOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => "believed",
    (error: unknown) => (error instanceof ClientError ? error.code : String(error)),
  );
const logged = { trust: "logged" } as const;

describe("a fresh head that witnesses have signed", () => {
  test("makes a recipient, a sender and an alias logged", async () => {
    const alias = `bob-${crypto.randomUUID().slice(0, 8)}`;
    const { me: alice, events } = await victimOf(proxied());
    const bob = await open({ alias, policy: policyOf(made.cosigner, [made.log]) });
    const sent = await alice.send(alias, "hello", logged);
    expect(sent.recipient).toEqual({ did: bob.did, trust: "logged", name: "logged" });
    expect((await bob.send(alice.did, "hi", logged)).recipient.trust).toBe("logged");
    for await (const message of alice.messages()) {
      expect([message.text, message.verified, message.trust]).toEqual(["hi", true, "logged"]);
      await message.ack();
      break;
    }
    await bob.watch();
    expect(events.filter(({ type }) => type !== "connected" && type !== "disconnected")).toEqual(
      [],
    );
  });

  test("is demanded only with a policy, which must name witnesses", async () => {
    const [plain, bob] = [await open(), await open()];
    expect(await codeOf(plain.send(bob.did, "hello", logged))).toBe("log_unwitnessed");
    for (const policy of [
      "",
      "quorum none",
      `log ${vkeyOf(made.log)}\nquorum none`,
      "witness w x\nquorum w",
      `witness a ${vkeyOf(made.cosigner)}\nwitness b ${vkeyOf(made.cosigner)}\nquorum a`,
      `witness a ${vkeyOf(made.cosigner)}\ngroup g 2 a a\nquorum g`,
    ])
      expect([policy, await codeOf(open({ policy }))]).toEqual([policy, "policy_invalid"]);
    const both = `witness a ${vkeyOf(made.cosigner)}\nwitness b ${vkeyOf(testKey("b.example", "witness"))}\n`;
    const any = await open({ policy: `${both}group g any a b\nquorum g` });
    expect((await any.send(bob.did, "hello", logged)).recipient.trust).toBe("logged");
    const all = await open({ policy: `${both}# both\ngroup g all a b\nquorum g` });
    expect(await codeOf(all.send(bob.did, "hello", logged))).toBe("log_unwitnessed");
  });
});

test("a log that leaves out the seed, by which the ledger names its log, counts only when the policy lists it", async () => {
  const [proxy, bob] = [proxied(), await open()];
  const shown = new TestLog(testKey("another.example/log", "log"));
  shown.append([
    { key: keyOfDid(bob.did), value: valueOfProof(await proofBytes(made.nodes.url, bob.did)) },
  ]);
  const note = shown.cosigned([made.cosigner], Date.now());
  proxy.lie = { entry: (key) => shown.entry(Uint8Array.fromHex(key), note) };
  const { me: alice } = await victimOf(proxy);
  expect(await codeOf(alice.send(bob.did, "hello", logged))).toBe("log_invalid");
  const keys = memoryKeys();
  const { me: carol } = await victimOf(proxy, {
    keys,
    policy: policyOf(made.cosigner, [shown.key]),
  });
  expect((await carol.send(bob.did, "hello", logged)).recipient.trust).toBe("logged");
  // A policy that lists another log than the ledger names is for that log alone.
  const { me: dave } = await victimOf(proxied(), { policy: policyOf(made.cosigner, [shown.key]) });
  expect(await codeOf(dave.send(bob.did, "hello", logged))).toBe("log_invalid");

  // A later head stays remembered when an earlier one of the same log is shown after it.
  const earlier = decodeLogEntry(shown.entry(keyOfDid(bob.did), note)) as LogEntry;
  const { size } = shown;
  shown.append([{ key: sha256(Uint8Array.of(1)), value: sha256(Uint8Array.of(2)) }]);
  const later = shown.cosigned([made.cosigner], Date.now());
  proxy.lie = { entry: (key) => shown.entry(Uint8Array.fromHex(key), later, { from: size }) };
  expect((await carol.send(bob.did, "hello", logged)).recipient.trust).toBe("logged");
  proxy.lie = { entry: () => encodeLogEntry({ ...earlier, consistency: shown.consistency(size) }) };
  expect((await carol.send(bob.did, "hello", logged)).recipient.trust).toBe("logged");
  expect(await keys.load("default/log/head")).toContain(
    JSON.stringify(renderNote(later)).slice(1, -1),
  );
});

test("both notes of a fork are kept, and a later run remembers the head", async () => {
  const keys = memoryKeys();
  const proxy = proxied();
  const { me: alice } = await victimOf(proxy, { keys });
  const bob = await open();
  expect((await alice.send(bob.did, "hello", logged)).recipient.trust).toBe("logged");
  const fork = new TestLog(made.log);
  for (let i = 0; i < 40; i++)
    fork.append([{ key: sha256(Uint8Array.of(i)), value: sha256(Uint8Array.of(i)) }]);
  const { genesisSeed } = decodeLogEntry(await honestEntry(bob.did)) as LogEntry;
  const note = fork.cosigned([made.cosigner], Date.now());
  proxy.lie = { entry: (key) => fork.entry(Uint8Array.fromHex(key), note, { genesisSeed }) };
  expect(await codeOf(alice.send(bob.did, "hello"))).toBe("log_forked");
  const kept = JSON.parse((await keys.load("default/log/fork")) ?? "{}") as {
    before: string;
    after: string;
  };
  expect([noteOf(kept.before).text === noteOf(kept.after).text, kept.after]).toEqual([
    false,
    renderNote(note),
  ]);
  const { me: later } = await victimOf(proxy, { keys });
  expect(await codeOf(later.send(bob.did, "hello"))).toBe("log_forked");
}, 60_000);

test("whoever names witnesses sends to nobody whom they have not seen, unless a message says otherwise", async () => {
  const proxy = proxied();
  const { me: alice } = await victimOf(proxy);
  proxy.lie = { entry: () => Uint8Array.of(1) };
  expect(await codeOf(alice.send(alice.did, "hello"))).toBe("log_invalid");
  const less = { trust: "proven" } as const;
  expect((await alice.send(alice.did, "hello", less)).recipient.trust).toBe("proven");
}, 60_000);

test("what lowers the level is reported once", async () => {
  const proxy = proxied();
  const { me: alice, codes } = await victimOf(proxy, { trust: "proven" });
  proxy.lie = { entry: () => Uint8Array.of(1) };
  for (let i = 0; i < 2; i++)
    expect((await alice.send(alice.did, "hello")).recipient.trust).toBe("proven");
  expect(codes()).toEqual(["log_invalid"]);
  // A log that is not shown may belong to a node that has just started.
  proxy.lie = { entry: () => "none" };
  for (let i = 0; i < 2; i++)
    expect((await alice.send(alice.did, "hello")).recipient.trust).toBe("proven");
  expect(codes()).toEqual(["log_invalid"]);
  setSystemTime(Date.now() + 61_000);
  const { recipient } = await alice.send(alice.did, "hello").finally(() => setSystemTime());
  expect(recipient.trust).toBe("proven");
  expect(codes()).toEqual(["log_invalid", "log_missing"]);
}, 60_000);

test("begins its log anew and names the lost head: log_restarted, until the user forgets the log; without it log_forked", async () => {
  const proxy = proxied();
  const { me: alice, codes } = await victimOf(proxy);
  const bob = await open();
  await alice.send(bob.did, "hello", logged);
  const honest = decodeLogEntry(await honestEntry(bob.did)) as LogEntry;
  const lost = parseCheckpoint(noteOf(honest.note).text) as Checkpoint;
  const next = new TestLog(testKey(`${made.log.key.name}/2`, "log", made.log.seed));
  next.entries.push(encodeOldHead(lost));
  const proof = await (await fetch(`${made.nodes.url}/dids/${bob.did}/proof`)).bytes();
  next.append([{ key: keyOfDid(bob.did), value: valueOfProof(proof) }]);
  const note = next.cosigned([made.cosigner], Date.now());
  const { genesisSeed } = honest;
  const restart = { oldHead: next.entries[0] as Uint8Array, inclusion: next.inclusion(0) };
  const others = [
    null,
    { ...restart, inclusion: [] },
    { ...restart, oldHead: encodeOldHead({ ...lost, size: 1 }) },
  ];
  for (const other of others) {
    proxy.lie = {
      entry: (key) => next.entry(Uint8Array.fromHex(key), note, { genesisSeed, restart: other }),
    };
    expect(await codeOf(alice.send(bob.did, "hello", logged))).toBe("log_forked");
  }
  proxy.lie = {
    entry: (key) => next.entry(Uint8Array.fromHex(key), note, { genesisSeed, restart }),
  };
  for (let i = 0; i < 2; i++) {
    expect(await codeOf(alice.send(bob.did, "hello"))).toBe("log_restarted");
    const less = { trust: "proven" } as const;
    expect((await alice.send(bob.did, "hello", less)).recipient.trust).toBe("proven");
  }
  expect(codes()).toEqual(["log_restarted"]);
  await alice.forget("log");
  expect((await alice.send(bob.did, "hello")).recipient.trust).toBe("logged");
  // Back to the old one: no branch of both.
  proxy.lie = {};
  expect(await codeOf(alice.send(bob.did, "hello", logged))).toBe("log_forked");
}, 60_000);

/**
 * A log of the same key that all witnesses have signed, with Bob's true entry and more than the
 * true one has.
 */
async function forkOf(bob: Waypost): Promise<Pick<Lie, "entry">> {
  const fork = new TestLog(made.log);
  const value = valueOfProof(await proofBytes(made.nodes.url, bob.did));
  fork.append([{ key: keyOfDid(bob.did), value }]);
  const { genesisSeed, note } = decodeLogEntry(await honestEntry(bob.did)) as LogEntry;
  const { size } = parseCheckpoint(noteOf(note).text) as Checkpoint;
  for (let i = 0; fork.size <= size + 20; i++)
    fork.append([{ key: sha256(Uint8Array.of(i)), value: sha256(Uint8Array.of(i)) }]);
  const signed = fork.cosigned([made.cosigner], Date.now());
  return { entry: (key) => fork.entry(Uint8Array.fromHex(key), signed, { genesisSeed }) };
}

async function linkedLaptop(phone: Waypost, proxy: LyingDirectory, keys: KeyStore) {
  const { url } = made.nodes;
  const linking = await Waypost.link({
    ...{ directoryUrl: proxy.url, relayUrl: url, cacheUrl: url },
    ...{ keys, store: memoryStore(), waiting, rotateMs: false, policy: policyOf(made.cosigner) },
  });
  await phone.devices.acceptLink(linking.code, "laptop");
  return linking.opened;
}

const until = async (read: () => Promise<boolean>): Promise<boolean> => {
  for (const end = Date.now() + 30_000; Date.now() < end; await Bun.sleep(20))
    if (await read()) return true;
  return false;
};

test("a head that one device has believed binds one that is linked later", async () => {
  const [proxy, keys] = [proxied(), memoryKeys()];
  const phone = await open({ store: memoryStore(), policy: policyOf(made.cosigner) });
  const bob = await open();
  await (await phone.send(bob.did, "hello")).delivered;
  const laptop = await linkedLaptop(phone, proxy, keys);
  expect(await until(async () => (await keys.load("default/log/head")) !== null)).toBe(true);
  proxy.lie = await forkOf(bob);
  expect(await codeOf(laptop.send(bob.did, "hello").then(({ delivered }) => delivered))).toBe(
    "log_forked",
  );
  await Promise.all([phone.close(), laptop.close()]);
}, 60_000);

test("of two devices that were shown two logs, one hears of the other's and stops", async () => {
  const [proxy, keys] = [proxied(), memoryKeys()];
  const phone = await open({ store: memoryStore(), policy: policyOf(made.cosigner) });
  const laptop = await linkedLaptop(phone, proxy, keys);
  const bob = await open();
  const sent = (me: Waypost) =>
    codeOf(me.send(bob.did, "hello").then(({ delivered }) => delivered));
  await untilLogged(made.nodes.url, keyOfDid(bob.did), (value) => value !== null);
  proxy.lie = await forkOf(bob);
  expect(await Promise.all([sent(phone), sent(laptop)])).toEqual(["believed", "believed"]);
  expect(await until(async () => (await keys.load("default/heard/log/head")) !== null)).toBe(true);
  expect(await sent(laptop)).toBe("log_forked");
  expect(await keys.load("default/log/fork")).not.toBeNull();
  await Promise.all([phone.close(), laptop.close()]);
}, 60_000);

test("hides from the owner what others see under the same root: stranger_change", async () => {
  const proxy = proxied();
  const { me: alice, events } = await victimOf(proxy);
  await alice.send(alice.did, "hello", logged);
  const proof = await (await fetch(`${made.nodes.url}/dids/${alice.did}/proof`)).bytes();
  // Anyone who has stolen the key changes the record, which the log shows to senders.
  const { rootSeed } = alice.identity;
  const copy = memoryKeys();
  await copy.replace("default", null, renderIdentity(alice.identity));
  await replaceDocument((await open({ keys: copy })).client, alice.did, {
    rootSeed,
    edited: (one) => one,
    waiting,
  });
  await untilLogged(
    made.nodes.url,
    keyOfDid(alice.did),
    (value) => value !== null && !equalBytes(value, valueOfProof(proof)),
  );
  proxy.lie = { proof: (did) => (did === alice.did ? proof : null) };
  await alice.watch();
  expect(events.filter(({ type }) => type === "stranger_change")).toEqual([
    { type: "stranger_change", what: "log" },
  ]);
}, 60_000);

const honestEntry = async (did: Did) =>
  (await fetch(`${made.nodes.url}/log/entry/${keyOfDid(did).toHex()}`)).bytes();

test("an honest twin raises no alarm, through rotations, restarts and look-ups side by side", async () => {
  const proxy = proxied();
  const keysOf: readonly [KeyStore, KeyStore] = [memoryKeys(), memoryKeys()];
  const alarms: string[] = [];
  const openOne = async (keys: KeyStore, rotateMs: 0 | false) => {
    const { me } = await victimOf(proxy, { keys, rotateMs });
    me.on((event) => {
      if (event.type === "stranger_change" || event.type === "failed")
        alarms.push(JSON.stringify(event));
    });
    return me;
  };
  for (let round = 0; round < 3; round++) {
    const [alice, bob] = [await openOne(keysOf[0], false), await openOne(keysOf[1], 0)];
    const sends = Array.from({ length: 8 }, () =>
      alice.send(bob.did, "hello").catch((e) => alarms.push(String(e))),
    );
    await bob.rotate();
    await Promise.all([...sends, alice.watch()]);
    const sent = await alice.send(bob.did, "hello", logged);
    expect(sent.recipient.trust).toBe("logged");
    await bob.watch();
  }
  expect(alarms).toEqual([]);
}, 120_000);
