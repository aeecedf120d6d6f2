/**
 * A Directory that lies about its log, with the log's own key: a proxy in front of a real one whose head a witness has
 * cosigned. Each lie is noticed with its own code, and lowers the level where nothing more is demanded; an honest twin
 * raises no alarm.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { change, replaceDocument } from "../../src/client/change.ts";
import { ClientError } from "../../src/client/http.ts";
import { type KeyStore, memoryKeys } from "../../src/client/key-stores.ts";
import { renderIdentity } from "../../src/client/keys.ts";
import type { WaypostEvent } from "../../src/client/message.ts";
import { Waypost, type WaypostOptions } from "../../src/client/waypost.ts";
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
import { readMapProof } from "../../src/core/trust/map.ts";
import {
  type Checkpoint,
  cosign,
  type Note,
  parseCheckpoint,
  parseNote,
  renderNote,
} from "../../src/core/trust/note.ts";
import { decodeKeyProof, encodeKeyProof } from "../../src/core/trust/proof.ts";
import { forgeDocument, seedOf } from "../support/forged-proofs.ts";
import { keyOf } from "../support/identity.ts";
import { type LogPair, startLogPair } from "../support/log-nodes.ts";
import { keyFiles, type TestKey, TestLog, testKey, vkeyOf } from "../support/logs.ts";
import { type LyingDirectory, lyingDirectory } from "../support/lying-directory.ts";

const files = keyFiles();
const proxies: LyingDirectory[] = [];
let made: LogPair;
beforeAll(async () => {
  made = await startLogPair("liar", files.fileOf);
});
afterAll(async () => {
  await Promise.all([...proxies.map((proxy) => proxy.stop()), made.nodes.stop(), made.witness.stop()]);
  files.remove();
});

const waiting = { timeoutMs: 20_000, intervalMs: 20 };
const policyOf = (witness: TestKey, logs: readonly TestKey[] = []) =>
  `${logs.map((log) => `log ${vkeyOf(log)}\n`).join("")}witness w ${vkeyOf(witness)}\nquorum w\n`;
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
  return { me, events, codes: () => events.map((event) => (event.type === "failed" ? event.error.code : event.type)) };
}

const codeOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => "believed",
    (error: unknown) => (error instanceof ClientError ? error.code : String(error)),
  );
const logged = { trust: "logged" } as const;

const noteOf = (text: string): Note => {
  const note = parseNote(text);
  if (note === null) throw new Error("no note");
  return note;
};
/** The same head with other cosignatures. */
const resigned = (text: string, witnesses: readonly TestKey[], nowMs = Date.now()) => {
  const note = noteOf(text);
  const others = witnesses.map(({ key, sign }) => cosign(note.text, key, { sign, nowMs }));
  return renderNote({ ...note, signatures: [...note.signatures.slice(0, 1), ...others] });
};
const changed = (edit: (entry: LogEntry) => Partial<LogEntry>) => (_: string, honest: Uint8Array) => {
  const entry = decodeLogEntry(honest);
  return entry === null ? null : encodeLogEntry({ ...entry, ...edit(entry) });
};

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
    expect(events.filter(({ type }) => type !== "connected" && type !== "disconnected")).toEqual([]);
  });

  test("is demanded only with a policy, which must name witnesses", async () => {
    const [plain, bob] = [await open(), await open()];
    expect(await codeOf(plain.send(bob.did, "hello", logged))).toBe("log_unwitnessed");
    for (const policy of ["", "quorum none", `log ${vkeyOf(made.log)}\nquorum none`, "witness w x\nquorum w"])
      expect([policy, await codeOf(open({ policy }))]).toEqual([policy, "policy_invalid"]);
    const both = `witness a ${vkeyOf(made.cosigner)}\nwitness b ${vkeyOf(testKey("b.example", "witness"))}\n`;
    const any = await open({ policy: `${both}group g any a b\nquorum g` });
    expect((await any.send(bob.did, "hello", logged)).recipient.trust).toBe("logged");
    const all = await open({ policy: `${both}# both\ngroup g all a b\nquorum g` });
    expect(await codeOf(all.send(bob.did, "hello", logged))).toBe("log_unwitnessed");
  });
});

