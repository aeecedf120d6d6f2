/**
 * Reports to the operator: a recipient shows chosen messages, the command opens them with the
 * operator's keys, says whose signatures hold, in both versions of sealing, and blocks; nobody can
 * be reported for what they have not written.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileKeys, loadIdentity, stateFolder } from "../../src/cli/files/files.ts";
import { KeptReports } from "../../src/cli/files/kept-reports.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { reportType } from "../../src/client/mail/content.ts";
import { reportContent } from "../../src/client/mail/report.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { Waypost } from "../../src/client/waypost.ts";
import type { ConfigInput } from "../../src/config/schema.ts";
import { freePort, run, scratchFolder } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { waiting } from "../support/people.ts";

const folder = scratchFolder();
const url = `http://127.0.0.1:${freePort()}`;
const socket = join(folder.path, "admin.sock");
const keys = join(folder.path, "keys");
const keptAt = join(stateFolder(keys, "operator"), "reports.sqlite");
const inputOf = (operator: ConfigInput["operator"]): ConfigInput => ({
  server: {
    listen: [url.slice("http://".length)],
    admin_listen: [`unix:${socket}`],
    drain_timeout: "2s",
  },
  stores: { main: { plugin: "lmdb", path: join(folder.path, "store"), block_time_ms: 20 } },
  directory: { enabled: true, registration: "invite", rate_limit_loopback: false },
  relay: { enabled: true, public_endpoints: [url], allow_http: true, rate_limit_loopback: false },
  cache: { enabled: true, public_endpoints: [url] },
  operator,
});

type Answer = Readonly<Record<string, unknown>>;
const opened: Waypost[] = [];
/** Of the nodes' clock. */
let aheadMs = 0;
let nodes: TestNodes;
let operator: string;
let bob: Waypost;
/** Like bob, with keys against recording. */
let carol: Waypost;
let mallory: Waypost;
/** By the same invitation as mallory, bob and the operator. */
let friend: Waypost;

async function operate(path: string, body?: unknown): Promise<Answer> {
  const headers = { "content-type": "application/json" };
  const sent = body === undefined ? {} : { method: "POST", headers, body: JSON.stringify(body) };
  const reply = await fetch(`http://localhost/operations/${path}`, { unix: socket, ...sent });
  return (await reply.json()) as Answer;
}

async function invite(uses: number): Promise<string> {
  const made = await operate("invitations", { uses, life_seconds: 600, note: null });
  return String(made["code"]);
}

async function person(name: string, invitation: string, announce = false): Promise<Waypost> {
  const options = { url, keys: memoryKeys(), store: memoryStore(), alias: name, announce };
  const me = await Waypost.open({ ...options, invitation, waiting });
  opened.push(me);
  return me;
}

beforeAll(async () => {
  nodes = await startTestNodes(inputOf({}));
  const shared = await invite(4);
  const own = { url, keys: fileKeys(keys), name: "operator", waiting };
  const me = await Waypost.open({ ...own, invitation: shared });
  operator = me.did;
  await me.close();
  await nodes.stop();
  const now = () => Date.now() + aheadMs;
  nodes = await startTestNodes(inputOf({ did: operator }), {}, { now });
  const one = await invite(1);
  [bob, carol] = [await person("bob", shared), await person("carol", one, true)];
  [mallory, friend] = [await person("mallory", shared), await person("friend", shared)];
}, 120_000);
afterAll(async () => {
  await Promise.all(opened.map((me) => me.close()));
  await nodes.stop();
  folder.remove();
});

const reports = (...words: string[]) =>
  run(["reports", ...words, "--as", "operator", "--keys", keys, "--url", url], {
    cwd: folder.path,
  });
async function reportsJson(...words: string[]): Promise<Answer> {
  const { stdout, stderr } = await reports(...words, "--json");
  return JSON.parse(stdout === "" ? stderr : stdout) as Answer;
}
const listed = async () => (await reportsJson("list"))["reports"] as Answer[];
/** The report with this reason. */
async function idOf(reason: string): Promise<string> {
  for (;;) {
    const found = (await listed()).find((one) => one["reason"] === reason);
    if (found !== undefined) return String(found["id"]);
    await Bun.sleep(50);
  }
}
async function shown(reason: string): Promise<Answer[]> {
  return (await reportsJson("show", await idOf(reason)))["messages"] as Answer[];
}
async function arrived(me: Waypost, from: Waypost, count: number) {
  for (;;) {
    const found = await me.store.messages(from.did);
    if (found.length >= count) return found;
    await Bun.sleep(20);
  }
}

