/**
 * A node whose clock goes ahead and back, at once or between two runs: no proof that was used works
 * again, new ones are accepted, and no mail is lost. Sweeps are waited for by their looks at the
 * monotonic clock.
 */
import { afterEach, beforeEach, expect, test } from "bun:test";
import { proofHeaders } from "../../src/client/net/reader.ts";
import { dayMs, hourMs } from "../../src/core/codec/time.ts";
import {
  type Ask,
  acknowledgementOf,
  clientFrom,
  envelopeTo,
  personAt,
  registerAll,
  type StageClient,
  type StagePerson,
} from "../campaigns/stage.ts";
import { proofHeadersOf } from "../support/directory.ts";
import { freePort } from "../support/executable.ts";
import { keyPair } from "../support/identity.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { scratchPaths } from "../support/scratch.ts";

const folder = scratchPaths("moved-clock");

/** Looks at the monotonic clock of two sweeps, and more. */
const looksOfSweeps = 24;

/** The clocks of the node and of its clients. */
const clock = { aheadMs: 0, uptimeMs: 0, looks: 0 };
const realNow = Date.now;
beforeEach(() => {
  Object.assign(clock, { aheadMs: 0, uptimeMs: 0 });
  Date.now = () => realNow() + clock.aheadMs;
});
afterEach(() => {
  Date.now = realNow;
});
const uptimeMs = () => {
  clock.looks++;
  return performance.now() + clock.uptimeMs;
};

class Stage {
  private constructor(
    readonly client: StageClient,
    readonly bob: StagePerson,
    private nodes: TestNodes,
    private readonly start: () => Promise<TestNodes>,
  ) {}

  static async open(): Promise<Stage> {
    const url = `http://127.0.0.1:${freePort()}`;
    const path = folder();
    const start = () =>
      startTestNodes(
        {
          server: { listen: [url.slice("http://".length)], drain_timeout: "2s" },
          stores: { main: { plugin: "lmdb", path, block_time_ms: 50 } },
          directory: { enabled: true, rate_limit_loopback: false },
          cache: { enabled: true, public_endpoints: [url], rate_limit_loopback: false },
          relay: { enabled: false },
        },
        {},
        { uptimeMs, sweepRoundMs: 20 },
      );
    const nodes = await start();
    const client = clientFrom("127.0.0.1", url);
    const bob = await personAt(url);
    await registerAll(client, [bob]);
    return new Stage(client, bob, nodes, start);
  }

  get lines(): string[] {
    return this.nodes.lines.map(({ level, message }) => `${level} ${message}`);
  }

  /** Sets the clock so far ahead, and waits until it was swept by it. */
  async ahead(ms: number): Promise<void> {
    clock.aheadMs = ms;
    const looks = clock.looks + looksOfSweeps;
    while (clock.looks < looks) await Bun.sleep(20);
  }

  async restart(ms: number): Promise<void> {
    await this.nodes.stop();
    clock.aheadMs = ms;
    this.nodes = await this.start();
    await this.ahead(ms);
  }

  async store(id: string = crypto.randomUUID()): Promise<number> {
    const timestamp = new Date(Date.now()).toISOString();
    const envelope = envelopeTo(this.bob, { message_id: id, timestamp, ttl: "1h" });
    return (await this.client.post("/cache/store", envelope)).status;
  }

  /** A pull with a proof of its own. */
  async pull(): Promise<{ readonly ask: Ask; readonly status: number; readonly ids: string[] }> {
    const headers = await proofHeaders(this.bob.reader, "pull", "*");
    const ask = { path: `/cache/messages/${encodeURIComponent(this.bob.did)}`, headers };
    const { status, body } = await this.client.ask(ask);
    const ids = [...body.matchAll(/"message_id":"([^"]+)"/g)].map(([, id]) => id!);
    return { ask, status, ids: [...new Set(ids)] };
  }

  async end(): Promise<void> {
    this.client.close();
    await this.nodes.stop();
  }
}

