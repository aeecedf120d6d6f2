/** Nodes that get another address: what their people are told, and how they go on. */
import { afterAll, expect, test } from "bun:test";
import { fileKeys } from "../../src/cli/files/files.ts";
import { change } from "../../src/client/identity/change.ts";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import type { WaypostEvent } from "../../src/client/mail/message.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { activeDocument } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { executable } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { waiting } from "../support/people.ts";
import { scratchPaths } from "../support/scratch.ts";

const store = { plugin: "lmdb", path: scratchPaths("moving")(), block_time_ms: 50 } as const;
/** At an address of its own each time, over the same store. */
const start = (): Promise<TestNodes> => startTestNodes({ stores: { main: store } });

const opened: Waypost[] = [];
async function open(options: Partial<WaypostOptions> & { readonly url: string }) {
  const me = await Waypost.open({ keys: memoryKeys(), waiting, rotateMs: false, ...options });
  opened.push(me);
  return me;
}
const closeAll = () => Promise.all(opened.splice(0).map((me) => me.close()));
let nodes: TestNodes | null = null;
afterAll(async () => {
  await closeAll();
  await nodes?.stop();
});

const place = () => ({ keys: memoryKeys(), store: memoryStore() });

async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isSo())) await Bun.sleep(10);
}

test("people are told of another address, and go on with all their devices when they move", async () => {
  nodes = await start();
  const before = nodes.url;
  const [phone, laptop, alice] = [place(), place(), place()];
  const first = await open({ url: before, ...phone });
  const linking = await Waypost.link({ url: before, waiting, ...laptop });
  await first.devices.acceptLink(linking.code, "laptop");
  opened.push(await linking.opened);
  const { did: friend } = await open({ url: before, ...alice });
  await closeAll();
  await nodes.stop();
  nodes = await start();
  const { url } = nodes;

  const events: WaypostEvent[] = [];
  const onEvent = (event: WaypostEvent) => events.push(event);
  const bob = await open({ url, ...phone, onEvent });
  await until(() => events.some(({ type }) => type === "address_differs"));
  expect(events.find(({ type }) => type === "address_differs")).toEqual({
    type: "address_differs",
    relay: [before],
    cache: [before],
  });
  await bob.move();
  const { service } = await activeDocument(bob.client, bob.did);
  expect(service.flatMap(({ serviceEndpoint }) => serviceEndpoint)).toEqual([url, url]);

  // By command, which remembers the address.
  const folder = scratchPaths("moving-keys")();
  const dora = await open({ url, keys: fileKeys(folder), name: "dora" });
  const main = await executable();
  const run = async (...words: string[]) => {
    const args = [main, "did", ...words, "--as", "dora", "--keys", folder, "--json"];
    const child = Bun.spawn(args, { stdout: "pipe", stderr: "inherit" });
    return [await child.exited, JSON.parse(await new Response(child.stdout).text())] as const;
  };
  const there = await startTestNodes({
    stores: { main: { ...store, path: scratchPaths("there")() } },
  });
  await there.stop();
  const services = (await activeDocument(dora.client, dora.did)).service;
  const cache = services.find(
    ({ type }) => type === "SvcCacheService",
  ) as (typeof services)[number];
  await change(
    dora.client,
    {
      ...{ action: "UpdateService", did: dora.did },
      service: { ...cache, serviceEndpoint: [there.url] },
    },
    { signer: { keyId: "root", seed: dora.identity.rootSeed }, waiting },
  );
  expect(await run("move", "--url", url)).toMatchObject([
    0,
    { ok: true, did: dora.did, cache: url },
  ]);
  const moved = (await activeDocument(dora.client, dora.did)).service;
  expect(moved.map(({ serviceEndpoint }) => serviceEndpoint)).toEqual([[url], [url]]);

  const friendly = await open({ url, ...alice });
  await friendly.move();
  await (await friendly.send(bob.did, "at your new address")).delivered;
  await until(async () => (await bob.store.unread()) === 1);
  // The identity is there already, and the DID of the other device follows by itself.
  const seen: string[] = [];
  const other = await open({ url, ...laptop, onEvent: ({ type }) => seen.push(type) });
  await until(async () => (await other.store.messages(friend)).length === 1);
  await (await bob.send(friend, "thanks")).delivered;
  await until(async () => (await other.store.messages(friend)).length === 2);
  expect(seen).not.toContain("address_differs");
  // What its own user has named stays under the keys that it makes.
  const hosts = async () => (await other.client.known.memory.load(`hosts/${bob.did}`)) ?? "";
  await until(async () => (await hosts()).includes(new URL(url).host));
  await other.devices.replaceKeys();
  const kept = (await activeDocument(bob.client, bob.did)).service;
  expect(kept.map(({ serviceEndpoint }) => serviceEndpoint)).toEqual([[url], [url]]);
}, 60_000);
