/**
 * The configuration: strictness, every problem under the name of its setting, relations, and text
 * forms.
 */
import { describe, expect, test } from "bun:test";
import { configWarnings } from "../../../src/config/checks.ts";
import { checkConfig, parseConfig } from "../../../src/config/config.ts";
import { parseDurationSetting } from "../../../src/config/kinds.ts";

const allInOne = `
[stores.main]
plugin = "memory"
[directory]
enabled = true
[relay]
enabled = true
[cache]
enabled = true
public_endpoints = ["https://cache.example.org"]
`;

function problemsOf(text: string): string[] {
  const result = parseConfig(text);
  return result.ok ? [] : result.problems.map((problem) => problem.setting);
}

test("a short file gets every default", () => {
  const result = parseConfig(allInOne);
  if (!result.ok) throw new Error(JSON.stringify(result.problems));
  expect(result.config.server.listen).toEqual(["127.0.0.1:7400"]);
  expect(result.config.limits).toMatchObject({
    body_bytes_max: 26_214_400,
    ttl_max: 172_800_000,
    ttl_default: 86_400_000,
  });
  expect(result.config.directory).toMatchObject({
    registration_proofs: null,
    unsigned_updates: "deny",
  });
  expect(result.config.relay).toMatchObject({
    attempts: 3,
    client_rate: 50,
    recipient_rate: 20,
    allow_http: false,
  });
  expect(result.config.cache).toMatchObject({
    recipient_entries_max: 10_000,
    page_entries_max: 100,
  });
  expect(result.config.stores).toEqual({ main: { plugin: "memory" } });
});

test("every problem is reported at once with the name of its setting", () => {
  const text = `colour = 1
[server]
listn = 1
drain_timeout = "soon"
requests_max = 0
[stores.Main]
plugin = "lmdb"
[stores.two]
[directory]
unsigned_updates = "maybe"
[cache]
enabled = "yes"
public_endpoints = ["ftp://x"]
page_bytes_max = "1 MB"
`;
  expect(problemsOf(text).sort()).toEqual([
    "cache.enabled",
    "cache.page_bytes_max",
    "cache.public_endpoints.0",
    "colour",
    "directory.unsigned_updates",
    "server.drain_timeout",
    "server.listn",
    "server.requests_max",
    "stores.Main",
    "stores.two.plugin",
  ]);
});

test("invalid TOML is one problem of the file, with its place", () => {
  expect(problemsOf("[server")).toEqual(["(file)"]);
  const result = parseConfig("[server]\nlisten = [\nx\n");
  expect(result).toMatchObject({ problems: [{ place: { line: 3, column: 1 } }] });
});

test("addresses and networks must be readable, and are reported with all other problems", () => {
  const text = `[server]
listen = ["127.0.0.1:1", "7400"]
admin_listen = ["127.0.0.1:99999"]
trusted_proxies = ["10.0.0.0/40"]
listn = 1
[relay]
allow_private = ["10.0.0.0/8", "home"]
`;
  expect(problemsOf(text).sort()).toEqual([
    "relay.allow_private.1",
    "server.admin_listen.0",
    "server.listen.1",
    "server.listn",
    "server.trusted_proxies.0",
  ]);
});

test("problems between settings are reported once each setting is right by itself", () => {
  const text = `${allInOne}[limits]\nchunk_bytes_max = "17MiB"\nttl_max = "soon"\n`;
  expect(problemsOf(text)).toEqual(["limits.ttl_max"]);
  expect(problemsOf(text.replace("soon", "2h"))).toEqual(["limits.chunk_bytes_max"]);
});

describe("wording", () => {
  const messageOf = (text: string): string | undefined => {
    const result = parseConfig(text);
    return result.ok ? undefined : result.problems[0]?.message;
  };
  test.each([
    ["server.drain_timeout = 30", 'must be a duration such as "30s" or "1h30m"'],
    ['server.drain_timeout = "2h"', "must be from 0ms to 1h"],
    ['limits.clock_skew = "9s"', "must be from 10s to 1h"],
    ['limits.body_bytes_max = "2GiB"', "must be from 1KiB to 1GiB"],
    ["server.colour = 1", "unknown setting"],
    ["server.listn = 1", "unknown setting; did you mean listen?"],
    ["[serv]", "unknown setting; did you mean server?"],
    ["server.public_id = 1", "unknown setting"],
  ])("%s: %s", (text, message) => expect(messageOf(text)).toBe(message));
});

