/**
 * The stage of the campaigns that attack the compiled executable: a node in a folder of its own
 * with the settings of a served file or of `dev`, people who are registered at it, and clients that
 * speak from a loopback address of their choice. Everything happens over sockets; nothing is
 * imported from the nodes.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { join } from "node:path";
import { firstDocument, signRegistration } from "../../src/client/identity/registration.ts";
import { createIdentity, type Identity } from "../../src/client/keys/keys.ts";
import { endpoint } from "../../src/client/net/http.ts";
import { proofHeaders, type Reader } from "../../src/client/net/reader.ts";
import { encodeBase64 } from "../../src/core/codec/bytes.ts";
import type { JsonObject } from "../../src/core/codec/json.ts";
import { createSigner } from "../../src/core/codec/native.ts";
import type { DidDocument, Service } from "../../src/core/ledger/account.ts";
import { ackSubject, encodeSenderText, retrievalHeaders } from "../../src/core/message/proof.ts";
import {
  freePort,
  type RunningNode,
  run,
  scratchFolder,
  startNode,
} from "../support/executable.ts";

// ---------------------------------------------------------------------------------------- the node

export type StageOptions = {
  /** `serve` with the defaults of a file, or `dev`. */
  readonly mode?: "serve" | "dev";
  /** Lines for the sections of the file. */
  readonly lines?: Readonly<
    Partial<Record<"server" | "stores.main" | "directory" | "relay" | "cache", readonly string[]>>
  >;
  /** Files next to the configuration, by name. */
  readonly files?: Readonly<Record<string, string>>;
  readonly env?: Readonly<Record<string, string>>;
  /**
   * Where everything is stored; `lmdb` by default. Other stores are given by their lines, and made
   * first.
   */
  readonly store?: StoreName | readonly string[];
};

/** Settings of the stores that the campaigns use. */
const stores = {
  lmdb: ['plugin = "lmdb"', 'path = "data"', "block_time_ms = 100", "reserve_bytes = 16777216"],
  memory: ['plugin = "memory"', "block_time_ms = 100"],
};
export type StoreName = keyof typeof stores;

export type Stage = {
  readonly url: string;
  readonly port: number;
  readonly folder: string;
  /** Of the process that runs now. */
  readonly node: () => RunningNode;
  /** Starts it, again after its end; `env` adds to that of the stage. */
  readonly start: (env?: Readonly<Record<string, string>>) => Promise<void>;
  readonly close: () => Promise<void>;
};

export async function openStage(options: StageOptions = {}): Promise<Stage> {
  const { mode = "serve", lines = {}, files = {}, env = {}, store = "lmdb" } = options;
  const scratch = scratchFolder();
  for (const [name, text] of Object.entries(files))
    writeFileSync(join(scratch.path, name), text, { mode: 0o600 });
  const port = freePort();
  const url = `http://127.0.0.1:${port}`;
  writeFileSync(
    join(scratch.path, "waypost.toml"),
    fileText(url, port, {
      ...lines,
      "stores.main": [
        ...(typeof store === "string" ? stores[store] : store),
        ...(lines["stores.main"] ?? []),
      ],
    }),
  );
  if (typeof store !== "string") {
    const { code, stderr } = await run(["storage", "migrate"], { cwd: scratch.path });
    if (code !== 0) throw new Error(`the store was not made: ${stderr}`);
  }
  const args =
    mode === "serve"
      ? ["serve"]
      : ["dev", "--port", String(port), "--data", join(scratch.path, "data")];
  let node: RunningNode | null = null;
  const start = async (more: Readonly<Record<string, string>> = {}): Promise<void> => {
    node = await startNode(args, { cwd: scratch.path, url, env: { ...env, ...more } });
  };
  await start();
  return {
    url,
    port,
    folder: scratch.path,
    node: () => node as RunningNode,
    start,
    close: async () => {
      await node?.kill("SIGKILL");
      scratch.remove();
    },
  };
}

function fileText(url: string, port: number, lines: NonNullable<StageOptions["lines"]>): string {
  const sections: Record<string, readonly string[]> = {
    server: [`listen = ["127.0.0.1:${port}"]`, 'log_level = "warn"', ...(lines.server ?? [])],
    "stores.main": lines["stores.main"] ?? [],
    directory: ["enabled = true", ...(lines.directory ?? [])],
    relay: [
      ...["enabled = true", 'public_id = "campaign"', `public_endpoints = ["${url}"]`],
      ...["allow_http = true", 'allow_private = ["127.0.0.0/8"]', ...(lines.relay ?? [])],
    ],
    cache: ["enabled = true", `public_endpoints = ["${url}"]`, ...(lines.cache ?? [])],
  };
  return Object.entries(sections)
    .map(([name, own]) => `[${name}]\n${own.join("\n")}\n`)
    .join("\n");
}

