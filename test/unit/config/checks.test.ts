/** Relations between settings: each that is broken is one problem. */
import { describe, expect, test } from "bun:test";
import { configWarnings, relationProblems } from "../../../src/config/checks.ts";
import type { ConfigInput } from "../../../src/config/schema.ts";
import { settings } from "../../support/settings.ts";

const relay = { enabled: true } as const;
const cache: ConfigInput["cache"] = { enabled: true, public_endpoints: ["https://cache.net"] };
/** Of nodes whose Directory is elsewhere. */
const away = { recipients: "https://directory.net" };
const broken = (input: ConfigInput): string[] => relationProblems(settings(input)).map(({ setting }) => setting);

describe("a broken relation is reported under its first setting", () => {
  const rows: readonly (readonly [name: string, setting: string, input: ConfigInput])[] = [
    [
      "a header larger than a body",
      "limits.header_bytes_max",
      {
        relay,
        limits: {
          body_bytes_max: 65_536,
          unchunked_bytes_max: 1_024,
          chunk_bytes_max: 1_024,
          header_bytes_max: 131_072,
        },
        server: away,
      },
    ],
    ["an app without nodes", "server.app", { relay, server: { ...away, app: "chat.net" } }],
    [
      "an app on the host of a node",
      "server.app",
      { relay: { ...relay, public_endpoints: ["https://cache.net"] }, cache, server: { ...away, app: "cache.net" } },
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
    ["a certificate without its key", "server.tls_cert_file", { relay, server: { ...away, tls_cert_file: "a" } }],
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
  // A mailbox smaller than an envelope is warned of already.
  expect(warned(far).map(({ setting }) => setting)).toEqual([
    "server.requests_max",
    "directory.registration_rate",
    "relay.sessions_max",
    "cache.page_bytes_max",
  ]);
  const near: ConfigInput = {
    directory: { enabled: true, registration_rate: 1_000 },
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
  const nodes: ConfigInput = { directory: { enabled: true }, relay: open, cache };
  test.each<readonly [what: string, setting: string, wrong: ConfigInput, right: ConfigInput]>([
    [
      "http destinations of a public Relay",
      "relay.allow_http",
      { relay: { ...open, allow_http: true } },
      { relay: { ...open, public_endpoints: ["http://10.0.0.1", "http://localhost"], allow_http: true } },
    ],
    [
      "an app at a port of this machine where nothing listens",
      "server.app",
      { ...nodes, server: { app: "localhost:7401" } },
      { ...nodes, server: { app: "localhost:7400" } },
    ],
    [
      "an endpoint at a port of this machine where nothing listens",
      "cache.public_endpoints.0",
      { cache: { ...cache, public_endpoints: ["http://localhost:7401"] } },
      { cache: { ...cache, public_endpoints: ["http://localhost:7400"] } },
    ],
    [
      "an endpoint of https at the port of the listener behind the proxy",
      "cache.public_endpoints.0",
      {
        cache: { ...cache, public_endpoints: ["https://cache.net:7400"] },
        server: { trusted_proxies: ["127.0.0.1"] },
      },
      { cache: { ...cache, public_endpoints: ["https://cache.net"] }, server: { trusted_proxies: ["127.0.0.1"] } },
    ],
    [
      "a payload that fits in no body when it is Base64",
      "limits.unchunked_bytes_max",
      { cache, limits: { unchunked_bytes_max: "19MiB" } },
      { cache, limits: { unchunked_bytes_max: "18MiB" } },
    ],
    [
      "a name of http at a node that this machine alone reaches",
      "server.trusted_proxies",
      { cache: { ...cache, public_endpoints: ["http://cache.net"] } },
      { cache: { ...cache, public_endpoints: ["http://cache.net"] }, server: { listen: ["0.0.0.0:80"] } },
    ],
    [
      "an app at an address",
      "server.app",
      { ...nodes, server: { app: "10.0.0.1:7400" } },
      { ...nodes, server: { app: "127.0.0.1:7401", listen: ["127.0.0.1:7400", "127.0.0.1:7401"] } },
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

test("a node that looks recipients up at itself, without a Directory, is warned of", () => {
  expect(aboutOf({ cache, server: { recipients: "https://cache.net/" } })).toContain("server.recipients");
  expect(aboutOf({ cache, server: away })).not.toContain("server.recipients");
});
