/**
 * The certificate of the public listeners: two files in PEM, checked before anything listens with them, and read again
 * when they change. Files that are wrong while a node runs change nothing.
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

/** `code` is for programs: it names what is wrong with the files. */
type CertificateProblem = InputProblem & {
  readonly code:
    | "certificate_missing"
    | "certificate_unreadable"
    | "certificate_expired"
    | "certificate_not_yet_valid"
    | "key_missing"
    | "key_unreadable"
    | "key_mismatch";
};

export type LoadedCertificate = Certificate & {
  readonly notAfterMs: number;
  /** Properties of a valid certificate that are probably a mistake. */
  readonly warnings: readonly InputProblem[];
};

type Files = { readonly cert: string; readonly key: string };
type Loaded = { readonly ok: true; readonly certificate: LoadedCertificate };
type NotLoaded = { readonly ok: false; readonly problem: CertificateProblem };

const certSetting = "server.tls_cert_file";
const keySetting = "server.tls_key_file";
/** Authorities renew a third of a life before the end; for 90 days that is 30 days. */
const expiresSoonMs = 14 * dayMs;

/** `null` when no certificate is configured. */
export function loadCertificate(config: Config, nowMs: number): Loaded | NotLoaded | null {
  const { tls_cert_file: cert, tls_key_file: key } = config.server;
  return cert === null || key === null ? null : load({ cert, key }, publicHosts(config), nowMs);
}

function load(files: Files, hosts: readonly string[], nowMs: number): Loaded | NotLoaded {
  const cert = readPem(files.cert);
  if ("error" in cert) return problem("certificate_missing", certSetting, `${files.cert} can't be read: ${cert.error}`);
  const key = readPem(files.key);
  if ("error" in key) return problem("key_missing", keySetting, `${files.key} can't be read: ${key.error}`);
  const leaf = orNull(() => new X509Certificate(cert.text));
  if (leaf === null)
    return problem("certificate_unreadable", certSetting, `${files.cert} does not begin with a certificate in PEM`);
  const secret = orNull(() => createPrivateKey(key.text));
  if (secret === null) {
    const hint = key.text.includes("ENCRYPTED") ? "; it has a passphrase: remove it" : "";
    return problem("key_unreadable", keySetting, `${files.key} holds no private key in PEM${hint}`);
  }
  if (!leaf.checkPrivateKey(secret)) {
    const message = `${files.key} is not the key of the first certificate in ${files.cert}: put the node's own certificate first, then its chain`;
    return problem("key_mismatch", keySetting, message);
  }
  const [notBeforeMs, notAfterMs] = [Date.parse(leaf.validFrom), Date.parse(leaf.validTo)];
  if (notAfterMs <= nowMs)
    return problem("certificate_expired", certSetting, `${files.cert} expired at ${isoOf(notAfterMs)}: renew it`);
  if (notBeforeMs > nowMs) {
    const message = `${files.cert} is valid from ${isoOf(notBeforeMs)} on; is the clock of this machine right?`;
    return problem("certificate_not_yet_valid", certSetting, message);
  }
  const doubts = [...doubtsOf(files, leaf, { hosts, nowMs })];
  const warnings = doubts.map((message) => ({ setting: certSetting, message }));
  return { ok: true, certificate: { cert: cert.text, key: key.text, notAfterMs, warnings } };
}

function problem(code: CertificateProblem["code"], setting: string, message: string): NotLoaded {
  return { ok: false, problem: { code, setting, message } };
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

export type CertificateWatch = {
  /** Reads the files now. After a problem, the certificate in use stays. */
  readonly renew: () => "renewed" | "unchanged" | CertificateProblem;
  /** Seconds since 1970 of the end of the certificate in use. */
  readonly notAfterSeconds: () => number;
  readonly close: () => void;
};

const lookEveryMs = 10_000;

type WatchParts = {
  readonly config: Config;
  readonly first: LoadedCertificate;
  readonly apply: (certificate: Certificate) => void;
  readonly now: () => number;
  readonly log: Log;
};

/** Compares the content every ten seconds: two files of some KiB, so their times don't matter. */
export function watchCertificate({ config, first, apply, now, log }: WatchParts): CertificateWatch {
  let current = first;
  const renew: CertificateWatch["renew"] = () => {
    const loaded = loadCertificate(config, now());
    if (loaded === null) return "unchanged";
    if (!loaded.ok) return loaded.problem;
    const { certificate } = loaded;
    if (certificate.cert === current.cert && certificate.key === current.key) return "unchanged";
    apply(certificate);
    current = certificate;
    log("warn", "the certificate was renewed", { not_after: isoOf(certificate.notAfterMs) });
    return "renewed";
  };
  // A renewal writes two files. A check between the two finds a pair that does not match; the next one finds the new pair.
  let [seen, reported] = ["", ""];
  const timer = setInterval(() => {
    const outcome = renew();
    const message = typeof outcome === "string" ? "" : outcome.message;
    if (message !== "" && message === seen && message !== reported) {
      log("error", "the new certificate was not applied", { reason: message });
      reported = message;
    }
    seen = message;
  }, lookEveryMs);
  timer.unref();
  return { renew, notAfterSeconds: () => current.notAfterMs / 1_000, close: () => clearInterval(timer) };
}

/** The configured certificate; a failure names what is wrong with it. */
export function certificateOf(config: Config, nowMs: number): LoadedCertificate | null {
  const loaded = loadCertificate(config, nowMs);
  if (loaded === null || loaded.ok) return loaded?.certificate ?? null;
  throw failed(`${loaded.problem.setting}: ${loaded.problem.message}`);
}
