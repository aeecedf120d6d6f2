/**
 * The conformance kit of the bus: the laws of `storage/bus.ts` as cases that run over any driver. A
 * target opens two ends of one bus; a bus within one process gives the same one twice.
 */
import { describe, expect, test } from "bun:test";
import type { Bus, BusEnvironment } from "../../src/storage/bus.ts";
import { pause, until } from "../support/wait.ts";

export type BusTarget = {
  readonly name: string;
  /** Two ends that share subjects and nothing else. */
  readonly open: (environment: BusEnvironment) => Promise<readonly [Bus, Bus]>;
};

export type BusEnds = { readonly here: Bus; readonly there: Bus; readonly logged: string[] };
export type BusCase = { readonly name: string; readonly run: (ends: BusEnds) => Promise<void> };

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const text = (message: Uint8Array): string => new TextDecoder().decode(message);

/** Waits until a message has had time to go through the whole bus. */
async function settle({ here, there }: BusEnds): Promise<void> {
  for (const [from, to] of [
    [here, there],
    [there, here],
  ] as const) {
    const { promise, resolve } = Promise.withResolvers<void>();
    const round = to.subscribe("kit/settle", () => {
      resolve();
      return undefined;
    });
    await round.ready;
    from.publish("kit/settle", bytes(""));
    await promise;
    round.unsubscribe();
  }
}

async function collect(bus: Bus, subject: string): Promise<string[]> {
  const seen: string[] = [];
  await bus.subscribe(subject, (message) => {
    seen.push(text(message));
    return undefined;
  }).ready;
  return seen;
}

