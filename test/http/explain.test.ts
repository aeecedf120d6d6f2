/**
 * "Why did it not arrive?", asked of a running node over its admin socket: what it would decide
 * about an envelope, and what became of the last ones; and the log, which names message and
 * recipient without saying who that is.
 */
import { afterAll, beforeAll, expect, spyOn, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { clientNetwork } from "../../src/core/message/address.ts";
import { labelsOf } from "../../src/nodes/cache/pools.ts";
import { StoreError } from "../../src/storage/contract.ts";
import { freePort, run, scratchFolder } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

const folder = scratchFolder();
const url = `http://127.0.0.1:${freePort()}`;
const socket = join(folder.path, "admin.sock");

let nodes: TestNodes;
let [alice, bob, carol]: Waypost[] = [];
beforeAll(async () => {
  nodes = await startTestNodes({
    server: {
      listen: [url.slice("http://".length)],
      admin_listen: [`unix:${socket}`],
      drain_timeout: "2s",
    },
    relay: {
      enabled: true,
      public_endpoints: [url],
      allow_http: true,
      allow_private: ["127.0.0.0/8"],
    },
    cache: { enabled: true, public_endpoints: [url], recipient_entries_max: 2 },
  });
  const open = () =>
    Waypost.open({ url, keys: memoryKeys(), waiting: { timeoutMs: 60_000, intervalMs: 20 } });
  [alice, bob, carol] = [await open(), await open(), await open()];
}, 60_000);
afterAll(async () => {
  await nodes.stop();
  folder.remove();
});

type Explained = {
  readonly status: number;
  readonly digest: string;
  readonly reachable: boolean;
  readonly steps: { what: string; state: string; detail: string }[];
  readonly networks?: Record<string, string>;
  readonly results: {
    status: number;
    code: string | null;
    sender: string | null;
    message_id: string;
  }[];
};

async function operate(path: string, body: object): Promise<Explained> {
  const headers = { "content-type": "application/json" };
  const sent = { method: "POST", headers, body: JSON.stringify(body) };
  const reply = await fetch(`http://localhost/operations/${path}`, { unix: socket, ...sent });
  return { ...((await reply.json()) as Explained), status: reply.status };
}

const explain = (recipient = bob!.did as string, sender: string | null = alice!.did, more = {}) =>
  operate("explain", { recipient, sender, ...more });
const stepOf = ({ steps }: Explained, what: string) => steps.find((step) => step.what === what);
const stopping = ({ steps }: Explained) =>
  steps.filter(({ state }) => state === "stops").map(({ what }) => what);

test("a recipient that is well is reachable, with what its mailbox holds", async () => {
  const explained = await explain();
  expect([explained.status, explained.reachable, stopping(explained)]).toEqual([200, true, []]);
  expect(stepOf(explained, "mailbox")?.detail).toStartWith("0 of 2 entries, 0 of ");
  expect(stepOf(explained, "live sessions")?.state).toBe("note");
  expect(explained.results).toEqual([]);
});

test("a full mailbox stops it, and the last results say so", async () => {
  await alice!.send(bob!.did, "one");
  await alice!.send(bob!.did, "two");
  const plain = {
    message_id: crypto.randomUUID(),
    to: bob!.did,
    timestamp: new Date().toISOString(),
    payload: {},
  };
  const headers = { "content-type": "application/json" };
  for (const path of ["/cache/store", "/relay"])
    await fetch(url + path, { method: "POST", headers, body: JSON.stringify(plain) });
  const explained = await explain(bob!.did, null);
  expect([explained.reachable, stopping(explained)]).toEqual([false, ["mailbox"]]);
  expect(explained.results.map(({ status, code, sender }) => [status, code, sender])).toEqual([
    [502, "mailbox_full", null],
    [507, "mailbox_full", null],
    [202, "cached", alice!.did],
    [202, "cached", alice!.did],
  ]);
  const requests = nodes.lines.map(
    ({ fields }) => (fields ?? {}) as { status?: number; code?: string },
  );
  expect(requests.flatMap(({ status, code }) => (status === 502 ? [code] : []))).toEqual([
    "mailbox_full",
  ]);
  expect((await explain()).results.length).toBe(2);
  expect((await explain(bob!.did, bob!.did)).results).toEqual([]);
});

test("a blocked sender stops it, and a recipient who is not registered", async () => {
  const block = { subject: alice!.did, sender_only: true, reason: null };
  await operate("blocks", { add: [block], remove: [] });
  expect(stopping(await explain())).toEqual(["block list", "mailbox"]);
  expect(stopping(await explain(bob!.did, null))).toEqual(["mailbox"]);
  await operate("blocks", { add: [], remove: [alice!.did] });
  expect(stopping(await explain("did:svc:5555555555555555555555"))).toEqual(["record"]);
});

test("a blocked network stops its clients, and is counted for those who name none", async () => {
  const block = { subject: "203.0.113.0/24", sender_only: false, reason: null };
  await operate("blocks", { add: [block], remove: [] });
  const from = (client: string) => explain(carol!.did, alice!.did, { client });
  expect(stopping(await from("203.0.113.9"))).toEqual(["networks"]);
  expect([(await from("203.0.114.9")).reachable, (await from("nowhere")).status]).toEqual([
    true,
    400,
  ]);
  const without = await explain(carol!.did);
  expect([without.reachable, stepOf(without, "networks")?.state]).toEqual([true, "note"]);
  expect(stepOf(without, "networks")?.detail).toStartWith("1 blocked; ");
  const asked = ["explain", carol!.did, "--socket", socket, "--client", "203.0.113.9"];
  const { stdout } = await run(asked, { cwd: folder.path });
  expect(stdout).toContain(`This node refuses envelopes to ${carol!.did} now.`);
  await operate("blocks", { add: [], remove: [block.subject] });
});

test("a sender is named as the recipient is, by an identity of this machine too", async () => {
  const here = ["--url", nodes.url, "--keys", join(folder.path, "keys")];
  await run(["did", "create", "--name", "eve", ...here], { cwd: folder.path });
  const asked = ["explain", carol!.did, "--sender", "eve", "--socket", socket, ...here];
  const { stdout, stderr } = await run(asked, { cwd: folder.path });
  expect([stderr, stdout.split("\n")[0]]).toEqual([
    "",
    `This node takes envelopes to ${carol!.did}.`,
  ]);
});

test("a store without room stops it: its disk, its entries and its bytes", async () => {
  const mailbox = nodes.stores.capability("cache.store", "mailbox");
  expect(stepOf(await explain(carol!.did), "store")?.detail).toStartWith("2 of ");
  const before = await mailbox.stats(Date.now());
  const disk = spyOn(mailbox, "store").mockRejectedValue(
    new StoreError("full", "the disk is full for this store"),
  );
  const explained = await explain(carol!.did);
  expect([explained.reachable, stopping(explained)]).toEqual([false, ["store"]]);
  disk.mockImplementation(async ({ envelope }) => {
    if (envelope.length > 1) throw new StoreError("full", "the disk is full for this store");
    return { kind: "full", scope: "recipient" };
  });
  const nearly = await explain(carol!.did);
  expect([nearly.reachable, stepOf(nearly, "store")?.state]).toEqual([true, "note"]);
  expect(stepOf(nearly, "store")?.detail).toContain("refuses one of 1 MiB: the disk is full");
  disk.mockRestore();
  const stats = spyOn(mailbox, "stats").mockResolvedValue({ entries: 10_000_000, bytes: 1 });
  expect(stopping(await explain(carol!.did))).toEqual(["store"]);
  stats.mockResolvedValue({ entries: 1, bytes: 64 * 2 ** 30 });
  expect(stopping(await explain(carol!.did))).toEqual(["store"]);
  stats.mockRestore();
  expect(await mailbox.stats(Date.now())).toEqual(before);
});

test("what is no DID, or of another shape, is refused", async () => {
  expect((await explain("nobody")).status).toBe(400);
  expect((await explain(bob!.did, "nobody")).status).toBe(400);
  expect((await operate("explain", {})).status).toBe(400);
});

test("the log names the message and a digest of the recipient, and a command finds the lines by either", async () => {
  const { digest, results } = await explain(bob!.did, null);
  const about = nodes.lines
    .filter(({ message }) => message === "request")
    .map(({ fields }) => fields as object);
  const ids = results.map(({ message_id }) => message_id).reverse();
  const named = about.filter((fields) => "message_id" in fields) as {
    message_id: string;
    recipient: string;
  }[];
  expect(named.map(({ message_id, recipient }) => [message_id, recipient])).toEqual(
    ids.map((id) => [id, digest]),
  );
  expect(JSON.stringify(nodes.lines)).not.toContain(bob!.did);
  const file = join(folder.path, "log");
  writeFileSync(
    file,
    nodes.lines
      .map(({ message, fields }) => `${JSON.stringify({ message, ...(fields as object) })}\n`)
      .join(""),
  );
  const find = async (subject: string) => {
    const { stdout, code } = await run(["log", subject, file, "--socket", socket], {
      cwd: folder.path,
    });
    return [code, stdout.split("\n").filter((line) => line.includes('"message":"request"')).length];
  };
  expect(await find(bob!.did)).toEqual([0, ids.length]);
  expect(await find(ids[0] as string)).toEqual([0, 1]);
  expect(await find(digest)).toEqual([0, ids.length]);
  expect(await find(alice!.did)).toEqual([0, 0]);
}, 60_000);

test("a label of stored entries is named as the network that block takes, once that has sent something", async () => {
  const label = (client: string) =>
    labelsOf({ isKnown: false, label: null }, { client, network: clientNetwork(client) })[0]!;
  const [own, strange] = [label("127.0.0.1"), "new:net:0123456789abcdef"];
  const { networks } = await operate("networks", { labels: [own, strange] });
  expect(networks).toEqual({ [own]: "127.0.0.1" });
});

test("the command prints what the node says", async () => {
  const asked = ["explain", bob!.did, "--socket", socket];
  const { stdout, code } = await run(asked, { cwd: folder.path });
  expect(code).toBe(0);
  expect(stdout).toContain(`This node refuses envelopes to ${bob!.did} now.`);
  expect(stdout).toMatch(/STOPS {2}mailbox: full: 2 of 2 entries/);
  expect(stdout).toMatch(/502 {2}\/relay .* unsigned {2}mailbox_full: /);
}, 60_000);

test("the pools of a sender follow what the mailbox knows of it", async () => {
  const poolsOf = async (sender: string | null) =>
    stepOf(await explain(bob!.did, sender), "pools")?.detail;
  expect(await poolsOf(null)).toStartWith("unsigned or first-time sender");
  // Both messages of alice, whom the mailbox does not know; a pool is never smaller than a hundred
  // entries.
  expect(await poolsOf(null)).toContain("pool new has 2 of 100 entries, ");
  expect(await poolsOf(alice!.did)).toStartWith("unsigned or first-time sender");
  for await (const message of bob!.messages()) {
    await message.ack();
    break;
  }
  while ((await poolsOf(alice!.did))?.startsWith("the mailbox knows the sender") !== true)
    await Bun.sleep(20);
});
