/**
 * The units of `examples` under a systemd of the test's own, as the first process of a namespace,
 * and with the lines that docs/run.md gives for moderators: who opens the socket, as whom and with
 * which rights the node runs, reload, restart and the backup. Needs root, bubblewrap and systemd;
 * where a systemd runs the machine, the test leaves its control groups alone.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  appendFileSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { executable, scratchFolder } from "../support/executable.ts";

const root = join(import.meta.dir, "..", "..");
const systemd = "/lib/systemd/systemd";
const groups = "/sys/fs/cgroup/systemd";

function findAbsence(): string | null {
  if (process.getuid?.() !== 0) return "only root can start a systemd";
  if (!existsSync(systemd) || Bun.which("bwrap") === null) return "no systemd, or no bubblewrap";
  if (existsSync("/run/systemd/system")) return "a systemd runs this machine";
  return existsSync(join(groups, "cgroup.procs")) ? null : `no control groups in ${groups}`;
}
const absence = findAbsence();
if (absence !== null) console.log(`SKIPPED: the units of systemd, since ${absence}`);

const folder = scratchFolder();
const [etc, out] = [join(folder.path, "etc"), join(folder.path, "out")];
const group = join(groups, `waypost-test-${process.pid}`);
/** What a booted machine has around, and a namespace doesn't. */
const masked = [
  ...["systemd-tmpfiles-setup", "systemd-remount-fs", "systemd-logind", "systemd-udevd"],
  ...["systemd-sysusers", "systemd-update-utmp", "systemd-random-seed", "systemd-sysctl"],
  ...["systemd-networkd", "systemd-networkd-wait-online"],
];
const carol = "setpriv --reuid 7411 --regid 7411";
const members = "waypost members list --socket /run/waypost/admin.sock";

/** Lines below `== name`, of each command that ran in there. */
const commands = {
  state: "systemctl show waypost -p ActiveState,Result",
  process: 'cat "/proc/$(systemctl show -P MainPID waypost)/status"',
  folders: "stat -c '%n %a %U %G' /run/waypost /run/waypost/admin.sock /var/lib/waypost",
  moderator: `${carol} --groups 7410 ${members} 2>&1; echo "code $?"`,
  stranger: `${carol} --clear-groups ${members} 2>&1; echo "code $?"`,
  reload: 'systemctl reload waypost; echo "code $?"',
  wrong:
    "echo nonsense >>/etc/waypost/waypost.toml; systemctl reload waypost 2>&1; echo \"code $?\"; sed -i '$d' /etc/waypost/waypost.toml",
  backup: 'systemctl start waypost-backup; echo "code $?"; ls /var/lib/waypost-backup/*/main',
  timer: "systemctl start waypost-backup.timer; systemctl is-active waypost-backup.timer",
  restart: "systemctl restart waypost; systemctl is-active waypost",
};

const configuration = `[server]
listen = ["127.0.0.1:7400"]
admin_listen = ["unix:/run/waypost/admin.sock"]
admin_group = "waypost-moderators"
[server.admin_groups]
waypost-moderators = ["members"]
[directory]
enabled = true
[stores.main]
plugin = "lmdb"
path = "/var/lib/waypost/data"
`;

