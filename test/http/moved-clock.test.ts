/**
 * A node whose clock goes days ahead, so that it forgets the proofs that ended until then, and back: no proof that was
 * used works again, neither at once nor after a restart. Sweeps are waited for by what they make room for.
 */
import { expect, test } from "bun:test";
import { proofHeaders } from "../../src/client/net/caches.ts";
import { dayMs } from "../../src/core/codec/time.ts";
import {
  acknowledgementOf,
  clientFrom,
  envelopeTo,
  personAt,
  registerAll,
} from "../campaigns/stage.ts";
import { proofHeadersOf } from "../support/directory.ts";
import { freePort } from "../support/executable.ts";
import { keyPair } from "../support/identity.ts";
import { startTestNodes } from "../support/nodes.ts";
import { scratchPaths } from "../support/scratch.ts";

const folder = scratchPaths("moved-clock");

test("used proofs stay refused after the clock went ahead and back", async () => {
  let aheadMs = 0;
  const now = () => Date.now() + aheadMs;
  const url = `http://127.0.0.1:${freePort()}`;
  const start = async (path = folder()) => {
    // Few message ids: when all are known, another is taken only after a sweep has forgotten some.
    const main = { plugin: "lmdb", path, block_time_ms: 50, message_ids_max: 8 };
    const nodes = await startTestNodes(
      {
        server: { listen: [url.slice("http://".length)], drain_timeout: "2s" },
        stores: { main },
        directory: { enabled: true, rate_limit_loopback: false },
        cache: { enabled: true, public_endpoints: [url], rate_limit_loopback: false },
        relay: { enabled: false },
      },
      {},
      { now },
    );
    return { path, nodes };
  };
  const { path, nodes } = await start();
  const client = clientFrom("127.0.0.1", url);
  const bob = await personAt(url);
  await registerAll(client, [bob]);

  const envelope = (id: string) =>
    envelopeTo(bob, { message_id: id, timestamp: new Date(now()).toISOString(), ttl: "1h" });
  const store = async (id: string = crypto.randomUUID()) =>
    (await client.post("/cache/store", envelope(id))).status;
  const first = crypto.randomUUID();
  expect(await store(first)).toBe(202);

  // What the holder of a request could send again: a pull, an acknowledgement, and a change that another one replaced.
  const pull = await proofHeaders(bob.reader, "pull", "*");
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
  const send = async () => [
    (await client.ask({ path: `/cache/messages/${encodeURIComponent(bob.did)}`, headers: pull }))
      .status,
    (await client.post("/cache/ack", acknowledgement)).status,
    (await client.ask(older)).status,
  ];
  expect(await send()).toEqual([200, 200, 202]);
  await client.ask(newer);
  expect(await send()).toEqual([409, 409, 409]);

  // Two sweeps of the mailbox: between them, the one of the proofs.
  for (let round = 1; round <= 2; round++) {
    while ((await store()) === 202);
    aheadMs = round * 2 * dayMs;
    while ((await store()) !== 202) await Bun.sleep(20);
  }
  expect(await send()).toEqual([401, 401, 401]);
  aheadMs = 0;
  expect(await send()).toEqual([409, 409, 409]);
  await nodes.stop();
  const again = await start(path);
  expect(await send()).toEqual([409, 409, 409]);
  await again.nodes.stop();
  client.close();
}, 120_000);
