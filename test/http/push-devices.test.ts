/**
 * Several devices of one identity and their pushes: none silences another one, and a removed one is
 * woken no more.
 */
import { afterAll, expect, test } from "bun:test";
import { fileKeys } from "../../src/cli/files/files.ts";
import { attempt } from "../../src/client/base/failure.ts";
import { restoreFromGuardians } from "../../src/client/identity/guardians.ts";
import { subscribeDevice } from "../../src/client/identity/push.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { connect } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { executable, freePort } from "../support/executable.ts";
import { startTestNodes } from "../support/nodes.ts";
import { waiting } from "../support/people.ts";
import { type Device, startPushService } from "../support/push-service.ts";
import { scratchPaths } from "../support/scratch.ts";

const keyFile = scratchPaths("push-devices")();
await Bun.write(keyFile, "5b".repeat(32));
const url = `http://127.0.0.1:${freePort()}`;
const network = { allow_http: true, allow_private: ["127.0.0.0/8"], rate_limit_loopback: false };
const nodes = await startTestNodes(
  {
    server: { listen: [url.slice("http://".length)], drain_timeout: "1s" },
    directory: { enabled: true, rate_limit_loopback: false },
    relay: { enabled: true, public_endpoints: [url], ...network },
    cache: { enabled: true, public_endpoints: [url], signing_key_file: keyFile },
    push: { enabled: true, contact: "mailto:operator@odd.example" },
  },
  { cache: { push_interval: 20 } },
);
const service = await startPushService();
const opened: Waypost[] = [];
afterAll(async () => {
  await Promise.all(opened.map((me) => me.close()));
  service.stop();
  await nodes.stop();
});

/** What service workers do: they pass on the tokens that come. */
const devices = new Map<string, Device>();
const channel = new BroadcastChannel("waypost.push");
afterAll(() => channel.close());
service.answer(() => {
  for (const device of devices.values()) channel.postMessage(device.told());
  return new Response(null, { status: 201 });
});
const deviceOf = (name: string): Device => {
  const device = service.device(name);
  devices.set(name, device);
  return device;
};

async function keep(opening: Promise<Waypost>): Promise<Waypost> {
  const me = await opening;
  opened.push(me);
  return me;
}
const place = () => ({ url, keys: memoryKeys(), store: memoryStore(), waiting });

async function linked(first: Waypost): Promise<Waypost> {
  const linking = await Waypost.link(place());
  await first.devices.acceptLink(linking.code, "second");
  return keep(linking.opened);
}

async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isSo())) await Bun.sleep(10);
}

/** How many subscriptions have had their token. */
const tokensOf = (device: Device) => device.pushes().length - device.woken().length;

test("a phone that sleeps is woken by what a connected desktop took", async () => {
  const [alice, phone] = await Promise.all([
    keep(Waypost.open(place())),
    keep(Waypost.open(place())),
  ]);
  const ringer = deviceOf("phone");
  await phone.push(ringer.subscription, { data: "wake" });
  const desktop = await linked(phone);
  // Again for the identity, under the id by which the desktop knows it, and for the phone's own
  // mailbox.
  await until(() => tokensOf(ringer) === 3);
  // A token that came isn't returned yet: this resolves when every Cache has its own.
  await phone.push(ringer.subscription, { data: "wake" });
  // What the phone has not given when it closes, the desktop waits for, and reads nothing before.
  await until(async () => !(await desktop.devices.isWaiting()));
  await until(async () => (await desktop.devices.list()).every(({ isCurrent }) => isCurrent));
  await phone.close();
  await alice.send(phone.did, "hello");
  await until(async () => (await desktop.store.unread()) === 1);
  await until(() => ringer.woken().includes("wake"));
  expect(new Set(ringer.woken())).toEqual(new Set(["wake"]));
}, 60_000);

test("no subscription of a removed device, or of who had its keys, stays, and the others' do", async () => {
  const [alice, phone] = await Promise.all([
    keep(Waypost.open(place())),
    keep(Waypost.open(place())),
  ]);
  const tablet = await linked(phone);
  const lost = await linked(phone);
  await until(async () => (await tablet.devices.list()).length === 3);
  const [first, second, third, fourth] = ["first", "second", "third", "fourth"].map(deviceOf) as [
    Device,
    Device,
    Device,
    Device,
  ];
  await phone.push(first.subscription, { data: "wake" });
  await tablet.push(second.subscription, { data: "wake" });
  await lost.push(third.subscription, { data: "wake" });
  // With the keys of the lost device, under an id that no device has.
  const { client, identity } = lost;
  await subscribeDevice({ client, identity, device: null }, fourth.subscription, { data: "wake" });
  const gone = (await lost.devices.list()).find(({ isThis }) => isThis);
  await phone.devices.remove(gone?.did ?? "");
  await Promise.all([phone.close(), tablet.close(), lost.close()]);
  await alice.send(phone.did, "hello");
  await until(() => [first, second].every((device) => device.woken().length > 0));
  expect([third.woken(), fourth.woken()]).toEqual([[], []]);
}, 60_000);

/** A device subscribes at the identity's Cache as if it were another one. */
async function subscribeAs(victim: Waypost, lost: Waypost, thief: Device): Promise<void> {
  const did = (await victim.devices.list()).find(({ isThis }) => isThis)?.did ?? "";
  const { client, identity } = lost;
  const own = await lost.devices.ownIdentity();
  if (own === null) throw new Error("the lost device has no DID");
  const device = { ...own, did: did as typeof own.did };
  const subscribed = subscribeDevice({ client, identity, device }, thief.subscription, {
    data: "stolen",
  });
  // There it is then, and the victim's own mailbox refuses it.
  expect(await attempt(() => subscribed)).toMatchObject({ code: "no_cache" });
}

