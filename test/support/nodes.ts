/**
 * Nodes for tests, in this process on a free port of the loopback interface: what `serve` runs,
 * over the memory driver with fast blocks unless the test says otherwise.
 */

import { ed25519 } from "@noble/curves/ed25519.js";
import { type RunningNodes, type StartOptions, startNodes } from "../../src/app/compose.ts";
import type { ReloadPlan } from "../../src/config/config.ts";
import type { Config, ConfigInput } from "../../src/config/schema.ts";
import { encodeBase64 } from "../../src/core/codec/bytes.ts";
import type { Did } from "../../src/core/codec/did.ts";
import type { JsonObject } from "../../src/core/codec/json.ts";
import { encodeSenderText } from "../../src/core/message/proof.ts";
import { arrange } from "./arrangement.ts";
import { type Json, registerBodyOf } from "./directory.ts";
import { freePort } from "./executable.ts";
import { type Identity, keyPair, methodOf } from "./identity.ts";

export type TestNodes = RunningNodes & {
  readonly lines: { level: string; message: string; fields: unknown }[];
  /** As if this were in the file now. */
  readonly reload: (next: Config) => Promise<ReloadPlan>;
};

/** Constants that no file sets, for a test that can't wait for the real ones. */
export type OtherConstants = {
  readonly [Section in "server" | "limits" | "directory" | "relay" | "cache" | "witness"]?: Partial<
    Config[Section]
  >;
};

/** A Relay at an address of this machine. */
export const relayAt = (url: string): ConfigInput["relay"] => ({
  enabled: true,
  public_id: "test",
  public_endpoints: [url],
  allow_http: true,
  allow_private: ["127.0.0.0/8", "::1/128"],
  rate_limit_loopback: false,
});

/** All three nodes with everything local allowed; `input` replaces whole sections. */
export async function startTestNodes(
  input: ConfigInput = {},
  others: OtherConstants = {},
  options: Partial<StartOptions> = {},
): Promise<TestNodes> {
  const own = `http://127.0.0.1:${freePort()}`;
  const given: ConfigInput = {
    server: { listen: [own.slice("http://".length)], drain_timeout: "2s" },
    stores: { main: { plugin: "memory", block_time_ms: 50 } },
    directory: { enabled: true, unsigned_updates: "allow", rate_limit_loopback: false },
    relay: relayAt(own),
    cache: { enabled: true, public_endpoints: [own] },
    ...input,
  };
  const arranged = await arrange(
    given,
    Reflect.get(given.stores?.["main"] ?? {}, "plugin") === "memory",
  );
  const lines: TestNodes["lines"] = [];
  const running: RunningNodes[] = [];
  let reread: Config | null = null;
  for (const config of arranged.configs) {
    for (const [section, values] of Object.entries(others))
      Object.assign(config[section as keyof OtherConstants], values);
    const started = startNodes(config, {
      log: (level, message, fields) => lines.push({ level, message, fields }),
      onFatal: (reason) => {
        throw new Error(reason);
      },
      readConfig: async () => {
        if (reread !== null) return reread;
        throw new Error("there is no file");
      },
      ...options,
    });
    running.push(await started);
  }
  const [first] = running;
  if (first === undefined) throw new Error("no node was started");
  const endRoute = await arranged.route?.();
  const stop = async (): Promise<void> => {
    await endRoute?.();
    await Promise.all(running.map((node) => node.stop()));
    arranged.end();
  };
  const [config] = arranged.configs;
  // What the arrangement put in the place of the test's store stays.
  const reload = async (next: Config): Promise<ReloadPlan> => {
    reread = arranged.isOther ? { ...next, stores: config?.stores ?? {} } : next;
    const plan = await first.reloadFile();
    if (typeof plan === "string") throw new Error(plan);
    return plan;
  };
  const url = endRoute === undefined ? first.url : `http://${given.server?.listen?.[0]}`;
  return { ...first, url, reload, stop, lines };
}

/** Registers an identity at a Directory over HTTP and waits until the ledger has it. */
export async function registerAt(
  directory: string,
  identity: Identity,
  document: Json,
): Promise<void> {
  const response = await fetch(`${directory}/register-did`, {
    method: "POST",
    headers: { "content-type": "application/json", connection: "close" },
    body: JSON.stringify(registerBodyOf(identity, Date.now(), { did_document: document })),
  });
  if (response.status !== 202)
    throw new Error(`registration answered ${response.status} ${await response.text()}`);
  const path = `${directory}/registration-status/${encodeURIComponent(identity.did)}`;
  while (((await (await fetch(path)).json()) as { registered: boolean }).registered !== true)
    await Bun.sleep(20);
}

export type SelfSender = {
  readonly did: Did;
  /** An envelope to itself, as a body. */
  readonly envelope: (more?: {
    readonly signed?: true | undefined;
    readonly payload?: JsonObject;
  }) => string;
};

/**
 * Registers an identity whose document publishes the Cache at `url`. It sends envelopes to itself.
 */
export async function registerSelfSender(url: string, did: Did): Promise<SelfSender> {
  const seed = ed25519.utils.randomSecretKey();
  const identity = { did, root: keyPair(seed), label: "own" };
  const method = methodOf(did, "root", identity.root);
  const service = {
    id: `${did}#cache`,
    type: "SvcCacheService",
    serviceEndpoint: [url],
    authorization: [method.id],
  };
  const document = {
    id: did,
    verificationMethod: [method],
    authentication: [method.id],
    service: [service],
  };
  await registerAt(url, identity, document);
  return {
    did,
    envelope: ({ signed, payload = {} } = {}) => {
      const plain = {
        message_id: crypto.randomUUID(),
        to: did,
        timestamp: new Date().toISOString(),
        payload,
      };
      const named = { ...plain, from: did, sender_key_id: method.id };
      const sender_signature = encodeBase64(ed25519.sign(encodeSenderText(named), seed));
      return JSON.stringify(signed === undefined ? plain : { ...named, sender_signature });
    },
  };
}
