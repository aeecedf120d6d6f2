/**
 * The commands for stores on the executable, next to a running node: a backup and a restore
 * elsewhere, both killed and repeated; verify, top, export and import. Everything that was answered
 * before a backup began is in the result.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ed25519 } from "@noble/curves/ed25519.js";
import { encodeBase64, renderPublicKey, utf8 } from "../../src/core/codec/bytes.ts";
import type { StoreRecord } from "../../src/storage/contract.ts";
import {
  encodeExportLine,
  exportEnd,
  exportHeader,
  parseRecord,
} from "../../src/storage/transfer.ts";
import {
  executable,
  freePort,
  type RunningNode,
  run,
  scratchFolder,
  startNode,
} from "../support/executable.ts";

const folder = scratchFolder();
afterAll(folder.remove);
const cwd = folder.path;
const did = "did:svc:storageTeststorage2222";
const entries = 24;

type Site = { readonly name: string; readonly url: string; readonly config: string };

/** A machine of its own: another configuration with other stores. */
function site(name: string): Site {
  const url = `http://127.0.0.1:${freePort()}`;
  const config = join(cwd, `${name}.toml`);
  const lmdb = (path: string) =>
    `plugin = "lmdb"\npath = "${join(cwd, path)}"\nblock_time_ms = 50\n`;
  const stores = `[stores.records]\n${lmdb(`${name}-records`)}[stores.main]\n${lmdb(name)}`;
  const text = `[server]\nlisten = ["${url.slice(7)}"]\nlog_level = "error"\n${stores}[directory]\nenabled = true\nledger = "records"\n[cache]\nenabled = true\npublic_endpoints = ["http://cache.test"]\n`;
  writeFileSync(config, text);
  return { name, url, config };
}

const [home, away] = [site("home"), site("away")];
const storage = async (
  words: readonly string[],
  { config }: Site,
  env: Record<string, string> = {},
): Promise<Record<string, unknown>> => {
  const { code, stdout, stderr } = await run(["storage", ...words, "--config", config, "--json"], {
    cwd,
    env,
  });
  if (code !== 0)
    throw new Error(`storage ${words.join(" ")} ended with ${code}: ${stderr}${stdout}`);
  return JSON.parse(stdout) as Record<string, unknown>;
};

/** Starts a command and kills it after a while; whether it was still at work. */
async function killed(words: readonly string[], afterMs: number): Promise<boolean> {
  const child = Bun.spawn([await executable(), ...words], {
    cwd,
    stdout: "ignore",
    stderr: "ignore",
  });
  await Bun.sleep(afterMs);
  child.kill("SIGKILL");
  return (await child.exited) !== 0;
}

let node: RunningNode;
const stored: string[] = [];
beforeAll(async () => {
  node = await startNode(["serve", "--config", home.config], { cwd, url: home.url });
  await register();
  for (let i = 0; i < entries; i++) stored.push(await store("x".repeat(200_000)));
}, 120_000);
afterAll(async () => {
  await node.kill("SIGKILL");
});

const post = (path: string, body: unknown): Promise<Response> =>
  fetch(home.url + path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });

async function register(): Promise<void> {
  const seed = ed25519.utils.randomSecretKey();
  const timestamp = new Date().toISOString();
  const publicKeyMultibase = renderPublicKey(ed25519.getPublicKey(seed));
  const did_document = {
    id: did,
    verificationMethod: [
      { id: `${did}#root`, type: "Multikey", controller: did, publicKeyMultibase },
    ],
    authentication: [`${did}#root`],
    service: [
      {
        id: `${did}#cache`,
        type: "SvcCacheService",
        serviceEndpoint: ["http://cache.test"],
        authorization: [`${did}#root`],
      },
    ],
  };
  const signature = encodeBase64(ed25519.sign(utf8(`${did}|${timestamp}`), seed));
  expect((await post("/register-did", { did, timestamp, signature, did_document })).status).toBe(
    202,
  );
  for (;;) {
    const status = (await (await fetch(`${home.url}/registration-status/${did}`)).json()) as {
      registered: boolean;
    };
    if (status.registered) return;
    await Bun.sleep(20);
  }
}

