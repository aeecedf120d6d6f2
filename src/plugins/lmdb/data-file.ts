/**
 * A reader of LMDB's file that trusts nothing in it: it reads pages by their number, checks every bound
 * before it follows it, and never maps the file, so that a damaged or cut-short file is an error and not
 * a signal. It checks what LMDB itself does not: that a page is the one that was asked for, that keys are
 * in order and within the bounds of the branch above, and that a tree has as many entries as it states.
 * Source: the layout in liblmdb/mdb.c of the `lmdb` package (24-byte page headers, data version 2).
 */
import { closeSync, fstatSync, openSync, readSync } from "node:fs";

/** What is wrong with the file. `isCut`: pages lie behind its end, as after an unfinished copy. */
export class DamagedFile extends Error {
  constructor(
    message: string,
    readonly isCut = false,
  ) {
    super(message);
    this.name = "DamagedFile";
  }
}

export type Tree = { readonly name: string; readonly root: number; readonly depth: number; readonly entries: number };

export type FileRecord = {
  readonly key: Buffer;
  /** Reads the value; a large one lies on pages of its own. */
  readonly value: () => Buffer;
};

type Meta = {
  readonly pageBytes: number;
  readonly lastPage: number;
  readonly transaction: bigint;
  readonly main: Tree;
};
type Bounds = { readonly low: Buffer | null; readonly high: Buffer | null };
type Walk = { readonly tree: Tree; readonly from: Buffer | null };
type At = { readonly page: number; readonly level: number; readonly bounds: Bounds };
type Leaf = { readonly page: Buffer; readonly number: number; readonly bounds: Bounds };

const headerBytes = 24;
const nodeBytes = 8;
const magic = 0xbeefc0de;
const flags = { branch: 1, leaf: 2, overflow: 4, ofKind: 0x7f, bigValue: 1, subTree: 2 } as const;
const noPage = 0xffff_ffff_ffff_ffffn;
const depthMax = 32;
const noBounds: Bounds = { low: null, high: null };

export class DataFile {
  private readonly meta: Meta;
  private readonly fileBytes: number;
  /** Bytes read so far. */
  bytesRead = 0;

  private constructor(private readonly descriptor: number) {
    this.meta = newestMeta(descriptor);
    this.fileBytes = fstatSync(descriptor).size;
  }

  /** Throws `DamagedFile`, or the system's error when the file can't be read. */
  static open(path: string): DataFile {
    const descriptor = openSync(path, "r");
    try {
      return new DataFile(descriptor);
    } catch (error) {
      closeSync(descriptor);
      throw error;
    }
  }

  close(): void {
    closeSync(this.descriptor);
  }

  /** Number of the transaction whose state this reader sees. */
  get transaction(): bigint {
    return this.meta.transaction;
  }

  /** Length of a file that holds this state. */
  get lengthBytes(): number {
    return (this.meta.lastPage + 1) * this.meta.pageBytes;
  }

  /** Bytes of the file as they are; fewer at its end. */
  raw(at: number, length: number): Buffer {
    const bytes = Buffer.allocUnsafe(length);
    return bytes.subarray(0, readSync(this.descriptor, bytes, 0, length, at));
  }

  /**
   * The first pages of a copy of this state: both meta pages hold the same, one as an older transaction, and
   * neither claims that it was written since this machine started.
   */
  metaPages(): Buffer {
    const { pageBytes, transaction } = this.meta;
    const pages = Buffer.alloc(2 * pageBytes);
    const own = Number(transaction % 2n);
    const found = [0, 1].map((page) => this.raw(page * pageBytes, metaBytes));
    const newest = found.find((page) => page.readBigUInt64LE(headerBytes + 128) === transaction);
    if (newest === undefined) throw new DamagedFile("the file has changed while it was read");
    for (const page of [0, 1]) {
      const at = page * pageBytes;
      newest.copy(pages, at);
      pages.writeBigUInt64LE(BigInt(page), at);
      pages.writeBigUInt64LE(page === own ? transaction : transaction - 1n, at + headerBytes + 128);
      pages.writeBigUInt64LE(0n, at + headerBytes + 136);
    }
    return pages;
  }

