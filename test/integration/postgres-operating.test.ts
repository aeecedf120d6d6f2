/**
 * What an operator decides, over several processes on one PostgreSQL: a change at one holds at the
 * others, by the bus at once and without an announcement within ten seconds, as after a process
 * that was killed between the two; of two changes at once all processes end with the same; and
 * while the database is away nothing is half done.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { signEd25519 } from "../../src/client/keys/crypto.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { senderOf } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { checkConfig } from "../../src/config/config.ts";
import type { ConfigInput } from "../../src/config/schema.ts";
import { encodeNoticeText, type NoticeForm, renderNotice } from "../../src/core/message/notice.ts";
import { postgresPlugin } from "../../src/plugins/postgres/postgres.ts";
import { optionsOf } from "../conformance/options.ts";
import { freePort, scratchFolder } from "../support/executable.ts";
import { type NatsServer, natsAbsence, startNats } from "../support/nats.ts";
import { relayAt, startTestNodes, type TestNodes } from "../support/nodes.ts";
import { waiting } from "../support/people.ts";
import { type PostgresServer, postgresAbsence, startPostgres } from "../support/postgres.ts";
import { until } from "../support/wait.ts";

/** The tables lie on it, so that it is full before the disk of the server's log. */
const disk = mkdtempSync("/tmp/waypost-disk-");
const mount = ["mount", "-t", "tmpfs", "-o", "size=40m,mode=0777", "tmpfs", disk];
const isSmall = process.platform === "linux" && Bun.spawnSync(mount).success;
const absence = postgresAbsence() ?? natsAbsence();
if (absence !== null) console.log(`SKIPPED: ${absence}`);
const folder = scratchFolder();
/** The third hears no announcements. */
const urls = [freePort(), freePort(), freePort()].map((port) => `http://127.0.0.1:${port}`);

let server: PostgresServer;
let nats: NatsServer;
let nodes: TestNodes[] = [];
let operator: Waypost;

const storeOptions = () => ({ urls: [server.url], connections: 3, block_time_ms: 100 });
const inputOf = (n: number): ConfigInput => ({
  server: {
    listen: [(urls[n] ?? "").slice("http://".length)],
    admin_listen: [`unix:${join(folder.path, `${n}.sock`)}`],
    drain_timeout: "2s",
  },
  bus: n === 2 ? { plugin: "local" } : { plugin: "nats", servers: [nats.url] },
  stores: { main: { plugin: "postgres", ...storeOptions() } },
  directory: { enabled: true, rate_limit_loopback: false },
  relay: relayAt(urls[n] ?? ""),
  cache: { enabled: true, public_endpoints: [urls[n] ?? ""] },
  tiers: { small: { recipient_entries_max: 2 }, large: { recipient_entries_max: 5_000 } },
});

beforeAll(async () => {
  if (absence !== null) return;
  [server, nats] = await Promise.all([
    startPostgres(["fsync=on", "max_connections=40", "shared_buffers=64MB"]),
    startNats(),
  ]);
  if (isSmall) {
    const space = join(disk, "space");
    Bun.spawnSync(["install", "-d", "-m", "700", "-o", "postgres", space]);
    await server.sql(`create tablespace small location '${space}'`);
    await server.sql("alter role waypost set default_tablespace = small");
  }
  await postgresPlugin.migrate?.(optionsOf(postgresPlugin, storeOptions()));
  nodes = await Promise.all(urls.map((_, n) => startTestNodes(inputOf(n))));
  operator = await Waypost.open({ url: urls[0] ?? "", keys: memoryKeys(), waiting });
  for (const [n, one] of nodes.entries()) {
    const next = checkConfig({ ...inputOf(n), operator: { did: operator.did } });
    if (!next.ok) throw new Error(JSON.stringify(next.problems));
    await one.reload(next.config);
  }
}, 120_000);
afterAll(async () => {
  await operator?.close();
  await Promise.all(nodes.map((one) => one.stop()));
  await Promise.all([server?.end(), nats?.end()]);
  if (isSmall) Bun.spawnSync(["umount", "-l", disk]);
  rmSync(disk, { recursive: true, force: true });
  folder.remove();
});

