/** A Directory with a log, and its witness, as running nodes. */
import type { ConfigInput } from "../../src/config/schema.ts";
import { freePort } from "./executable.ts";
import { type TestKey, testKey, vkeyOf } from "./logs.ts";
import { startTestNodes, type TestNodes } from "./nodes.ts";

type FileOf = (key: TestKey) => string;

/** A witness of logs at addresses. */
export function startWitness(
  {
    fileOf,
    key,
    store = {},
    logBytesMax,
  }: {
    readonly fileOf: FileOf;
    readonly key: TestKey;
    readonly store?: object;
    readonly logBytesMax?: number;
  },
  logs: readonly (readonly [TestKey, string])[],
  options: Parameters<typeof startTestNodes>[2] = {},
): Promise<TestNodes> {
  const watched = logs.map(([log, url]) => `${vkeyOf(log)} ${url}`);
  const witness = { key_file: fileOf(key), logs: watched };
  const stores = { main: { plugin: "memory", block_time_ms: 50, ...store } };
  const others = logBytesMax === undefined ? {} : { witness: { log_bytes_max: logBytesMax } };
  return startTestNodes({ stores, directory: {}, relay: {}, cache: {}, witness }, others, options);
}

type Logged = {
  readonly logFile: string;
  readonly cosigner: TestKey;
  readonly witnessUrl: string;
  readonly port: number;
  readonly store?: object;
};

/** The configuration of all three nodes with a log. */
export function loggedNodes({ logFile, cosigner, witnessUrl, port, store }: Logged): ConfigInput {
  const own = `http://127.0.0.1:${port}`;
  return {
    server: { listen: [`127.0.0.1:${port}`], drain_timeout: "2s" },
    ...(store === undefined
      ? {}
      : { stores: { main: { plugin: "lmdb", block_time_ms: 50, ...store } } }),
    directory: {
      enabled: true,
      rate_limit_loopback: false,
      log_key_file: logFile,
      log_witnesses: [`${vkeyOf(cosigner)} ${witnessUrl}/witness`],
    },
    relay: {
      enabled: true,
      public_endpoints: [own],
      allow_http: true,
      allow_private: ["127.0.0.0/8"],
      rate_limit_loopback: false,
    },
    cache: { enabled: true, public_endpoints: [own] },
  };
}

export type LogPair = {
  readonly nodes: TestNodes;
  readonly witness: TestNodes;
  readonly log: TestKey;
  readonly cosigner: TestKey;
};

/** A Directory whose log one witness cosigns. */
export async function startLogPair(name: string, fileOf: FileOf): Promise<LogPair> {
  const [log, cosigner] = [
    testKey(`${name}.example/log`, "log"),
    testKey(`${name}.example/witness`, "witness"),
  ];
  const port = freePort();
  const witness = await startWitness({ fileOf, key: cosigner }, [
    [log, `http://127.0.0.1:${port}/log`],
  ]);
  const nodes = await startTestNodes(
    loggedNodes({ logFile: fileOf(log), cosigner, witnessUrl: witness.url, port }),
  );
  return { nodes, witness, log, cosigner };
}
