/**
 * Moderators without root, on the executable and with other Unix users: who may open the admin
 * socket, what `server.admin_groups` gives them, and what `waypost audit` says that they did. Only
 * root can be another user, so others skip this.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chmodSync, copyFileSync, mkdirSync, statSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import {
  executable,
  freePort,
  type Ran,
  type RunningNode,
  run,
  scratchFolder,
  startNode,
} from "../support/executable.ts";

const folder = scratchFolder();
const cwd = folder.path;
afterAll(folder.remove);
const isRoot = process.getuid?.() === 0;

const port = freePort();
const url = `http://127.0.0.1:${port}`;
const file = join(cwd, "waypost.toml");
const socket = join(cwd, "admin", "admin.sock");
const program = join(cwd, "waypost");
/** Of no account: numbers are enough for the kernel. */
const [moderators, strangers, moderator] = ["64010", "64011", "64001"];

function configure(groups: Readonly<Record<string, readonly string[]>>): void {
  const lines = Object.entries(groups).map(([name, rights]) => {
    return `"${name}" = ${JSON.stringify(rights)}`;
  });
  writeFileSync(
    file,
    `[server]
listen = ["127.0.0.1:${port}"]
admin_listen = ["unix:${socket}"]
admin_group = "${moderators}"
[server.admin_groups]
${lines.join("\n")}
[directory]
enabled = true
registration = "invite"
[stores.main]
plugin = "lmdb"
path = "${join(cwd, "data")}"
`,
  );
}

let node: RunningNode;
const start = async () => {
  node = await startNode(["serve", "--config", file], { cwd, url });
};
beforeAll(async () => {
  if (!isRoot) return;
  chmodSync(cwd, 0o755);
  copyFileSync(await executable(), program);
  configure({ [moderators]: ["members", "blocks.change"], "user:nobody": ["audit"] });
  await start();
}, 60_000);
afterAll(async () => {
  if (isRoot) await node.kill("SIGTERM");
});

type Who = { readonly user: string; readonly groups: string };