describe("relations", () => {
  const with_ = (more: string): string[] => problemsOf(`${allInOne}\n${more}`);

  test("a chunk may not be larger than an unchunked payload, nor that than a body", () => {
    expect(with_(`[limits]\nchunk_bytes_max = "17MiB"`)).toEqual(["limits.chunk_bytes_max"]);
    expect(with_(`[limits]\nunchunked_bytes_max = "26MiB"`)).toEqual([
      "limits.unchunked_bytes_max",
    ]);
    expect(with_(`[server]\nbody_bytes_in_flight = "49MiB"`)).toEqual([
      "server.body_bytes_in_flight",
    ]);
    expect(with_(`[server]\nbody_bytes_in_flight = "50MiB"`)).toEqual([]);
  });

  test("unsigned updates need listeners that only this machine reaches", () => {
    const open = (listen: string): string[] =>
      problemsOf(
        `${allInOne.replace("[directory]", '[directory]\nunsigned_updates = "allow"')}\n[server]\nlisten = ${listen}`,
      );
    expect(open('["127.0.0.1:1", "unix:/run/w.sock", "[::1]:2"]')).toEqual([]);
    for (const far of ['["0.0.0.0:1"]', '["127.0.0.1:1", "192.168.1.2:1"]', '["example.org:80"]']) {
      expect(open(far)).toEqual(["directory.unsigned_updates"]);
    }
  });

  test("a Relay or a Cache without a Directory needs a source of recipients", () => {
    const lone = (more: string): string[] =>
      problemsOf(`[stores.main]\nplugin = "memory"\n[relay]\nenabled = true\n[server]\n${more}`);
    expect(lone("")).toEqual(["server.recipients"]);
    expect(lone('recipients = "https://directory.example.org"')).toEqual([]);
    expect(lone('recipients = "ledger:main"')).toEqual([]);
    expect(lone('recipients = "directory.example.org"')).toEqual(["server.recipients"]);
  });

  test("a Cache must know its endpoints, and some node must be enabled", () => {
    expect(problemsOf(allInOne.replace(/public_endpoints.*/, ""))).toEqual([
      "cache.public_endpoints",
    ]);
    expect(problemsOf("")).toEqual(["(file)"]);
  });

  test("a delivery ends before the sender's connection is cut", () => {
    const withBudget = (budget: string) =>
      parseConfig(allInOne.replace("[relay]", `[relay]\ndelivery_budget = "${budget}"`));
    const liveAckMs = (budget: string) => {
      const result = withBudget(budget);
      return result.ok ? result.config.relay.live_ack_timeout : null;
    };
    expect([liveAckMs("10s"), liveAckMs("15s"), liveAckMs("18s"), liveAckMs("19900ms")]).toEqual([
      5_000, 5_000, 2_000, 100,
    ]);
    expect(withBudget("20s")).toMatchObject({
      ok: false,
      problems: [{ setting: "relay.delivery_budget" }],
    });
  });
});

describe("places", () => {
  test("a problem has the line and column of its setting, or of the table around it", () => {
    const text =
      '[server]\nlisten = [\n  "127.0.0.1:1",\n  "7400",\n]\n[relay]\n  client_rate = 0\n[stores.two]\n';
    const result = parseConfig(text);
    const places = result.ok ? [] : result.problems.map(({ setting, place }) => [setting, place]);
    expect(places).toContainEqual(["server.listen.1", { line: 4, column: 3 }]);
    expect(places).toContainEqual(["relay.client_rate", { line: 7, column: 3 }]);
    expect(places).toContainEqual(["stores.two.plugin", { line: 8, column: 1 }]);
  });
});