test("after the clock was hours ahead, used proofs stay refused and new ones are accepted", async () => {
  const stage = await Stage.open();
  const { client, bob } = stage;
  const first = crypto.randomUUID();
  expect(await stage.store(first)).toBe(202);
  // What the holder of a request could send again: a pull, an acknowledgement, and a change that
  // another one replaced.
  const pull = await stage.pull();
  const acknowledgement = await acknowledgementOf(bob.reader, [first]);
  const root = { did: bob.did, root: keyPair(bob.identity.rootSeed), label: "bob" };
  const changeOf = (links: readonly string[]) => {
    const body = JSON.stringify({ did: bob.did, tag_policies: links });
    const operation = "set_delivery_policy_links";
    const proof = proofHeadersOf(root, { operation, body, timestamp: new Date().toISOString() });
    const headers = { "content-type": "application/json", ...proof };
    return {
      method: "PUT",
      path: `/dids/${encodeURIComponent(bob.did)}/delivery-policy-links`,
      body,
      headers,
    };
  };
  const [older, newer] = [changeOf(["old"]), changeOf(["new"])];
  expect(pull.status).toBe(200);
  expect((await client.post("/cache/ack", acknowledgement)).status).toBe(200);
  for (const change of [older, newer]) expect((await client.ask(change)).status).toBe(202);
  const again = async () => [
    (await client.ask(pull.ask)).status,
    (await client.post("/cache/ack", acknowledgement)).status,
    (await client.ask(older)).status,
  ];
  expect(await again()).toEqual([409, 409, 409]);
  const pulled: Ask[] = [];
  for (const hours of [6, 6.25, 6.5]) {
    await stage.ahead(hours * hourMs);
    const { status, ask } = await stage.pull();
    expect(status).toBe(200);
    pulled.push(ask);
  }
  expect(await again()).toEqual([401, 401, 401]);
  for (const change of [() => stage.ahead(0), () => stage.restart(0)]) {
    await change();
    expect(await again()).toEqual([409, 409, 409]);
    expect((await stage.pull()).status).toBe(200);
    const second = crypto.randomUUID();
    expect(await stage.store(second)).toBe(202);
    const proven = await acknowledgementOf(bob.reader, [second]);
    expect((await client.post("/cache/ack", proven)).status).toBe(200);
  }
  // When it is really so late, what was used ahead of that is refused.
  clock.aheadMs = 6.5 * hourMs;
  expect((await client.ask(pulled.at(-1)!)).status).toBe(409);
  await stage.end();
}, 120_000);

test("mail is hidden while the clock is days ahead, and there again when it is right", async () => {
  const stage = await Stage.open();
  const id = crypto.randomUUID();
  expect(await stage.store(id)).toBe(202);
  await stage.ahead(3 * dayMs);
  expect(stage.lines.join("\n")).toContain("error the clock went ahead: nothing");
  // A store of that time takes out what has ended, too.
  const other = crypto.randomUUID();
  expect(await stage.store(other)).toBe(202);
  expect((await stage.pull()).ids).toEqual([other]);
  // An acknowledgement of what is hidden says that it removed nothing.
  const ended = await stage.client.post(
    "/cache/ack",
    await acknowledgementOf(stage.bob.reader, [id]),
  );
  expect([ended.status, JSON.parse(ended.body)]).toEqual([200, { acked: 0, message_ids: [] }]);
  await stage.ahead(0);
  expect((await stage.pull()).ids).toEqual([id, other]);
  await stage.restart(3 * dayMs);
  expect(stage.lines.join("\n")).toContain("warn the last sweep was long ago");
  expect((await stage.pull()).ids).toEqual([other]);
  await stage.ahead(0);
  expect((await stage.pull()).ids).toEqual([id, other]);
  // A clock that stays there for an hour is right.
  await stage.ahead(3 * dayMs);
  clock.uptimeMs = hourMs;
  await stage.ahead(3 * dayMs);
  await stage.ahead(0);
  expect((await stage.pull()).ids).toEqual([other]);
  await stage.end();
}, 120_000);
