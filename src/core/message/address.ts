/**
 * Network addresses: which addresses and endpoint URLs a Relay may reach, where a node
 * listens, and which client is behind a proxy. Strangers choose destinations: a URL must
 * have its one plain form, and an address is checked by its bits. IPv4 lists what is
 * refused, IPv6 what is allowed: mapped, translated, local and future ranges need no name.
 * Source: rules sections 5 ("Outbound requests", "Rate limits") and 9, RFC 6890, the IANA
 * special-purpose registries.
 */

import ipaddr from "ipaddr.js";

type Address = ipaddr.IPv4 | ipaddr.IPv6;
/** A network in CIDR form: the first `prefixBits` bits of `address`. */
export type Network = { readonly address: Address; readonly prefixBits: number };

/**
 * An address in dotted-decimal or RFC 4291 text, or `null`. Zones, octal and hex parts are
 * refused.
 */
export function parseAddress(text: string): Address | null {
  if (text.length > 45 || text.includes("%")) return null;
  const isPlain = text.includes(":")
    ? ipaddr.IPv6.isValid(text)
    : ipaddr.IPv4.isValidFourPartDecimal(text);
  return isPlain ? ipaddr.parse(text) : null;
}

/**
 * `10.0.0.0/8` or a single address; `null` for other texts, and for bits that are set
 * behind the prefix.
 */
export function parseNetwork(text: string): Network | null {
  const slash = text.indexOf("/");
  const address = parseAddress(slash < 0 ? text : text.slice(0, slash));
  if (address === null) return null;
  const bitsMax = address.toByteArray().length * 8;
  if (slash < 0) return { address, prefixBits: bitsMax };
  const digits = text.slice(slash + 1);
  if (!/^(0|[1-9]\d{0,2})$/.test(digits) || Number(digits) > bitsMax) return null;
  const prefixBits = Number(digits);
  const first = isIpv4(address)
    ? ipaddr.IPv4.networkAddressFromCIDR(text)
    : ipaddr.IPv6.networkAddressFromCIDR(text);
  return first.toString() === address.toString() ? { address, prefixBits } : null;
}

const isIpv4 = (address: Address): address is ipaddr.IPv4 => address.kind() === "ipv4";

export function networkHolds({ address: first, prefixBits }: Network, address: Address): boolean {
  if (isIpv4(first)) return isIpv4(address) && address.match(first, prefixBits);
  return !isIpv4(address) && address.match(first, prefixBits);
}

const networks = (...texts: string[]): Network[] =>
  texts.map((text) => parseNetwork(text) as Network);

const ipv4Refused = networks(
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.0.2.0/24",
  "192.88.99.0/24",
  "192.168.0.0/16",
  "198.18.0.0/15",
  "198.51.100.0/24",
  "203.0.113.0/24",
  "224.0.0.0/3",
);
const ipv6Allowed = networks("2000::/3");
const ipv6Refused = networks("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20");

/** Whether an address belongs to the public internet. */
export function isPublicAddress(address: Address): boolean {
  const among = (list: readonly Network[]) =>
    list.some((network) => networkHolds(network, address));
  return isIpv4(address) ? !among(ipv4Refused) : among(ipv6Allowed) && !among(ipv6Refused);
}

const loopback = networks("127.0.0.0/8", "::1/128");

/** `127.0.0.1`, `::1` and `::ffff:127.0.0.1` begin like this, and hardly any other address does. */
const loopbackStart = /^(?:127\.|0|:)/;

/**
 * Whether a client's address is this machine itself, also in its IPv4-mapped form. Called
 * for every request.
 */
export function isLoopbackAddress(text: string): boolean {
  if (text === "127.0.0.1") return true;
  if (!loopbackStart.test(text)) return false;
  const address = unmapAddress(parseAddress(text));
  return address !== null && loopback.some((network) => networkHolds(network, address));
}

/**
 * The IPv4 address inside an IPv4-mapped one; any other address as it is. For clients,
 * never for destinations.
 */
export function unmapAddress(address: Address | null): Address | null {
  const isMapped = address !== null && !isIpv4(address) && address.isIPv4MappedAddress();
  return isMapped ? address.toIPv4Address() : address;
}

// --------------------------------------------------------------------------------------- endpoints

