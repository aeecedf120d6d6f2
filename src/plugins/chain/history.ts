/**
 * How far the blocks of a chain were read for key proofs, and by which runtimes. A block
 * says nothing about the runtime that its calls are encoded for; the state before it does,
 * which nodes soon discard, and its header says when the next block has another one. In the
 * outbox, next to the proofs:
 *
 *   proofs        up to which block blocks were read, and what is unread before it (JSON)
 *   c/<n>         the first place behind each 256 blocks: its number and hash (JSON)
 *   v/<version>   the metadata of a runtime
 *
 * Laws:
 * 1. A runtime that is known stays that of the blocks that follow, until a header changes it. Near
 *    the head, where nodes have the states, it is asked for each block that has calls. Another one
 *    than the headers lead to needs two endpoints.
 * 2. Where no endpoint has it, a block is read by the head's. That was right if no header
 *    up to the head changes the runtime. If one does, the block is a gap (`proofs.ts`, law
 *    5), and the log says so.
 * 3. Metadata is kept once the endpoint that is asked with the first gives the same, or none does.
 *
 * Source: docs/decisions.md D442.
 */
import { gunzipSync, gzipSync } from "node:zlib";
import { decodeJson, encodeJson } from "../../storage/embedded-records.ts";
import type { OrderedTable, TableChange } from "../../storage/table.ts";
import type { Endpoints } from "./endpoints.ts";
import { type RuntimeMetadata, readMetadata, runtimeName } from "./metadata.ts";
import { hasCalls } from "./reader.ts";
import type { Header, SignedBlock } from "./rpc.ts";
import { type ChainHead, type Common, readable } from "./session.ts";

export type BlockPlace = {
  /** The last block that was read; without a hash behind a gap, and before the first block. */
  readonly number: bigint;
  readonly hash: string;
  /** The first block that could not be read. */
  readonly gap: bigint | null;
  /** Name of the runtime of the next block, as far as it is known. */
  readonly runtime: string | null;
  /** The first block that was read by a runtime which may be a later one than its own (law 2). */
  readonly assumed: number | null;
  /** The first block since a head whose runtime was taken from the blocks before it (law 1). */
  readonly carried: number | null;
  /** DIDs about whose registrations two endpoints disagree, and their blocks. */
  readonly aside: Readonly<Record<string, number>>;
};

type Checkpoint = Pick<BlockPlace, "number" | "hash" | "runtime">;
type KeptRuntime = Pick<
  RuntimeMetadata["frame"],
  "specName" | "specVersion" | "transactionVersion"
> & { readonly metadata: string };

const placeKey = "proofs";
const beginning: BlockPlace = {
  number: 0n,
  hash: "",
  gap: null,
  runtime: null,
  assumed: null,
  carried: null,
  aside: {},
};
const checkpointBlocks = 256n;
/** Eighteen days of blocks of 6 s. */
const checkpointsMax = 1_024n;
/** Of blocks so close to the head every node has the state. */
const nearBlocks = 16n;

const checkpointKey = (index: bigint): string => `c/${index.toString().padStart(12, "0")}`;
const runtimeKey = (name: string): string => `v/${name}`;

export class History {
  /** As it is in the outbox, unless reading goes on from an earlier one. */
  place: BlockPlace;
  /** What the place is when the blocks that are being read are committed. */
  private draft: BlockPlace;
  /**
   * Runtimes that were met, with a block after which each is in force; those in the outbox
   * are not looked at again.
   */
  private readonly met = new Map<string, { metadata: RuntimeMetadata; hash: string }>();
  private readonly looked = new Set<string>();

  constructor(
    private readonly options: Pick<Common, "log" | "runtimes"> & {
      readonly table: OrderedTable;
      readonly endpoints: Pick<Endpoints, "agreedRuntime" | "runtimeAfter" | "elsewhere">;
    },
  ) {
    const bytes = options.table.get(placeKey);
    const kept = bytes === null ? {} : decodeJson<Partial<BlockPlace>>(bytes, "number of a block");
    this.place = Object.assign({}, beginning, kept);
    this.draft = this.place;
  }

  // -------------------------------------------------------------------------------------- runtimes

  /**
   * Before blocks are read: what was found for blocks that were not committed counts for
   * nothing.
   */
  begin(): void {
    this.draft = this.place;
  }

  /** By which the calls of a block are encoded. */
  async runtimeOf({ number, parentHash }: Header, head: ChainHead): Promise<RuntimeMetadata> {
    const isNear = head.number - number < nearBlocks;
    const carried = this.named(this.draft.runtime, head);
    if (carried !== null && !isNear) return this.carry(carried, number);
    const found = await this.options.endpoints.agreedRuntime(parentHash, this.draft.runtime);
    if (found !== null) {
      this.meet(found, parentHash);
      this.set({ runtime: runtimeName(found.frame) });
      return found;
    }
    if (carried !== null) return this.carry(carried, number);
    this.set({ assumed: this.draft.assumed ?? Number(number) });
    return head.metadata;
  }

  private carry(metadata: RuntimeMetadata, number: bigint): RuntimeMetadata {
    this.set({ carried: this.draft.carried ?? Number(number) });
    return metadata;
  }

  /** A block was read. */
  passed({ changesRuntime }: Header): void {
    if (!changesRuntime) return;
    const { assumed } = this.draft;
    if (assumed !== null) this.missRuntime(assumed);
    this.set({ runtime: null, assumed: null, carried: null });
  }

  /** All blocks up to a confirmed head were read. */
  reached(head: ChainHead): void {
    const name = runtimeName(head.metadata.frame);
    const { runtime, carried } = this.draft;
    // A chain that changes its code without a word in a header.
    if (runtime !== null && runtime !== name && carried !== null) this.missRuntime(carried);
    this.meet(head.metadata, head.hash);
    this.set({ runtime: name, assumed: null, carried: null });
  }

