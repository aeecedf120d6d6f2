/**
 * One key file and several writers: a follower, commands of another shell, and a removal. No stored
 * secret is lost.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { ed25519 } from "@noble/curves/ed25519.js";
import { fileKeys, loadIdentity } from "../../src/cli/files/files.ts";
import { attempt } from "../../src/client/base/failure.ts";
import { ed25519PublicKey } from "../../src/client/keys/crypto.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import {
  freshSeed,
  type Identity,
  parseIdentity,
  renderIdentity,
} from "../../src/client/keys/keys.ts";
import { changeIdentity } from "../../src/client/keys/stored.ts";
import type { WaypostEvent } from "../../src/client/mail/message.ts";
import { rootKeyOf } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { renderPublicKey } from "../../src/core/codec/bytes.ts";
import { executable } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { scratchPaths } from "../support/scratch.ts";

const freshFolder = scratchPaths("client-keys");
let nodes: TestNodes;
beforeAll(async () => {
  nodes = await startTestNodes();
});
afterAll(async () => {
  await nodes.stop();
});

const main = await executable();
const waiting = { timeoutMs: 60_000, intervalMs: 20 };

async function run(folder: string, ...words: string[]): Promise<number> {
  const args = [...words, "--url", nodes.url, "--keys", folder, "--json"];
  return Bun.spawn([main, ...args], { stdout: "ignore", stderr: "inherit" }).exited;
}

/** What `receive --follow` holds, whose rotation is always due. */
async function follower(folder: string) {
  const events: WaypostEvent[] = [];
  const me = await Waypost.open({
    url: nodes.url,
    keys: fileKeys(folder),
    name: "alice",
    waiting,
    rotateMs: 0,
    onEvent: (event) => events.push(event),
  });
  return { me, events };
}

test("a key that another process adds stays, and is no stranger's", async () => {
  const folder = freshFolder();
  const { me, events } = await follower(folder);
  const secret = ed25519.utils.randomSecretKey();
  const id = `${me.did}#k2`;
  const publicKeyMultibase = renderPublicKey(ed25519.getPublicKey(secret));
  const method = { id, controller: me.did, type: "Multikey", publicKeyMultibase };
  await changeIdentity(fileKeys(folder), { name: "alice", did: me.did }, (stored) => ({
    ...stored,
    methods: [...stored.methods, { id, secret }],
  }));
  const members = JSON.stringify({ verification_method: method });
  expect(await run(folder, "did", "change", "AddVerificationMethod", members)).toBe(0);
  await me.watch();
  await me.rotate();
  const methods = (await loadIdentity(folder, "alice")).methods.map(({ id }) => id);
  expect(methods).toEqual([`${me.did}#root`, `${me.did}#k2`]);
  expect(events.map(({ type }) => type)).not.toContain("stranger_change");
}, 60_000);

test("keys that another shell replaces stay", async () => {
  const folder = freshFolder();
  const { me } = await follower(folder);
  const before = me.identity.rootSeed;
  expect(await run(folder, "did", "rotate")).toBe(0);
  await me.rotate();
  const { rootSeed } = await loadIdentity(folder, "alice");
  expect(rootSeed).not.toEqual(before);
  expect(await ed25519PublicKey(rootSeed)).toEqual(await rootKeyOf(me.client, me.did));
  expect(me.identity.rootSeed).toEqual(rootSeed);
}, 60_000);

test("an identity that another shell removes does not come back, nor is another of its name changed", async () => {
  const folder = freshFolder();
  const { me, events } = await follower(folder);
  await fileKeys(folder).save("alice", null);
  await me.rotate();
  expect(await fileKeys(folder).load("alice")).toBeNull();
  expect(events.at(-1)).toMatchObject({
    type: "failed",
    what: "rotation",
    error: { code: "no_identity" },
  });
  const { me: other } = await follower(folder);
  const text = await fileKeys(folder).load("alice");
  await me.rotate();
  expect([other.did === me.did, await fileKeys(folder).load("alice")]).toEqual([false, text]);
}, 60_000);

