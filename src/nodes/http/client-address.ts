/**
 * Who is calling: the address of the client behind the proxies that the operator trusts, and the
 * request id. `X-Forwarded-For` counts only when the connection itself comes from a trusted proxy, and
 * is read from the right until the first address that is not one.
 * Source: decisions section 5 ("Rate limits"), section 9, section 10 ("X-Request-Id").
 */
import { BlockList, isIP } from "node:net";
import { encodeHex } from "../../core/codec/bytes.ts";
import { parseAddress, unmapAddress } from "../../core/message/address.ts";

/** Networks as `10.0.0.0/8`, single addresses, or `unix` for callers on a Unix socket. */
export type ClientAddress = (request: Request, peer: string | null) => string;

/** Callers on a Unix socket, and requests that came without a connection. */
export const noAddress = "unix";

/** Longest chain of proxies that is looked at. */
const hopsMax = 16;

export function clientAddress(trustedProxies: readonly string[]): ClientAddress {
  if (trustedProxies.length === 0) return (_request, peer) => normalAddress(peer ?? noAddress);
  const trusts = proxyList(trustedProxies);
  return (request, peer) => {
    const nearest = normalAddress(peer ?? noAddress);
    const forwarded = request.headers.get("x-forwarded-for");
    if (forwarded === null || !trusts(nearest)) return nearest;
    let client = nearest;
    for (const hop of forwarded.split(",").slice(-hopsMax).reverse()) {
      const address = normalAddress(hop.trim());
      if (isIP(address) === 0) return client;
      client = address;
      if (!trusts(address)) return client;
    }
    return client;
  };
}

function proxyList(networks: readonly string[]): (address: string) => boolean {
  const list = new BlockList();
  for (const network of networks) {
    const [address = "", bits] = network.split("/");
    const family = isIP(address);
    if (family === 0) continue;
    const type = family === 4 ? "ipv4" : "ipv6";
    if (bits === undefined) list.addAddress(address, type);
    else list.addSubnet(address, Number(bits), type);
  }
  const trustsSocket = networks.includes(noAddress);
  return (address) => {
    const family = isIP(address);
    if (family === 0) return trustsSocket && address === noAddress;
    return list.check(address, family === 4 ? "ipv4" : "ipv6");
  };
}

/** IPv4 addresses that arrive mapped into IPv6 are written as IPv4. */
function normalAddress(address: string): string {
  return /^::ffff:\d+\.\d+\.\d+\.\d+$/i.test(address) ? address.slice(7) : address;
}

/** Whom a client's address stands for: an IPv4 address, or the /64 of an IPv6 one, which one person owns. */
export function clientKey(client: string): string {
  const address = unmapAddress(parseAddress(client));
  if (address === null) return client.slice(0, 64);
  return encodeHex(address.length === 4 ? address : address.subarray(0, 8));
}

/** A network, an address or `unix`; for the check of the configuration. */
export function isProxyNetwork(text: string): boolean {
  if (text === noAddress) return true;
  const [address = "", bits, ...rest] = text.split("/");
  const family = isIP(address);
  if (family === 0 || rest.length > 0) return false;
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (family === 4 ? 32 : 128));
}

const requestIdForm = /^[A-Za-z0-9._-]{1,64}$/;

/** The caller's own id when it has the form, else a new one. */
export function requestIdOf(headers: Headers): string {
  const given = headers.get("x-request-id");
  return given !== null && requestIdForm.test(given) ? given : crypto.randomUUID();
}
