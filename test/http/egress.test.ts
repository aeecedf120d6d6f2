/**
 * Destinations that attack the Relay: spellings, names that change, redirects, proxies,
 * certificates. Real servers; wherever a request must not go, a listener counts connections.
 */
import { afterEach, describe, expect, test } from "bun:test";
import { utf8 } from "../../src/core/codec/bytes.ts";
import { testAuthority } from "../support/certificates.ts";
import {
  at,
  cleanUp,
  cleanups,
  egress,
  egressSettings,
  post,
  serve,
  sniff,
  verdict,
} from "./destinations.ts";

afterEach(cleanUp);

const loopback = egressSettings({ allow_private: ["127.0.0.0/8"] });

describe("a well-behaved destination", () => {
  test("gets the body, the published name and the extra headers, at the checked address", async () => {
    const seen: Record<string, unknown> = {};
    const port = serve(async (request) => {
      seen["line"] =
        `${request.method} ${new URL(request.url).pathname}${new URL(request.url).search}`;
      seen["host"] = request.headers.get("host");
      seen["hops"] = request.headers.get("svc-hops");
      seen["type"] = request.headers.get("content-type");
      seen["body"] = await request.text();
      return new Response('{"ok":true}', { status: 202 });
    });
    const sender = egress({ resolve: async () => at("127.0.0.1") });
    const answer = await sender.send({
      endpoint: `http://inbox.waypost.test:${port}/in/?k=1`,
      suffix: "",
      body: utf8('{"x":1}'),
      headers: { "svc-hops": "1" },
      wantsBody: () => true,
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
    const trusting = egress({ resolve, ca: [testAuthority] });
    expect(verdict(await post(trusting, `https://inbox.waypost.test:${port}/`))).toEqual([
      200,
      null,
    ]);
    expect(verdict(await post(trusting, `https://other.waypost.test:${port}/`))).toEqual([
      null,
      "destination_unavailable",
    ]);
    expect(verdict(await post(trusting, `https://127.0.0.1:${port}/`))).toEqual([
      null,
      "destination_unavailable",
    ]);
    expect(verdict(await post(egress({ resolve }), `https://inbox.waypost.test:${port}/`))).toEqual(
      [null, "destination_unavailable"],
    );
  });

  test("certificates are checked even where the environment says otherwise", async () => {
    const port = serve(() => new Response("ok"), true);
    process.env["NODE_TLS_REJECT_UNAUTHORIZED"] = "0";
    cleanups.push(() => delete process.env["NODE_TLS_REJECT_UNAUTHORIZED"]);
    const sender = egress({ resolve: async () => at("127.0.0.1") });
    expect(verdict(await post(sender, `https://inbox.waypost.test:${port}/`))).toEqual([
      null,
      "destination_unavailable",
    ]);
  });

  test("is found at the second address when nobody listens at the first", async () => {
    const port = serve(() => new Response("ok"));
    const both = {
      settings: egressSettings({ allow_private: ["127.0.0.0/8"], connect_timeout: 1_000 }),
    };
    const sender = egress({ ...both, resolve: async () => at("127.0.0.9", "127.0.0.1") });
    expect(verdict(await post(sender, `http://inbox.waypost.net:${port}/`))).toEqual([200, null]);
  });

  test("is given up when none of its addresses has accepted within the time for connecting", async () => {
    const port = serve(() => new Response("ok"));
    const settings = egressSettings({ allow_private: ["127.0.0.0/8"], connect_timeout: 0 });
    const sender = egress({ settings, resolve: async () => at("127.0.0.1") });
    const answer = await post(sender, `http://inbox.waypost.net:${port}/`);
    expect(verdict(answer)).toEqual([null, "destination_unavailable"]);
  });

  test("is followed to its new address, though the former one answered a moment ago", async () => {
    const seen: string[] = [];
    const [first, moved] = ["127.0.0.1", "127.0.0.2"];
    const server = (hostname: string, port: number) => {
      const fetch = () => {
        seen.push(hostname);
        return new Response("ok");
      };
      const started = Bun.serve({ hostname, port, fetch });
      cleanups.push(() => started.stop(true));
      return started.port as number;
    };
    const port = server(first, 0);
    server(moved, port);
    let address = first;
    let nowMs = 0;
    const sender = egress({
      settings: loopback,
      resolve: async () => at(address),
      now: () => nowMs,
    });
    await post(sender, `http://inbox.waypost.net:${port}/`);
    address = moved;
    // The name is resolved again; the test connection would still be spared.
    nowMs += 10_000;
    await post(sender, `http://inbox.waypost.net:${port}/`);
    expect(seen).toEqual([first, moved]);
  });

  test("whose known address went away is found at another one after a single failure", async () => {
    const known = Bun.serve({ hostname: "127.0.0.2", port: 0, fetch: () => new Response("first") });
    const port = known.port as number;
    const other = Bun.serve({ hostname: "127.0.0.1", port, fetch: () => new Response("other") });
    cleanups.push(() => other.stop(true));
    const sender = egress({
      settings: loopback,
      resolve: async () => at("127.0.0.2", "127.0.0.1"),
    });
    const endpoint = `http://inbox.waypost.net:${port}/`;
    expect(verdict(await post(sender, endpoint))).toEqual([200, null]);
    await known.stop(true);
    expect(verdict(await post(sender, endpoint))).toEqual([null, "destination_unavailable"]);
    expect(verdict(await post(sender, endpoint))).toEqual([200, null]);
  });

  test.each([400, 404, 410, 429, 500, 503])("its %i is reported as it is", async (status) => {
    const port = serve(() => new Response("no", { status }));
    expect(verdict(await post(egress(), `http://127.0.0.1:${port}/`))).toEqual([status, null]);
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
    const sender = egress({
      settings: egressSettings({ allow_private: [] }),
      resolve: async () => at("127.0.0.1"),
    });
    for (const endpoint of spellings(port)) {
      const answer = await post(sender, endpoint);
      expect([endpoint, answer.error, answer.giveUp]).toEqual([
        endpoint,
        "destination_refused",
        true,
      ]);
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
    .concat([
      "ff02::1",
      "224.0.0.1",
      "255.255.255.255",
      "192.168.1.1",
      "172.16.0.1",
      "not-an-address",
      "",
    ]);
  test.each(hidden)("a public name that leads to %p is refused", async (address) => {
    const sniffer = sniff("0.0.0.0");
    const sender = egress({
      settings: egressSettings({ allow_private: [] }),
      resolve: async () => at(address),
    });
    expect((await post(sender, `http://inbox.waypost.net:${sniffer.port}/`)).error).toBe(
      "destination_refused",
    );
    expect(sniffer.connections).toBe(0);
  });

  test("an answer of the name server with one bad address among good ones is refused whole", async () => {
    const sniffer = sniff("0.0.0.0");
    const sender = egress({ resolve: async () => at("127.0.0.1", "127.0.0.2") });
    expect((await post(sender, `http://inbox.waypost.net:${sniffer.port}/`)).error).toBe(
      "destination_refused",
    );
    expect(sniffer.connections).toBe(0);
  });

  test("more addresses than anyone needs are refused", async () => {
    const sender = egress({ resolve: async () => at(...new Array<string>(17).fill("127.0.0.1")) });
    expect((await post(sender, "http://inbox.waypost.net:9999/")).error).toBe(
      "destination_refused",
    );
  });

  test.skipIf(process.platform !== "linux")(
    "a name that changes its address reaches only what was checked",
    async () => {
      const port = serve(() => new Response("ok"));
      const sniffer = sniff("127.0.0.2", port);
      let lookups = 0;
      const resolve = async () => at(++lookups === 1 ? "127.0.0.1" : "127.0.0.2");
      let nowMs = 0;
      const sender = egress({ resolve, now: () => nowMs });
      expect(verdict(await post(sender, `http://inbox.waypost.net:${port}/`))).toEqual([200, null]);
      expect(lookups).toBe(1);
      nowMs += 61_000;
      expect((await post(sender, `http://inbox.waypost.net:${port}/`)).error).toBe(
        "destination_refused",
      );
      expect([lookups, sniffer.connections]).toEqual([2, 0]);
    },
  );

  test.each([301, 302, 303, 307, 308])("a %i to another place is not followed", async (status) => {
    const sniffer = sniff("127.0.0.1");
    const location = `http://127.0.0.1:${sniffer.port}/admin`;
    const port = serve(() => new Response(null, { status, headers: { location } }));
    const answer = await post(egress(), `http://127.0.0.1:${port}/`);
    expect([answer.error, answer.httpStatus]).toEqual(["invalid_answer", null]);
    expect(sniffer.connections).toBe(0);
  });

  test("proxy variables set while running are not used", async () => {
    // Others of this process may use them.
    const asked: string[] = [];
    const data = (socket: Bun.Socket, head: Buffer) => {
      asked.push(head.toString("latin1"));
      socket.end();
    };
    const proxy = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data } });
    cleanups.push(() => proxy.stop(true));
    for (const name of ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"]) {
      process.env[name] = `http://127.0.0.1:${proxy.port}`;
      cleanups.push(() => delete process.env[name]);
    }
    const port = serve(() => new Response("ok"));
    const tlsPort = serve(() => new Response("ok"), true);
    const sender = egress({ resolve: async () => at("127.0.0.1"), ca: [testAuthority] });
    expect(verdict(await post(sender, `http://inbox.waypost.test:${port}/`))).toEqual([200, null]);
    expect(verdict(await post(sender, `https://inbox.waypost.test:${tlsPort}/`))).toEqual([
      200,
      null,
    ]);
    const ofOurs = asked.filter(
      (head) => head.includes(`:${port}`) || head.includes(`:${tlsPort}`),
    );
    expect(ofOurs).toEqual([]);

    // A request that does use them is seen.
    await fetch(`http://127.0.0.1:${port}/`, { proxy: `http://127.0.0.1:${proxy.port}` }).catch(
      () => undefined,
    );
    expect(asked.some((head) => head.includes(`:${port}`))).toBe(true);
  });

  test("http is refused where only https is allowed, and the node never asks itself", async () => {
    const sniffer = sniff("127.0.0.1");
    const url = `http://127.0.0.1:${sniffer.port}`;
    const answers = [
      await post(egress({ settings: egressSettings({ allow_http: false }) }), `${url}/`),
      await post(egress({ settings: egressSettings({ public_endpoints: [url] }) }), `${url}/relay`),
    ];
    expect(answers.map((answer) => answer.error)).toEqual([
      "destination_refused",
      "destination_refused",
    ]);
    expect(sniffer.connections).toBe(0);
  });
});
