/**
 * One connection to one node: opened only when the node is on our chain, has caught up, and offers what
 * the program needs; then it follows the heads. Every question has a limit of time; a node that leaves
 * one unanswered, or goes back behind a finalized block, is left.
 */

import { encodeHex0x } from "../../core/codec/bytes.ts";
import { errorText } from "../../core/std/error-text.ts";
import { type Block, StoreError } from "../../storage/contract.ts";
import {
  blockOf,
  countOf,
  hashOf,
  headerOf,
  hexOf,
  isSyncing,
  type SignedBlock,
  storageOf,
  versionOf,
} from "./answers.ts";
import { readAccountState, storageKeys, u64Of } from "./keys.ts";
import { NodeRefusal, Rpc } from "./rpc.ts";
import { singly } from "./singly.ts";
import { type PalletNames, type RuntimeVersion, readSurface, type Surface } from "./surface.ts";

export type Finality = "finalized" | "best";

export type SessionOptions = {
  readonly endpoint: string;
  readonly finality: Finality;
  readonly names: PalletNames;
  readonly operator: Uint8Array;
  readonly requestMs: number;
  /** Ends the connection, also while it is being opened. */
  readonly signal: AbortSignal;
  readonly pollMs: number;
  /** The genesis that this store belongs to, once it is known. */
  readonly genesis: string | null;
  /** Surfaces by genesis and version: the metadata is read once for all connections. */
  readonly surfaces: Map<string, Surface>;
  /** The last head that was shown; a node that is behind it is not asked. */
  readonly last: () => Head | null;
};

export type Head = Block & {
  readonly surface: Surface;
  /** The operator's next nonce in the state of this block. */
  readonly nonce: number;
  /** The operator's free balance. */
  readonly free: bigint;
};

/** Why a node can't be used: it differs from what is wanted, it is catching up, or it does not answer. */
export class Unusable extends Error {
  constructor(
    readonly kind: "differs" | "syncing" | "gone",
    message: string,
  ) {
    super(message);
  }
}

/** A node that checks many extrinsics one after another answers late, and is no less alive for it. */
const submitPatience = 6;

/** Runtimes that are remembered: blocks of more than two at a time are hardly ever looked at. */
const surfacesMax = 8;

export class Session {
  private constructor(
    private readonly options: SessionOptions,
    private readonly rpc: Rpc,
    readonly genesis: string,
  ) {}

  head: Head | null = null;
  onHead: (head: Head) => void = () => {};
  onBest: (hash: string) => void = () => {};
  /** Settles with the reason when the connection is over. */
  readonly over = Promise.withResolvers<Unusable>();
  private timer: ReturnType<typeof setInterval> | null = null;
  private ended = false;
  /** Reads the newest head. */
  private readonly refresh = singly(() => this.follow().catch((error: unknown) => this.end(unusable(error))));
  private readonly best = singly(() => this.askBest());

  static async open(options: SessionOptions): Promise<Session> {
    const { endpoint, requestMs, signal } = options;
    let rpc: Rpc | null = null;
    try {
      rpc = await Rpc.open(endpoint, { waitMs: requestMs, signal });
      const genesis = hashOf(await rpc.ask("chain_getBlockHash", [0], requestMs));
      if (options.genesis !== null && genesis !== options.genesis) {
        throw new Unusable(
          "differs",
          `its chain begins with block ${genesis}, this store belongs to ${options.genesis}`,
        );
      }
      if (isSyncing(await rpc.ask("system_health", [], requestMs)))
        throw new Unusable("syncing", "the node is catching up with its chain");
      const session = new Session(options, rpc, genesis);
      await session.follow();
      await session.subscribe();
      return session;
    } catch (error) {
      rpc?.close();
      throw unusable(error);
    }
  }

  /**
   * Asks the node. What it refuses to answer is `unavailable`; when it does not answer, or says what `read`
   * can't read, the connection ends.
   */
  private async ask<T>(method: string, params: readonly unknown[], read: (answer: unknown) => T): Promise<T> {
    if (this.ended) throw new StoreError("unavailable", "the connection to the chain is over");
    let answer: unknown;
    try {
      answer = await this.rpc.ask(method, params, this.options.requestMs);
    } catch (error) {
      if (!(error instanceof NodeRefusal)) this.end(new Unusable("gone", messageOf(error)));
      throw new StoreError("unavailable", `the chain did not answer: ${messageOf(error)}`, { cause: error });
    }
    try {
      return read(answer);
    } catch (error) {
      const reason = `its answer to ${method} can't be read: ${messageOf(error)}`;
      this.end(new Unusable("gone", reason));
      throw new StoreError("unavailable", reason, { cause: error });
    }
  }

