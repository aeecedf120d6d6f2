/**
 * The encoding of values between threads. The values of a turn are written one after another into one byte array. Three
 * kinds are sent beside it: large byte arrays are moved, types that only structured cloning knows are cloned, and the lists
 * of a record's names are sent once and then named by number. A short text that repeats within a turn is the number of its
 * first occurrence.
 */

/** The parts of a turn that are not in its bytes. */
export type TurnExtras = {
  /** Lists of names that the receiver does not know yet; each has the next number. */
  readonly lists: readonly (readonly string[])[];
  readonly moved: ArrayBuffer[];
  readonly cloned: readonly unknown[];
};

/** Smaller bytes are cheaper to copy than to move. */
const movedBytesMin = 16 * 1024;
/** Deepest nesting; a value that contains itself would never end. */
const depthMax = 64;
/** Most lists with a number, and most nodes of the tree that finds them. The names of records are those of our own code. */
const listsMax = 4_096;
const nodesMax = 32_768;
const firstBytes = 16 * 1024;
/** A buffer that grew larger for one turn is released after it. */
const keptBytesMax = 1024 * 1024;

const tagUndefined = 0;
const tagNull = 1;
const tagFalse = 2;
const tagTrue = 3;
const tagByte = 4;
const tagInt = 5;
const tagDouble = 6;
const tagU64 = 7;
const tagBigInt = 8;
const tagShortText = 9;
const tagText = 10;
const tagWideText = 11;
const tagBytes = 12;
const tagMoved = 13;
const tagArray = 14;
const tagRecord = 15;
const tagLooseRecord = 16;
const tagMap = 17;
const tagCloned = 18;
const tagKnownText = 19;

/** Longer texts, such as ids of messages, seldom repeat within a turn. */
const knownCharsMax = 32;
/** As many as two bytes can number. */
const knownTextsMax = 65_536;

const u64End = 1n << 64n;

// ------------------------------------------------------------------------------------------------ lists

/** A list of names, found name by name. */
type Node = { readonly next: Map<string, Node>; readonly names: readonly string[]; number: number };

/** Numbers for the lists of names that this end has sent. */
class Lists {
  /** To be sent with the next turn. */
  fresh: (readonly string[])[] = [];
  private readonly root: Node = { next: new Map(), names: [], number: -1 };
  private nodes = 0;
  private count = 0;

  /** `null` when there is no room for another list. */
  private step(node: Node, name: string): Node | null {
    const known = node.next.get(name);
    if (known !== undefined) return known;
    if (this.nodes >= nodesMax) return null;
    this.nodes++;
    const next: Node = { next: new Map(), names: [...node.names, name], number: -1 };
    node.next.set(name, next);
    return next;
  }

  /** The number of the list of a record's keys; -1 when there is no room for it. */
  ofKeys(record: object): number {
    let node: Node | null = this.root;
    for (const name in record) {
      node = this.step(node, name);
      if (node === null) return -1;
    }
    if (node.number < 0 && this.count < listsMax) {
      node.number = this.count++;
      this.fresh.push(node.names);
    }
    return node.number;
  }
}

// ---------------------------------------------------------------------------------------------- writing

/** Bytes that grow as they are needed, and are used again by the next turn. */
class Scratch {
  bytes = Buffer.allocUnsafeSlow(firstBytes);
  view = new DataView(this.bytes.buffer);
  at = 0;

  reserve(more: number): void {
    const needed = this.at + more;
    if (needed > this.bytes.length) this.resize(Math.max(needed, this.bytes.length * 2));
  }

  append(given: Uint8Array): void {
    this.reserve(given.length);
    this.bytes.set(given, this.at);
    this.at += given.length;
  }

  clear(): void {
    this.at = 0;
    if (this.bytes.length > keptBytesMax) this.resize(firstBytes);
  }

  private resize(length: number): void {
    const before = this.bytes;
    this.bytes = Buffer.allocUnsafeSlow(length);
    this.view = new DataView(this.bytes.buffer);
    before.copy(this.bytes, 0, 0, this.at);
  }
}

/** Before the records of a turn: where their byte arrays begin. Before each record: how many bytes these have. */
const lengthBytes = 4;

