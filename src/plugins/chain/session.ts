/**
 * One connection to one node. It opens only when the node is on our chain, has caught up, and offers what the program
 * needs; then it follows the heads. Every request has a deadline. The connection ends when the node leaves a request
 * unanswered, shows a head that can't be true, or goes back behind a finalized block.
 *
 * Heartbeat: the driver asks for the head twice a block time, so it notices a dead connection after at most that and
 * `request_timeout_ms`.
 */
import { encodeHex0x } from "../../core/codec/bytes.ts";
import { errorText } from "../../core/fault.ts";
import type { LedgerProofs } from "../../core/ledger/account.ts";
import { type Block, type StoreEnvironment, StoreError } from "../../storage/contract.ts";
import type { ChainOptions } from "./chain.ts";
import { blockTimeMsDefault, type OperatorKey } from "./layouts.ts";
import type { LightClients } from "./light.ts";
import { accountKey, numberOf, prefixOf, type RuntimeMetadata, readAccountState, readMetadata } from "./metadata.ts";
import type { Verdict } from "./pool.ts";
import {
  type Connection,
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
  type RuntimeVersion,
  type SignedBlock,
} from "./rpc.ts";

/**
 * A finalized block that a node showed: every later head must follow it. Its time is the block's own: a clock of ours that
 * was wrong when it was shown does no harm once it is right.
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

type SessionOptions = Common & {
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
 * Why a node can't be used: it has another chain or runtime, it is catching up or behind, its finalized blocks differ from
 * those shown before, or it does not answer.
 */
type UnusableKind = "differs" | "syncing" | "behind" | "forked" | "gone";
export class Unusable extends Error {
  constructor(
    readonly kind: UnusableKind,
    message: string,
  ) {
    super(message);
  }
}

/** The node refused to answer: it no longer has what was asked for, such as the state of an old block. */
export class StateGone extends StoreError {}

/** `null` when the node refuses to answer, because it has discarded the state, or the state is of another runtime. */
export async function readable<T>(work: Promise<T>): Promise<T | null> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof StateGone || error instanceof Unusable) return null;
    throw error;
  }
}

/** What a node answered to an extrinsic, and its words when it refused. */
type NodeAnswer = { readonly verdict: Verdict; readonly refusal: string | null };
export const silence: NodeAnswer = { verdict: "silence", refusal: null };

/** The usual meanings of a node's refusals of an extrinsic, by the codes of Substrate's `author` methods. */
const verdicts: Readonly<Record<number, Verdict>> = {
  // It can't decode the extrinsic, or its runtime can't: so it is after a change of the encoding.
  1001: "invalid",
  1002: "invalid",
  1010: "invalid",
  // The node could not find out.
  1011: "invalid",
  1012: "banned",
  1013: "known",
  1014: "nonce-taken",
  1015: "invalid",
  1016: "full",
};

/** The node's best block has used the nonce: it says so once, and then that the bytes are banned. */
const isStale = ({ code, message }: NodeRefusal): boolean => code === 1010 && /outdated|stale/i.test(message);

/** How many times longer a submission may take: a node checks many extrinsics one after another. */
const submitPatience = 6;
/** `runtime/README.md`, "The canary". */
const canaryName = "waypost-canary";
/** Between two blocks. */
export const heartbeatMs = ({ block_time_ms }: ChainOptions): number => block_time_ms ?? blockTimeMsDefault;
/** Largest difference between a node's clock and ours. */
export const clockSkewMs = 300_000;

export class Session {
  private constructor(
    private readonly options: SessionOptions,
    private readonly rpc: Connection,
    readonly genesis: string,
  ) {}

  head: ChainHead | null = null;
  onHead: (head: ChainHead) => void = () => {};
  /** Settles with the reason when the connection is over. */
  readonly over = Promise.withResolvers<Unusable>();
  private cancelPoll: () => void = () => {};
  private ended = false;

  static async open(options: SessionOptions): Promise<Session> {
    const { endpoint, settings, signal, host } = options;
    const requestMs = settings.request_timeout_ms;
    let rpc: Connection | null = null;
    try {
      rpc = await options.connect(endpoint, { waitMs: requestMs, signal, host });
      const genesis = parseHash(await rpc.ask("chain_getBlockHash", [0], requestMs));
      if (options.genesis !== null && genesis !== options.genesis) {
        throw new Unusable(
          "differs",
          `its chain begins with block ${genesis}, this store belongs to ${options.genesis}`,
        );
      }
      if (parseSyncing(await rpc.ask("system_health", [], requestMs)))
        throw new Unusable("syncing", "the node is catching up with its chain");
      const session = new Session(options, rpc, genesis);
      await session.follow();
      await session.checkAnchor();
      void rpc.over.then((reason) => session.end(new Unusable("gone", reason)));
      session.poll();
      return session;
    } catch (error) {
      rpc?.close();
      throw unusable(error);
    }
  }

