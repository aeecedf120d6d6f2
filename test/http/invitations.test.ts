/**
 * Who registers at a Directory that is not open: invitations over the wire, the SDK and the
 * commands, also when many race for one, after a kill and in a backup; what an erasure removes; and
 * the mail of a deleted DID.
 */
import { afterAll, afterEach, describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { decodeQR } from "qr/decode.js";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { encodeHex, utf8 } from "../../src/core/codec/bytes.ts";
import { sha256 } from "../../src/core/codec/crypto.ts";
import { dayMs } from "../../src/core/codec/time.ts";
import { isFault } from "../../src/core/fault.ts";
import { invitationsMax } from "../../src/core/schema/schema.ts";
import { createInvitations } from "../../src/nodes/operations/invitations.ts";
import { encodeRecord } from "../../src/nodes/parties/records.ts";
import {
  beforeBlock,
  type Reply,
  registerBodyOf,
  type TestDirectory,
  testDirectory,
} from "../support/directory.ts";
import {
  freePort,
  type RunningNode,
  run,
  scratchFolder,
  startNode,
} from "../support/executable.ts";
import { type Identity, identityOf } from "../support/identity.ts";

const folder = scratchFolder();
afterAll(folder.remove);
let directory: TestDirectory | null = null;
afterEach(async () => {
  await directory?.close();
  directory = null;
});

async function inviting(): Promise<TestDirectory> {
  directory = await testDirectory({ options: { registration: "invite" } });
  return directory;
}

async function codeOf({ invitations }: TestDirectory, uses = 1): Promise<string> {
  const made = await invitations.create({ uses, lifeMs: dayMs, note: null });
  if (isFault(made)) throw new Error(made.detail);
  return made.code;
}

let count = 0;
const newcomer = (): Identity => identityOf(`invited ${count++}`);
const registerWith = (
  stage: TestDirectory,
  code: string | null,
  who = newcomer(),
  spoil = {},
): Promise<Reply> =>
  stage.ask(
    "POST",
    "/register-did",
    { ...registerBodyOf(who, stage.nowMs()), ...spoil },
    code === null ? {} : { "svc-invitation": code },
  );
const outcome = ({ status, body }: Reply): string =>
  `${status} ${body["code"] ?? body["registration_status"]}`;
const usedOf = async ({ invitations }: TestDirectory): Promise<number> =>
  (await invitations.list())[0]?.uses.length ?? 0;

describe("an invitation", () => {
  test("registers as many DIDs as it has uses, however many race for it", async () => {
    const stage = await inviting();
    const code = await codeOf(stage, 5);
    const replies = await Promise.all(Array.from({ length: 14 }, () => registerWith(stage, code)));
    const outcomes = replies.map(outcome);
    expect(outcomes.filter((one) => one === "202 pending")).toHaveLength(5);
    expect(outcomes.filter((one) => one === "403 invitation_invalid")).toHaveLength(9);
    const [listed] = await stage.invitations.list();
    const registered = replies
      .filter(({ status }) => status === 202)
      .map(({ body }) => body["did"]);
    expect(listed?.uses.map(({ did }) => did as string).sort()).toEqual(
      (registered as string[]).sort(),
    );
  });

  test("is used once by a DID that registers again, before and after its code is used up", async () => {
    const stage = await inviting();
    const code = await codeOf(stage);
    const own = newcomer();
    await beforeBlock(async () => {
      for (let i = 0; i < 3; i++)
        expect(outcome(await registerWith(stage, code, own))).toBe("202 pending");
    });
    expect(await usedOf(stage)).toBe(1);
    expect(outcome(await registerWith(stage, code))).toBe("403 invitation_invalid");
  });

  test("is not used by a registration that is refused for another reason", async () => {
    const stage = await inviting();
    const code = await codeOf(stage);
    const own = newcomer();
    const forged = registerBodyOf(newcomer(), stage.nowMs())["signature"];
    expect(outcome(await registerWith(stage, code, own, { signature: forged }))).toBe(
      "403 invalid_signature",
    );
    expect(outcome(await registerWith(stage, code, own, { alias: "a b" }))).toStartWith("400");
    expect(await usedOf(stage)).toBe(0);
    expect(outcome(await registerWith(stage, code, own))).toBe("202 pending");
  });

  test("ends with its time or with its revocation, by id or code", async () => {
    const stage = await inviting();
    const codes: string[] = [];
    for (let i = 0; i < 3; i++) {
      codes.push(await codeOf(stage, 9));
      stage.advance(1);
    }
    const [late = "", revoked = "", named = ""] = codes;
    const ids = (await stage.invitations.list()).map(({ id }) => id);
    expect(await stage.invitations.revoke(ids[1]?.slice(0, 8) ?? "")).toMatchObject({ id: ids[1] });
    expect(await stage.invitations.revoke(named)).toMatchObject({ id: ids[2] });
    expect(await stage.invitations.revoke("zzzzzz")).toMatchObject({ code: "not_found" });
    const answered = await Promise.all(
      [late, revoked, named].map((code) => registerWith(stage, code)),
    );
    expect(answered.map(outcome)).toEqual([
      "202 pending",
      "403 invitation_invalid",
      "403 invitation_invalid",
    ]);
    stage.advance(dayMs);
    expect(outcome(await registerWith(stage, late))).toBe("403 invitation_invalid");
    expect(outcome(await registerWith(stage, "guessed"))).toBe("403 invitation_invalid");
    expect(outcome(await registerWith(stage, null))).toBe("403 invitation_required");
  });

  test("of one process holds at once in another on the same store, and both together never exceed its count", async () => {
    const stage = await inviting();
    const { receipts } = stage.store.capabilities;
    if (receipts === undefined) throw new Error("no receipts");
    const other = createInvitations({ receipts, now: stage.nowMs });
    const code = await codeOf(stage, 7);
    const claims = Array.from({ length: 40 }, (_, i) =>
      [stage.invitations, other][i % 2]?.claim(code, newcomer().did),
    );
    expect((await Promise.all(claims)).filter((refused) => refused === null)).toHaveLength(7);
  });
});

test("invitations that have ended keep no one from making another", async () => {
  const { invitations, store, nowMs } = await inviting();
  const { receipts } = store.capabilities;
  if (receipts === undefined) throw new Error("no receipts");
  const make = () => invitations.create({ uses: 1, lifeMs: dayMs, note: null });
  const first = await make();
  if (isFault(first)) throw new Error(first.detail);
  const { code: _, ...kept } = first;
  const fill = async (count: number, end: Partial<typeof kept>) => {
    for (let i = 1; i <= count; i++) {
      const id = encodeHex(sha256(utf8(`${i}`))).slice(0, 32);
      const one = { ...kept, ...end, id, createdAtMs: kept.createdAtMs + i };
      await receipts.put(`/invitation/${id}`, encodeRecord(one), nowMs() + 90 * dayMs);
    }
  };
  await fill(invitationsMax - 1, {});
  expect(await make()).toMatchObject({ code: "invalid_request" });
  await invitations.revoke(first.id);
  expect(await make()).toMatchObject({ revokedAtMs: null });
  expect(await make()).toMatchObject({ code: "invalid_request" });
  // Of those that have ended as many are shown; the oldest of them is forgotten.
  await fill(invitationsMax, { revokedAtMs: nowMs() });
  expect(await make()).toMatchObject({ revokedAtMs: null });
  const listed = await invitations.list();
  expect([listed.some(({ id }) => id === first.id), listed.length]).toEqual([
    false,
    invitationsMax + 2,
  ]);
}, 60_000);

test("a Directory that is closed registers no one, and /limits names what it is", async () => {
  const stage = await inviting();
  const code = await codeOf(stage);
  expect((await stage.limits()).registration).toBe("invite");
  stage.settings.registration = "closed";
  expect(outcome(await registerWith(stage, code))).toBe("403 registration_closed");
  expect((await stage.limits()).registration).toBe("closed");
  stage.settings.registration = "open";
  expect(outcome(await registerWith(stage, null))).toBe("202 pending");
});

// ---------------------------------------------------------------------------------- the executable

const port = freePort();
const url = `http://127.0.0.1:${port}`;
const config = join(folder.path, "waypost.toml");
const socket = join(folder.path, "admin.sock");

const appHost = "chat.example.org";
const configure = (registration: string, { blockTimeMs = 20, hasApp = true } = {}): void =>
  writeFileSync(
    config,
    `[server]
listen = ["127.0.0.1:${port}"]
admin_listen = ["unix:${socket}"]
${hasApp ? `app = "${appHost}"` : ""}
[directory]
enabled = true
registration = "${registration}"
[relay]
enabled = true
public_endpoints = ["${url}"]
[cache]
enabled = true
public_endpoints = ["${url}"]
[stores.main]
plugin = "lmdb"
path = "${join(folder.path, "store")}"
block_time_ms = ${blockTimeMs}
`,
  );
const serve = () => startNode(["serve", "--config", config], { cwd: folder.path, url });
const waypost = async (...args: string[]) => {
  const ran = await run([...args, "--json"], { cwd: folder.path, env: { WAYPOST_URL: url } });
  return { ...ran, json: JSON.parse(ran.stdout || ran.stderr) as Record<string, unknown> };
};
const operate = (...args: string[]) => waypost(...args, "--config", config);

/** What a camera reads from the terminal: a character is two modules, one above the other. */
function readQr(drawn: string): string | null {
  const [scale, margin] = [4, 4];
  const rows = drawn
    .split("\n")
    .flatMap((line) => ["█▀", "█▄"].map((light) => [...line].map((at) => light.includes(at))));
  const size = Math.max(rows.length, rows[0]?.length ?? 0) + 2 * margin;
  const isLight = (x: number, y: number) =>
    rows[Math.floor(y / scale) - margin]?.[Math.floor(x / scale) - margin] ?? true;
  const side = size * scale;
  const data = new Uint8Array(side * side * 4).fill(255);
  for (let y = 0; y < side; y++)
    for (let x = 0; x < side; x++)
      if (!isLight(x, y)) data.fill(0, (y * side + x) * 4, (y * side + x) * 4 + 3);
  return decodeQR({ width: side, height: side, data });
}

test("an invitation goes from the command over its link and QR code to the SDK, and survives a kill and a restore", async () => {
  configure("open");
  let node = await serve();
  try {
    configure("invite");
    expect((await operate("reload")).json).toMatchObject({ changed: ["directory.registration"] });
    const refused = await waypost("did", "create", "--name", "ann");
    expect([refused.code, refused.json["code"]]).toEqual([1, "invitation_required"]);
    for (const wrong of ["300d", "30s"]) {
      const words = ["invite", "create", "--expires", wrong, "--config", config];
      const refused = await run(words, { cwd: folder.path });
      expect(refused.code).not.toBe(0);
      expect(refused.stderr).toContain("from 1 minute to 30 days");
    }
    const made = (await operate("invite", "create", "--uses", "3", "--note", "choir")).json;
    const link = String(made["link"]);
    expect(link).toBe(`https://${appHost}/#invite=${made["code"]}`);
    const shown = await run(["invite", "create", "--config", config], { cwd: folder.path });
    const [drawn = "", shownLink = ""] = shown.stdout.split("\n\n");
    expect(shownLink).toStartWith(`${readQr(drawn)}\n`);
    expect(shownLink).toStartWith(`https://${appHost}/#invite=`);

    expect((await waypost("did", "create", "--name", "ann", "--invitation", link)).code).toBe(0);
    await node.kill("SIGKILL");
    node = await serve();
    const ben = await Waypost.open({ url, keys: memoryKeys(), invitation: String(made["code"]) });
    await ben.close();
    expect((await operate("storage", "backup", "--to", join(folder.path, "backup"))).code).toBe(0);
    await node.kill("SIGTERM");
    expect((await operate("storage", "restore", "--from", join(folder.path, "backup"))).code).toBe(
      0,
    );
    node = await serve();
    const cat = await Waypost.open({ url, keys: memoryKeys(), invitation: link });
    await cat.close();
    const last = Waypost.open({ url, keys: memoryKeys(), invitation: link });
    await expect(last).rejects.toMatchObject({ code: "invitation_invalid", status: 403 });
    const { invitations } = (await operate("invite", "list")).json as {
      invitations: { note: string; uses: unknown[] }[];
    };
    expect(invitations.find(({ note }) => note === "choir")?.uses).toHaveLength(3);
    expect((await operate("invite", "revoke", link)).json).toMatchObject({ ok: true, uses_max: 3 });
  } finally {
    await node.kill("SIGTERM");
  }
}, 120_000);

const page = { accept: "text/html,application/xhtml+xml,*/*;q=0.8" };
const openInBrowser = (host: string, path = "/") =>
  fetch(url + path, { headers: { ...page, host, connection: "close" }, redirect: "manual" });

test("the nodes' own name leads a browser to the app, and the link of an invitation opens it", async () => {
  configure("invite");
  const node = await serve();
  try {
    const door = await openInBrowser("waypost.example.org");
    expect([door.status, door.headers.get("location")]).toEqual([302, `https://${appHost}/`]);
    const link = new URL(String((await operate("invite", "create")).json["link"]));
    const app = await openInBrowser(link.host, link.pathname);
    expect([app.status, app.headers.get("content-type")]).toEqual([
      200,
      "text/html; charset=utf-8",
    ]);
    const program = await fetch(`${url}/`, { headers: { accept: "application/json" } });
    expect([program.status, ((await program.json()) as { code: string }).code]).toEqual([
      404,
      "not_found",
    ]);
  } finally {
    await node.kill("SIGTERM");
  }
}, 60_000);

test("without an app an invitation is its code alone, unless --link names one, and a browser gets a page", async () => {
  configure("invite", { hasApp: false });
  const node = await serve();
  try {
    const { stdout } = await run(["invite", "create", "--config", config], { cwd: folder.path });
    expect(stdout).toStartWith("code ");
    expect(stdout).not.toContain("http");
    const elsewhere = "https://chat.elsewhere.example";
    const made = (await operate("invite", "create", "--link", elsewhere)).json;
    expect(made["link"]).toBe(`${elsewhere}/#invite=${made["code"]}`);
    const door = await openInBrowser("waypost.example.org");
    expect([door.status, door.headers.get("content-type")]).toEqual([
      200,
      "text/html; charset=utf-8",
    ]);
    expect(await door.text()).toContain("where the app is");
  } finally {
    await node.kill("SIGTERM");
  }
}, 60_000);

/** The line of the log. */
async function removedBy(node: RunningNode): Promise<string> {
  const line = () =>
    node
      .printed()
      .split("\n")
      .find((one) => one.includes("the mail of a deleted DID was removed"));
  for (let i = 0; i < 1_500 && line() === undefined; i++) await Bun.sleep(20);
  return line() ?? "nothing was removed";
}

test("an erasure removes mail and traces and blocks the DID; a deleted DID's mail goes by itself", async () => {
  configure("invite");
  const node = await serve();
  try {
    const { code } = (await operate("invite", "create", "--uses", "2")).json as { code: string };
    const open = () => Waypost.open({ url, keys: memoryKeys(), invitation: code });
    const [eve, fay] = [await open(), await open()];
    const toEve = () => fay.send(eve.did, "hello", { anonymous: true });
    await toEve();
    const erased = (await operate("erase", eve.did, "--yes")).json;
    expect(erased).toMatchObject({ entries: 1, invitations: 1 });
    await expect(toEve()).rejects.toMatchObject({ status: 403 });
    const listed = JSON.stringify((await operate("invite", "list")).json);
    expect([listed.includes(eve.did), listed.includes(fay.did)]).toEqual([false, true]);

    await waypost("did", "create", "--name", "gil", "--invitation", code);
    const made = (await operate("invite", "create")).json as { code: string };
    const { did } = (await waypost("did", "create", "--name", "gil", "--invitation", made.code))
      .json as {
      did: string;
    };
    await fay.send(did, "hello", { anonymous: true });
    expect((await waypost("did", "delete", "--as", "gil", "--yes")).code).toBe(0);
    expect(await removedBy(node)).toContain('"entries":1');
    await Promise.all([eve.close(), fay.close()]);
  } finally {
    await node.kill("SIGTERM");
  }
}, 120_000);

test("a deleted DID's mail goes also when the node is killed between the deletion and its block", async () => {
  configure("open");
  let node = await serve();
  try {
    const { did } = (await waypost("did", "create", "--name", "hal")).json as { did: string };
    const fay = await Waypost.open({ url, keys: memoryKeys() });
    await fay.send(did, "hello", { anonymous: true });
    await fay.close();
    await node.kill("SIGTERM");
    configure("open", { blockTimeMs: 3_600_000 });
    node = await serve();
    expect((await waypost("did", "delete", "--as", "hal", "--yes", "--timeout", "1s")).code).toBe(
      2,
    );
    await node.kill("SIGKILL");
    expect(node.printed()).not.toContain("was removed");
    configure("open");
    node = await serve();
    expect(await removedBy(node)).toContain('"entries":1');
  } finally {
    await node.kill("SIGTERM");
  }
}, 120_000);
