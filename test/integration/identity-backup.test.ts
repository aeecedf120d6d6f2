/** `waypost backup-identity` and `restore-identity` on files of this machine. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileKeys, stateFolder } from "../../src/cli/files/files.ts";
import { fileStore } from "../../src/cli/files/store.ts";
import { Table } from "../../src/client/store/table.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { executable } from "../support/executable.ts";
import { startTestNodes } from "../support/nodes.ts";
import { scratchPaths } from "../support/scratch.ts";

const pathOf = scratchPaths("identity-backup");

let nodes: Awaited<ReturnType<typeof startTestNodes>>;
beforeAll(async () => {
  nodes = await startTestNodes();
});
afterAll(() => nodes.stop());

async function waypost(keys: string, ...args: string[]) {
  const command = [await executable(), ...args, "--keys", keys, "--json"];
  const child = Bun.spawn(command, {
    env: { ...process.env, WAYPOST_URL: nodes.url },
    stdout: "pipe",
    stderr: "pipe",
  });
  const [out, error, code] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  return { code, out, error };
}

test("an identity with its store moves to another folder in a sealed file", async () => {
  const [from, to, folder] = [pathOf(), pathOf(), pathOf()];
  mkdirSync(folder);
  const alice = await Waypost.open({ url: nodes.url, keys: fileKeys(from), name: "alice" });
  const { identity } = alice;
  await alice.close();
  const storeKey = identity.storeKey;
  const store = fileStore(join(stateFolder(from, "alice"), "store.sqlite"));
  const table = await Table.open(store, storeKey);
  await table.change(async (batch) => batch.put("people/bob", { name: "Bob" }));
  await store.close();
  const [secret, wrong, file] = [
    join(folder, "secret"),
    join(folder, "wrong"),
    join(folder, "alice.backup"),
  ];
  writeFileSync(secret, "correct horse\n");
  writeFileSync(wrong, "wrong\n");
  const save = ["backup-identity", file, "--passphrase-file", secret, "--as", "alice"];
  const saved = await waypost(from, ...save);
  expect([saved.error, saved.code]).toEqual(["", 0]);
  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect(readFileSync(file).includes(identity.did)).toBe(false);
  // A file that is there is never written over.
  expect((await waypost(from, ...save)).code).toBe(1);
  const refused = await waypost(
    to,
    "restore-identity",
    file,
    "--passphrase-file",
    wrong,
    "--as",
    "alice",
    "--others",
    "remain",
  );
  expect([refused.code, refused.error.includes("wrong_passphrase")]).toEqual([1, true]);
  const back = await waypost(
    to,
    "restore-identity",
    file,
    "--passphrase-file",
    secret,
    "--as",
    "alice",
    "--others",
    "remain",
  );
  expect([back.error, back.code, JSON.parse(back.out).did]).toEqual(["", 0, identity.did]);
  const keysIn = async (folder: string) =>
    JSON.parse((await fileKeys(folder).load("alice")) ?? "null");
  expect(await keysIn(to)).toEqual(await keysIn(from));
  const restored = fileStore(join(stateFolder(to, "alice"), "store.sqlite"));
  expect(await (await Table.open(restored, storeKey)).get<{ name: string }>("people/bob")).toEqual({
    name: "Bob",
  });
  await restored.close();
}, 60_000);
