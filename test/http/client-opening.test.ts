/**
 * Opening an identity: one for each name of a key store, however many tabs or processes open it at
 * once; nodes that are away for a moment; and key stores that fail.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileKeys } from "../../src/cli/files/files.ts";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { type KeyStore, memoryKeys } from "../../src/client/keys/key-stores.ts";
import { createIdentity, parseIdentity, renderIdentity } from "../../src/client/keys/keys.ts";
import { lockedKeys, passphraseLock } from "../../src/client/keys/locks.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { clientCode } from "../support/client-code.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

const scratch = mkdtempSync(join(tmpdir(), "waypost-opening-"));
let nodes: TestNodes;
beforeAll(async () => {
  nodes = await startTestNodes();
});
afterAll(async () => {
  await nodes.stop();
  rmSync(scratch, { recursive: true, force: true });
});

const waiting = { timeoutMs: 60_000, intervalMs: 20 };
const open = (options: Partial<WaypostOptions>) =>
  Waypost.open({ url: nodes.url, keys: memoryKeys(), waiting, ...options });

/** Waits before each step, as stores of other processes do. */
function slowly(keys: KeyStore): KeyStore {
  const pause = () => Bun.sleep(Math.random() * 4);
  return {
    load: (name) => pause().then(() => keys.load(name)),
    save: (name, text) => pause().then(() => keys.save(name, text)),
    replace: (name, before, text) => pause().then(() => keys.replace(name, before, text)),
  };
}

test("a name opened several times at once is one identity, which each of them can use", async () => {
  for (let round = 0; round < 10; round++) {
    const folder = join(scratch, `keys${round}`);
    const keys = memoryKeys();
    const stores =
      round % 2 === 0
        ? [fileKeys(folder), fileKeys(folder)]
        : [slowly(keys), slowly(keys), slowly(keys)];
    const opened = await Promise.all(stores.map((store) => open({ keys: store })));
    const [first] = opened;
    expect(new Set(opened.map(({ did }) => did)).size).toBe(1);
    expect((await open({ keys: stores[0] ?? keys })).did as string).toBe(first?.did ?? "");
    for (const me of opened) expect((await me.send(me.did, "hello")).chunks).toBe(1);
  }
});

async function lockedMemory(): Promise<KeyStore> {
  const keys = lockedKeys(memoryKeys());
  await keys.setUp(passphraseLock("p"));
  return keys;
}

test("a name is added once, replaced and deleted", async () => {
  for (const keys of [memoryKeys(), fileKeys(join(scratch, "store")), await lockedMemory()]) {
    const [one, other] = [createIdentity("a"), createIdentity("a")].map(renderIdentity) as [
      string,
      string,
    ];
    expect(
      await Promise.all([keys.replace("a", null, one), keys.replace("a", null, other)]),
    ).toContain(true);
    expect(await keys.replace("a", null, other)).toBe(false);
    await keys.save("a", other);
    expect(await keys.load("a")).toBe(other);
    await keys.save("a", null);
    expect(await keys.load("a")).toBeNull();
    await keys.save("a", null);
    expect([await keys.replace("a", other, one), await keys.load("a")]).toEqual([false, null]);
    await keys.replace("a", null, one);
    expect(
      await Promise.all([keys.replace("a", one, other), keys.replace("a", one, other)]),
    ).toContain(true);
    expect([await keys.replace("a", one, one), await keys.load("a")]).toEqual([false, other]);
  }
});

test("a store that is full, or fails otherwise, is a ClientError", async () => {
  const failing = (cause: unknown): KeyStore => ({
    ...memoryKeys(),
    replace: () => Promise.reject(cause),
  });
  const full = Object.assign(new Error("no space left on device"), { code: "ENOSPC" });
  expect(await clientCode(() => open({ keys: failing(full) }))).toBe("store_full");
  const quota = new DOMException("the quota is exceeded", "QuotaExceededError");
  expect(await clientCode(() => open({ keys: failing(quota) }))).toBe("store_full");
  expect(await clientCode(() => open({ keys: failing(new Error("broken")) }))).toBe("unusable");
});

test("a node that is away for a moment is tried again", async () => {
  let refused = 0;
  const proxy = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: async (request) => {
      if (refused++ === 0) return new Response("<h1>Bad Gateway</h1>", { status: 502 });
      const { pathname } = new URL(request.url);
      const body = request.method === "GET" ? {} : { body: await request.text() };
      return fetch(`${nodes.url}${pathname}`, {
        method: request.method,
        headers: request.headers,
        ...body,
      });
    },
  });
  try {
    const me = await open({ directoryUrl: `http://127.0.0.1:${proxy.port}` });
    expect([me.did.startsWith("did:svc:"), refused > 1]).toEqual([true, true]);
  } finally {
    await proxy.stop(true);
  }
});

test("a replaced secret is kept as long as the Cache may hold messages sealed to it, and an hour", async () => {
  let nowMs = Date.now();
  const keys = memoryKeys();
  const me = await open({ keys, name: "rotating", nowMs: () => nowMs });
  const heldBy = async () =>
    parseIdentity((await keys.load("rotating")) ?? "", "rotating")!.agreements;
  const [before] = await heldBy();
  nowMs += 8 * 24 * 3_600_000;
  await me.rotate();
  const [replaced, inForce] = await heldBy();
  expect(replaced).toEqual({ ...before!, destroyAtMs: nowMs + 49 * 3_600_000 });
  expect(inForce?.destroyAtMs).toBeNull();
});
