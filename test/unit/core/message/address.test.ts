/**
 * Addresses and endpoint URLs that strangers choose: every trick of spelling, every special range.
 */
import { describe, expect, test } from "bun:test";
import { BlockList } from "node:net";
import fc from "fast-check";
import {
  decideAddresses,
  type EndpointRules,
  isLoopbackAddress,
  isPublicAddress,
  networkHolds,
  parseAddress,
  parseEndpoint,
  parseNetwork,
  type ServiceEndpoint,
} from "../../../../src/core/message/address.ts";

const strict: EndpointRules = {
  allowHttp: false,
  allowPrivate: [],
  ownRelays: ["https://self.waypost.net/"],
};

describe("addresses", () => {
  const refused = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "0:0:0:0:0:ffff:7f00:1",
    "64:ff9b::7f00:1",
    "64:ff9b::8.8.8.8",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:1ff:ffff::1",
    "2001:db8::1",
    "2002:7f00:1::1",
    "3fff:fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd12:3456::1",
    "fe80::1",
    "fec0::1",
    "ff02::1",
  ];
  test.each(refused)("%s is not public", (text) => {
    const address = parseAddress(text);
    expect(address).not.toBeNull();
    expect(isPublicAddress(address!)).toBe(false);
  });

  const admitted = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2001:200::1",
    "2606:4700::1111",
    "2a00:1450:4001:81b::200e",
    "3ffe::1",
  ];
  test.each(admitted)("%s is public", (text) => {
    expect(isPublicAddress(parseAddress(text)!)).toBe(true);
  });

  test("public addresses agree with an independent reading of the registries, at random and at every border", () => {
    const refusedV4 = new BlockList();
    const ranges =
      "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24";
    const more =
      "192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4";
    const borders: number[] = [0, 0xffffffff];
    for (const range of `${ranges} ${more}`.split(" ")) {
      const [base, bits] = range.split("/") as [string, string];
      refusedV4.addSubnet(base, Number(bits), "ipv4");
      const first = Buffer.from(parseAddress(base)!.toByteArray()).readUInt32BE(0);
      const last = first + 2 ** (32 - Number(bits)) - 1;
      borders.push(first - 1, first, last, last + 1);
    }
    const random = Array.from({ length: 20_000 }, () => Math.floor(Math.random() * 2 ** 32));
    for (const number of [...borders, ...random]) {
      const text = [24, 16, 8, 0].map((shift) => (number >>> shift) & 255).join(".");
      expect([text, isPublicAddress(parseAddress(text)!)]).toEqual([
        text,
        !refusedV4.check(text, "ipv4"),
      ]);
    }
  });

  const notAddresses = [
    "",
    "1",
    "127.1",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "256.1.1.1",
    "1.2.3.4.5",
    "01.2.3.4",
    " 1.2.3.4",
    "1.2.3.4 ",
  ]
    .concat([
      ":",
      ":::",
      "1::2::3",
      "::1%eth0",
      "12345::",
      "1:2:3:4:5:6:7",
      "1:2:3:4:5:6:7:8:9",
      "1:2:3:4:5:6:7::8:9",
      "::1.2.3",
      "::1:",
      "fd00::1:2:",
    ])
    .concat(["1.2.3.4::", "::g", "1:2:3:4:5:6:7:8::", "١.1.1.1"]);
  test.each(notAddresses)("%p is not an address", (text) => {
    expect(parseAddress(text)).toBeNull();
  });

  test("every usual spelling of an IPv6 address is parsed to the same bytes", () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 16, maxLength: 16 }), (bytes) => {
        const groups = Array.from(
          { length: 8 },
          (_, i) => ((bytes[2 * i] as number) << 8) | (bytes[2 * i + 1] as number),
        );
        const full = groups.map((group) => group.toString(16)).join(":");
        const canonical = new URL(`http://[${full}]/`).hostname.slice(1, -1);
        expect(parseAddress(full)?.toByteArray()).toEqual([...bytes]);
        expect(parseAddress(canonical)?.toByteArray()).toEqual([...bytes]);
      }),
      { numRuns: 500 },
    );
  });

  test("a network contains exactly the addresses with its prefix", () => {
    fc.assert(
      fc.property(
        fc.uint8Array({ minLength: 4, maxLength: 4 }),
        fc.uint8Array({ minLength: 4, maxLength: 4 }),
        fc.nat(32),
        (a, b, prefixBits) => {
          const number = (bytes: Uint8Array) =>
            new DataView(bytes.buffer, bytes.byteOffset).getUint32(0);
          const same =
            prefixBits === 0 || number(a) >>> (32 - prefixBits) === number(b) >>> (32 - prefixBits);
          const [address, other] = [a, b].map((bytes) => parseAddress([...bytes].join("."))!);
          expect(networkHolds({ address: address!, prefixBits }, other!)).toBe(same);
        },
      ),
      { numRuns: 1_000 },
    );
    expect(networkHolds(parseNetwork("127.0.0.0/8")!, parseAddress("::ffff:127.0.0.1")!)).toBe(
      false,
    );
  });

  test.each([
    "10.0.0.1/8",
    "10.0.0.0/33",
    "10.0.0.0/08",
    "10.0.0.0/",
    "/8",
    "10.0.0.0/8/8",
    "::1/129",
    "localhost",
  ])("%p is not a network", (text) => {
    expect(parseNetwork(text)).toBeNull();
  });

  test("loopback is recognized in its mapped form too", () => {
    expect(["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"].every(isLoopbackAddress)).toBe(
      true,
    );
    expect(["8.8.8.8", "::2", "::ffff:8.8.8.8", "", "localhost"].some(isLoopbackAddress)).toBe(
      false,
    );
  });
});

