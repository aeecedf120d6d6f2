/**
 * What a device of a thief does to an identity's own document while it is linked: components keep
 * their ids, and get types and rights by which the identity could no longer sign, read or be
 * reached. After its removal the document is as it was.
 */
import { expect, test } from "bun:test";
import { publishEdited } from "../../src/client/identity/change.ts";
import { activeDocument } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import type { DidDocument } from "../../src/core/ledger/account.ts";
import { peopleAtNodes, waiting } from "../support/people.ts";
import { devicesAt, killedKeys, shows, until } from "./own-devices.ts";

const people = peopleAtNodes();
const { open } = people;
const { place, linked } = devicesAt(people);

const isNotice = ({ type }: DidDocument["keyAgreement"][number]) => type === "SvcKeyBundle2026";

const withStrangeTypes = (document: DidDocument): DidDocument => ({
  ...document,
  verificationMethod: document.verificationMethod.map((one) => ({
    ...one,
    type: "JsonWebKey2020",
  })),
  keyAgreement: document.keyAgreement.map((one) => ({ ...one, type: "SvcKeyBundle2026" })),
  service: document.service.map((one) => ({
    ...one,
    type: one.type === "SvcCacheService" ? "SvcInboxService" : one.type,
    authorization: null,
  })),
});
const withoutRights = (document: DidDocument): DidDocument => ({
  ...document,
  service: document.service.map((one) => ({ ...one, authorization: [] })),
});
const withoutServices = (document: DidDocument): DidDocument => ({ ...document, service: [] });
/** Four of another type at the own host: there is no room for the two that the identity needs. */
const filledUp = (document: DidDocument): DidDocument => {
  const [one] = document.service as [DidDocument["service"][number]];
  const ids = [1, 2, 3, 4].map((i) => `${document.id}#s${i}`);
  return { ...document, service: ids.map((id) => ({ ...one, id, type: "SvcInboxService" })) };
};
const atOtherPaths = (document: DidDocument): DidDocument => ({
  ...document,
  service: document.service.map((one) => ({
    ...one,
    serviceEndpoint: one.serviceEndpoint.flatMap((url) => [`${url}/a`, `${url}/b`]),
  })),
});
const forms = { withStrangeTypes, withoutRights, withoutServices, filledUp, atOtherPaths };

/** What says how keys and services are used. */
const formOf = ({ verificationMethod, authentication, keyAgreement, service }: DidDocument) => ({
  methods: verificationMethod.map(({ id, type, controller }) => [id, type, controller]),
  authentication,
  agreements: keyAgreement.map((one) => [
    one.id,
    one.type,
    isNotice(one) && one.publicKeyMultibase,
  ]),
  services: service
    .filter(({ type }) => type !== "SvcInboxService")
    .toSorted((a, b) => (a.id < b.id ? -1 : 1)),
});

for (const [what, edit] of Object.entries(forms))
  test(`a removal gives the own components their forms again: ${what}`, async () => {
    const [phone, bob] = [await open(place()), await open(place())];
    const thief = await linked(phone);
    const before = await activeDocument(phone.client, phone.did);
    const { rootSeed } = thief.identity;
    const edited = async (document: DidDocument) => edit(document);
    await publishEdited(thief.client, phone.did, { rootSeed, edited, waiting });
    const [gone] = (await phone.devices.list()).filter(({ isThis }) => !isThis);
    await thief.close();
    await phone.devices.remove(gone?.did ?? "");
    expect(formOf(await activeDocument(phone.client, phone.did))).toEqual(formOf(before));
    await (await bob.send(phone.did, "are you there?")).delivered;
    await shows(phone, bob.did, ["are you there?"]);
    await (await phone.send(bob.did, "yes")).delivered;
  }, 60_000);

/** The device is killed as soon as its identity stands in its keys, and opened again. */
async function linkedByHalves(phone: Waypost, where: ReturnType<typeof place>): Promise<Waypost> {
  const isLast = (name: string) => name === "default" || name === phone.identity.name;
  const { keys } = killedKeys(where.keys, isLast);
  const linking = await Waypost.link({ ...where, keys });
  const failed = linking.opened.then(
    () => null,
    (error: unknown) => String(error),
  );
  await phone.devices.acceptLink(linking.code, "second");
  expect(await failed).toContain("killed");
  return open(where);
}

for (const isKilled of [false, true])
  test(`a device that was linked after a thief's ${isKilled ? "and killed meanwhile " : ""}takes no service of it for the identity's own`, async () => {
    const phone = await open(place());
    const thief = await linked(phone);
    const before = await activeDocument(phone.client, phone.did);
    const [cache] = before.service.filter(({ type }) => type === "SvcCacheService");
    const evil = { id: `${phone.did}#evil`, serviceEndpoint: ["https://evil.example"] };
    const { rootSeed } = thief.identity;
    const edited = async (document: DidDocument): Promise<DidDocument> => ({
      ...document,
      service: [...document.service, { ...(cache as DidDocument["service"][number]), ...evil }],
    });
    await publishEdited(thief.client, phone.did, { rootSeed, edited, waiting });
    const gone = (await phone.devices.list()).find(({ isThis }) => !isThis)?.did ?? "";
    const where = place();
    const tablet = isKilled ? await linkedByHalves(phone, where) : await linked(phone, where);
    await until(
      () => tablet.devices.list(),
      (all) => all.length === 3,
    );
    await tablet.devices.remove(gone);
    expect(formOf(await activeDocument(phone.client, phone.did))).toEqual(formOf(before));
  }, 60_000);
