/** `waypost device`: two key folders of one machine stand for two devices. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileKeys, loadIdentity, stateFolder } from "../../src/cli/files/files.ts";
import { fileStore } from "../../src/cli/files/store.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { executable } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

const folder = mkdtempSync(join(tmpdir(), "waypost-device-"));
let nodes: TestNodes;
beforeAll(async () => {
  nodes = await startTestNodes();
});
afterAll(async () => {
  await nodes.stop();
  rmSync(folder, { recursive: true, force: true });
});

const main = await executable();
function start(keys: string, ...words: string[]) {
  const args = [...words, "--url", nodes.url, "--keys", join(folder, keys), "--json"];
  return Bun.spawn([main, ...args], { stdout: "pipe", stderr: "pipe" });
}
async function run(keys: string, ...words: string[]): Promise<Record<string, unknown>> {
  const child = start(keys, ...words);
  const [text, problem] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  return JSON.parse((text || problem).trim().split("\n").at(-1) ?? "");
}

test("a device is linked, listed and removed by commands, and is no second identity of the folder", async () => {
  const { did } = await run("phone", "did", "create", "--name", "default");
  const linking = start("laptop", "device", "link");
  const lines = linking.stdout.pipeThrough(new TextDecoderStream()).getReader();
  const { code } = JSON.parse((await lines.read()).value ?? "");
  const accepted = await run("phone", "device", "accept", String(code), "--name", "laptop");
  const { fingerprint } = accepted;
  expect(fingerprint).toMatch(/^([0-9A-HJKMNP-TV-Z]{5} ){3}[0-9A-HJKMNP-TV-Z]{5}$/);
  expect(accepted).toEqual({ ok: true, did, fingerprint });
  // Anyone who saw the code first could have given the laptop another identity: both show whose it
  // is.
  const shown = JSON.parse((await lines.read()).value ?? "");
  expect(shown).toEqual({ ok: true, did, name: "default", fingerprint });
  expect(await linking.exited).toBe(0);
  const listed = async (keys: string) => {
    const { devices } = await run(keys, "device", "list");
    return devices as { did: string; name: string; this: boolean; current: boolean }[];
  };
  const devices = await listed("phone");
  expect(devices.map(({ name, this: isThis }) => [name, isThis])).toEqual([
    ["device", true],
    ["laptop", false],
  ]);
  expect((await listed("laptop")).map((one) => one.did).sort()).toEqual(
    devices.map((one) => one.did).sort(),
  );
  expect((await run("phone", "device", "remove", String(did), "--yes"))["code"]).toBe("no_device");
  expect(await run("phone", "device", "remove", devices[1]?.did ?? "")).toMatchObject({
    ok: false,
    code: "failed",
  });
  // Also when it is asked for again.
  for (let i = 0; i < 2; i++)
    expect(await run("phone", "device", "remove", devices[1]?.did ?? "", "--yes")).toEqual({
      ok: true,
      did: devices[1]?.did,
    });
  expect((await listed("phone")).length).toBe(1);
  expect((await run("laptop", "query"))["code"]).toBe("no_cache");
  expect((await run("phone", "query"))["ok"]).toBe(true);
}, 120_000);

/** A new device of the identity "default" in the folder `from`, by commands. */
async function link(from: string, to: string): Promise<void> {
  const linking = start(to, "device", "link");
  const lines = linking.stdout.pipeThrough(new TextDecoderStream()).getReader();
  const { code } = JSON.parse((await lines.read()).value ?? "");
  expect(await run(from, "device", "accept", String(code), "--name", to)).toMatchObject({
    ok: true,
  });
  expect(await linking.exited).toBe(0);
}

test("what waits while a device is linked is received as a file, and what one device receives the other has too", async () => {
  const { did } = await run("tablet", "did", "create", "--name", "default");
  await run("friend", "did", "create", "--name", "friend");
  const send = async (text: string) => {
    await Bun.write(join(folder, text), text);
    const sent = await run(
      "friend",
      "send",
      "--as",
      "friend",
      "--to",
      String(did),
      "--file",
      join(folder, text),
    );
    expect(sent["ok"]).toBe(true);
  };
  const received = async (keys: string) => {
    const { received: files } = await run(
      keys,
      "receive",
      "--out",
      join(folder, `${keys}-in`),
      "--wait-for",
      "20s",
    );
    return (files as { name: string }[]).map(({ name }) => name);
  };
  await send("early");
  await link("tablet", "desktop");
  expect(await received("tablet")).toEqual(["early"]);
  await send("late");
  expect(await received("desktop")).toEqual(["late"]);
  const state = join(stateFolder(join(folder, "tablet"), "default"), "store.sqlite");
  const keys = fileKeys(join(folder, "tablet"));
  const me = await Waypost.open({ url: nodes.url, keys, store: fileStore(state) });
  const { did: friend } = await loadIdentity(join(folder, "friend"), "friend");
  const texts = async () => (await me.store.messages(friend)).map(({ name }) => name);
  while ((await texts()).length < 2) await Bun.sleep(50);
  expect(await texts()).toEqual(["early", "late"]);
  await me.close();
}, 120_000);

test("a removal without a question names each device that stays: one that came since the list gets no new keys", async () => {
  await run("camera", "did", "create", "--name", "default");
  await link("camera", "printer");
  await link("camera", "helper");
  const listed = async () =>
    (await run("camera", "device", "list"))["devices"] as { did: string; name: string }[];
  const didOf = async (name: string) =>
    String((await listed()).find((one) => one.name === name)?.did);
  const [printer, helper] = [await didOf("printer"), await didOf("helper")];
  const remove = (...words: string[]) => run("camera", "device", "remove", printer, ...words);
  expect(await remove("--yes")).toMatchObject({ ok: false, code: "devices_changed" });
  expect((await remove("--yes", "--keep", printer))["code"]).toBe("devices_changed");
  expect((await listed()).length).toBe(3);
  expect(await remove("--yes", "--keep", helper)).toEqual({ ok: true, did: printer });
  expect((await listed()).map(({ name }) => name)).toEqual(["device", "helper"]);
}, 120_000);