/** The first block of docs/run.md that begins with `[Service]`. */
function dropIn(): string {
  const page = readFileSync(join(root, "docs/run.md"), "utf8");
  return /^```ini\n(\[Service\]\n[^`]*)```$/m.exec(page)?.[1] ?? "";
}

function writeEtc(): void {
  const units = join(etc, "systemd/system");
  mkdirSync(join(units, "waypost.service.d"), { recursive: true });
  mkdirSync(join(etc, "waypost"));
  mkdirSync(out);
  for (const name of ["passwd", "group", "nsswitch.conf", "ld.so.cache"])
    copyFileSync(join("/etc", name), join(etc, name));
  if (existsSync("/etc/alternatives"))
    cpSync("/etc/alternatives", join(etc, "alternatives"), {
      recursive: true,
      verbatimSymlinks: true,
    });
  appendFileSync(
    join(etc, "passwd"),
    "waypost:x:7400:7400::/var/lib/waypost:/usr/sbin/nologin\ncarol:x:7411:7411::/:/bin/sh\n",
  );
  appendFileSync(join(etc, "group"), "waypost:x:7400:\nwaypost-moderators:x:7410:carol\n");
  for (const name of masked) symlinkSync("/dev/null", join(units, `${name}.service`));
  for (const name of ["waypost.service", "waypost-backup.service", "waypost-backup.timer"])
    copyFileSync(join(root, "examples", name), join(units, name));
  writeFileSync(join(units, "waypost.service.d/override.conf"), dropIn());
  writeFileSync(join(etc, "waypost/waypost.toml"), configuration);
  const steps = Object.entries(commands).map(([name, line]) => `echo "== ${name}"\n${line}\n`);
  const script = [
    "until waypost members list --config /etc/waypost/waypost.toml >/dev/null 2>&1; do sleep 0.1; done\n",
    ...steps,
  ];
  writeFileSync(join(out, "probe.sh"), `${script.join("")}systemctl --no-block exit\n`);
  writeFileSync(
    join(units, "probe.service"),
    "[Unit]\nAfter=waypost.service\n[Service]\nType=oneshot\nStandardOutput=file:/out/probe\nStandardError=file:/out/errors\nExecStart=/bin/sh /out/probe.sh\n",
  );
  writeFileSync(join(units, "test.target"), "[Unit]\nWants=waypost.service probe.service\n");
}

async function boot(): Promise<void> {
  const links = ["bin", "lib", "lib64", "sbin"].flatMap((name) => [
    "--symlink",
    `usr/${name}`,
    `/${name}`,
  ]);
  const fresh = ["/run", "/tmp", "/var", "/usr/local", "/dev/shm", "/sys/fs/cgroup"];
  const words = [
    ...["--ro-bind", "/usr", "/usr", ...links, "--bind", etc, "/etc", "--bind", out, "/out"],
    ...["--proc", "/proc", "--dev", "/dev", "--ro-bind", "/sys", "/sys"],
    ...fresh.flatMap((path) => ["--tmpfs", path]),
    ...["--dir", "/var/lib", "--dir", "/usr/local/bin"],
    ...["--ro-bind", await executable(), "/usr/local/bin/waypost"],
    ...["--bind", group, "/sys/fs/cgroup/systemd"],
    ...[
      "--unshare-pid",
      "--unshare-uts",
      "--unshare-ipc",
      "--unshare-net",
      "--as-pid-1",
      "--die-with-parent",
    ],
    ...["--cap-add", "ALL", "--setenv", "container", "bwrap"],
    ...[systemd, "--system", "--unit=test.target", "--log-target=console", "--show-status=no"],
  ];
  mkdirSync(group);
  const inGroup = `echo $$ >"${group}/cgroup.procs"; exec unshare --cgroup bwrap "$@"`;
  const child = Bun.spawn(["sh", "-c", inGroup, "sh", ...words], {
    stdout: Bun.file(join(out, "console")),
    stderr: Bun.file(join(out, "console")),
    timeout: 90_000,
    killSignal: "SIGKILL",
  });
  await child.exited;
}

/** Deepest first: they are empty. */
function removeGroups(path: string): void {
  for (const entry of readdirSync(path, { withFileTypes: true }))
    if (entry.isDirectory()) removeGroups(join(path, entry.name));
  rmdirSync(path);
}

let found: Readonly<Record<string, string>> = {};

describe.skipIf(absence !== null)("the unit, with the lines for moderators", () => {
  beforeAll(async () => {
    writeEtc();
    await boot();
    const text = readFileSync(join(out, "probe"), "utf8");
    found = Object.fromEntries(
      text.split(/^== /m).map((part) => {
        const [name = "", ...lines] = part.split("\n");
        return [name, lines.join("\n")];
      }),
    );
  }, 120_000);
  afterAll(() => {
    removeGroups(group);
    folder.remove();
  });

  test("runs the node as its user, without rights, in the group that opens the socket", () => {
    expect(found["state"]).toContain("ActiveState=active\n");
    const lineOf = (name: string) =>
      new RegExp(`^${name}:\\t(.*)$`, "m").exec(found["process"] ?? "")?.[1]?.trim();
    expect(["Uid", "Groups", "Umask", "NoNewPrivs", "Seccomp", "CapBnd"].map(lineOf)).toEqual([
      "7400\t7400\t7400\t7400",
      "7400 7410",
      "0077",
      "1",
      "2",
      "0000000000000000",
    ]);
    expect(found["folders"]).toBe(
      `/run/waypost 750 waypost waypost-moderators
/run/waypost/admin.sock 660 waypost waypost-moderators
/var/lib/waypost 700 waypost waypost
`,
    );
  });

  test("lets a moderator in, and no one else", () => {
    expect(found["moderator"]).toBe("0 members\ncode 0\n");
    expect(found["stranger"]).toContain("EACCES");
    expect(found["stranger"]).toEndWith("code 1\n");
  });

  test("reloads what has no problem, and sends no signal otherwise", () => {
    expect(found["reload"]).toBe("code 0\n");
    expect(found["wrong"]).toEndWith("code 1\n");
  });

  test("restarts, and the unit of the backup copies and verifies the store meanwhile", () => {
    expect(found["backup"]).toStartWith("code 0\n");
    expect(found["backup"]).toContain("data.mdb");
    expect(found["timer"]).toBe("active\n");
    expect(found["restart"]).toBe("active\n");
  });
});
