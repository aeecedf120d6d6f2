/**
 * A node of the virtual chain, as far as the driver speaks with one: a pool with its refusals
 * (1010, 1012, 1013, 1014, 1016) and its bans of half an hour, pruned states, and on command a node
 * that is down, silent, frozen, swallows what it takes, or lies.
 */
import { encodeHex0x } from "../../src/core/codec/bytes.ts";
import { encodeWith } from "../../src/core/codec/scale.ts";
import { emptyAccount, recordCodec } from "../../src/core/ledger/account.ts";
import { items, type StorageItemName } from "../../src/plugins/chain/layouts.ts";
import { prefixOf } from "../../src/plugins/chain/metadata.ts";
import { parseHeader, type Socket, type SocketEvents } from "../../src/plugins/chain/rpc.ts";
import { orderedRootNode } from "../../src/plugins/chain/trie.ts";
import {
  type DecodedExtrinsic,
  decodeExtrinsic,
  type VirtualBlock,
  type VirtualChain,
} from "./virtual-chain.ts";
import type { Chance, VirtualTime } from "./virtual-time.ts";

/** What a node does wrong; each has its share of schedules. */
export type Lie =
  | "head"
  | "version"
  | "keys"
  | "block"
  | "genesis"
  | "garbage"
  | "nonce"
  | "hash"
  | "body"
  /** The body is the root node of the trie: hashed as a whole it has the header's root. */
  | "root node"
  /** By their numbers it shows blocks of a chain of its own, up to some before its head. */
  | "numbers"
  /** Blocks before its final one have the newest runtime. */
  | "runtime"
  /** The registration of one DID never expires. */
  | "expiry"
  /** It has no bodies, and no record of a DID. */
  | "records"
  /** It calls every proof invalid, and its state says why: from then on the DID is deactivated. */
  | "reasons";
export type NodeState = {
  isDown: boolean;
  isSilent: boolean;
  /** Says that it takes extrinsics, and forgets them. */
  swallows: boolean;
  /** Its pool takes nothing, and bans what it is given. */
  bans: boolean;
  /** Its pool looks at a block whose state is gone, and can't check anything. */
  poolFails: boolean;
  lie: Lie | null;
  /** By how much a wrong nonce is too high. */
  nonceAhead: number;
  /** Stands still at this block; its final one is a few before, or a given one. */
  frozen: VirtualBlock | null;
  frozenFinal: VirtualBlock | null;
  /** Cut off from the others: the fork that it builds alone, on which nothing becomes final. */
  fork: { best: VirtualBlock; readonly final: VirtualBlock } | null;
  /** States of finalized blocks older than so many are gone. */
  keepsStates: number;
  /** The same for bodies. */
  keepsBodies: number;
};

type Request = {
  readonly id: number;
  readonly method: string;
  readonly params: readonly unknown[];
};
class Refusal extends Error {
  constructor(
    readonly code: number,
    message: string,
  ) {
    super(message);
  }
}

const banMs = 1_800_000;
const poolMax = 400;

export type NodeParts = {
  readonly chain: VirtualChain;
  readonly time: VirtualTime;
  readonly chance: Chance;
  /** Blocks of a fork whose author is cut off. */
  readonly hidden: Set<VirtualBlock>;
};

export class VirtualNode {
  readonly state: NodeState = {
    isDown: false,
    isSilent: false,
    swallows: false,
    bans: false,
    poolFails: false,
    lie: null,
    nonceAhead: 40,
    frozen: null,
    frozenFinal: null,
    fork: null,
    keepsStates: 256,
    keepsBodies: Number.POSITIVE_INFINITY,
  };
  readonly pool = new Map<string, DecodedExtrinsic>();
  private readonly banned = new Map<string, number>();
  private readonly sockets = new Set<{ readonly events: SocketEvents; isOpen: boolean }>();
  private readonly accused = new Set<string>();
  private readonly own: string[] = [];
  /** The DID about which it lies. */
  private victim = "";
  private readonly fakes = new Map<string, Readonly<Record<string, unknown>>>();
  private readonly prefixes = new Map<string, string>();

  constructor(private readonly parts: NodeParts) {
    for (const name of Object.keys(items) as StorageItemName[])
      this.prefixes.set(prefixOf(name).toHex(), name);
  }

  get best(): VirtualBlock {
    return this.state.frozen ?? this.state.fork?.best ?? this.parts.chain.best;
  }

