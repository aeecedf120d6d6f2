/**
 * The host of the chat app (`server.app`): its files from memory, each with the headers
 * that keep everything else out of its origin, and nothing else. The page learns the nodes'
 * addresses from a meta element. The service worker learns the SHA-256 of every file, so
 * that a version is taken whole or not at all.
 * Source: CSP Level 3, Trusted Types, rules section 9.
 */
import { webFiles } from "#web";
import type { Config } from "../config/schema.ts";
import { encodeBase64 } from "../core/codec/bytes.ts";
import { type Fault, fault } from "../core/fault.ts";
import { isPrivateHost } from "../core/message/address.ts";
import type { Route } from "../nodes/http/route.ts";
import { nodeRoute } from "../nodes/http/status.ts";
import { version } from "../version.ts";

/** Where a new identity of the app registers, sends and receives. */
type AppHomes = {
  readonly directoryUrl: string;
  readonly relayUrl: string;
  readonly cacheUrl: string;
};

function homesOf({ server, directory, relay, cache }: Config): AppHomes {
  const [relayUrl = "", cacheUrl = ""] = [relay.public_endpoints[0], cache.public_endpoints[0]];
  return { directoryUrl: directory.enabled ? relayUrl : server.recipients, relayUrl, cacheUrl };
}

/**
 * For a program that was given the app's address; the page names the nodes as well. A page
 * elsewhere may read it too.
 */
export function notANode(config: Config): Fault {
  const nodes = [...new Set(Object.values(homesOf(config)))].join(", ");
  return fault("not_a_node", `this is the address of the app; that of its node is ${nodes}`, {
    headers: { "access-control-allow-origin": "*" },
  });
}

/** Headers of every answer. */
export function siteHeaders(config: Config): Record<string, string> {
  const homes = new Set(Object.values(homesOf(config)).map((url) => new URL(url).origin));
  return headersFor(
    [...homes].flatMap((origin) => [origin, origin.replace(/^http/, "ws")]).join(" "),
  );
}

function headersFor(connectsTo: string): Record<string, string> {
  const policy = [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "worker-src 'self'",
    "manifest-src 'self'",
    "img-src 'self' blob:",
    "media-src blob:",
    `connect-src ${connectsTo}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types worker",
  ];
  return {
    "content-security-policy": policy.join("; "),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(self), geolocation=()",
  };
}

/** The files of the app. */
export async function siteRoutes(config: Config): Promise<Route[]> {
  if (config.server.app === null) return [];
  const files = await webFiles();
  const encoder = new TextEncoder();
  const page = files.get("/");
  const worker = files.get("/worker.js");
  if (page === undefined || worker === undefined) throw new Error("the app is not whole");
  const node = JSON.stringify({ ...homesOf(config), version })
    .replaceAll("&", "&amp;")
    .replaceAll('"', "&quot;");
  page.bytes = encoder.encode(new TextDecoder().decode(page.bytes).replace("{node}", () => node));
  const listed = [...files]
    .filter(([path]) => path !== "/worker.js")
    .map(([path, { bytes }]) => [path, contentHash(bytes)]);
  const list = `self.files=${JSON.stringify(Object.fromEntries(listed))};\n`;
  worker.bytes = encoder.encode(list + new TextDecoder().decode(worker.bytes));
  const headers = siteHeaders(config);
  const ofWorker = headersFor("'self'");
  return [...files].map(([path, file]) =>
    fileRoute(path, file, path === "/worker.js" ? ofWorker : headers),
  );
}

/**
 * Where people find the app: by `https`, or without it at a host that only this machine or
 * its network reaches.
 */
export function appUrl({ server }: Config): string | null {
  if (server.app === null) return null;
  const isPlain = server.tls_cert_file === null && isPrivateHost(server.app);
  return `${isPlain ? "http" : "https"}://${server.app}`;
}

/**
 * `/` of the nodes' own host, where people come who were given that address: a browser is
 * led to the app, and keeps what stands behind `#`, an invitation too. Programs get the
 * refusal that they got from every path without a route.
 */
export function doorRoute(config: Config): Route {
  const app = appUrl(config);
  const page = { contentType: "text/html; charset=utf-8", content: doorPage };
  return {
    ...nodeRoute({
      path: "/",
      id: "door",
      summary: "For a browser: the way to the app",
      answer: [
        200,
        "A page that says what this address is, where the node has no app.",
        "text/html; charset=utf-8",
      ],
      codes: ["not_found"],
      handle: ({ headers }) => {
        if (!/\btext\/html\b/.test(headers.get("accept") ?? ""))
          return fault("not_found", "there is no such route");
        return app === null
          ? { status: 200, headers: doorHeaders, body: page }
          : { status: 302, headers: { ...doorHeaders, location: `${app}/` }, body: page };
      },
    }),
    also: [302, "The app is there.", "text/html; charset=utf-8"],
  };
}

const doorHeaders = {
  "content-security-policy":
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  vary: "Accept",
};

const doorPage = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Waypost</title>
<h1>Waypost</h1>
<p>This address is for Waypost apps, not for people. Ask the person who gave it to you where the app is.
</html>
`;

type File = { readonly contentType: string; readonly bytes: Uint8Array };

function fileRoute(
  path: string,
  { contentType, bytes }: File,
  headers: Record<string, string>,
): Route {
  // As far as gzip goes: 40 ms for all files together, once.
  const gzip = Bun.gzipSync(bytes.slice(), { level: 12, library: "libdeflate" });
  // A name with a hash never gets other content.
  const cacheControl = /-[a-z0-9]{8}\./.test(path)
    ? "public, max-age=31536000, immutable"
    : "no-cache";
  return {
    method: "GET",
    path,
    id: `app ${path}`,
    summary: "A file of the app",
    tag: "Node",
    capacity: "normal",
    answer: [200, "The file."],
    answerHeaders: headers,
    handle: (call) => {
      const takesGzip = /\bgzip\b/.test(call.headers.get("accept-encoding") ?? "");
      const encoding: Record<string, string> = takesGzip ? { "content-encoding": "gzip" } : {};
      return {
        status: 200,
        headers: { "cache-control": cacheControl, vary: "Accept-Encoding", ...encoding },
        body: { contentType, content: takesGzip ? gzip : bytes },
      };
    },
  };
}

function contentHash(bytes: Uint8Array): string {
  return encodeBase64(new Bun.CryptoHasher("sha256").update(bytes).digest());
}
