/**
 * One connection to one node: opened only when the node is on our chain, has caught up, and offers what
 * the program needs; then it follows the heads. Every question has a limit of time; a node that leaves
 * one unanswered, or goes back behind a finalized block, is left.
 */
import { WsProvider } from "@polkadot/api";
import { encodeHex0x } from "../../core/bytes.ts";
import { type Block, StoreError } from "../../storage/contract.ts";
import { readAccountState, storageKeys, u64Of } from "./keys.ts";
import { type PalletNames, type RuntimeVersion, readSurface, type Surface } from "./surface.ts";

export type Finality = "finalized" | "best";

export type SessionOptions = {
  readonly endpoint: string;
  readonly finality: Finality;
  readonly names: PalletNames;
  readonly operator: Uint8Array;
  readonly requestMs: number;
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

/** What a node answered instead of a result. */
export class NodeRefusal extends Error {
  constructor(
    readonly code: number,
    message: string,
  ) {
    super(message);
  }
}

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

export type Header = { readonly number: bigint; readonly parentHash: string };

export class Session {
  private constructor(
    private readonly options: SessionOptions,
    private readonly provider: WsProvider,
    readonly genesis: string,
  ) {}

  head: Head | null = null;
  onHead: (head: Head) => void = () => {};
  onBest: (hash: string) => void = () => {};
  /** Settles with the reason when the connection is over. */
  readonly over = Promise.withResolvers<Unusable>();
  private timer: ReturnType<typeof setInterval> | null = null;
  private following: Promise<void> | null = null;
  private again = false;
  private ended = false;

  static async open(options: SessionOptions): Promise<Session> {
    const { endpoint, requestMs } = options;
    // No reconnecting and no cache of answers by the library: both are decided here.
    const provider = new WsProvider(endpoint, false, {}, submitPatience * requestMs, 1);
    try {
      await limited(connected(provider), requestMs, "no connection");
      const genesis = String(await ask(provider, requestMs, ["chain_getBlockHash", [0]]));
      if (options.genesis !== null && genesis !== options.genesis) {
        throw new Unusable(
          "differs",
          `its chain begins with block ${genesis}, this store belongs to ${options.genesis}`,
        );
      }
      const health = (await ask(provider, requestMs, ["system_health", []])) as { isSyncing?: boolean };
      if (health.isSyncing === true) throw new Unusable("syncing", "the node is catching up with its chain");
      const session = new Session(options, provider, genesis);
      await session.follow();
      await session.subscribe();
      return session;
    } catch (error) {
      void provider.disconnect().catch(() => {});
      throw error instanceof Unusable ? error : new Unusable("gone", messageOf(error));
    }
  }

  get endpoint(): string {
    return this.options.endpoint;
  }

  /** Asks the node. What it refuses to answer is `unavailable`; when it does not answer, the connection ends. */
  async ask<T>(method: string, params: readonly unknown[]): Promise<T> {
    if (this.ended) throw new StoreError("unavailable", "the connection to the chain is over");
    try {
      return (await ask(this.provider, this.options.requestMs, [method, params])) as T;
    } catch (error) {
      if (!(error instanceof NodeRefusal)) this.end(new Unusable("gone", messageOf(error)));
      throw new StoreError("unavailable", `the chain did not answer: ${messageOf(error)}`, { cause: error });
    }
  }

  /** Hands in an extrinsic. An answer that does not come is no word about the connection; heads tell of that. */
  async submit(extrinsic: Uint8Array): Promise<void> {
    const question = ["author_submitExtrinsic", [encodeHex0x(extrinsic)]] as const;
    try {
      await ask(this.provider, submitPatience * this.options.requestMs, question);
    } catch (error) {
      if (error instanceof NodeRefusal) throw error;
      throw new StoreError("unavailable", `no word about an extrinsic: ${messageOf(error)}`, { cause: error });
    }
  }

  /** The values of several storage keys at one block, in one question; absent ones are `null`. */
  async values(keys: readonly Uint8Array[], block: string): Promise<(Uint8Array | null)[]> {
    const names = keys.map(encodeHex0x);
    const sets = await this.ask<{ changes: [string, string | null][] }[]>("state_queryStorageAt", [names, block]);
    if (sets.length === 0) throw new StoreError("unavailable", "the node does not know the block that was asked for");
    const found = new Map(sets.flatMap(({ changes }) => changes));
    return names.map((name) => {
      const value = found.get(name);
      return value === undefined || value === null ? null : Uint8Array.fromHex(value.slice(2));
    });
  }

  async header(hash: string): Promise<Header> {
    const header = await this.ask<{ number: string; parentHash: string } | null>("chain_getHeader", [hash]);
    if (header === null) throw new StoreError("unavailable", "the node does not know a block that it named");
    return { number: BigInt(header.number), parentHash: header.parentHash };
  }

  private async subscribe(): Promise<void> {
    const heads = this.options.finality === "best" ? "NewHeads" : "FinalizedHeads";
    const name = this.options.finality === "best" ? "newHead" : "finalizedHead";
    await this.listen([`chain_${name}`, `chain_subscribe${heads}`], () => this.refresh());
    await this.listen(["chain_newHead", "chain_subscribeNewHeads"], () => void this.best());
    this.provider.on("disconnected", () => this.end(new Unusable("gone", "the connection was lost")));
    // The question itself tells that the node still answers; heads that were missed are found by it.
    this.timer = setInterval(() => this.refresh(), this.options.pollMs);
  }

  private listen([type, method]: readonly [string, string], heard: () => void): Promise<unknown> {
    const subscribed = this.provider.subscribe(type, method, [], (error) => {
      if (error === null) heard();
    });
    return limited(subscribed, this.options.requestMs, `no answer to ${method}`);
  }

  private async best(): Promise<void> {
    try {
      this.onBest(await this.ask<string>("chain_getBlockHash", []));
    } catch {
      // The question has ended the connection; the loop that follows heads tells.
    }
  }

  /** Reads the newest head; while it reads, further calls make it read once more. */
  private refresh(): void {
    if (this.following !== null) {
      this.again = true;
      return;
    }
    this.following = this.follow()
      .catch((error: unknown) => this.end(error instanceof Unusable ? error : new Unusable("gone", messageOf(error))))
      .finally(() => {
        this.following = null;
        if (!this.again) return;
        this.again = false;
        this.refresh();
      });
  }

  private async follow(): Promise<void> {
    const { finality } = this.options;
    const asked = finality === "best" ? "chain_getBlockHash" : "chain_getFinalizedHead";
    const hash = await this.ask<string>(asked, []);
    if (this.ended || hash === this.head?.hash) return;
    const [header, version] = await Promise.all([
      this.header(hash),
      this.ask<RuntimeVersion>("state_getRuntimeVersion", [hash]),
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
    return this.surfaceOf(await this.ask<RuntimeVersion>("state_getRuntimeVersion", [hash]), hash);
  }

  private async surfaceOf(version: RuntimeVersion, hash: string): Promise<Surface> {
    const { specVersion, transactionVersion } = version;
    const name = `${this.genesis}/${specVersion}/${transactionVersion}`;
    const known = this.options.surfaces.get(name);
    if (known !== undefined) return known;
    const metadata = await this.ask<`0x${string}`>("state_getMetadata", [hash]);
    const genesis = Uint8Array.fromHex(this.genesis.slice(2));
    const surface = readSurface(metadata, {
      version: { specVersion, transactionVersion },
      genesis,
      names: this.options.names,
    });
    if (Array.isArray(surface)) {
      throw new Unusable("differs", `its runtime ${specVersion} is not one for this program: ${surface.join("; ")}`);
    }
    this.options.surfaces.set(name, surface);
    return surface;
  }

  end(reason: Unusable): void {
    if (this.ended) return;
    this.ended = true;
    if (this.timer !== null) clearInterval(this.timer);
    void this.provider.disconnect().catch(() => {});
    this.over.resolve(reason);
  }
}

function connected(provider: WsProvider): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  provider.on("connected", () => resolve());
  provider.on("error", (error: unknown) => reject(error instanceof Error ? error : new Error("the connection failed")));
  provider.on("disconnected", () => reject(new Error("the connection was refused")));
  provider.connect().catch(reject);
  return promise;
}

async function ask(
  provider: WsProvider,
  requestMs: number,
  [method, params]: readonly [string, readonly unknown[]],
): Promise<unknown> {
  try {
    return await limited(provider.send(method, [...params], false), requestMs, `no answer to ${method}`);
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : undefined;
    throw typeof code === "number" ? new NodeRefusal(code, messageOf(error)) : error;
  }
}

async function limited<T>(work: Promise<T>, ms: number, late: string): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error(`${late} within ${ms} ms`)), ms);
  try {
    return await Promise.race([work, promise]);
  } finally {
    clearTimeout(timer);
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
