/**
 * One connection to one node. It opens only when the node is on our chain, has caught up,
 * and offers what the program needs; then it follows the heads. Every request has a
 * deadline. The connection ends when the node leaves a request unanswered, shows a head
 * that can't be true, or goes back behind a finalized block.
 *
 * Heartbeat: the driver asks for the head twice a block time, so it notices a dead
 * connection after at most that and `request_timeout_ms`.
 */
import { encodeHex0x } from "../../core/codec/bytes.ts";
import { errorText } from "../../core/fault.ts";
import type { LedgerProofs } from "../../core/ledger/account.ts";
import { type Block, type StoreEnvironment, StoreError } from "../../storage/contract.ts";
import type { ChainOptions } from "./chain.ts";
import { blockTimeMsDefault, type OperatorKey } from "./layouts.ts";
import type { LightClients } from "./light.ts";
import {
  accountKey,
  decodeUnsigned,
  prefixOf,
  type RuntimeMetadata,
  readAccountState,
  readMetadata,
  runtimeName,
} from "./metadata.ts";
import type { Verdict } from "./pool.ts";
import {
  type Header,
  type Host,
  NodeRefusal,
  parseBlock,
  parseHash,
  parseHeader,
  parseHex,
  parseStorage,
  parseSyncing,
  parseVersion,
  type RpcConnection,
  type RuntimeVersion,
  type SignedBlock,
} from "./rpc.ts";

/**
 * A finalized block that every later head must follow. Its time is its own: a clock of ours
 * may have been wrong.
 */
export type Anchor = Pick<Block, "number" | "hash" | "timeMs">;

/** What all parts of the driver share. */
export type Common = {
  readonly settings: ChainOptions;
  readonly key: OperatorKey;
  readonly host: Host;
  readonly log: StoreEnvironment["log"];
  /** By genesis and version: the metadata is read once for all connections. */
  readonly runtimes: {
    readonly get: (name: string) => RuntimeMetadata | undefined;
    readonly set: (name: string, metadata: RuntimeMetadata) => unknown;
  };
  /** `Rpc.open` unless some endpoints are light clients. */
  readonly connect: LightClients["connect"];
};

type ChainSessionOptions = Common & {
  readonly endpoint: string;
  /** Ends the connection, also while it is being opened. */
  readonly signal: AbortSignal;
  /** The genesis that this store belongs to, once it is known. */
  readonly genesis: string | null;
  /** What every head must follow. */
  readonly anchor: () => Anchor | null;
};

export type ChainHead = Block & {
  readonly metadata: RuntimeMetadata;
  /** The operator's next nonce in the state of this block. */
  readonly nonce: number;
  /** The operator's free balance. */
  readonly free: bigint;
  readonly proofs: LedgerProofs;
};

/**
 * Why a node can't be used. A mistake of the configuration is one with another chain or
 * runtime.
 */
export class Unusable extends Error {
  constructor(
    message: string,
    readonly isMistake = false,
  ) {
    super(message);
  }
}

/**
 * The node refused to answer: it no longer has what was asked for, such as the state of an
 * old block.
 */
export class StateGone extends StoreError {}

/** Two endpoints gave other values of a block's state: which is right, a third one may say. */
export class Disputed extends StoreError {}

/**
 * `null` when the node refuses to answer, because it has discarded the state, or the state
 * is of another runtime.
 */
export async function readable<T>(work: Promise<T>): Promise<T | null> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof StateGone || error instanceof Unusable) return null;
    throw error;
  }
}

/** What a node answered to an extrinsic, and its words when it refused. */
export type PoolVerdict = { readonly verdict: Verdict; readonly refusal: string | null };
export const silence: PoolVerdict = { verdict: "silence", refusal: null };

/**
 * The usual meanings of a node's refusals of an extrinsic, by the codes of Substrate's
 * `author` methods.
 */
const verdicts: Readonly<Record<number, Verdict>> = {
  // It can't decode the extrinsic, or its runtime can't: so it is after a change of the encoding.
  1001: "invalid",
  1002: "invalid",
  1010: "invalid",
  // The node could not find out.
  1011: "invalid",
  1012: "banned",
  1013: "taken",
  1014: "nonce-used",
  1015: "invalid",
  1016: "full",
};

/**
 * The node's best block has used the nonce: it says so once, and then that the bytes are
 * banned.
 */
const isStale = ({ code, message }: NodeRefusal): boolean =>
  code === 1010 && /outdated|stale/i.test(message);