describe("a report", () => {
  test("shows the operator chosen messages, and that their author has signed them", async () => {
    await mallory.send("bob", "an insult");
    await mallory.send("bob", "a threat");
    await mallory.send("bob", "what is not reported");
    const all = await arrived(bob, mallory, 3);
    await bob.report(all.slice(0, 2), "mallory threatens me");
    expect(await shown("mallory threatens me")).toMatchObject([
      { from: mallory.did, content: "an insult", signature: "holds" },
      { from: mallory.did, content: "a threat", signature: "holds", time_signed: true },
    ]);
    const [one] = await listed();
    expect(one).toMatchObject({ reporter: bob.did, authors: [mallory.did], messages: 2 });
  });

  test("shows it of messages that were sealed against recording, too", async () => {
    await mallory.send("carol", "an insult of another kind");
    await carol.report(await arrived(carol, mallory, 1), "sealed");
    expect(await shown("sealed")).toMatchObject([
      {
        from: mallory.did,
        content: "an insult of another kind",
        signature: "holds",
        time_signed: true,
      },
    ]);
  });

  test("has what the author made of a message since", async () => {
    await friend.send("bob", "kind words");
    await arrived(bob, friend, 1);
    const [own] = await friend.store.messages(bob.did);
    if (own === undefined) throw new Error("the message is gone");
    await friend.store.edit(own, "unkind words");
    const edited = async () => (await bob.store.messages(friend.did))[0];
    while ((await edited())?.text !== "unkind words") await Bun.sleep(20);
    await bob.report(
      [await edited()].flatMap((one) => one ?? []),
      "edited",
    );
    const messages = await shown("edited");
    expect(messages.map(({ signature }) => signature)).toEqual(["holds", "holds"]);
    expect(messages[0]).toMatchObject({ content: "kind words" });
    expect(String(messages[1]?.["content"])).toContain("unkind words");
  });

  test("has a file's name, and its content when it is small", async () => {
    await mallory.send("bob", new Uint8Array(500).fill(7), { name: "small.bin" });
    await mallory.send("bob", new Uint8Array(100_000).fill(7), { name: "large.bin" });
    const files = (await arrived(bob, mallory, 5)).slice(3);
    await bob.report(files, "files");
    const messages = await shown("files");
    expect(messages.map(({ signature }) => signature)).toEqual(["holds", "unknown"]);
    expect(String(messages[1]?.["content"])).toContain("large.bin");
  });

  test("shows messages of a group, with its name", async () => {
    const group = await bob.groups.create("Neighbours", [mallory.did, friend.did]);
    while ((await mallory.groups.get(group.id)) === null) await Bun.sleep(20);
    await (await mallory.groups.get(group.id))?.send("to all of you");
    const theirs = async () =>
      (await bob.store.messages(group.id)).filter(({ text }) => text === "to all of you");
    while ((await theirs()).length === 0) await Bun.sleep(20);
    await bob.report(await theirs(), "group");
    expect(await shown("group")).toMatchObject([
      { from: mallory.did, group: group.id, content: "to all of you", signature: "holds" },
    ]);
  });

  test("shows no author of a message that nobody signed", async () => {
    await mallory.send("bob", "from nobody", { anonymous: true });
    const unsigned = async () => bob.store.messages("unverified");
    while ((await unsigned()).length === 0) await Bun.sleep(20);
    await bob.report(await unsigned(), "unsigned");
    expect(await shown("unsigned")).toMatchObject([
      { from: null, content: "from nobody", signature: "unknown" },
    ]);
  });

  test("has nothing of a message that its author has deleted for everybody", async () => {
    await friend.send("bob", "taken back");
    await arrived(bob, friend, 2);
    const own = (await friend.store.messages(bob.did)).at(-1);
    if (own === undefined) throw new Error("the message is gone");
    await friend.store.deleteForAll(own);
    const deleted = async () => (await bob.store.messages(friend.did))[1];
    while ((await deleted())?.revised !== "deleted") await Bun.sleep(20);
    await bob.report(
      [await deleted()].flatMap((one) => one ?? []),
      "deleted",
    );
    const messages = await shown("deleted");
    expect(messages.map(({ signature }) => signature)).toEqual(["unknown", "holds"]);
    expect(JSON.stringify(messages)).not.toContain("taken back");
  });

  test("convinces nobody of what was not written, or not to the reporter", async () => {
    const original = await proofsOf("mallory threatens me");
    const forge = (change: (message: Answer) => object) =>
      original.map((message) => ({ ...message, ...change(message) }));
    const send = (me: Waypost, reason: string, messages: readonly object[]) =>
      me.send(operator, { v: 1, reason, messages } as never, { mediaType: reportType });
    const lies: readonly (readonly [reason: string, signature: string, lie: object])[] = [
      ["other words", "fails", { data: Buffer.from("a worse insult").toString("base64") }],
      ["another author", "fails", { from: friend.did }],
      ["another time", "fails", { sentMs: 1_700_000_000_000 }],
      ["another type", "fails", { mediaType: "image/png" }],
      ["no signature", "unknown", { authorship: null }],
      ["the same", "holds", {}],
    ];
    for (const [reason, , change] of lies)
      await send(
        bob,
        reason,
        forge(() => change),
      );
    await send(carol, "another recipient", original);
    // A member with two names, where only one of them was signed.
    const outer = (message: Answer, members: (envelope: Answer) => object) => {
      const authorship = message["authorship"] as Answer;
      const envelope = authorship["envelope"] as Answer;
      return { authorship: { ...authorship, envelope: { ...envelope, ...members(envelope) } } };
    };
    const time = "2020-01-01T00:00:00.000Z";
    const twoTimes = forge((message) => ({
      sentMs: Date.parse(time),
      ...outer(message, ({ timestamp }) => ({ timestamp: time, created_at: timestamp })),
    }));
    await send(bob, "two times", twoTimes);
    const twoRecipients = forge((message) =>
      outer(message, ({ to }) => ({ to: carol.did, recipient: to })),
    );
    await send(carol, "two recipients", twoRecipients);
    const noText = forge((message) => outer(message, () => ({ tag: "\ud800" })));
    await send(bob, "no text", noText);
    const others = ["another recipient", "two times", "two recipients", "no text"];
    for (const [reason, signature] of [
      ...lies,
      ...others.map((reason) => [reason, "fails"] as const),
    ])
      expect([reason, ...(await shown(reason)).map((one) => one["signature"])]).toEqual([
        reason,
        signature,
        signature,
      ]);
  }, 60_000);

  test("leaves the mailbox for the operator's machine, sealed, until it is closed", async () => {
    const waitingEntries = async () =>
      (await operate("member", { member: operator }))["waiting_entries"];
    await listed();
    const before = await waitingEntries();
    await bob.report(await arrived(bob, mallory, 1), "to be kept");
    while ((await waitingEntries()) !== Number(before) + 1) await Bun.sleep(20);
    await idOf("to be kept");
    expect(await waitingEntries()).toBe(before);
    const bytes = await readFile(keptAt, "latin1");
    for (const secret of ["to be kept", "an insult", bob.did]) expect(bytes).not.toContain(secret);
    const { stdout } = await reports("close", await idOf("to be kept"));
    expect(stdout).toStartWith("closed ");
    expect((await listed()).map(({ reason }) => reason)).not.toContain("to be kept");
  });

  test("that is malformed or unsigned is none, and other mail stays", async () => {
    const before = (await listed()).length;
    await bob.send(operator, { v: 1, reason: "", messages: [] }, { mediaType: reportType });
    await bob.send(operator, { v: 2 }, { mediaType: reportType });
    await bob.send(operator, "good morning");
    expect((await listed()).length).toBe(before);
  });

  test("is refused for own messages, for none, and for too many", async () => {
    const [own] = await mallory.store.messages(bob.did);
    const [other] = await bob.store.messages(mallory.did);
    if (own === undefined || other === undefined) throw new Error("a message is gone");
    const invalid = { code: "invalid_argument" };
    await expect(mallory.report([own])).rejects.toMatchObject(invalid);
    await expect(bob.report([])).rejects.toMatchObject(invalid);
    await expect(bob.report(new Array(51).fill(other))).rejects.toMatchObject(invalid);
    await expect(bob.report([other], "x".repeat(2_001))).rejects.toMatchObject(invalid);
  });
});

