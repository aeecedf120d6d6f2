/**
 * Addresses of listeners and of clients: where a node listens, which proxies it trusts, which client stands
 * behind them, and the network that a client is counted under.
 * Source: rules section 5 ("Rate limits"), section 9.
 */
import { encodeHex } from "../codec/bytes.ts";
import { type Address, type Network, networkHolds, parseAddress, parseNetwork, unmapAddress } from "./address.ts";

/** Clients on a Unix socket, and requests that came without a connection. */
export const noAddress = "unix";

/** A network (`10.0.0.0/8`), an address, or `unix`: what `trusted_proxies` may hold. */
export function isProxyNetwork(text: string): boolean {
  return text === noAddress || parseNetwork(text) !== null;
}

/** The client's address from the address of the connection and `X-Forwarded-For`. */
export type ClientAddress = (forwarded: string | null, peer: string | null) => string;

/** Longest chain of proxies that is followed. */
const hopsMax = 16;

/**
 * `X-Forwarded-For` counts only when the connection itself comes from a trusted proxy. It is read from the right,
 * until the first address that is not a trusted proxy.
 */
export function clientAddress(trustedProxies: readonly string[]): ClientAddress {
  if (trustedProxies.length === 0) return (_forwarded, peer) => unmapText(peer ?? noAddress);
  const networks = trustedProxies.map(parseNetwork).filter((network): network is Network => network !== null);
  const trustsSocket = trustedProxies.includes(noAddress);
  const trusts = (text: string): boolean => {
    const address = parseAddress(text);
    if (address === null) return trustsSocket && text === noAddress;
    return networks.some((network) => networkHolds(network, address));
  };
  return (forwarded, peer) => {
    const nearest = unmapText(peer ?? noAddress);
    if (forwarded === null || !trusts(nearest)) return nearest;
    let client = nearest;
    for (const hop of forwarded.split(",").slice(-hopsMax).reverse()) {
      const address = unmapText(hop.trim());
      if (parseAddress(address) === null) return client;
      client = address;
      if (!trusts(address)) return client;
    }
    return client;
  };
}

/** IPv4 addresses that arrive mapped into IPv6 are written as IPv4. */
function unmapText(address: string): string {
  return /^::ffff:\d+\.\d+\.\d+\.\d+$/i.test(address) ? address.slice(7) : address;
}

/**
 * The network that a client is counted under, as hex: an IPv4 address, or the /64 of an IPv6 one, which one person
 * owns. Texts that are no address stay, cut to 64 characters.
 */
export function clientNetwork(client: string): string {
  const address: Address | null = unmapAddress(parseAddress(client));
  if (address === null) return client.slice(0, 64);
  return encodeHex(address.length === 4 ? address : address.subarray(0, 8));
}

// --------------------------------------------------------------------------------------------- listeners

export type ListenAddress = { readonly unix: string } | { readonly hostname: string; readonly port: number };

/** `host:port`, `[v6]:port` or `unix:/path`; `null` for anything else. */
export function parseListenAddress(text: string): ListenAddress | null {
  if (text.startsWith("unix:")) return text.length > 5 && text.length < 100 ? { unix: text.slice(5) } : null;
  const m = /^(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})$/.exec(text);
  if (m === null || Number(m[3]) > 65_535) return null;
  return { hostname: (m[1] ?? m[2]) as string, port: Number(m[3]) };
}

/** Only clients of this machine reach it. */
export function isLoopbackListener(text: string): boolean {
  const place = parseListenAddress(text);
  if (place === null) return false;
  if ("unix" in place) return true;
  return place.hostname === "localhost" || place.hostname === "::1" || /^127\.\d+\.\d+\.\d+$/.test(place.hostname);
}
