/** What a device believes of others about devices and keys: what is older, or was overtaken, changes nothing. */
import { expect, test } from "bun:test";
import { ClientError } from "../../../../src/client/base/failure.ts";
import { type DeviceLink, Devices } from "../../../../src/client/devices/devices.ts";
import type { PeerRow } from "../../../../src/client/devices/replica.ts";
import type { DeviceItem } from "../../../../src/client/devices/sync.ts";
import { nextIdentity } from "../../../../src/client/identity/change.ts";
import {
  advanceChain,
  createIdentity,
  type Identity,
  renderIdentity,
} from "../../../../src/client/keys/keys.ts";
import { syncType } from "../../../../src/client/mail/content.ts";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import { peerKey } from "../../../../src/client/store/keys.ts";
import { Table } from "../../../../src/client/store/table.ts";
import type { Client } from "../../../../src/client/trust/client.ts";
import { DeviceMail } from "../../../support/device-mail.ts";
import { identityOf } from "../../../support/identity.ts";
import { ownStoreOf } from "../../../support/own-store.ts";

const didOf = (name: string) => identityOf(name).did;
const [own, phone, laptop, thief] = [
  didOf("own"),
  didOf("phone"),
  didOf("laptop"),
  didOf("thief"),
] as const;
type Told = readonly [from: typeof phone, item: DeviceItem];

/** A device with phone and laptop, after it has heard all: its identity, and the others that it knows. */
async function heard(identity: Identity, told: readonly Told[]) {
  const table = await Table.open(memoryStore(), new Uint8Array(32).fill(7));
  const begun = { name: "", addedMs: 0, seen: 0, sent: 0, isLeaving: false };
  await table.change(async (batch) => {
    batch.meta = { hasDevices: true, deviceDid: own };
    for (const did of [phone, laptop] as const)
      batch.put(peerKey(table, did), { did, ...begun } satisfies PeerRow);
  });
  const stop = new AbortController();
  const mail = new DeviceMail();
  for (const [from, item] of told)
    await mail.link(from).send(own, { v: 1, items: [item] }, { mediaType: syncType });
  const { receive } = mail.link(own);
  const link = {
    ...{
      did: own,
      client: {} as Client,
      identity,
      close: async () => undefined,
      lock: async () => undefined,
    },
    ...{ send: () => Promise.reject(new Error("nothing is sent")), receive },
  } as DeviceLink;
  const store = await ownStoreOf(table, own, { secrets: identity });
  stop.signal.addEventListener("abort", () => store.stop());
  const devices = new Devices(store, { name: "", openLink: async () => link });
  await devices.start();
  while (mail.boxOf(own).length > 0) await Bun.sleep(1);
  stop.abort();
  return { identity: store.identity.secrets, dids: (await devices.list()).map(({ did }) => did) };
}

const added = (did: typeof phone): DeviceItem => ({ is: "d", row: { did, name: "" } });
const removed = (did: typeof phone): DeviceItem => ({ is: "x", row: did });
const keys = (identity: Identity): DeviceItem => ({
  is: "k",
  row: renderIdentity({ ...identity, storeKey: new Uint8Array(32) }),
});
const settled = (next: Identity): Identity => ({
  ...next,
  rootSeed: next.nextRootSeed ?? next.rootSeed,
  nextRootSeed: null,
});

test("a device that was removed stays so, whatever another one still says of it", async () => {
  const first = createIdentity("default");
  const order = [added(thief), removed(thief)] as const;
  for (const [told, isKnown] of [
    [[[laptop, order[0]]], true],
    [
      [
        [laptop, order[0]],
        [phone, order[1]],
      ],
      false,
    ],
    [
      [
        [phone, order[1]],
        [laptop, order[0]],
      ],
      false,
    ],
  ] as const)
    expect([told.length, isKnown, (await heard(first, told)).dids.includes(thief)]).toEqual([
      told.length,
      isKnown,
      isKnown,
    ]);
});

test("keys that were replaced since are not taken back, and rotations don't make them later", async () => {
  const first = createIdentity("default");
  const second = settled(nextIdentity(first, 1));
  const third = settled(nextIdentity(second, 2));
  let { chain } = second;
  for (let i = 0; i < 600; i++) chain = advanceChain(chain, i).chain;
  const root = async (held: Identity, ...told: readonly Identity[]) =>
    (
      await heard(
        held,
        told.map((one) => [phone, keys(one)] as const),
      )
    ).identity;
  expect((await root(first, second, third)).rootSeed).toEqual(third.rootSeed);
  expect((await root(third, second, first)).rootSeed).toEqual(third.rootSeed);
  expect((await root(third, { ...second, chain })).rootSeed).toEqual(third.rootSeed);
  expect((await root({ ...second, chain }, third)).rootSeed).toEqual(third.rootSeed);
});

test("of two replacements at once every device ends with the published one, in whichever order it hears of them", async () => {
  const first = createIdentity("default");
  const [won, lost] = [nextIdentity(first, 1), nextIdentity(first, 1)];
  const said = [won, lost, settled(won)] as const;
  for (const held of [first, won, lost, settled(won)])
    for (const [one, two, three] of [
      [0, 1, 2],
      [1, 0, 2],
      [0, 2, 1],
    ] as const) {
      const told = [said[one], said[two], said[three]].map(
        (given) => [phone, keys(given)] as const,
      );
      const { identity } = await heard(held, told);
      expect([identity.rootSeed, identity.nextRootSeed]).toEqual([settled(won).rootSeed, null]);
    }
});

test("keys that are said to be published take no rotation back that followed them here", async () => {
  const next = nextIdentity(createIdentity("default"), 1);
  const { secret, chain } = advanceChain(next.chain, 2);
  const id = next.agreements.at(-1)?.id ?? "";
  const agreements = [...next.agreements, { id, secret, destroyAtMs: null }];
  const { identity } = await heard({ ...next, agreements, chain }, [[phone, keys(settled(next))]]);
  expect(identity).toEqual({ ...settled(next), agreements, chain });
});

test("a device goes on to open its own DID whatever the answer was, until it is open", async () => {
  const table = await Table.open(memoryStore(), new Uint8Array(32).fill(7));
  await table.change(async (batch) => {
    batch.meta = { hasDevices: true, deviceDid: own };
  });
  const answers = [
    ["unreadable", 200],
    ["http_504", 504],
  ] as const;
  const stop = new AbortController();
  const opened = Promise.withResolvers<void>();
  const failures: string[] = [];
  let tried = 0;
  const link = {
    did: own,
    close: async () => undefined,
    lock: async () => undefined,
  } as Partial<DeviceLink>;
  const openLink = async () => {
    const [code, status] = answers[tried++] ?? [null, 0];
    if (code !== null) throw new ClientError("refused", code, code, { status });
    stop.abort();
    opened.resolve();
    return link as DeviceLink;
  };
  const store = await ownStoreOf(table, own);
  stop.signal.addEventListener("abort", () => store.stop());
  store.identity.on((event) => {
    if (event.type === "failed") failures.push(event.error.code);
  });
  const devices = new Devices(store, { name: "", openLink });
  await devices.start();
  await opened.promise;
  expect([tried, failures]).toEqual([3, []]);
}, 10_000);