/** Resident memory of a process in MiB; 0 when it is gone. Linux only. */
export const residentMib = (pid: number): number => memoryMib(pid, "VmRSS");

/**
 * The part of it that is not the map of a file, in tenths: the data file and the executable are in
 * the other part.
 */
export const ownMib = (pid: number): number => memoryMib(pid, "RssAnon");

function memoryMib(pid: number, line: "VmRSS" | "RssAnon"): number {
  try {
    const kib = new RegExp(`^${line}:\\s+(\\d+) kB`, "m").exec(
      readFileSync(`/proc/${pid}/status`, "utf8"),
    )?.[1];
    return Math.round(Number(kib ?? 0) / 102.4) / 10;
  } catch {
    return 0;
  }
}

// ----------------------------------------------------------------------------------------- clients

export type Answered = {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
  readonly ms: number;
};

export type Ask = {
  readonly method?: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
};

export type StageClient = {
  /** Status 0: no answer came, or not in time. */
  readonly ask: (ask: Ask) => Promise<Answered>;
  readonly post: (path: string, body: unknown) => Promise<Answered>;
  readonly close: () => void;
};

const answerWithinMs = 30_000;

/** A client of the node that speaks from this loopback address over connections of its own. */
export function clientFrom(address: string, url: string, connections = 64): StageClient {
  const agent = new Agent({ keepAlive: true, maxSockets: connections });
  const { hostname, port } = new URL(url);
  const ask = ({ method = "GET", path, headers, body }: Ask): Promise<Answered> =>
    new Promise((resolve) => {
      const startMs = performance.now();
      let status = 0;
      const end = (text: string, answered: Answered["headers"] = {}): void =>
        resolve({ status, headers: answered, body: text, ms: performance.now() - startMs });
      const asked = request(
        { agent, hostname, port, localAddress: address, method, path, headers: { ...headers } },
        (response) => {
          const parts: Buffer[] = [];
          response.on("data", (part: Buffer) => parts.push(part));
          response.on("end", () => {
            status = response.statusCode ?? 0;
            end(Buffer.concat(parts).toString(), response.headers);
          });
          response.on("error", () => end("broken off"));
        },
      );
      asked.setTimeout(answerWithinMs, () => asked.destroy());
      asked.on("error", (error) => end(String(error)));
      asked.end(body);
    });
  return {
    ask,
    post: (path, body) =>
      ask({
        method: "POST",
        path,
        headers: { "content-type": "application/json" },
        body: typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body),
      }),
    close: () => agent.destroy(),
  };
}

// ------------------------------------------------------------------------------------------ people

export type StagePerson = {
  readonly identity: Identity;
  readonly did: Identity["did"];
  readonly document: DidDocument;
  /** Reads and acknowledges at the Cache. */
  readonly reader: Reader;
  /** Proves live sessions at the Relay. */
  readonly live: Reader;
};

/** A person with Relay and Cache at the stage, or with an inbox alone. Not registered yet. */
export async function personAt(url: string, inbox?: string): Promise<StagePerson> {
  const identity = createIdentity("campaign");
  const { did } = identity;
  const served = await firstDocument(identity, { relayUrl: url, cacheUrl: url });
  const service: Service[] =
    inbox === undefined
      ? [...served.service]
      : [
          {
            id: `${did}#inbox`,
            type: "SvcInboxService",
            serviceEndpoint: [inbox],
            authorization: null,
            priority: null,
          },
        ];
  const signer = { keyId: `${did}#root`, seed: identity.rootSeed };
  const reader = (service: string): Reader => ({
    did,
    serviceId: `${did}#${service}`,
    at: endpoint(url, answerWithinMs),
    signer,
  });
  return {
    identity,
    did,
    document: { ...served, service },
    reader: reader("cache"),
    live: reader("relay"),
  };
}

export async function registrationOf(person: StagePerson, nowMs = Date.now()): Promise<Uint8Array> {
  const { identity, document } = person;
  const input = { document, alias: null, rootSeed: identity.rootSeed, nowMs };
  return new TextEncoder().encode(JSON.stringify(await signRegistration(input)));
}

/** Registers people and waits until all of them can be resolved. */
export async function registerAll(
  client: StageClient,
  people: readonly StagePerson[],
): Promise<void> {
  for (const person of people) {
    const { status, body } = await client.post("/register-did", await registrationOf(person));
    if (status !== 202) throw new Error(`a registration was answered with ${status} ${body}`);
  }
  for (const { did } of people) {
    for (let tries = 0; (await client.ask({ path: `/resolve/${did}` })).status !== 200; tries++) {
      if (tries > 400) throw new Error(`${did} was not registered in time`);
      await Bun.sleep(25);
    }
  }
}

