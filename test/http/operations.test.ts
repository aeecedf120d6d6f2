/**
 * The operator's changes of a running node: blocking, unblocking, purging and reloading, over the
 * Unix socket of the admin listener and nowhere else; and the block list outlives a restart.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { statSync } from "node:fs";
import { join } from "node:path";
import { ed25519 } from "@noble/curves/ed25519.js";
import type { ConfigInput } from "../../src/config/schema.ts";
import { type Did, mailboxOf } from "../../src/core/codec/did.ts";
import { hourMs } from "../../src/core/codec/time.ts";
import { keyOfKnown } from "../../src/nodes/cache/known.ts";
import { keyOfPasses } from "../../src/nodes/cache/passes.ts";
import { openBlocks } from "../../src/nodes/parties/blocks.ts";
import { openLocalBus } from "../../src/plugins/bus/local.ts";
import { StoreError, type StoreErrorCode } from "../../src/storage/contract.ts";
import { freePort, run, scratchFolder } from "../support/executable.ts";
import { keyPair, methodOf } from "../support/identity.ts";
import {
  registerAt,
  registerSelfSender,
  type SelfSender,
  startTestNodes,
  type TestNodes,
} from "../support/nodes.ts";
import { LiveClient } from "./live-client.ts";

const folder = scratchFolder();
afterAll(folder.remove);
const [port, adminPort] = [freePort(), freePort()];
const url = `http://127.0.0.1:${port}`;
const socket = join(folder.path, "admin.sock");
const input = {
  server: {
    listen: [`127.0.0.1:${port}`],
    admin_listen: [`127.0.0.1:${adminPort}`, `unix:${socket}`],
    drain_timeout: "2s",
    trusted_proxies: ["127.0.0.1"],
  },
  stores: { main: { plugin: "lmdb", path: join(folder.path, "store"), block_time_ms: 20 } },
  directory: { enabled: true },
  relay: { enabled: true, public_endpoints: [url], allow_http: true, rate_limit_loopback: false },
  cache: { enabled: true, public_endpoints: [url] },
} satisfies ConfigInput;

let nodes: TestNodes;
let self: SelfSender;
let did: Did;
beforeAll(async () => {
  nodes = await startTestNodes(input);
  self = await registerSelfSender(url, "did:svc:bLockTestbLockTest2222" as Did);
  did = self.did;
});
afterAll(() => nodes.stop());

const json = { "content-type": "application/json" };
type Answered = { readonly status: number; readonly body: Record<string, unknown> };

async function operate(path: string, body?: unknown): Promise<Answered> {
  const sent =
    body === undefined ? {} : { method: "POST", headers: json, body: JSON.stringify(body) };
  const reply = await fetch(`http://localhost/operations/${path}`, { unix: socket, ...sent });
  return { status: reply.status, body: (await reply.json()) as Record<string, unknown> };
}

const block = (subject: string, more: { sender_only?: boolean; reason?: string } = {}) => ({
  subject,
  sender_only: more.sender_only ?? false,
  reason: more.reason ?? null,
});

type Sent = { readonly signed?: true; readonly client?: string };

async function statusAt(
  path: "/cache/store" | "/relay",
  { signed, client = "198.51.100.7" }: Sent = {},
): Promise<number> {
  const headers = { ...json, "x-forwarded-for": client };
  return (await fetch(url + path, { method: "POST", headers, body: self.envelope({ signed }) }))
    .status;
}

describe("blocks", () => {
  const both = async (sent: Sent = {}): Promise<number[]> => [
    await statusAt("/cache/store", sent),
    await statusAt("/relay", sent),
  ];

  test("of a DID act on the next envelope to it, and end with their removal", async () => {
    expect(await both()).toEqual([202, 202]);
    const reply = await operate("blocks", { add: [block(did, { reason: "spam" })], remove: [] });
    const none = { replaced: 0, missing: [] };
    const added = { ...none, added: 1, removed: 0, entries: 1 };
    expect(reply).toEqual({ status: 200, body: added });
    expect(await both()).toEqual([403, 403]);
    const { body } = await operate("blocks");
    expect(body).toMatchObject({ blocks: [{ subject: did, kind: "did", reason: "spam" }] });
    expect((await operate("blocks", { add: [], remove: [did] })).body).toEqual({
      ...none,
      added: 0,
      removed: 1,
      entries: 0,
    });
    expect(await both()).toEqual([202, 202]);
  });

  test("of a sender refuse what it signed, and nothing else to it", async () => {
    await operate("blocks", { add: [block(did, { sender_only: true })], remove: [] });
    expect([...(await both({ signed: true })), ...(await both())]).toEqual([403, 403, 202, 202]);
    await operate("blocks", { add: [], remove: [did] });
    expect(await both({ signed: true })).toEqual([202, 202]);
  });

  test("of a DID do not become those of a sender, unless they are removed first", async () => {
    await operate("blocks", { add: [block(did, { reason: "erased" })], remove: [] });
    await operate("blocks", { add: [block(did, { sender_only: true })], remove: [] });
    expect((await operate("blocks")).body).toMatchObject({
      blocks: [{ subject: did, kind: "did" }],
    });
    expect(await both()).toEqual([403, 403]);
    await operate("blocks", { add: [], remove: [did] });
  });

  test("of a network refuse its clients behind a trusted proxy, and no neighbors", async () => {
    const add = [block("203.0.113.0/24"), block("2001:DB8::/32")];
    await operate("blocks", { add, remove: [] });
    expect(await both({ client: "203.0.113.200" })).toEqual([403, 403]);
    expect(await both({ client: "2001:db8:7::1" })).toEqual([403, 403]);
    expect(await both({ client: "203.0.114.1" })).toEqual([202, 202]);
    const removed = await operate("blocks", {
      add: [],
      remove: ["203.0.113.0/24", "2001:DB8::/32"],
    });
    expect(removed.body).toMatchObject({ removed: 2 });
    expect(await both({ client: "203.0.113.200" })).toEqual([202, 202]);
  });

  test("of a network refuse its writes at the Directory, and read on", async () => {
    const from = (client: string, method: string, path: string) =>
      fetch(url + path, {
        method,
        headers: { ...json, "x-forwarded-for": client },
        ...(method === "GET" ? {} : { body: "{}" }),
      });
    const writes = [
      "POST /register-did",
      "POST /register-did/prepare",
      `POST /dids/${did}/prepare`,
    ];
    writes.push(`PUT /delivery-policies/recipients/${did}`, `POST /dids/${did}/deactivate`);
    await operate("blocks", { add: [block("203.0.113.0/24")], remove: [] });
    for (const write of writes) {
      const [method = "", path = ""] = write.split(" ");
      const refused = await from("203.0.113.9", method, path);
      expect([write, refused.status, ((await refused.json()) as Answered["body"])["code"]]).toEqual(
        [write, 403, "policy_denied"],
      );
      expect((await from("203.0.114.9", method, path)).status).toBe(400);
    }
    expect((await from("203.0.113.9", "GET", `/resolve/${did}`)).status).toBe(200);
    await operate("blocks", { add: [], remove: ["203.0.113.0/24"] });
  });

  test("of a DID refuse its registration", async () => {
    const other = "did:svc:bLockTestbLockTest3333" as Did;
    await operate("blocks", { add: [block(other)], remove: [] });
    const identity = { did: other, root: keyPair(ed25519.utils.randomSecretKey()), label: "other" };
    const method = methodOf(other, "root", identity.root);
    const document = { id: other, verificationMethod: [method], authentication: [method.id] };
    const refused = registerAt(url, identity, document);
    await expect(refused).rejects.toThrow("403");
    await operate("blocks", { add: [], remove: [other] });
  });

  test.each([["203.0.113.0/24"], ["the DID"]])(
    "of %s end the live sessions there are and refuse new ones",
    async (given) => {
      const subject = given === "the DID" ? did : given;
      const session = (client: string, device: string) =>
        new LiveClient(`${url.replace("http", "ws")}/ws/${did}/${device}`, {
          "x-forwarded-for": client,
        });
      const theirs = session("203.0.113.9", "theirs");
      const neighbor = session("203.0.114.9", "neighbor");
      expect([await theirs.opened, await neighbor.opened]).toEqual([true, true]);
      await operate("blocks", { add: [block(subject)], remove: [] });
      expect(await theirs.closed).toBe(4403);
      const isSpared = subject !== did;
      if (isSpared) expect(await Promise.race([neighbor.closed, Bun.sleep(100)])).toBeUndefined();
      else expect(await neighbor.closed).toBe(4403);
      expect(await session("203.0.113.9", "again").opened).toBe(false);
      neighbor.close();
      await operate("blocks", { add: [], remove: [subject] });
      const later = session("203.0.113.9", "later");
      expect(await later.opened).toBe(true);
      later.close();
    },
  );

  test.each([
    ["203.0.113.7/32", "203.0.113.7"],
    ["2001:DB8:0:0::1", "2001:db8::1/128"],
    ["2001:DB8:0::/48", "2001:db8::/48"],
  ])("of %s are found as %s", async (added, removed) => {
    expect((await operate("blocks", { add: [block(added)], remove: [] })).body).toMatchObject({
      added: 1,
      entries: 1,
    });
    expect((await operate("blocks", { add: [], remove: [removed] })).body).toMatchObject({
      removed: 1,
      entries: 0,
    });
  });

  test("keep the reason of an entry that is added again, and name what was not listed", async () => {
    const listed = async () =>
      ((await operate("blocks")).body["blocks"] as { subject: string; reason: string }[]).map(
        ({ subject, reason }) => `${subject} ${reason}`,
      );
    const named = block("203.0.113.9", { reason: "spam" });
    await operate("blocks", { add: [named], remove: [] });
    const again = await operate("blocks", { add: [block("203.0.113.9")], remove: [] });
    expect(again.body).toMatchObject({ added: 0, replaced: 1, entries: 1 });
    expect(await listed()).toEqual(["203.0.113.9 spam"]);
    const command = (...words: string[]) =>
      run(["block", ...words, "--socket", socket], { cwd: folder.path });
    const removed = await command("remove", "203.0.113.9", "198.51.100.1", "spam.example.org");
    expect([removed.code, removed.stdout]).toEqual([
      1,
      "added 0, changed 0, removed 1; the list has 0 now\n",
    ]);
    expect(removed.stderr).toContain("not on the list: 198.51.100.1, spam.example.org");
    const wrong = await command("add", "spam.example.org", "203.0.113.9");
    expect([wrong.code, wrong.stderr.includes("spam.example.org: a subject must be")]).toEqual([
      1,
      true,
    ]);
    expect(await listed()).toEqual([]);
  }, 60_000);

  test("of more than one body has room for are added and removed by one command", async () => {
    const many = Array.from({ length: 1_200 }, (_, i) => `203.0.${i >> 8}.${i & 255}`);
    const command = (...words: string[]) =>
      run(["block", ...words, ...many, "--socket", socket], { cwd: folder.path });
    const counts = (await command("add")).stdout;
    expect(counts).toBe("added 1200, changed 0, removed 0; the list has 1200 now\n");
    const removed = (await command("remove")).stdout;
    expect(removed).toBe("added 0, changed 0, removed 1200; the list has 0 now\n");
  }, 60_000);

  test("refuse anything but a DID or a network, and change nothing then", async () => {
    for (const subject of ["somebody", "203.0.113.1/24", "did:web:x", ""]) {
      const reply = await operate("blocks", {
        add: [block("203.0.113.0/24"), block(subject)],
        remove: [],
      });
      expect([reply.status, reply.body["code"]]).toEqual([400, "invalid_request"]);
    }
    expect((await operate("blocks")).body).toEqual({ blocks: [] });
  });

  test("outlive a restart, however many there are", async () => {
    const add = Array.from({ length: 500 }, (_, i) =>
      block(`203.0.${i >> 8}.${i & 255}`, { reason: "x".repeat(200) }),
    );
    expect((await operate("blocks", { add, remove: [] })).body).toMatchObject({ entries: 500 });
    await nodes.stop();
    nodes = await startTestNodes(input);
    expect((await operate("blocks")).body["blocks"]).toHaveLength(500);
    expect(await both({ client: "203.0.1.200" })).toEqual([403, 403]);
    expect(
      (await operate("blocks", { add: [], remove: add.map(({ subject }) => subject) })).body,
    ).toMatchObject({
      removed: 500,
      entries: 0,
    });
  });

  test("of one process hold in another one on the same store at once", async () => {
    const receipts = nodes.stores.capability("cache.store", "receipts");
    const bus = openLocalBus({ log: () => undefined });
    const parts = { receipts, bus, now: Date.now, log: () => undefined };
    const [one, other] = [await openBlocks(parts), await openBlocks(parts)];
    await one.change({
      add: [{ subject: "203.0.113.7", kind: "network", reason: null }],
      remove: [],
    });
    for (let i = 0; i < 50 && other.list().length === 0; i++) await Bun.sleep(10);
    expect(other.checkClient("::ffff:203.0.113.7")).toMatchObject({ code: "policy_denied" });
    expect(other.checkClient("203.0.113.8")).toBeNull();
    await other.change({ add: [], remove: ["203.0.113.7"] });
    one.close();
    other.close();
    await bus.close();
  });
});

test("a block list that its store can't keep stays as it was, and the change fails", async () => {
  const bus = openLocalBus({ log: () => undefined });
  const kept = nodes.stores.capability("cache.store", "receipts");
  let code: StoreErrorCode | null = null;
  const put: typeof kept.put = async (...record) => {
    if (code !== null) throw new StoreError(code, "the disk is full for this store");
    return kept.put(...record);
  };
  const blocks = await openBlocks({
    receipts: Object.assign(Object.create(kept), { put }),
    bus,
    now: Date.now,
    log: () => undefined,
  });
  const add = [{ subject: "203.0.113.9", kind: "network", reason: null }] as const;
  for (const failure of ["full", "unavailable"] as const) {
    code = failure;
    expect(await blocks.change({ add, remove: [] }).catch((error: unknown) => error)).toMatchObject(
      { code },
    );
    expect([blocks.list(), blocks.checkClient("203.0.113.9")]).toEqual([[], null]);
  }
  code = null;
  expect(await blocks.change({ add, remove: [] })).toEqual({
    added: 1,
    replaced: 0,
    removed: 0,
    missing: [],
  });
  expect(blocks.checkClient("203.0.113.9")).toMatchObject({ code: "policy_denied" });
  await blocks.change({ add: [], remove: ["203.0.113.9"] });
  blocks.close();
  await bus.close();
});

describe("an erasure", () => {
  test("removes what waits for a DID, blocks it, counts, and says so in the log", async () => {
    const erase = async () => {
      const { body } = await operate("erase", { did });
      expect(await statusAt("/cache/store")).toBe(403);
      await operate("blocks", { add: [], remove: [did] });
      return body;
    };
    await erase();
    expect([await statusAt("/cache/store"), await statusAt("/cache/store")]).toEqual([202, 202]);
    const body = await erase();
    expect(body["entries"]).toBe(2);
    expect(body["bytes"]).toBeGreaterThan(100);
    expect(
      nodes.lines.findLast(({ message }) => message.includes("what the node holds"))?.fields,
    ).toEqual(body);
    expect(await erase()).toEqual({ entries: 0, bytes: 0, invitations: 0 });
    const stats = await nodes.stores.capability("cache.store", "mailbox").stats(Date.now());
    expect(stats.entries).toBe(0);
  });

  test("leaves nothing for those who ask what became of the DID's envelopes", async () => {
    const asked = { recipient: did, sender: null };
    expect(await statusAt("/cache/store")).toBe(202);
    expect((await operate("explain", asked)).body["results"]).not.toEqual([]);
    await operate("erase", { did });
    expect((await operate("explain", asked)).body["results"]).toEqual([]);
    await operate("blocks", { add: [], remove: [did] });
  });

  test("forgets whom the mailbox knew, and its passes", async () => {
    const receipts = nodes.stores.capability("cache.store", "receipts");
    const mailbox = mailboxOf(did, 0);
    const kept = [keyOfKnown(mailbox), keyOfPasses(mailbox)];
    for (const key of kept) await receipts.put(key, new Uint8Array(1), Date.now() + hourMs);
    await operate("erase", { did });
    for (const key of kept) expect([key, await receipts.get(key, Date.now())]).toEqual([key, null]);
    await operate("blocks", { add: [], remove: [did] });
  });

  test("refuses a malformed DID", async () => {
    expect((await operate("erase", { did: "somebody" })).body).toMatchObject({
      code: "invalid_did",
    });
  });
});

test("the socket is open to its owner and group alone, whatever the umask is", () => {
  expect(statSync(socket).mode & 0o777).toBe(0o660);
});

test("a page that names an admin listener by its own host reads nothing", async () => {
  const ask = async (host: string) => {
    const answer = await fetch(`http://127.0.0.1:${adminPort}/status`, { headers: { host } });
    return answer.status;
  };
  expect(await ask("page.example:80")).toBe(403);
  for (const host of ["localhost:1", "127.0.0.1", "[::1]:7401", "waypost:7401", "node.internal"])
    expect([host, await ask(host)]).toEqual([host, 200]);
  expect((await fetch(`${url}/healthz`, { headers: { host: "relay.example.org" } })).status).toBe(
    200,
  );
});

test("a page that names the socket by another host changes nothing", async () => {
  const sent = {
    method: "POST",
    headers: { ...json, host: "page.example" },
    body: JSON.stringify({ did }),
  };
  expect((await fetch("http://localhost/operations/erase", { unix: socket, ...sent })).status).toBe(
    403,
  );
});

test("a browser's request counts from the page of this process alone", async () => {
  const page = await fetch("http://localhost/status", { unix: socket });
  const token = /name="waypost-token" content="(\w{64})"/.exec(await page.text())?.[1] ?? "";
  const statusWith = async (headers: Record<string, string>) => {
    const subject = "203.0.113.250";
    const body = JSON.stringify({ add: [block(subject)], remove: [] });
    const sent = { method: "POST", body, unix: socket, headers: { ...json, ...headers } };
    const { status } = await fetch("http://localhost/operations/blocks", sent);
    await operate("blocks", { add: [], remove: [subject] });
    return status;
  };
  const [shown, own] = [{ "x-waypost-token": token }, { origin: "http://localhost" }];
  const [same, cross] = ["same-origin", "cross-site"].map((site) => ({ "sec-fetch-site": site }));
  expect(await statusWith({ ...shown, ...own, ...same })).toBe(200);
  for (const headers of [
    { ...own, ...same },
    { ...same },
    { ...shown, ...own, ...cross },
    { ...shown, ...own, "sec-fetch-site": "same-site" },
    { ...shown, origin: "http://localhost:1", ...same },
    { ...shown, origin: "null" },
    { "x-waypost-token": "0".repeat(64), ...own, ...same },
    { "x-waypost-token": "" },
  ])
    expect([headers, await statusWith(headers)]).toEqual([headers, 403]);
  const listed = (await operate("blocks")).body["blocks"] as { subject: string }[];
  expect(listed.map(({ subject }) => subject)).not.toContain("203.0.113.250/32");
});

test("the page with actions is on the socket alone, and no page of another origin may read it", async () => {
  const shows = (text: string) => text.includes("waypost-token");
  const read = (url: string, options: object = {}) =>
    fetch(url, { headers: { origin: "http://localhost:1" }, ...options });
  const ofSocket = await read("http://localhost/status", { unix: socket });
  expect(ofSocket.headers.get("access-control-allow-origin")).toBeNull();
  expect(shows(await ofSocket.text())).toBe(true);
  const ofPort = await read(`http://127.0.0.1:${adminPort}/status`);
  expect([ofPort.status, shows(await ofPort.text())]).toEqual([200, false]);
  for (const header of ["unsafe-inline", "unsafe-eval"])
    expect(ofSocket.headers.get("content-security-policy")).not.toContain(header);
});

test("a reload without a file says so", async () => {
  expect((await operate("reload", {})).body).toMatchObject({ ok: false });
});

test("no TCP listener offers operations, the admin listener's among them", async () => {
  for (const base of [url, `http://127.0.0.1:${adminPort}`])
    for (const path of ["/operations/blocks", "/operations/reload", "/operations/erase"]) {
      const body = JSON.stringify({ did });
      expect((await fetch(base + path, { method: "POST", headers: json, body })).status).toBe(404);
    }
});
