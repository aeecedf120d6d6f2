/**
 * SCALE in parts: a writer, a strict reader, and the few combinators that our structures
 * need. The reader refuses compact integers that are not the shortest, option and enum
 * bytes it does not know, text that is not UTF-8, lists and strings beyond their bound,
 * bytes left over.
 * Source: docs/ledger.md 1.0.
 */
import { decodeUtf8, utf8 } from "./bytes.ts";
import { u64Max } from "./json.ts";

/**
 * How one type is written and read. Reading throws `malformed` for bytes that are none of
 * it: see `decodeWith`.
 */
export interface Codec<T> {
  /**
   * The layout as text: two codecs have one text exactly when they have one encoding,
   * whatever their bounds are.
   */
  readonly shape: string;
  write(writer: ScaleWriter, value: T): void;
  read(reader: ScaleReader): T;
}

/** What a codec writes and reads. */
export type Decoded<C> = C extends Codec<infer T> ? Readonly<T> : never;

/** Cost: about 1 µs for an authorization payload of 250 bytes. */
export function encodeWith<T>(codec: Codec<T>, value: T): Uint8Array {
  const writer = new ScaleWriter();
  codec.write(writer, value);
  return writer.bytes();
}

/** The value that `bytes` hold, from the first to the last byte, or `null`. */
export function decodeWith<T>(codec: Codec<T>, bytes: Uint8Array): T | null {
  const reader = new ScaleReader(bytes);
  try {
    const value = codec.read(reader);
    return reader.at === bytes.length ? value : null;
  } catch (error) {
    if (error === malformed) return null;
    throw error;
  }
}

/** Writes into a buffer that grows. */
class ScaleWriter {
  private buffer = new Uint8Array(512);
  private view = new DataView(this.buffer.buffer);
  private at = 0;

  /** What was written. */
  bytes(): Uint8Array {
    return this.buffer.slice(0, this.at);
  }

  byte(value: number): void {
    const at = this.skip(1);
    this.buffer[at] = value;
  }

  /** Little endian, as all numbers. */
  number(value: number, length: 2 | 4): void {
    const at = this.skip(length);
    if (length === 2) this.view.setUint16(at, value, true);
    else this.view.setUint32(at, value, true);
  }

  big(value: bigint): void {
    const at = this.skip(8);
    this.view.setBigUint64(at, value, true);
  }

  raw(bytes: Uint8Array): void {
    const at = this.skip(bytes.length);
    this.buffer.set(bytes, at);
  }

  compact(value: number): void {
    if (value < 0x40) this.byte(value << 2);
    else if (value < 0x4000) this.number((value << 2) | 1, 2);
    else if (value < 0x4000_0000) this.number(value * 4 + 2, 4);
    else throw new RangeError("too long for SCALE");
  }

  /**
   * Reserves `length` bytes and returns where they begin. May replace `buffer` and `view`:
   * read them afterwards.
   */
  private skip(length: number): number {
    const from = this.at;
    this.at += length;
    if (this.at > this.buffer.length) {
      const before = this.buffer;
      this.buffer = new Uint8Array(2 * this.at);
      this.buffer.set(before);
      this.view = new DataView(this.buffer.buffer);
    }
    return from;
  }
}

/** Made once: what strangers send must not cost a stack trace. */
const malformed = new RangeError("not SCALE of this type");

/** Thrown by a codec for bytes that are not of its type: `decodeWith` returns `null` then. */
export function throwMalformed(): never {
  throw malformed;
}

/** Reads untrusted bytes. */
class ScaleReader {
  at = 0;

  constructor(readonly bytes: Uint8Array) {}

  /** Skips `length` bytes and returns where they begin. */
  private skip(length: number): number {
    if (this.bytes.length - this.at < length) throwMalformed();
    const from = this.at;
    this.at += length;
    return from;
  }

  byte(): number {
    return this.bytes[this.skip(1)] as number;
  }

  /** Little endian, unsigned. */
  number(length: 2 | 4): number {
    const from = this.skip(length);
    let value = 0;
    for (let i = length - 1; i >= 0; i--) value = value * 256 + (this.bytes[from + i] as number);
    return value;
  }

  /** A copy, so that a decoded value does not keep the whole request body in memory. */
  raw(length: number): Uint8Array {
    const from = this.skip(length);
    return this.bytes.slice(from, from + length);
  }

  /**
   * The shortest form of a number up to 2^30 - 1. Longer forms are refused: no length here
   * comes near.
   */
  compact(): number {
    const first = this.byte();
    const mode = first & 3;
    if (mode === 0) return first >> 2;
    if (mode === 3) throwMalformed();
    this.at--;
    const value = this.number(mode === 1 ? 2 : 4) >>> 2;
    return value < (mode === 1 ? 0x40 : 0x4000) ? throwMalformed() : value;
  }
}

/**
 * UTF-8 text in a byte vector. The bound, in bytes, holds for reading; what is written was
 * parsed before.
 */
export function text(bytesMax: number): Codec<string> {
  const inner = byteVector(bytesMax);
  return {
    shape: "bytes",
    write: (writer, value) => inner.write(writer, utf8(value)),
    read: (reader) => decodeUtf8(inner.read(reader)) ?? throwMalformed(),
  };
}

/** Text that must also be of a form, such as a DID. */
export function formed<T extends string>(
  inner: Codec<string>,
  isForm: (value: string) => value is T,
): Codec<T> {
  return {
    shape: inner.shape,
    write: (writer, value) => inner.write(writer, value),
    read: (reader) => {
      const value = inner.read(reader);
      return isForm(value) ? value : throwMalformed();
    },
  };
}

