/**
 * Wrong configuration files and what an operator reads about each, with line and column, the
 * name of the setting, what is wrong, and what to write instead.
 */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readConfig } from "../../../src/cli/config.ts";
import { configWarnings } from "../../../src/config/checks.ts";
import { builtInPlugins } from "../../../src/plugins/load.ts";

const folder = mkdtempSync(join(tmpdir(), "waypost-config-"));
const before = process.cwd();
const drivers = builtInPlugins.map(({ name }) => name).join(", ");
afterAll(() => rmSync(folder, { recursive: true }));

const base = `[server]
listen = ["127.0.0.1:7400"]

[stores.main]
plugin = "lmdb"
path = "data"

[directory]
enabled = true
`;
const all = `${base}
[relay]
enabled = true
public_id = "r"
public_endpoints = ["https://r.acme.io"]

[cache]
enabled = true
public_endpoints = ["https://c.acme.io"]
`;
const withLine = (text: string, section: string, line: string) =>
  text.replace(`[${section}]\n`, `[${section}]\n${line}\n`);
const without = (text: string, line: string) => text.replace(`${line}\n`, "");

const noNode =
  " (file): no node is enabled: set enabled = true under [directory], [relay] or [cache], or key_file under [witness]";

type Case = readonly [name: string, file: string, problems: readonly string[]];

