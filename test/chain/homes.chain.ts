/**
 * A provider whose ledger is a chain, and one with a ledger of its own: their people find each
 * other, write and reply, each believed by what signatures prove, also after keys were replaced on
 * the chain. A home that goes back is not believed.
 */
import { afterAll, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { attempt, ClientError } from "../../src/client/base/failure.ts";
import { nextIdentity, publishKeys } from "../../src/client/identity/new-keys.ts";
import { ed25519PublicKey } from "../../src/client/keys/crypto.ts";
import { type KeyStore, memoryKeys } from "../../src/client/keys/key-stores.ts";
import { renderIdentity } from "../../src/client/keys/keys.ts";
import type { Sent } from "../../src/client/mail/send.ts";
import { rootKeyOf } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import type { ConfigInput } from "../../src/config/schema.ts";
import { freePort } from "../support/executable.ts";
import { lyingDirectory } from "../support/lying-directory.ts";
import { openInbox, type Provider, startProvider } from "../support/providers.ts";
import { endStand, freshPath, operatorKeyFile, startNode } from "./stand.ts";

const stops: (() => unknown)[] = [];
afterAll(async () => {
  for (const stop of stops.toReversed()) await stop();
  await endStand();
});

/** Homes are asked again at once. */
const soon = { directory: { home_fresh: 1, home_failure: 1 } };
const waiting = { timeoutMs: 180_000, intervalMs: 20 };

async function startOnChain(): Promise<Provider> {
  const chain = await startNode({ intervalMs: 50, strict: true });
  mkdirSync(dirname(operatorKeyFile), { recursive: true });
  writeFileSync(operatorKeyFile, "//Alice\n", { mode: 0o600 });
  const driver = {
    plugin: "chain",
    endpoints: [chain.endpoint],
    operator_key_file: operatorKeyFile,
    outbox: freshPath("outbox"),
    block_time_ms: 20,
    request_timeout_ms: 60_000,
    free_space_floor_bytes: 0,
  };
  return start(
    { stores: { main: { plugin: "memory" }, chain: driver } },
    { store: "main", ledger: "chain" },
  );
}

async function start(
  more: Pick<ConfigInput, "stores"> = {},
  directory: ConfigInput["directory"] = {},
) {
  const provider = await startProvider({ ...more, port: freePort(), directory }, soon);
  stops.push(provider.stop);
  return provider;
}

async function open(
  { home }: Provider,
  alias: string,
  options: { keys?: KeyStore; directoryUrl?: string } = {},
) {
  const me = await Waypost.open({
    url: `http://${home}`,
    keys: memoryKeys(),
    waiting,
    rotateMs: false,
    alias,
    ...options,
  });
  const inbox = openInbox(me);
  stops.push(inbox.close);
  return { me, inbox };
}

test("people of a chain and of an embedded ledger write to each other, through a change of keys on the chain", async () => {
  const [west, east] = await Promise.all([startOnChain(), start()]);
  const keys = memoryKeys();
  const [alice, bob] = await Promise.all([open(west, "alice", { keys }), open(east, "bob")]);
  expect(alice.me.did).toStartWith("did:svc:wp");

  const sent = await bob.me.send(`alice@${west.home}`, "from the embedded ledger");
  expect(sent.recipient).toEqual({ did: alice.me.did, trust: "proven", name: "told" });
  const received = await alice.inbox.next();
  expect([received.text, received.verified, received.from]).toEqual([
    "from the embedded ledger",
    true,
    bob.me.did,
  ]);
  await received.reply("from the chain");
  expect(await bob.inbox.next()).toMatchObject({
    text: "from the chain",
    verified: true,
    from: alice.me.did,
  });

  const before = await (await fetch(`http://${west.home}/dids/${alice.me.did}/proof`)).bytes();
  const next = nextIdentity(alice.me.identity, Date.now());
  const renewed = await publishKeys(alice.me.client, next, { waiting });
  const newRoot = await ed25519PublicKey(renewed.rootSeed);
  expect(await rootKeyOf(bob.me.client, alice.me.did)).toEqual(newRoot);
  await keys.save("default", renderIdentity(renewed));
  await alice.inbox.close();
  const again = await open(west, "alice", { keys });
  const toNewKeys = () => bob.me.send(alice.me.did, "to the new keys");
  expect((await whenBundled(toNewKeys)).recipient.trust).toBe("proven");
  expect(await again.inbox.next()).toMatchObject({ text: "to the new keys", verified: true });

  // A Directory that goes back to what the home showed before is not believed.
  const proxy = lyingDirectory(`http://${east.home}`);
  stops.push(proxy.stop);
  const carol = await open(east, "carol", { directoryUrl: proxy.url });
  await carol.me.send(alice.me.did, "seen");
  proxy.lie = { proof: (did) => (did === alice.me.did ? before : null) };
  const refused = await carol.me
    .send(alice.me.did, "hello")
    .catch(({ code }: { code: string }) => code);
  expect(refused).toBe("record_went_back");
}, 600_000);

/**
 * New keys need a new bundle: it is put when the identity is opened, and a node looks for it every
 * ten seconds.
 */
async function whenBundled(send: () => Promise<Sent>): Promise<Sent> {
  for (;;) {
    const sent = await attempt(send);
    if (!(sent instanceof ClientError)) return sent;
    if (sent.code !== "key_bundle_missing") throw sent;
    await Bun.sleep(500);
  }
}
