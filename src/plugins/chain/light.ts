/**
 * A light client of the chain (smoldot) with the interface of a connection, so that the
 * driver asks it like a node. It checks finality from the specification's first block on,
 * and every value against the state root of its block; so an operator trusts no node, only
 * the file. It lives as long as the ledger: a new connection need not catch up again.
 *
 * Two answers that it can't give are composed here: `state_queryStorageAt` from single
 * proven values, and the hash of a block number from the parents of the finalized head. Its
 * answer to an extrinsic only means that it passed it on; the blocks show whether one
 * includes it.
 *
 * Law: a question that no peer answers is asked again and then fails, which ends the
 * connection. Only data that peers may have discarded (older than `statesKept` blocks) is
 * refused as gone.
 */
import { readFileSync, statSync } from "node:fs";
import { resolve } from "node:path";
import type { Chain, Client, ClientOptions } from "smoldot";
import { errorText } from "../../core/fault.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import { type StoreEnvironment, StoreError } from "../../storage/contract.ts";
import { type ChainOptions, isLight, lightScheme } from "./chain.ts";
import {
  type Host,
  NodeRefusal,
  type OpenOptions,
  parseHash,
  parseHeader,
  parseObject,
  Rpc,
  type RpcConnection,
  type Socket,
  type SocketEvents,
  within,
} from "./rpc.ts";

const specificationBytesMax = 64 * 1024 * 1024;
/** How far back a full node keeps states and bodies unless it is configured otherwise. */
const statesKept = 256n;
/** Most headers that one question fetches; they are cached for the next one. */
const walkMax = 20_000n;
const attemptsMax = 8;
const attemptPauseMs = 1_000;
/** The light client's own level for errors. Its warnings report every lack of peers. */
const logLevel = 1;
const methodNotFound = -32_601;

/** `takesNull`: `null` is an answer. */
type Question = {
  readonly method: string;
  readonly params: readonly unknown[];
  readonly block: string;
  readonly takesNull?: true;
};

type StartLight = (options: ClientOptions) => Client;

export type LightClients = {
  /** As `Rpc.open`, with `light:` endpoints. */
  readonly connect: (endpoint: string, options: OpenOptions) => Promise<RpcConnection>;
  readonly close: () => Promise<void>;
};

/**
 * Throws `unavailable` when the file of an endpoint is not a specification that a light
 * client can start from.
 */
export function openLightClients(
  { endpoints }: Pick<ChainOptions, "endpoints">,
  parts: Pick<LightParts, "host" | "log"> & Partial<LightParts>,
): LightClients {
  // The package is 3 MB of code, and hardly any configuration names it.
  const given = { load: async () => (await import("smoldot")).start, ...parts };
  const clients = new Map(
    endpoints
      .filter(isLight)
      .map((endpoint) => [endpoint, new LightClient(readSpecification(endpoint), given)]),
  );
  return {
    connect: (endpoint, options) =>
      clients.get(endpoint)?.connect(options) ?? Rpc.open(endpoint, options),
    async close() {
      await Promise.all([...clients.values()].map((client) => client.close()));
    },
  };
}

/** The text of a raw specification that names peers. */
function readSpecification(endpoint: string): string {
  const path = resolve(endpoint.slice(lightScheme.length));
  const unusable = (why: string, cause?: unknown) =>
    new StoreError("unavailable", `the chain specification ${path} ${why}`, { cause });
  let text: string;
  try {
    if (statSync(path).size > specificationBytesMax)
      throw new Error("the file is larger than 64 MiB");
    text = readFileSync(path, "utf8");
  } catch (error) {
    throw unusable(`can't be read: ${errorText(error)}`, error);
  }
  const specification: { readonly genesis?: unknown; readonly bootNodes?: unknown } | null =
    parseObject(text);
  if (specification === null) throw unusable("is not a JSON object");
  const { genesis, bootNodes } = specification;
  if (typeof genesis !== "object" || genesis === null || !("raw" in genesis))
    throw unusable("is not a raw one: genesis.raw is missing");
  if (!Array.isArray(bootNodes) || bootNodes.length === 0)
    throw unusable("names no bootNodes: a light client would find no peer");
  return text;
}

/** Longer than any connection waits for an answer of its own. */
const answerMsMax = 600_000;

type LightParts = {
  readonly host: Host;
  readonly log: StoreEnvironment["log"];
  readonly load: () => Promise<StartLight>;
};

class LightClient {
  private started: Promise<Rpc> | null = null;
  private client: Client | null = null;
  private readonly stop = new AbortController();
  /** Hashes of finalized blocks by their number, and numbers of blocks by their hash. */
  private readonly hashes = new BoundedMap<bigint, string>(2 * Number(walkMax));
  private readonly numbers = new BoundedMap<string, bigint>(2 * Number(walkMax));

  constructor(
    private readonly specification: string,
    private readonly parts: LightParts,
  ) {}

  /** The client goes on when a connection ends, for the next one. */
  async connect({ waitMs }: OpenOptions): Promise<RpcConnection> {
    const { host } = this.parts;
    const rpc = await within(host, { work: this.start(), ms: waitMs, missing: "no connection" });
    const ask: RpcConnection["ask"] = (method, params, ms) =>
      within(host, { work: this.answer(method, params), ms, missing: `no answer to ${method}` });
    return { ask, over: rpc.over, close: () => {} };
  }

