/**
 * TLS without a proxy: real handshakes, files that change, and the reports about wrong ones.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TLSSocket, connect as tlsConnect } from "node:tls";
import { loadCertificate } from "../../src/app/certificate.ts";
import { checkConfig } from "../../src/config/config.ts";
import type { Config, ConfigInput } from "../../src/config/schema.ts";
import { nodeCertificates } from "../support/certificates.ts";
import { freePort, scratchFolder } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

const folder = scratchFolder();
afterAll(folder.remove);
const files = {
  tls_cert_file: join(folder.path, "node.crt"),
  tls_key_file: join(folder.path, "node.key"),
};

type Name = keyof typeof nodeCertificates;
function put(cert: Name, key: Name = cert): void {
  writeFileSync(files.tls_cert_file, nodeCertificates[cert].cert);
  writeFileSync(files.tls_key_file, nodeCertificates[key].key, { mode: 0o600 });
}

function configOf(server: Partial<ConfigInput["server"]> = {}): Config {
  const checked = checkConfig({
    server: { listen: [`127.0.0.1:${port}`], drain_timeout: "2s", ...files, ...server },
    stores: { main: { plugin: "memory", block_time_ms: 50 } },
    directory: { enabled: true },
  });
  if (!checked.ok) throw new Error(JSON.stringify(checked.problems));
  return checked.config;
}

const port = freePort();

describe("a node with a certificate", () => {
  let nodes: TestNodes;
  beforeAll(async () => {
    put("first");
    const { server, stores, directory } = configOf();
    nodes = await startTestNodes({
      server: { listen: server.listen, drain_timeout: "2s", ...files },
      stores,
      directory: { enabled: directory.enabled },
      relay: {},
      cache: {},
    });
  });
  afterAll(() => nodes.stop());
  /** The name in the certificate that a new connection gets. */
  async function presented(): Promise<string> {
    const socket = await handshake();
    const { subject } = socket.getPeerCertificate();
    socket.destroy();
    return String(subject.CN);
  }

  function handshake(): Promise<TLSSocket> {
    const { promise, resolve, reject } = Promise.withResolvers<TLSSocket>();
    const ca = [nodeCertificates.first.cert, nodeCertificates.second.cert];
    const socket = tlsConnect({ host: "127.0.0.1", port, servername: "localhost", ca }, () =>
      resolve(socket),
    );
    socket.on("error", reject);
    return promise;
  }

  test("speaks TLS that a client verifies, and names itself by https", async () => {
    expect(nodes.url).toBe(`https://127.0.0.1:${port}`);
    const reply = await fetch(`${nodes.url}/healthz`, { tls: { ca: nodeCertificates.first.cert } });
    expect([reply.status, await presented()]).toEqual([200, "first"]);
    await expect(fetch(`http://127.0.0.1:${port}/healthz`)).rejects.toThrow();
  });

  test("names the end of its certificate, and keeps it while the files hold another", async () => {
    const metrics = await fetch(`${nodes.url}/metrics`, {
      tls: { ca: nodeCertificates.first.cert },
    });
    expect(await metrics.text()).toMatch(/waypost_tls_certificate_not_after_seconds [45]\d{9}\n/);
    put("second");
    expect(await presented()).toBe("first");
    put("first");
  });

  test("refuses an address in use", async () => {
    put("first");
    const { server, stores, directory } = configOf();
    const second = startTestNodes({
      server: { listen: server.listen, ...files },
      stores,
      directory: { enabled: directory.enabled },
      relay: {},
      cache: {},
    });
    await expect(second).rejects.toThrow("can't be listened on");
  });

  test("says that TLS begins and ends with a restart", async () => {
    const plan = await nodes.reload(configOf({ tls_cert_file: null, tls_key_file: null }));
    expect(plan.needsRestart).toEqual(["server.tls_cert_file", "server.tls_key_file"]);
  });
});

describe("files that are wrong name their setting and what is wrong", () => {
  const problemOf = (nowMs = Date.now()): unknown => {
    const loaded = loadCertificate(configOf(), nowMs);
    return loaded !== null && "setting" in loaded ? loaded : null;
  };
  const of = (setting: string, reason: string) => ({
    setting,
    message: expect.stringContaining(reason),
  });
  const [certSetting, keySetting] = ["server.tls_cert_file", "server.tls_key_file"] as const;

  test("expired, not yet valid, mismatched", () => {
    put("first");
    expect(problemOf()).toBe(null);
    expect(problemOf(0)).toEqual(of(certSetting, "which is not now"));
    put("expired");
    expect(problemOf()).toEqual(of(certSetting, "which is not now"));
    put("first", "second");
    expect(problemOf()).toEqual(of(keySetting, "is not the key of the first certificate"));
  });

  test("something else than PEM, a key with a passphrase, and no file", () => {
    put("first");
    writeFileSync(
      files.tls_key_file,
      "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    expect(problemOf()).toEqual(of(keySetting, "without a passphrase"));
    writeFileSync(files.tls_cert_file, "certificate");
    expect(problemOf()).toEqual(of(certSetting, "begins with no certificate"));
    const missing = configOf({ tls_cert_file: join(folder.path, "none.crt") });
    expect(loadCertificate(missing, Date.now())).toEqual(of(certSetting, "can't be read"));
  });
});