  /**
   * Asks the node. Throws `StateGone` when it refuses. When it does not answer, or its answer can't be parsed, the
   * connection ends. Both errors are `unavailable`.
   */
  private async ask<T>(method: string, params: readonly unknown[], parse: (answer: unknown) => T): Promise<T> {
    if (this.ended) throw new StoreError("unavailable", "the connection to the chain has ended");
    let answer: unknown;
    try {
      answer = await this.rpc.ask(method, params, this.options.settings.request_timeout_ms);
    } catch (error) {
      const text = `the chain did not answer: ${errorText(error)}`;
      if (error instanceof NodeRefusal) throw new StateGone("unavailable", text, { cause: error });
      this.end(new Unusable("gone", errorText(error)));
      throw new StoreError("unavailable", text, { cause: error });
    }
    try {
      return parse(answer);
    } catch (error) {
      const reason = `its answer to ${method} can't be read: ${errorText(error)}`;
      this.end(new Unusable("gone", reason));
      throw new StoreError("unavailable", reason, { cause: error });
    }
  }

  /** Submits an extrinsic. A missing answer says nothing about the connection; heads do. */
  async submit(extrinsic: Uint8Array): Promise<NodeAnswer> {
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
    const found = await this.ask("state_queryStorageAt", [names, block], parseStorage(names, block));
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
      await this.follow().catch((error: unknown) => this.end(unusable(error)));
      this.poll();
    });
  }

  /** The finalized head now: `head` may be half a block time old. */
  async newest(): Promise<ChainHead> {
    return this.headAt(await this.finalizedHash());
  }

  private finalizedHash(): Promise<string> {
    return this.ask("chain_getFinalizedHead", [], parseHash);
  }

  private async follow(): Promise<void> {
    const hash = await this.finalizedHash();
    if (this.ended || hash === this.head?.hash) return;
    const head = await this.headAt(hash);
    if (this.ended) return;
    this.checkHead(head);
    this.head = head;
    this.onHead(head);
  }

  private checkHead({ number, metadata }: ChainHead): void {
    const { anchor, settings, host } = this.options;
    const before = anchor();
    if (before === null) return;
    const blockTimeMs = settings.block_time_ms ?? metadata.blockTimeMs;
    checkNumber(number, before, { nowMs: host.nowMs(), blockTimeMs });
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
    const [now, plain, account] = await this.values([...names.map(prefixOf), accountKey(key.publicKey)], hash);
    const timeMs = Number(numberOf(now));
    if (timeMs > host.nowMs() + clockSkewMs)
      throw new Unusable("gone", `the time of its block ${number} is more than 5 minutes ahead of this clock`);
    // A chain without the switch knows only the versions before 3, and accepts them.
    const bound = !metadata.absent.has("PlainProofs");
    const selfCertifying = !metadata.absent.has("ComponentCallsLeft");
    const proofs = { genesisHash: metadata.frame.genesis, bound, plain: !bound || plain?.[0] === 1, selfCertifying };
    return { number, hash, timeMs, metadata, proofs, ...readAccountState(account ?? null) };
  }

  /** A node that is not behind must have the block that was shown before. */
  private async checkAnchor(): Promise<void> {
    const anchor = this.options.anchor();
    if (anchor === null || this.head === null) return;
    if ((await this.hashAt(anchor.number)) === anchor.hash) return;
    throw new Unusable("forked", `it has another block ${anchor.number} than the one that was final before`);
  }

  /** The metadata of the runtime in force after a block. */
  async metadataAt(hash: string): Promise<RuntimeMetadata> {
    return this.metadataOf(await this.ask("state_getRuntimeVersion", [hash], parseVersion), hash);
  }

  private async metadataOf(version: RuntimeVersion, hash: string): Promise<RuntimeMetadata> {
    const { specVersion } = version;
    const name = `${this.genesis}/${specVersion}/${version.transactionVersion}`;
    const { runtimes } = this.options;
    const known = runtimes.get(name);
    if (known !== undefined) return known;
    this.checkBuild(version);
    const genesis = Uint8Array.fromHex(this.genesis.slice(2));
    const bytes = await this.ask("state_getMetadata", [hash], parseHex);
    const metadata = readMetadata(bytes, { version, genesis });
    if (Array.isArray(metadata)) {
      throw new Unusable("differs", `its runtime ${specVersion} is not one for this program: ${metadata.join("; ")}`);
    }
    runtimes.set(name, metadata);
    return metadata;
  }

  /** The differential test, which needs this build, replaces the method. */
  private checkBuild({ specName }: RuntimeVersion): void {
    if (specName === canaryName)
      throw new Unusable("differs", `its runtime ${canaryName} is a build for tests, which breaks rules on command`);
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

/** Law: a head is never much further than time allows, and never behind a finalized block that was shown. */
function checkNumber(
  number: bigint,
  anchor: Anchor,
  { nowMs, blockTimeMs }: { nowMs: number; blockTimeMs: number },
): void {
  if (number < anchor.number)
    throw new Unusable("behind", `the node is at block ${number}, block ${anchor.number} was final before`);
  const passedMs = Math.max(0, nowMs - anchor.timeMs);
  const most = anchor.number + BigInt(Math.ceil((passedMs / blockTimeMs) * 1.5)) + leapBlocksMax;
  if (number > most)
    throw new Unusable("gone", `its head ${number} can't be true: block ${anchor.number} is ${passedMs} ms old`);
}

export const unusable = (error: unknown): Unusable =>
  error instanceof Unusable ? error : new Unusable("gone", errorText(error));
