/**
 * The cost of a destination and what a sender can learn: endless and slow answers, shares of the
 * node, circuits, equal errors, and the environment at start.
 */
import { afterEach, describe, expect, test } from "bun:test";
import { hostLimits } from "../../src/nodes/egress/host-limiter.ts";
import { pause } from "../support/wait.ts";
import {
  at,
  cleanUp,
  cleanups,
  egress,
  egressSettings,
  fullPort,
  post,
  serve,
  serveRaw,
  sniff,
  verdict,
} from "./destinations.ts";

afterEach(cleanUp);

describe("answers without end", () => {
  const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";

  test("a body over 64 KiB is not an answer where the body matters, and the server is cut off", async () => {
    let sent = 0;
    const port = serve(
      () =>
        new Response(
          new ReadableStream({
            pull: (controller) => {
              sent += 65_536;
              controller.enqueue(new Uint8Array(65_536));
            },
          }),
        ),
    );
    const answer = await post(egress(), `http://127.0.0.1:${port}/`, { wantsBody: true });
    expect(verdict(answer)).toEqual([200, "invalid_answer"]);
    expect(sent).toBeLessThan(32 * 1_048_576);
  });

  test("exactly 64 KiB is an answer, one byte more is none", async () => {
    const port = serve(
      (request) =>
        new Response("x".repeat(65_536 + Number(new URL(request.url).searchParams.get("more")))),
    );
    const sender = egress();
    const answers = [0, 1].map((more) =>
      post(sender, `http://127.0.0.1:${port}/?more=${more}`, { wantsBody: true }),
    );
    expect((await Promise.all(answers)).map((answer) => answer.error)).toEqual([
      null,
      "invalid_answer",
    ]);
  });

  test("where only the status matters, an endless body does not delay it", async () => {
    const port = serveRaw((write) => {
      write(`${head}Transfer-Encoding: chunked\r\n\r\n`);
      const timer = setInterval(() => write("1\r\nx\r\n"), 20);
      cleanups.push(() => clearInterval(timer));
    });
    const answer = await post(egress(), `http://127.0.0.1:${port}/`, { timeoutMs: 60_000 });
    expect(verdict(answer)).toEqual([200, null]);
    expect(answer.durationMs).toBeLessThan(30_000);
  });

  const slow: [string, (write: (text: string) => void) => void][] = [
    ["no answer at all", () => undefined],
    ["a head that trickles", (write) => trickle(write, head)],
    [
      "a body that trickles",
      (write) => {
        write(`${head}Content-Length: 1000\r\n\r\n`);
        trickle(write, "x".repeat(1_000));
      },
    ],
    [
      "interim answers without end",
      (write) => trickle(write, "HTTP/1.1 102 Processing\r\n\r\n".repeat(50), 27),
    ],
  ];
  function trickle(write: (text: string) => void, text: string, step = 1) {
    let sent = 0;
    const timer = setInterval(() => {
      write(text.slice(sent, sent + step));
      sent += step;
    }, 30);
    cleanups.push(() => clearInterval(timer));
  }
  test.each(slow)("%s ends at the deadline", async (_name, behave) => {
    const answer = await post(egress(), `http://127.0.0.1:${serveRaw(behave)}/`, {
      wantsBody: true,
      timeoutMs: 400,
    });
    expect(answer.error).toBe("upstream_timeout");
    expect(answer.durationMs).toBeWithin(350, 1_500);
  });

  test("a gigantic head is refused", async () => {
    const port = serveRaw((write) => write(`${head}X-Large: ${"a".repeat(2_000_000)}\r\n\r\n`));
    const answer = await post(egress(), `http://127.0.0.1:${port}/`, { wantsBody: true });
    expect(answer.error).not.toBeNull();
  });

  test("a compressed body is not unpacked", async () => {
    const packed = Bun.gzipSync(new Uint8Array(10_000_000));
    const port = serve(() => new Response(packed, { headers: { "content-encoding": "gzip" } }));
    const answer = await post(egress(), `http://127.0.0.1:${port}/`, { wantsBody: true });
    expect(answer.body?.length).toBe(packed.length);
  });
});

