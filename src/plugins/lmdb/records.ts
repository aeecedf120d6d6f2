/**
 * Bytes of records: a writer and a reader for the structures of this driver, and the seal that every
 * record on disk has. LMDB has no checksums and returns a flipped bit as data.
 * A seal is 9 bytes in front: the version, then XXH3 of the content, xor that of the key. Without the key, a
 * flipped bit in it would make the record absent under its own name.
 */
import { StoreError } from "../../storage/contract.ts";
import type { IdWords } from "../../storage/mailbox-rows.ts";

const recordVersion = 1;
const checksumBytes = 8;
const sealBytes = 1 + checksumBytes;

/** What an operator does about a damaged store. */
export const howToGoOn = "; run `waypost storage verify`, and restore a backup (`waypost storage restore`)";

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Against flipped bits, not against an attacker. Cost: 0.02 µs a KiB. */
function checksum(key: Uint8Array, content: Uint8Array): bigint {
  return Bun.hash.xxHash3(content) ^ Bun.hash.xxHash3(key);
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Seals a record together with its key: when either is damaged, they no longer match. */
export function sealed(key: Uint8Array, content: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(sealBytes + content.length);
  bytes[0] = recordVersion;
  viewOf(bytes).setBigUint64(1, checksum(key, content));
  bytes.set(content, sealBytes);
  return bytes;
}

/** The content of a record that `sealed` made. Throws `corrupt` when it is not what was written; `what` names it. */
export function unsealed(key: Uint8Array, record: Uint8Array, what: string): Uint8Array {
  const content = record.subarray(sealBytes);
  const isSealed = record.length >= sealBytes && record[0] === recordVersion;
  if (isSealed && viewOf(record).getBigUint64(1) === checksum(key, content)) return content;
  throw new StoreError("corrupt", `${what} does not match its checksum${howToGoOn}`);
}

/** A writer that is reset keeps at most this much memory. */
const keptBytesMax = 1024 * 1024;

export class RecordWriter {
  private buffer: Uint8Array<ArrayBuffer>;
  private view: DataView;
  private at = 0;

  constructor(bytes: number) {
    this.buffer = new Uint8Array(Math.max(bytes, 64));
    this.view = new DataView(this.buffer.buffer);
  }

  get length(): number {
    return this.at;
  }

  /** Resets: begins again in the same memory, unless that has become large. */
  reset(): void {
    this.at = 0;
    if (this.buffer.length <= keptBytesMax) return;
    this.buffer = new Uint8Array(keptBytesMax);
    this.view = new DataView(this.buffer.buffer);
  }

  skip(bytes: number): void {
    this.reserve(bytes);
    this.at += bytes;
  }

  u8(value: number): void {
    this.reserve(1);
    this.buffer[this.at++] = value;
  }

  u16(value: number): void {
    this.reserve(2);
    this.view.setUint16(this.at, value);
    this.at += 2;
  }

  u32(value: number): void {
    this.reserve(4);
    this.view.setUint32(this.at, value);
    this.at += 4;
  }

  /** A non-negative safe integer. */
  u53(value: number): void {
    this.reserve(8);
    this.view.setUint32(this.at, Math.floor(value / 2 ** 32));
    this.view.setUint32(this.at + 4, value >>> 0);
    this.at += 8;
  }

  bytes(value: Uint8Array): void {
    this.reserve(value.length);
    this.buffer.set(value, this.at);
    this.at += value.length;
  }

  /** A text of at most 65,535 bytes. */
  text(text: string): void {
    const bytes = encoder.encode(text);
    this.u16(bytes.length);
    this.bytes(bytes);
  }

  /** The written bytes, in the memory of the writer. */
  finish(): Uint8Array<ArrayBuffer> {
    return this.buffer.subarray(0, this.at);
  }

  private reserve(bytes: number): void {
    if (this.at + bytes <= this.buffer.length) return;
    const grown = new Uint8Array(Math.max(this.at + bytes, this.buffer.length * 2));
    grown.set(this.buffer);
    this.buffer = grown;
    this.view = new DataView(grown.buffer);
  }
}

export class RecordReader {
  readonly view: DataView;
  private at = 0;

  constructor(
    private readonly buffer: Uint8Array,
    private readonly what: string,
  ) {
    this.view = viewOf(buffer);
  }

  get done(): boolean {
    return this.left === 0;
  }

  /** Bytes that were not read yet. */
  get left(): number {
    return this.buffer.length - this.at;
  }

  u8(): number {
    return this.view.getUint8(this.advance(1));
  }

  u16(): number {
    return this.view.getUint16(this.advance(2));
  }

  u32(): number {
    return this.view.getUint32(this.advance(4));
  }

  u53(): number {
    return u53At(this.view, this.advance(8));
  }

  bytes(length: number): Uint8Array {
    const at = this.advance(length);
    return this.buffer.subarray(at, at + length);
  }

  text(): string {
    return decoder.decode(this.bytes(this.u16()));
  }

  /** Where the next bytes lie in the view; what is read afterwards lies behind them. */
  advance(bytes: number): number {
    const at = this.at;
    if (at + bytes > this.buffer.length) throw new StoreError("corrupt", `${this.what} ends too early`);
    this.at = at + bytes;
    return at;
  }
}

function u53At(view: DataView, at: number): number {
  return view.getUint32(at) * 2 ** 32 + view.getUint32(at + 4);
}

/** Eight bytes in the order of the number. */
export function orderedKey(number: number): Buffer {
  const key = Buffer.allocUnsafe(8);
  key.writeUInt32BE(Math.floor(number / 2 ** 32), 0);
  key.writeUInt32BE(number >>> 0, 4);
  return key;
}

export function orderedNumber(key: Uint8Array): number {
  return u53At(viewOf(key), 0);
}

// -------------------------------------------------------------------------------------------------------------- bodies

const headerBytes = checksumBytes + 24;

export function bodyBytes(previewBytes: number, envelopeBytes: number): number {
  return headerBytes + previewBytes + envelopeBytes;
}

type Body = {
  readonly words: IdWords;
  readonly preview: Uint8Array;
  readonly envelope: Uint8Array;
};

/** Checksum 8, version 1, zero 1, preview length 2, envelope length 4, id 16, preview, envelope. */
export function writeBody(writer: RecordWriter, { words, preview, envelope }: Body): void {
  const start = writer.length;
  writer.skip(checksumBytes);
  writer.u8(recordVersion);
  writer.u8(0);
  writer.u16(preview.length);
  writer.u32(envelope.length);
  for (const word of words) writer.u32(word);
  writer.bytes(preview);
  writer.bytes(envelope);
  const bytes = writer.finish().subarray(start);
  viewOf(bytes).setBigUint64(0, Bun.hash.xxHash3(bytes.subarray(checksumBytes)));
}

/** A body as it is found in its block, where it takes so many bytes. */
export type FoundBody = Body & {
  readonly size: number;
  readonly isIntact: boolean;
};

/** The body at an offset, or `null` when none lies within the block there. */
export function bodyAt(block: Uint8Array, offset: number): FoundBody | null {
  const view = viewOf(block);
  if (offset + headerBytes > block.length) return null;
  const at = offset + checksumBytes;
  const preview = offset + headerBytes;
  const envelope = preview + view.getUint16(at + 2);
  const end = envelope + view.getUint32(at + 4);
  if (end > block.length) return null;
  const isIntact = view.getBigUint64(offset) === Bun.hash.xxHash3(block.subarray(at, end));
  return {
    size: end - offset,
    words: [view.getUint32(at + 8), view.getUint32(at + 12), view.getUint32(at + 16), view.getUint32(at + 20)],
    preview: block.subarray(preview, envelope),
    envelope: block.subarray(envelope, end),
    isIntact: isIntact && view.getUint8(at) === recordVersion,
  };
}

/** The bodies of a block one after the other; `null` in the place of one that can't be read. */
export function* bodiesOf(block: Uint8Array): Generator<FoundBody | null> {
  for (let offset = 0; offset < block.length; ) {
    const body = bodyAt(block, offset);
    yield body;
    if (body === null) return;
    offset += body.size;
  }
}
