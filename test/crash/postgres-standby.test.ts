/**
 * A primary and its standby: one that waits for none is noticed, and an old primary is left on the
 * word of another node.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { natsOptions, openNatsBus } from "../../src/plugins/bus/nats.ts";
import { postgresPlugin } from "../../src/plugins/postgres/postgres.ts";
import type { Bus } from "../../src/storage/bus.ts";
import { StoreError } from "../../src/storage/contract.ts";
import { optionsOf } from "../conformance/options.ts";
import { alice, entry, failureOf, pageOf, quota } from "../conformance/samples.ts";
import { freePort } from "../support/executable.ts";
import { type NatsServer, natsAbsence, startNats } from "../support/nats.ts";
import { startTestNodes } from "../support/nodes.ts";
import { postgresAbsence, startPostgres } from "../support/postgres.ts";
import { PostgresPair } from "../support/postgres-pair.ts";

const absence = postgresAbsence() ?? natsAbsence();
if (absence !== null) console.log(`SKIPPED: ${absence}`);
const settings = ["fsync=on", "max_connections=60", "shared_buffers=64MB"];

let pair: PostgresPair;
let nats: NatsServer;
beforeAll(async () => {
  if (absence !== null) return;
  [pair, nats] = await Promise.all([PostgresPair.start(settings), startNats()]);
}, 120_000);
afterAll(async () => {
  await Promise.all([pair?.end(), nats?.end()]);
});

async function until(condition: () => Promise<boolean>): Promise<void> {
  const endMs = performance.now() + 60_000;
  while (!(await condition())) {
    if (performance.now() > endMs) throw new Error("it does not come");
    await Bun.sleep(50);
  }
}

test.skipIf(absence !== null)(
  "a primary that waits for no standby is warned of and shown, and takes no writes of a node that requires one",
  async () => {
    const main = { urls: pair.urls, connections: 4, block_time_ms: 200 };
    await postgresPlugin.migrate?.(optionsOf(postgresPlugin, main));
    const start = (standby: "wanted" | "required") =>
      startTestNodes({ stores: { main: { plugin: "postgres", ...main, standby } } });
    const [careless, careful] = [await start("wanted"), await start("required")];
    const [first, second] = [careless, careful].map(
      (nodes) => nodes.stores.stores.get("main")!.capabilities,
    );
    const storeAt = async (at: typeof first, n: number) =>
      (await at!.mailbox!.store(entry(n, { recipient: alice }), quota())).kind;
    const standbys = async () => {
      const text = await (await fetch(`${careless.url}/metrics`)).text();
      return /^waypost_store_standbys\{store="main",database="home"\} (.+)$/m.exec(text)?.[1];
    };
    const warnings = () =>
      careless.lines.filter(({ message }) => message.includes("waits for no standby")).length;
    expect([await storeAt(first, 1), await storeAt(second, 2), warnings()]).toEqual([
      "stored",
      "stored",
      0,
    ]);
    expect(await standbys()).toBe("1");
    await pair.waitFor("");
    await until(async () => (await standbys()) === "0");
    expect(warnings()).toBe(1);
    expect(await storeAt(first, 3)).toBe("stored");
    expect(String(await failureOf(() => storeAt(second, 4)))).toContain("waits for no standby");
    const claim = second!.replay!.claim("tag", Date.now() + 1_000, Date.now());
    expect(await failureOf(() => claim)).toBeInstanceOf(StoreError);
    expect(await failureOf(() => second!.mailbox!.list(alice, pageOf()))).toBeNull();
    await pair.waitFor("*");
    await until(async () => (await failureOf(() => storeAt(second, 5))) === null);
    await until(async () => (await standbys()) === "1");
    await Promise.all([careless.stop(), careful.stop()]);
  },
  120_000,
);

test.skipIf(absence !== null)(
  "a node that reaches only the old primary leaves it when another node says over the bus that there is a newer one",
  async () => {
    const primary = await startPostgres(settings);
    const options = { urls: [primary.url], connections: 2, block_time_ms: 3_600_000 };
    await postgresPlugin.migrate?.(optionsOf(postgresPlugin, options));
    const standby = await primary.standby();
    const buses: Bus[] = [];
    const openAt = async (url: string) => {
      const log = () => {};
      const bus = await openNatsBus(natsOptions.parse({ servers: [nats.url] }), { log });
      buses.push(bus);
      // The other server is on the far side of the split.
      const urls = [url, `postgres://waypost@127.0.0.1:${freePort()}/postgres`];
      const given = optionsOf(postgresPlugin, { ...options, urls });
      const environment = { now: Date.now, log, fatal: () => {}, bus };
      const store = await postgresPlugin.open(given as never, environment);
      return { store, mailbox: store.capabilities.mailbox! };
    };
    try {
      const old = await openAt(primary.url);
      expect((await old.mailbox.store(entry(1), quota())).kind).toBe("stored");
      await standby.promote();
      const news = await openAt(standby.url);
      await news.mailbox.store(entry(2), quota());
      // It did not see the promotion itself.
      let n = 3;
      await until(async () => {
        const failure = await failureOf(() => old.mailbox.store(entry(n++), quota()));
        await news.mailbox.stats(0);
        return failure instanceof StoreError && failure.message.includes("unreachable");
      });
      const page = old.mailbox.list(entry(1).recipient, pageOf());
      expect(await failureOf(() => page)).toBeInstanceOf(StoreError);
      await Promise.all([old.store.close(), news.store.close()]);
    } finally {
      await Promise.all(buses.map((bus) => bus.close()));
      await Promise.all([primary.end(), standby.end()]);
    }
  },
  120_000,
);
