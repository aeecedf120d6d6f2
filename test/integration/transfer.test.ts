/**
 * Moving everything between LMDB and PostgreSQL with the commands of the executable: identities
 * with their log, messages in all states, invitations and registrations under way. What was moved
 * serves on; what is not whole is refused, and an import that was killed does not pass for a store.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { appendFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { Waypost } from "../../src/client/waypost.ts";
import {
  executable,
  freePort,
  type RunningNode,
  run,
  scratchFolder,
  startNode,
} from "../support/executable.ts";
import { type PostgresServer, postgresAbsence, startPostgres } from "../support/postgres.ts";

const folder = scratchFolder();
const cwd = folder.path;
let server: PostgresServer | null = null;
beforeAll(async () => {
  if (postgresAbsence() === null) server = await startPostgres(["fsync=on"]);
}, 120_000);
afterAll(async () => {
  await server?.end();
  folder.remove();
});

const port = freePort();
const url = `http://127.0.0.1:${port}`;
const config = (name: string) => join(cwd, `${name}.toml`);
const lmdb = (name: string) => `plugin = "lmdb"\npath = "${join(cwd, name)}"`;
const postgres = (schema: string) =>
  `plugin = "postgres"\nurls = ["${server?.url}"]\nschema = "${schema}"`;

/** A site at the same address, over another store. */
function write(name: string, store: string): void {
  const sections = [
    `[server]\nlisten = ["127.0.0.1:${port}"]\nadmin_listen = ["unix:${join(cwd, "admin.sock")}"]\nlog_level = "warn"`,
    `[directory]\nenabled = true\nregistration = "invite"\nlog_key_file = "${join(cwd, "log.key")}"`,
    `[relay]\nenabled = true\npublic_endpoints = ["${url}"]\n[cache]\nenabled = true\npublic_endpoints = ["${url}"]`,
    `[stores.main]\n${store}\nblock_time_ms = 50`,
  ];
  writeFileSync(config(name), `${sections.join("\n")}\n`);
}

async function waypost(name: string, ...words: string[]): Promise<Record<string, unknown>> {
  const { code, stdout, stderr } = await run([...words, "--config", config(name), "--json"], {
    cwd,
  });
  if (code !== 0) throw new Error(stderr + stdout);
  return JSON.parse(stdout) as Record<string, unknown>;
}
const serve = (name: string): Promise<RunningNode> =>
  startNode(["serve", "--config", config(name)], { cwd, url });
const moveTo = (name: string, file: string) =>
  waypost(name, "storage", "import", "--from", join(cwd, file));
const exportOf = async (name: string, file: string): Promise<string[]> => {
  await waypost(name, "storage", "export", "--to", join(cwd, file));
  return readFileSync(join(cwd, file), "utf8").trimEnd().split("\n");
};

/** What every driver keeps of a record; the count of pending calls is made anew. */
const shown = (lines: readonly string[]): string[] =>
  lines
    .filter((line) => !/"kind":"end"|waypost_export|"key":"counts"/.test(line))
    .map((line) => JSON.parse(line) as Record<string, unknown>)
    .map(({ entry, ...record }) => ({
      ...record,
      ...(entry === undefined
        ? {}
        : { entry: shownEntry(entry as Record<string, unknown>, record["state"]) }),
    }))
    .map((record) => JSON.stringify(inOrder(record)))
    .sort();

/** Drivers name the members of a record in different orders. */
function inOrder(value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(members.map(([name, one]) => [name, inOrder(one)]));
}

function shownEntry(
  { storedAtMs: _, keptUntilMs: __, envelope, labels, digest, ...entry }: Record<string, unknown>,
  state: unknown,
) {
  const author = (labels as string[]).filter((label) => label.startsWith("from:"));
  return {
    ...entry,
    labels: state === "acked" ? author : labels,
    // The id of what remains after its expiry is free.
    digest: state === "kept" ? null : digest,
    envelope: Bun.hash(JSON.stringify(envelope)).toString(),
  };
}

type Log = { readonly head: string; readonly did: string };
/** The head is signed a moment after the block, and after the start. */
async function stateOf(did: string, entries: number): Promise<Log> {
  const read = async () =>
    (await (await fetch(`${url}/log/checkpoint`)).text()).split("\n").slice(0, 3);
  let head = await read();
  for (let i = 0; i < 600 && !(Number(head[1]) >= entries); i++, await Bun.sleep(50))
    head = await read();
  return { head: head.join("\n"), did: await (await fetch(`${url}/resolve/${did}`)).text() };
}