export const busCases: readonly BusCase[] = [
  {
    name: "a message reaches every subscription of its subject once, and no other",
    async run(ends) {
      const seen = await Promise.all([
        collect(ends.here, "a:1"),
        collect(ends.there, "a:1"),
        collect(ends.there, "a:1"),
        collect(ends.there, "a:2"),
        collect(ends.there, "a"),
      ]);
      ends.here.publish("a:1", bytes("x"));
      ends.there.publish("a:1", bytes("y"));
      await settle(ends);
      expect(seen.map((one) => one.sort())).toEqual([["x", "y"], ["x", "y"], ["x", "y"], [], []]);
    },
  },
  {
    name: "subjects are plain texts: dots, stars, spaces in no form and upper case mean nothing",
    async run(ends) {
      const subjects = [
        "a.b",
        "a.*",
        "a.>",
        ">",
        "*",
        "A.B",
        "a%2eb",
        "did:svc:x.y~2",
        "$SYS",
        "x".repeat(512),
      ];
      const seen = await Promise.all(subjects.map((subject) => collect(ends.there, subject)));
      for (const subject of subjects) ends.here.publish(subject, bytes(subject));
      await settle(ends);
      expect(seen).toEqual(subjects.map((subject) => [subject]));
    },
  },
  {
    name: "a subject that is not a short visible text is refused",
    async run({ here }) {
      for (const subject of ["", "a b", "a\n", "ä", "\u0000", "x".repeat(513)]) {
        expect(() => here.publish(subject, bytes(""))).toThrow(RangeError);
        expect(() => here.subscribe(subject, () => undefined)).toThrow(RangeError);
        expect(() => here.request(subject, bytes(""), 1)).toThrow(RangeError);
      }
    },
  },
  {
    name: "messages of one publisher arrive in their order with their exact bytes",
    async run(ends) {
      const seen: Uint8Array[] = [];
      await ends.there.subscribe("order", (message) => {
        seen.push(message);
        return undefined;
      }).ready;
      const sent = Array.from({ length: 200 }, (_, n) =>
        Uint8Array.from({ length: n * 7 }, (_, i) => (i * n) & 0xff),
      );
      for (const message of sent) ends.here.publish("order", message);
      await settle(ends);
      expect(seen.length).toBe(200);
      for (const [n, message] of seen.entries()) expect(Bun.hash(message)).toBe(Bun.hash(sent[n]!));
    },
  },
  {
    name: "bytes are not shared with the publisher or among handlers",
    async run(ends) {
      const seen: string[] = [];
      for (const bus of [ends.here, ends.here, ends.there]) {
        await bus.subscribe("own", (message) => {
          seen.push(text(message));
          message.fill(0);
          return undefined;
        }).ready;
      }
      const message = bytes("mine");
      ends.here.publish("own", message);
      message.fill(1);
      await settle(ends);
      expect(seen).toEqual(["mine", "mine", "mine"]);
    },
  },
  {
    name: "a request is answered by a handler, and the answers of others are ignored",
    async run({ here, there }) {
      await there.subscribe("ask", async (message) => bytes(`${text(message)}!`)).ready;
      expect(text((await here.request("ask", bytes("q"), 5_000)) as Uint8Array)).toBe("q!");
      expect(text((await there.request("ask", bytes("r"), 5_000)) as Uint8Array)).toBe("r!");
      await here.subscribe("ask", async () => undefined).ready;
      expect(text((await here.request("ask", bytes("s"), 5_000)) as Uint8Array)).toBe("s!");
    },
  },
  {
    name: "an empty answer is an answer",
    async run({ here, there }) {
      await there.subscribe("empty", () => new Uint8Array(0)).ready;
      expect(await here.request("empty", bytes("q"), 5_000)).toEqual(new Uint8Array(0));
    },
  },
  {
    name: "nobody is the answer at once when the subject has no subscription",
    async run({ here, there }) {
      const begunMs = performance.now();
      expect(await here.request("void", bytes("q"), 20_000)).toBe("unanswered");
      const subscription = there.subscribe("void", () => bytes("a"));
      await subscription.ready;
      expect(await here.request("void", bytes("q"), 20_000)).not.toBe("unanswered");
      subscription.unsubscribe();
      subscription.unsubscribe();
      await until(async () => (await here.request("void", bytes("q"), 20_000)) === "unanswered");
      expect(performance.now() - begunMs).toBeLessThan(10_000);
    },
  },
  {
    name: "a handler that never answers is nobody after the timeout",
    async run({ here, there }) {
      await there.subscribe("slow", () => new Promise(() => {})).ready;
      expect(await here.request("slow", bytes("q"), 80)).toBe("unanswered");
    },
  },
  {
    name: "a request that all have handled without an answer is nobody then, and not before",
    async run({ here, there }) {
      const handled: string[] = [];
      for (const [name, bus] of Object.entries({ here, there }))
        await bus.subscribe("done", async () => {
          await Bun.sleep(name === "there" ? 150 : 0);
          handled.push(name);
          return undefined;
        }).ready;
      const begunMs = performance.now();
      expect(await here.request("done", bytes("q"), 20_000)).toBe("unanswered");
      expect(handled).toEqual(["here", "there"]);
      expect(performance.now() - begunMs).toBeLessThan(10_000);
    },
  },
  {
    name: "an end knows whether anybody has subscribed",
    async run({ here, there }) {
      expect(here.mayReach("known")).toBe(false);
      const subscriptions = [here, there].map((bus) => bus.subscribe("known", () => undefined));
      for (const { ready } of subscriptions) await ready;
      expect([here.mayReach("known"), there.mayReach("known")]).toEqual([true, true]);
      for (const { unsubscribe } of subscriptions) unsubscribe();
      for (let tried = 0; tried < 200 && here.mayReach("known"); tried++) await Bun.sleep(10);
      expect(here.mayReach("known")).toBe(false);
    },
  },
  {
    name: "a handler that throws or rejects is logged and disturbs nobody",
    async run(ends) {
      await ends.there.subscribe("bad", () => {
        throw new Error("thrown in the handler");
      }).ready;
      await ends.there.subscribe("bad", async () => {
        throw new Error("rejected by the handler");
      }).ready;
      const seen = await collect(ends.there, "bad");
      ends.here.publish("bad", bytes("1"));
      ends.here.publish("bad", bytes("2"));
      await settle(ends);
      expect(seen).toEqual(["1", "2"]);
      expect(await ends.here.request("bad", bytes("3"), 100)).toBe("unanswered");
      expect(ends.logged.length).toBeGreaterThanOrEqual(4);
    },
  },
  {
    name: "a handler that waits holds up no later message of its subject",
    async run(ends) {
      const first = Promise.withResolvers<Uint8Array>();
      await ends.there.subscribe("wait", (message) =>
        text(message) === "1" ? first.promise : bytes("second"),
      ).ready;
      const slow = ends.here.request("wait", bytes("1"), 10_000);
      expect(text((await ends.here.request("wait", bytes("2"), 10_000)) as Uint8Array)).toBe(
        "second",
      );
      first.resolve(bytes("first"));
      expect(text((await slow) as Uint8Array)).toBe("first");
    },
  },
  {
    name: "a subscription that falls far behind loses messages, says so, and goes on",
    async run(ends) {
      let missed = 0;
      const open = Promise.withResolvers<undefined>();
      const seen: number[] = [];
      const handler = (message: Uint8Array): Promise<undefined> => {
        seen.push(Number(text(message)));
        return open.promise;
      };
      await ends.there.subscribe("flood", handler, { missed: () => missed++ }).ready;
      const sent = 4_000;
      for (let n = 0; n < sent; n++) ends.here.publish("flood", bytes(String(n)));
      await settle(ends);
      open.resolve(undefined);
      await settle(ends);
      ends.here.publish("flood", bytes(String(sent)));
      for (let i = 0; i < 200 && seen.at(-1) !== sent; i++) await Bun.sleep(10);
      expect(seen.at(-1)).toBe(sent);
      expect(seen.length).toBeLessThan(sent);
      expect(seen).toEqual([...seen].sort((a, b) => a - b));
      expect(missed).toBeGreaterThan(0);
      expect(ends.there.stats().dropped).toBe(sent + 1 - seen.length);
    },
  },
  {
    name: "a message above the limit is dropped, and such a request is nobody at once",
    async run(ends) {
      const seen = await collect(ends.there, "large");
      await ends.there.subscribe("large", () => bytes("a")).ready;
      const large = new Uint8Array(ends.here.messageBytesMax + 1);
      const { dropped } = ends.here.stats();
      ends.here.publish("large", large);
      expect(await ends.here.request("large", large, 20_000)).toBe("unanswered");
      await settle(ends);
      expect(seen).toEqual([]);
      expect(ends.here.stats().dropped).toBeGreaterThan(dropped);
      expect(ends.here.messageBytesMax).toBeGreaterThanOrEqual(64 * 1024);
    },
  },
  {
    name: "a closed bus is nobody and silence",
    async run(ends) {
      await ends.there.subscribe("end", () => new Promise(() => {})).ready;
      const seen = await collect(ends.here, "end");
      const open = ends.here.request("end", bytes("q"), 20_000);
      await pause(20, "the request is at the handler");
      await ends.here.close();
      await ends.here.close();
      expect(await open).toBe("unanswered");
      expect(await ends.here.request("end", bytes("q"), 20_000)).toBe("unanswered");
      ends.here.publish("end", bytes("late"));
      await ends.here.subscribe("end", () => bytes("a")).ready;
      await pause(20, "what was published after the end would arrive");
      expect(seen.filter((one) => one === "late")).toEqual([]);
      expect(ends.here.stats().connected).toBe(false);
    },
  },
];

/** Registers every case as a test over fresh ends. */
export function runBusConformance(target: BusTarget): void {
  describe(`bus conformance of ${target.name}`, () => {
    for (const one of busCases) test(one.name, () => runBusCase(target, one), 30_000);
  });
}

export async function runBusCase(target: BusTarget, one: BusCase): Promise<void> {
  const logged: string[] = [];
  const [here, there] = await target.open({ log: (_level, message) => logged.push(message) });
  try {
    await one.run({ here, there, logged });
  } finally {
    await Promise.all([here.close(), there.close()]);
  }
}
