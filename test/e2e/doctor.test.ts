/**
 * What an operator asks before a restart, on the executable: `doctor` finds a store of another
 * format, a database that is away, an address that is taken, and agrees with a node that runs; and
 * the package asks it before it restarts one.
 */
import { afterAll, expect, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { maintainerScripts } from "../../packaging/deb.ts";
import { freePort, run, scratchFolder, startNode } from "../support/executable.ts";

const folder = scratchFolder();
const cwd = folder.path;
afterAll(folder.remove);

type Finding = {
  readonly name: string;
  readonly ok: boolean;
  readonly warning?: boolean;
  readonly detail: string;
};

type Site = { readonly file: string; readonly port: number; readonly socket: string };

function site(name: string, store: string): Site {
  const file = join(cwd, `${name.replace("/", "-")}.toml`);
  const [port, socket] = [freePort(), join(cwd, `${name}.sock`)];
  writeFileSync(
    file,
    `[server]
listen = ["127.0.0.1:${port}"]
admin_listen = ["unix:${socket}"]
[directory]
enabled = true
[stores.main]
${store}
`,
  );
  return { file, port, socket };
}

async function doctor({ file }: Site, ...flags: string[]) {
  const { code, stdout } = await run(["doctor", "--config", file, "--json", ...flags], { cwd });
  const findings = JSON.parse(stdout) as Finding[];
  const of = (name: string) => findings.find((one) => one.name === name);
  return { code, findings, of };
}

test("a store that is not there and free addresses are well, and nothing is made", async () => {
  const place = site("fresh", `plugin = "lmdb"\npath = "${join(cwd, "fresh")}"`);
  const { code, of } = await doctor(place);
  expect([code, of("store main")?.detail]).toEqual([0, expect.stringContaining("will be created")]);
  expect(of(`address 127.0.0.1:${place.port}`)).toMatchObject({ ok: true, detail: "is free" });
  expect(of(`address unix:${place.socket}`)).toMatchObject({ ok: true, detail: "is free" });
  expect([existsSync(join(cwd, "fresh")), existsSync(place.socket)]).toEqual([false, false]);
});

test("the folder of a socket may be made with a store in it, and no other is", async () => {
  const data = join(cwd, "none");
  const place = site("none/admin", `plugin = "lmdb"\npath = "${join(data, "store")}"`);
  const { code, of } = await doctor(place);
  expect([code, of(`address unix:${place.socket}`)?.detail]).toEqual([
    0,
    `${data} will be made, with store main`,
  ]);
  const elsewhere = site("none/other", `plugin = "lmdb"\npath = "${join(cwd, "there")}"`);
  const found = await doctor(elsewhere);
  expect([found.code, found.of(`address unix:${elsewhere.socket}`)?.detail]).toEqual([
    1,
    `its folder ${data} does not exist`,
  ]);
  const node = await startNode(["serve", "--config", place.file], {
    cwd,
    url: `http://127.0.0.1:${place.port}`,
  });
  expect(existsSync(place.socket)).toBe(true);
  expect(await node.kill("SIGTERM")).toBe(0);
}, 60_000);

test("beside a running node its store opens and its addresses answer", async () => {
  const place = site("running", `plugin = "lmdb"\npath = "${join(cwd, "running")}"`);
  const url = `http://127.0.0.1:${place.port}`;
  const node = await startNode(["serve", "--config", place.file], { cwd, url });
  const { code, of } = await doctor(place);
  expect([code, of("store main")?.detail]).toEqual([0, expect.stringContaining("opens, with")]);
  expect(of(`address 127.0.0.1:${place.port}`)?.detail).toBe("a node answers there");
  expect(of(`address unix:${place.socket}`)?.detail).toBe("a node answers there");
  expect(await node.kill("SIGTERM")).toBe(0);
}, 60_000);

test("where another node or program answers, no node of this configuration can start", async () => {
  const withCache = async (name: string, port?: number) => {
    const place = site(name, `plugin = "lmdb"\npath = "${join(cwd, name)}"`);
    await run(["key", "new", join(cwd, `${name}.key`)], { cwd });
    const text = readFileSync(place.file, "utf8");
    const own = `127.0.0.1:${port ?? place.port}`;
    const cache = `[cache]
enabled = true
public_endpoints = ["http://${own}"]
signing_key_file = "${join(cwd, `${name}.key`)}"
`;
    const here = text.replace(`127.0.0.1:${place.port}`, own).replace("[stores", `${cache}[stores`);
    writeFileSync(place.file, here);
    return { ...place, name: `address ${own}` };
  };
  const first = await withCache("one-node");
  const other = await withCache("other-node", first.port);
  const url = `http://127.0.0.1:${first.port}`;
  const node = await startNode(["serve", "--config", first.file], { cwd, url });
  expect((await doctor(first)).of(first.name)).toMatchObject({ ok: true });
  const found = await doctor(other);
  expect([found.code, found.of(other.name)]).toEqual([
    1,
    expect.objectContaining({ ok: false, detail: expect.stringContaining("another node answers") }),
  ]);
  // Its own, which reads the new key at its next start.
  await run(["key", "rotate", "--config", first.file], { cwd });
  expect((await doctor(first)).of(first.name)).toMatchObject({ ok: true });
  const text = readFileSync(other.file, "utf8").replace(/signing.*\n/, "");
  writeFileSync(other.file, text.replace(/(public_endpoints = ).*/, '$1["http://127.0.0.1:1"]'));
  expect((await doctor(other)).of(other.name)).toMatchObject({ ok: true, warning: true });
  expect(await node.kill("SIGTERM")).toBe(0);
  const program = Bun.serve({
    ...{ hostname: "127.0.0.1", port: first.port },
    fetch: () => Response.json({ status: "ok" }),
  });
  expect((await doctor(first)).of(first.name)).toMatchObject({
    ok: false,
    detail: "is in use by another program",
  });
  await program.stop(true);
}, 60_000);

test("a store of another format, a database that is away and taken addresses fail, each with its reason", async () => {
  const data = join(cwd, "other");
  mkdirSync(data);
  writeFileSync(join(data, "data.mdb"), "another format");
  const other = await doctor(site("other", `plugin = "lmdb"\npath = "${data}"`));
  expect([other.code, other.of("store main")?.ok]).toEqual([1, false]);
  expect(readFileSync(join(data, "data.mdb"), "utf8")).toBe("another format");
  const url = `postgres://nobody@127.0.0.1:${freePort()}/none`;
  const away = await doctor(site("away", `plugin = "postgres"\nurls = ["${url}"]`), "--start");
  expect([away.code, away.of("store main")?.ok]).toEqual([1, false]);
  const place = site("taken", `plugin = "memory"`);
  const server = createServer((socket) => socket.destroy()).listen(place.port, "127.0.0.1");
  const taken = await doctor(place);
  expect(taken.of(`address 127.0.0.1:${place.port}`)).toMatchObject({
    ok: false,
    detail: "is in use by another program",
  });
  await new Promise((resolve) => server.close(resolve));
  const lost = site("lost", `plugin = "memory"`);
  writeFileSync(
    lost.file,
    readFileSync(lost.file, "utf8")
      .replace(`127.0.0.1:${lost.port}`, `192.0.2.1:${lost.port}`)
      .replace(lost.socket, join(cwd, "nowhere", "admin.sock")),
  );
  const { findings } = await doctor(lost);
  const failed = findings.filter(({ ok }) => !ok).map(({ name }) => name);
  expect(failed).toEqual([
    `address 192.0.2.1:${lost.port}`,
    `address unix:${join(cwd, "nowhere", "admin.sock")}`,
  ]);
}, 60_000);

// ------------------------------------------------------------------------------------- the package

/**
 * A script of the package in a folder of its own, with programs that write down how they were
 * called.
 */
async function runScript(
  name: "postinst" | "postrm",
  { args, doctorCode = 0 }: { readonly args: readonly string[]; readonly doctorCode?: number },
) {
  const root = join(cwd, crypto.randomUUID());
  for (const path of ["etc/waypost", "run/systemd/system", "var/lib/waypost", "bin"])
    mkdirSync(join(root, path), { recursive: true });
  const calls = join(root, "calls");
  const stubs = { systemctl: 0, runuser: doctorCode, chown: 0, getent: 0, useradd: 0 };
  for (const [stub, code] of Object.entries(stubs))
    writeFileSync(
      join(root, "bin", stub),
      `#!/bin/sh\necho "${stub} $*" >>${calls}\nexit ${code}\n`,
      {
        mode: 0o755,
      },
    );
  for (const file of ["waypost.toml", "Caddyfile", "signing.key", "signing.key.push", "log.key"])
    writeFileSync(join(root, "etc/waypost", file), "");
  const text = maintainerScripts[name].replaceAll(/\/(etc|run|var)\//g, `${root}/$1/`);
  const child = Bun.spawn(["sh", "-c", text, name, ...args], {
    env: { PATH: `${join(root, "bin")}:/usr/bin:/bin` },
    stdout: "ignore",
    stderr: "pipe",
  });
  const said = await new Response(child.stderr).text();
  const exists = (file: string) => existsSync(join(root, "etc/waypost", file));
  const called = existsSync(calls) ? readFileSync(calls, "utf8") : "";
  return { code: await child.exited, said, called, exists };
}

test("an upgrade restarts the service only when the new program would start", async () => {
  const upgraded = await runScript("postinst", { args: ["configure", "0.0.9"] });
  expect([upgraded.code, upgraded.called]).toEqual([
    0,
    expect.stringContaining("systemctl restart waypost.service"),
  ]);
  expect(upgraded.called).toContain("runuser -u waypost -- /usr/bin/waypost doctor --start");
  const refused = await runScript("postinst", { args: ["configure", "0.0.9"], doctorCode: 1 });
  expect([refused.code, refused.called.includes("restart")]).toEqual([0, false]);
  expect(refused.said).toContain("the old one goes on");
});

test("a purge removes the configuration and leaves the keys", async () => {
  const { code, exists, said } = await runScript("postrm", { args: ["purge"] });
  expect([code, exists("waypost.toml"), exists("Caddyfile")]).toEqual([0, false, false]);
  expect(["signing.key", "signing.key.push", "log.key"].filter(exists)).toHaveLength(3);
  expect(said).toContain("keys");
});