/** Writes the records of a turn. The caller may change its values as soon as `record` has returned. */
export class TurnWriter {
  private readonly out = new Scratch();
  /** The byte arrays of all records, one behind the other. */
  private readonly arrays = new Scratch();
  private readonly lists = new Lists();
  /** Short texts of this turn, by their number. */
  private readonly texts = new Map<string, number>();
  private moved: ArrayBuffer[] = [];
  private cloned: unknown[] = [];

  constructor() {
    this.out.at = lengthBytes;
  }

  /** Adds what `write` writes as one record. Adds nothing and throws when a value can't be sent. */
  record(write: () => void): void {
    const { out, arrays, texts } = this;
    const start = out.at;
    const known = texts.size;
    const arraysStart = arrays.at;
    const moved = this.moved.length;
    const cloned = this.cloned.length;
    try {
      out.reserve(lengthBytes);
      out.at += lengthBytes;
      write();
      out.view.setInt32(start, arrays.at - arraysStart);
    } catch (error) {
      out.at = start;
      arrays.at = arraysStart;
      this.moved.length = moved;
      this.cloned.length = cloned;
      for (const [text, number] of texts) if (number >= known) texts.delete(text);
      throw error;
    }
  }

  double(value: number): void {
    const { out } = this;
    out.reserve(8);
    out.view.setFloat64(out.at, value);
    out.at += 8;
  }

  byte(value: number): void {
    const { out } = this;
    out.reserve(1);
    out.bytes[out.at++] = value;
  }

  /** Bytes that the sender gives away (`isOwned`) are moved; others are copied once. */
  value(value: unknown, isOwned: boolean, depthLeft = depthMax): void {
    if (typeof value === "string") this.text(value);
    else if (typeof value === "number") this.number(value);
    else if (typeof value === "boolean") this.byte(value ? tagTrue : tagFalse);
    else if (value === null) this.byte(tagNull);
    else if (value === undefined) this.byte(tagUndefined);
    else if (typeof value === "bigint") this.bigInt(value);
    else if (typeof value !== "object") throw new Error(`a ${typeof value} can't cross to another thread`);
    else if (depthLeft === 0) throw new Error(`values are more than ${depthMax} inside each other`);
    else this.object(value, isOwned, depthLeft - 1);
  }

  /** The turn. Its bytes are valid until the next record is written. */
  take(): { readonly bytes: Uint8Array; readonly extras: TurnExtras } {
    const { out, arrays, lists, moved, cloned } = this;
    out.view.setInt32(0, out.at);
    out.append(arrays.bytes.subarray(0, arrays.at));
    const turn = { bytes: out.bytes.subarray(0, out.at), extras: { lists: lists.fresh, moved, cloned } };
    lists.fresh = [];
    this.moved = [];
    this.cloned = [];
    out.clear();
    arrays.clear();
    this.texts.clear();
    out.at = lengthBytes;
    return turn;
  }

  /** The last turn was not sent: the other end does not know its names yet. */
  undo({ lists }: TurnExtras): void {
    this.lists.fresh.unshift(...lists);
  }

  private object(value: object, isOwned: boolean, depthLeft: number): void {
    const prototype: unknown = Object.getPrototypeOf(value);
    if (prototype === Object.prototype || prototype === null) this.plain(value, isOwned, depthLeft);
    else if (Array.isArray(value)) this.array(value, isOwned, depthLeft);
    else if (value instanceof Uint8Array) this.byteArray(value, isOwned);
    else if (value instanceof Map) this.map(value, isOwned, depthLeft);
    else {
      // Shared memory, dates and the like.
      this.tagged(tagCloned, this.cloned.length);
      this.cloned.push(value);
    }
  }

  private plain(value: object, isOwned: boolean, depthLeft: number): void {
    const number = this.lists.ofKeys(value);
    if (number >= 0) {
      this.tagged(tagRecord, number);
      for (const name in value) this.value(Reflect.get(value, name), isOwned, depthLeft);
      return;
    }
    const entries = Object.entries(value);
    this.tagged(tagLooseRecord, entries.length);
    for (const [name, one] of entries) {
      this.text(name);
      this.value(one, isOwned, depthLeft);
    }
  }

