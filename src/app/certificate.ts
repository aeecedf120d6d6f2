/**
 * The certificate of the public listeners: two files in PEM, checked before anything listens with them. Another
 * certificate is served after a restart.
 */
import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { isIP } from "node:net";
import type { Config } from "../config/schema.ts";
import { dayMs } from "../core/codec/time.ts";
import { errorText } from "../core/fault.ts";
import type { Log } from "../nodes/http/log.ts";
import type { Certificate } from "../nodes/http/server.ts";
import type { InputProblem } from "../storage/contract.ts";
import { failed } from "./failure.ts";

type LoadedCertificate = Certificate & {
  readonly notAfterMs: number;
  /** Properties of a valid certificate that are probably a mistake. */
  readonly warnings: readonly InputProblem[];
};

type Files = { readonly cert: string; readonly key: string };

const certSetting = "server.tls_cert_file";
const keySetting = "server.tls_key_file";
/** Authorities renew a third of a life before the end; for 90 days that is 30 days. */
const expiresSoonMs = 14 * dayMs;

/** `null` when no certificate is configured, a problem when it can't be used. */
export function loadCertificate(config: Config, nowMs: number): LoadedCertificate | InputProblem | null {
  const { tls_cert_file: cert, tls_key_file: key } = config.server;
  return cert === null || key === null ? null : load({ cert, key }, publicHosts(config), nowMs);
}

function load(files: Files, hosts: readonly string[], nowMs: number): LoadedCertificate | InputProblem {
  const cert = readPem(files.cert);
  if ("error" in cert) return { setting: certSetting, message: `${files.cert} can't be read: ${cert.error}` };
  const key = readPem(files.key);
  if ("error" in key) return { setting: keySetting, message: `${files.key} can't be read: ${key.error}` };
  const leaf = orNull(() => new X509Certificate(cert.text));
  if (leaf === null) return { setting: certSetting, message: `${files.cert} does not begin with a certificate in PEM` };
  const secret = orNull(() => createPrivateKey(key.text));
  if (secret === null) {
    const hint = key.text.includes("ENCRYPTED") ? "; it has a passphrase: remove it" : "";
    return { setting: keySetting, message: `${files.key} holds no private key in PEM${hint}` };
  }
  if (!leaf.checkPrivateKey(secret)) {
    const message = `${files.key} is not the key of the first certificate in ${files.cert}: put the node's own certificate first, then its chain`;
    return { setting: keySetting, message };
  }
  const [notBeforeMs, notAfterMs] = [Date.parse(leaf.validFrom), Date.parse(leaf.validTo)];
  if (notAfterMs <= nowMs)
    return { setting: certSetting, message: `${files.cert} expired at ${isoOf(notAfterMs)}: renew it` };
  if (notBeforeMs > nowMs) {
    const message = `${files.cert} is valid from ${isoOf(notBeforeMs)} on; is the clock of this machine right?`;
    return { setting: certSetting, message };
  }
  const doubts = [...doubtsOf(files, leaf, { hosts, nowMs })];
  const warnings = doubts.map((message) => ({ setting: certSetting, message }));
  return { cert: cert.text, key: key.text, notAfterMs, warnings };
}

const isoOf = (ms: number): string => new Date(ms).toISOString();

/** Far more than any chain of certificates. */
const pemBytesMax = 1 << 20;

function readPem(path: string): { readonly text: string } | { readonly error: string } {
  try {
    if (statSync(path).size > pemBytesMax) return { error: "it is larger than 1 MiB" };
    return { text: readFileSync(path, "utf8") };
  } catch (error) {
    return { error: errorText(error) };
  }
}

/** `null` when the text has another form. */
function orNull<T>(parse: () => T): T | null {
  try {
    return parse();
  } catch {
    return null;
  }
}

/** Hosts of https by which others reach this process. */
function publicHosts({ server, directory, relay, cache }: Config): string[] {
  const endpoints = [relay, cache].flatMap((node) => (node.enabled ? node.public_endpoints : []));
  const home = directory.enabled ? (directory.public_endpoint ?? "") : "";
  const urls = [...endpoints, home].filter((one) => one.startsWith("https:"));
  const app = server.app === null ? [] : [`https://${server.app}`];
  return [...new Set([...urls, ...app].map((url) => new URL(url).hostname.replace(/^\[|\]$/g, "")))];
}

/** Properties of a valid certificate that are probably a mistake. */
function* doubtsOf(
  { cert }: Files,
  leaf: X509Certificate,
  { hosts, nowMs }: { readonly hosts: readonly string[]; readonly nowMs: number },
): Generator<string> {
  const notAfterMs = Date.parse(leaf.validTo);
  if (notAfterMs - nowMs <= expiresSoonMs) yield `${cert} expires at ${isoOf(notAfterMs)}`;
  for (const host of hosts)
    if ((isIP(host) === 0 ? leaf.checkHost(host) : leaf.checkIP(host)) === undefined)
      yield `${cert} does not name ${host}: clients will refuse it`;
}

/** The configured certificate; a failure names what is wrong with it. */
export function certificateOf(config: Config, nowMs: number): LoadedCertificate | null {
  const loaded = loadCertificate(config, nowMs);
  if (loaded === null || "cert" in loaded) return loaded;
  throw failed(`${loaded.setting}: ${loaded.message}`);
}

/** Logs once that the file holds another certificate than the one in use. Called every few seconds; reads some KiB. */
export function createRenewalNotice(file: string, inUse: Certificate, log: Log): () => void {
  let isLogged = false;
  return () => {
    const found = readPem(file);
    if (isLogged || "error" in found || found.text === inUse.cert) return;
    isLogged = true;
    log("warn", "the certificate on disk is newer: restart to serve it", { file });
  };
}
