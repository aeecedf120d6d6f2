/**
 * `waypost init`: what it writes are the examples of the repository with other places, and a
 * configuration without problems.
 */
import { describe, expect, test } from "bun:test";
import { filesOf, nextSteps } from "../../../src/cli/init.ts";
import { parseConfig } from "../../../src/config/config.ts";

const places = { url: "https://msg.waypost.net", data: "/var/lib/waypost", folder: "/etc/waypost" };
const textOf = (name: string, changes: Partial<typeof places> = {}): string =>
  filesOf({ ...places, ...changes })[name] ?? "";

describe("the configuration", () => {
  test("of all three nodes behind a proxy publishes one URL for each", () => {
    const result = parseConfig(textOf("waypost.toml"));
    if (!result.ok) throw new Error(JSON.stringify(result.problems));
    const { config } = result;
    expect([config.directory.enabled, config.relay.enabled, config.cache.enabled]).toEqual([
      true,
      true,
      true,
    ]);
    expect(config.directory.public_endpoint).toBe(places.url);
    expect(config.relay).toMatchObject({
      public_id: "msg.waypost.net",
      public_endpoints: [places.url],
    });
    expect(config.cache).toMatchObject({
      public_endpoints: [places.url],
      signing_key_file: "/etc/waypost/signing.key",
    });
    expect(config.server.recipients).toBe("local");
    expect(config.server.trusted_proxies).toEqual(["127.0.0.1", "::1"]);
    expect(config.server.admin_listen).toEqual([
      "127.0.0.1:7401",
      "unix:/var/lib/waypost/admin.sock",
    ]);
    expect(config.stores).toEqual({ main: { plugin: "lmdb", path: "/var/lib/waypost/store" } });
  });

  test("names its schema, for editors", () => {
    expect(textOf("waypost.toml").split("\n")[0]).toBe("#:schema waypost.schema.json");
  });
});

test("unit and proxy have the places that were asked for, and those of the examples when they are the same", async () => {
  const example = (name: string): Promise<string> =>
    Bun.file(`${import.meta.dir}/../../../examples/${name}`).text();
  expect(textOf("waypost.service")).toBe(await example("waypost.service"));
  expect(textOf("Caddyfile", { url: "https://waypost.example.org" })).toBe(
    await example("Caddyfile"),
  );
  expect(textOf("Caddyfile")).toContain("\nmsg.waypost.net {");
  const elsewhere = textOf("waypost.service", { data: "/srv/waypost", folder: "/opt/w" });
  expect(elsewhere).toContain("\nReadWritePaths=/srv/waypost\nWorkingDirectory=/srv/waypost\n");
  expect(elsewhere).toContain(" serve --config /opt/w/waypost.toml\n");
  expect(elsewhere).not.toContain("StateDirectory");
  expect(textOf("waypost.service", { data: "/var/lib/other" })).toContain(
    "\nStateDirectory=other\nStateDirectoryMode=0700\n",
  );
});

test("names that contain those of the examples are put in once", () => {
  const url = "https://waypost.example.org:8443";
  expect(textOf("waypost.toml", { url })).toContain(`public_endpoints = ["${url}"]`);
  expect(textOf("waypost.toml", { url })).not.toContain(":8443:8443");
  expect(textOf("Caddyfile", { url })).toContain("\nwaypost.example.org:8443 {");
  const unit = textOf("waypost.service", { data: "/srv/etc/waypost", folder: "/etc/waypost/new" });
  expect(unit).toContain("\nWorkingDirectory=/srv/etc/waypost\n");
  expect(unit).toContain(" serve --config /etc/waypost/new/waypost.toml\n");
});

describe("the next steps", () => {
  test("begin with what the Debian package may have done", () => {
    const steps = nextSteps(places).split("\n");
    expect(
      steps.map((line) =>
        line
          .trim()
          .replace(/.*\|\| /, "")
          .split(/ +/)
          .slice(0, 2)
          .join(" "),
      ),
    ).toEqual([
      "Next, as",
      "install -m",
      "useradd --system",
      "install -d",
      "chown waypost:",
      "waypost doctor",
      "cp /etc/waypost/waypost.service",
      "systemctl enable",
      "cp /etc/waypost/Caddyfile",
      "waypost health",
    ]);
  });

  test("are those of docs/install.md", async () => {
    const page = await Bun.file(`${import.meta.dir}/../../../docs/install.md`).text();
    const [, block = ""] = /^```sh\n([\s\S]*?)^```/m.exec(page) ?? [];
    const url = "https://waypost.example.org";
    const [init, ...steps] = block.trimEnd().split("\n");
    expect(init).toBe(`./waypost init --url ${url} --out ${places.folder}`);
    const [, ...printed] = nextSteps({ ...places, url }).split("\n");
    expect(printed.map((line) => line.trim())).toEqual(steps);
  });

  test("look for the program where the unit starts it, and leave the unit of the package in force", () => {
    const text = nextSteps(places);
    expect(text).toContain(
      "  test -x /usr/local/bin/waypost || install -m 755 waypost /usr/local/bin/waypost\n",
    );
    expect(text).toContain(
      "  cmp -s /etc/waypost/waypost.service /usr/lib/systemd/system/waypost.service || cp ",
    );
  });

  test("make the folder for data, and warn of folders that the unit hides", () => {
    const text = nextSteps({ ...places, data: "/srv/waypost", folder: "/root" });
    expect(text).toContain(
      "  install -d -m 700 -o waypost /srv/waypost\n  chown waypost: /root/signing.key",
    );
    expect(text).toContain("hides");
    expect(nextSteps(places)).not.toContain("hides");
  });
});