  /** The named trees of the environment. */
  trees(): Tree[] {
    const found: Tree[] = [];
    for (const { key, tree } of this.nodes(this.meta.main, null)) {
      if (tree === null) throw new DamagedFile("the directory of the file holds a record other than a table");
      found.push({ ...tree, name: key.toString().replace(/\0$/, "") });
    }
    return found;
  }

  tree(name: string): Tree | undefined {
    return this.trees().find((tree) => tree.name === name);
  }

  /** The records of a table by its name, none of one that is not there. */
  *recordsOf(name: string): Generator<FileRecord> {
    const tree = this.tree(name);
    if (tree !== undefined) yield* this.records(tree);
  }

  /** The records of a tree in order of their keys, from `from` on. Its entries are counted when all are read. */
  *records(tree: Tree, from: Buffer | null = null): Generator<FileRecord> {
    for (const { key, tree: inner, value } of this.nodes(tree, from)) {
      if (inner !== null) throw new DamagedFile(`table "${tree.name}" holds a table`);
      yield { key, value };
    }
  }

  /**
   * Calls `each` with the place of every key of a tree whose keys have the same length; it answers a number
   * that must grow from key to key. Makes no object for a key: 0.1 µs each.
   */
  eachKey(tree: Tree, keyBytes: number, each: (page: DataView, at: number) => number): void {
    let [entries, last] = [0, -1];
    for (const { page, number, bounds } of this.leaves({ tree, from: null })) {
      const lower = lowerOf(page, number);
      checkOrder(outermost(page, lower), bounds, { page: number, tree, isBranch: false });
      const view = new DataView(page.buffer, page.byteOffset, page.length);
      for (let i = headerBytes; i < headerBytes + lower; i += 2) {
        const at = headerBytes + view.getUint16(i, true);
        const isInside = at >= headerBytes + lower && at + nodeBytes + keyBytes <= page.length;
        if (!isInside || view.getUint16(at + 6, true) !== keyBytes) throw new DamagedFile(`page ${number} is damaged`);
        const dataAt = at + nodeBytes + keyBytes;
        if ((view.getUint16(at + 4, true) & flags.bigValue) !== 0 && dataAt + 8 <= page.length) {
          const first = view.getUint32(dataAt, true) + view.getUint32(dataAt + 4, true) * 2 ** 32;
          this.checkPresence(first, view.getUint32(at, true));
        }
        const order = each(view, at + nodeBytes);
        if (order <= last) throw new DamagedFile(`page ${number} of table "${tree.name}" has keys out of order`);
        last = order;
        entries++;
      }
    }
    checkCount(tree, entries);
  }

  /** A large value must not lie behind the end of the file: LMDB would end the process by a signal when it is read. */
  private checkPresence(first: number, size: number): void {
    if (first * this.meta.pageBytes + headerBytes + size <= this.fileBytes) return;
    throw new DamagedFile(`page ${first} lies behind the end of the file: the file is cut short`, true);
  }

  private *nodes(tree: Tree, from: Buffer | null): Generator<Node> {
    let entries = 0;
    for (const { page, number, bounds } of this.leaves({ tree, from })) {
      const nodes = nodesOf(page, number, false);
      checkOrder(nodes, bounds, { page: number, tree, isBranch: false });
      for (const node of nodes) {
        if (from !== null && node.key.compare(from) < 0) continue;
        entries++;
        yield this.leafNode(page, node, number);
      }
    }
    if (from === null) checkCount(tree, entries);
  }

  private *leaves(walk: Walk, at: At = { page: walk.tree.root, level: 1, bounds: noBounds }): Generator<Leaf> {
    const { tree, from } = walk;
    if (at.page < 0) return;
    const page = this.treePage(tree, at.page);
    const isBranch = (page.readUInt16LE(18) & flags.branch) !== 0;
    if (at.level > depthMax || isBranch !== at.level < tree.depth) {
      throw new DamagedFile(`page ${at.page} of table "${tree.name}" lies at a wrong depth`);
    }
    if (!isBranch) {
      yield { page, number: at.page, bounds: at.bounds };
      return;
    }
    const nodes = nodesOf(page, at.page, true);
    checkOrder(nodes, at.bounds, { page: at.page, tree, isBranch });
    for (const [i, node] of nodes.entries()) {
      const high = nodes[i + 1]?.key ?? at.bounds.high;
      if (from !== null && high !== null && high.compare(from) <= 0) continue;
      const bounds = { low: i === 0 ? at.bounds.low : node.key, high };
      yield* this.leaves(walk, { page: node.page, level: at.level + 1, bounds });
    }
  }