describe("endpoints", () => {
  const refused = [
    "",
    "https://",
    "inbox.waypost.net",
    "//inbox.waypost.net/x",
    "http://inbox.waypost.net/x",
    "ftp://inbox.waypost.net/x",
    "file:///etc/passwd",
    "data:text/plain,hello",
    "s3://bucket/key",
    "unix:///run/docker.sock",
    "javascript:alert(1)",
    "https:inbox.waypost.net",
    "https:/inbox.waypost.net",
    "https:\\\\inbox.waypost.net\\x",
    "https://inbox.waypost.net\\@127.0.0.1/",
    "https://user@inbox.waypost.net/x",
    "https://user:pass@inbox.waypost.net/x",
    "https://@inbox.waypost.net/x",
    "https://inbox.waypost.net/x#fragment",
    "https://inbox.waypost.net#",
    " https://inbox.waypost.net/x",
    "https://inbox.waypost.net/x ",
    "https://inbox.way\tpost.net/x",
    "https://inbox.waypost.net/\n",
    "https://inbox.waypost.net/\u0000",
    "https://inbox.way\u00adpost.net/x",
    "https://ⓦaypost.net/x",
    "https://１２７.０.０.１/x",
    "https://%31%32%37.0.0.1/x",
    "https://inbox%2ewaypost.net/x",
    "https://127.1/x",
    "https://0x7f.1/x",
    "https://0x7f000001/x",
    "https://0177.0.0.1/x",
    "https://2130706433/x",
    "https://1.2.3/x",
    "https://0/x",
    "https://127.0.0.1./x",
    "https://inbox.waypost.net./x",
    "https://inbox..waypost.net/x",
    "https://.waypost.net/x",
    "https://-a.waypost.net/x",
    "https://in_box.waypost.net/x",
    "https://[::1%25eth0]/x",
    "https://[::ffff:127.0.0.1]/x",
    "https://[0:0:0:0:0:0:0:1]/x",
    "https://[::1/x",
    "https://inbox.waypost.net:0/x",
    "https://inbox.waypost.net:22/x",
    "https://inbox.waypost.net:25/x",
    "https://inbox.waypost.net:0443/x",
    "https://inbox.waypost.net:65536/x",
    "https://inbox.waypost.net:/x",
    "https://inbox.waypost.net:+443/x",
    `https://${"a".repeat(64)}.net/x`,
    `https://inbox.waypost.net/${"a".repeat(2_048)}`,
    "https://self.waypost.net/relay",
    "https://SELF.waypost.net:443/relay?x=1",
    "https://self.waypost.net/x/../relay/did:svc:1",
  ];
  test.each(refused)("%p is refused", (text) => {
    expect(parseEndpoint(text, "", strict)).toBeNull();
  });

  test("a plain endpoint keeps its path and query", () => {
    expect(parseEndpoint("https://Inbox.Waypost.net:8443/In/Box?k=V", "", strict)).toEqual({
      scheme: "https",
      host: "inbox.waypost.net",
      port: 8443,
      target: "/In/Box?k=V",
      origin: "https://inbox.waypost.net:8443",
      localOnly: false,
    });
    expect(parseEndpoint("https://a.net", "", strict)?.target).toBe("/");
  });

  test("a suffix goes behind the path without its trailing slashes, and never behind a query", () => {
    expect(parseEndpoint("https://a.net/base//", "/cache/store", strict)?.target).toBe(
      "/base/cache/store",
    );
    expect(parseEndpoint("https://a.net", "/cache/store", strict)?.target).toBe("/cache/store");
    expect(parseEndpoint("https://a.net/?q=1", "/cache/store", strict)).toBeNull();
  });

  test("this Relay's host may be reached beside /relay, where a Cache may live", () => {
    expect(parseEndpoint("https://self.waypost.net", "/cache/store", strict)?.target).toBe(
      "/cache/store",
    );
    expect(parseEndpoint("https://self.waypost.net/relays", "", strict)?.target).toBe("/relays");
    expect(parseEndpoint("https://self.waypost.net", "/relay/did", strict)).toBeNull();
  });

  test("ports of the system are refused, but those of the web; 1024 is the first of the others", () => {
    const portOf = (port: number) =>
      parseEndpoint(`https://a.net:${port}/x`, "", { ...strict, allowHttp: true })?.port ?? null;
    expect([80, 443, 1_023, 1_024, 65_535].map(portOf)).toEqual([80, 443, null, 1_024, 65_535]);
  });

  test("http is accepted only where it is allowed", () => {
    expect(parseEndpoint("http://a.net/x", "", { ...strict, allowHttp: true })?.port).toBe(80);
  });

  const local = [
    "https://127.0.0.1/x",
    "https://[::1]/x",
    "https://8.8.8.8/x",
    "https://localhost/x",
    "https://cache/x",
  ]
    .concat([
      "https://a.local/x",
      "https://b.localhost/x",
      "https://c.internal/x",
      "https://r.home.arpa/x",
      "https://z.onion/x",
    ])
    .concat(["https://a.test/x", "https://a.example/x", "https://a.invalid/x"]);
  test.each(local)("%s reaches only listed networks", (text) => {
    const endpoint = parseEndpoint(text, "", strict) as ServiceEndpoint;
    expect(endpoint.localOnly).toBe(true);
    expect(decideAddresses(endpoint, ["8.8.8.8"], { allowPrivate: [], ownAddresses: [] })).toBe(
      false,
    );
    const listed = [parseNetwork("8.8.8.0/24")!];
    expect(decideAddresses(endpoint, ["8.8.8.8"], { allowPrivate: listed, ownAddresses: [] })).toBe(
      true,
    );
  });

  test("every resolved address must pass, and own addresses never do", () => {
    const endpoint = parseEndpoint("https://a.net/x", "", strict) as ServiceEndpoint;
    const rules = {
      allowPrivate: [parseNetwork("10.1.0.0/16")!],
      ownAddresses: [parseNetwork("9.9.9.9")!],
    };
    expect(decideAddresses(endpoint, ["8.8.8.8", "2606:4700::1"], rules)).toBe(true);
    expect(decideAddresses(endpoint, ["8.8.8.8", "10.1.2.3"], rules)).toBe(true);
    expect(decideAddresses(endpoint, ["8.8.8.8", "10.2.2.3"], rules)).toBe(false);
    expect(decideAddresses(endpoint, ["8.8.8.8", "9.9.9.9"], rules)).toBe(false);
    expect(decideAddresses(endpoint, ["8.8.8.8", "nonsense"], rules)).toBe(false);
    expect(decideAddresses(endpoint, [], rules)).toBe(false);
  });

  test("no text makes the parser throw or accept a local target", () => {
    const host = fc.oneof(fc.domain(), fc.ipV4Extended(), fc.ipV6(), fc.string());
    fc.assert(
      fc.property(host, fc.string(), (name, path) => {
        for (const text of [`https://${name}/${path}`, `https://[${name}]/`, name, path]) {
          const endpoint = parseEndpoint(text, "", strict);
          if (endpoint === null) continue;
          expect(new URL(text).hostname.replace(/^\[|\]$/g, "")).toBe(endpoint.host);
          if (parseAddress(endpoint.host) !== null) expect(endpoint.localOnly).toBe(true);
        }
      }),
      { numRuns: 1_000 },
    );
  });
});