  get finalized(): VirtualBlock {
    const { frozen, frozenFinal, fork } = this.state;
    const { chain } = this.parts;
    if (fork !== null) return fork.final;
    if (frozenFinal !== null) return frozenFinal;
    if (frozen === null || chain.finalized.number <= frozen.number) return chain.finalized;
    return chain.ancestor(frozen, Math.max(0, frozen.number - 3)) ?? chain.genesis;
  }

  /** For a time. */
  disturb(
    change: Partial<
      Pick<NodeState, "isDown" | "isSilent" | "swallows" | "bans" | "lie" | "frozen">
    >,
    ms: number,
  ) {
    Object.assign(this.state, change);
    const end = (name: string) =>
      [name, name === "lie" || name === "frozen" ? null : false] as const;
    this.parts.time.after(ms, () =>
      Object.assign(this.state, Object.fromEntries(Object.keys(change).map(end))),
    );
  }

  /** Cuts the node off from the others: from here on it builds alone. */
  cutOff(): void {
    const { best, finalized: final } = this;
    this.state.fork = { best, final };
  }

  /** The next block of its own fork. */
  buildAlone(): void {
    const { fork } = this.state;
    if (fork === null) return;
    const { chain, hidden } = this.parts;
    fork.best = chain.build(fork.best, this.offer());
    hidden.add(fork.best);
  }

  /** Back with the others, whose chain counts: what the fork held waits again. */
  rejoin(): void {
    const { fork } = this.state;
    if (fork === null) return;
    const { chain, hidden } = this.parts;
    this.state.fork = null;
    for (let at = fork.best; hidden.delete(at) && at.parent !== null; at = at.parent) {
      chain.retracted++;
      for (const extrinsic of at.extrinsics) this.pool.set(extrinsic.hash, extrinsic);
    }
    this.prune();
  }

  /** Ends every connection, and forgets the pool when the process dies. */
  stop(): void {
    this.state.isDown = true;
    this.pool.clear();
    this.banned.clear();
    for (const socket of this.sockets) {
      socket.isOpen = false;
      socket.events.onClose("the connection was lost (1006)");
    }
    this.sockets.clear();
  }

  connect(events: SocketEvents): Socket {
    const { time, chance } = this.parts;
    const socket = { events, isOpen: true };
    this.sockets.add(socket);
    time.after(chance.between(1, 50), () => {
      if (this.state.isDown) {
        socket.isOpen = false;
        events.onClose("connection refused");
      } else if (socket.isOpen) events.onOpen();
    });
    return {
      send: (text) => {
        time.after(chance.between(1, 60), () => {
          if (!socket.isOpen || this.state.isDown || this.state.isSilent) return;
          const reply = this.reply(JSON.parse(text) as Request);
          time.after(chance.between(1, 60), () => {
            if (socket.isOpen && !this.state.isSilent) events.onMessage(reply);
          });
        });
      },
      close: () => {
        socket.isOpen = false;
        this.sockets.delete(socket);
      },
    };
  }

  private reply({ id, method, params }: Request): string {
    if (this.state.lie === "garbage" && this.parts.chance.likely(0.2)) return "{not json";
    try {
      return JSON.stringify({ id, jsonrpc: "2.0", result: this.result(method, params) ?? null });
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return JSON.stringify({
        id,
        jsonrpc: "2.0",
        error: { code: error.code, message: error.message },
      });
    }
  }