test("processes that change one key file at once all leave their mark", async () => {
  const folder = freshFolder();
  const { me } = await follower(folder);
  const script = `
    import { fileKeys } from ${JSON.stringify(join(import.meta.dir, "../../src/cli/files/files.ts"))};
    import { changeIdentity } from ${JSON.stringify(join(import.meta.dir, "../../src/client/keys/stored.ts"))};
    const [folder, did, mark] = process.argv.slice(-3);
    for (let i = 0; i < 20; i++)
      await changeIdentity(fileKeys(folder), { name: "alice", did }, (stored) => ({
        ...stored,
        methods: [...stored.methods, { id: did + "#" + mark + i, secret: new Uint8Array(32) }],
      }));`;
  const children = ["a", "b", "c"].map((mark) =>
    Bun.spawn([process.execPath, "-e", script, folder, me.did, mark], { stderr: "inherit" }),
  );
  const own = Array.from({ length: 20 }, (_, i) =>
    changeIdentity(fileKeys(folder), me.identity, (stored) => ({
      ...stored,
      methods: [...stored.methods, { id: `${me.did}#d${i}`, secret: new Uint8Array(32) }],
    })),
  );
  await Promise.all(own);
  expect(await Promise.all(children.map(({ exited }) => exited))).toEqual([0, 0, 0]);
  const { methods } = await loadIdentity(folder, "alice");
  expect(new Set(methods.map(({ id }) => id)).size).toBe(1 + 4 * 20);
}, 60_000);

test("events of opening are heard", async () => {
  const folder = freshFolder();
  const { me } = await follower(folder);
  await me.close();
  const keys = fileKeys(folder);
  const refusing = { ...keys, replace: () => Promise.reject(new Error("broken")) };
  const events: WaypostEvent[] = [];
  await Waypost.open({
    url: nodes.url,
    keys: refusing,
    name: "alice",
    waiting,
    rotateMs: 0,
    onEvent: (event) => events.push(event),
  });
  expect(events).toMatchObject([{ type: "failed", what: "rotation", error: { code: "unusable" } }]);
  expect(renderIdentity(me.identity)).toBe(
    renderIdentity(parseIdentity((await keys.load("alice")) ?? "", "alice") ?? me.identity),
  );
}, 60_000);

test("a lock leaves no secret in what was handed out, and what ends later changes nothing", async () => {
  const inner = memoryKeys();
  const [read, goOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let isSlow = false;
  const load = async (name: string) => {
    const text = await inner.load(name);
    if (isSlow && name === "default") {
      read.resolve();
      await goOn.promise;
    }
    return text;
  };
  const events: WaypostEvent[] = [];
  const onEvent = (event: WaypostEvent) => void events.push(event);
  const me = await Waypost.open({ url: nodes.url, keys: { ...inner, load }, waiting, onEvent });
  const copies = [me.identity];
  const old = { id: `${me.did}#old`, under: "", madeMs: 0, destroyAtMs: 1 };
  const add = (secret: Uint8Array) => (stored: Identity) => ({
    ...stored,
    agreements: [...stored.agreements, { ...old, secret }],
  });
  // Another tab adds a secret, and destroys it again.
  await changeIdentity(inner, me.identity, add(freshSeed()));
  await me.watch();
  copies.push(me.identity);
  const added = me.identity.agreements[1]?.secret ?? freshSeed();
  expect([isZero(added), me.identity.rootSeed === copies[0]?.rootSeed]).toEqual([false, true]);
  await changeIdentity(inner, me.identity, (stored) => ({
    ...stored,
    agreements: stored.agreements.slice(0, 1),
  }));
  await me.watch();
  copies.push(me.identity);
  expect([isZero(added), ...secretsIn(me.identity).map(isZero)]).toEqual([
    true,
    ...Array(4).fill(false),
  ]);

  await changeIdentity(inner, me.identity, add(freshSeed()));
  isSlow = true;
  const watched = me.watch();
  await read.promise;
  const locked = me.lock();
  goOn.resolve();
  await Promise.all([watched, locked]);
  copies.push(me.identity);
  expect(await attempt(() => me.watch())).toMatchObject({ code: "closed" });
  copies.push(me.identity);
  expect(copies.flatMap(secretsIn).every(isZero)).toBe(true);
  expect(events).toEqual([]);
}, 60_000);

const isZero = (secret: Uint8Array): boolean => secret.every((byte) => byte === 0);

function secretsIn({ rootSeed, methods, agreements, storeKey }: Identity): Uint8Array[] {
  const held = [...methods, ...agreements].map(({ secret }) => secret);
  return [rootSeed, storeKey, ...held];
}