describe("the environment", () => {
  const withEnv = (env: Record<string, string>) => parseConfig(allInOne, { env });

  test("overrides settings of the file, with values as in the file or as plain text", () => {
    const result = withEnv({
      WAYPOST_SERVER__LOG_LEVEL: "debug",
      WAYPOST_SERVER__LISTEN: '["127.0.0.1:9"]',
      WAYPOST_RELAY__CLIENT_RATE: "7",
      WAYPOST_RELAY__ALLOW_HTTP: "true",
      WAYPOST_LIMITS__TTL_MAX: "30h",
      WAYPOST_STORES__MAIN__CLAIMS_MAX: "5",
      WAYPOST_URL: "http://of.the.client",
    });
    if (!result.ok) throw new Error(JSON.stringify(result.problems));
    expect(result.config.server).toMatchObject({ log_level: "debug", listen: ["127.0.0.1:9"] });
    expect(result.config.relay).toMatchObject({ client_rate: 7, allow_http: true });
    expect(result.config.limits.ttl_max).toBe(108_000_000);
    expect(result.config.stores).toEqual({ main: { plugin: "memory", claims_max: 5 } });
  });

  test("reports a variable that names no setting", () => {
    const result = withEnv({ WAYPOST_SERVER__LISTN: "x" });
    expect(result).toMatchObject({ problems: [{ setting: "server.listn", place: null }] });
    const [problem] = result.ok ? [] : result.problems;
    expect(problem?.message).toEndWith("(set by WAYPOST_SERVER__LISTN)");
  });
});

test.each([
  ["[__proto__]\nadmin = true", "__proto__", 1],
  ['["\\u005f_proto__"]\nadmin = true', "__proto__", 1],
  ["[stores.__proto__]\nadmin = true", "stores.__proto__", 1],
  ["[server]\n__proto__.admin = true", "server.__proto__.admin", 2],
  ["[server]\na = { __proto__ = { admin = true } }", "server.a.__proto__", 2],
])("a table of the prototype is refused and changes no object: %j", (text, setting, line) => {
  expect(parseConfig(text)).toMatchObject({
    problems: [{ setting, message: "unknown setting", place: { line } }],
  });
  expect(Object.keys(Object.prototype)).toEqual([]);
  expect("admin" in {}).toBe(false);
});

describe("an admin listener has an address of its own", () => {
  const check = (listen: string, admin: string) =>
    checkConfig({
      server: { listen: [listen], admin_listen: ["unix:/run/other.sock", admin] },
      stores: { main: { plugin: "memory" } },
      directory: { enabled: true },
    });

  test.each([
    ["127.0.0.1:7400", "127.0.0.1:7400"],
    ["127.0.0.1:7400", "localhost:7400"],
    ["0.0.0.0:7400", "127.0.0.1:7400"],
    ["127.0.0.1:7400", "[::]:7400"],
    ["unix:/run/w.sock", "unix:/run/w.sock"],
  ])("%s is no room for %s", (listen, admin) => {
    const message = `${admin} is also in listen: an admin listener needs a separate address`;
    expect(check(listen, admin)).toMatchObject({
      ok: false,
      problems: [{ setting: "server.admin_listen", message }],
    });
  });

  test.each([
    ["127.0.0.1:7400", "127.0.0.1:7401"],
    ["127.0.0.1:7400", "127.0.0.2:7400"],
    ["127.0.0.1:0", "127.0.0.1:0"],
    ["unix:/run/w.sock", "unix:/run/admin.sock"],
  ])("%s leaves room for %s", (listen, admin) => expect(check(listen, admin).ok).toBe(true));
});

describe("secrets", () => {
  const text = `${allInOne}\n[stores.db]\nplugin = "memory"\nurl_file = "/run/secrets/url"\n`;

  test("come from files of their own, without the line break", () => {
    const result = parseConfig(text, { readFile: (path) => `secret of ${path}\n` });
    expect(result).toMatchObject({
      config: { stores: { db: { url: "secret of /run/secrets/url" } } },
    });
  });

  test("that can't be read, or are given twice, are problems", () => {
    const unreadable = parseConfig(text, {
      readFile: () => {
        throw new Error("no permission");
      },
    });
    expect(unreadable).toMatchObject({ ok: false, problems: [{ setting: "stores.db.url_file" }] });
    const twice = parseConfig(`${text}url = "x"\n`, { readFile: () => "y" });
    expect(twice).toMatchObject({ ok: false, problems: [{ setting: "stores.db.url_file" }] });
  });
});

