/** Capacity: shares of clients, what a refusal logs, and turns at the event loop. */
import { describe, expect, test } from "bun:test";
import {
  countedBytesMin,
  createFairShare,
  nextIteration,
} from "../../../../src/nodes/http/capacity.ts";
import { post, testApp, testRoute } from "../../../support/app.ts";

describe("a refusal over capacity is logged once a minute, with what refused and the setting that raises it", () => {
  /** One client has half of it. */
  const oneBody = { body_bytes_in_flight: 2 * countedBytesMin };
  const endless = () => new ReadableStream<Uint8Array<ArrayBuffer>>();
  test.each([
    [
      "active requests",
      "server.requests_max",
      { requests_max: 2 },
      "/wait",
      (): undefined => undefined,
    ],
    [
      "bytes of bodies and answers in memory",
      "server.body_bytes_in_flight",
      oneBody,
      "/body",
      () => post(endless()),
    ],
    [
      "bytes of bodies and answers in memory",
      "server.body_bytes_in_flight",
      oneBody,
      "/body",
      () => post("[1,2,3]"),
    ],
  ] as const)("%s", async (limit, setting, low, path, init) => {
    let nowMs = 1e12;
    const handle = (): Promise<never> => new Promise(() => undefined);
    const never = testRoute({ path: "/wait", handle });
    const body = testRoute({ method: "POST", path: "/body", bodyBytesMax: 100, handle });
    const { ask, lines } = testApp([never, body], {
      server: { ...low, refusal_delay: 1 },
      now: () => nowMs,
    });
    // What stays unanswered takes the one place.
    void ask(path, init());
    const refuse = async (): Promise<number> => (await ask(path, init())).status;
    const logged = () =>
      lines.filter(({ message }) => message.startsWith("the node is at capacity"));
    expect([await refuse(), await refuse()]).toEqual([503, 503]);
    nowMs += 59_999;
    expect([await refuse(), logged().length]).toEqual([503, 1]);
    nowMs += 1;
    expect([await refuse(), logged().length]).toEqual([503, 2]);
    expect(logged()[1]).toMatchObject({
      level: "warn",
      fields: { limit, setting, network: "192.0.2.0/24" },
    });
  });
});

describe("a fair share", () => {
  test("is half for one client, and at least one where there is only one", () => {
    const share = createFairShare(4);
    expect([
      share.take("a", 2),
      share.take("a", 1),
      share.take("b", 2),
      share.take("c", 1),
    ]).toEqual([true, false, true, false]);
    const lone = createFairShare(1);
    expect([lone.take("a", 1), lone.take("b", 1)]).toEqual([true, false]);
  });

  test("that shrinks keeps its last quarter for those who hold little, also where others take half of the rest in turn", () => {
    const [max, step] = [192 * 1024 ** 2, countedBytesMin];
    const share = createFairShare(max, { shrinks: true, littleMax: 8 * step });
    for (let n = 0; n < 200; n++) while (share.take(`network ${n}`, step));
    expect(share.total).toBeLessThan(max);
    for (let n = 0; n < 100; n++) expect(share.take(`newcomer ${n}`, 8 * step)).toBe(true);
    expect(share.take("newcomer 0", step)).toBe(false);
    // One that is alone has half.
    const lone = createFairShare(max, { shrinks: true, littleMax: 8 * step });
    expect([lone.take("a", max / 2), lone.take("a", step)]).toEqual([true, false]);
  });

  test("given back is there for others, and what was refused took nothing", () => {
    const share = createFairShare(2);
    expect([share.take("a", 2), share.take("a", 1), share.take("b", 1)]).toEqual([
      false,
      true,
      true,
    ]);
    share.give("a", 1);
    expect([share.total, share.take("b", 1), share.take("c", 1), share.total]).toEqual([
      1,
      false,
      true,
      2,
    ]);
  });

  test("bounds a client that is spared by the whole alone", () => {
    const share = createFairShare(4, { isSpared: (client) => client === "a" });
    expect([share.take("a", 3), share.take("b", 1), share.take("a", 1)]).toEqual([
      true,
      true,
      false,
    ]);
    share.give("b", 1);
    expect([share.take("a", 1), share.take("b", 1)]).toEqual([true, false]);
  });
});

const iteration = () => new Promise((resolve) => setImmediate(resolve));

test("of many one goes in each iteration, in the order in which they came", async () => {
  const gone: number[] = [];
  const all = [0, 1, 2, 3, 4].map(async (number) => {
    await nextIteration();
    gone.push(number);
  });
  const seen: number[] = [];
  while (gone.length < 5) {
    await iteration();
    seen.push(gone.length);
  }
  await Promise.all(all);
  expect(gone).toEqual([0, 1, 2, 3, 4]);
  for (const [i, count] of seen.entries())
    expect(count - (seen[i - 1] ?? 1)).toBeLessThanOrEqual(1);
});

test("a shrinking share gives each client half of what the others leave", () => {
  const share = createFairShare(64, { shrinks: true });
  const most = (client: string) => {
    let taken = 0;
    while (share.take(client, 1)) taken++;
    return taken;
  };
  expect(["a", "b", "c", "d"].map(most)).toEqual([32, 16, 8, 4]);
  expect([share.hasRoom("a"), share.hasRoom("e")]).toEqual([false, true]);
  share.give("a", 32);
  expect([most("b"), share.total]).toEqual([10, 38]);
});