  /** Hands in an extrinsic. An answer that does not come is no word about the connection; heads tell of that. */
  async submit(extrinsic: Uint8Array): Promise<void> {
    try {
      const waitMs = submitPatience * this.options.requestMs;
      await this.rpc.ask("author_submitExtrinsic", [encodeHex0x(extrinsic)], waitMs);
    } catch (error) {
      if (error instanceof NodeRefusal) throw error;
      throw new StoreError("unavailable", `no word about an extrinsic: ${messageOf(error)}`, { cause: error });
    }
  }

  /** The values of several storage keys at one block, in one question; absent ones are `null`. */
  async values(keys: readonly Uint8Array[], block: string): Promise<(Uint8Array | null)[]> {
    const names = keys.map(encodeHex0x);
    const found = await this.ask("state_queryStorageAt", [names, block], storageOf);
    if (found === null) throw new StoreError("unavailable", "the node does not know the block that was asked for");
    return names.map((name) => found.get(name) ?? null);
  }

  /** The block of the present chain at a number. */
  hashAt(number: bigint): Promise<string> {
    return this.ask("chain_getBlockHash", [Number(number)], hashOf);
  }

  /** `null` when the node has let go of the block's body. */
  block(hash: string): Promise<SignedBlock | null> {
    return this.ask("chain_getBlock", [hash], blockOf);
  }

  /** The nonce after those of all calls that the node knows, in blocks or not. */
  nextNonce(address: string): Promise<number> {
    return this.ask("system_accountNextIndex", [address], countOf);
  }

  private async subscribe(): Promise<void> {
    const { finality, requestMs } = this.options;
    const heads = finality === "best" ? "NewHeads" : "FinalizedHeads";
    await this.rpc.subscribe(`chain_subscribe${heads}`, this.refresh, requestMs);
    await this.rpc.subscribe("chain_subscribeNewHeads", this.best, requestMs);
    void this.rpc.over.then((reason) => this.end(new Unusable("gone", reason)));
    // The question itself tells that the node still answers; heads that were missed are found by it.
    if (!this.ended) this.timer = setInterval(this.refresh, this.options.pollMs);
  }

  private async askBest(): Promise<void> {
    try {
      this.onBest(await this.ask("chain_getBlockHash", [], hashOf));
    } catch {
      // The question has ended the connection, or the node would not answer; the finalized head tells.
    }
  }

  private async follow(): Promise<void> {
    const { finality } = this.options;
    const asked = finality === "best" ? "chain_getBlockHash" : "chain_getFinalizedHead";
    const hash = await this.ask(asked, [], hashOf);
    if (this.ended || hash === this.head?.hash) return;
    const [header, version] = await Promise.all([
      this.ask("chain_getHeader", [hash], headerOf),
      this.ask("state_getRuntimeVersion", [hash], versionOf),
    ]);
    const last = this.options.last();
    if (finality === "finalized" && last !== null && header.number < last.number) {
      throw new Unusable("syncing", `the node is at block ${header.number}, block ${last.number} was final before`);
    }
    const surface = await this.surfaceOf(version, hash);
    const keys = storageKeys(surface);
    const [now, account] = await this.values([keys.now, keys.account(this.options.operator)], hash);
    const timeMs = now === null || now === undefined ? 0 : Number(u64Of(now));
    const head: Head = { number: header.number, hash, timeMs, surface, ...readAccountState(account ?? null) };
    if (this.ended) return;
    this.head = head;
    this.onHead(head);
  }

  /** What the runtime offers that stands after a block. */
  async surfaceAt(hash: string): Promise<Surface> {
    return this.surfaceOf(await this.ask("state_getRuntimeVersion", [hash], versionOf), hash);
  }

  private async surfaceOf(version: RuntimeVersion, hash: string): Promise<Surface> {
    const { specVersion, transactionVersion } = version;
    const name = `${this.genesis}/${specVersion}/${transactionVersion}`;
    const known = this.options.surfaces.get(name);
    if (known !== undefined) return known;
    const metadata = await this.ask("state_getMetadata", [hash], hexOf);
    const genesis = Uint8Array.fromHex(this.genesis.slice(2));
    const surface = readSurface(metadata, {
      version: { specVersion, transactionVersion },
      genesis,
      names: this.options.names,
    });
    if (Array.isArray(surface)) {
      throw new Unusable("differs", `its runtime ${specVersion} is not one for this program: ${surface.join("; ")}`);
    }
    const { surfaces } = this.options;
    const [oldest] = surfaces.keys();
    if (oldest !== undefined && surfaces.size >= surfacesMax) surfaces.delete(oldest);
    surfaces.set(name, surface);
    return surface;
  }

  end(reason: Unusable): void {
    if (this.ended) return;
    this.ended = true;
    if (this.timer !== null) clearInterval(this.timer);
    this.rpc.close();
    this.over.resolve(reason);
  }
}

const unusable = (error: unknown): Unusable =>
  error instanceof Unusable ? error : new Unusable("gone", messageOf(error));

function messageOf(error: unknown): string {
  return errorText(error);
}
