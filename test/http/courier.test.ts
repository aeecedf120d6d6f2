/**
 * Destinations that attack the Relay: spellings, names that change, redirects, proxies, certificates,
 * answers without end. Real servers; wherever a request must not go, a listener counts connections.
 */
import { afterEach, describe, expect, test } from "bun:test";
import { type EndpointRules, parseNetwork } from "../../src/core/address.ts";
import { utf8 } from "../../src/core/bytes.ts";
import {
  type Courier,
  type CourierAnswer,
  type CourierOptions,
  checkOutboundEnvironment,
  createCourier,
  type ResolvedAddress,
} from "../../src/nodes/courier.ts";
import { laneLimits } from "../../src/nodes/courier-lanes.ts";
import { inboxCertificate, inboxKey, testAuthority } from "../support/certificates.ts";

const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0)) cleanup();
});

/** Counts every TCP connection to a port, whatever is said on it. */
function sniff(hostname: string, port = 0) {
  const sniffer = { connections: 0, port: 0 };
  const listener = Bun.listen({
    hostname,
    port,
    socket: {
      open: (socket) => {
        sniffer.connections++;
        socket.end();
      },
      data: () => undefined,
    },
  });
  sniffer.port = listener.port;
  cleanups.push(() => listener.stop(true));
  return sniffer;
}

function serve(respond: (request: Request) => Response | Promise<Response>, tls = false) {
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    idleTimeout: 30,
    fetch: respond,
    ...(tls ? { tls: { cert: inboxCertificate, key: inboxKey } } : {}),
  });
  cleanups.push(() => server.stop(true));
  return server.port as number;
}

/** A server that writes what it is told, byte for byte. */
function serveRaw(onRequest: (write: (text: string) => void, end: () => void) => void) {
  const listener = Bun.listen<{ open: boolean; asked: boolean }>({
    hostname: "127.0.0.1",
    port: 0,
    socket: {
      open: (socket) => {
        socket.data = { open: true, asked: false };
      },
      data: (socket) => {
        if (socket.data.asked) return;
        socket.data.asked = true;
        onRequest(
          (text) => {
            if (socket.data.open) socket.write(text);
          },
          () => socket.end(),
        );
      },
      close: (socket) => {
        socket.data.open = false;
      },
    },
  });
  cleanups.push(() => listener.stop(true));
  return listener.port;
}

const only127001 = [parseNetwork("127.0.0.1/32")!];
const rules = (more: Partial<EndpointRules> = {}): EndpointRules => ({
  allowHttp: true,
  allowPrivate: only127001,
  ownRelays: [],
  ...more,
});

function courier(more: Partial<CourierOptions> = {}): Courier {
  const created = createCourier({ rules: rules(), ...more });
  cleanups.push(() => created.close());
  return created;
}

const at = (...addresses: string[]): readonly ResolvedAddress[] =>
  addresses.map((address) => ({ address, ttlSeconds: 0 }));

const post = (sender: Courier, endpoint: string, more: { wantsBody?: boolean; timeoutMs?: number } = {}) =>
  sender.post({
    endpoint,
    suffix: "",
    body: utf8('{"x":1}'),
    wantsBody: more.wantsBody ?? false,
    timeoutMs: more.timeoutMs ?? 3_000,
  });

const verdict = ({ httpStatus, error }: CourierAnswer) => [httpStatus, error];