  private array(values: readonly unknown[], isOwned: boolean, depthLeft: number): void {
    this.tagged(tagArray, values.length);
    for (const one of values) this.value(one, isOwned, depthLeft);
  }

  private map(map: ReadonlyMap<unknown, unknown>, isOwned: boolean, depthLeft: number): void {
    this.tagged(tagMap, map.size);
    for (const [key, one] of map) {
      this.value(key, isOwned, depthLeft);
      this.value(one, isOwned, depthLeft);
    }
  }

  private byteArray(given: Uint8Array, isOwned: boolean): void {
    if (given.length < movedBytesMin) {
      this.tagged(tagBytes, given.length);
      this.arrays.append(given);
      return;
    }
    const isWhole = given.byteLength === given.buffer.byteLength && given.buffer instanceof ArrayBuffer;
    // A `Buffer` copies nothing by its own `slice`.
    const { buffer } = isWhole && isOwned ? given : Uint8Array.prototype.slice.call(given);
    if (!(buffer instanceof ArrayBuffer)) throw new Error("shared memory can't be moved");
    const known = this.moved.indexOf(buffer);
    this.tagged(tagMoved, known < 0 ? this.moved.push(buffer) - 1 : known);
  }

  private number(value: number): void {
    if ((value | 0) !== value || Object.is(value, -0)) {
      this.byte(tagDouble);
      this.double(value);
    } else if (value >= 0 && value < 256) {
      this.byte(tagByte);
      this.byte(value);
    } else this.tagged(tagInt, value);
  }

  private bigInt(value: bigint): void {
    const { out } = this;
    if (value >= 0n && value < u64End) {
      out.reserve(9);
      out.bytes[out.at] = tagU64;
      out.view.setBigUint64(out.at + 1, value);
      out.at += 9;
    } else {
      this.byte(tagBigInt);
      this.text(value.toString());
    }
  }

  private text(value: string): void {
    const { out } = this;
    const { length } = value;
    if (length <= knownCharsMax && this.isKnown(value)) return;
    if (!isLatin1(value)) {
      this.tagged(tagWideText, length * 2);
      out.reserve(length * 2);
      // Every code unit as it is, lone surrogates too.
      out.at += out.bytes.write(value, out.at, "utf16le");
      return;
    }
    if (length > 255) this.tagged(tagText, length);
    else {
      out.reserve(2);
      out.bytes[out.at++] = tagShortText;
      out.bytes[out.at++] = length;
    }
    out.reserve(length);
    if (length > 48) out.bytes.write(value, out.at, "latin1");
    else for (let n = 0; n < length; n++) out.bytes[out.at + n] = value.charCodeAt(n);
    out.at += length;
  }

  private isKnown(text: string): boolean {
    const { texts, out } = this;
    const number = texts.get(text);
    if (number === undefined) {
      if (texts.size < knownTextsMax) texts.set(text, texts.size);
      return false;
    }
    out.reserve(3);
    out.bytes[out.at] = tagKnownText;
    out.view.setUint16(out.at + 1, number);
    out.at += 3;
    return true;
  }

  private tagged(tag: number, value: number): void {
    const { out } = this;
    out.reserve(5);
    out.bytes[out.at] = tag;
    out.view.setInt32(out.at + 1, value);
    out.at += 5;
  }
}

function isLatin1(text: string): boolean {
  for (let n = 0; n < text.length; n++) if (text.charCodeAt(n) > 255) return false;
  return true;
}

// ---------------------------------------------------------------------------------------------- reading

const noBytes = new ArrayBuffer(0);

/** Reads what a `TurnWriter` of the other thread wrote, in the same order. */
export class TurnReader {
  private bytes = Buffer.allocUnsafeSlow(firstBytes);
  private view = new DataView(this.bytes.buffer);
  private at = 0;
  /** Where the records end, and the byte arrays of the next one begin. */
  private end = 0;
  private arraysAt = 0;
  /** The byte arrays of one record are in one buffer of its own, which nothing of another record keeps alive. */
  private arrays: ArrayBuffer = noBytes;
  private arrayAt = 0;
  private readonly lists: (readonly string[])[] = [];
  private texts: string[] = [];
  private moved: readonly ArrayBuffer[] = [];
  private cloned: readonly unknown[] = [];