describe("what a sender can learn", () => {
  test("all unreachable destinations look the same", async () => {
    const cut = sniff("127.0.0.1");
    const garbage = serveRaw((write, end) => {
      write("garbage\r\n\r\n");
      end();
    });
    const tls = serve(() => new Response("ok"), true);
    const closed = sniff("127.0.0.1");
    cleanups.pop()?.();
    const resolve = async (host: string) => {
      if (host.startsWith("nowhere")) throw new Error("ENOTFOUND");
      return host.startsWith("empty") ? [] : at("127.0.0.1");
    };
    const sender = egress({ resolve });
    const answers = [
      await post(sender, `http://inbox.waypost.net:${closed.port}/`),
      await post(sender, `http://inbox.waypost.net:${cut.port}/`),
      await post(sender, `http://inbox.waypost.net:${garbage}/`),
      await post(sender, `https://inbox.waypost.net:${tls}/`),
      await post(sender, "http://nowhere.waypost.net:8080/"),
      await post(sender, "http://empty.waypost.net:8080/"),
    ];
    for (const { durationMs: _, ...answer } of answers) {
      expect(answer).toEqual({
        httpStatus: null,
        error: "destination_unavailable",
        body: null,
        giveUp: false,
      });
    }
  });

  test("a name server that does not answer costs two seconds, not ten", async () => {
    const answer = await post(
      egress({ resolve: () => new Promise(() => undefined) }),
      "http://inbox.waypost.net:8080/",
      { timeoutMs: 10_000 },
    );
    expect(answer.error).toBe("destination_unavailable");
    expect(answer.durationMs).toBeWithin(1_900, 3_000);
  });
});

