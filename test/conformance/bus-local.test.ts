/** The bus within one process keeps the contract, and the kit catches drivers that do not. */
import { describe, expect, test } from "bun:test";
import { openLocalBus } from "../../src/plugins/bus/local.ts";
import type { Bus } from "../../src/storage/bus.ts";
import { type BusTarget, busCases, runBusCase, runBusConformance } from "./bus.ts";

const local: BusTarget = {
  name: "local",
  open: async (environment) => {
    const bus = openLocalBus(environment);
    return [bus, bus];
  },
};

runBusConformance(local);

/** Each is the local bus with one bug, and the case that must catch it. */
const bugs: Readonly<
  Record<string, { readonly plant: (real: Bus) => Partial<Bus>; readonly caughtBy: RegExp }>
> = {
  "shares the bytes of a message": {
    plant: (real) => ({
      subscribe: (subject, handler, options) => {
        const shared = new Uint8Array(64 * 1024);
        const handle = (message: Uint8Array) => {
          shared.set(message.subarray(0, shared.length));
          return handler(subject === "own" ? shared.subarray(0, message.length).fill(0) : message);
        };
        return real.subscribe(subject, handle, options);
      },
    }),
    caughtBy: /bytes are not shared/,
  },
  "waits for its timeout when there is nobody": {
    plant: (real) => ({
      request: async (subject, message, timeoutMs) => {
        const answer = await real.request(subject, message, timeoutMs);
        if (answer === "unanswered" && subject === "void") await Bun.sleep(timeoutMs);
        return answer;
      },
    }),
    caughtBy: /nobody is the answer at once/,
  },
  "takes an empty answer for none": {
    plant: (real) => ({
      request: async (...given) => {
        const answer = await real.request(...given);
        return answer.length === 0 ? "unanswered" : answer;
      },
    }),
    caughtBy: /an empty answer/,
  },
  "delivers twice": {
    plant: (real) => ({
      publish: (subject, message) => {
        real.publish(subject, message);
        if (subject === "a:1") real.publish(subject, message);
      },
    }),
    caughtBy: /reaches every subscription/,
  },
  "cuts a subject at a dot": {
    plant: (real) => ({
      publish: (subject, message) => real.publish(subject === "a.b" ? "a" : subject, message),
    }),
    caughtBy: /plain texts/,
  },
};

describe("the kit catches a bus that", () => {
  for (const [bug, { plant, caughtBy }] of Object.entries(bugs)) {
    test(bug, async () => {
      const target: BusTarget = {
        name: bug,
        open: async (environment) => {
          const real = openLocalBus(environment);
          const methods: Pick<
            Bus,
            "publish" | "subscribe" | "mayReach" | "request" | "stats" | "close"
          > = {
            publish: (...given) => real.publish(...given),
            subscribe: (...given) => real.subscribe(...given),
            mayReach: (...given) => real.mayReach(...given),
            request: (...given) => real.request(...given),
            stats: () => real.stats(),
            close: () => real.close(),
          };
          const { plugin, messageBytesMax } = real;
          const bus: Bus = { plugin, messageBytesMax, ...methods, ...plant(real) };
          return [bus, bus];
        },
      };
      const caught: string[] = [];
      for (const one of busCases.filter(({ name }) => caughtBy.test(name))) {
        const patience = Bun.sleep(2_500).then(() => Promise.reject(new Error("too slow")));
        await Promise.race([runBusCase(target, one), patience]).catch(() => caught.push(one.name));
      }
      expect(caught.length).toBe(1);
    }, 120_000);
  }
});