describe("what is refused although it has the right form", () => {
  const withStores = (stores: string) =>
    allInOne.replace('[stores.main]\nplugin = "memory"', stores);
  test.each<readonly [what: string, text: string, settings: string[]]>([
    [
      "a home folder",
      withStores('[stores.main]\nplugin = "lmdb"\npath = "~/waypost"'),
      ["stores.main.path"],
    ],
    [
      "a variable",
      withStores('[stores.main]\nplugin = "lmdb"\npath = "$HOME/w"'),
      ["stores.main.path"],
    ],
    [
      "a variable in a socket",
      `${allInOne}[server]\nlisten = ["unix:\${RUN}/w.sock"]`,
      ["server.listen.0"],
    ],
    [
      "a key in a home folder",
      allInOne.replace("[cache]", '[cache]\nsigning_key_file = "~/k"'),
      ["cache.signing_key_file"],
    ],
    [
      "two stores in one folder",
      withStores(
        '[stores.main]\nplugin = "lmdb"\npath = "/d/w"\n[stores.b]\nplugin = "lmdb"\npath = "/d//x/../w/"',
      ),
      ["stores.b.path"],
    ],
    [
      "every origin and one",
      `${allInOne}[server]\ncors_origins = ["*", "https://a.net"]`,
      ["server.cors_origins"],
    ],
    [
      "no home but one",
      allInOne.replace("[directory]", '[directory]\nhomes = ["!evil.net"]'),
      ["directory.homes"],
    ],
    [
      "a name with spaces",
      allInOne.replace("[relay]", '[relay]\npublic_id = "my relay"'),
      ["relay.public_id"],
    ],
    [
      "no proof that the Directory takes",
      allInOne.replace(
        "[directory]",
        '[directory]\nself_certifying_only = true\nregistration_proofs = ["v2"]',
      ),
      ["directory.registration_proofs"],
    ],
    [
      "every private address",
      allInOne.replace("[relay]", '[relay]\nallow_private = ["::/0"]'),
      ["relay.allow_private.0"],
    ],
  ])("%s", (_, text, settings) => expect(problemsOf(text)).toEqual(settings));

  test.each([
    ["WAYPOST_SERVER_LISTEN", "server.listen", "WAYPOST_SERVER__LISTEN"],
    ["WAYPOST_RELAY_PUBLIC_ID", "relay.public_id", "WAYPOST_RELAY__PUBLIC_ID"],
    ["WAYPOST_STORES_MAIN_PATH", "stores.main_path", "WAYPOST_STORES__MAIN__PATH"],
  ])("the variable %s, with one underscore too few", (variable, setting, right) => {
    const result = parseConfig(allInOne, { env: { [variable]: "x" } });
    expect(result.ok ? [] : result.problems).toMatchObject([
      { setting, message: expect.stringContaining(right) },
    ]);
  });

  test("a variable of a store, with one underscore at one place", () => {
    const result = parseConfig(allInOne, { env: { WAYPOST_STORES_MAIN__PATH: "x" } });
    expect(result.ok ? "" : result.problems[0]?.message).toEndWith(
      ": write WAYPOST_STORES__MAIN__PATH",
    );
  });

  test("variables of the commands are none of the node's", () => {
    const env = {
      WAYPOST_URL: "x",
      WAYPOST_DIRECTORY_URL: "x",
      WAYPOST_KEYS: "x",
      WAYPOST_AS: "x",
    };
    expect(parseConfig(allInOne, { env }).ok).toBe(true);
  });
});