test("what a removed device has subscribed under the id of another one ends there, and where that has its own it gives way", async () => {
  const [alice, phone] = await Promise.all([
    keep(Waypost.open(place())),
    keep(Waypost.open(place())),
  ]);
  const [tabletAt, lost] = [place(), await linked(phone)];
  const linking = await Waypost.link(tabletAt);
  await phone.devices.acceptLink(linking.code, "tablet");
  const tablet = await keep(linking.opened);
  await until(async () => (await lost.devices.list()).length === 3);
  const thief = deviceOf("eighth");
  const gone = (await lost.devices.list()).find(({ isThis }) => isThis)?.did ?? "";
  for (const victim of [phone, tablet]) await subscribeAs(victim, lost, thief);
  await phone.devices.remove(gone);
  await until(async () => (await tablet.devices.list()).length === 2);
  await lost.close();
  const own = deviceOf("ninth");
  await phone.push(own.subscription, { data: "wake" });
  await phone.close();
  // The tablet ends what it has not asked for when it hears of the new keys.
  await until(async () => {
    const [before, woken] = [thief.woken().length, own.woken().length];
    await alice.send(phone.did, "hello");
    await until(() => own.woken().length > woken);
    return thief.woken().length === before;
  });
  const [heard, ringing] = [thief.woken().length, own.woken().length];
  await tablet.close();
  await alice.send(phone.did, "asleep");
  await until(() => own.woken().length > ringing);
  expect(thief.woken().length).toBe(heard);
}, 60_000);

test("a device that could not end another one's subscription under its id when it learned of new keys does so at its next start", async () => {
  const phone = await keep(Waypost.open(place()));
  const tabletAt = place();
  const linking = await Waypost.link(tabletAt);
  await phone.devices.acceptLink(linking.code, "tablet");
  const tablet = await keep(linking.opened);
  const lost = await linked(phone);
  const gone = (await lost.devices.list()).find(({ isThis }) => isThis)?.did ?? "";
  await until(async () => (await tablet.devices.list()).length === 3);
  await subscribeAs(tablet, lost, deviceOf("twelfth"));
  const honestFetch = globalThis.fetch;
  const [refused, ended] = [[] as string[], [] as string[]];
  let isAway = true;
  globalThis.fetch = Object.assign(
    async (...given: Parameters<typeof fetch>) => {
      const [url, { method = "GET" } = {}] = given;
      if (method !== "DELETE" || !String(url).includes("/cache/push/"))
        return honestFetch(...given);
      (isAway ? refused : ended).push(String(url));
      if (isAway) throw new TypeError("it is away");
      return honestFetch(...given);
    },
    { preconnect: honestFetch.preconnect },
  );
  try {
    await phone.devices.remove(gone);
    await until(() => new Set(refused).size === 2);
    for (const me of [phone, tablet, lost]) await me.close();
    isAway = false;
    await keep(Waypost.open(tabletAt));
    await until(() => ended.length > 0);
    expect(refused).toContain(ended[0] as string);
  } finally {
    globalThis.fetch = honestFetch;
  }
}, 60_000);

test("new keys by command, or by guardians, end the subscriptions of who had the ones before", async () => {
  const [alice, ...friends] = (await Promise.all(
    Array.from({ length: 4 }, () => keep(Waypost.open(place()))),
  )) as [Waypost, ...Waypost[]];
  const folder = scratchPaths("push-devices-keys")();
  const dora = await keep(Waypost.open({ url, keys: fileKeys(folder), name: "dora", waiting }));
  const choices: { to: string; fingerprint: string }[] = [];
  for (const friend of friends) {
    await friend.store.savePerson(alice.did, { isKnown: true });
    await alice.store.savePerson(friend.did, { isKnown: true });
    choices.push({ to: friend.did, fingerprint: (await alice.fingerprint(friend.did)).is });
  }
  await alice.appointGuardians(choices);
  const [fifth, sixth] = [deviceOf("fifth"), deviceOf("sixth")];
  for (const [{ identity }, thief] of [
    [alice, fifth],
    [dora, sixth],
  ] as const) {
    const client = connect({ directoryUrl: url, relayUrl: url });
    await subscribeDevice({ client, identity, device: null }, thief.subscription, { data: "wake" });
  }
  const shares: string[] = [];
  for (const friend of friends)
    for await (const message of friend.messages()) {
      shares.push(message.text ?? new TextDecoder().decode(message.bytes()));
      break;
    }
  await Promise.all([alice.close(), dora.close()]);
  await restoreFromGuardians({ shares, directoryUrl: url, keys: memoryKeys() });
  const words = ["did", "rotate", "--as", "dora", "--url", url, "--keys", folder, "--json"];
  const rotating = Bun.spawn([await executable(), ...words], { stdout: "ignore" });
  expect(await rotating.exited).toBe(0);
  const [friend] = friends as [Waypost];
  const phone = await keep(Waypost.open(place()));
  const ringer = deviceOf("seventh");
  await phone.push(ringer.subscription, { data: "wake" });
  await phone.close();
  // Receipts of the guardians rang before.
  const before = [fifth, sixth].map((thief) => thief.woken().length);
  for (const { did } of [alice, dora, phone]) await (await friend.send(did, "hello")).delivered;
  // What was sent before it would have been pushed before it.
  await until(() => ringer.woken().length > 0);
  expect([fifth, sixth].map((thief) => thief.woken().length)).toEqual(before);
}, 60_000);
