/**
 * Nodes are killed at random moments around a send, also while the push service takes its time:
 * what was accepted is pushed. `WAYPOST_TEST_KILLS=200` for many rounds.
 */
import { afterAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { freePort } from "../support/executable.ts";
import { startPushService } from "../support/push-service.ts";
import { scratchPaths } from "../support/scratch.ts";
import { times } from "../support/whole.ts";

const rounds = Number(process.env["WAYPOST_TEST_KILLS"] ?? times(4, 8));
const pathOf = scratchPaths("push-crash");
const service = await startPushService();
afterAll(() => service.stop());

const url = `http://127.0.0.1:${freePort()}`;
const keyFile = pathOf();
writeFileSync(keyFile, "5b".repeat(32), { mode: 0o600 });
const config = {
  server: { listen: [url.slice("http://".length)] },
  stores: { main: { plugin: "lmdb", path: pathOf(), block_time_ms: 50 } },
  directory: { enabled: true },
  relay: {
    enabled: true,
    public_endpoints: [url],
    allow_http: true,
    allow_private: ["127.0.0.0/8"],
  },
  cache: { enabled: true, public_endpoints: [url], signing_key_file: keyFile },
  push: { enabled: true, contact: "mailto:operator@odd.example" },
};

async function start() {
  const program = join(import.meta.dir, "push-node.ts");
  const child = Bun.spawn([process.execPath, program, JSON.stringify(config)], {
    stdout: "pipe",
    stderr: "inherit",
  });
  const { value } = await child.stdout.getReader().read();
  if (value === undefined) throw new Error("the nodes did not start");
  return child;
}

/** Nothing is due any more. */
async function untilPushed(): Promise<void> {
  for (;;) {
    const text = await fetch(`${url}/metrics`).then((answer) => answer.text());
    if (text.includes("waypost_push_due 0\n")) return;
    await Bun.sleep(50);
  }
}

test(`what was accepted is pushed, through ${rounds} kills`, async () => {
  let child = await start();
  try {
    const [alice, bob] = await Promise.all(
      [1, 2].map(() => Waypost.open({ url, keys: memoryKeys() })),
    );
    if (alice === undefined || bob === undefined) throw new Error("nobody is there");
    await alice.send(bob.did, "hello", { hint: "cache" });
    // From then on Bob's mailbox knows Alice.
    for await (const message of bob.messages()) {
      await message.ack();
      break;
    }
    const device = service.device("phone");
    const channel = new BroadcastChannel("waypost.push");
    const subscribed = bob.push(device.subscription, { data: "wake" });
    await service.atLeast(1);
    channel.postMessage(device.told());
    await subscribed;
    channel.close();
    const accepted = { count: 0, lost: 0 };
    service.answer(async () => {
      await Bun.sleep(Math.random() * 60);
      return new Response(null, { status: 201 });
    });
    for (let round = 0; round < rounds; round++) {
      const before = device.pushes().length;
      const sent = alice.send(bob.did, `message ${round}`, { hint: "cache", retries: 0 }).then(
        () => true,
        () => false,
      );
      // Some kills come when the answer is there, however busy the machine is.
      const dies =
        round % 2 === 0
          ? Bun.sleep(Math.random() * 200)
          : sent.then(() => Bun.sleep(Math.random() * 60));
      const died = dies.then(() => child.kill("SIGKILL"));
      const isAccepted = await sent;
      await died;
      await child.exited;
      child = await start();
      if (isAccepted) {
        accepted.count++;
        for (
          const end = Date.now() + 60_000;
          device.pushes().length === before && Date.now() < end;
        )
          await Bun.sleep(20);
        if (device.pushes().length === before) accepted.lost++;
      }
      await Bun.sleep(300);
      await untilPushed();
    }
    console.log(`${accepted.count} of ${rounds} were accepted`);
    expect(accepted.lost).toBe(0);
    expect(accepted.count).toBeGreaterThan(0);
    expect(new Set(device.woken())).toEqual(new Set(["wake"]));
  } finally {
    child.kill("SIGKILL");
  }
}, 600_000);