  private result(method: string, params: readonly unknown[]): unknown {
    const { lie } = this.state;
    switch (method) {
      case "chain_getBlockHash": {
        if (params[0] === undefined) return this.best.hash;
        const number = params[0] as number;
        if (number === 0 && lie === "genesis") return `0x${"77".repeat(32)}`;
        if (lie === "numbers" && number > 0 && number < this.finalized.number - 20)
          return this.ownBlock(number);
        return this.parts.chain.ancestor(this.best, number)?.hash ?? null;
      }
      case "chain_getFinalizedHead":
        return lie === "head" ? this.fakeHead() : this.finalized.hash;
      case "chain_getHeader": {
        const header = this.fakes.get(String(params[0])) ?? this.blockOf(params[0]).header;
        return lie === "hash" ? { ...header, stateRoot: `0x${"99".repeat(32)}` } : header;
      }
      case "chain_getBlock": {
        const own = this.fakes.get(String(params[0]));
        if (own !== undefined && this.own.includes(String(params[0])))
          return { block: { header: own, extrinsics: [] } };
        const { header, extrinsics, number } = this.blockOf(params[0]);
        if (number < this.finalized.number - this.state.keepsBodies || lie === "records")
          return null;
        // A true header over a body without the operator's calls.
        const shown =
          lie === "body" ? extrinsics.filter(({ nonce }) => nonce === null) : extrinsics;
        const bytes = shown.map(({ hex }) => hex);
        const node = () => encodeHex0x(orderedRootNode(bytes.map(bytesOf), 0));
        return { block: { header, extrinsics: lie === "root node" ? [node()] : bytes } };
      }
      case "state_getRuntimeVersion": {
        return {
          specName: "waypost",
          specVersion: this.versionAt(params[0]),
          transactionVersion: 1,
        };
      }
      case "state_queryStorageAt":
        return this.storage(params[0] as readonly string[], params[1]);
      case "system_health":
        return { isSyncing: false, peers: 2, shouldHavePeers: true };
      case "author_submitExtrinsic":
        return this.submit(String(params[0]));
      default:
        throw new Refusal(-32_601, "Method not found");
    }
  }

  /** A header a thousand blocks ahead with a hash of its own, as a lying node would make one. */
  private fakeHead(): string {
    const header = {
      ...this.finalized.header,
      number: `0x${(this.finalized.number + 1_000).toString(16)}`,
    };
    const { hash } = parseHeader(header);
    this.fakes.set(hash, header);
    return hash;
  }

  /** Empty, and after the one before it. */
  private ownBlock(number: number): string {
    while (this.own.length <= number) {
      const { chain } = this.parts;
      const parentHash = this.own.at(-1) ?? chain.ancestor(this.best, 0)?.hash;
      const header = {
        ...chain.genesis.header,
        parentHash,
        number: `0x${this.own.length.toString(16)}`,
      };
      const { hash } = this.own.length === 0 ? chain.genesis : parseHeader(header);
      this.fakes.set(hash, header);
      this.own.push(hash);
    }
    return this.own[number] as string;
  }

  private blockOf(hash: unknown): VirtualBlock {
    const block = this.fakes.has(String(hash))
      ? this.finalized
      : this.parts.chain.blocks.get(String(hash));
    if (block === undefined || !this.knows(block)) throw new Refusal(-32_000, "UnknownBlock");
    return block;
  }

  /** A node that is cut off knows its own fork; the others learn of it when the cut is over. */
  private knows(block: VirtualBlock): boolean {
    const { chain, hidden } = this.parts;
    if (block.number > this.best.number) return false;
    return this.state.fork === null
      ? !hidden.has(block)
      : chain.ancestor(this.best, block.number) === block;
  }

  private stateOf(hash: unknown): VirtualBlock {
    const block = this.blockOf(hash);
    if (block.number < this.finalized.number - this.state.keepsStates)
      throw new Refusal(4003, "UnknownBlock: State already discarded");
    return block;
  }

  private versionAt(hash: unknown): number {
    const { lie } = this.state;
    const { specVersion } = this.stateOf(hash).state;
    if (lie === "version") return 999;
    return lie === "runtime" ? this.finalized.state.specVersion : specVersion;
  }

  // --------------------------------------------------------------------------------------- storage

  private storage(keys: readonly string[], hash: unknown): unknown {
    const block = this.stateOf(hash);
    const { lie } = this.state;
    const changes = keys.map((key) => {
      const value = this.valueOf(
        Uint8Array.fromHex(key.slice(2)),
        block,
        this.fakes.has(String(hash)),
      );
      return [key, value === null ? null : encodeHex0x(value)];
    });
    if (lie === "keys") return [{ block: hash, changes: changes.slice(changes.length >> 1) }];
    return [{ block: lie === "block" ? this.parts.chain.genesis.hash : hash, changes }];
  }