export type EndpointRules = {
  /** `http` endpoints may be used as well as `https`. */
  readonly allowHttp: boolean;
  /** Networks that may be reached although they are not public. */
  readonly allowPrivate: readonly Network[];
  /**
   * Public endpoints of this Relay (`https://relay.example`): it never sends an envelope to
   * itself.
   */
  readonly ownRelays: readonly string[];
  /** A public host is asked at the port of its scheme alone, where `http` is not allowed. */
  readonly usualPorts?: boolean;
};

export type ServiceEndpoint = {
  readonly scheme: "http" | "https";
  /** Lower-case name, or an address without brackets. */
  readonly host: string;
  readonly port: number;
  /** Path and query as they are requested. */
  readonly target: string;
  /** Scheme, host and port as published: what results may show. */
  readonly origin: string;
  /** A literal address or a name of local scope reaches only networks of `allowPrivate`. */
  readonly localOnly: boolean;
};

const endpointCharsMax = 2_048;
const endpointForm =
  /^(https?):\/\/((?:[a-z0-9.-]{1,253})|(?:\[[0-9a-f:.]{2,45}\]))(?::([1-9]\d{0,4}))?([/?][!-~]*)?$/i;
const labelForm = /^(?!-)[a-z0-9-]{1,63}(?<!-)$/;
const localSuffixes = [
  "local",
  "localhost",
  "internal",
  "arpa",
  "onion",
  "test",
  "example",
  "invalid",
  "alt",
];

/**
 * The endpoint of a published URL with `suffix` (`/cache/store`) behind its path, or `null`
 * when it may not be used: another scheme, credentials, a fragment, a host written in any
 * but its plain form, a port below 1024 that is not 80 or 443, this Relay's own `/relay`,
 * or a query where a suffix is to follow.
 */
export function parseEndpoint(
  text: string,
  suffix: string,
  rules: EndpointRules,
): ServiceEndpoint | null {
  if (text.length > endpointCharsMax || text.includes("#") || text.includes("\\")) return null;
  const parts = endpointForm.exec(text);
  if (parts === null) return null;
  const scheme = (parts[1] as string).toLowerCase() as "http" | "https";
  if (scheme === "http" && !rules.allowHttp) return null;
  const written = (parts[2] as string).toLowerCase();
  const usualPort = scheme === "https" ? 443 : 80;
  const port = parts[3] === undefined ? usualPort : Number(parts[3]);
  if (port > 65_535 || (port < 1_024 && port !== 80 && port !== 443)) return null;
  const url = URL.parse(text);
  if (url === null || url.hostname !== written || url.username !== "" || url.password !== "")
    return null;
  const scope = hostScope(written);
  const target = joinTarget(url, suffix);
  if (scope === null || target === null || isOwnRelay(url.origin + target, rules.ownRelays))
    return null;
  if (rules.usualPorts === true && scope === "global" && !rules.allowHttp && port !== 443)
    return null;
  const host = written.startsWith("[") ? written.slice(1, -1) : written;
  return { scheme, host, port, target, origin: url.origin, localOnly: scope === "local" };
}

/**
 * Whether a host alone shows that it is not reached: a literal address, or a local name
 * where none is allowed.
 */
export function isUnreachable({ host, localOnly }: ServiceEndpoint, rules: EndpointRules): boolean {
  const address = parseAddress(host);
  if (address === null) return localOnly && rules.allowPrivate.length === 0;
  return !rules.allowPrivate.some((network) => networkHolds(network, address));
}

/**
 * Under a suffix like `co.uk`, which has two short labels, names are registered one label
 * deeper.
 */
const countrySuffix = /^(?:ac|co|com|edu|gov|ne|net|or|org)\.[a-z]{2}$/;

/**
 * The name that its owner registered (`push.example` of `a.b.push.example`), which all
 * hosts below it share; an address is itself. Free hosts below one name
 * (`*.duckdns.example`) count as one owner.
 */
export function registeredName(host: string): string {
  if (parseAddress(host) !== null) return host;
  const labels = host.split(".");
  const depth = countrySuffix.test(labels.slice(-2).join(".")) ? 3 : 2;
  return labels.slice(-depth).join(".");
}

/**
 * Whether a URL leads to `/relay` below one of the endpoints: an envelope sent there would
 * come back.
 */
function isOwnRelay(url: string, ownRelays: readonly string[]): boolean {
  return ownRelays.some((endpoint) => {
    const own = `${endpoint.replace(/\/{1,64}$/, "")}/relay`;
    return url === own || url.startsWith(`${own}/`) || url.startsWith(`${own}?`);
  });
}

