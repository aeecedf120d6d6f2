/**
 * What the SDK says when something is wrong outside of a message: the clock, the address of a node,
 * a full mailbox, and arguments that no call takes.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileKeys } from "../../src/cli/files/files.ts";
import { ClientError } from "../../src/client/base/failure.ts";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { type KeyStore, memoryKeys } from "../../src/client/keys/key-stores.ts";
import type { Content } from "../../src/client/mail/content.ts";
import type { Listener } from "../../src/client/mail/message.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { clientCode } from "../support/client-code.ts";
import { freePort } from "../support/executable.ts";
import { relayAt, startTestNodes, type TestNodes } from "../support/nodes.ts";

const scratch = mkdtempSync(join(tmpdir(), "waypost-refusals-"));
let nodes: TestNodes;
beforeAll(async () => {
  nodes = await startTestNodes();
});
afterAll(async () => {
  await nodes.stop();
  rmSync(scratch, { recursive: true, force: true });
});

const waiting = { timeoutMs: 60_000, intervalMs: 20 };
const open = (options: Partial<WaypostOptions> = {}) =>
  Waypost.open({ url: nodes.url, keys: memoryKeys(), waiting, ...options });

describe("a wrong clock", () => {
  for (const [minutes, direction] of [
    [-10, "behind"],
    [10, "ahead of"],
  ] as const) {
    test(`that is 10 minutes ${direction} the nodes' stops no message, and is named`, async () => {
      const folder = join(scratch, `clock${minutes}`);
      const [alice, bob] = await Promise.all([open(), open({ keys: fileKeys(folder) })]);
      const program = join(import.meta.dir, "wrong-clock.ts");
      const words = [process.execPath, program, nodes.url, folder, String(minutes)];
      const child = Bun.spawn(words, { stdout: "pipe", stderr: "inherit" });
      const lines: string[] = [];
      const reading = (async () => {
        const decoder = new TextDecoder();
        for await (const chunk of child.stdout) {
          const text = decoder.decode(chunk);
          lines.push(...text.split("\n").filter((line) => line !== ""));
          if (text.includes("connected")) await alice.send(bob.did, "hello");
        }
      })();
      let answer: string | null = null;
      for await (const message of alice.messages()) {
        answer = message.text;
        expect(Math.abs(message.sentAt.getTime() - Date.now())).toBeLessThan(60_000);
        await message.ack();
        break;
      }
      await reading;
      await child.exited;
      expect(answer).toBe("got hello");
      const { seen, refused } = JSON.parse(lines.at(-1) ?? "{}") as {
        seen: string[];
        refused: string[];
      };
      const problem = `the clock of this machine is 10 min ${direction} that of ${nodes.url}`;
      expect(seen).toEqual([problem]);
      // The Directory accepts an hour ahead.
      expect(refused).toEqual(minutes < 0 ? ["clock_wrong", problem] : ["opened"]);
    }, 60_000);
  }
});

test("a node that calls itself otherwise says how", async () => {
  const error = await open({ url: nodes.url.replace("127.0.0.1", "localhost") }).catch(
    (cause: unknown) => cause,
  );
  expect(error instanceof ClientError && error.code).toBe("invalid_url");
  expect(String(error)).toContain(`calls itself ${nodes.url}`);
});

test("a full mailbox is told as one", async () => {
  const url = `http://127.0.0.1:${freePort()}`;
  const small = await startTestNodes({
    server: { listen: [url.slice("http://".length)], drain_timeout: "2s" },
    relay: relayAt(url),
    cache: {
      enabled: true,
      public_endpoints: [url],
      recipient_entries_max: 1,
      stranger_share: 100,
    },
  });
  try {
    const [alice, bob] = await Promise.all([open({ url: small.url }), open({ url: small.url })]);
    const codes: string[] = [];
    for (let i = 0; i < 3; i++)
      codes.push(await clientCode(() => alice.send(bob.did, "hello", { retries: 0 })));
    expect(codes.at(-1)).toBe("mailbox_full");
  } finally {
    await small.stop();
  }
});

test("what no call takes is refused before anything is sent, and always as a ClientError", async () => {
  const me = await open();
  const circle: { self?: unknown } = {};
  circle.self = circle;
  for (const content of [undefined, () => 1, circle, 1n])
    expect(await clientCode(() => me.send(me.did, content as Content))).toBe("invalid_argument");
  for (const to of [undefined, 5, {}])
    expect(await clientCode(() => me.send(to as string, "hello"))).toBe("invalid_argument");
  for (const ttl of [{ toString: 1 }, 5, "never"])
    expect(await clientCode(() => me.send(me.did, "hello", { ttl: ttl as string }))).toBe(
      "invalid_argument",
    );
  expect(await clientCode(async () => me.on("listener" as never as Listener))).toBe(
    "invalid_argument",
  );
  for (const keys of [undefined, { load: async () => null }])
    expect(await clientCode(() => open({ keys: keys as never as KeyStore }))).toBe(
      "invalid_argument",
    );
});

test("a machine that slept while an answer was under way sends again at once", async () => {
  const program = join(import.meta.dir, "slept-clock.ts");
  const child = Bun.spawn([process.execPath, program, nodes.url], { stdout: "pipe" });
  expect(await new Response(child.stdout).text()).toBe("sent\n");
}, 60_000);
