/**
 * A removal whose device is lost between the root key and the document, and asked for again on
 * another device: where nothing proves the identity's keys, and where that device lacks them.
 */
import { expect, test } from "bun:test";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { ed25519PublicKey } from "../../src/client/keys/crypto.ts";
import { activeDocument, connect } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { renderPublicKey } from "../../src/core/codec/bytes.ts";
import { isSelfCertifying } from "../../src/core/ledger/names.ts";
import { lyingDirectory } from "../support/lying-directory.ts";
import { peopleAtNodes, waiting } from "../support/people.ts";
import { leavingDirectory } from "./leaving-directory.ts";
import { devicesAt, until } from "./own-devices.ts";

const people = peopleAtNodes();
const { at, open, keep } = people;
const { place, linked } = devicesAt(people);

const failing = (work: Promise<unknown>) =>
  work.then(
    () => "done",
    (error: { readonly code?: string }) => error.code ?? error,
  );
const devicesOf = (me: Waypost) => me.devices.list();
const ownDid = async (me: Waypost) => (await devicesOf(me)).find(({ isThis }) => isThis)?.did ?? "";
const knows = (me: Waypost, count: number) =>
  until(
    () => devicesOf(me),
    (all) => all.length === count,
  );
const over = ({ url: _, ...where }: Partial<WaypostOptions> & Pick<WaypostOptions, "keys">) => ({
  under: (directoryUrl: string, relayUrl = at.url) =>
    keep(Waypost.open({ ...where, directoryUrl, relayUrl, cacheUrl: at.url, waiting })),
});
/** Keys that sign as the identity now, as the ledger has it. */
async function signing(me: Waypost): Promise<readonly string[]> {
  const there = connect({ directoryUrl: at.url, relayUrl: at.url });
  const { verificationMethod } = await activeDocument(there, me.did);
  return verificationMethod.map((one) => one.publicKeyMultibase);
}
const keyOf = async ({ identity }: Waypost) =>
  renderPublicKey(await ed25519PublicKey(identity.rootSeed));

test("of an identity that nothing proves, another device ends the removal as well", async () => {
  const plain = lyingDirectory(at.url);
  plain.lie = {
    json: ({ path, json }) =>
      path === "/limits" ? { ...json, self_certifying_dids: false } : null,
  };
  const leaving = leavingDirectory(plain, 1);
  const urls = { directoryUrl: plain.url, relayUrl: at.url, cacheUrl: at.url };
  const random = () => ({ ...place(), ...urls, allowRandom: true });
  try {
    const where = random();
    const phone = await open(where);
    expect(isSelfCertifying(phone.did)).toBe(false);
    const tablet = await linked(phone, random());
    const thief = await linked(phone, random());
    await knows(tablet, 3);
    await knows(phone, 3);
    const [gone, former] = [await ownDid(thief), await keyOf(thief)];
    await phone.close();
    const away = await over(where).under(leaving.url);
    await knows(away, 3);
    expect(await failing(away.devices.remove(gone))).not.toBe("done");
    await away.close();
    await knows(tablet, 2);
    expect(await signing(tablet)).toContain(former);
    expect(await failing(tablet.devices.remove(gone))).toBe("done");
    expect(await signing(tablet)).not.toContain(former);
    const settled = await signing(tablet);
    expect(await failing(tablet.devices.remove(gone))).toBe("done");
    expect(await signing(tablet)).toEqual(settled);
  } finally {
    await leaving.stop();
    await plain.stop();
  }
}, 90_000);

test("a device that lacks the keys in force says that the removal is not done", async () => {
  const [rotating, again] = [leavingDirectory(at, 1), leavingDirectory(at, 1)];
  const [where, beside] = [place(), place()];
  const phone = await open(where);
  const [laptop, tablet] = [await linked(phone, beside), await linked(phone)];
  const thief = await linked(phone);
  try {
    await Promise.all([phone, laptop, tablet].map((me) => knows(me, 4)));
    const [gone, former] = [await ownDid(thief), await keyOf(thief)];
    await phone.close();
    const away = await over(where).under(rotating.url);
    await knows(away, 4);
    expect(await failing(away.devices.remove(gone))).not.toBe("done");
    await away.close();
    await Promise.all([laptop, tablet].map((me) => knows(me, 3)));
    await laptop.close();
    // Its messages reach no one.
    const silent = await over(beside).under(again.url, rotating.url);
    await knows(silent, 3);
    expect(await failing(silent.devices.replaceKeys())).not.toBe("done");
    await silent.close();
    expect(await failing(tablet.devices.remove(gone))).toBe("behind");
    expect(await signing(tablet)).toContain(former);
    const back = await over(beside).under(at.url);
    const isNamed = async () => (await signing(tablet)).includes(former);
    expect(await until(isNamed, (is) => !is)).toBe(false);
    const done = () => failing(tablet.devices.remove(gone));
    expect(await until(done, (said) => said === "done")).toBe("done");
    await back.close();
  } finally {
    for (const directory of [rotating, again]) await directory.stop();
  }
}, 90_000);