  private valueOf(key: Uint8Array, block: VirtualBlock, isFake: boolean): Uint8Array | null {
    const map = this.prefixes.get(key.subarray(0, 32).toHex());
    const { lie } = this.state;
    if (map === "PlainProofs") return Uint8Array.of(1);
    if (map === "Now") return u64(isFake ? this.parts.time.nowMs : block.timeMs);
    if (map === "Account")
      return accountOf(block.state.nonce + (lie === "nonce" ? this.state.nonceAhead : 0));
    const name = new TextDecoder().decode(key.subarray(((key[48] ?? 0) & 3) === 0 ? 49 : 50));
    const { accounts, aliases } = block.state;
    if (map === "AliasIndex") {
      const holder = aliases.get(name);
      if (holder === undefined) return null;
      return Uint8Array.of(holder.length << 2, ...new TextEncoder().encode(holder));
    }
    const account = accounts.get(name as never) ?? emptyAccount;
    const { record, counters } = account;
    switch (map) {
      case "Dids":
        if (record === null || lie === "records") return null;
        return encodeWith(
          recordCodec,
          this.state.lie === "reasons" && this.accused.has(name)
            ? { ...record, deactivated: true }
            : record,
        );
      case "ComponentCallsLeft":
        return Uint8Array.of(account.componentCallsLeft, 0, 0, 0);
      case "Lives":
        return Uint8Array.of(account.life, 0, 0, 0);
      case "AliasNonces":
        return u64(counters.alias);
      case "DocumentNonces":
        return u64(counters.document);
      case "RootPubkeyNonces":
        return u64(counters.rootPubkey);
      case "ControlNonces":
        return u64(counters.control);
      case "DocumentTimes":
        return u64(account.documentTimeMs);
      case "RegistrationExpiries":
        if (this.victim === "" && lie === "expiry") this.victim = name;
        return u64(
          account.registrationExpiryMs + (lie === "expiry" && this.victim === name ? 1n : 0n),
        );
      default:
        return null;
    }
  }

  // ------------------------------------------------------------------------------------------ pool

  private submit(hex: string): string {
    const { chain, time } = this.parts;
    const extrinsic = decodeExtrinsic(hex);
    if (extrinsic === null)
      throw new Refusal(1002, "Verification Error: Unable to decode extrinsic");
    const { hash } = extrinsic;
    if (this.state.poolFails)
      throw new Refusal(
        1002,
        "Verification Error: Runtime error: Api called for an unknown Block: State already discarded",
      );
    if (this.state.lie === "reasons" && extrinsic.nonce === null) {
      this.accused.add(extrinsic.call.did);
      throw new Refusal(1010, "Invalid Transaction: badProof");
    }
    if (this.pool.has(hash)) throw new Refusal(1013, "Transaction already imported");
    if ((this.banned.get(hash) ?? 0) > time.nowMs)
      throw new Refusal(1012, "Transaction is temporarily banned");
    if (this.state.bans) {
      this.ban(hash);
      throw new Refusal(1010, "Invalid Transaction: Inability to pay some fees");
    }
    const validity = chain.validity(extrinsic, this.best);
    if (validity !== "valid" && validity !== "future") {
      this.ban(hash);
      throw new Refusal(1010, `Invalid Transaction: ${validity}`);
    }
    for (const one of this.pool.values()) {
      const isRival =
        one.nonce !== null ? one.nonce === extrinsic.nonce : one.callHash === extrinsic.callHash;
      if (isRival) throw new Refusal(1014, "Priority is too low");
    }
    if (this.pool.size >= poolMax) throw new Refusal(1016, "Immediately Dropped: the pool is full");
    if (!this.state.swallows) this.pool.set(hash, extrinsic);
    return hash;
  }

  private ban(hash: string): void {
    this.banned.set(hash, this.parts.time.nowMs + banMs);
  }

  /** What it would put into a block now. */
  offer(): DecodedExtrinsic[] {
    return [...this.pool.values()].sort((a, b) => (a.nonce ?? -1) - (b.nonce ?? -1));
  }

  /**
   * A new best block: what it holds leaves the pool, and so does what can't be valid any more,
   * which is banned.
   */
  prune(): void {
    const { chain } = this.parts;
    for (const [hash, extrinsic] of this.pool) {
      const validity = chain.validity(extrinsic, this.best);
      if (validity === "valid" || validity === "future") continue;
      this.pool.delete(hash);
      if (validity !== "stale" && validity !== "refused") this.ban(hash);
    }
  }
}

const bytesOf = (hex: string): Uint8Array => Uint8Array.fromHex(hex.slice(2));

function u64(value: number | bigint): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(value), true);
  return bytes;
}

/** Nonce, three counts of references, and a million units of 10^12. */
function accountOf(nonce: number): Uint8Array {
  const bytes = new Uint8Array(80);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, nonce, true);
  view.setBigUint64(16, 10n ** 18n, true);
  return bytes;
}