  private missRuntime(first: number): void {
    const text = "no endpoint has the runtime of blocks that may prove keys: name an archive node";
    this.options.log("warn", text, { from: String(first) });
    this.miss(BigInt(first));
  }

  /** Whether it can be read as a block with its own runtime. */
  async isReadable(block: SignedBlock): Promise<boolean> {
    const { parentHash } = block.header;
    return !hasCalls(block) || (await this.options.endpoints.runtimeAfter(parentHash)) !== null;
  }

  private named(name: string | null, { metadata, proofs }: ChainHead): RuntimeMetadata | null {
    if (name === null) return null;
    if (name === runtimeName(metadata.frame)) return metadata;
    const { runtimes, table } = this.options;
    const memoryName = `0x${proofs.genesisHash.toHex()}/${name}`;
    const known = runtimes.get(memoryName);
    if (known !== undefined) return known;
    const bytes = table.get(runtimeKey(name));
    if (bytes === null) return null;
    const { metadata: packed, ...version } = decodeJson<KeptRuntime>(bytes, "runtime");
    const source = `0x${gunzipSync(Uint8Array.fromBase64(packed)).toString("hex")}` as const;
    const read = readMetadata(source, { version, genesis: proofs.genesisHash });
    if (Array.isArray(read)) return null;
    runtimes.set(memoryName, read);
    return read;
  }

  private meet(metadata: RuntimeMetadata, hash: string): void {
    const name = runtimeName(metadata.frame);
    if (!this.looked.has(name)) this.met.set(name, { metadata, hash });
  }

  /** Those to be written with the next commit (law 3). */
  async newRuntimes(): Promise<RuntimeMetadata[]> {
    const found: RuntimeMetadata[] = [];
    for (const [name, { metadata, hash }] of this.met) {
      this.met.delete(name);
      this.looked.add(name);
      if (this.options.table.get(runtimeKey(name)) !== null) continue;
      const other = await this.options.endpoints.elsewhere((session) =>
        readable(session.metadataBytes(hash)),
      );
      if (other === null || other === metadata.source) found.push(metadata);
    }
    return found;
  }

  // ---------------------------------------------------------------------------------------- places

  /** The first of some blocks can't be read. */
  miss(first: bigint): void {
    const { gap } = this.draft;
    this.set({ gap: gap === null || first < gap ? first : gap });
  }

  putAside(did: string, number: bigint): void {
    this.set({ aside: { [did]: Number(number), ...this.draft.aside } });
  }

  private set(change: Partial<BlockPlace>): void {
    this.draft = { ...this.draft, ...change };
  }

  write(
    view: TableChange,
    { number, hash }: Pick<BlockPlace, "number" | "hash">,
    runtimes: readonly RuntimeMetadata[],
  ): void {
    const place: BlockPlace = { ...this.draft, number, hash };
    view.put(placeKey, encodeJson(place));
    const index = number / checkpointBlocks;
    if (hash !== "" && index > this.place.number / checkpointBlocks) {
      const checkpoint: Checkpoint = { number, hash, runtime: place.runtime };
      view.put(checkpointKey(index), encodeJson(checkpoint));
      if (index >= checkpointsMax) view.remove(checkpointKey(index - checkpointsMax));
    }
    for (const { frame, source } of runtimes) {
      const { specName, specVersion, transactionVersion } = frame;
      const metadata = gzipSync(Uint8Array.fromHex(source.slice(2))).toString("base64");
      const kept: KeptRuntime = { specName, specVersion, transactionVersion, metadata };
      view.put(runtimeKey(runtimeName(frame)), encodeJson(kept));
    }
  }

  moved({ number, hash }: Pick<BlockPlace, "number" | "hash">): void {
    this.place = { ...this.draft, number, hash };
    this.draft = this.place;
  }

  /** Reading goes on before a gap that can be filled. */
  restart(gap: bigint): void {
    this.goTo({ number: gap - 1n, hash: "", runtime: null });
    this.place = { ...this.place, gap: null };
    this.draft = this.place;
  }

  /** What was read last is on another chain. */
  stepBack(): void {
    this.goTo(this.checkpointBefore(this.place.number));
  }

  /** From the blocks of these DIDs on, which are aside no more. */
  reread(dids: readonly string[]): void {
    if (dids.length === 0) return;
    const first = Math.min(...dids.map((did) => this.place.aside[did] ?? 0));
    const aside = Object.entries(this.place.aside).filter(([did]) => !dids.includes(did));
    this.goTo(this.checkpointBefore(BigInt(first)));
    this.place = { ...this.place, aside: Object.fromEntries(aside) };
    this.draft = this.place;
  }

  private goTo(to: Checkpoint): void {
    const { assumed } = this.place;
    const isBefore = assumed !== null && BigInt(assumed) <= to.number;
    this.place = { ...this.place, ...to, assumed: isBefore ? assumed : null, carried: null };
    this.draft = this.place;
  }

  /** The last one that is kept before a block, or the beginning. */
  private checkpointBefore(number: bigint): Checkpoint {
    const { table } = this.options;
    const newest = number / checkpointBlocks;
    for (let index = newest; index > 0n && index > newest - checkpointsMax; index--) {
      const bytes = table.get(checkpointKey(index));
      const found = bytes === null ? null : decodeJson<Checkpoint>(bytes, "place");
      if (found !== null && found.number < number) return found;
    }
    const { number: first, hash, runtime } = beginning;
    return { number: first, hash, runtime };
  }
}
