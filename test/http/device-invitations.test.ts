/**
 * Own devices where the Directory registers who is invited: the member's key makes an invitation
 * for one of them, over the wire, the SDK and the commands, and no more than a stated bound lets
 * in.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { Waypost } from "../../src/client/waypost.ts";
import type { ConfigInput } from "../../src/config/schema.ts";
import { dayMs, hourMs, minuteMs, renderTimestamp } from "../../src/core/codec/time.ts";
import { isFault } from "../../src/core/fault.ts";
import {
  proofHeadersOf,
  registerBodyOf,
  type TestDirectory,
  testDirectory,
} from "../support/directory.ts";
import { executable, freePort, scratchFolder } from "../support/executable.ts";
import { type Identity, identityOf } from "../support/identity.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { waiting } from "../support/people.ts";
import { shows, until } from "./own-devices.ts";

const main = await executable();
let count = 0;
const newcomer = (): Identity => identityOf(`device ${count++}`);

describe("the route", () => {
  let stage: TestDirectory;
  beforeAll(async () => {
    stage = await testDirectory({ options: { registration: "invite" } });
  });
  afterAll(() => stage.close());

  // The refusals that every signed route has are in directory/devices.scenarios.ts.
  const ask = async (who: Identity) => {
    const path = `/dids/${encodeURIComponent(who.did)}/device-invitations`;
    const asked = { did: who.did };
    const timestamp = renderTimestamp(stage.nowMs());
    const claims = { operation: "invite_device", body: JSON.stringify(asked), timestamp };
    const proof = proofHeadersOf(who, claims);
    const { status, body, headers } = await stage.ask("POST", path, asked, proof);
    const code = String(body["invitation"]);
    return { status, code, outcome: `${status} ${body["code"]}`, body, headers };
  };
  const register = async (who: Identity, code: string) => {
    const body = registerBodyOf(who, stage.nowMs());
    const reply = await stage.ask("POST", "/register-did", body, { "svc-invitation": code });
    if (reply.status === 202) await stage.settle(reply);
    return `${reply.status} ${reply.body["code"] ?? ""}`.trim();
  };
  const member = async (): Promise<Identity> => {
    const made = await stage.invitations.create({ uses: 1, lifeMs: hourMs, note: null });
    if (isFault(made)) throw new Error(made.detail);
    const who = newcomer();
    expect(await register(who, made.code)).toBe("202");
    return who;
  };

  test("end with the Directory's clock that was ahead when they were made, codes and places", async () => {
    const alice = await member();
    stage.advance(30 * dayMs);
    const codes: string[] = [];
    for (let made = 0; made < 8; made++) codes.push((await ask(alice)).code);
    expect((await ask(alice)).outcome).toBe("429 rate_limited");
    stage.advance(-30 * dayMs);
    expect(await register(newcomer(), codes[0] ?? "")).toBe("403 invitation_invalid");
    const now = await ask(alice);
    expect(now.status).toBe(201);
    expect(await register(newcomer(), now.code)).toBe("202");
  });

  test("gives a member a code for one device, which ends after 15 minutes and says whose it is", async () => {
    const alice = await member();
    const { status, code, body } = await ask(alice);
    expect([status, body["expires_at"]]).toEqual([
      201,
      renderTimestamp(stage.nowMs() + 15 * minuteMs),
    ]);
    const phone = newcomer();
    expect(await register(phone, code)).toBe("202");
    expect(await register(newcomer(), code)).toBe("403 invitation_invalid");
    const listed = (await stage.invitations.list()).find(({ deviceOf }) => deviceOf === alice.did);
    expect(listed?.uses.map(({ did }) => did)).toEqual([phone.did]);
    const late = await ask(alice);
    stage.advance(15 * minuteMs);
    expect(await register(newcomer(), late.code)).toBe("403 invitation_invalid");
  });

  test("refuses who is blocked, also as a sender alone", async () => {
    for (const kind of ["did", "sender"] as const) {
      const alice = await member();
      const add = [{ subject: alice.did, kind, reason: null }];
      await stage.blocks.change({ add, remove: [] });
      expect((await ask(alice)).outcome).toBe("403 policy_denied");
    }
  });

  test("gives eight in a day to each member, whether they are used or not, and says when there is one again", async () => {
    const [alice, bob] = [await member(), await member()];
    const many = await Promise.all(Array.from({ length: 12 }, () => ask(alice)));
    expect(many.filter(({ status }) => status === 201)).toHaveLength(8);
    expect(many.filter(({ outcome }) => outcome === "429 rate_limited")).toHaveLength(4);
    stage.advance(hourMs);
    expect((await ask(alice)).headers.get("retry-after")).toBe(`${23 * 3_600}`);
    expect((await ask(bob)).status).toBe(201);
    stage.advance(23 * hourMs);
    expect((await ask(alice)).status).toBe(201);
  });

  test("gives none to a DID that was invited as a device, so that they don't multiply", async () => {
    const { code } = await ask(await member());
    const device = newcomer();
    expect(await register(device, code)).toBe("202");
    expect((await ask(device)).outcome).toBe("403 policy_denied");
  });

  test("leaves nothing of an erased member, whose open codes are revoked", async () => {
    const alice = await member();
    const { code } = await ask(alice);
    await stage.invitations.erase(alice.did);
    expect(JSON.stringify(await stage.invitations.list())).not.toContain(alice.did);
    expect(await register(newcomer(), code)).toBe("403 invitation_invalid");
  });
});

describe("over the SDK and the commands", () => {
  const folder = scratchFolder();
  const url = `http://127.0.0.1:${freePort()}`;
  const socket = join(folder.path, "admin.sock");
  const input: ConfigInput = {
    server: {
      listen: [url.slice("http://".length)],
      admin_listen: [`unix:${socket}`],
      drain_timeout: "2s",
    },
    directory: { enabled: true, registration: "invite", rate_limit_loopback: false },
    relay: { enabled: true, public_endpoints: [url], allow_http: true, rate_limit_loopback: false },
    cache: { enabled: true, public_endpoints: [url] },
  };
  let nodes: TestNodes;
  const opened: Waypost[] = [];
  const keep = async (opening: Promise<Waypost>): Promise<Waypost> => {
    const me = await opening;
    opened.push(me);
    return me;
  };
  beforeAll(async () => {
    nodes = await startTestNodes(input);
  });
  afterAll(async () => {
    await Promise.all(opened.map((me) => me.close()));
    await nodes.stop();
    folder.remove();
  });

  type Listed = {
    readonly note: string | null;
    readonly uses: readonly { readonly did: string }[];
  };
  const invitations = async (): Promise<readonly Listed[]> => {
    const asked = { unix: socket };
    const answer = await fetch("http://localhost/operations/invitations", asked);
    return ((await answer.json()) as { invitations: Listed[] }).invitations;
  };
  const invite = async (uses: number): Promise<string> => {
    const headers = { "content-type": "application/json" };
    const body = JSON.stringify({ uses, life_seconds: 600, note: "people" });
    const asked = { method: "POST", headers, body, unix: socket };
    const answer = await fetch("http://localhost/operations/invitations", asked);
    return ((await answer.json()) as { code: string }).code;
  };
  const place = () => ({ url, keys: memoryKeys(), store: memoryStore(), waiting });

  test("a member links two devices, and the operator's code is used for people alone", async () => {
    const code = await invite(2);
    const first = await keep(Waypost.open({ ...place(), invitation: code }));
    const friend = await keep(Waypost.open({ ...place(), invitation: code }));
    await expect(Waypost.link(place())).rejects.toMatchObject({ code: "invitation_required" });
    const linked: Waypost[] = [];
    for (const name of ["laptop", "tablet"]) {
      const made = await first.devices.invitation();
      // A program hands on the code; an app its link.
      const invitation =
        name === "laptop" ? made?.code : `https://chat.example/#link=${made?.code}`;
      const linking = await Waypost.link({ ...place(), invitation: String(invitation) });
      await first.devices.acceptLink(linking.code, name);
      linked.push(await keep(linking.opened));
    }
    await friend.send(first.did, "to all three");
    for (const device of [first, ...linked]) await shows(device, friend.did, ["to all three"]);
    const listed = await invitations();
    expect(listed.find(({ note }) => note === "people")?.uses).toHaveLength(2);
    const own = listed.filter(({ note }) => note === `device of ${first.did}`);
    expect(own.map(({ uses }) => uses.length)).toEqual([1, 1, 1]);
    expect(
      await until(
        () => first.devices.list(),
        ({ length }) => length === 3,
      ),
    ).toHaveLength(3);
  }, 120_000);

  test("the commands link a device by an invitation that the first one makes", async () => {
    const start = (keys: string, ...words: string[]) => {
      const args = [...words, "--url", url, "--keys", join(folder.path, keys), "--json"];
      return Bun.spawn([main, ...args], { stdout: "pipe", stderr: "pipe" });
    };
    const waypost = async (keys: string, ...words: string[]) => {
      const child = start(keys, ...words);
      const [text, problem] = await Promise.all([
        new Response(child.stdout).text(),
        new Response(child.stderr).text(),
      ]);
      return JSON.parse((text || problem).trim().split("\n").at(-1) ?? "");
    };
    const { did } = await waypost(
      "one",
      ...["did", "create", "--name", "default", "--invitation", await invite(1)],
    );
    expect((await waypost("two", "device", "link"))["code"]).toBe("invitation_required");
    const { code: invitation } = await waypost("one", "device", "invite");
    const linking = start("two", "device", "link", "--invitation", String(invitation));
    const lines = linking.stdout.pipeThrough(new TextDecoderStream()).getReader();
    const { code } = JSON.parse((await lines.read()).value ?? "");
    expect(await waypost("one", "device", "accept", String(code))).toMatchObject({ ok: true, did });
    expect(await linking.exited).toBe(0);
  }, 60_000);
});
