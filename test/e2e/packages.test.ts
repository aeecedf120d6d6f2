/**
 * What is released, made by the one command for this platform and used as a stranger does:
 * `npx waypost` from the packed packages, the Debian package taken apart, the OCI image run in a
 * folder of its own, and the sums over all.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeDeb } from "../../packaging/deb.ts";
import { ownPlatform } from "../../packaging/platforms.ts";
import { executable, freePort, scratchFolder } from "../support/executable.ts";

const root = join(import.meta.dir, "..", "..");
const dist = join(root, "dist");
const folder = scratchFolder();
afterAll(folder.remove);

async function run(words: readonly string[], cwd = folder.path): Promise<string> {
  const child = Bun.spawn([...words], { cwd, stdout: "pipe", stderr: "pipe" });
  const [code, stdout, stderr] = await Promise.all([
    child.exited,
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  if (code !== 0) throw new Error(`${words.join(" ")} ended with ${code}: ${stderr}${stdout}`);
  return stdout;
}

/** Words before a command: until it succeeds, for at most 30 s. */
const untilDone = [
  "sh",
  "-c",
  'for i in $(seq 120); do "$@" && exit; sleep 0.25; done; exit 1',
  "sh",
];

const canSign = Bun.which("minisign") !== null;

/**
 * Packages hold the executable of this platform; other platforms differ in nothing but that file.
 */
let made: readonly string[];
beforeAll(async () => {
  const [secret, pub] = [join(folder.path, "release.key"), join(folder.path, "release.pub")];
  if (canSign) await run(["minisign", "-G", "-W", "-s", secret, "-p", pub]);
  const signing = canSign ? ["--key", secret, "--trial"] : [];
  const words = ["release.ts", "--platforms", "own", "--fast", ...signing];
  const printed = await run([process.execPath, ...words], root);
  made = printed.trim().split("\n");
}, 240_000);

const find = (part: string): string =>
  join(root, made.find((one) => one.includes(part)) ?? "(none)");

test("the sums are right, and name every file that was made", async () => {
  await run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], dist);
  const summed = readFileSync(join(dist, "SHA256SUMS"), "utf8").trim().split("\n");
  const unsummed = made.filter((one) => one.includes("SHA256SUMS"));
  expect(summed.length).toBe(made.length - unsummed.length);
});

test("the bill of materials names each package, with license and sum", () => {
  const bill = JSON.parse(readFileSync(find(".cdx.json"), "utf8"));
  const { dependencies } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const names = bill.components.map(({ name }: { name: string }) => name);
  for (const name of [...Object.keys(dependencies), "bun", "liblmdb", "lz4"])
    expect(names).toContain(name);
  const unnamed = ["bun", "liblmdb", "lz4"];
  for (const { name, version, licenses, hashes, purl } of bill.components) {
    expect([name, licenses?.length]).toEqual([name, 1]);
    expect(purl).toEndWith(`${version}`);
    if (!unnamed.includes(name)) expect(hashes[0].content).toMatch(/^[0-9a-f]{128}$/);
  }
  const refs = new Set(bill.components.map((one: Record<string, string>) => one["bom-ref"]));
  expect(refs.size).toBe(bill.components.length);
});

describe.skipIf(!canSign)("a signed release", () => {
  test("is verified by minisign and by the released executable, until a file changes", async () => {
    const pub = join(folder.path, "release.pub");
    await run(["minisign", "-V", "-q", "-p", pub, "-m", "SHA256SUMS"], dist);
    const executable = join(dist, ownPlatform().file);
    const verify = [executable, "verify-release", "--key", pub, "--sums", "SHA256SUMS"];
    const printed = await run(verify, dist);
    expect(printed).toMatch(/^waypost \d+\.\d+\.\d+, commit [0-9a-f]{40}\n/);
    expect(printed).toContain(ownPlatform().file);
    // The project's own keys are another list.
    const own = run([executable, "verify-release", "--sums", "SHA256SUMS"], dist);
    await expect(own).rejects.toThrow(/name one by --key|signed with another key/);
    const copy = join(folder.path, ownPlatform().file);
    writeFileSync(copy, "another program");
    await expect(run([...verify, copy], dist)).rejects.toThrow("is not the file that was released");
  });
});

test("the executable is the one of a plain build, and the Debian package the same each time", async () => {
  const own = ownPlatform();
  // Built by another command, at another time, under another name.
  const plain = readFileSync(await executable());
  expect(plain.equals(readFileSync(join(dist, own.file)))).toBe(true);
  if (own.libc !== "glibc" || Bun.which("dpkg-deb") === null) return;
  const sourceDateSeconds = Number((await run(["git", "log", "-1", "--format=%ct"], root)).trim());
  const out = join(folder.path, "again");
  const again = makeDeb(own, { sourceDateSeconds, compression: 1, out });
  expect(readFileSync(again).equals(readFileSync(find(".deb")))).toBe(true);
}, 120_000);

