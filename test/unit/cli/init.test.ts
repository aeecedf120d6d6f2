/**
 * `waypost init`: what it writes is a configuration without problems, and the examples of the repository are
 * the same texts.
 */
import { describe, expect, test } from "bun:test";
import { nextSteps, proxyFile, renderConfiguration, unitFile } from "../../../src/cli/init.ts";
import { parseConfig } from "../../../src/config/config.ts";

const answers = {
  url: "https://msg.waypost.net",
  nodes: ["directory", "relay", "cache"] as const,
  directory: null,
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

  test("of a Cache alone asks the Directory that was named", () => {
    const config = configOf({ nodes: ["cache"], directory: "https://directory.waypost.net", proxy: false });
    expect([config.directory.enabled, config.relay.enabled]).toEqual([false, false]);
    expect(config.server.recipients).toBe("https://directory.waypost.net");
    expect(config.server.trusted_proxies).toEqual([]);
  });
});

test("without a proxy the node ends TLS itself, at a port that the unit allows", () => {
  const tls = { certificate: "/etc/waypost/cert.pem", key: "/etc/waypost/key.pem" };
  const direct = { ...answers, proxy: false, tls, listen: "0.0.0.0:443" };
  expect(configOf(direct).server).toMatchObject({ tls_cert_file: tls.certificate, tls_key_file: tls.key });
  const unit = unitFile({ config: "/etc/waypost/waypost.toml", ...direct });
  expect(unit).toContain("AmbientCapabilities=CAP_NET_BIND_SERVICE\nCapabilityBoundingSet=CAP_NET_BIND_SERVICE\n");
  const text = nextSteps(direct, "/etc/waypost", { isInstalled: true, hasUser: true, hasUnit: false });
  expect(text).toContain("chgrp waypost /etc/waypost/cert.pem /etc/waypost/key.pem");
  expect(text).not.toContain("Caddyfile");
});

describe("the next steps", () => {
  const steps = (found: Parameters<typeof nextSteps>[2]): string[] =>
    nextSteps(answers, "/etc/waypost", found)
      .split("\n")
      .map((line) => line.trim().split(/ +/).slice(0, 2).join(" "));

  test("of an executable on an empty server begin with copying it and making the user", () => {
    expect(steps({ isInstalled: false, hasUser: false, hasUnit: false })).toEqual([
      "Next, as",
      "cp waypost",
      "useradd --system",
      "install -d",
      "chown waypost:",
      "waypost doctor",
      "cp /etc/waypost/waypost.service",
      "cp /etc/waypost/Caddyfile",
      "waypost health",
    ]);
  });

  test("make the folder for data, and warn of folders that the unit hides", () => {
    const found = { isInstalled: true, hasUser: true, hasUnit: false };
    const text = nextSteps({ ...answers, data: "/srv/waypost" }, "/root", found);
    expect(text).toContain("  install -d -m 700 -o waypost /srv/waypost\n  chown waypost: /root/signing.key");
    expect(text).toEndWith("--out /etc/waypost --data /var/lib/waypost.");
    expect(nextSteps(answers, "/etc/waypost", found)).not.toContain("hides");
  });

  test("leave out what the Debian package did", () => {
    expect(steps({ isInstalled: true, hasUser: true, hasUnit: true })).toEqual([
      "Next, as",
      "install -d",
      "chown waypost:",
      "waypost doctor",
      "systemctl enable",
      "cp /etc/waypost/Caddyfile",
      "waypost health",
    ]);
  });
});

describe("the examples of the repository", () => {
  const example = (name: string): Promise<string> => Bun.file(`${import.meta.dir}/../../../examples/${name}`).text();

  test("hold the same unit", async () => {
    const unit = unitFile({ config: "/etc/waypost/waypost.toml", ...answers });
    expect(await example("waypost.service")).toBe(unit);
  });

  test("hold the same proxy", async () => {
    expect(await example("Caddyfile")).toBe(proxyFile("waypost.example.org", "127.0.0.1:7400"));
  });
});