  private start(): Promise<Rpc> {
    this.started ??= this.open();
    return this.started;
  }

  /** A crash ends it for every connection, and the next one starts another. */
  private async open(): Promise<Rpc> {
    const { log, load, host } = this.parts;
    const { signal } = this.stop;
    try {
      const start = await load();
      const logCallback = (_: number, target: string, message: string) =>
        log("warn", "the light client reports", { target, message });
      this.client = start({ maxLogLevel: logLevel, logCallback });
      const chain = await this.client.addChain({ chainSpec: this.specification });
      const connect = (_: string, events: SocketEvents) => socketOf(chain, events);
      const rpc = await Rpc.open(lightScheme, {
        waitMs: answerMsMax,
        signal,
        host: { ...host, connect },
      });
      void rpc.over.then((reason) => {
        [this.started, this.client] = [null, signal.aborted ? this.client : null];
        if (!signal.aborted) log("error", "the light client has ended", { reason });
      });
      return rpc;
    } catch (error) {
      this.started = null;
      await this.terminate();
      throw error;
    }
  }

  private async ask(method: string, params: readonly unknown[]): Promise<unknown> {
    return (await this.start()).ask(method, params, answerMsMax);
  }

  // --------------------------------------------------------------------------------------- answers

  private answer(method: string, params: readonly unknown[]): Promise<unknown> {
    const [first, second] = params;
    switch (method) {
      case "chain_getBlockHash":
        return typeof first === "number" && first > 0
          ? this.hashAt(BigInt(first))
          : this.ask(method, params);
      case "state_queryStorageAt":
        return this.storageAt(first as readonly string[], String(second));
      case "chain_getBlock":
      case "chain_getHeader":
      case "state_getRuntimeVersion":
      case "state_getMetadata":
        return this.insist({ method, params, block: String(first) });
      default:
        return this.ask(method, params);
    }
  }

  private async storageAt(keys: readonly string[], block: string): Promise<unknown> {
    const method = "state_getStorage";
    const values = await Promise.all(
      keys.map((key) => this.insist({ method, params: [key, block], block, takesNull: true })),
    );
    return [{ block, changes: keys.map((key, n) => [key, values[n] ?? null]) }];
  }

  /** Asks about a block until there is an answer; no answer about an old block is a refusal. */
  private async insist({ method, params, block, takesNull }: Question): Promise<unknown> {
    let reason = "no peer has it";
    for (let attempts = 0; attempts < attemptsMax && !this.stop.signal.aborted; attempts++) {
      if (attempts > 0)
        await new Promise<void>((done) => void this.parts.host.after(attemptPauseMs, done));
      try {
        const result = await this.ask(method, params);
        if (takesNull || result !== null) return result;
      } catch (error) {
        if (!(error instanceof NodeRefusal) || error.code === methodNotFound) throw error;
        reason = error.message;
      }
      if (await this.isOld(block))
        throw new NodeRefusal(4_003, `peers may have discarded it: ${reason}`);
    }
    throw new Error(reason);
  }

  private async isOld(block: string): Promise<boolean> {
    const number = this.numbers.get(block);
    return number !== undefined && number + statesKept < (await this.finalized()).number;
  }

  // --------------------------------------------------------------------------------------- headers

  private async finalized(): Promise<{ readonly number: bigint; readonly hash: string }> {
    const hash = parseHash(await this.ask("chain_getFinalizedHead", []));
    return { number: await this.learn(hash), hash };
  }

  /** Remembers a finalized block and its parent; answers its number. */
  private async learn(hash: string): Promise<bigint> {
    const known = this.numbers.get(hash);
    if (known !== undefined && this.hashes.has(known - 1n)) return known;
    const {
      number,
      parentHash,
      hash: own,
    } = parseHeader(await this.ask("chain_getHeader", [hash]));
    if (own !== hash) throw new Error("a header is not the one that was asked for");
    for (const [at, name] of [
      [number, hash],
      [number - 1n, parentHash],
    ] as const) {
      this.hashes.set(at, name);
      this.numbers.set(name, at);
    }
    return number;
  }

  /**
   * The finalized block at a number, by way of the parents of one that is known; `null`
   * when there is none yet.
   */
  private async hashAt(number: bigint): Promise<string | null> {
    const head = await this.finalized();
    if (number > head.number) return null;
    let at = number;
    while (!this.hashes.has(at) && at - number <= walkMax) at++;
    if (at - number > walkMax)
      throw new NodeRefusal(4_003, `block ${number} is too far behind ${head.number}`);
    for (; at > number; at--) await this.learn(this.hashes.get(at) as string);
    return this.hashes.get(number) ?? null;
  }

  async close(): Promise<void> {
    this.stop.abort();
    await this.started?.catch(() => null);
    await this.terminate();
  }

  private async terminate(): Promise<void> {
    const { client } = this;
    this.client = null;
    await client?.terminate();
  }
}

/** A chain of the light client like a socket. */
function socketOf(chain: Chain, { onOpen, onMessage, onClose }: SocketEvents): Socket {
  const readForever = async (): Promise<never> => {
    for (;;) onMessage(await chain.nextJsonRpcResponse());
  };
  onOpen();
  readForever().catch((error: unknown) => onClose(errorText(error)));
  return { send: (text) => chain.sendJsonRpc(text), close: () => {} };
}
