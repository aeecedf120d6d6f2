/**
 * The operator's list of members, by the commands and the socket that they ask: who registered, by
 * which invitation, who was seen on which day, what waits, who is blocked; what a setting leaves
 * out, and what an erasure removes.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { Waypost } from "../../src/client/waypost.ts";
import type { ConfigInput } from "../../src/config/schema.ts";
import { freePort, run, scratchFolder } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { waiting, waitingCount } from "../support/people.ts";

const folder = scratchFolder();
const url = `http://127.0.0.1:${freePort()}`;
const socket = join(folder.path, "admin.sock");
function inputOf(server: ConfigInput["server"] = {}): ConfigInput {
  return {
    server: {
      listen: [url.slice("http://".length)],
      admin_listen: [`unix:${socket}`],
      drain_timeout: "2s",
      ...server,
    },
    stores: { main: { plugin: "lmdb", path: join(folder.path, "store"), block_time_ms: 20 } },
    directory: { enabled: true, registration: "invite", rate_limit_loopback: false },
    relay: { enabled: true, public_endpoints: [url], allow_http: true, rate_limit_loopback: false },
    cache: { enabled: true, public_endpoints: [url] },
  };
}

let nodes: TestNodes;
const start = async (server: ConfigInput["server"] = {}): Promise<void> => {
  nodes = await startTestNodes(inputOf(server));
};

let alice: Waypost;
let bob: Waypost;
let invitation = "";
let code = "";
const openAs = (alias: string, by = code) =>
  Waypost.open({ url, keys: memoryKeys(), alias, invitation: by, waiting });

beforeAll(async () => {
  await start();
  const made = await operate("invitations", { uses: 2, life_seconds: 600, note: "class of 26" });
  invitation = String(made["id"]);
  code = String(made["code"]);
  [alice, bob] = [await openAs("alice"), await openAs("bob")];
}, 120_000);
afterAll(async () => {
  await Promise.all([alice.close(), bob.close()]);
  await nodes.stop();
  folder.remove();
});

type Answer = Readonly<Record<string, unknown>>;

async function operate(path: string, body: unknown): Promise<Answer> {
  const headers = { "content-type": "application/json" };
  const asked = { method: "POST", headers, body: JSON.stringify(body), unix: socket };
  return (await (await fetch(`http://localhost/operations/${path}`, asked)).json()) as Answer;
}

const ask = (...words: string[]) =>
  run(["members", ...words, "--socket", socket], { cwd: folder.path });

async function members(...words: string[]): Promise<Answer> {
  return JSON.parse((await ask(...words, "--json")).stdout) as Answer;
}

const today = (): string => new Date().toISOString().slice(0, 10);
const didsOf = ({ members: rows }: Answer) => (rows as Answer[]).map(({ did }) => String(did));

describe("members", () => {
  test("are those who registered, with alias and invitation, seen once they prove themselves", async () => {
    const shown = await members("show", "alice");
    expect(shown).toMatchObject({
      did: alice.did,
      aliases: ["alice"],
      state: "active",
      invitation,
      blocked: null,
    });
    expect(Math.abs(Date.parse(String(shown["since"])) - Date.now())).toBeLessThan(600_000);
    expect(didsOf(await members("list")).sort()).toEqual([alice.did, bob.did].sort());
    const listed = await run(["members", "list", "--socket", socket], { cwd: folder.path });
    expect(listed.stdout).toStartWith("since       last seen   member\n");
    expect(listed.stdout).toContain(`${bob.did} bob  (invitation ${invitation.slice(0, 12)})\n`);
    expect(await waitingCount(alice)).toBe(0);
    await until(async () => (await members("show", alice.did))["last_seen"] === today());
  });

  test("are found by a part of DID, alias or invitation, and what waits for them is counted", async () => {
    await alice.send("bob", "a word");
    expect(didsOf(await members("search", "BOB"))).toContain(bob.did);
    expect(didsOf(await members("search", bob.did.slice(-9)))).toEqual([bob.did]);
    expect(didsOf(await members("search", invitation.slice(0, 8)))).toHaveLength(2);
    expect(didsOf(await members("search", "nothing like it"))).toEqual([]);
    const { waiting_entries, waiting_bytes } = await members("show", "bob");
    expect(waiting_entries).toBe(1);
    expect(waiting_bytes).toBeGreaterThan(300);
  });

  test("are shown to people, and written as a table", async () => {
    const { stdout } = await ask("list");
    expect(stdout).toContain(`${bob.did} bob  (1 message waiting, `);
    expect(stdout).toEndWith("2 members\n");
    const file = join(folder.path, "members.csv");
    expect((await ask("export", file)).stdout).toBe(`2 members in ${file}\n`);
    const [head, ...rows] = readFileSync(file, "utf8").trimEnd().split("\r\n");
    expect(head).toBe(
      "did,aliases,state,since,invitation,last_seen,waiting_entries,waiting_bytes,tier,blocked",
    );
    expect(rows.find((row) => row.startsWith(bob.did))).toMatch(
      new RegExp(`^${bob.did},bob,active,[^,]+Z,${invitation},[^,]*,1,\\d+,,$`),
    );
  });

  test("are the same table on standard output, in which no alias is a formula", async () => {
    const own = await operate("invitations", { uses: 1, life_seconds: 600, note: null });
    const third = await openAs("-1-2", String(own["code"]));
    try {
      const { stdout } = await ask("export");
      const file = join(folder.path, "three.csv");
      await ask("export", file);
      expect(stdout).toBe(readFileSync(file, "utf8"));
      const row = stdout.split("\r\n").find((line) => line.startsWith(third.did));
      expect(row).toStartWith(`${third.did},'-1-2,active,`);
    } finally {
      await third.close();
      await operate("erase", { did: third.did });
    }
  });

  test("who was looked at by alias is in the audit by DID, too", async () => {
    await members("show", "bob");
    const { records } = await operate("audit", { user: null, action: null, about: bob.did });
    expect((records as Answer[])[0]).toMatchObject({
      action: "members.show",
      about: ["bob", bob.did],
    });
  });

  test("who is unknown is refused with words", async () => {
    for (const named of ["nothing", "did:svc:2NEpo7TZRRrLZSi2U", "did:svc:!", "a b"])
      expect((await ask("show", named)).code).toBe(1);
    expect((await ask("show", "nothing")).stderr).toContain("no member has this alias");
  });

  test("a setting leaves the days out, and they outlive a restart", async () => {
    await nodes.stop();
    await start({ last_seen: false });
    expect(await members("show", "alice")).toMatchObject({ last_seen: null, invitation });
    await nodes.stop();
    await start();
    expect(await members("show", "alice")).toMatchObject({ last_seen: today(), invitation });
  });

  test("everyone whom an invitation let in is blocked at once", async () => {
    const block = (...words: string[]) =>
      run(["block", "add", ...words, "--yes", "--socket", socket, "--json"], { cwd: folder.path });
    for (const wrong of ["", "zzzzzz", invitation.slice(0, 5)])
      expect((await block("--invitation", wrong)).code).toBe(1);
    expect((await block()).code).toBe(1);
    const done = JSON.parse((await block("--invitation", invitation.slice(0, 8))).stdout);
    expect(done).toMatchObject({ added: 2, entries: 3 });
    expect(await members("show", "alice")).toMatchObject({ blocked: "did" });
    await operate("blocks", { add: [], remove: [alice.did, bob.did] });
  });

  test("a blocked one is marked, and an erased one is no member", async () => {
    const block = { subject: bob.did, sender_only: true, reason: null };
    await operate("blocks", { add: [block], remove: [] });
    expect(await members("show", "bob")).toMatchObject({ blocked: "sender" });
    await operate("erase", { did: bob.did });
    expect(didsOf(await members("list"))).toEqual([alice.did]);
  });

  test("are counted in the metrics, and the age of what waits longest is there", async () => {
    await alice.send(alice.did, "to myself");
    const sentMs = Date.now();
    const metrics = async () => (await fetch("http://localhost/metrics", { unix: socket })).text();
    expect(await metrics()).toContain('waypost_members{seen="all"} ');
    expect(await metrics()).toContain('waypost_members{seen="day"} ');
    const shown = /^waypost_mailbox_oldest_seconds{store="main"} (.+)$/m.exec(await metrics());
    const age = Number(shown?.[1]);
    expect(age).toBeGreaterThan(0);
    expect(age * 1_000).toBeLessThan(Date.now() - sentMs + 10_000);
  });
});

async function until(holds: () => Promise<boolean>): Promise<void> {
  while (!(await holds())) await Bun.sleep(50);
}