describe("a well-behaved destination", () => {
  test("gets the body, the published name and the extra headers, at the checked address", async () => {
    const seen: Record<string, unknown> = {};
    const port = serve(async (request) => {
      seen["line"] = `${request.method} ${new URL(request.url).pathname}${new URL(request.url).search}`;
      seen["host"] = request.headers.get("host");
      seen["hops"] = request.headers.get("svc-hops");
      seen["type"] = request.headers.get("content-type");
      seen["body"] = await request.text();
      return new Response('{"ok":true}', { status: 202 });
    });
    const sender = courier({ resolve: async () => at("127.0.0.1") });
    const answer = await sender.post({
      endpoint: `http://inbox.waypost.test:${port}/in/?k=1`,
      suffix: "",
      body: utf8('{"x":1}'),
      headers: { "svc-hops": "1" },
      wantsBody: true,
      timeoutMs: 3_000,
    });
    expect(verdict(answer)).toEqual([202, null]);
    expect(new TextDecoder().decode(answer.body!)).toBe('{"ok":true}');
    expect(seen).toEqual({
      line: "POST /in/?k=1",
      host: `inbox.waypost.test:${port}`,
      hops: "1",
      type: "application/json",
      body: '{"x":1}',
    });
  });

  test("over TLS, the certificate is checked for the published name", async () => {
    const port = serve(() => new Response("ok"), true);
    const resolve = async () => at("127.0.0.1");
    const trusting = courier({ resolve, ca: [testAuthority] });
    expect(verdict(await post(trusting, `https://inbox.waypost.test:${port}/`))).toEqual([200, null]);
    expect(verdict(await post(trusting, `https://other.waypost.test:${port}/`))).toEqual([
      null,
      "destination_unavailable",
    ]);
    expect(verdict(await post(trusting, `https://127.0.0.1:${port}/`))).toEqual([null, "destination_unavailable"]);
    expect(verdict(await post(courier({ resolve }), `https://inbox.waypost.test:${port}/`))).toEqual([
      null,
      "destination_unavailable",
    ]);
  });

  test("certificates are checked even where the environment says otherwise", async () => {
    const port = serve(() => new Response("ok"), true);
    process.env["NODE_TLS_REJECT_UNAUTHORIZED"] = "0";
    cleanups.push(() => delete process.env["NODE_TLS_REJECT_UNAUTHORIZED"]);
    const sender = courier({ resolve: async () => at("127.0.0.1") });
    expect(verdict(await post(sender, `https://inbox.waypost.test:${port}/`))).toEqual([
      null,
      "destination_unavailable",
    ]);
  });

  test("is found at the second address when nobody listens at the first", async () => {
    const port = serve(() => new Response("ok"));
    const both = { rules: rules({ allowPrivate: [parseNetwork("127.0.0.0/8")!] }), connectMs: 1_000 };
    const sender = courier({ ...both, resolve: async () => at("127.0.0.9", "127.0.0.1") });
    expect(verdict(await post(sender, `http://inbox.waypost.net:${port}/`))).toEqual([200, null]);
  });

  test.each([400, 404, 410, 429, 500, 503])("its %i is told as it is", async (status) => {
    const port = serve(() => new Response("no", { status }));
    expect(verdict(await post(courier(), `http://127.0.0.1:${port}/`))).toEqual([status, null]);
  });
});