describe("a Directory that lies about its log", () => {
  const otherMap = () => {
    const key = sha256(new Uint8Array(7));
    return new TestLog(made.log).append([{ key, value: key }]);
  };
  const stranger = testKey("stranger.example", "witness");
  /** A key of another seed under the name and id of the true witness. */
  const impostor = (): TestKey => ({ ...made.cosigner, sign: stranger.sign });
  const lies: readonly (readonly [name: string, code: string, entry: NonNullable<LyingDirectory["lie"]["entry"]>])[] = [
    ["withholds it", "log_missing", () => "none"],
    ["shows garbage", "log_invalid", () => Uint8Array.of(1, 2, 3)],
    [
      "shows a stale head",
      "log_stale",
      changed(({ note }) => ({ note: resigned(note, [made.cosigner], Date.now() - 16 * 60_000) })),
    ],
    [
      "shows a head of the future",
      "log_stale",
      changed(({ note }) => ({ note: resigned(note, [made.cosigner], Date.now() + 10 * 60_000) })),
    ],
    ["shows a head without witnesses", "log_unwitnessed", changed(({ note }) => ({ note: resigned(note, []) }))],
    ["has another witness", "log_unwitnessed", changed(({ note }) => ({ note: resigned(note, [stranger]) }))],
    ["has a false witness", "log_invalid", changed(({ note }) => ({ note: resigned(note, [impostor()]) }))],
    [
      "shows another log",
      "log_invalid",
      (key) => {
        const other = new TestLog(testKey(made.log.key.name, "log", sha256(new Uint8Array(9)))).append([]);
        return other.entry(Uint8Array.fromHex(key), other.cosigned([made.cosigner], Date.now()));
      },
    ],
    [
      "shows a second map root for a head",
      "log_invalid",
      changed(() => ({ mapRoot: otherMap().entries.at(-1) as Uint8Array, siblings: [], leaf: null })),
    ],
    ["shows another map under the root", "log_invalid", changed(() => ({ siblings: [], leaf: null }))],
  ];

  test.each(lies)(
    "%s: %s",
    async (_name, code, entry) => {
      const proxy = proxied();
      const { me: alice, codes } = await victimOf(proxy);
      const bob = await open();
      expect(await codeOf(alice.send(bob.did, "hello", logged))).toBe("believed");
      proxy.lie = { entry };
      expect(await codeOf(alice.send(bob.did, "hello", logged))).toBe(code);
      // Not demanded, it lowers the level, and is reported once.
      for (let i = 0; i < 2; i++) expect((await alice.send(bob.did, "hello")).recipient.trust).toBe("proven");
      expect(codes()).toEqual([code]);
      proxy.lie = {};
      expect((await alice.send(bob.did, "hello")).recipient.trust).toBe("logged");
    },
    60_000,
  );

  test("forks, with all its witnesses: log_forked, and both notes are kept", async () => {
    const keys = memoryKeys();
    const proxy = proxied();
    const { me: alice } = await victimOf(proxy, { keys });
    const bob = await open();
    expect((await alice.send(bob.did, "hello", logged)).recipient.trust).toBe("logged");
    const fork = new TestLog(made.log);
    for (let i = 0; i < 40; i++) fork.append([{ key: sha256(Uint8Array.of(i)), value: sha256(Uint8Array.of(i)) }]);
    const { genesisSeed } = decodeLogEntry(await honestEntry(bob.did)) as LogEntry;
    const note = fork.cosigned([made.cosigner], Date.now());
    proxy.lie = { entry: (key) => fork.entry(Uint8Array.fromHex(key), note, { genesisSeed }) };
    expect(await codeOf(alice.send(bob.did, "hello"))).toBe("log_forked");
    const kept = JSON.parse((await keys.memoryOf("default").load("log/fork")) ?? "{}") as {
      before: string;
      after: string;
    };
    expect([noteOf(kept.before).text === noteOf(kept.after).text, kept.after]).toEqual([false, renderNote(note)]);
    // A later run remembers the head.
    const { me: later } = await victimOf(proxy, { keys });
    expect(await codeOf(later.send(bob.did, "hello"))).toBe("log_forked");
  }, 60_000);

  test("begins its log anew and names the lost head: log_restarted, once; without it log_forked", async () => {
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
    const others = [null, { ...restart, inclusion: [] }, { ...restart, oldHead: encodeOldHead({ ...lost, size: 1 }) }];
    for (const other of others) {
      proxy.lie = { entry: (key) => next.entry(Uint8Array.fromHex(key), note, { genesisSeed, restart: other }) };
      expect(await codeOf(alice.send(bob.did, "hello", logged))).toBe("log_forked");
    }
    proxy.lie = { entry: (key) => next.entry(Uint8Array.fromHex(key), note, { genesisSeed, restart }) };
    for (let i = 0; i < 2; i++) expect((await alice.send(bob.did, "hello", logged)).recipient.trust).toBe("logged");
    expect(codes()).toEqual(["log_restarted"]);
    // Back to the old one: no branch of both.
    proxy.lie = {};
    expect(await codeOf(alice.send(bob.did, "hello", logged))).toBe("log_forked");
  }, 60_000);

  test("shows the branch of a removed key to a stranger: not_logged", async () => {
    const [proxy, bob] = [proxied(), await open()];
    const bytes = await (await fetch(`${made.nodes.url}/dids/${bob.did}/proof`)).bytes();
    const before = decodeKeyProof(bytes);
    if (before === null) throw new Error("no proof");
    const thief = bob.identity.rootSeed;
    const next = keyOf("rotated");
    const signer = { keyId: "root", seed: thief };
    const intent = { action: "UpdateRootPubkey", did: bob.did, newRootPubkey: next.publicKey } as const;
    await change(bob.client, intent, { signer, waiting });
    await replaceDocument(bob.client, bob.did, { rootSeed: seedOf("rotated"), edited: (one) => one, waiting });
    const branch = encodeKeyProof(forgeDocument(before, { seed: thief, nonce: 70n }));
    proxy.lie = { proof: (did) => (did === bob.did ? branch : null) };
    const { me: alice } = await victimOf(proxy);
    expect(await codeOf(alice.send(bob.did, "hello", logged))).toBe("not_logged");
    expect((await alice.send(bob.did, "hello")).recipient.trust).toBe("proven");
  }, 60_000);

  test("hides a deactivation, or answers an alias with another identity: not_logged", async () => {
    const alias = `carol-${crypto.randomUUID().slice(0, 8)}`;
    const [proxy, bob, eve] = [proxied(), await open(), await open()];
    const carol = await open({ alias });
    const path = `/delivery-resolution/${bob.did}`;
    const shown = (await (await fetch(`${made.nodes.url}${path}?proof=`)).json()) as object;
    const proof = await (await fetch(`${made.nodes.url}/dids/${bob.did}/proof`)).bytes();
    await change(
      bob.client,
      { action: "deactivate_did", did: bob.did },
      { signer: { keyId: "root", seed: bob.identity.rootSeed }, waiting },
    );
    const { me: alice } = await victimOf(proxy);
    await untilLogged(bob.did, (value) => value === null);
    proxy.lie = {
      shows: { [path]: shown, [`/aliases/${alias}`]: { alias, did: eve.did } },
      proof: (did) => (did === bob.did ? proof : null),
    };
    expect(await codeOf(alice.send(bob.did, "hello", logged))).toBe("not_logged");
    expect(await codeOf(alice.send(alias, "hello", logged))).toBe("not_logged");
    expect(carol.did).not.toBe(eve.did);
  }, 60_000);

  test("hides from the owner what others see under the same root: stranger_change", async () => {
    const proxy = proxied();
    const { me: alice, events } = await victimOf(proxy);
    await alice.send(alice.did, "hello", logged);
    const proof = await (await fetch(`${made.nodes.url}/dids/${alice.did}/proof`)).bytes();
    // Whoever has stolen the key changes the record, which the log shows to senders.
    const { rootSeed } = alice.identity;
    const copy = memoryKeys();
    await copy.add("default", renderIdentity(alice.identity));
    await replaceDocument((await open({ keys: copy })).client, alice.did, { rootSeed, edited: (one) => one, waiting });
    await untilLogged(alice.did, (value) => value !== null && !equalBytes(value, valueOfProof(proof)));
    proxy.lie = { proof: (did) => (did === alice.did ? proof : null) };
    await alice.watch();
    expect(events.filter(({ type }) => type === "stranger_change")).toEqual([{ type: "stranger_change", what: "log" }]);
  }, 60_000);
});