function hostScope(host: string): "global" | "local" | null {
  if (host.startsWith("[")) return parseAddress(host.slice(1, -1)) === null ? null : "local";
  if (parseAddress(host) !== null) return "local";
  const labels = host.split(".");
  if (!labels.every((label) => labelForm.test(label))) return null;
  return labels.length === 1 || localSuffixes.includes(labels.at(-1) as string)
    ? "local"
    : "global";
}

function joinTarget(url: URL, suffix: string): string | null {
  if (suffix === "") return url.pathname + url.search;
  if (url.search !== "") return null;
  return url.pathname.replace(/\/{1,64}$/, "") + suffix;
}

/**
 * Every address must pass, because the choice among them is not ours. Own addresses are
 * refused like private ones.
 */
export function decideAddresses(
  endpoint: ServiceEndpoint,
  addresses: readonly string[],
  rules: { readonly allowPrivate: readonly Network[]; readonly ownAddresses: readonly Network[] },
): boolean {
  if (addresses.length === 0) return false;
  return addresses.every((text) => {
    const address = parseAddress(text);
    if (address === null) return false;
    const among = (list: readonly Network[]) =>
      list.some((network) => networkHolds(network, address));
    if (among(rules.allowPrivate)) return true;
    return !endpoint.localOnly && isPublicAddress(address) && !among(rules.ownAddresses);
  });
}

// --------------------------------------------------------------------------- clients and listeners

/** Clients on a Unix socket, and requests that came without a connection. */
const noAddress = "unix";

/** A network (`10.0.0.0/8`), an address, or `unix`: what `trusted_proxies` may hold. */
export function isProxyNetwork(text: string): boolean {
  return text === noAddress || parseNetwork(text) !== null;
}

/** The client's address from the address of the connection and `X-Forwarded-For`. */
export type ClientAddress = (forwarded: string | null, peer: string | null) => string;

/** Longest chain of proxies that is followed. */
const hopsMax = 16;

/**
 * `X-Forwarded-For` counts only from a trusted proxy, read from the right to the first
 * address that is none.
 */
export function clientAddress(trustedProxies: readonly string[]): ClientAddress {
  if (trustedProxies.length === 0) return (_forwarded, peer) => unmapText(peer ?? noAddress);
  const networks = trustedProxies
    .map(parseNetwork)
    .filter((network): network is Network => network !== null);
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

/** A client counts by its IPv4 address, or the /64 of IPv6, one person's. Others are cut to 64. */
export function clientNetwork(client: string): string {
  const address = unmapAddress(parseAddress(client));
  if (address === null) return client.slice(0, 64);
  if (isIpv4(address)) return address.toString();
  const groups = address.parts.slice(0, 4).map((group) => group.toString(16));
  return `${groups.join(":")}::/64`;
}

/**
 * For stored messages: the /48. A home line has 256 networks of /64, a tenant of a data
 * centre 65,536.
 */
export function storingNetwork(network: string): string {
  return network.replace(/:[0-9a-f]{1,4}::\/64$/, "::/48");
}

// --------------------------------------------------------------------------------------- listeners

export type ListenAddress =
  | { readonly unix: string }
  | { readonly hostname: string; readonly port: number };

/** `host:port`, `[v6]:port` or `unix:/path`; `null` for anything else. */
export function parseListenAddress(text: string): ListenAddress | null {
  if (text.startsWith("unix:"))
    return text.length > 5 && text.length < 100 ? { unix: text.slice(5) } : null;
  const m = /^(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})$/.exec(text);
  if (m === null || Number(m[3]) > 65_535) return null;
  return { hostname: (m[1] ?? m[2]) as string, port: Number(m[3]) };
}

/** Whether only clients of this machine can reach the listener. */
export function isLoopbackListener(text: string): boolean {
  const place = parseListenAddress(text);
  if (place === null) return false;
  if ("unix" in place) return true;
  return (
    place.hostname === "localhost" ||
    place.hostname === "::1" ||
    /^127\.\d+\.\d+\.\d+$/.test(place.hostname)
  );
}

/**
 * An address or a name that no stranger can own. After DNS rebinding, a page's requests
 * name the page's own host.
 */
export function isPrivateHost(host: string): boolean {
  const name = host.replace(/:\d+$/, "").toLowerCase();
  const isAddress = /^\[[0-9a-f:.]+\]$/.test(name) || parseAddress(name) !== null;
  return isAddress || /^[a-z0-9_-]+$/.test(name) || /\.(localhost|local|internal)$/.test(name);
}
