/**
 * The package for Debian and its kin: executable, unit, user, `/etc/waypost` and examples. It
 * starts nothing: there is no configuration yet. Made by `dpkg-deb`, for any architecture on any
 * machine.
 */
import {
  chmodSync,
  copyFileSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { gzipSync } from "bun";
import { renderNotices } from "./notices.ts";
import type { Platform } from "./platforms.ts";
import { run } from "./run.ts";

const root = join(import.meta.dir, "..");

const postinst = `#!/bin/sh
set -e
if [ "$1" = configure ]; then
  if ! getent passwd waypost >/dev/null; then
    useradd --system --home-dir /var/lib/waypost --shell /usr/sbin/nologin waypost
  fi
  chown root:waypost /etc/waypost
  chmod 0750 /etc/waypost
  if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # After an upgrade, restart a running service with the new program, if that takes configuration and stores.
    if [ -n "$2" ] && systemctl --quiet is-active waypost.service; then
      if (cd /var/lib/waypost && runuser -u waypost -- /usr/bin/waypost doctor --start --config /etc/waypost/waypost.toml); then
        systemctl restart waypost.service
      else
        echo "waypost: the new program would not start, so the old one goes on. Mend what is listed above," >&2
        echo "then: systemctl restart waypost" >&2
      fi
    fi
  fi
fi
`;

const debExamples = [
  ...[
    "all-in-one.toml",
    "relay.toml",
    "cache.toml",
    "chain.toml",
    "waypost.schema.json",
    "Caddyfile",
    "nginx.conf",
  ],
  ...["waypost-backup.service", "waypost-backup.timer"],
];

const prerm = `#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl disable --now waypost.service || true; fi
`;

const postrm = `#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
# /var/lib/waypost has identities and messages, and /etc/waypost keys that no backup may have: only a person removes them.
if [ "$1" = purge ]; then
  for name in waypost.toml waypost.schema.json waypost.service Caddyfile; do rm -f "/etc/waypost/$name"; done
  rmdir --ignore-fail-on-non-empty /etc/waypost 2>/dev/null || true
  if [ -d /etc/waypost ]; then echo "The keys in /etc/waypost are left: remove them yourself." >&2; fi
fi
`;

/** What dpkg runs around an installation. */
export const maintainerScripts = { postinst, prerm, postrm };

const copyright = `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: waypost

Files: *
Copyright: 2026 the Waypost authors
License: Apache-2.0
 On Debian systems the text of the license is in /usr/share/common-licenses/Apache-2.0.
Comment: The licenses of the packages inside the executable are in NOTICES.gz.
`;

export type DebOptions = {
  readonly sourceDateSeconds: number;
  /** Fast for tests, small for releases. */
  readonly compression: 1 | 6;
  /** `dist` unless it is given. */
  readonly out?: string;
};

/**
 * Path of the package. The same program, date and compression make the same package, bit by bit.
 */
export function makeDeb({ file, cpu, name }: Platform, options: DebOptions): string {
  const { sourceDateSeconds, compression, out = join(root, "dist") } = options;
  const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
    version: string;
  };
  const folder = join(out, `deb-${name}`);
  rmSync(folder, { recursive: true, force: true });
  const place = (path: string): string => {
    const target = join(folder, path);
    mkdirSync(join(target, ".."), { recursive: true, mode: 0o755 });
    return target;
  };
  copyFileSync(join(root, "dist", file), place("usr/bin/waypost"));
  chmodSync(place("usr/bin/waypost"), 0o755);
  const unit = readFileSync(join(root, "examples", "waypost.service"), "utf8");
  writeFileSync(
    place("usr/lib/systemd/system/waypost.service"),
    unit.replaceAll("/usr/local/bin/", "/usr/bin/"),
  );
  mkdirSync(place("etc/waypost"), { mode: 0o755 });
  const doc = "usr/share/doc/waypost";
  writeFileSync(place(`${doc}/copyright`), copyright);
  writeFileSync(place(`${doc}/NOTICES.gz`), gzipSync(renderNotices(), { level: 9 }));
  writeFileSync(
    place(`${doc}/changelog.gz`),
    gzipSync(readFileSync(join(root, "CHANGELOG.md")), { level: 9 }),
  );
  for (const page of ["install.md", "run.md", "settings.md"])
    cpSync(join(root, "docs", page), place(`${doc}/${page}`));
  for (const example of debExamples)
    cpSync(join(root, "examples", example), place(`${doc}/examples/${example}`));
  const architecture = cpu === "x64" ? "amd64" : "arm64";
  writeFileSync(place("DEBIAN/control"), control({ version, architecture, folder }));
  for (const [script, text] of Object.entries(maintainerScripts)) {
    writeFileSync(place(`DEBIAN/${script}`), text);
    chmodSync(place(`DEBIAN/${script}`), 0o755);
  }
  run(["chmod", "-R", "u+rwX,go+rX,go-w", folder]);
  const path = join(out, `waypost_${version}_${architecture}.deb`);
  const date = new Date(sourceDateSeconds * 1_000);
  for (const entry of readdirSync(folder, { recursive: true }))
    utimesSync(join(folder, String(entry)), date, date);
  const dated = ["env", `SOURCE_DATE_EPOCH=${sourceDateSeconds}`, "dpkg-deb"];
  run([...dated, "--root-owner-group", "-Zgzip", `-z${compression}`, "--build", folder, path]);
  rmSync(folder, { recursive: true, force: true });
  return path;
}

type Control = { readonly version: string; readonly architecture: string; readonly folder: string };

function control({ version, architecture, folder }: Control): string {
  // Of what the files hold: blocks differ from one file system to another.
  const kibibytes = readdirSync(folder, { recursive: true })
    .map((entry) => statSync(join(folder, String(entry))))
    .reduce((sum, entry) => sum + (entry.isFile() ? Math.ceil(entry.size / 1_024) : 1), 0);
  return `Package: waypost
Version: ${version}
Architecture: ${architecture}
Maintainer: the Waypost authors <waypost@waypost.invalid>
Installed-Size: ${kibibytes}
Depends: libc6 (>= 2.28), libstdc++6, libgcc-s1, passwd
Recommends: caddy | nginx
Section: net
Priority: optional
Description: end-to-end encrypted messaging in one executable
 Directory, Relay and Cache of Waypost. After the installation:
 waypost init --out /etc/waypost, then systemctl enable --now waypost.
`;
}
