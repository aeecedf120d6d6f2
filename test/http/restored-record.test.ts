/**
 * Before lost keys are replaced the user sees what the record would lose: after a backup, after
 * guardians, and by command.
 */
import { expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { split } from "shamir-secret-sharing";
import { restore } from "../../src/client/identity/backup.ts";
import { change } from "../../src/client/identity/change.ts";
import { restoreFromGuardians } from "../../src/client/identity/guardians.ts";
import type { Choosing, RecordReplacement } from "../../src/client/identity/replacement.ts";
import { ed25519PublicKey } from "../../src/client/keys/crypto.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { freshSeed } from "../../src/client/keys/keys.ts";
import { activeDocument } from "../../src/client/trust/client.ts";
import type { Waypost } from "../../src/client/waypost.ts";
import { encodeHex, renderPublicKey } from "../../src/core/codec/bytes.ts";
import { executable } from "../support/executable.ts";
import { peopleAtNodes, waiting } from "../support/people.ts";
import { scratchPaths } from "../support/scratch.ts";

const people = peopleAtNodes();
const pathOf = scratchPaths("restored-record");

/**
 * A lost identity, to whose record a thief has added a method and a Cache, and its user one of
 * each.
 */
async function lost() {
  const me = await people.openStored();
  const { client, did } = me;
  const signer = { keyId: "root", seed: me.identity.rootSeed };
  const own = (await activeDocument(client, did)).service.map(({ id }) => id);
  const idOf = (name: string) => `${did}#${name}`;
  for (const name of ["evil", "liked"]) {
    const publicKeyMultibase = renderPublicKey(await ed25519PublicKey(freshSeed()));
    const verificationMethod = {
      ...{ id: idOf(name), type: "Multikey", controller: did },
      publicKeyMultibase,
    };
    const service = {
      ...{ id: idOf(`${name}-cache`), type: "SvcCacheService", authorization: null },
      ...{ serviceEndpoint: [`https://${name}.example`], priority: null },
    };
    for (const intent of [
      { action: "AddVerificationMethod", did, verificationMethod },
      { action: "AddService", did, service },
    ] as const)
      await change(client, intent, { signer, waiting });
  }
  return { me, own, idOf };
}

const recordOf = async ({ client, did }: Waypost) => {
  const { verificationMethod, service } = await activeDocument(client, did);
  return {
    methods: verificationMethod.map(({ id }) => id),
    services: service.map(({ id }) => id),
  };
};
const staysOf = (listed: RecordReplacement["services"]) =>
  listed.map(({ id, stays }) => [id, stays]);

type Lost = Awaited<ReturnType<typeof lost>>;
type Restores = (choose: Choosing) => Promise<unknown>;

/** Shows, ends without a change, and brings back what is ticked. */
async function choosing({ me, own, idOf }: Lost, restores: Restores): Promise<void> {
  const before = await recordOf(me);
  const shown: RecordReplacement[] = [];
  const cancels: Choosing = async (record) => {
    shown.push(record);
    throw new Error("cancelled");
  };
  await expect(restores(cancels)).rejects.toThrow("cancelled");
  expect(await recordOf(me)).toEqual(before);
  const { methods = [], services = [] } = shown[0] ?? {};
  const listed = methods.filter(({ id }) => !id.endsWith("#root")).map(({ id }) => id);
  expect(listed.filter((id) => /evil|liked/.test(id))).toEqual([idOf("evil"), idOf("liked")]);
  expect(methods.every(({ stays }) => !stays)).toBe(true);
  expect(staysOf(services)).toEqual([
    ...own.map((id) => [id, true]),
    [idOf("evil-cache"), false],
    [idOf("liked-cache"), false],
  ]);
  await restores(async () => {
    return { methods: [idOf("liked")], services: [idOf("liked-cache")] };
  });
  const after = await recordOf(me);
  expect(after.services).toEqual([...own, idOf("liked-cache")]);
  expect(after.methods).toContain(idOf("liked"));
  expect(after.methods).not.toContain(idOf("evil"));
}

test("a restoration of a backup whose devices are lost shows what goes, and keeps what is ticked", async () => {
  const all = await lost();
  const file = await new Response(await all.me.backup({ passphrase: "p" })).bytes();
  const keys = memoryKeys();
  await choosing(all, (choose) =>
    restore(new Response(file).body as ReadableStream<Uint8Array>, {
      ...{ passphrase: "p", keys, areOthersLost: true, directoryUrl: people.at.url },
      choose,
    }),
  );
}, 60_000);

test("a restoration by guardians shows what goes, and keeps what is ticked", async () => {
  const all = await lost();
  const { did, identity } = all.me;
  const rootKey = encodeHex(await ed25519PublicKey(identity.rootSeed));
  const shares = (await split(identity.rootSeed, 3, 2)).map((share) =>
    JSON.stringify({ v: 1, did, rootKey, share: encodeHex(share) }),
  );
  const keys = memoryKeys();
  await choosing(all, (choose) =>
    restoreFromGuardians({
      ...{ shares: shares.slice(1), directoryUrl: people.at.url, keys },
      choose,
    }),
  );
}, 60_000);

test("a restoration keeps services at the nodes that the user names, and no other ones", async () => {
  const { me, own, idOf } = await lost();
  const file = await me.backup({ passphrase: "p" });
  await restore(file, {
    ...{ passphrase: "p", keys: memoryKeys(), areOthersLost: true },
    ...{ directoryUrl: people.at.url, cacheUrl: "https://liked.example" },
  });
  expect((await recordOf(me)).services).toEqual([...own, idOf("liked-cache")]);
}, 60_000);

test("a restoration keeps no service at another node without a word of the user, and the command names what goes", async () => {
  const { me, own, idOf } = await lost();
  const folder = pathOf();
  mkdirSync(folder);
  const [file, secret] = [join(folder, "me.backup"), join(folder, "secret")];
  writeFileSync(file, await new Response(await me.backup({ passphrase: "p" })).bytes());
  writeFileSync(secret, "p\n");
  const command = [
    ...["restore-identity", file, "--passphrase-file", secret, "--others", "lost"],
    ...["--service", idOf("liked-cache"), "--as", "me", "--keys", pathOf()],
  ];
  const child = Bun.spawn([await executable(), ...command], {
    env: { ...process.env, WAYPOST_URL: people.at.url },
    stdout: "pipe",
    stderr: "pipe",
  });
  const [out, error] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  expect([await child.exited, out.includes(`me is ${me.did}`)]).toEqual([0, true]);
  const goes = `${out}\n${error}`.split("\n").filter((line) => line.includes("goes: "));
  for (const name of ["method", "service"])
    expect(goes.some((line) => line.includes(`goes: ${name} ${idOf("evil")}`))).toBe(true);
  expect(goes.some((line) => line.includes("liked-cache"))).toBe(false);
  expect((await recordOf(me)).services).toEqual([...own, idOf("liked-cache")]);
}, 60_000);