/** Bytes behind their compact length; decoding refuses more than `bytesMax`. */
export function byteVector(bytesMax: number): Codec<Uint8Array> {
  return {
    shape: "bytes",
    write: (writer, value) => {
      writer.compact(value.length);
      writer.raw(value);
    },
    read: (reader) => {
      const length = reader.compact();
      return length > bytesMax ? throwMalformed() : reader.raw(length);
    },
  };
}

/** A byte vector with its length prefix that must have exactly `length` bytes. */
export function exactByteVector(length: number): Codec<Uint8Array> {
  const inner = byteVector(length);
  return {
    ...inner,
    read: (reader) => {
      const value = inner.read(reader);
      return value.length === length ? value : throwMalformed();
    },
  };
}

/** Bytes of fixed length without a prefix. */
export function fixedBytes(length: number): Codec<Uint8Array> {
  return {
    shape: `u8*${length}`,
    write: (writer, value) => {
      if (value.length !== length) throw new RangeError(`expected ${length} bytes`);
      writer.raw(value);
    },
    read: (reader) => reader.raw(length),
  };
}

export const boolean: Codec<boolean> = {
  shape: "bool",
  write: (writer, value) => writer.byte(value ? 1 : 0),
  read: (reader) => {
    const value = reader.byte();
    return value > 1 ? throwMalformed() : value === 1;
  },
};

export const u8: Codec<number> = {
  shape: "u8",
  write: (writer, value) => writer.byte(inRange(value, 0xff)),
  read: (reader) => reader.byte(),
};

export const u32: Codec<number> = {
  shape: "u32",
  write: (writer, value) => writer.number(inRange(value, 0xffff_ffff), 4),
  read: (reader) => reader.number(4),
};

function inRange(value: number, max: number): number {
  if (!Number.isInteger(value) || value < 0 || value > max)
    throw new RangeError("number out of range for SCALE");
  return value;
}

export const u64: Codec<bigint> = {
  shape: "u64",
  write: (writer, value) => {
    if (value < 0n || value > u64Max) throw new RangeError("number out of range for SCALE");
    writer.big(value);
  },
  read: (reader) => {
    const low = reader.number(4);
    return BigInt(low) | (BigInt(reader.number(4)) << 32n);
  },
};

export const u128: Codec<bigint> = {
  shape: "u128",
  write: (writer, value) => {
    u64.write(writer, value & u64Max);
    u64.write(writer, value >> 64n);
  },
  read: (reader) => {
    const low = u64.read(reader);
    return low | (u64.read(reader) << 64n);
  },
};

/** A member that is not there is none, as `null` is. */
export function option<T>(inner: Codec<T>): Codec<T | null> {
  return {
    shape: `${inner.shape}?`,
    write: (writer, value: T | null | undefined) => {
      const isNone = value === null || value === undefined;
      writer.byte(isNone ? 0 : 1);
      if (!isNone) inner.write(writer, value);
    },
    read: (reader) => {
      const tag = reader.byte();
      if (tag > 1) throwMalformed();
      return tag === 1 ? inner.read(reader) : null;
    },
  };
}

/** Values behind their compact number; decoding refuses more than `entriesMax`. */
export function vector<T>(inner: Codec<T>, entriesMax: number): Codec<readonly T[]> {
  return {
    shape: `[${inner.shape}]`,
    write: (writer, values) => {
      writer.compact(values.length);
      for (const value of values) inner.write(writer, value);
    },
    read: (reader) => {
      const count = reader.compact();
      if (count > entriesMax) throwMalformed();
      const values: T[] = [];
      for (let i = 0; i < count; i++) values.push(inner.read(reader));
      return values;
    },
  };
}

/**
 * An option of a list: an empty list is written as none. An empty list written as some is
 * read as the same list.
 */
export function optionalList<T>(inner: Codec<readonly T[]>): Codec<readonly T[]> {
  const outer = option(inner);
  return {
    shape: outer.shape,
    write: (writer, values) => outer.write(writer, values.length === 0 ? null : values),
    read: (reader) => outer.read(reader) ?? [],
  };
}

/** One byte: the index in `names`; an index without a name is refused. */
export function enumeration<T extends string>(names: readonly (T | undefined)[]): Codec<T> {
  return {
    shape: names
      .flatMap((name, index) => (name === undefined ? [] : [`${index}:${name}`]))
      .join("|"),
    write: (writer, value) => {
      const index = names.indexOf(value);
      if (index < 0) throw new RangeError("no such name in the enumeration");
      writer.byte(index);
    },
    read: (reader) => names[reader.byte()] ?? throwMalformed(),
  };
}

/** The shape of members in a row: one alone has its own. */
export const tuple = (shapes: readonly string[]): string =>
  shapes.length === 1 ? (shapes[0] as string) : `(${shapes.join()})`;

/** Field after field, in the order in which they are named here: that order is the wire order. */
export function structure<T extends object>(
  fields: { readonly [K in keyof T]-?: Codec<T[K]> },
): Codec<T> {
  const names = Object.keys(fields) as (keyof T)[];
  const codecs = names.map((name) => fields[name] as Codec<T[keyof T]>);
  return {
    shape: tuple(codecs.map(({ shape }) => shape)),
    write: (writer, value) => {
      for (let i = 0; i < names.length; i++) {
        (codecs[i] as Codec<unknown>).write(writer, value[names[i] as keyof T]);
      }
    },
    read: (reader) => {
      const value = {} as T;
      for (let i = 0; i < names.length; i++) {
        value[names[i] as keyof T] = (codecs[i] as Codec<T[keyof T]>).read(reader);
      }
      return value;
    },
  };
}
