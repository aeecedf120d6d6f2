/**
 * What happens to the folder of a store under the executable: its lock is removed and a second node
 * starts, it gets another name, its data file is lost, damaged, or may not be written. Nothing that
 * was answered is lost, and each refusal names what an operator can do.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  chmodSync,
  chownSync,
  cpSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import {
  clientFrom,
  envelopeTo,
  personAt,
  registerAll,
  type StageClient,
  type StagePerson,
} from "../campaigns/stage.ts";
import {
  executable,
  freePort,
  type RunningNode,
  run,
  scratchFolder,
  startNode,
} from "../support/executable.ts";

const scratch = scratchFolder();
const cwd = scratch.path;
const folder = join(cwd, "data");
const data = join(folder, "data.mdb");
const urls = [freePort(), freePort()].map((port) => `http://127.0.0.1:${port}`) as [string, string];
const configOf = (url: string): string => {
  const file = join(cwd, `${url.slice(-5)}.toml`);
  const store = '[stores.main]\nplugin = "lmdb"\npath = "data"\nblock_time_ms = 50\n';
  const nodes = `[directory]\nenabled = true\n[cache]\nenabled = true\npublic_endpoints = ["${urls[0]}"]\n`;
  writeFileSync(file, `[server]\nlisten = ["${url.slice(7)}"]\n${store}${nodes}`);
  return file;
};
const [config, otherConfig] = [configOf(urls[0]), configOf(urls[1])];

let node: RunningNode;
let client: StageClient;
let bob: StagePerson;
const start = async (): Promise<void> => {
  node = await startNode(["serve", "--config", config], { cwd, url: urls[0] });
};
beforeAll(async () => {
  await executable();
  await start();
  client = clientFrom("127.0.0.1", urls[0]);
  bob = await personAt(urls[0]);
  await registerAll(client, [bob]);
}, 120_000);
afterAll(async () => {
  client.close();
  await node.kill("SIGKILL");
  scratch.remove();
});

/** The status, and the id that was sent. */
async function store(): Promise<readonly [status: number, id: string]> {
  const id = crypto.randomUUID();
  return [(await client.post("/cache/store", envelopeTo(bob, { message_id: id }))).status, id];
}

async function idsInStore(): Promise<string[]> {
  const { stdout } = await run(["storage", "export", "--config", config], { cwd });
  return [...stdout.matchAll(/"messageId":"([^"]+)"/g)].map(([, id]) => id!);
}

describe("under a running node", () => {
  test.if(process.platform === "linux")(
    "a second one does not start after owner.lock was removed, and the first loses nothing",
    async () => {
      const [before, one] = await store();
      rmSync(join(folder, "owner.lock"));
      const second = await run(["serve", "--config", otherConfig], { cwd });
      expect([second.code, second.stderr]).toEqual([1, expect.stringContaining("already open")]);
      const [after, two] = await store();
      expect([before, after]).toEqual([202, 202]);
      await node.kill("SIGKILL");
      await start();
      expect(await idsInStore()).toEqual(expect.arrayContaining([one, two]));
    },
    60_000,
  );

  test("another name for it is 503, for readiness too, and its own name ends that", async () => {
    renameSync(folder, `${folder}-elsewhere`);
    expect((await store())[0]).toBe(503);
    expect((await fetch(`${urls[0]}/readyz`)).status).toBe(503);
    renameSync(`${folder}-elsewhere`, folder);
    expect((await store())[0]).toBe(202);
    // Readiness is looked at once a second.
    while ((await fetch(`${urls[0]}/readyz`)).status !== 200) await Bun.sleep(50);
  }, 60_000);
});

describe("without a node", () => {
  beforeAll(async () => {
    expect(await node.kill("SIGTERM")).toBe(0);
    cpSync(folder, join(cwd, "whole"), { recursive: true });
  }, 60_000);
  const restored = (): void => {
    rmSync(folder, { recursive: true, force: true });
    cpSync(join(cwd, "whole"), folder, { recursive: true });
  };

  test("a data file that is gone is not replaced by an empty store", async () => {
    restored();
    rmSync(data);
    const { code, stderr } = await run(["serve", "--config", config], { cwd });
    expect([code, stderr]).toEqual([1, expect.stringContaining("is the volume mounted?")]);
  }, 60_000);

  test("pages that end the process that reads or changes them are damage to verify", async () => {
    restored();
    expect((await run(["storage", "verify", "--config", config], { cwd })).stdout).toContain(
      "sound",
    );
    // The number of the transaction in each branch and leaf of the trees.
    const bytes = readFileSync(data);
    for (let at = 2 * 4_096; at < bytes.length; at += 4_096)
      if (bytes.readUInt32LE(at) === at / 4_096 && [1, 2].includes(bytes.readUInt16LE(at + 18)))
        bytes[at + 15]! ^= 1;
    writeFileSync(data, bytes);
    const { code, stdout } = await run(["storage", "verify", "--config", config], { cwd });
    expect([code, stdout]).toEqual([1, expect.stringContaining("main: 0 records, 1 problems")]);
    expect(stdout).toContain("ended a process (SIG");
  }, 60_000);

  test("an export of another format prints nothing on standard output", async () => {
    restored();
    const bytes = readFileSync(data);
    const stamp = Buffer.from("waypost lmdb store, format 1");
    for (let at = bytes.indexOf(stamp); at >= 0; at = bytes.indexOf(stamp, at + 1))
      bytes[at + stamp.length - 1] = "8".charCodeAt(0);
    writeFileSync(data, bytes);
    const { code, stdout, stderr } = await run(["storage", "export", "--config", config], { cwd });
    expect([code, stdout, stderr]).toEqual([1, "", expect.stringContaining("has format 8")]);
  }, 60_000);

  const [setpriv, nobody] = [Bun.which("setpriv"), 65_534];
  test.if(process.getuid?.() === 0 && setpriv !== null)(
    "a file that may not be written is refused as such, without the advice to restore",
    async () => {
      restored();
      for (const path of [cwd, folder]) chmodSync(path, 0o755);
      for (const path of [folder, join(folder, "owner.lock"), join(folder, "lock.mdb")])
        chownSync(path, nobody, nobody);
      chmodSync(data, 0o444);
      const command = [setpriv!, `--reuid=${nobody}`, `--regid=${nobody}`, "--clear-groups"];
      const child = Bun.spawn([...command, await executable(), "serve", "--config", config], {
        cwd,
        stdout: "ignore",
        stderr: "pipe",
      });
      const text = await new Response(child.stderr).text();
      expect([await child.exited, text]).toEqual([1, expect.stringContaining("Permission denied")]);
      expect(text).not.toContain("storage restore");
    },
    60_000,
  );
});