describe("the operator", () => {
  test("is never blocked itself, by any command", async () => {
    const refused = await run(["block", "add", operator, "--sender", "--socket", socket], {
      cwd: folder.path,
    });
    expect([refused.code, refused.stderr]).toEqual([
      1,
      expect.stringContaining("can't be blocked"),
    ]);
    const erasing = ["erase", operator, "--yes", "--socket", socket];
    const kept = await run(erasing, { cwd: folder.path });
    expect([kept.code, kept.stderr]).toEqual([1, expect.stringContaining("can't be erased")]);
    expect((await operate("blocks"))["blocks"]).toEqual([]);
  });

  test("blocks the authors and whom their invitation let in, but itself and the reporter", async () => {
    const id = await idOf("mallory threatens me");
    const words = ["block", id, "--socket", socket];
    const network = "203.0.113.0/24";
    const unasked = await reports(...words, "--invitation");
    expect([unasked.code, unasked.stderr]).toEqual([1, expect.stringContaining("--yes")]);
    expect(unasked.stderr).toContain(friend.did);
    expect(unasked.stderr).not.toContain(bob.did);
    expect((await operate("blocks"))["blocks"]).toEqual([]);
    const done = await reportsJson(...words, "--invitation", "--network", network, "--yes");
    expect((done["blocked"] as string[]).sort()).toEqual([mallory.did, friend.did, network].sort());
    const blocks = (await operate("blocks"))["blocks"] as Answer[];
    expect(blocks.map(({ reason }) => reason)).toEqual(
      new Array(3).fill(`report ${id.slice(0, 8)}`),
    );
  });

  test("blocks nobody by a report whose signatures fail", async () => {
    const refused = await reports("block", await idOf("another author"), "--socket", socket);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain("no signature in this report holds");
  });

  test("closes a report, which is gone then", async () => {
    const id = await idOf("sealed");
    expect((await reports("close", id.slice(0, 8))).stdout).toBe(`closed ${id}\n`);
    expect((await listed()).map(({ reason }) => reason)).not.toContain("sealed");
    expect((await reports("show", id)).code).toBe(1);
  });

  test("closes several reports, and all of one reporter", async () => {
    const ids = [await idOf("edited"), await idOf("files")];
    const none = await reports("close", ids[0] ?? "", "ffffffff");
    expect(none.code).toBe(1);
    expect((await reportsJson("close", ...ids))["closed"]).toEqual(ids);
    const left = await listed();
    const carols = left.filter(({ reporter }) => reporter === carol.did).map(({ id }) => id);
    expect(carols.length).toBeGreaterThan(0);
    expect((await reportsJson("close", "--from", carol.did))["closed"]).toEqual(carols);
    expect((await listed()).map(({ id }) => id)).toEqual(
      left.map(({ id }) => id).filter((id) => !carols.includes(id)),
    );
    expect((await reports("close")).code).toBe(1);
  });

  test("reads reports as text", async () => {
    const { stdout } = await reports("show", await idOf("other words"));
    expect(stdout).toContain("ITS SIGNATURE DOES NOT HOLD");
    const { stdout: list } = await reports("list");
    expect(list).toContain(`${bob.did} reports 2 messages`);
    // Of one reporter the first five, so that a flood hides no other's.
    const theirs = (await listed()).filter(({ reporter }) => reporter === bob.did).length;
    expect(list).toContain(`and ${theirs - 5} more of ${bob.did}`);
    const { stdout: all } = await reports("list", "--from", bob.did);
    const lines = all.trimEnd().split("\n");
    expect([lines.length, lines.at(-1)]).toEqual([theirs + 1, `${theirs} reports of 1 reporter`]);
  });

  test("closes all reports by those whom one invitation let in", async () => {
    await carol.report(await arrived(carol, mallory, 1), "by another invitation");
    await idOf("by another invitation");
    const { invitation } = await operate("member", { member: bob.did });
    const theirs = (await listed()).filter(({ reporter }) => reporter === bob.did);
    const words = ["close", "--invitation", String(invitation), "--socket", socket];
    const asked = await reports(...words);
    expect([asked.code, asked.stderr]).toEqual([1, expect.stringContaining("Confirm with --yes")]);
    expect(await listed()).toHaveLength(theirs.length + 1);
    const { stdout } = await reports(...words, "--yes");
    expect(stdout).toBe(`closed ${theirs.length} reports\n`);
    expect((await listed()).map(({ reporter }) => reporter)).toEqual([carol.did]);
  });

  test("sees who has been a member for a week in a place of their own", async () => {
    const seenAs = async () => {
      const asked = { recipient: operator, sender: carol.did };
      const steps = (await operate("explain", asked))["steps"] as Answer[];
      return String(steps.find(({ what }) => what === "pools")?.["detail"]);
    };
    expect(await seenAs()).toContain("first-time sender");
    aheadMs = 7 * 86_400_000;
    expect(await seenAs()).toContain("the mailbox knows the sender");
    aheadMs = 0;
  });
});

test("without an operator's identity nothing is reported", async () => {
  const [message] = await bob.store.messages(mallory.did);
  await nodes.stop();
  nodes = await startTestNodes(inputOf({}));
  if (message === undefined) throw new Error("the message is gone");
  await expect(bob.report([message])).rejects.toMatchObject({ code: "no_operator" });
});

/** The messages of a report as they travelled. */
async function proofsOf(reason: string): Promise<readonly Answer[]> {
  const id = await idOf(reason);
  const { storeKey } = await loadIdentity(keys, "operator");
  const kept = await KeptReports.open(keptAt, storeKey);
  try {
    const found = (await kept.list()).find((one) => one.id === id);
    if (found === undefined) throw new Error("the report is gone");
    return reportContent(await kept.reportOf(found)).messages;
  } finally {
    await kept.close();
  }
}
