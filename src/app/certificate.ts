/**
 * The certificate of the public listeners: two files in PEM, checked before anything
 * listens with them. Another certificate is served after a restart.
 */
import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Config } from "../config/schema.ts";
import { errorText } from "../core/fault.ts";
import type { Certificate } from "../nodes/http/server.ts";
import type { InputProblem } from "../storage/setting-problem.ts";
import { failed } from "./failure.ts";

type LoadedCertificate = Certificate & { readonly notAfterMs: number };

const certSetting = "server.tls_cert_file";
const keySetting = "server.tls_key_file";

/** `null` when no certificate is configured, a problem when it can't be used. */
export function loadCertificate(
  { server }: Config,
  nowMs: number,
): LoadedCertificate | InputProblem | null {
  const { tls_cert_file: certFile, tls_key_file: keyFile } = server;
  if (certFile === null || keyFile === null) return null;
  const cert = readAndParse(
    certSetting,
    certFile,
    (text) => new X509Certificate(text),
    "begins with no certificate in PEM",
  );
  if ("message" in cert) return cert;
  const key = readAndParse(
    keySetting,
    keyFile,
    createPrivateKey,
    "holds no private key in PEM without a passphrase",
  );
  if ("message" in key) return key;
  const { validFrom, validTo } = cert.parsed;
  if (!cert.parsed.checkPrivateKey(key.parsed)) {
    const message = `${keyFile} is not the key of the first certificate in ${certFile}: put the node's own certificate first`;
    return { setting: keySetting, message };
  }
  const [notBeforeMs, notAfterMs] = [Date.parse(validFrom), Date.parse(validTo)];
  if (notBeforeMs <= nowMs && nowMs < notAfterMs)
    return { cert: cert.text, key: key.text, notAfterMs };
  return {
    setting: certSetting,
    message: `${certFile} is valid from ${validFrom} to ${validTo}, which is not now`,
  };
}

function readAndParse<T>(
  setting: string,
  file: string,
  parse: (text: string) => T,
  refusal: string,
): { readonly text: string; readonly parsed: T } | InputProblem {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    return { setting, message: `${file} can't be read: ${errorText(error)}` };
  }
  try {
    return { text, parsed: parse(text) };
  } catch {
    return { setting, message: `${file} ${refusal}` };
  }
}

/** The configured certificate; a failure names what is wrong with it. */
export function certificateOf(config: Config, nowMs: number): LoadedCertificate | null {
  const loaded = loadCertificate(config, nowMs);
  if (loaded === null || "cert" in loaded) return loaded;
  throw failed(`${loaded.setting}: ${loaded.message}`);
}