  private leafNode(page: Buffer, node: RawNode, number: number): Node {
    const { key, flags: bits, dataAt, size } = node;
    if ((bits & flags.bigValue) !== 0) {
      const first = Number(page.readBigUInt64LE(dataAt));
      this.checkPresence(first, size);
      return { key, tree: null, value: () => this.bigValue(first, size) };
    }
    const bytes = page.subarray(dataAt, dataAt + size);
    if ((bits & flags.subTree) === 0) return { key, tree: null, value: () => bytes };
    if (size < treeBytes) throw new DamagedFile(`page ${number} holds a damaged table`);
    return { key, tree: readTree(bytes, 0, ""), value: () => bytes };
  }

  private treePage(tree: Tree, number: number): Buffer {
    const page = this.read(number, this.meta.pageBytes);
    const kind = page.readUInt16LE(18) & flags.ofKind;
    if (kind !== flags.branch && kind !== flags.leaf) {
      throw new DamagedFile(`page ${number} of table "${tree.name}" is of a wrong kind`);
    }
    return page;
  }

  private bigValue(first: number, size: number): Buffer {
    const pages = Math.ceil((headerBytes + size) / this.meta.pageBytes);
    const bytes = this.read(first, headerBytes + size);
    const isOverflow = (bytes.readUInt16LE(18) & flags.ofKind) === flags.overflow;
    if (!isOverflow || bytes.readUInt32LE(20) < pages)
      throw new DamagedFile(`page ${first} holds no value of its size`);
    return bytes.subarray(headerBytes);
  }

  /** Bytes from the beginning of a page, whose header must bear its number. */
  private read(number: number, length: number): Buffer {
    const { pageBytes, lastPage, transaction } = this.meta;
    const pages = Math.ceil(length / pageBytes);
    if (!Number.isSafeInteger(number) || number < 2 || number + pages - 1 > lastPage) {
      throw new DamagedFile(`a page has the number ${number}, and the last one is ${lastPage}`);
    }
    const bytes = Buffer.allocUnsafe(length);
    if (readSync(this.descriptor, bytes, 0, length, number * pageBytes) < length) {
      throw new DamagedFile(`page ${number} lies behind the end of the file: the file is cut short`, true);
    }
    this.bytesRead += length;
    const isNewer = bytes.readBigUInt64LE(8) > transaction;
    if (bytes.readBigUInt64LE(0) !== BigInt(number) || isNewer) {
      throw new DamagedFile(`page ${number} is another page or newer than the file`);
    }
    return bytes;
  }
}

type RawNode = {
  readonly key: Buffer;
  readonly flags: number;
  /** Of a branch. */
  readonly page: number;
  readonly dataAt: number;
  readonly size: number;
};
type Node = { readonly key: Buffer; readonly tree: Tree | null; readonly value: () => Buffer };

function checkCount(tree: Tree, entries: number): void {
  if (entries === tree.entries) return;
  throw new DamagedFile(`table "${tree.name}" has ${entries} entries of ${tree.entries}`);
}

/** Bytes of the list of nodes at the beginning of a page. */
function lowerOf(page: Buffer, number: number): number {
  const lower = page.readUInt16LE(20);
  const isInside = headerBytes + lower <= page.length && page.readUInt16LE(22) + headerBytes <= page.length;
  if (lower < 2 || !isInside) throw new DamagedFile(`page ${number} is damaged`);
  return lower & ~1;
}

/** The first and the last key of a leaf whose nodes lie inside it; a place outside reads as an empty key. */
function outermost(page: Buffer, lower: number): { readonly key: Buffer }[] {
  const places = lower === 2 ? [0] : [0, lower - 2];
  return places.map((place) => {
    const at = headerBytes + page.readUInt16LE(headerBytes + place);
    const isInside = at + nodeBytes <= page.length;
    return { key: page.subarray(at + nodeBytes, isInside ? at + nodeBytes + page.readUInt16LE(at + 6) : 0) };
  });
}

