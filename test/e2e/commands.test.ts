/**
 * Failures of commands on the executable: one line with the reason, the exit code of a failure, no
 * stack; and the same as an object with `--json`.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { firstDocument, register } from "../../src/client/identity/registration.ts";
import { createIdentity } from "../../src/client/keys/keys.ts";
import { settleRegistration } from "../../src/client/net/directory.ts";
import { connect } from "../../src/client/trust/client.ts";
import {
  executable,
  freePort,
  type Ran,
  type RunningNode,
  run,
  scratchFolder,
  startNode,
} from "../support/executable.ts";

const scratch = scratchFolder();
const cwd = scratch.path;
const port = freePort();
const url = `http://127.0.0.1:${port}`;
let node: RunningNode;
const waypost = (...args: string[]): Promise<Ran> => run(args, { cwd, env: { WAYPOST_URL: url } });

const takenConfiguration = `[server]
listen = ["127.0.0.1:${port}"]
[stores.main]
plugin = "lmdb"
path = "taken"
[directory]
enabled = true
`;

beforeAll(async () => {
  await executable();
  node = await startNode(["dev", "--port", String(port)], { cwd, url });
  writeFileSync(join(cwd, "note.txt"), "Meet me at noon.\n");
  mkdirSync(join(cwd, "folder"));
  writeFileSync(join(cwd, "taken.toml"), takenConfiguration);
  expect((await waypost("did", "create", "--name", "alice")).code).toBe(0);
  expect((await waypost("did", "create", "--name", "bob")).code).toBe(0);
  expect((await waypost("send", "--as", "alice", "--to", "bob", "--file", "note.txt")).code).toBe(
    0,
  );
}, 120_000);
afterAll(async () => {
  await node.kill("SIGKILL");
  scratch.remove();
});

const cases: readonly (readonly string[])[] = [
  ["receive", "--as", "bob", "--out", "note.txt"],
  ["receive", "--as", "bob", "--out", "/proc/nowhere"],
  ["key", "new", "/proc/nowhere"],
  ["key", "show", "folder"],
  ["did", "create", "--name", "carol", "--keys", "note.txt"],
  ["did", "list", "--keys", "note.txt"],
  ["did", "change", "set_delivery_policy", "[]", "--as", "alice"],
  ["send", "--as", "alice", "--to", "bob", "--file", "folder"],
  ["send", "--as", "alice", "--to", "nobody", "--file", "note.txt"],
  ["did", "show", "alice", "--url", "http://127.0.0.1:1"],
  [
    "did",
    "change",
    "AddService",
    '{"service":{"id":"#x","type":"SvcInboxService"}}',
    "--as",
    "alice",
  ],
  ["did", "change", "RemoveService", '{"id":"#a/b"}', "--as", "alice"],
  ["config", "check", "--config", "folder"],
  ["send", "--as", "alice", "--to", "bob"],
  ["did", "bogus"],
  ["key", "new", "note.txt"],
  ["key", "show", "note.txt"],
  ["storage", "top", "--config", "nowhere.toml"],
  ["doctor", "--config", "nowhere.toml"],
  ["purge", "--as", "bob"],
  ["purge", "--as", "bob", "--all", "--id", "00000000-0000-4000-8000-000000000001", "--yes"],
];

describe("a failure is one line and exit code 1", () => {
  test.each(cases.map((args) => [args.join(" "), args] as const))("%s", async (_name, args) => {
    const { code, stderr } = await waypost(...args);
    const lines = stderr.trim().split("\n");
    const usage = lines.filter((line) => line !== "" && !line.startsWith("Add --help"));
    expect([code, usage.length, /^\s+at /m.test(stderr)]).toEqual([1, 1, false]);
  });
});

test.skipIf(process.platform === "win32").each(["--help", "did list", "config reference"])(
  "a reader that goes away ends the command without a word: %s",
  async (words) => {
    const line = '{ "$0" "$@" 2>err; echo $? >code; } | true';
    const all = ["sh", "-c", line, await executable(), ...words.split(" ")];
    await Bun.spawn(all, { cwd, env: { ...process.env, HOME: cwd } }).exited;
    expect([
      readFileSync(join(cwd, "code"), "utf8"),
      readFileSync(join(cwd, "err"), "utf8"),
    ]).toEqual(["0\n", ""]);
  },
);

describe("with --json", () => {
  const oneLine = (text: string): unknown => {
    expect(text.endsWith("\n") && text.indexOf("\n") === text.length - 1).toBe(true);
    return JSON.parse(text);
  };

  test.each(cases.map((args) => [args.join(" "), args] as const))(
    "%s fails in one line",
    async (_name, args) => {
      const { code, stdout, stderr } = await waypost(...args, "--json");
      expect([code, stdout]).toEqual([1, ""]);
      expect(oneLine(stderr)).toMatchObject({
        ok: false,
        code: expect.any(String),
        message: expect.any(String),
      });
    },
  );

  test.each([
    [["send", "--as", "alice", "--to", "bob"], "usage"],
    [["did", "bogus"], "usage"],
    [["did"], "usage"],
    [["receive", "--as", "bob", "--out", "note.txt"], "failed"],
    [["send", "--as", "alice", "--to", "bob", "--file", "folder"], "no_file"],
    [["did", "show", "did:svc:1111111111111111"], "did_not_found"],
  ] as const)("%p ends with the code %s", async (args, code) => {
    const { stderr } = await waypost(...args, "--json");
    expect(oneLine(stderr)).toMatchObject({ ok: false, code });
  });

  test("a result is one line, and one that is not ok is reported once", async () => {
    expect(oneLine((await waypost("did", "list", "--json")).stdout)).toMatchObject({
      identities: expect.any(Array),
    });
    writeFileSync(
      join(cwd, "file.toml"),
      takenConfiguration.replace('"taken"', '"note.txt/store"'),
    );
    const { code, stdout, stderr } = await waypost("doctor", "--config", "file.toml", "--json");
    expect([code, stderr]).toEqual([1, ""]);
    expect(oneLine(stdout)).toContainEqual({
      name: "disk of store main",
      ok: false,
      detail: expect.stringContaining("is a file, not a folder"),
    });
  });

  test("config check lists problems with their places, and warnings", async () => {
    writeFileSync(join(cwd, "wrong.toml"), `${takenConfiguration}colour = 1\n`);
    const wrong = await waypost("config", "check", "--config", "wrong.toml", "--json");
    expect([wrong.code, wrong.stderr]).toEqual([1, ""]);
    expect(oneLine(wrong.stdout)).toEqual({
      ok: false,
      file: "wrong.toml",
      problems: [
        { setting: "directory.colour", message: expect.any(String), place: { line: 8, column: 1 } },
      ],
      warnings: [],
    });
    const cache =
      '[cache]\nenabled = true\npublic_endpoints = ["http://127.0.0.1:1"]\nsigning_key_file = "absent.key"\n';
    writeFileSync(join(cwd, "keyless.toml"), `${takenConfiguration}${cache}`);
    const keyless = await waypost("config", "check", "--config", "keyless.toml", "--json");
    expect(oneLine(keyless.stdout)).toMatchObject({
      ok: false,
      problems: [{ setting: "cache.signing_key_file" }],
    });
    writeFileSync(join(cwd, "doubtful.toml"), `${takenConfiguration}[limits]\nttl_max = "5m"\n`);
    const doubtful = await waypost("config", "check", "--config", "doubtful.toml", "--json");
    expect([doubtful.code, doubtful.stderr]).toEqual([0, ""]);
    expect(oneLine(doubtful.stdout)).toMatchObject({
      ok: true,
      problems: [],
      warnings: [{ setting: "stores.main.path" }, { setting: "limits.ttl_max" }],
    });
  });

  test("after -- it is not an option", async () => {
    const { code, stderr } = await waypost("key", "show", "--", "--json");
    expect([code, stderr.trim()]).toEqual([
      1,
      "--json: there is no such file; create one: waypost key new --json",
    ]);
  });
});

describe("a malformed number or duration is refused before anything is done", () => {
  test.each([
    [["health", "nowhere"]],
    [["dev", "--port", "70000"]],
    [["did", "create", "--name", "x", "--timeout", "0s"]],
    [["did", "create", "--name", "a/b"]],
    [["did", "create", "--name", "x", "--url", "nowhere"]],
    [["receive", "--as", "bob", "--out", "x", "--wait-for", "soon"]],
    [["send", "--as", "alice", "--to", "bob", "--file", "note.txt", "--ttl", "60d"]],
    [["send", "--as", "alice", "--to", "bob", "--file", "note.txt", "--retries", "-1"]],
    [["send", "--as", "alice", "--to", "bob", "--file", "note.txt", "--chunk-bytes", "0"]],
    [["did", "change", "UpdateRootPubkey", "{}", "--as", "alice"]],
  ])("%p", async (args) => {
    const { code, stderr } = await waypost(...args, "--json");
    expect([code, JSON.parse(stderr).code]).toEqual([1, "usage"]);
  });

  test("health says whether a node is ready", async () => {
    expect((await waypost("health", url)).code).toBe(0);
    expect((await waypost("health", "http://127.0.0.1:1")).code).toBe(1);
  });
});

test("an address where something else answers is reported as such", async () => {
  const page = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: () => new Response("<p>Welcome</p>"),
  });
  const elsewhere = `http://127.0.0.1:${page.port}`;
  const health = await waypost("health", elsewhere);
  const show = await waypost("did", "show", "did:svc:1111111111111111", "--url", elsewhere);
  await page.stop(true);
  for (const { code, stderr } of [health, show]) {
    expect([code, stderr.includes("is that the address of a node?")]).toEqual([1, true]);
  }
});

test("keys of another folder of data are told apart, with what to do", async () => {
  const another = freePort();
  const there = `http://127.0.0.1:${another}`;
  const args = ["dev", "--port", String(another), "--data", join(cwd, "anew")];
  const began = await startNode(args, { cwd, url: there });
  for (const words of [
    ["send", "--as", "alice", "--to", "bob", "--file", "note.txt"],
    ["receive", "--as", "alice", "--out", "elsewhere"],
  ]) {
    const { code, stderr } = await waypost(...words, "--url", there);
    expect([code, stderr.trim().split("\n")]).toEqual([1, [expect.any(String)]]);
    for (const told of ["empty folder of data", "--data", "--url", "--name", "(other_ledger)"])
      expect(stderr).toContain(told);
  }
  await began.kill("SIGKILL");
}, 60_000);

test("an unreadable key file hides no other", async () => {
  const keys = join(cwd, "some-keys");
  expect((await waypost("did", "create", "--name", "dora", "--keys", keys)).code).toBe(0);
  writeFileSync(join(keys, "broken.json"), "{", { mode: 0o600 });
  const { code, stdout } = await waypost("did", "list", "--keys", keys, "--json");
  expect([code, JSON.parse(stdout).identities]).toEqual([
    0,
    [
      { name: "broken", did: null, problem: expect.stringContaining("broken.json") },
      { name: "dora", did: expect.stringMatching(/^did:svc:/) },
    ],
  ]);
});

test("doctor looks at the disk of a missing store, and creates none", async () => {
  const doctor = await waypost("doctor", "--config", "taken.toml");
  expect([doctor.code, doctor.stdout]).toEqual([
    0,
    expect.stringContaining("ok    disk of store main:"),
  ]);
  expect(existsSync(join(cwd, "taken"))).toBe(false);
});

test("a message that could not be written is still there", async () => {
  expect((await waypost("receive", "--as", "bob", "--out", "inbox")).code).toBe(0);
  expect(readFileSync(join(cwd, "inbox", "note.txt"), "utf8")).toBe("Meet me at noon.\n");
});

test("a message that can't be opened is reported with the command that removes it, and holds up no other", async () => {
  const record = JSON.parse((await waypost("did", "show", "bob", "--json")).stdout);
  const envelope = {
    message_id: crypto.randomUUID(),
    to: record.did,
    timestamp: new Date().toISOString(),
    payload: { profile: "svc:plaintext-cbor:v1", cbor_b64: "oA==" },
  };
  const stored = await fetch(`${url}/cache/store`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(envelope),
  });
  expect(stored.status).toBe(202);
  expect((await waypost("send", "--as", "alice", "--to", "bob", "--file", "note.txt")).code).toBe(
    0,
  );
  const received = await waypost("receive", "--as", "bob", "--out", "inbox", "--json");
  const remove = `waypost purge --id ${envelope.message_id}`;
  expect([received.code, received.stderr]).toEqual([1, ""]);
  expect(JSON.parse(received.stdout)).toMatchObject({
    ok: false,
    received: [{ name: "note.txt" }],
    problems: [{ what: envelope.message_id, code: "unknown_profile", remove }],
  });
  const purged = await waypost(...remove.split(" ").slice(1), "--as", "bob", "--yes");
  expect(purged.stdout).toContain("1 message removed");
});

describe("explain", () => {
  test("says that the node takes an envelope to an identity of this machine, and why", async () => {
    const { code, stdout } = await waypost("explain", "bob");
    expect([code, stdout.split("\n")[0]]).toEqual([
      0,
      expect.stringMatching(/^This node takes envelopes to did:svc:\w+\.$/),
    ]);
    expect(stdout).toContain("ok     record: 1 key(s) to seal to");
  });

  test("names what stops it: an unknown DID", async () => {
    const { code, stdout } = await waypost("explain", "did:svc:1111111111111111111111", "--json");
    expect([code, JSON.parse(stdout)]).toEqual([
      0,
      expect.objectContaining({
        reachable: false,
        steps: [
          {
            what: "record",
            state: "stops",
            detail: "this node's source of recipients has no such DID",
          },
        ],
      }),
    ]);
  });
});

describe("beside `waypost dev`, in its folder", () => {
  test("block, erase and invite work, and reload says that there is no file", async () => {
    const did = "did:svc:1111111111111111111111";
    expect((await waypost("block", "add", did)).stdout.trim()).toBe(
      "added 1, changed 0, removed 0; the list has 1 now",
    );
    expect((await waypost("block", "list")).stdout).toContain(did);
    expect((await waypost("block", "remove", did)).stdout.trim()).toBe(
      "added 0, changed 0, removed 1; the list has 0 now",
    );
    expect((await waypost("erase", did, "--yes")).stdout).toStartWith(
      "0 messages removed, 0 bytes; 0 uses of",
    );
    expect((await waypost("block", "remove", did)).stdout.trim()).toBe(
      "added 0, changed 0, removed 1; the list has 0 now",
    );
    expect((await waypost("invite", "create")).stdout).toMatch(
      /\/#invite=[1-9A-Za-z]{20,22}\ncode [1-9A-Za-z]{20,22}\nregisters 1 DID until /,
    );
    expect((await waypost("invite", "list")).stdout).toContain("0 of 1 used");
    for (const everybody of ["0.0.0.0/0", "::/0", "10.0.0.0/7"]) {
      const unasked = await waypost("block", "add", everybody);
      expect([unasked.code, unasked.stderr]).toEqual([
        1,
        expect.stringContaining("confirm with --yes"),
      ]);
    }
    expect((await waypost("block", "add", "0.0.0.0/1", "--yes")).stdout.trim()).toStartWith(
      "added 1,",
    );
    expect((await waypost("block", "remove", "0.0.0.0/1")).stdout.trim()).toStartWith(
      "added 0, changed 0, removed 1;",
    );
    const reload = await waypost("reload", "--socket", ".waypost/admin.sock");
    expect([reload.code, reload.stderr]).toEqual([
      1,
      expect.stringContaining("without a configuration file"),
    ]);
  }, 120_000);

  test("metrics and the status page stay on the address of the nodes", async () => {
    for (const path of ["/metrics", "/status"])
      expect([path, (await fetch(url + path)).status]).toEqual([path, 200]);
    expect((await fetch(`${url}/operations/blocks`)).status).toBe(404);
  });

  test("a folder without a configuration says how to name the node", async () => {
    const { code, stderr } = await run(["block", "list"], { cwd: join(cwd, "folder") });
    expect([code, stderr]).toEqual([
      1,
      expect.stringMatching(/^no waypost\.toml is here: .*--socket/),
    ]);
  });

  test("a socket on which no node listens is named", async () => {
    const { code, stderr } = await waypost("block", "list", "--socket", "nowhere.sock");
    expect([code, stderr]).toEqual([1, "no node answers at nowhere.sock: ENOENT\n"]);
    const folder = await waypost("config", "check", "--config", "folder");
    expect([folder.code, folder.stderr]).toEqual([
      1,
      expect.stringMatching(/^folder can't be read: EISDIR/),
    ]);
  });
});

test("did create refuses to publish an address that the node does not answer to", async () => {
  const { code, stderr } = await waypost(
    "did",
    "create",
    "--name",
    "lost",
    "--url",
    `http://localhost:${port}`,
  );
  expect([code, stderr]).toEqual([
    1,
    expect.stringContaining(`calls itself http://127.0.0.1:${port}`),
  ]);
  expect((await waypost("did", "list")).stdout).not.toContain("lost");
});

test("an input error of a node says which member is wrong", async () => {
  const members = '{"max_message_bytes":5,"cache_eligible":true}';
  const { code, stderr } = await waypost(
    "did",
    "change",
    "set_delivery_policy",
    members,
    "--as",
    "alice",
    "--json",
  );
  expect(code).toBe(1);
  const message = expect.stringContaining("/effective_ttl");
  expect(JSON.parse(stderr)).toMatchObject({ code: "invalid_request", message });
});

test("keys of a DID without a proof are called unproven, wherever a person relies on them", async () => {
  const dave = createIdentity("dave");
  const client = connect({ directoryUrl: url, relayUrl: url });
  const document = await firstDocument(dave, { relayUrl: url, cacheUrl: url });
  await settleRegistration(
    client,
    await register(client, dave, { document, alias: "dave.example" }),
  );
  const show = async (target: string) =>
    (await waypost("did", "show", target)).stdout.split("\n")[0];
  expect(await show(dave.did)).toBe(`${dave.did} (unproven)`);
  expect(await show("alice")).toMatch(/^did:svc:wp\w+ \(proven\)$/);
  const sent = ["send", "--as", "alice", "--file", "note.txt", "--to"];
  expect((await waypost(...sent, dave.did)).stdout).toContain(
    `${dave.did}, whose keys are unproven`,
  );
  const named = async () =>
    JSON.parse((await waypost(...sent, "dave.example", "--json")).stdout).recipient;
  expect([await named(), await named()]).toEqual([
    { trust: "unproven", name: "told" },
    { trust: "unproven", name: "remembered" },
  ]);
  const refused = await waypost(...sent, dave.did, "--trust", "proven");
  expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining("(proof_missing)")]);
}, 60_000);

test("policies are set and shown: of a recipient, of a tag, of a persona, and which of them count", async () => {
  const did = JSON.parse((await waypost("did", "list", "--json")).stdout).identities[0]
    .did as string;
  const set = async (action: string, members: object) =>
    expect(
      await waypost("did", "change", action, JSON.stringify(members), "--as", "alice"),
    ).toMatchObject({
      code: 0,
      stderr: "",
    });
  const bounds = { effective_ttl: 100, max_message_bytes: 5_000 };
  await set("set_delivery_policy", { ...bounds, replication: 2, cache_eligible: false });
  await set("set_tag_policy", {
    ...bounds,
    cache_eligible: true,
    release_pricing: { base_fee: "7", per_kib_fee: "0" },
  });
  const ends = { mode: "DeleteOnExpiry", retain_until: "5" };
  await set("set_persona_policy", { allowed_relays: ["r1"], expiration_behavior: ends });
  await set("set_delivery_policy_links", { tag_policies: [did], persona_policies: [did] });
  const shown = JSON.parse((await waypost("did", "show", "--as", "alice", "--json")).stdout);
  expect(shown.policy).toMatchObject({ effective_ttl: 100, replication: 2, cache_eligible: false });
  expect(shown.delivery_policy_links).toEqual({
    recipient_policy: null,
    tag_policies: [did],
    persona_policies: [did],
  });
  const read = async (path: string) =>
    (await fetch(`${url}/delivery-policies/${path}/${encodeURIComponent(did)}`)).json();
  expect(await read("tags")).toMatchObject({
    policy: { release_pricing: { base_fee: "7", per_kib_fee: "0" } },
  });
  expect(await read("personas")).toMatchObject({
    policy: {
      allowed_relays: ["r1"],
      expiration_behavior: { mode: "DeleteOnExpiry", retain_until: "5" },
    },
  });
  const explained = await waypost("explain", did);
  expect([explained.code, explained.stdout]).toEqual([0, expect.stringContaining("policy: ")]);
}, 60_000);