async function store(text: string): Promise<string> {
  const message_id = crypto.randomUUID();
  const reply = await post("/cache/store", {
    message_id,
    to: did,
    timestamp: new Date().toISOString(),
    payload: { text },
  });
  expect(reply.status).toBe(202);
  return message_id;
}

/** Ids of the messages in an export. */
async function idsIn(at: Site): Promise<string[]> {
  const file = join(cwd, `${at.name}-${crypto.randomUUID()}.jsonl`);
  await storage(["export", "--to", file, "--store", "main"], at);
  const lines = readFileSync(file, "utf8").trim().split("\n");
  return lines.flatMap((line) => /"messageId":"([0-9a-f-]{36})"/.exec(line)?.[1] ?? []).sort();
}

describe("beside a running node", () => {
  const backup = join(cwd, "backup");

  test("a killed backup has no name that a restore takes, and the next one is whole", async () => {
    const began = performance.now();
    await storage(["backup", "--to", join(cwd, "timed")], home);
    const wholeMs = performance.now() - began;
    // Killed at any moment, until one has begun and is not finished.
    while (!existsSync(`${backup}.partial`)) {
      rmSync(backup, { recursive: true, force: true });
      await killed(
        ["storage", "backup", "--to", backup, "--config", home.config],
        wholeMs * (0.3 + 0.7 * Math.random()),
      );
    }
    const restored = await run(["storage", "restore", "--from", backup, "--config", away.config], {
      cwd,
    });
    expect([restored.code, restored.stderr]).toEqual([
      1,
      expect.stringContaining("has no backup of the store"),
    ]);
    expect(existsSync(join(cwd, "away-records"))).toBe(false);
    const refused = await run(["storage", "backup", "--to", backup, "--config", home.config], {
      cwd,
    });
    expect([refused.code, refused.stderr]).toEqual([
      1,
      expect.stringContaining("one was interrupted"),
    ]);
    rmSync(`${backup}.partial`, { recursive: true });
    const done = await storage(["backup", "--to", backup], home);
    expect(done).toEqual([
      {
        name: "records",
        result: expect.stringMatching(/, to \S+\/backup\/records; the copy was verified$/),
      },
      {
        name: "main",
        result: expect.stringMatching(/, to \S+\/backup\/main; the copy was verified$/),
      },
    ] as never);
    expect(readdirSync(cwd).filter((name) => name.endsWith(".partial"))).toEqual([]);
    expect(readdirSync(backup).sort()).toEqual(["main", "records"]);
    expect(readdirSync(join(backup, "main"))).toEqual(["data.mdb"]);
  }, 60_000);

  test("of two backups into one folder at once one is refused, and leaves the other alone", async () => {
    const twice = join(cwd, "twice");
    const words = ["storage", "backup", "--to", twice, "--config", home.config];
    const codes = (await Promise.all([run(words, { cwd }), run(words, { cwd })])).map(
      ({ code }) => code,
    );
    expect(codes.sort()).toEqual([0, 1]);
    expect(readdirSync(twice).sort()).toEqual(["main", "records"]);
    expect(readdirSync(cwd).filter((name) => name.endsWith(".partial"))).toEqual([]);
  }, 60_000);

  test("a whole backup is not written over, and one that lacks a store is not restored", async () => {
    const again = await run(["storage", "backup", "--to", backup, "--config", home.config], {
      cwd,
    });
    expect([again.code, again.stderr]).toEqual([
      1,
      expect.stringContaining("name a new folder with --to"),
    ]);
    const part = join(cwd, "part");
    await storage(["backup", "--to", part, "--store", "main"], home);
    const restored = await run(["storage", "restore", "--from", part, "--config", away.config], {
      cwd,
    });
    expect([restored.code, restored.stderr.trim()]).toEqual([
      1,
      `${part} has no backup of the store "records"`,
    ]);
    expect(existsSync(join(cwd, "away"))).toBe(false);
  }, 60_000);

  test("verify finds nothing, and top names who holds the most", async () => {
    await storage(["verify"], home);
    const top = await storage(["top"], home);
    expect(top).toMatchObject({ entries, recipients: [{ name: did, entries }] });
    const labels = (top["labels"] as { name: string }[]).map(({ name }) => name);
    expect(labels.length).toBeGreaterThan(0);
  }, 60_000);

  test("a restore on another machine that is killed again and again ends whole, and a node starts on it", async () => {
    const words = ["storage", "restore", "--from", backup, "--config", away.config];
    for (const afterMs of [150, 300, 450]) await killed(words, afterMs);
    await storage(["restore", "--from", backup], away);
    expect(await idsIn(away)).toEqual([...stored].sort());
    const restored = await startNode(["serve", "--config", away.config], { cwd, url: away.url });
    expect((await fetch(`${away.url}/readyz`)).status).toBe(200);
    expect((await fetch(`${away.url}/resolve/${did}`)).status).toBe(200);
    expect(await restored.kill("SIGTERM")).toBe(0);
  }, 120_000);

  test("an export is read by another store of another machine", async () => {
    const file = join(cwd, "moved.jsonl");
    await storage(["export", "--to", file, "--store", "main"], home);
    const fresh = site("fresh");
    const report = await storage(["import", "--from", file, "--store", "main"], fresh);
    expect(report).toMatchObject({ messages: entries });
    expect(await idsIn(fresh)).toEqual([...stored].sort());
  }, 60_000);

  test("an import says how many messages have expired since the export, and what became of them", async () => {
    const file = join(cwd, "expired.jsonl");
    await storage(["export", "--to", file, "--store", "main"], home);
    const records = readFileSync(file, "utf8")
      .trimEnd()
      .split("\n")
      .slice(1, -1)
      .map((line) => parseRecord(line) as StoreRecord);
    let messages = 0;
    const lines = records.map((record) => {
      if (record.kind !== "message" || messages >= 5) return encodeExportLine(record);
      const isKept = messages++ < 2;
      const [onExpiry, headerPreview] = isKept
        ? (["KeepHeaderPreview", utf8("preview")] as const)
        : (["DeleteOnExpiry", null] as const);
      const ends = { expiresAtMs: Date.now() - 1_000, keptUntilMs: Date.now() + 60_000 };
      return encodeExportLine({
        ...record,
        entry: { ...record.entry, ...ends, onExpiry, headerPreview },
      });
    });
    const text = [exportHeader, ...lines].map((line) => `${line}\n`).join("");
    const sum = new Bun.CryptoHasher("sha256").update(text).digest();
    writeFileSync(file, `${text}${exportEnd(lines.length, sum)}\n`);
    const words = ["storage", "import", "--from", file, "--store", "main"];
    const { code, stdout } = await run([...words, "--config", site("late").config], { cwd });
    expect([code, stdout]).toEqual([
      0,
      expect.stringContaining(`imported: ${entries - 3} messages`),
    ]);
    expect(stdout).toContain("expired by now: 2 of these messages");
    expect(stdout).toContain("left out, because their time is over: 3 messages");
  }, 60_000);

  test("a command that needs the store for itself reports that a node uses it", async () => {
    const words = ["storage", "restore", "--from", backup, "--config", home.config];
    const { code, stderr } = await run(words, { cwd });
    expect([code, stderr.trim().split("\n").length]).toEqual([1, 1]);
  }, 60_000);
});