/** How many times longer a submission may take: a node checks many extrinsics one after another. */
const submitPatience = 6;
/** Between two blocks. */
export const heartbeatMs = ({ block_time_ms }: ChainOptions): number =>
  block_time_ms ?? blockTimeMsDefault;
/** Largest difference between a node's clock and ours. */
export const clockSkewMs = 300_000;

export class ChainSession {
  private constructor(
    private readonly options: ChainSessionOptions,
    private readonly rpc: RpcConnection,
    readonly genesis: string,
  ) {}

  head: ChainHead | null = null;
  onHead: (head: ChainHead) => void = () => {};
  /** Settles with the reason when the connection is over. */
  readonly over = Promise.withResolvers<Unusable>();
  private cancelPoll: () => void = () => {};
  private ended = false;

  static async open(options: ChainSessionOptions): Promise<ChainSession> {
    const { endpoint, settings, signal, host } = options;
    const requestMs = settings.request_timeout_ms;
    let rpc: RpcConnection | null = null;
    try {
      rpc = await options.connect(endpoint, { waitMs: requestMs, signal, host });
      const genesis = parseHash(await rpc.ask("chain_getBlockHash", [0], requestMs));
      if (options.genesis !== null && genesis !== options.genesis)
        throw new Unusable(
          `its chain begins with block ${genesis}, this store belongs to ${options.genesis}`,
          true,
        );
      if (parseSyncing(await rpc.ask("system_health", [], requestMs)))
        throw new Unusable("the node is catching up with its chain");
      const session = new ChainSession(options, rpc, genesis);
      await session.follow();
      void rpc.over.then((reason) => session.end(new Unusable(reason)));
      session.poll();
      return session;
    } catch (error) {
      rpc?.close();
      throw asUnusable(error);
    }
  }

  /**
   * Asks the node. Throws `StateGone` when it refuses. When it does not answer, or its
   * answer can't be parsed, the connection ends. Both errors are `unavailable`.
   */
  private async ask<T>(
    method: string,
    params: readonly unknown[],
    parse: (answer: unknown) => T,
  ): Promise<T> {
    if (this.ended) throw new StoreError("unavailable", "the connection to the chain has ended");
    let answer: unknown;
    try {
      answer = await this.rpc.ask(method, params, this.options.settings.request_timeout_ms);
    } catch (error) {
      const text = `the chain did not answer: ${errorText(error)}`;
      if (error instanceof NodeRefusal) throw new StateGone("unavailable", text, { cause: error });
      this.end(new Unusable(errorText(error)));
      throw new StoreError("unavailable", text, { cause: error });
    }
    try {
      return parse(answer);
    } catch (error) {
      const reason = `its answer to ${method} can't be read: ${errorText(error)}`;
      this.end(new Unusable(reason));
      throw new StoreError("unavailable", reason, { cause: error });
    }
  }

  /** Submits an extrinsic. A missing answer says nothing about the connection; heads do. */
  async submit(extrinsic: Uint8Array): Promise<PoolVerdict> {
    try {
      const waitMs = submitPatience * this.options.settings.request_timeout_ms;
      await this.rpc.ask("author_submitExtrinsic", [encodeHex0x(extrinsic)], waitMs);
      return { verdict: "taken", refusal: null };
    } catch (error) {
      if (!(error instanceof NodeRefusal)) return silence;
      const verdict = isStale(error) ? "nonce-used" : (verdicts[error.code] ?? "silence");
      return { verdict, refusal: error.message };
    }
  }

  /** The values of several storage keys at one block, in one request; absent ones are `null`. */
  async values(keys: readonly Uint8Array[], block: string): Promise<(Uint8Array | null)[]> {
    const names = keys.map(encodeHex0x);
    const found = await this.ask(
      "state_queryStorageAt",
      [names, block],
      parseStorage(names, block),
    );
    if (found !== null) return found;
    throw new StateGone("unavailable", "the node does not know the block that was asked for");
  }

  /** The block of the present chain at a number. */
  hashAt(number: bigint): Promise<string> {
    return this.ask("chain_getBlockHash", [Number(number)], parseHash);
  }

  /** `null` when the node no longer has the block's body. */
  async block(hash: string): Promise<SignedBlock | null> {
    return this.ask("chain_getBlock", [hash], (answer) => {
      const block = parseBlock(answer);
      if (block !== null) checkHash(block.header, hash);
      return block === null ? null : { ...block, header: { ...block.header, hash } };
    });
  }

  private async header(hash: string): Promise<Header> {
    return this.ask("chain_getHeader", [hash], (answer) => {
      const header = parseHeader(answer);
      checkHash(header, hash);
      return { ...header, hash };
    });
  }