type Answer = { readonly status: number; readonly json: Readonly<Record<string, unknown>> };

async function ask(n: number, operation: string, body?: object): Promise<Answer> {
  const post = { method: "POST", headers: { "content-type": "application/json" } };
  const sent = body === undefined ? {} : { ...post, body: JSON.stringify(body) };
  const reply = await fetch(`http://localhost/operations/${operation}`, {
    unix: join(folder.path, `${n}.sock`),
    ...sent,
  });
  return { status: reply.status, json: (await reply.json()) as Answer["json"] };
}

const block = (subject: string) => ({
  add: [{ subject, sender_only: false, reason: null }],
  remove: [],
});
const maintenance = (on: boolean) => ({ on, message: null });

async function signed(text: string, issuedAtMs = Date.now()): Promise<NoticeForm> {
  const { did, keyId: signer, seed } = await senderOf(operator.client, operator.identity);
  const unsigned = { did, text, issuedAtMs };
  const signature = await signEd25519(encodeNoticeText(unsigned), seed);
  return renderNotice({ ...unsigned, signer, signature });
}

/** What one process shows of all that an operator decides. */
async function shownAt(n: number): Promise<Readonly<Record<string, unknown>>> {
  const node = (await (await fetch(`${urls[n]}/node`)).json()) as Record<string, unknown>;
  const member = (await ask(n, "member", { member: operator.did })).json;
  const blocks = (await ask(n, "blocks")).json["blocks"] as { readonly subject: string }[];
  return {
    isClosed: node["maintenance"] !== null,
    notice: (node["notice"] as NoticeForm | null)?.text ?? null,
    tier: member["tier"],
    blocks: blocks.map(({ subject }) => subject).sort(),
  };
}

/** Until a process shows it. */
const untilShown = (n: number, wanted: object) =>
  until(async () => Bun.deepEquals(await shownAt(n), wanted));

/** Until the processes that hear announcements show the same, in which the condition holds. */
const untilAgreed = (isWanted: (shown: Readonly<Record<string, unknown>>) => boolean) =>
  until(async () => {
    const [first = {}, ...others] = await Promise.all([0, 1].map(shownAt));
    return isWanted(first) && others.every((one) => Bun.deepEquals(one, first)) ? first : null;
  });

