/** Whose address counts: the forwarded one only from a trusted proxy. */
import { describe, expect, test } from "bun:test";
import { clientAddress, isProxyNetwork } from "../../../../src/core/message/address.ts";

describe("the client's address", () => {
  test("a forwarded address counts only from a trusted proxy, read from the right", () => {
    const of = clientAddress(["10.0.0.0/8", "2001:db8::/32", "unix"]);
    expect(of("198.51.100.1", "203.0.113.9")).toBe("203.0.113.9");
    expect(of("1.1.1.1, 198.51.100.1, 10.2.3.4", "10.0.0.1")).toBe("198.51.100.1");
    expect(of("198.51.100.1, nonsense", "10.0.0.1")).toBe("10.0.0.1");
    expect(of("198.51.100.1", "::ffff:10.0.0.1")).toBe("198.51.100.1");
    expect(of("198.51.100.1", "2001:db8::7")).toBe("198.51.100.1");
    expect(of("198.51.100.1", null)).toBe("198.51.100.1");
    expect(clientAddress([])("198.51.100.1", "10.0.0.1")).toBe("10.0.0.1");
  });

  test("a chain is followed through at most sixteen proxies", () => {
    const of = clientAddress(["10.0.0.0/8"]);
    const chain = (proxies: number) =>
      ["198.51.100.1", ...Array(proxies).fill("10.1.1.1")].join(", ");
    expect(of(chain(15), "10.0.0.1")).toBe("198.51.100.1");
    expect(of(chain(16), "10.0.0.1")).toBe("10.1.1.1");
  });

  test("networks of proxies are checked", () => {
    for (const good of ["10.0.0.1", "10.0.0.0/8", "::1", "2001:db8::/32", "unix"])
      expect(isProxyNetwork(good)).toBe(true);
    for (const bad of ["10.0.0", "10.0.0.0/33", "::/129", "a", "10.0.0.0/8/8", "10.0.0.0/x"]) {
      expect(isProxyNetwork(bad)).toBe(false);
    }
  });
});
