/**
 * `waypost init`: what it writes is a configuration without problems, and the examples of the repository are
 * the same texts.
 */
import { describe, expect, test } from "bun:test";
import { nextSteps, proxyFile, renderConfiguration, unitFile } from "../../../src/cli/init.ts";
import { parseConfig } from "../../../src/config/config.ts";

const answers = {
  url: "https://msg.waypost.net",
  data: "/var/lib/waypost",
  proxy: true,
  tls: null,
  listen: "127.0.0.1:7400",
};

function configOf(changes: Partial<Parameters<typeof renderConfiguration>[0]>) {
  const result = parseConfig(renderConfiguration({ ...answers, ...changes }, "/etc/waypost/signing.key"));
  if (!result.ok) throw new Error(JSON.stringify(result.problems));
  return result.config;
}

describe("the configuration", () => {
  test("of all three nodes behind a proxy publishes one URL for each", () => {
    const config = configOf({});
    expect([config.directory.enabled, config.relay.enabled, config.cache.enabled]).toEqual([true, true, true]);
    expect(config.relay).toMatchObject({ public_id: "msg.waypost.net", public_endpoints: [answers.url] });
    expect(config.cache).toMatchObject({
      public_endpoints: [answers.url],
      signing_key_file: "/etc/waypost/signing.key",
    });
    expect(config.server.recipients).toBe("local");
    expect(config.server.trusted_proxies).toEqual(["127.0.0.1", "::1"]);
    expect(config.server.admin_listen).toEqual(["127.0.0.1:7401", "unix:/var/lib/waypost/admin.sock"]);
    expect(config.stores).toEqual({ main: { plugin: "lmdb", path: "/var/lib/waypost/store" } });
  });

  test("names its schema, for editors", () => {
    expect(renderConfiguration({ ...answers }, "/k").split("\n")[0]).toBe("#:schema waypost.schema.json");
  });

  test("without a proxy trusts none", () => {
    expect(configOf({ proxy: false }).server.trusted_proxies).toEqual([]);
  });
});

test("without a proxy the node ends TLS itself, at a port that the unit allows", () => {
  const tls = { certificate: "/etc/waypost/cert.pem", key: "/etc/waypost/key.pem" };
  const direct = { ...answers, proxy: false, tls, listen: "0.0.0.0:443" };
  expect(configOf(direct).server).toMatchObject({ tls_cert_file: tls.certificate, tls_key_file: tls.key });
  const unit = unitFile({ config: "/etc/waypost/waypost.toml", ...direct, program: "/usr/bin/waypost" });
  expect(unit).toContain("\nExecStart=/usr/bin/waypost serve");
  expect(unit).toContain("AmbientCapabilities=CAP_NET_BIND_SERVICE\nCapabilityBoundingSet=CAP_NET_BIND_SERVICE\n");
  const text = nextSteps(direct, "/etc/waypost");
  expect(text).toContain("chgrp waypost /etc/waypost/cert.pem /etc/waypost/key.pem");
  expect(text).not.toContain("Caddyfile");
});

describe("the next steps", () => {
  test("begin with what the Debian package may have done", () => {
    const steps = nextSteps(answers, "/etc/waypost").split("\n");
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

  test("look for the program where the unit starts it, and leave the unit of the package in force", () => {
    const text = nextSteps(answers, "/etc/waypost");
    expect(text).toContain("  test -x /usr/local/bin/waypost || install -m 755 waypost /usr/local/bin/waypost\n");
    expect(text).toContain("  cmp -s /etc/waypost/waypost.service /usr/lib/systemd/system/waypost.service || cp ");
  });

  test("make the folder for data, and warn of folders that the unit hides", () => {
    const text = nextSteps({ ...answers, data: "/srv/waypost" }, "/root");
    expect(text).toContain("  install -d -m 700 -o waypost /srv/waypost\n  chown waypost: /root/signing.key");
    expect(text).toEndWith("--out /etc/waypost --data /var/lib/waypost.");
    expect(nextSteps(answers, "/etc/waypost")).not.toContain("hides");
  });
});

describe("the examples of the repository", () => {
  const example = (name: string): Promise<string> => Bun.file(`${import.meta.dir}/../../../examples/${name}`).text();

  test("hold the same unit", async () => {
    const unit = unitFile({ config: "/etc/waypost/waypost.toml", ...answers, program: "/usr/local/bin/waypost" });
    expect(await example("waypost.service")).toBe(unit);
  });

  test("hold the same proxy", async () => {
    expect(await example("Caddyfile")).toBe(proxyFile("waypost.example.org", "127.0.0.1:7400"));
  });
});