describe("places that must not be reached", () => {
  const spellings = (port: number) => [
    `http://127.0.0.1:${port}/`,
    `http://127.1:${port}/`,
    `http://0x7f.0.0.1:${port}/`,
    `http://0x7f.1:${port}/`,
    `http://0177.0.0.1:${port}/`,
    `http://2130706433:${port}/`,
    `http://0:${port}/`,
    `http://0.0.0.0:${port}/`,
    `http://127.0.0.1.:${port}/`,
    `http://localhost:${port}/`,
    `http://localhost.:${port}/`,
    `http://a.localhost:${port}/`,
    `http://[::1]:${port}/`,
    `http://[::]:${port}/`,
    `http://[::ffff:127.0.0.1]:${port}/`,
    `http://[::ffff:7f00:1]:${port}/`,
    `http://[::127.0.0.1]:${port}/`,
    `http://[0:0:0:0:0:0:0:1]:${port}/`,
    `http://[64:ff9b::7f00:1]:${port}/`,
    `http://１２７.０.０.１:${port}/`,
    `http://①②⑦.⓪.⓪.①:${port}/`,
    `http://%31%32%37.0.0.1:${port}/`,
    `http://127.0.0.1%00:${port}/`,
    `http://127\u3002000.0.1:${port}/`,
    `http://local\u00adhost:${port}/`,
    `http://127.0.0\t.1:${port}/`,
    `http://waypost.net@127.0.0.1:${port}/`,
    `http://waypost.net:80@127.0.0.1:${port}/`,
    `http://127.0.0.1:${port}\\@waypost.net/`,
    `http://waypost.net#@127.0.0.1:${port}/`,
    `http:\\\\127.0.0.1:${port}/`,
    `http:127.0.0.1:${port}/`,
    `//127.0.0.1:${port}/`,
    `HTTP://127.0.0.1:${port}/`,
    `ftp://127.0.0.1:${port}/`,
    `ws://127.0.0.1:${port}/`,
    `file:///etc/passwd`,
    `data:text/plain,x`,
    `s3://bucket/key`,
    `blob:http://127.0.0.1:${port}/x`,
    ``,
  ];

  test("no spelling of this machine gets a single packet out", async () => {
    const sniffers = [sniff("0.0.0.0")];
    const { port } = sniffers[0]!;
    try {
      sniffers.push(sniff("::1", port));
    } catch {
      // A machine without IPv6 can't be reached over it either.
    }
    const sender = courier({ rules: rules({ allowPrivate: [] }), resolve: async () => at("127.0.0.1") });
    for (const endpoint of spellings(port)) {
      const answer = await post(sender, endpoint);
      expect([endpoint, answer.error, answer.giveUp]).toEqual([endpoint, "destination_refused", true]);
    }
    expect(sniffers.map((sniffer) => sniffer.connections)).toEqual(sniffers.map(() => 0));
  });

  const hidden = [
    "127.0.0.1",
    "10.0.0.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "::1",
    "::",
    "fe80::1",
    "fd00::1",
  ]
    .concat([
      "::ffff:127.0.0.1",
      "::127.0.0.1",
      "64:ff9b::7f00:1",
      "64:ff9b:1::7f00:1",
      "2002:7f00:1::",
      "2001:0:7f00:1::",
    ])
    .concat(["ff02::1", "224.0.0.1", "255.255.255.255", "192.168.1.1", "172.16.0.1", "not-an-address", ""]);
  test.each(hidden)("a public name that leads to %p is refused", async (address) => {
    const sniffer = sniff("0.0.0.0");
    const sender = courier({ rules: rules({ allowPrivate: [] }), resolve: async () => at(address) });
    expect((await post(sender, `http://inbox.waypost.net:${sniffer.port}/`)).error).toBe("destination_refused");
    expect(sniffer.connections).toBe(0);
  });

  test("an answer of the name server with one bad address among good ones is refused whole", async () => {
    const sniffer = sniff("0.0.0.0");
    const sender = courier({ resolve: async () => at("127.0.0.1", "127.0.0.2") });
    expect((await post(sender, `http://inbox.waypost.net:${sniffer.port}/`)).error).toBe("destination_refused");
    expect(sniffer.connections).toBe(0);
  });

  test("more addresses than anyone needs are refused", async () => {
    const sender = courier({ resolve: async () => at(...new Array<string>(17).fill("127.0.0.1")) });
    expect((await post(sender, "http://inbox.waypost.net:9999/")).error).toBe("destination_refused");
  });

  test.skipIf(process.platform !== "linux")(
    "a name that changes its address reaches only what was checked",
    async () => {
      const port = serve(() => new Response("ok"));
      const sniffer = sniff("127.0.0.2", port);
      let lookups = 0;
      const resolve = async () => at(++lookups === 1 ? "127.0.0.1" : "127.0.0.2");
      let nowMs = 0;
      const sender = courier({ resolve, now: () => nowMs });
      expect(verdict(await post(sender, `http://inbox.waypost.net:${port}/`))).toEqual([200, null]);
      expect(lookups).toBe(1);
      nowMs += 61_000;
      expect((await post(sender, `http://inbox.waypost.net:${port}/`)).error).toBe("destination_refused");
      expect([lookups, sniffer.connections]).toEqual([2, 0]);
    },
  );

  test.each([301, 302, 303, 307, 308])("a %i to another place is not followed", async (status) => {
    const sniffer = sniff("127.0.0.1");
    const location = `http://127.0.0.1:${sniffer.port}/admin`;
    const port = serve(() => new Response(null, { status, headers: { location } }));
    const answer = await post(courier(), `http://127.0.0.1:${port}/`);
    expect([answer.error, answer.httpStatus]).toEqual(["invalid_answer", null]);
    expect(sniffer.connections).toBe(0);
  });

  test("proxy variables set while running are not used", async () => {
    const sniffer = sniff("127.0.0.1");
    for (const name of ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"]) {
      process.env[name] = `http://127.0.0.1:${sniffer.port}`;
      cleanups.push(() => delete process.env[name]);
    }
    const port = serve(() => new Response("ok"));
    const tlsPort = serve(() => new Response("ok"), true);
    const sender = courier({ resolve: async () => at("127.0.0.1"), ca: [testAuthority] });
    expect(verdict(await post(sender, `http://inbox.waypost.test:${port}/`))).toEqual([200, null]);
    expect(verdict(await post(sender, `https://inbox.waypost.test:${tlsPort}/`))).toEqual([200, null]);
    expect(sniffer.connections).toBe(0);
  });

  test("http is refused where only https is allowed, and the node never asks itself", async () => {
    const sniffer = sniff("127.0.0.1");
    const url = `http://127.0.0.1:${sniffer.port}`;
    const answers = [
      await post(courier({ rules: rules({ allowHttp: false }) }), `${url}/`),
      await post(courier({ rules: rules({ ownRelays: [url] }) }), `${url}/relay`),
    ];
    expect(answers.map((answer) => answer.error)).toEqual(["destination_refused", "destination_refused"]);
    expect(sniffer.connections).toBe(0);
  });
});