  private poll(): void {
    if (this.ended) return;
    this.cancelPoll = this.options.host.after(heartbeatMs(this.options.settings) / 2, async () => {
      await this.follow().catch((error: unknown) => this.end(asUnusable(error)));
      this.poll();
    });
  }

  private async follow(): Promise<void> {
    const hash = await this.ask("chain_getFinalizedHead", [], parseHash);
    if (this.ended || hash === this.head?.hash) return;
    const head = await this.headAt(hash);
    await this.checkHead(head);
    if (this.ended) return;
    this.head = head;
    this.onHead(head);
  }

  /**
   * Law: a head is never much further than time allows, never goes back, and follows the
   * anchor.
   */
  private async checkHead({ number, metadata }: ChainHead): Promise<void> {
    const { settings, host } = this.options;
    if (this.head !== null && number < this.head.number)
      throw new Unusable(`the node went back from block ${this.head.number} to ${number}`);
    const anchor = this.options.anchor();
    if (anchor === null) return;
    const passedMs = Math.max(0, host.nowMs() - anchor.timeMs);
    const blocks = Math.ceil((passedMs / (settings.block_time_ms ?? metadata.blockTimeMs)) * 1.5);
    if (number > anchor.number + BigInt(blocks) + leapBlocksMax)
      throw new Unusable(
        `its head ${number} can't be true: block ${anchor.number} is ${passedMs} ms old`,
      );
    if (number >= anchor.number && (await this.hashAt(anchor.number)) !== anchor.hash)
      throw new Unusable(
        `it has another block ${anchor.number} than the one that was final before`,
      );
  }

  /** A block, with time, runtime and operator's account as its state has them. */
  async headAt(hash: string): Promise<ChainHead> {
    const [{ number }, version] = await Promise.all([
      this.header(hash),
      this.ask("state_getRuntimeVersion", [hash], parseVersion),
    ]);
    const { host, key } = this.options;
    const metadata = await this.metadataOf(version, hash);
    const names = ["Now", "PlainProofs"] as const;
    const [now, plain, account] = await this.values(
      [...names.map(prefixOf), accountKey(key.publicKey)],
      hash,
    );
    const timeMs = Number(decodeUnsigned(now));
    if (timeMs > host.nowMs() + clockSkewMs)
      throw new Unusable(
        `the time of its block ${number} is more than 5 minutes ahead of this clock`,
      );
    // A chain without the switch knows only the versions before 3, and accepts them.
    const bound = !metadata.absent.has("PlainProofs");
    const selfCertifying = !metadata.absent.has("ComponentCallsLeft");
    const proofs = {
      genesisHash: metadata.frame.genesis,
      bound,
      plain: !bound || plain?.[0] === 1,
      selfCertifying,
    };
    return { number, hash, timeMs, metadata, proofs, ...readAccountState(account ?? null) };
  }

  /** The metadata of the runtime in force after a block. */
  async metadataAt(hash: string): Promise<RuntimeMetadata> {
    return this.metadataOf(await this.ask("state_getRuntimeVersion", [hash], parseVersion), hash);
  }

  /** Without reading it, to be compared. */
  metadataBytes(hash: string): Promise<`0x${string}`> {
    return this.ask("state_getMetadata", [hash], parseHex);
  }

  private async metadataOf(version: RuntimeVersion, hash: string): Promise<RuntimeMetadata> {
    const { specVersion } = version;
    const name = `${this.genesis}/${runtimeName(version)}`;
    const { runtimes } = this.options;
    const known = runtimes.get(name);
    if (known !== undefined) return known;
    const genesis = Uint8Array.fromHex(this.genesis.slice(2));
    const bytes = await this.metadataBytes(hash);
    const metadata = readMetadata(bytes, { version, genesis });
    if (Array.isArray(metadata))
      throw new Unusable(
        `its runtime ${specVersion} is not one for this program: ${metadata.join("; ")}`,
        true,
      );
    runtimes.set(name, metadata);
    return metadata;
  }

  end(reason: Unusable): void {
    if (this.ended) return;
    this.ended = true;
    this.cancelPoll();
    this.rpc.close();
    this.over.resolve(reason);
  }
}

/** The genesis block of a test chain may have a name instead of a hash. */
function checkHash({ hash, number }: Header, asked: string): void {
  if (hash !== asked && number !== 0n) throw new Error("it is not the block that was asked for");
}

/** How many blocks more than its block time allows a chain may have. */
const leapBlocksMax = 16n;

export const asUnusable = (error: unknown): Unusable =>
  error instanceof Unusable ? error : new Unusable(errorText(error));