function nodesOf(page: Buffer, number: number, isBranch: boolean): RawNode[] {
  const wrong = () => new DamagedFile(`page ${number} is damaged`);
  const lower = lowerOf(page, number);
  const count = lower >> 1;
  const nodes: RawNode[] = [];
  for (let i = 0; i < count; i++) {
    const at = headerBytes + page.readUInt16LE(headerBytes + 2 * i);
    if (at < headerBytes + lower || at + nodeBytes > page.length) throw wrong();
    const keyEnd = at + nodeBytes + page.readUInt16LE(at + 6);
    const bits = page.readUInt16LE(at + 4);
    const low = page.readUInt16LE(at) + page.readUInt16LE(at + 2) * 65_536;
    const inside = isBranch ? 0 : (bits & flags.bigValue) !== 0 ? 8 : low;
    if (keyEnd + inside > page.length || (!isBranch && (bits & ~3) !== 0)) throw wrong();
    const key = page.subarray(at + nodeBytes, keyEnd);
    nodes.push({ key, flags: bits, page: low + bits * 2 ** 32, dataAt: keyEnd, size: low });
  }
  return nodes;
}

type Where = { readonly page: number; readonly tree: Tree; readonly isBranch: boolean };

/** The first key of a branch is not used by LMDB and may be empty. */
function checkOrder(
  nodes: readonly { readonly key: Buffer }[],
  { low, high }: Bounds,
  { page, tree, isBranch }: Where,
): void {
  let before = low;
  for (const [i, { key }] of nodes.entries()) {
    if (isBranch && i === 0) continue;
    const isFirst = i === 0 || (isBranch && i === 1);
    const order = before === null ? 1 : key.compare(before);
    if (order < 0 || (order === 0 && !isFirst) || (high !== null && key.compare(high) >= 0)) {
      throw new DamagedFile(`page ${page} of table "${tree.name}" has keys out of order`);
    }
    before = key;
  }
}

const treeBytes = 48;
/** Of a meta page, with its header. */
const metaBytes = 176;

function readTree(bytes: Buffer, at: number, name: string): Tree {
  const root = bytes.readBigUInt64LE(at + 40);
  const [depth, entries] = [bytes.readUInt16LE(at + 6), Number(bytes.readBigUInt64LE(at + 32))];
  return { name, depth, entries, root: root === noPage ? -1 : Number(root) };
}

/** Of the two meta pages, the one with the later transaction counts. */
function newestMeta(descriptor: number): Meta {
  const first = readMeta(descriptor, 0);
  // The second lies one page on, and only the first holds the size of a page; 4 KiB is what there is otherwise.
  const second = readMeta(descriptor, first?.pageBytes ?? 4_096);
  const metas = [first, second]
    .filter((meta) => meta !== null)
    .sort((a, b) => (a.transaction < b.transaction ? 1 : -1));
  const [newest] = metas;
  const { size } = fstatSync(descriptor);
  if (newest === undefined) throw new DamagedFile("the file does not begin as an LMDB file", size < 2 * 4_096);
  if (size < 2 * newest.pageBytes) throw new DamagedFile("the file is cut short", true);
  return newest;
}

function readMeta(descriptor: number, page: number): Meta | null {
  const bytes = Buffer.alloc(metaBytes);
  const at = headerBytes;
  if (readSync(descriptor, bytes, 0, metaBytes, page) < metaBytes) return null;
  if (bytes.readUInt32LE(at) !== magic || (bytes.readUInt32LE(at + 4) & 0xffff) !== 2) return null;
  const pageBytes = bytes.readUInt32LE(at + 24);
  if (![4_096, 8_192, 16_384, 32_768, 65_536].includes(pageBytes)) return null;
  const main = readTree(bytes, at + 24 + treeBytes, "(tables)");
  const lastPage = Number(bytes.readBigUInt64LE(at + 120));
  return { pageBytes, lastPage, transaction: bytes.readBigUInt64LE(at + 128), main };
}
