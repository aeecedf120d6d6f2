/**
 * What `waypost doctor` asks over the network: a node that already runs with this configuration, the
 * Directory that recipients are learnt from, the keys of chain operators, and the public endpoints as others
 * see them.
 */

import { lookup } from "node:dns/promises";
import { readFileSync } from "node:fs";
import { isExposed } from "../app/signing-key.ts";
import type { Config } from "../config/schema.ts";
import { parseListenAddress } from "../core/message/client-address.ts";
import { errorText } from "../core/std/error-text.ts";
import type { Finding } from "./doctor.ts";
import { askJson, checkEndpoint, type JsonReply } from "./node-info.ts";

// ------------------------------------------------------------------------------------------ a running node

export type RunningNode = { readonly url: string; readonly unix: string | undefined };

/** The first public listener where a node with this configuration answers; `null` when none runs. */
export async function runningNode(config: Config): Promise<RunningNode | null> {
  const scheme = config.server.tls_cert_file === null ? "http" : "https";
  for (const address of config.server.listen) {
    const place = parseListenAddress(address);
    if (place === null) continue;
    const unix = "unix" in place ? place.unix : undefined;
    const url = "unix" in place ? "http://localhost" : `${scheme}://${hostOf(place.hostname)}:${place.port}`;
    const reply = await askJson(url, "/node", { unix, isOwn: true });
    if (typeof reply !== "string" && isNodeOf(config, reply.json)) return { url, unix };
  }
  return null;
}

/** Whether roles and endpoints are those of the configuration: another node may have taken the address. */
function isNodeOf(config: Config, about: JsonReply["json"]): boolean {
  const roles = (["directory", "relay", "cache"] as const).filter((role) => config[role].enabled);
  const expected = [
    roles,
    config.relay.enabled ? config.relay.public_endpoints : [],
    config.cache.enabled ? config.cache.public_endpoints : [],
  ];
  return (
    JSON.stringify([about["roles"], about["relay_endpoints"], about["cache_endpoints"]]) === JSON.stringify(expected)
  );
}

/** Where a wildcard address is reached from this machine. */
function hostOf(hostname: string): string {
  if (hostname === "0.0.0.0") return "127.0.0.1";
  if (hostname === "::") return "[::1]";
  return hostname.includes(":") ? `[${hostname}]` : hostname;
}

/** Readiness of the running node, which holds the addresses and the stores. */
export async function findingsOfNode({ url, unix }: RunningNode): Promise<Finding[]> {
  const ready = await askJson(url, "/readyz", { unix, isOwn: true });
  const name = "running node";
  if (typeof ready === "string") return [{ name, ok: false, detail: `${unix ?? url}: ${ready}` }];
  if (ready.status === 200) return [{ name, ok: true, detail: `${unix ?? url} is ready; its stores were not opened` }];
  return [{ name, ok: false, detail: `${unix ?? url}: ${String(ready.json["detail"] ?? "not ready")}` }];
}

// ------------------------------------------------------------------------------- sources and chain operators

const skewMsMax = 30_000;

/** The Directories that recipients are learnt from: whether they answer, and whether the clocks agree. */
export async function directories(config: Config): Promise<Finding[]> {
  const urls = (["relay", "cache"] as const)
    .filter((node) => config[node].enabled)
    .map((node) => config[node].recipients)
    .filter((recipients) => URL.canParse(recipients) && /^https?:/.test(recipients));
  return Promise.all([...new Set(urls)].map(directoryFinding));
}

async function directoryFinding(url: string): Promise<Finding> {
  const name = `directory ${url}`;
  const reply = await askJson(url, "/readyz");
  if (typeof reply === "string") return { name, ok: false, detail: reply };
  if (reply.status !== 200) return { name, ok: false, detail: `answers ${reply.status}: it is not ready` };
  const skewMs = reply.dateMs === null ? 0 : Date.now() - reply.dateMs;
  if (Math.abs(skewMs) > skewMsMax)
    return { name, ok: false, detail: `its clock and this one differ by ${Math.round(skewMs / 1_000)} s` };
  return { name, ok: true, detail: "is ready, and the clocks agree" };
}

/** The files with the keys of chain operators: there, readable, and readable by nobody else. */
export async function operatorKeys({ stores }: Config): Promise<Finding[]> {
  return Object.entries(stores).flatMap(([store, options]) => {
    const file = options["operator_key_file"];
    return typeof file === "string" ? [{ name: `operator key of store ${store}`, ...keyFileFinding(file) }] : [];
  });
}

function keyFileFinding(file: string): Omit<Finding, "name"> {
  try {
    if (readFileSync(file, "utf8").trim() === "") return { ok: false, detail: `${file} is empty` };
    if (isExposed(file)) return { ok: false, detail: `other users may read ${file}; run: chmod 600 ${file}` };
    return { ok: true, detail: file };
  } catch (error) {
    return { ok: false, detail: errorText(error) };
  }
}

// ------------------------------------------------------------------------------------------ public endpoints

/**
 * Each public endpoint as this machine reaches it: its name resolves, its certificate holds, and a node
 * with the published role answers there and names the same endpoint. While no node runs, a failure is only a
 * warning: nothing can answer yet.
 */
export async function publicEndpoints(config: Config, isRunning: boolean): Promise<Finding[]> {
  const published = (["relay", "cache"] as const).flatMap((role) =>
    config[role].enabled ? config[role].public_endpoints.map((endpoint) => ({ role, endpoint })) : [],
  );
  const findings = await Promise.all(published.map(endpointFinding));
  return findings.map((finding) => (finding.ok || isRunning ? finding : { ...finding, ok: true, warning: true }));
}

async function endpointFinding(published: { role: "relay" | "cache"; endpoint: string }): Promise<Finding> {
  const { role, endpoint } = published;
  const name = `public endpoint ${endpoint} (${role})`;
  const { hostname } = new URL(endpoint);
  try {
    await lookup(hostname.replace(/^\[|\]$/g, ""));
  } catch {
    return { name, ok: false, detail: `${hostname} has no address: publish it in DNS` };
  }
  const check = await checkEndpoint(endpoint, role);
  if (check.state === "ok") return { name, ok: true, detail: "answers and names itself so" };
  return { name, ok: false, detail: check.state === "unknown" ? "answers, but not as this version" : check.reason };
}