  /** `fill` gets as much room as the turn has bytes. */
  begin(length: number, { lists, moved, cloned }: TurnExtras, fill: (room: Buffer) => void): void {
    if (length > this.bytes.length || this.bytes.length > keptBytesMax) {
      this.bytes = Buffer.allocUnsafeSlow(Math.max(firstBytes, length));
      this.view = new DataView(this.bytes.buffer);
    }
    fill(this.bytes.subarray(0, length));
    this.at = 0;
    this.end = this.int();
    this.arraysAt = this.end;
    this.lists.push(...lists);
    this.texts = [];
    this.moved = moved;
    this.cloned = cloned;
  }

  /** Whether there is another record; its values are read next. */
  record(): boolean {
    if (this.at >= this.end) return false;
    const length = this.int();
    const { buffer } = this.bytes;
    this.arrays = length === 0 ? noBytes : buffer.slice(this.arraysAt, this.arraysAt + length);
    this.arraysAt += length;
    this.arrayAt = 0;
    return true;
  }

  byte(): number {
    return this.bytes[this.at++] ?? 0;
  }

  double(): number {
    this.at += 8;
    return this.view.getFloat64(this.at - 8);
  }

  value(): unknown {
    const tag = this.byte();
    switch (tag) {
      case tagKnownText:
        this.at += 2;
        return this.texts[this.view.getUint16(this.at - 2)];
      case tagShortText:
        return this.text(this.byte());
      case tagByte:
        return this.byte();
      case tagDouble:
        return this.double();
      case tagRecord:
        return this.plain(this.lists[this.int()] ?? missing("a list of names"));
      case tagArray:
        return this.array(this.int());
      case tagBytes:
        return this.byteArray(this.int());
      case tagNull:
        return null;
      case tagUndefined:
        return undefined;
      case tagTrue:
        return true;
      case tagFalse:
        return false;
      case tagInt:
        return this.int();
      case tagText:
        return this.text(this.int());
      case tagU64:
        this.at += 8;
        return this.view.getBigUint64(this.at - 8);
      case tagBigInt:
        return BigInt(String(this.value()));
      case tagWideText:
        return this.text(this.int(), "utf16le");
      case tagMoved:
        return new Uint8Array(this.moved[this.int()] ?? missing("moved bytes"));
      case tagCloned:
        return this.cloned[this.int()];
      case tagMap:
        return this.map(this.int());
      case tagLooseRecord:
        return this.looseRecord(this.int());
      default:
        return missing(`a value of kind ${tag}`);
    }
  }

  private int(): number {
    this.at += 4;
    return this.view.getInt32(this.at - 4);
  }

  private text(bytes: number, encoding: "latin1" | "utf16le" = "latin1"): string {
    this.at += bytes;
    const text = this.bytes.toString(encoding, this.at - bytes, this.at);
    if (text.length <= knownCharsMax) this.texts.push(text);
    return text;
  }

  private byteArray(length: number): Uint8Array {
    const { arrayAt } = this;
    this.arrayAt += length;
    return new Uint8Array(this.arrays, arrayAt, length);
  }

  private plain(names: readonly string[]): Record<string, unknown> {
    const record: Record<string, unknown> = {};
    for (const name of names) put(record, name, this.value());
    return record;
  }

  private looseRecord(length: number): Record<string, unknown> {
    const record: Record<string, unknown> = {};
    for (let n = 0; n < length; n++) put(record, String(this.value()), this.value());
    return record;
  }

  private array(length: number): unknown[] {
    const values: unknown[] = [];
    for (let n = 0; n < length; n++) values.push(this.value());
    return values;
  }

  private map(length: number): Map<unknown, unknown> {
    const map = new Map<unknown, unknown>();
    for (let n = 0; n < length; n++) map.set(this.value(), this.value());
    return map;
  }
}

/** Assigning to this one name would set the prototype. */
function put(record: Record<string, unknown>, name: string, value: unknown): void {
  if (name !== "__proto__") record[name] = value;
  else Object.defineProperty(record, name, { value, writable: true, enumerable: true, configurable: true });
}

function missing(what: string): never {
  throw new Error(`the other thread sent ${what} that is not there`);
}