/** A command as another user, on the socket. */
async function as({ user, groups }: Who, ...words: readonly string[]): Promise<Ran> {
  const identity = ["--reuid", user, "--regid", strangers, "--groups", groups];
  const child = Bun.spawn(
    ["setpriv", ...identity, program, ...words, "--socket", socket, "--json"],
    { cwd: "/", env: { PATH: "/usr/bin:/bin", HOME: "/" }, stdout: "pipe", stderr: "pipe" },
  );
  const [code, stdout, stderr] = await Promise.all([
    child.exited,
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  return { code, stdout, stderr };
}

const asModerator = (...words: string[]) => as({ user: moderator, groups: moderators }, ...words);

type Shown = Readonly<Record<"user" | "action" | "outcome", string | null>> & {
  readonly about: readonly string[];
  readonly said: readonly string[];
  readonly times: number;
};

async function audit(...words: string[]): Promise<Shown[]> {
  const { stdout } = await run(["audit", ...words, "--config", file, "--json"], { cwd });
  return (JSON.parse(stdout) as { records: Shown[] }).records;
}

describe.skipIf(!isRoot)("moderators", () => {
  test("open the socket by their group, and no one else does", async () => {
    const modeOf = (path: string) => (statSync(path).mode & 0o777).toString(8);
    expect([modeOf(socket), modeOf(join(socket, ".."))]).toEqual(["660", "750"]);
    const { gid } = statSync(socket);
    expect([gid, statSync(join(socket, "..")).gid]).toEqual([Number(moderators), gid]);
    expect((await asModerator("members", "list")).code).toBe(0);
    const stranger = await as({ user: moderator, groups: strangers }, "members", "list");
    expect([stranger.code, stranger.stdout + stranger.stderr]).toEqual([
      1,
      expect.stringContaining("no node answers at"),
    ]);
  }, 60_000);

  test("do what their group may, and are refused the rest with the name of the action", async () => {
    const blocked = await asModerator("block", "add", "203.0.113.7", "--reason", "spam");
    expect([blocked.code, blocked.stderr]).toEqual([0, ""]);
    const refusedWords: string[][] = [
      ["block", "list"],
      ["invite", "create"],
      ["reload"],
      ["audit"],
    ];
    for (const words of refusedWords) {
      const { code, stdout, stderr } = await asModerator(...words);
      expect([words, code, stdout + stderr]).toEqual([
        words,
        1,
        expect.stringContaining("server.admin_groups gives uid 64001 no right to"),
      ]);
    }
    const listed = await run(["invite", "list", "--config", file, "--json"], { cwd });
    expect(JSON.parse(listed.stdout)).toEqual({ invitations: [] });
  }, 60_000);

  test("are named in the audit with what they did and what they were refused, and it is kept", async () => {
    const seen = async () =>
      (await audit("--user", "uid 64001")).map(({ action, about, said, outcome }) => [
        action,
        about,
        said,
        outcome,
      ]);
    const before = await seen();
    expect(before).toContainEqual(["blocks.change", ["+ 203.0.113.7"], ["spam"], "done"]);
    expect(before).toContainEqual(["invitations.create", [], [], "policy_denied"]);
    expect(before).toContainEqual(["members.list", [], [], "done"]);
    expect(await node.kill("SIGTERM")).toBe(0);
    await start();
    expect(await seen()).toEqual(before);
    expect((await audit("--about", "203.0.113")).map(({ user }) => user)).toEqual(["uid 64001"]);
    expect((await audit("--action", "invitations")).map(({ user }) => user)).toEqual([
      "root",
      "uid 64001",
    ]);
    const text = (await run(["audit", "--config", file, "--limit", "500"], { cwd })).stdout;
    expect(text).toContain('uid 64001     blocks.change         + 203.0.113.7 "spam"\n');
    expect(text).toContain("(refused: policy_denied)");
    const wrong = await run(["audit", "--config", file, "--action", "member.erase"], { cwd });
    expect([wrong.code, wrong.stderr]).toEqual([
      1,
      expect.stringContaining("there is no action member.erase; there are members, "),
    ]);
    const unknown = await run(["audit", "--config", file, "--user", "mallory"], { cwd });
    expect([unknown.code, unknown.stdout]).toEqual([0, "no record matches\n"]);
  }, 60_000);

  test("are told that they may not read the store, where a command needs its files", async () => {
    const identity = ["--reuid", moderator, "--regid", strangers, "--groups", moderators];
    const words = [program, "storage", "top", "--config", file];
    const child = Bun.spawn(["setpriv", ...identity, ...words], { cwd: "/", stderr: "pipe" });
    const said = await new Response(child.stderr).text();
    expect([await child.exited, said]).toEqual([
      1,
      expect.stringContaining("can't be read by this user (EACCES): run it as the service's"),
    ]);
  });

  test("are found by each subject of a long change, by none that a reason names, and by invitations", async () => {
    const networks = Array.from({ length: 40 }, (_, n) => `2001:db8:${n + 1}::/64`);
    const reason = "x) + did:svc:forged (";
    const words = ["block", "add", ...networks, "198.51.100.9", "--reason", reason];
    expect(await asModerator(...words)).toMatchObject({ code: 0, stderr: "" });
    const last = await audit("--about", "198.51.100.9");
    expect(last.map(({ user, said }) => [user, said])).toEqual([["uid 64001", [reason]]]);
    expect(await audit("--about", "did:svc:forged")).toEqual([]);
    const made = await run(["invite", "create", "--config", file, "--json"], { cwd });
    const { id, code } = JSON.parse(made.stdout) as { id: string; code: string };
    expect(await audit("--about", id)).toMatchObject([
      { user: "root", action: "invitations.create" },
    ]);
    const all = await run(["audit", "--config", file, "--limit", "500"], { cwd });
    expect(all.stdout).not.toContain(code);
    expect(all.stdout).toContain('+ 198.51.100.9 "x) + did:svc:forged ("');
    const before = await audit("--user", "uid 64001", "--action", "invitations");
    for (const note of ["a", "b", "c"]) await asModerator("invite", "create", "--note", note);
    const refused = await audit("--user", "uid 64001", "--action", "invitations");
    expect(refused.length).toBe(before.length + 1);
    expect(refused[0]).toMatchObject({ said: ["a"], times: 3, outcome: "policy_denied" });
  }, 60_000);

  test("find the socket free: connections of one user are few, and idle or stalled ones end", async () => {
    const half =
      "POST /operations/members HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{";
    let open = 0;
    const ends = Array.from({ length: 100 }, (_, n) => {
      const held = connect(socket, () => void held.write(n % 2 === 0 ? half : "GET / HT"));
      open += 1;
      held.on("error", () => undefined);
      held.resume();
      return new Promise<void>((ended) => {
        held.on("close", () => {
          open -= 1;
          ended();
        });
      });
    });
    while (open > 32) await Bun.sleep(20);
    // A command before may have left one that is not closed yet.
    expect(open).toBeGreaterThanOrEqual(30);
    expect((await asModerator("members", "list")).code).toBe(0);
    await Promise.all(ends);
    expect((await run(["members", "list", "--config", file], { cwd })).code).toBe(0);
  }, 30_000);

  test("leave places to root, however many of them hold connections", async () => {
    const hold = `const { connect } = require("node:net");
for (let n = 0; n < 40; n++) connect(${JSON.stringify(socket)}).on("error", () => {});
console.log("held");`;
    const held = ["64021", "64022", "64023", "64024"].map((user) =>
      Bun.spawn(
        [
          "setpriv",
          "--reuid",
          user,
          "--regid",
          strangers,
          "--groups",
          moderators,
          program,
          "-e",
          hold,
        ],
        { cwd: "/", env: { BUN_BE_BUN: "1", PATH: "/usr/bin:/bin", HOME: "/tmp" }, stdout: "pipe" },
      ),
    );
    for (const { stdout } of held) await stdout.getReader().read();
    expect((await run(["members", "list", "--config", file], { cwd })).code).toBe(0);
    for (const child of held) child.kill("SIGKILL");
    await Promise.all(held.map(({ exited }) => exited));
  }, 30_000);

  test("get and lose rights with a reload; a user is named as such", async () => {
    const nobody = { user: "nobody", groups: moderators };
    expect((await as(nobody, "audit")).code).toBe(0);
    configure({ "user:nobody": ["members.show"] });
    expect((await run(["reload", "--config", file], { cwd })).stdout).toContain(
      "changed: server.admin_groups",
    );
    expect((await as(nobody, "audit")).code).toBe(1);
    expect((await asModerator("members", "list")).code).toBe(1);
    const [newest] = await audit("--user", "nobody");
    expect(newest).toMatchObject({ action: "audit.list", outcome: "policy_denied" });
    // The last line that is taken out gives the group nothing.
    configure({});
    const { stdout: findings } = await run(["doctor", "--config", file], { cwd });
    expect(findings).toContain(`${moderators} may open the socket, and do nothing`);
    await run(["reload", "--config", file], { cwd });
    expect((await as(nobody, "members", "list")).code).toBe(1);
  }, 60_000);

  test("are looked up by doctor, which names a group and a user that the system doesn't have", async () => {
    configure({
      "no-such-group": ["members"],
      "user:no-such-user": ["blocks"],
      [moderators]: ["all"],
    });
    const { stdout } = await run(["doctor", "--config", file, "--json"], { cwd });
    const found = (JSON.parse(stdout) as { name: string; detail: string }[])
      .filter(({ name }) => name === "setting server.admin_groups")
      .map(({ detail }) => detail.split(";")[0]);
    expect(found).toEqual([
      "this system has no group no-such-group",
      "this system has no user no-such-user",
    ]);
  }, 60_000);

  test("get no folder that holds something else", async () => {
    const shared = join(cwd, "shared");
    mkdirSync(shared);
    writeFileSync(join(shared, "log.key"), "a secret");
    const other = `[server]
listen = ["127.0.0.1:${freePort()}"]
admin_listen = ["unix:${join(shared, "admin.sock")}"]
admin_group = "${moderators}"
[directory]
enabled = true
[stores.main]
plugin = "memory"
`;
    writeFileSync(join(cwd, "shared.toml"), other);
    const refused = await run(["serve", "--config", join(cwd, "shared.toml")], { cwd });
    expect([refused.code, refused.stderr]).toEqual([
      1,
      expect.stringContaining("needs a folder of its own, and"),
    ]);
    expect(statSync(shared).gid).toBe(0);
  }, 60_000);
});