const cases: readonly Case[] = [
  ["empty", "", [noNode]],
  ["not toml", "this is not toml", ["1:6: (file): Expected equal (=) token"]],
  ["json", '{"server": {"listen": ["127.0.0.1:7400"]}}', ["1:1: (file): Unexpected token"]],
  ["yaml", "server:\n  listen: 127.0.0.1:7400\n", ["1:7: (file): Unexpected character"]],
  ["unquoted", withLine(base, "server", "log_level = info"), ["2:16: (file): Must be a newline"]],
  [
    "unquoted duration",
    withLine(base, "server", "drain_timeout = 30s"),
    ["2:19: (file): Must be a newline"],
  ],
  [
    "unquoted address",
    base.replace('["127.0.0.1:7400"]', "[127.0.0.1:7400]"),
    ["2:16: (file): Expected comma (,) token"],
  ],
  ["open string", base.replace('"lmdb"', '"lmdb'), ["5:15: (file): Unterminated string constant"]],
  [
    "dup key",
    withLine(base, "server", 'listen = ["127.0.0.1:7401"]'),
    ["3:1: (file): Defining a key multiple times is invalid"],
  ],
  [
    "dup table",
    `${base}\n[server]\nlog_level = "info"\n`,
    ["11:2: (file): Defining a key multiple times is invalid"],
  ],
  [
    "open bracket",
    base.replace("[server]", "[server"),
    ["2:1: (file): The key, equals sign, and value must be on the same line"],
  ],
  [
    "tab/nbsp",
    base.replace("enabled = true", "enabled\u00a0= true"),
    ["9:8: (file): Unexpected character"],
  ],
  [
    "curly quotes",
    base.replace('"lmdb"', "\u201clmdb\u201d"),
    ["5:10: (file): Unexpected character"],
  ],
  [
    "misspelt setting",
    withLine(base, "server", 'log_levl = "info"'),
    ["2:1: server.log_levl: unknown setting; did you mean log_level?"],
  ],
  [
    "misspelt section",
    `${base}\n[relais]\nenabled = true\n`,
    ["11:1: relais: unknown setting; did you mean relay?"],
  ],
  [
    "section plural",
    base.replace("[stores.main]", "[store.main]"),
    ["4:1: store: unknown setting; did you mean stores?"],
  ],
  [
    "setting in wrong section",
    withLine(base, "directory", "chunk_bytes_max = 1024"),
    ["9:1: directory.chunk_bytes_max: unknown setting"],
  ],
  ["top-level setting", `listen = ["127.0.0.1:7400"]\n${base}`, ["1:1: listen: unknown setting"]],
  [
    "case",
    withLine(base, "server", 'Log_Level = "info"'),
    ["2:1: server.Log_Level: unknown setting; did you mean log_level?"],
  ],
  [
    "dash",
    withLine(base, "server", 'log-level = "info"'),
    ["2:1: server.log-level: unknown setting; did you mean log_level?"],
  ],
  [
    "text for number",
    withLine(all, "relay", 'attempts = "three"'),
    ["12:1: relay.attempts: must be a number, not text"],
  ],
  [
    "number for text",
    withLine(base, "server", "log_level = 3"),
    ['2:1: server.log_level: must be "debug", "info", "warn" or "error"'],
  ],
  [
    "bool as text",
    base.replace("enabled = true", 'enabled = "true"'),
    ["9:1: directory.enabled: must be true or false, not text"],
  ],
  [
    "bool yes",
    base.replace("enabled = true", "enabled = yes"),
    ["9:11: (file): Unexpected character"],
  ],
  [
    "text for list",
    base.replace('["127.0.0.1:7400"]', '"127.0.0.1:7400"'),
    ['2:1: server.listen: must be a list such as ["one", "other"], not text'],
  ],
  [
    "negative",
    withLine(all, "relay", "attempts = -1"),
    ["12:1: relay.attempts: must be at least 1"],
  ],
  ["zero", withLine(all, "relay", "attempts = 0"), ["12:1: relay.attempts: must be at least 1"]],
  [
    "fraction",
    withLine(all, "relay", "attempts = 1.5"),
    ["12:1: relay.attempts: must be a whole number, not a fraction"],
  ],
  [
    "too large",
    withLine(all, "relay", "attempts = 100"),
    ["12:1: relay.attempts: must be at most 10"],
  ],
  [
    "duration number",
    withLine(base, "server", "drain_timeout = 30"),
    ['2:1: server.drain_timeout: must be a duration such as "30s" or "1h30m"'],
  ],
  [
    "duration unit",
    withLine(base, "server", 'drain_timeout = "30 seconds"'),
    ['2:1: server.drain_timeout: must be a duration such as "30s" or "1h30m"'],
  ],
  [
    "duration range",
    withLine(base, "server", 'drain_timeout = "2h"'),
    ["2:1: server.drain_timeout: must be from 0ms to 1h"],
  ],
  [
    "size unit",
    withLine(base, "limits", "").replace(/$/, '\n[limits]\nbody_bytes_max = "25 megabytes"\n'),
    ['12:1: limits.body_bytes_max: must be a size such as "25MiB" or a number of bytes'],
  ],
  [
    "size order",
    `${base}\n[limits]\nchunk_bytes_max = "20MiB"\n`,
    [
      "12:1: limits.chunk_bytes_max: must hold: chunk_bytes_max (20MiB) <= unchunked_bytes_max (16MiB) <= body_bytes_max (25MiB)",
    ],
  ],
  [
    "body in flight",
    withLine(base, "server", 'body_bytes_in_flight = "30MiB"'),
    [
      '2:1: server.body_bytes_in_flight: is less than twice limits.body_bytes_max: one client gets half, so a body of that size could never be read; set at least "50MiB"',
    ],
  ],
  [
    "listen port",
    base.replace("127.0.0.1:7400", "127.0.0.1"),
    [
      '2:11: server.listen.0: must be host:port, [v6]:port or unix:/path (of at most 94 characters), such as "127.0.0.1:7400", with a port of at most 65535',
    ],
  ],
  [
    "listen big port",
    base.replace("127.0.0.1:7400", "127.0.0.1:74000"),
    [
      '2:11: server.listen.0: must be host:port, [v6]:port or unix:/path (of at most 94 characters), such as "127.0.0.1:7400", with a port of at most 65535',
    ],
  ],
  [
    "listen url",
    base.replace("127.0.0.1:7400", "http://127.0.0.1:7400"),
    [
      '2:11: server.listen.0: must be host:port, [v6]:port or unix:/path (of at most 94 characters), such as "127.0.0.1:7400", with a port of at most 65535',
    ],
  ],
  [
    "listen v6",
    base.replace("127.0.0.1:7400", "::1:7400"),
    [
      '2:11: server.listen.0: must be host:port, [v6]:port or unix:/path (of at most 94 characters), such as "127.0.0.1:7400", with a port of at most 65535',
    ],
  ],
  [
    "listen empty",
    base.replace('["127.0.0.1:7400"]', "[]"),
    ["2:1: server.listen: must not be empty"],
  ],
  [
    "enum",
    withLine(base, "server", 'log_level = "verbose"'),
    ['2:1: server.log_level: must be "debug", "info", "warn" or "error"'],
  ],
  [
    "proxy",
    withLine(base, "server", 'trusted_proxies = ["10.0.0.0/33"]'),
    [
      '2:20: server.trusted_proxies.0: must be an address such as "127.0.0.1", a network such as "10.0.0.0/8" with zeros behind its prefix, or "unix"',
    ],
  ],
  [
    "proxy name",
    withLine(base, "server", 'trusted_proxies = ["localhost"]'),
    [
      '2:20: server.trusted_proxies.0: must be an address such as "127.0.0.1", a network such as "10.0.0.0/8" with zeros behind its prefix, or "unix"',
    ],
  ],
  [
    "cors path",
    withLine(base, "server", 'cors_origins = ["https://app.example/"]'),
    [
      '2:17: server.cors_origins.0: must be an origin such as "https://app.example" (without a path), or "*"',
    ],
  ],
  [
    "cert alone",
    withLine(base, "server", 'tls_cert_file = "cert.pem"'),
    [
      "2:1: server.tls_cert_file: is set without its counterpart: set both tls_cert_file and tls_key_file",
    ],
  ],
  [
    "cert missing",
    withLine(base, "server", 'tls_cert_file = "nowhere.pem"\ntls_key_file = "nowhere.key"'),
    [
      "2:1: server.tls_cert_file: nowhere.pem can't be read: ENOENT: no such file or directory, open 'nowhere.pem'",
    ],
  ],
  ["no node", without(base, "enabled = true"), [noNode]],
  [
    "no store",
    base.replace(/\[stores[\s\S]*?data"\n/, ""),
    [
      '5:1: directory.ledger: there is no store named "main": add [stores.main]',
      '5:1: directory.store: there is no store named "main": add [stores.main]',
    ],
  ],
  [
    "other store",
    base.replace("[stores.main]", "[stores.mian]"),
    [
      '8:1: directory.ledger: there is no store named "main": add [stores.main]; did you mean mian?',
      '8:1: directory.store: there is no store named "main": add [stores.main]; did you mean mian?',
    ],
  ],
  [
    "store plugin missing",
    without(base, 'plugin = "lmdb"'),
    ["4:1: stores.main.plugin: is missing"],
  ],
  [
    "store plugin misspelt",
    base.replace('"lmdb"', '"lmbd"'),
    [`5:1: stores.main.plugin: no plugin "lmbd"; there are ${drivers}; did you mean lmdb?`],
  ],
  [
    "store plugin sqlite",
    base.replace('"lmdb"', '"sqlite"'),
    [`5:1: stores.main.plugin: no plugin "sqlite"; there are ${drivers}`],
  ],
  [
    "plugin file missing",
    base.replace('"lmdb"', '"./x.js"'),
    ["5:1: stores.main.plugin: there is no file <folder>/x.js"],
  ],
  ["store path missing", without(base, 'path = "data"'), ["4:1: stores.main.path: is missing"]],
  [
    "store option misspelt",
    base.replace("path =", "pth ="),
    [
      "4:1: stores.main.path: is missing",
      "6:1: stores.main.pth: unknown setting; did you mean path?",
    ],
  ],
  [
    "store option unknown",
    withLine(base, "stores.main", "fast = true"),
    ["5:1: stores.main.fast: unknown setting"],
  ],
  [
    "store option type",
    base.replace('path = "data"', "path = 5"),
    ["6:1: stores.main.path: must be text in quotes, not a number"],
  ],
  [
    "postgres no url",
    base.replace('"lmdb"\npath = "data"', '"postgres"'),
    ["4:1: stores.main.urls: is missing"],
  ],
  [
    "postgres bad url",
    base.replace('"lmdb"\npath = "data"', '"postgres"\nurl = "http://x"'),
    [
      "4:1: stores.main.urls: is missing",
      "6:1: stores.main.url: unknown setting; did you mean urls?",
    ],
  ],
  [
    "chain needs",
    `${base}\n[stores.chain]\nplugin = "chain"\n`.replace(
      "enabled = true",
      'enabled = true\nledger = "chain"',
    ),
    [
      "12:1: stores.chain.endpoints: is missing",
      "12:1: stores.chain.operator_key_file: is missing",
      "12:1: stores.chain.outbox: is missing",
    ],
  ],
  [
    "relay local recipients",
    all.replace("[directory]\nenabled = true\n", ""),
    [
      '1:1: server.recipients: is "local", but no Directory runs in this process: name a Directory\'s URL or a ledger',
    ],
  ],
  [
    "recipients form",
    withLine(all, "server", 'recipients = "directory.acme.io"'),
    [
      '2:1: server.recipients: must be "local", "ledger:<store>" or the URL of a Directory, such as "https://directory.example.org"',
    ],
  ],
  [
    "recipients ledger unknown",
    withLine(all, "server", 'recipients = "ledger:other"'),
    ['2:1: server.recipients: there is no store named "other": add [stores.other]'],
  ],
  [
    "cache without endpoint",
    without(all, 'public_endpoints = ["https://c.acme.io"]'),
    [
      "16:1: cache.public_endpoints: a Cache needs at least one: the URL that recipients publish and sign",
    ],
  ],
  [
    "endpoint without scheme",
    all.replace('"https://c.acme.io"', '"c.acme.io"'),
    [
      '18:21: cache.public_endpoints.0: must be a URL such as "https://relay.example.org", without query, fragment and user',
    ],
  ],
  [
    "endpoint with query",
    all.replace("https://c.acme.io", "https://c.acme.io?x=1"),
    [
      '18:21: cache.public_endpoints.0: must be a URL such as "https://relay.example.org", without query, fragment and user',
    ],
  ],
  [
    "endpoint text",
    all.replace('["https://c.acme.io"]', '"https://c.acme.io"'),
    [
      '18:1: cache.public_endpoints: must be a list such as ["one", "other"], not text',
      "18:1: cache.public_endpoints: must have at most 16 characters",
    ],
  ],
  [
    "share percent",
    withLine(all, "cache", "stranger_share = 150"),
    ["17:1: cache.stranger_share: must be at most 100"],
  ],
  [
    "unsigned public",
    base
      .replace("127.0.0.1", "0.0.0.0")
      .replace("enabled = true", 'enabled = true\nunsigned_updates = "allow"'),
    [
      '10:1: directory.unsigned_updates: "allow" lets anyone rewrite anyone\'s policy: every listener must be loopback or a Unix socket',
    ],
  ],
  [
    "bus misspelt",
    `${base}\n[bus]\nplugin = "nat"\n`,
    ['12:1: bus.plugin: must be "local" or "nats"'],
  ],
  [
    "bus nats without servers",
    `${base}\n[bus]\nplugin = "nats"\n`,
    ["11:1: bus.servers: is missing"],
  ],
  [
    "bus nats servers text",
    `${base}\n[bus]\nplugin = "nats"\nservers = "127.0.0.1:4222"\n`,
    ['13:1: bus.servers: must be a list such as ["one", "other"], not text'],
  ],
  [
    "secret both",
    base.replace('"lmdb"\npath = "data"', '"postgres"\nurl = "postgres://x/y"\nurl_file = "u"'),
    ["7:1: stores.main.url_file: cannot be combined with url; keep one of the two"],
  ],
  [
    "secret missing",
    base.replace('"lmdb"\npath = "data"', '"postgres"\nurl_file = "nowhere"'),
    [
      "6:1: stores.main.url_file: nowhere can't be read: ENOENT: no such file or directory, open 'nowhere'",
    ],
  ],
  [
    "private net",
    withLine(all, "relay", 'allow_private = ["10.0.0.0/33"]'),
    [
      "12:18: relay.allow_private.0: must be a network such as 10.0.0.0/8, with zeros behind its prefix",
    ],
  ],
  ["comment with slashes", `// ours\n${base}`, ["1:1: (file): Unexpected character"]],
  [
    "entries without a comma",
    withLine(base, "server", 'trusted_proxies = ["::1" "unix"]'),
    ["2:26: (file): Expected comma (,) token"],
  ],
  [
    "bus user alone",
    `${base}\n[bus]\nplugin = "nats"\nservers = ["nats://h:4222"]\nuser = "u"\n`,
    ["14:1: bus.user: user and password_file belong together: set both or neither"],
  ],
  [
    "bus with two ways",
    `${base}\n[bus]\nplugin = "nats"\nservers = ["nats://h:4222"]\ntoken = "t"\ncredentials_file = "c"\n`,
    ["11:1: bus.user: one of user, token_file and credentials_file is enough: remove the others"],
  ],
  [
    "contact of pushes",
    `${all}[push]\ncontact = "nobody"\n`,
    ['20:1: push.contact: must be "mailto:" and an address, or an https URL'],
  ],
  [
    "proofs",
    withLine(base, "directory", 'registration_proofs = ["v4"]'),
    ['9:24: directory.registration_proofs.0: must be "v3", "v2" or "v1"'],
  ],
  [
    "proofs empty",
    withLine(base, "directory", "registration_proofs = []"),
    ["9:1: directory.registration_proofs: must not be empty"],
  ],
  [
    "date",
    withLine(base, "server", "drain_timeout = 2024-01-01"),
    ['2:1: server.drain_timeout: must be a duration such as "30s" or "1h30m"'],
  ],
  [
    "table for value",
    `${base}\n[server.log_level]\nx = 1\n`,
    ['11:1: server.log_level: must be "debug", "info", "warn" or "error"'],
  ],
  [
    "store name",
    base.replace("[stores.main]", '[stores."Main Store"]'),
    ["4:1: stores.Main Store: Invalid key in record"],
  ],
  [
    "store directly",
    base.replace("[stores.main]", "[stores]"),
    [
      "5:1: stores.plugin: must be a table, not text",
      "6:1: stores.path: must be a table, not text",
    ],
  ],
];

/** The problems, without the name of the file. Relative paths start at the working folder. */
async function problemsOf(text: string): Promise<string[]> {
  const file = join(folder, "w.toml");
  writeFileSync(file, text);
  process.chdir(folder);
  try {
    const failure = await readConfig(file, { toServe: true }).then(
      () => new Error("no problems"),
      (error: Error) => error,
    );
    const [first, ...lines] = failure.message.split("\n");
    expect(first).toBe(`${file}: ${lines.length} problem${lines.length === 1 ? "" : "s"}`);
    const place = (line: string) => line.trim().slice(file.length).replace(/^:/, "");
    return lines.map((line) => place(line).replaceAll(process.cwd(), "<folder>"));
  } finally {
    process.chdir(before);
  }
}

describe("a wrong file", () => {
  test.each(cases)("%s", async (_name, text, problems) => {
    expect(await problemsOf(text)).toEqual([...problems]);
  });

  test("there are more than forty, each with a problem of its own", () => {
    expect(cases.length).toBeGreaterThan(40);
    expect(new Set(cases.map(([, file]) => file)).size).toBe(cases.length);
  });
});

// Those of examples/providers are for two providers on one machine, who reach each other at its
// loopback.
test("every example of a server passes its own check without a warning", async () => {
  const root = join(import.meta.dir, "..", "..", "..", "examples");
  const names = [...new Bun.Glob("**/*.toml").scanSync(root)].filter(
    (name) => !name.startsWith("providers/"),
  );
  expect(names.length).toBeGreaterThanOrEqual(6);
  for (const name of names) {
    const file = join(root, name);
    // The warnings of the machine that runs this test are its own.
    expect([name, [...configWarnings(await readConfig(file))]]).toEqual([name, []]);
  }
});