describe.skipIf(absence !== null)("what an operator decides at one of several processes", () => {
  const decided = {
    isClosed: true,
    notice: "We move on Sunday.",
    tier: "small",
    blocks: ["203.0.113.0/24"],
  };

  test("holds at the others, announced or not, and stands in one audit", async () => {
    await ask(0, "blocks", block("203.0.113.0/24"));
    await ask(0, "tier", { member: operator.did, tier: "small" });
    await ask(0, "notice", { notice: await signed("We move on Sunday.") });
    await ask(0, "maintenance", maintenance(true));
    expect(await shownAt(0)).toEqual(decided);
    await untilShown(1, decided);
    await untilShown(2, decided);
    const { json } = await ask(2, "audit", { user: null, action: null, about: null, limit: 100 });
    const records = json["records"] as { readonly action: string }[];
    expect(records.map(({ action }) => action)).toEqual(
      expect.arrayContaining([
        "blocks.change",
        "members.tier",
        "notices.publish",
        "node.maintenance",
      ]),
    );
    const refused = await fetch(`${urls[2]}/relay`, { method: "POST", body: "{}" });
    expect([refused.status, (await refused.json()) as object]).toEqual([
      503,
      expect.objectContaining({ code: "maintenance" }),
    ]);
    await ask(2, "maintenance", maintenance(false));
    await untilShown(2, { ...decided, isClosed: false });
  }, 60_000);

  test("is the same everywhere after two changes at once, and no other change is undone", async () => {
    for (let round = 0; round < 5; round++) {
      const [one, other] = [`198.51.100.${2 * round}`, `198.51.100.${2 * round + 1}`];
      await Promise.all([
        ask(0, "blocks", block(one)),
        ask(1, "blocks", block(other)),
        ask(0, "maintenance", maintenance(true)),
        ask(1, "maintenance", maintenance(false)),
        ask(0, "tier", { member: operator.did, tier: "small" }),
        ask(1, "tier", { member: operator.did, tier: "large" }),
      ]);
    }
    await ask(1, "maintenance", maintenance(false));
    const agreed = await untilAgreed(({ isClosed }) => isClosed === false);
    expect(agreed["blocks"]).toHaveLength(11);
    expect(["small", "large"]).toContain(agreed["tier"] as string);
  }, 60_000);

  test("of notices is the one that was signed last, however they meet, and a removal undoes no other", async () => {
    const beganMs = Date.now();
    for (let round = 0; round < 8; round++) {
      const [older, newer] = await Promise.all(
        [1, 2].map((n) => signed(`${round} ${n}`, beganMs + 10 * round + n)),
      );
      await Promise.all([ask(1, "notice", { notice: newer }), ask(0, "notice", { notice: older })]);
      expect((await shownAt(0))["notice"]).toBe(`${round} 2`);
      const next = await signed(`${round} next`, beganMs + 10 * round + 3);
      await Promise.all([ask(0, "notice", { notice: null }), ask(1, "notice", { notice: next })]);
      const [removed, again] = await Promise.all([
        ask(0, "notice", { notice: older }),
        ask(1, "notice", { notice: newer }),
      ]);
      expect([removed.status, again.status]).toEqual([400, 400]);
    }
    const last = await signed("last", beganMs + 1_000);
    await ask(1, "notice", { notice: last });
    await untilAgreed(({ notice }) => notice === "last");
    await ask(0, "notice", { notice: null });
    await untilAgreed(({ notice }) => notice === null);
    expect((await ask(2, "notice", { notice: last })).status).toBe(400);
  }, 90_000);

  test("is refused with a code while the database is away, holds as before, and nothing is half done", async () => {
    const before = await untilAgreed(() => true);
    const notice = await signed("away");
    await server.stop("immediate");
    const asked = await Promise.all([
      ask(0, "blocks", block("192.0.2.0/24")),
      ask(0, "tier", { member: operator.did, tier: null }),
      ask(1, "notice", { notice }),
      ask(1, "maintenance", maintenance(true)),
    ]);
    const codes = asked.map(({ status, json }) => [status, json["code"]]);
    expect(codes).toEqual(asked.map(() => [503, "service_unavailable"]));
    const node = (await (await fetch(`${urls[0]}/node`)).json()) as Record<string, unknown>;
    expect(node["maintenance"]).toBeNull();
    await server.start();
    await until(async () => (await ask(0, "maintenance", maintenance(false))).status === 200);
    expect(await untilAgreed(() => true)).toEqual(before);
  }, 90_000);

  test.skipIf(!isSmall)(
    "is refused as storage_full on a disk without room, and nothing is half done",
    async () => {
      const before = await shownAt(0);
      const ballast = join(disk, "ballast");
      expect(() => writeFileSync(ballast, new Uint8Array(128 * 2 ** 20))).toThrow();
      const answers: Answer[] = [];
      const added: string[] = [];
      // Pages that are begun take a few more.
      for (let n = 0; answers.at(-1)?.status !== 507; n++) {
        const subject = `2001:db8:${(n + 1).toString(16)}::/64`;
        const add = [{ subject, sender_only: false, reason: "x".repeat(200) }];
        answers.push(await ask(0, "blocks", { add, remove: [] }));
        if (answers.at(-1)?.status === 200) added.push(subject);
      }
      expect(answers.at(-1)?.json["code"]).toBe("storage_full");
      const notice = await ask(1, "notice", { notice: await signed("full", Date.now() + 60_000) });
      const closed = await ask(1, "maintenance", maintenance(true));
      for (const { status, json } of [notice, closed])
        expect([status, json["code"]]).toEqual(
          status === 200 ? [200, undefined] : [507, "storage_full"],
        );
      rmSync(ballast);
      await until(async () => (await ask(0, "maintenance", maintenance(false))).status === 200);
      expect(await untilAgreed(({ isClosed }) => isClosed === false)).toEqual({
        ...before,
        isClosed: false,
        notice: notice.status === 200 ? "full" : before["notice"],
        blocks: [...(before["blocks"] as string[]), ...added].sort(),
      });
    },
    90_000,
  );
});