describe("answers without end", () => {
  const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";

  test("a body over 64 KiB is no answer where the body matters, and the server is cut off", async () => {
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
    const answer = await post(courier(), `http://127.0.0.1:${port}/`, { wantsBody: true });
    expect(verdict(answer)).toEqual([200, "invalid_answer"]);
    expect(sent).toBeLessThan(32 * 1_048_576);
  });

  test("exactly 64 KiB is an answer, one byte more is none", async () => {
    const port = serve(
      (request) => new Response("x".repeat(65_536 + Number(new URL(request.url).searchParams.get("more")))),
    );
    const sender = courier();
    const answers = [0, 1].map((more) => post(sender, `http://127.0.0.1:${port}/?more=${more}`, { wantsBody: true }));
    expect((await Promise.all(answers)).map((answer) => answer.error)).toEqual([null, "invalid_answer"]);
  });

  test("where only the status matters, an endless body does not delay it", async () => {
    const port = serveRaw((write) => {
      write(`${head}Transfer-Encoding: chunked\r\n\r\n`);
      const timer = setInterval(() => write("1\r\nx\r\n"), 20);
      cleanups.push(() => clearInterval(timer));
    });
    const answer = await post(courier(), `http://127.0.0.1:${port}/`, { timeoutMs: 5_000 });
    expect(verdict(answer)).toEqual([200, null]);
    expect(answer.durationMs).toBeLessThan(2_000);
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
    ["interim answers without end", (write) => trickle(write, "HTTP/1.1 102 Processing\r\n\r\n".repeat(50), 27)],
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
    const answer = await post(courier(), `http://127.0.0.1:${serveRaw(behave)}/`, { wantsBody: true, timeoutMs: 400 });
    expect(answer.error).toBe("upstream_timeout");
    expect(answer.durationMs).toBeWithin(350, 1_500);
  });

  test("a gigantic head is refused", async () => {
    const port = serveRaw((write) => write(`${head}X-Large: ${"a".repeat(2_000_000)}\r\n\r\n`));
    const answer = await post(courier(), `http://127.0.0.1:${port}/`, { wantsBody: true });
    expect(answer.error).not.toBeNull();
  });

  test("a compressed body is not unpacked", async () => {
    const packed = Bun.gzipSync(new Uint8Array(10_000_000));
    const port = serve(() => new Response(packed, { headers: { "content-encoding": "gzip" } }));
    const answer = await post(courier(), `http://127.0.0.1:${port}/`, { wantsBody: true });
    expect(answer.body?.length).toBe(packed.length);
  });
});