test("everything moves from LMDB to PostgreSQL and back, and serves on", async () => {
  if (server === null) return console.warn(`skipped: ${postgresAbsence()}`);
  write("disk", lmdb("disk"));
  write("database", postgres("moved"));
  write("back", lmdb("back"));
  expect(
    (await run(["key", "new", "--log", "transfer.example/log", "log.key"], { cwd })).code,
  ).toBe(0);
  let node = await serve("disk");
  const { code } = (await waypost("disk", "invite", "create", "--uses", "5")) as { code: string };
  const keys = [memoryKeys(), memoryKeys()] as const;
  const open = (n: 0 | 1) =>
    Waypost.open({
      url,
      keys: keys[n],
      invitation: code,
      waiting: { timeoutMs: 60_000, intervalMs: 20 },
    });
  const [ann, ben] = [await open(0), await open(1)];
  for (let i = 0; i < 12; i++) await ann.send(ben.did, `message ${i}`);
  await ann.send(ben.did, new Uint8Array(3 << 20));
  for await (const message of ben.messages()) {
    await message.ack();
    if (message.text === "message 1") break;
  }
  await Promise.all([ann.close(), ben.close()]);
  const before = await stateOf(ann.did, 5);
  await node.kill("SIGTERM");

  const written = await exportOf("disk", "disk.jsonl");
  const report = await moveTo("database", "disk.jsonl");
  expect(report).toMatchObject({ over: { messages: 0 } });
  expect(Number(report["messages"])).toBeGreaterThan(14);
  expect(shown(await exportOf("database", "database.jsonl"))).toEqual(shown(written));
  await expect(moveTo("database", "disk.jsonl")).rejects.toThrow("is not empty");

  node = await serve("database");
  expect(await stateOf(ann.did, 5)).toEqual(before);
  const moved = await open(1);
  const texts: string[] = [];
  for await (const message of moved.messages()) {
    if (message.text?.startsWith("message ")) texts.push(message.text);
    if (texts.length === 10) break;
  }
  expect(texts.sort()).toEqual(Array.from({ length: 10 }, (_, i) => `message ${i + 2}`).sort());
  await moved.close();
  const { invitations } = (await waypost("database", "invite", "list")) as {
    invitations: { uses: unknown[] }[];
  };
  expect(invitations.map(({ uses }) => uses.length)).toEqual([2]);
  const carol = await Waypost.open({
    url,
    keys: memoryKeys(),
    invitation: code,
    waiting: { timeoutMs: 60_000, intervalMs: 20 },
  });
  await carol.close();
  const later = await stateOf(carol.did, 7);
  await node.kill("SIGTERM");

  const returned = await exportOf("database", "later.jsonl");
  await moveTo("back", "later.jsonl");
  expect(shown(await exportOf("back", "back.jsonl"))).toEqual(shown(returned));
  node = await serve("back");
  expect(await stateOf(carol.did, 7)).toEqual(later);
  await node.kill("SIGTERM");
  await expect(moveTo("back", "later.jsonl")).rejects.toThrow("has a store already");
}, 240_000);

test("an export that is not whole is refused before anything is written", async () => {
  write("torn", lmdb("torn"));
  const whole = readFileSync(join(cwd, "disk.jsonl"), "utf8");
  const lines = whole.trimEnd().split("\n");
  const spoilt = {
    cut: whole.slice(0, -40),
    "without its end": `${lines.slice(0, -1).join("\n")}\n`,
    "without a line": `${[...lines.slice(0, 3), ...lines.slice(4)].join("\n")}\n`,
    "with another value": whole.replace('"kind":"receipt","key":"', '"kind":"receipt","key":"x'),
  };
  for (const [name, text] of Object.entries(spoilt)) {
    writeFileSync(join(cwd, "spoilt.jsonl"), text);
    const refusal = await moveTo("torn", "spoilt.jsonl").then(String, String);
    expect([name, refusal, existsSync(join(cwd, "torn"))]).toEqual([
      name,
      expect.stringMatching(/not whole|Unterminated/),
      false,
    ]);
  }
}, 120_000);

test("an import that is killed leaves no store, and the same import again makes one", async () => {
  if (server === null) return console.warn(`skipped: ${postgresAbsence()}`);
  write("killed-disk", lmdb("killed-disk"));
  write("killed-database", postgres("killed"));
  // Long enough to be killed in the middle.
  const lines = readFileSync(join(cwd, "disk.jsonl"), "utf8").trimEnd().split("\n").slice(0, -1);
  const many = Array.from({ length: 30_000 }, (_, i) =>
    JSON.stringify({
      kind: "receipt",
      key: `many ${i}`,
      value: { base64: "AAAA" },
      untilMs: 4_000_000_000_000,
    }),
  );
  const text = `${[...lines, ...many].join("\n")}\n`;
  const sum = new Bun.CryptoHasher("sha256").update(text).digest("hex");
  const file = join(cwd, "many.jsonl");
  writeFileSync(file, text);
  appendFileSync(
    file,
    `${JSON.stringify({ kind: "end", records: lines.length - 1 + many.length, sha256: sum })}\n`,
  );
  for (const name of ["killed-disk", "killed-database"]) {
    const words = ["storage", "import", "--from", file, "--config", config(name)];
    const child = Bun.spawn([await executable(), ...words], {
      cwd,
      stdout: "ignore",
      stderr: "ignore",
    });
    const hasBegun = async () =>
      name === "killed-disk"
        ? existsSync(join(cwd, name, "import", "data.mdb"))
        : (await server?.sql("select version from killed.meta").catch(() => ""))?.startsWith(
            "-",
          ) === true;
    while (!(await hasBegun())) await Bun.sleep(5);
    child.kill("SIGKILL");
    expect(await child.exited).not.toBe(0);
    const { code, stderr } = await run(["serve", "--config", config(name)], { cwd });
    expect([code, stderr]).toEqual([1, expect.stringMatching(/unfinished copy|has not finished/)]);
    expect(await moveTo(name, "many.jsonl")).toMatchObject({ over: { messages: 0 } });
    const node = await serve(name);
    await node.kill("SIGTERM");
  }
}, 240_000);
