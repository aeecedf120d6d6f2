/**
 * The index of the mailbox as it lies in memory, saved beside the data file when a store is closed: the next start
 * copies it back (0.15 µs a row) instead of building it from pages and journal. It is only a shortcut. It is taken once
 * and removed before it is read, so that after a crash there is none. It belongs to one state of the data file: to the
 * last transaction and to a random text that this transaction wrote. Each section has a checksum that covers all before
 * it; a torn, damaged or older one does not fit, and the index is built.
 */
import { closeSync, openSync, readSync, rmSync, writevSync } from "node:fs";
import { join } from "node:path";

/** Counts up whenever what is saved, or its order, changes. */
const version = 4;
const savedFile = "index.saved";
const sumBytes = 8;

export type Elements =
  | Float64Array<ArrayBuffer>
  | Uint32Array<ArrayBuffer>
  | Int32Array<ArrayBuffer>
  | Uint16Array<ArrayBuffer>
  | Uint8Array<ArrayBuffer>;

/** What a saved index belongs to. */
export type StoreState = {
  readonly folder: string;
  /** Length of the data file: one that was cut short is read as a whole. */
  readonly fileBytes: number;
  readonly transaction: bigint;
  readonly nonce: string;
};

/** What was saved is not a copy of the index in this state of the store. */
class UnfitIndex extends Error {}

/** Writes values, or reads them in the same order: whoever has some gives them through it, for both directions. */
export class SavedIndex {
  private bytesSoFar = 0;
  private sum: bigint;
  private readonly sumView = new DataView(new ArrayBuffer(sumBytes));

  constructor(
    private readonly descriptor: number,
    private readonly isSaving: boolean,
    private readonly bytesMax: number,
    { fileBytes, transaction, nonce }: StoreState,
  ) {
    this.sum = Bun.hash.xxHash3(`${version} ${fileBytes} ${transaction} ${nonce}`);
  }

  /** Writes the elements, or fills them. */
  array(elements: Elements): void {
    const bytes = new Uint8Array(elements.buffer, elements.byteOffset, elements.byteLength);
    const sum = new Uint8Array(this.sumView.buffer);
    this.bytesSoFar += bytes.length;
    if (this.bytesSoFar > this.bytesMax) throw new UnfitIndex();
    if (!this.isSaving) this.fill(bytes);
    this.sum = Bun.hash.xxHash3(bytes, this.sum);
    if (this.isSaving) {
      this.sumView.setBigUint64(0, this.sum);
      const written = writevSync(this.descriptor, [bytes, sum]);
      if (written < bytes.length + sumBytes) throw new UnfitIndex();
      return;
    }
    this.fill(sum);
    if (this.sumView.getBigUint64(0) !== this.sum) throw new UnfitIndex();
  }

  private fill(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; ) {
      const length = readSync(this.descriptor, bytes, at, bytes.length - at, null);
      if (length === 0) throw new UnfitIndex();
      at += length;
    }
  }

  number(value: number): number {
    const one = Float64Array.of(value);
    this.array(one);
    return one[0]!;
  }

  numbers(values: Iterable<number>): number[] {
    const saved = Float64Array.from(values);
    const length = this.number(saved.length);
    const all = this.isSaving ? saved : new Float64Array(length);
    this.array(all);
    return [...all];
  }

  json<T>(value: T): T {
    const saved = this.isSaving ? new TextEncoder().encode(JSON.stringify(value)) : new Uint8Array();
    const length = this.number(saved.length);
    const bytes = this.isSaving ? saved : new Uint8Array(length);
    this.array(bytes);
    return this.isSaving ? value : JSON.parse(new TextDecoder().decode(bytes));
  }
}

/** Saves what `give` gives, if that is at most so many bytes. What can't be written is left out. */
export function saveIndex(state: StoreState, bytesMax: number, give: (saved: SavedIndex) => void): void {
  const path = join(state.folder, savedFile);
  try {
    const descriptor = openSync(path, "w", 0o600);
    try {
      give(new SavedIndex(descriptor, true, bytesMax, state));
    } finally {
      closeSync(descriptor);
    }
  } catch (error) {
    checkExpected(error);
    rmSync(path, { force: true });
  }
}

/** Takes what was saved of this state, if that is there; answers whether `take` got all of it. */
export function takeIndex(state: StoreState, take: (saved: SavedIndex) => void): boolean {
  const path = join(state.folder, savedFile);
  let descriptor: number | null = null;
  try {
    descriptor = openSync(path, "r");
    rmSync(path);
    take(new SavedIndex(descriptor, false, Number.POSITIVE_INFINITY, state));
    return true;
  } catch (error) {
    checkExpected(error);
    return false;
  } finally {
    if (descriptor !== null) closeSync(descriptor);
  }
}

/** A refusal of the operating system has a code. */
function checkExpected(error: unknown): void {
  if (!(error instanceof UnfitIndex || (error instanceof Error && "code" in error))) throw error;
}