describe("warnings", () => {
  const warned = (text: string): string[] => {
    const result = parseConfig(text);
    if (!result.ok) throw new Error(JSON.stringify(result.problems));
    return configWarnings(result.config).map(({ setting }) => setting);
  };
  const quiet = allInOne
    .replace('plugin = "memory"', 'plugin = "lmdb"')
    .replace("[relay]\nenabled = true\n", "")
    .replace("https://cache.example.org", "http://127.0.0.1:7400");
  const withCache = (more: string) => quiet.replace("[cache]", `[cache]\n${more}`);
  const askingAt = (url: string) => `${quiet}[server]\nrecipients = "${url}"`;
  const at = (endpoint: string) => quiet.replace("http://127.0.0.1:7400", endpoint);

  test("a plain file has none", () => expect(warned(quiet)).toEqual([]));

  test.each<string[]>([
    ['[server]\ntrusted_proxies = ["0.0.0.0/0"]', "server.trusted_proxies.0"],
    ['[server]\ntrusted_proxies = ["127.0.0.0/8", "::/0"]', "server.trusted_proxies.1"],
    ['[relay]\nallow_private = ["127.0.0.0/8"]', "relay.allow_private.0"],
    ['[relay]\nallow_private = ["169.254.0.0/16"]', "relay.allow_private.0"],
    ['[server]\nadmin_listen = ["0.0.0.0:7401"]', "server.admin_listen.0"],
    ['[server]\nadmin_listen = ["unix:/run/w.sock", "10.0.0.1:7401"]', "server.admin_listen.1"],
    ['[limits]\nttl_max = "5s"', "limits.ttl_max"],
    ["[server]\nrequests_max = 4", "server.requests_max"],
  ])("%s", (more, ...settings) => expect(warned(`${quiet}${more}`)).toEqual(settings));

  test("a volatile store and a missing proxy are reported", () => {
    expect(warned(allInOne)).toEqual(["server.trusted_proxies", "cache.store", "directory.ledger"]);
  });

  test.each<readonly [what: string, text: string, settings: string[]]>([
    [
      "https without TLS here and without a trusted proxy",
      at("https://w.net"),
      ["server.trusted_proxies"],
    ],
    [
      "https behind a trusted proxy",
      `${at("https://w.net")}[server]\ntrusted_proxies = ["127.0.0.1"]`,
      [],
    ],
    [
      "https with TLS here",
      `${at("https://w.net")}[server]\ntls_cert_file = "/c"\ntls_key_file = "/k"`,
      [],
    ],
    [
      "http on an open listener",
      `${at("http://w.net")}[server]\nlisten = ["10.0.0.1:80"]`,
      ["cache.public_endpoints.0"],
    ],
    [
      "a path",
      `${at("https://w.net/cache")}[server]\ntrusted_proxies = ["127.0.0.1"]`,
      ["cache.public_endpoints.0"],
    ],
  ])("an endpoint of %s", (_, text, settings) => expect(warned(text)).toEqual(settings));

  test.each<readonly [what: string, text: string, settings: string[]]>([
    [
      "a path that depends on where the node starts",
      withCache('signing_key_file = "k"'),
      ["cache.signing_key_file"],
    ],
    [
      "a key among temporary files",
      withCache('signing_key_file = "/tmp/k"'),
      ["cache.signing_key_file"],
    ],
    ["a Directory over http", askingAt("http://d.net"), ["server.recipients"]],
    [
      "a store in memory",
      quiet.replace('"lmdb"', '"lmdb"\npath = "/dev/shm/w"'),
      ["stores.main.path"],
    ],
    [
      "metrics for everybody",
      `${at("https://w.net")}[server]\nlisten = ["0.0.0.0:80"]\ntrusted_proxies = ["10.0.0.1"]`,
      ["server.admin_listen"],
    ],
  ])("%s", (_, text, settings) => expect(warned(text)).toEqual(settings));
});

describe("text forms", () => {
  test.each([
    ["500ms", 500],
    ["30s", 30_000],
    ["1h30m", 5_400_000],
    ["2d", 172_800_000],
    ["1m5ms", 60_005],
    ["", null],
    ["30", null],
    ["-1s", null],
    ["1 h", null],
    ["1y", null],
  ])("the duration %p is %p ms", (text, ms) => expect(parseDurationSetting(text)).toBe(ms));

  test.each([
    ["25MiB", 26_214_400],
    ["4KiB", 4_096],
    ["512B", 512],
    [1_000, 1_000],
    ["25MB", null],
    ["25", null],
    [-1, null],
    [1.5, null],
    [true, null],
  ])("the size %p is %p bytes", (value, bytes) => {
    const result = checkConfig({
      directory: { enabled: true },
      cache: { recipient_bytes_max: value },
    });
    expect(result.ok ? result.config.cache.recipient_bytes_max : null).toBe(bytes);
  });
});

test("a program may pass a value instead of a file", () => {
  expect(
    checkConfig({ stores: { main: { plugin: "memory" } }, directory: { enabled: true } }).ok,
  ).toBe(true);
});
