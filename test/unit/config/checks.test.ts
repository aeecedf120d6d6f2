/** Relations between settings: each that is broken is one problem. */
import { describe, expect, test } from "bun:test";
import { configWarnings, relationProblems } from "../../../src/config/checks.ts";
import type { ConfigInput } from "../../../src/config/schema.ts";
import { settings } from "../../support/settings.ts";

const relay = { enabled: true } as const;
const cache: ConfigInput["cache"] = { enabled: true, public_endpoints: ["https://cache.net"] };
/** Of nodes whose Directory is elsewhere. */
const away = { recipients: "https://directory.net" };
const broken = (input: ConfigInput): string[] =>
  relationProblems(settings(input)).map(({ setting }) => setting);

describe("a broken relation is reported under its first setting", () => {
  const rows: readonly (readonly [name: string, setting: string, input: ConfigInput])[] = [
    ["an app without nodes", "server.app", { relay, server: { ...away, app: "chat.net" } }],
    [
      "an app on the host of a node",
      "server.app",
      {
        relay: { ...relay, public_endpoints: ["https://cache.net"] },
        cache,
        server: { ...away, app: "cache.net" },
      },
    ],
    [
      "an app that knows no Directory",
      "server.app",
      {
        relay: { ...relay, public_endpoints: ["https://relay.net"] },
        cache,
        server: { recipients: "ledger:main", app: "chat.net" },
      },
    ],
    [
      "an app on a port that browsers leave out",
      "server.app",
      {
        relay: { ...relay, public_endpoints: ["https://relay.net"] },
        cache,
        directory: { enabled: true },
        server: { app: "chat.net:443" },
      },
    ],
    [
      "a certificate without its key",
      "server.tls_cert_file",
      { relay, server: { ...away, tls_cert_file: "a" } },
    ],
  ];
  test.each(rows)("%s", (_, setting, input) => expect(broken(input)).toEqual([setting]));
});

test("a number far from its default is a warning, once, and one near it is none", () => {
  const warned = (input: ConfigInput) =>
    configWarnings(settings(input)).filter(({ message }) => message.includes("is the unit right?"));
  const far: ConfigInput = {
    directory: { enabled: true, registration_rate: 1_001 },
    relay: { ...relay, delivery_budget: "100ms", sessions_max: 1 },
    cache: { ...cache, recipient_bytes_max: "2MiB", page_bytes_max: "10KiB" },
    server: { requests_max: 4 },
  };
  expect(warned(far).map(({ setting }) => setting)).toEqual([
    "server.requests_max",
    "directory.registration_rate",
    "relay.sessions_max",
    "cache.recipient_bytes_max",
    "cache.page_bytes_max",
  ]);
  const near: ConfigInput = {
    directory: { enabled: true, registration_rate: 1_000, alias_interval: "30d" },
    relay: { ...relay, sessions_max: 100 },
    cache: { ...cache, page_bytes_max: "11KiB" },
  };
  expect(warned(near)).toEqual([]);
});

const warningsOf = (input: ConfigInput) => configWarnings(settings(input));
const aboutOf = (input: ConfigInput) => warningsOf(input).map(({ setting }) => setting);

test("a path below /var/tmp is among temporary files too", () => {
  const [warning] = warningsOf({ cache: { ...cache, signing_key_file: "/var/tmp/k" } }).filter(
    ({ setting }) => setting === "cache.signing_key_file",
  );
  expect(warning?.message).toContain("/var/tmp/k is among temporary files");
});

describe("what is allowed and hardly meant is a warning", () => {
  const open = { ...relay, public_endpoints: ["https://relay.net"] };
  test.each<readonly [what: string, setting: string, wrong: ConfigInput, right: ConfigInput]>([
    [
      "http destinations of a public Relay",
      "relay.allow_http",
      { relay: { ...open, allow_http: true } },
      {
        relay: {
          ...open,
          public_endpoints: ["http://10.0.0.1", "http://localhost"],
          allow_http: true,
        },
      },
    ],
    [
      "a name of http at a node that this machine alone reaches",
      "server.trusted_proxies",
      { cache: { ...cache, public_endpoints: ["http://cache.net"] } },
      {
        cache: { ...cache, public_endpoints: ["http://cache.net"] },
        server: { listen: ["0.0.0.0:80"] },
      },
    ],
    [
      "a public name without TLS behind a proxy",
      "cache.public_endpoints.0",
      { cache: { ...cache, public_endpoints: ["http://cache.net"] } },
      { cache: { ...cache, public_endpoints: ["http://10.0.0.1"] } },
    ],
    [
      "a store that no node uses",
      "stores.old",
      { cache, stores: { main: { plugin: "memory" }, old: { plugin: "memory" } } },
      {
        cache: { ...cache, store: "old" },
        stores: { main: { plugin: "memory" }, old: { plugin: "memory" } },
      },
    ],
    [
      "fewer message ids than entries",
      "stores.main.message_ids_max",
      { cache, stores: { main: { plugin: "lmdb", path: "/d", message_ids_max: 1_000 } } },
      {
        cache: { ...cache, store_entries_max: 1_000 },
        stores: { main: { plugin: "lmdb", path: "/d", message_ids_max: 1_000 } },
      },
    ],
    [
      "an open listener without TLS beside the proxy of this machine",
      "server.listen.0",
      { cache, server: { listen: ["0.0.0.0:7400"], trusted_proxies: ["127.0.0.1", "::1"] } },
      { cache, server: { listen: ["0.0.0.0:7400"], trusted_proxies: ["10.0.0.0/8"] } },
    ],
    [
      "the loopback network of IPv6 as a destination",
      "relay.allow_private.0",
      { relay: { ...relay, allow_private: ["::1/128"] } },
      { relay: { ...relay, allow_private: ["fd00::/8"] } },
    ],
  ])("%s", (_, setting, wrong, right) => {
    expect(aboutOf(wrong)).toContain(setting);
    expect(aboutOf(right)).not.toContain(setting);
  });
});

test("reports that are lost before 30 days are a warning", () => {
  const warned = (ttl_max: string, did: string | null) =>
    configWarnings(settings({ cache, limits: { ttl_max }, operator: { did } })).filter(
      ({ setting }) => setting === "limits.ttl_max",
    );
  const operator = "did:svc:11111111111111111111";
  expect(warned("48h", operator).map(({ message }) => message)).toEqual([
    expect.stringContaining("reports to operator.did are lost after 48h"),
  ]);
  expect(warned("30d", operator)).toEqual([]);
  expect(warned("48h", null)).toEqual([]);
});