describe("npm", () => {
  const waypost = join(folder.path, "node_modules", ".bin", "waypost");

  test("installs the executable of this platform, which starts and ends as itself", async () => {
    writeFileSync(
      join(folder.path, "package.json"),
      JSON.stringify({ name: "stranger", private: true }),
    );
    const archives = [find("npm-waypost-cli-"), find("npm-waypost-0")];
    await run(["npm", "install", "--no-audit", "--no-fund", "--offline", ...archives]);
    const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
      version: string;
    };
    expect((await run(["npx", "--offline", "waypost", "--version"])).trim()).toBe(version);
    const refused = Bun.spawn([waypost, "config", "check", "--config", "none.toml"], {
      cwd: folder.path,
      stderr: "pipe",
    });
    expect([await refused.exited, await new Response(refused.stderr).text()]).toEqual([
      1,
      expect.stringContaining("none.toml"),
    ]);
  }, 120_000);

  test("runs all nodes with one command, and passes a signal on", async () => {
    const port = String(freePort());
    const child = Bun.spawn([waypost, "dev", "--port", port], {
      cwd: folder.path,
      stdout: "ignore",
      stderr: "ignore",
    });
    await run([...untilDone, waypost, "health", `http://127.0.0.1:${port}`]);
    child.kill("SIGTERM");
    expect(await child.exited).toBe(0);
  }, 60_000);

  test("says which package is missing where npm left it out", async () => {
    const alone = scratchFolder();
    const copy = join(alone.path, "waypost.cjs");
    writeFileSync(copy, readFileSync(join(root, "packaging", "npm", "launcher.cjs")));
    const child = Bun.spawn(["node", copy], { cwd: "/", stderr: "pipe" });
    const text = await new Response(child.stderr).text();
    expect([await child.exited, text]).toEqual([1, expect.stringContaining("is not installed")]);
    alone.remove();
  });

  test("names a package for every platform that is released", () => {
    const { optionalDependencies } = JSON.parse(
      readFileSync(join(dist, "npm", "waypost", "package.json"), "utf8"),
    ) as {
      optionalDependencies: Record<string, string>;
    };
    expect(Object.keys(optionalDependencies)).toEqual([`@waypost/cli-${ownPlatform().name}`]);
  });
});

describe.skipIf(Bun.which("dpkg-deb") === null)("the Debian package", () => {
  test("holds executable, unit, configuration folder and scripts, all of root", async () => {
    const listed = await run(["dpkg-deb", "--contents", find(".deb")]);
    for (const path of [
      "./usr/bin/waypost",
      "./usr/lib/systemd/system/waypost.service",
      "./etc/waypost/",
      "/NOTICES.gz",
    ])
      expect(listed).toContain(path);
    expect(listed.split("\n").filter((line) => line !== "" && !line.includes("root/root"))).toEqual(
      [],
    );
    const target = join(folder.path, "deb");
    await run(["dpkg-deb", "--extract", find(".deb"), target]);
    await run([join(target, "usr/bin/waypost"), "--version"]);
    expect(readFileSync(join(target, "usr/lib/systemd/system/waypost.service"), "utf8")).toContain(
      "ExecStart=/usr/bin/waypost serve --config /etc/waypost/waypost.toml",
    );
    const control = join(folder.path, "control");
    await run(["dpkg-deb", "--control", find(".deb"), control]);
    for (const script of ["postinst", "prerm", "postrm"])
      await run(["sh", "-n", join(control, script)]);
  }, 60_000);
});

/** A namespace of mounts needs rights that not every machine gives. */
const canChroot =
  Bun.which("unshare") !== null && Bun.spawnSync(["unshare", "--mount", "true"]).success;
describe.skipIf(!canChroot || ownPlatform().libc !== "glibc")("the OCI image", () => {
  test("runs with nothing but what its layer holds, and its digests are right", async () => {
    const layout = join(folder.path, "oci");
    const image = join(folder.path, "image");
    for (const one of [layout, image]) mkdirSync(one);
    await run(["tar", "-xf", find("waypost-oci"), "-C", layout]);
    for (const blob of readdirSync(join(layout, "blobs/sha256"))) {
      const sum = new Bun.CryptoHasher("sha256")
        .update(readFileSync(join(layout, "blobs/sha256", blob)))
        .digest("hex");
      expect(sum).toBe(blob);
    }
    const read = (digest: string) =>
      JSON.parse(readFileSync(join(layout, "blobs/sha256", digest.slice(7)), "utf8"));
    const index = JSON.parse(readFileSync(join(layout, "index.json"), "utf8"));
    const manifest = read(index.manifests[0].digest);
    expect(read(manifest.config.digest).config.User).toBe("7400:7400");
    const named = index.manifests[0].annotations["org.opencontainers.image.ref.name"];
    expect(named).toMatch(/^waypost:\d+\.\d+\.\d+$/);
    await run([
      "tar",
      "-xzf",
      join(layout, "blobs/sha256", manifest.layers[0].digest.slice(7)),
      "-C",
      image,
    ]);
    expect([statSync(join(image, "data")).uid, statSync(join(image, "tmp")).mode & 0o7777]).toEqual(
      [7400, 0o1777],
    );
    expect(readFileSync(join(image, "usr/share/doc/waypost/NOTICES"), "utf8")).toContain("smoldot");
    const port = freePort();
    // A container runtime mounts these; the kernel takes them away again with the namespace.
    const mounts = `mount -t proc proc ${image}/proc && mount --rbind /dev ${image}/dev`;
    const env = `WAYPOST_SERVER__LISTEN='["127.0.0.1:${port}"]' WAYPOST_SERVER__ADMIN_LISTEN='["unix:/data/admin.sock"]'`;
    const enter = `exec env -i ${env} "$(command -v chroot)" --userspec=7400:7400 ${image} /usr/local/bin/waypost "$@"`;
    const inside = [
      "unshare",
      "--mount",
      "sh",
      "-ec",
      `${mounts}; PATH=/usr/sbin:/usr/bin:/sbin:/bin; ${enter}`,
      "sh",
    ];
    const child = Bun.spawn([...inside, "serve", "--config", "/etc/waypost/waypost.toml"], {
      cwd: folder.path,
      stdout: "pipe",
      stderr: "inherit",
    });
    await run([...untilDone, ...inside, "health", `http://127.0.0.1:${port}`]);
    child.kill("SIGTERM");
    expect(await child.exited).toBe(0);
  }, 90_000);
});
