/**
 * TLS without a proxy: real handshakes before and after the files change, open connections that continue, and the
 * reports about wrong files.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TLSSocket, connect as tlsConnect } from "node:tls";
import { loadCertificate } from "../../src/app/certificate.ts";
import { checkConfig } from "../../src/config/config.ts";
import type { Config, ConfigInput } from "../../src/config/schema.ts";
import { freePort, scratchFolder } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { nodeCertificates } from "./certificates.ts";

const folder = scratchFolder();
afterAll(folder.remove);
const files = { tls_cert_file: join(folder.path, "node.crt"), tls_key_file: join(folder.path, "node.key") };

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
  afterEach(async () => {
    put("first");
    await nodes.reload(configOf());
  });

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
    const socket = tlsConnect({ host: "127.0.0.1", port, servername: "localhost", ca }, () => resolve(socket));
    socket.on("error", reject);
    return promise;
  }

  test("speaks TLS that a client verifies, and names itself by https", async () => {
    expect(nodes.url).toBe(`https://127.0.0.1:${port}`);
    const reply = await fetch(`${nodes.url}/healthz`, { tls: { ca: nodeCertificates.first.cert } });
    expect([reply.status, await presented()]).toEqual([200, "first"]);
    await expect(fetch(`http://127.0.0.1:${port}/healthz`)).rejects.toThrow();
  });

  test("presents a new certificate from the reload on, at every connection", async () => {
    put("second");
    await nodes.reload(configOf());
    const names = await Promise.all(Array.from({ length: 20 }, presented));
    expect(new Set(names)).toEqual(new Set(["second"]));
    const metrics = await fetch(`${nodes.url}/metrics`, { tls: { ca: nodeCertificates.second.cert } });
    expect(await metrics.text()).toMatch(/waypost_tls_certificate_not_after_seconds [45]\d{9}\n/);
  });

  test("answers on a connection whose request began before the change", async () => {
    const socket = await handshake();
    const answered = new Promise((resolve) => socket.once("data", (bytes) => resolve(String(bytes))));
    const ended = new Promise((resolve) => socket.once("close", () => resolve("closed")));
    socket.write(
      "POST /register-did HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{",
    );
    await Bun.sleep(100);
    put("second");
    await nodes.reload(configOf());
    await Bun.sleep(50);
    socket.write("}");
    expect(await Promise.race([answered, ended])).toStartWith("HTTP/1.1 400 ");
    socket.destroy();
  });

  test("keeps its certificate while the files are wrong", async () => {
    put("second", "first");
    await nodes.reload(configOf());
    expect(await presented()).toBe("first");
  });

  test("refuses an address in use, though its socket could be shared", async () => {
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

describe("files that are wrong have a code and name their setting", () => {
  const codeOf = (nowMs = Date.now()): unknown => {
    const loaded = loadCertificate(configOf(), nowMs);
    return loaded === null || loaded.ok ? loaded?.ok : [loaded.problem.code, loaded.problem.setting];
  };
  const [certSetting, keySetting] = ["server.tls_cert_file", "server.tls_key_file"];

  test("expired, not yet valid, mismatched", () => {
    put("first");
    expect(codeOf()).toBe(true);
    expect(codeOf(0)).toEqual(["certificate_not_yet_valid", certSetting]);
    put("expired");
    expect(codeOf()).toEqual(["certificate_expired", certSetting]);
    put("first", "second");
    expect(codeOf()).toEqual(["key_mismatch", keySetting]);
  });

  test("something else than PEM, a key with a passphrase, and no file", () => {
    put("first");
    writeFileSync(
      files.tls_key_file,
      "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    expect(codeOf()).toEqual(["key_unreadable", keySetting]);
    writeFileSync(files.tls_cert_file, "certificate");
    expect(codeOf()).toEqual(["certificate_unreadable", certSetting]);
    const missing = configOf({ tls_cert_file: join(folder.path, "none.crt") });
    const loaded = loadCertificate(missing, Date.now());
    expect(loaded).toMatchObject({ ok: false, problem: { code: "certificate_missing", setting: certSetting } });
  });

  test("a name that others use and the certificate lacks is a warning", () => {
    put("first");
    const checked = checkConfig({
      server: files,
      stores: { main: { plugin: "memory" } },
      directory: { enabled: true },
      relay: { enabled: true, public_endpoints: ["https://relay.example.net", "https://localhost:7400"] },
    });
    if (!checked.ok) throw new Error(JSON.stringify(checked.problems));
    const loaded = loadCertificate(checked.config, Date.now());
    if (loaded === null || !loaded.ok) throw new Error("the certificate was not loaded");
    expect(loaded.certificate.warnings.map(({ message }) => message)).toEqual([
      expect.stringContaining("relay.example.net"),
    ]);
  });
});