describe("a destination's share of the node", () => {
  test("four requests at a time, thirty-two waiting, the next one refused at once", async () => {
    let inWork = 0;
    let most = 0;
    const gate = Promise.withResolvers<void>();
    const port = serve(async () => {
      most = Math.max(most, ++inWork);
      await gate.promise;
      inWork--;
      return new Response("ok");
    });
    const sender = egress();
    const endpoint = `http://127.0.0.1:${port}/`;
    const running = Array.from({ length: 36 }, () => post(sender, endpoint, { timeoutMs: 10_000 }));
    await Bun.sleep(0);
    const extra = await post(sender, endpoint);
    expect([extra.error, extra.giveUp]).toEqual(["destination_unavailable", true]);
    while (inWork < 4) await Bun.sleep(1);
    gate.resolve();
    const answers = await Promise.all(running);
    expect(answers.map((answer) => answer.httpStatus)).toEqual(new Array(36).fill(200));
    expect(most).toBe(4);
    expect(sender.stats()).toEqual({ active: 0, waiting: 0, destinations: 0 });
  });

  test("a slow destination does not delay another one", async () => {
    const slow = serve(() => new Promise(() => undefined));
    const quick = serve(() => new Response("ok"));
    const sender = egress();
    let ended = 0;
    const stuck = Array.from({ length: 20 }, () =>
      post(sender, `http://127.0.0.1:${slow}/`, { timeoutMs: 3_000 }).finally(() => ended++),
    );
    const answer = await post(sender, `http://127.0.0.1:${quick}/`);
    expect(verdict(answer)).toEqual([200, null]);
    expect(ended).toBe(0);
    expect((await Promise.all(stuck)).every((waited) => waited.error !== null)).toBe(true);
  });

  test("when every place is taken, the network with the most slow requests makes room for another one", async () => {
    let [nowMs, inWork] = [0, 0];
    const sender = egress({
      now: () => nowMs,
      settings: egressSettings({ allow_private: ["127.0.0.0/8"] }),
    });
    const slow = Bun.serve({
      hostname: "0.0.0.0",
      port: 0,
      fetch: () => {
        inWork++;
        return new Promise<Response>(() => undefined);
      },
    });
    cleanups.push(() => slow.stop(true));
    const quick = serve(() => new Response("ok"));
    let hosts = 0;
    const gaveWay: string[] = [];
    // The shares of nine networks: half of what the earlier ones leave, at least one.
    for (const [i, count] of [128, 64, 32, 16, 8, 4, 2, 1, 1].entries())
      for (let n = 0; n < count; n++) {
        const endpoint = `http://127.0.1.${1 + (hosts++ >> 2)}:${slow.port}/`;
        void post(sender, endpoint, { client: `network ${i}`, timeoutMs: 30_000 }).then(
          ({ error, giveUp }) => {
            gaveWay.push(`${i} ${error} ${giveUp}`);
          },
        );
      }
    while (inWork < 256) await Bun.sleep(1);
    const ask = () => post(sender, `http://127.0.0.1:${quick}/`, { client: "another network" });
    expect(await ask()).toMatchObject({ error: "destination_unavailable", giveUp: true });
    nowMs = 1_000;
    expect(verdict(await ask())).toEqual([200, null]);
    expect(gaveWay).toEqual(["0 upstream_timeout true"]);
  });

  test("requests that wait for hosts that hang give way too, also to several of one network", async () => {
    let [nowMs, inWork] = [0, 0];
    const sender = egress({ now: () => nowMs });
    const gate = Promise.withResolvers<void>();
    const hangs = () => {
      inWork++;
      return gate.promise.then(() => new Response("late"));
    };
    const hosts = Array.from({ length: 8 }, () => serve(hangs));
    const gaveWay: string[] = [];
    let sent = 0;
    const stuck: Promise<unknown>[] = [];
    for (const [i, count] of [128, 64, 32, 16, 8, 4, 2, 1, 1].entries())
      for (let n = 0; n < count; n++) {
        const endpoint = `http://127.0.0.1:${hosts[sent++ % 8]}/`;
        const answer = post(sender, endpoint, { client: `network ${i}`, timeoutMs: 30_000 });
        stuck.push(
          answer.then(
            ({ error, giveUp }) => error !== null && gaveWay.push(`${i} ${error} ${giveUp}`),
          ),
        );
      }
    while (inWork < 32) await Bun.sleep(1);
    expect(sender.stats()).toMatchObject({ active: 32, waiting: 224 });
    nowMs = 1_000;
    const [one, other] = [serve(() => new Response("ok")), serve(() => new Response("ok"))];
    // To the network with the most its own give way, one to one, for others at the same address.
    const beside = Array.from({ length: 6 }, () =>
      post(sender, `http://127.0.0.1:${other}/`, { client: "network 0" }),
    );
    const newcomers = Array.from({ length: 36 }, (_, n) =>
      post(sender, `http://127.0.0.1:${one}/`, { client: `newcomer ${n}` }),
    );
    const known = Array.from({ length: 6 }, () =>
      post(sender, `http://127.0.0.1:${other}/`, { client: "known" }),
    );
    const answers = await Promise.all([...newcomers, ...known, ...beside]);
    expect(answers.map(({ httpStatus }) => httpStatus)).toEqual(new Array(48).fill(200));
    expect(new Set(gaveWay)).toEqual(new Set(["0 upstream_timeout true"]));
    expect(gaveWay.length).toBeWithin(48, 64);
    gate.resolve();
    await Promise.all(stuck);
    expect(sender.stats()).toEqual({ active: 0, waiting: 0, destinations: 0 });
  });

  test.if(process.platform === "linux")(
    "a request that gives way, or that the node ends, waits for neither a name nor a connection",
    async () => {
      let nowMs = 0;
      const hole = await fullPort();
      const never = new Promise<never>(() => undefined);
      const sender = egress({
        now: () => nowMs,
        requestsMax: 4,
        resolve: (host) => (host.startsWith("never") ? never : Promise.resolve(["127.0.0.1"])),
      });
      const began = performance.now();
      const stuck = [`http://never.waypost.net:8080/`, `http://hole.waypost.net:${hole}/`].map(
        (endpoint) => post(sender, endpoint, { client: "network", timeoutMs: 30_000 }),
      );
      await pause(20, "both are looking up or connecting");
      nowMs = 1_000;
      const port = serve(() => new Response("ok"));
      const beside = [1, 2].map(() =>
        post(sender, `http://127.0.0.1:${port}/`, { client: "network" }),
      );
      for (const answer of await Promise.all(beside)) expect(verdict(answer)).toEqual([200, null]);
      for (const answer of await Promise.all(stuck))
        expect(verdict(answer)).toEqual([null, "upstream_timeout"]);
      const last = post(sender, `http://hole.waypost.net:${hole}/`, { timeoutMs: 30_000 });
      await pause(20, "it is connecting");
      sender.close();
      expect(verdict(await last)).toEqual([null, "destination_unavailable"]);
      expect(performance.now() - began).toBeLessThan(1_500);
      expect(sender.stats()).toMatchObject({ active: 0, waiting: 0 });
    },
  );

  test("five failures open the circuit, thirty seconds later a trial decides", async () => {
    let healthy = false;
    let asked = 0;
    const port = serveRaw((write, end) => {
      asked++;
      if (healthy) write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
      end();
    });
    let nowMs = 1_000;
    const sender = egress({ now: () => nowMs });
    const endpoint = `http://127.0.0.1:${port}/`;
    for (let i = 0; i < 5; i++) expect((await post(sender, endpoint)).giveUp).toBe(false);
    expect(asked).toBe(5);
    expect(await post(sender, endpoint)).toMatchObject({
      error: "destination_unavailable",
      giveUp: true,
    });
    nowMs += hostLimits.openMs;
    expect(await post(sender, endpoint)).toMatchObject({
      error: "destination_unavailable",
      giveUp: false,
    });
    expect(await post(sender, endpoint)).toMatchObject({ giveUp: true });
    expect(asked).toBe(6);
    nowMs += hostLimits.openMs;
    healthy = true;
    expect(verdict(await post(sender, endpoint))).toEqual([200, null]);
    expect(verdict(await post(sender, endpoint))).toEqual([200, null]);
  });

  test("answers of any status keep the circuit closed, and a refused address is not a failure", async () => {
    const port = serve(() => new Response("no", { status: 500 }));
    const sender = egress({ resolve: async () => at("10.0.0.1") });
    for (let i = 0; i < 8; i++)
      expect((await post(sender, `http://127.0.0.1:${port}/`)).httpStatus).toBe(500);
    for (let i = 0; i < 8; i++)
      expect((await post(sender, `http://inbox.waypost.net/`)).error).toBe("destination_refused");
  });

  test("a name has at most 16 addresses", async () => {
    const port = serve(() => new Response("ok"));
    const withAddresses = (count: number) =>
      post(
        egress({ resolve: async () => Array.from({ length: count }, () => "127.0.0.1") }),
        `http://inbox.waypost.test:${port}/`,
      );
    expect((await withAddresses(16)).error).toBeNull();
    expect((await withAddresses(17)).error).toBe("destination_refused");
  });

  test("closing ends what is in flight and what waits for a slot", async () => {
    let inWork = 0;
    const port = serve(() => {
      inWork++;
      return new Promise(() => undefined);
    });
    const sender = egress();
    const running = Array.from({ length: 12 }, () =>
      post(sender, `http://127.0.0.1:${port}/`, { timeoutMs: 20_000 }),
    );
    while (inWork < 4) await Bun.sleep(1);
    expect(sender.stats()).toMatchObject({ active: 4, waiting: 8 });
    sender.close();
    const errors = (await Promise.all(running)).map((answer) => answer.error);
    expect(errors).toEqual(new Array(12).fill("destination_unavailable"));
    expect(inWork).toBe(4);
    expect(await post(sender, `http://127.0.0.1:${port}/`)).toMatchObject({
      error: "destination_unavailable",
      giveUp: true,
    });
  });
});