const s3rver = join(import.meta.dir, "..", "runtimes", "node_modules", ".bin", "s3rver");
const [runtime] = ["node", "bun"].map((name) => Bun.which(name)).filter((path) => path !== null);

/** An S3 service on loopback, which keeps each object as a file. */
describe.skipIf(!existsSync(s3rver) || runtime === undefined)("in a bucket", () => {
  const port = freePort();
  const objects = join(cwd, "objects");
  const place = "s3://backups/of/waypost";
  const env = {
    AWS_ENDPOINT_URL: `http://127.0.0.1:${port}`,
    AWS_ACCESS_KEY_ID: "S3RVER",
    AWS_SECRET_ACCESS_KEY: "S3RVER",
  };
  let service: Bun.Subprocess;
  beforeAll(async () => {
    mkdirSync(objects);
    const where = ["--directory", objects, "--address", "127.0.0.1", "--port", String(port)];
    const words = [runtime ?? "", s3rver, ...where, "--configure-bucket", "backups"];
    service = Bun.spawn(words, { cwd, stdout: "ignore", stderr: "ignore" });
    while ((await fetch(env.AWS_ENDPOINT_URL).catch(() => null)) === null) await Bun.sleep(50);
  }, 60_000);
  afterAll(async () => {
    service.kill();
    await service.exited;
  });

  const second = () => new Date().toISOString().slice(0, 19).replaceAll(":", "-");
  /** A copy is named by its second: in the same one it would be put in the place of the last. */
  const backUp = async (...words: string[]) => {
    const last = timesIn(kept).at(-1) ?? "";
    while (last.startsWith(second())) await Bun.sleep(20);
    return storage(["backup", "--to", place, ...words], home, env);
  };
  const timesIn = (folder: string): string[] =>
    existsSync(folder) ? readdirSync(folder).sort() : [];
  const kept = join(objects, "backups", "of", "waypost");

  test("a copy comes back whole on another machine, and leaves nothing behind", async () => {
    const done = await backUp("--scratch", cwd);
    expect(JSON.stringify(done)).toContain(`${place}/20`);
    expect(timesIn(kept)).toHaveLength(1);
    const back = site("from-bucket");
    await storage(["restore", "--from", place, "--scratch", cwd], back, env);
    expect(await idsIn(back)).toEqual([...stored].sort());
    expect(readdirSync(cwd).filter((name) => name.startsWith("waypost-backup-"))).toEqual([]);
  }, 120_000);

  test("an upload that was killed is no copy, and goes with the next that removes old ones", async () => {
    const isWhole = (time: string) => existsSync(join(kept, time, "SHA256SUMS._S3rver_object"));
    const unfinished = () => timesIn(kept).filter((time) => !isWhole(time));
    // Killed at its first object; where that came too late, once more.
    while (unfinished().length === 0) {
      const before = timesIn(kept).length;
      const words = ["storage", "backup", "--to", place, "--config", home.config];
      const child = Bun.spawn([await executable(), ...words], {
        cwd,
        env: { ...process.env, ...env, TMPDIR: cwd },
      });
      while (timesIn(kept).length === before && child.exitCode === null) await Bun.sleep(1);
      child.kill("SIGKILL");
      await child.exited;
    }
    const [lost = ""] = unfinished();
    await backUp();
    await backUp("--keep", "2");
    const after = timesIn(kept);
    expect(after).toHaveLength(2);
    expect(after).not.toContain(lost);
  }, 240_000);

  test("a damaged object and a lost list are refused, and an older copy is taken by its time", async () => {
    const [older = "", newest = ""] = timesIn(kept);
    const data = join(kept, newest, "main", "data.mdb._S3rver_object");
    const bytes = readFileSync(data);
    bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] ?? 0) ^ 1;
    writeFileSync(data, bytes);
    const back = site("from-damage");
    const restore = (from: string) =>
      run(["storage", "restore", "--from", from, "--config", back.config], { cwd, env });
    const damaged = await restore(place);
    expect([damaged.code, damaged.stderr]).toEqual([
      1,
      expect.stringContaining("main/data.mdb in the backup of"),
    ]);
    expect(existsSync(join(cwd, "from-damage"))).toBe(false);
    rmSync(join(kept, newest), { recursive: true });
    rmSync(join(kept, older, "SHA256SUMS._S3rver_object"));
    rmSync(join(kept, older, "SHA256SUMS._S3rver_metadata.json"));
    expect((await restore(place)).stderr).toContain("has no whole backup");
    await backUp();
    await backUp();
    const [first = ""] = timesIn(kept).slice(-2);
    expect((await restore(`${place}/${first}`)).code).toBe(0);
    expect(await idsIn(back)).toEqual([...stored].sort());
  }, 240_000);

  test("a service that is away and a place that is none are said in words", async () => {
    const away = { ...env, AWS_ENDPOINT_URL: `http://127.0.0.1:${freePort()}` };
    const words = ["storage", "backup", "--config", home.config, "--to"];
    const refused = await run([...words, place], { cwd, env: away });
    expect([refused.code, refused.stderr]).toEqual([
      1,
      expect.stringContaining("the bucket refused"),
    ]);
    for (const wrong of ["s3://", "s3://B/x", "s3:///x"]) {
      const { stderr } = await run([...words, wrong], { cwd, env });
      expect(stderr).toContain(`${wrong} does not name a place in a bucket`);
    }
  }, 120_000);
});