export function envelopeTo(person: { readonly did: string }, change: JsonObject = {}): JsonObject {
  return {
    message_id: Bun.randomUUIDv7(),
    to: person.did,
    timestamp: new Date().toISOString(),
    payload: { ciphertext_b64: "aGVsbG8=" },
    ...change,
  };
}

export function signedBy(sender: StagePerson, envelope: JsonObject): JsonObject {
  const method = sender.identity.methods[0] as Identity["methods"][number];
  const named: JsonObject = { ...envelope, from: sender.did, sender_key_id: method.id };
  const sign = createSigner(method.secret) as (text: Uint8Array) => Uint8Array;
  return {
    ...named,
    sender_signature: encodeBase64(sign(encodeSenderText(named))),
  };
}

/** The body of an acknowledgement, signed by the reader. */
export async function acknowledgementOf(
  reader: Reader,
  ids: readonly string[],
): Promise<JsonObject> {
  const { did, serviceId, at, signer } = reader;
  const headers = await proofHeaders(reader, "ack", ackSubject(ids));
  const signed = (name: keyof typeof retrievalHeaders) => headers[retrievalHeaders[name]] ?? "";
  return {
    did,
    message_ids: [...ids],
    service_id: serviceId,
    cache_endpoint: at.url,
    key_id: signer.keyId,
    timestamp: signed("timestamp"),
    nonce: signed("nonce"),
    signature_b64: signed("signature"),
  };
}

/** Bob has acknowledged something that Alice signed, so that his mailbox knows her. */
export async function befriend(
  client: StageClient,
  bob: StagePerson,
  alice: StagePerson,
): Promise<void> {
  const envelope = signedBy(alice, envelopeTo(bob));
  const id = String(envelope["message_id"]);
  const stored = await client.post("/cache/store", envelope);
  const acked = await client.post("/cache/ack", await acknowledgementOf(bob.reader, [id]));
  if (stored.status !== 202 || acked.status !== 200)
    throw new Error(`${stored.body} ${acked.body}`);
}

/**
 * Stores from one address until it is refused, and says how many were taken and why no more were.
 */
export async function fill(
  address: string,
  url: string,
  make: () => unknown,
): Promise<{ taken: number; last: Answered }> {
  const client = clientFrom(address, url, 32);
  let taken = 0;
  const refused: Answered[] = [];
  const one = async (): Promise<void> => {
    while (refused.length === 0) {
      const answered = await client.post("/cache/store", make());
      if (answered.status === 202) taken++;
      else refused.push(answered);
    }
  };
  await Promise.all(Array.from({ length: 32 }, one));
  client.close();
  return { taken, last: refused[0] as Answered };
}

// ----------------------------------------------------------------------------------------- figures

/** The time within which so many of a hundred were answered. */
export function percentile(times: readonly number[], percent: number): number {
  const sorted = [...times].sort((a, b) => a - b);
  return (
    Math.round((sorted[Math.max(0, Math.ceil((sorted.length * percent) / 100) - 1)] ?? 0) * 10) / 10
  );
}

/** The slope of the line that fits best (least squares), and its standard error. */
export function fitLine(points: readonly { readonly x: number; readonly y: number }[]) {
  const mean = (values: readonly number[]) =>
    values.reduce((sum, value) => sum + value, 0) / values.length;
  const [meanX, meanY] = [mean(points.map(({ x }) => x)), mean(points.map(({ y }) => y))];
  const spread = points.reduce((sum, { x }) => sum + (x - meanX) ** 2, 0);
  const slope = points.reduce((sum, { x, y }) => sum + (x - meanX) * (y - meanY), 0) / spread;
  const rest = points.reduce((sum, { x, y }) => sum + (y - meanY - slope * (x - meanX)) ** 2, 0);
  return { slope, error: Math.sqrt(rest / Math.max(1, points.length - 2) / spread) };
}

/** How often each value occurred. */
export function tally(values: readonly (string | number)[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const value of values) counts[value] = (counts[value] ?? 0) + 1;
  return counts;
}

/** Findings are printed as they are met; the process ends with 1 when there was one. */
export class Findings {
  readonly list: string[] = [];

  expect(holds: boolean, finding: string): void {
    if (holds) return;
    this.list.push(finding);
    console.log(`FINDING ${finding}`);
  }

  exit(): never {
    console.log(this.list.length === 0 ? "no finding" : `${this.list.length} findings`);
    process.exit(this.list.length === 0 ? 0 : 1);
  }
}