describe("what a sender can learn", () => {
  test("every way of not being there looks the same", async () => {
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
    const sender = courier({ resolve });
    const answers = [
      await post(sender, `http://inbox.waypost.net:${closed.port}/`),
      await post(sender, `http://inbox.waypost.net:${cut.port}/`),
      await post(sender, `http://inbox.waypost.net:${garbage}/`),
      await post(sender, `https://inbox.waypost.net:${tls}/`),
      await post(sender, "http://nowhere.waypost.net:8080/"),
      await post(sender, "http://empty.waypost.net:8080/"),
    ];
    for (const { durationMs: _, ...answer } of answers) {
      expect(answer).toEqual({ httpStatus: null, error: "destination_unavailable", body: null, giveUp: false });
    }
  });

  test("a name server that does not answer costs two seconds, not ten", async () => {
    const answer = await post(
      courier({ resolve: () => new Promise(() => undefined) }),
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
    const sender = courier();
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

  test("a slow destination does not hold up another one", async () => {
    const slow = serve(() => new Promise(() => undefined));
    const quick = serve(() => new Response("ok"));
    const sender = courier();
    const stuck = Array.from({ length: 20 }, () => post(sender, `http://127.0.0.1:${slow}/`, { timeoutMs: 1_000 }));
    const answer = await post(sender, `http://127.0.0.1:${quick}/`);
    expect(verdict(answer)).toEqual([200, null]);
    expect(answer.durationMs).toBeLessThan(900);
    expect((await Promise.all(stuck)).every((waited) => waited.error !== null)).toBe(true);
  });

  test("five failures open the circuit, thirty seconds later one trial decides", async () => {
    let healthy = false;
    let asked = 0;
    const port = serveRaw((write, end) => {
      asked++;
      if (healthy) write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
      end();
    });
    let nowMs = 1_000;
    const sender = courier({ now: () => nowMs });
    const endpoint = `http://127.0.0.1:${port}/`;
    for (let i = 0; i < 5; i++) expect((await post(sender, endpoint)).giveUp).toBe(false);
    expect(asked).toBe(5);
    expect(await post(sender, endpoint)).toMatchObject({ error: "destination_unavailable", giveUp: true });
    nowMs += laneLimits.openMs;
    expect(await post(sender, endpoint)).toMatchObject({ error: "destination_unavailable", giveUp: false });
    expect(await post(sender, endpoint)).toMatchObject({ giveUp: true });
    expect(asked).toBe(6);
    nowMs += laneLimits.openMs;
    healthy = true;
    expect(verdict(await post(sender, endpoint))).toEqual([200, null]);
    expect(verdict(await post(sender, endpoint))).toEqual([200, null]);
  });

  test("answers of any status keep the circuit closed, and a refused address is no failure", async () => {
    const port = serve(() => new Response("no", { status: 500 }));
    const sender = courier({ resolve: async () => at("10.0.0.1") });
    for (let i = 0; i < 8; i++) expect((await post(sender, `http://127.0.0.1:${port}/`)).httpStatus).toBe(500);
    for (let i = 0; i < 8; i++)
      expect((await post(sender, `http://inbox.waypost.net/`)).error).toBe("destination_refused");
  });

  test("closing ends what is in flight", async () => {
    const port = serve(() => new Promise(() => undefined));
    const sender = courier();
    const running = post(sender, `http://127.0.0.1:${port}/`, { timeoutMs: 20_000 });
    await Bun.sleep(20);
    sender.close();
    expect((await running).error).toBe("destination_unavailable");
    expect(await post(sender, `http://127.0.0.1:${port}/`)).toMatchObject({
      error: "destination_unavailable",
      giveUp: true,
    });
  });
});

describe("the environment at start", () => {
  test("switched-off certificate checks and proxies are problems, and proxies are taken out", () => {
    const env: Record<string, string | undefined> = {
      NODE_TLS_REJECT_UNAUTHORIZED: "0",
      https_proxy: "http://p:1",
      PATH: "/bin",
    };
    expect(checkOutboundEnvironment(env, { allowProxyVariables: false })).toHaveLength(2);
    expect(env["https_proxy"]).toBeUndefined();
    expect(checkOutboundEnvironment({ HTTP_PROXY: "http://p:1" }, { allowProxyVariables: true })).toEqual([]);
    expect(checkOutboundEnvironment({ HTTP_PROXY: "", PATH: "/bin" }, { allowProxyVariables: false })).toEqual([]);
  });
});