const honestEntry = async (did: Did) => (await fetch(`${made.nodes.url}/log/entry/${keyOfDid(did).toHex()}`)).bytes();

async function untilLogged(did: Did, holds: (value: Uint8Array | null) => boolean): Promise<void> {
  for (const end = Date.now() + 20_000; Date.now() < end; await Bun.sleep(50)) {
    const entry = decodeLogEntry(await honestEntry(did));
    const shown = entry === null ? null : readMapProof(entry, keyOfDid(did));
    if (shown !== null && holds(shown.value)) return;
  }
  throw new Error("the change was not logged");
}

test("an honest twin raises no alarm, through rotations, restarts and look-ups side by side", async () => {
  const proxy = proxied();
  const keysOf: readonly [KeyStore, KeyStore] = [memoryKeys(), memoryKeys()];
  const alarms: string[] = [];
  const openOne = async (keys: KeyStore, rotateMs: 0 | false) => {
    const { me } = await victimOf(proxy, { keys, rotateMs });
    me.on((event) => {
      if (event.type === "stranger_change" || event.type === "failed") alarms.push(JSON.stringify(event));
    });
    return me;
  };
  for (let round = 0; round < 3; round++) {
    const [alice, bob] = [await openOne(keysOf[0], false), await openOne(keysOf[1], 0)];
    const sends = Array.from({ length: 8 }, () => alice.send(bob.did, "hello").catch((e) => alarms.push(String(e))));
    await bob.rotate();
    await Promise.all([...sends, alice.watch()]);
    const sent = await alice.send(bob.did, "hello", logged);
    expect(sent.recipient.trust).toBe("logged");
    await bob.watch();
  }
  expect(alarms).toEqual([]);
}, 120_000);
