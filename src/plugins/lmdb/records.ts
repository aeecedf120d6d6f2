/**
 * Bytes of records: the seal that every record on disk has, and bodies. LMDB has no checksums and
 * returns a flipped bit as data. A seal is 9 bytes in front: the version, then XXH3 of the content,
 * xor that of the key. Without the key, a flipped bit in it would make the record absent under its
 * own name.
 */
import { StoreError } from "../../storage/contract.ts";
import type { IdWords } from "../../storage/mailbox-rows.ts";

const recordVersion = 1;
const checksumBytes = 8;
const sealBytes = 1 + checksumBytes;

/** What an operator does about a damaged store. */
export const howToGoOn =
  "; run `waypost storage verify`, and restore a backup (`waypost storage restore`)";

/** Against flipped bits, not against an attacker. Cost: 0.02 µs a KiB. */
function checksum(key: Uint8Array, content: Uint8Array): bigint {
  return Bun.hash.xxHash3(content) ^ Bun.hash.xxHash3(key);
}

function dataViewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Seals a record together with its key: when either is damaged, they no longer match. */
export function sealed(key: Uint8Array, content: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(sealBytes + content.length);
  bytes[0] = recordVersion;
  dataViewOf(bytes).setBigUint64(1, checksum(key, content));
  bytes.set(content, sealBytes);
  return bytes;
}

/**
 * The content of a record that `sealed` made. Throws `corrupt` when it is not what was written;
 * `what` names it.
 */
export function unsealed(key: Uint8Array, record: Uint8Array, what: string): Uint8Array {
  const content = record.subarray(sealBytes);
  const isSealed = record.length >= sealBytes && record[0] === recordVersion;
  if (isSealed && dataViewOf(record).getBigUint64(1) === checksum(key, content)) return content;
  throw new StoreError("corrupt", `${what} does not match its checksum${howToGoOn}`);
}

/** Eight bytes in the order of the number; into `key` where the caller has one. */
export function orderedKey(
  number: number,
  key: Buffer<ArrayBufferLike> = Buffer.allocUnsafe(8),
): Buffer {
  key.writeUInt32BE(Math.floor(number / 2 ** 32), 0);
  key.writeUInt32BE(number >>> 0, 4);
  return key;
}

export function orderedNumber(key: Uint8Array): number {
  const view = dataViewOf(key);
  return view.getUint32(0) * 2 ** 32 + view.getUint32(4);
}

// ------------------------------------------------------------------------------------------ bodies

const headerBytes = checksumBytes + 24;

export function bodyBytes(previewBytes: number, envelopeBytes: number): number {
  return headerBytes + previewBytes + envelopeBytes;
}

type StoredBody = {
  readonly words: IdWords;
  readonly preview: Uint8Array;
  readonly envelope: Uint8Array;
};

/**
 * Writes a body at an offset of its block: checksum 8, version 1, zero 1, preview length 2,
 * envelope length 4, id 16, preview, envelope.
 */
export function writeBody(
  block: DataView<ArrayBuffer>,
  offset: number,
  { words, preview, envelope }: StoredBody,
): void {
  const at = offset + checksumBytes;
  block.setUint8(at, recordVersion);
  block.setUint8(at + 1, 0);
  block.setUint16(at + 2, preview.length);
  block.setUint32(at + 4, envelope.length);
  for (let n = 0; n < 4; n++) block.setUint32(at + 8 + 4 * n, words[n]!);
  const size = bodyBytes(preview.length, envelope.length) - checksumBytes;
  const bytes = new Uint8Array(block.buffer, at, size);
  bytes.set(preview, headerBytes - checksumBytes);
  bytes.set(envelope, headerBytes - checksumBytes + preview.length);
  block.setBigUint64(offset, Bun.hash.xxHash3(bytes));
}

/**
 * A body as it is found in its block. Its parts are made when they are read: most readers want one.
 */
export class FoundBody implements StoredBody {
  private readonly view: DataView;
  private readonly envelopeAt: number;
  private readonly end: number;

  /** The header lies within the block. */
  constructor(
    private readonly block: Uint8Array,
    private readonly offset: number,
  ) {
    this.view = dataViewOf(block);
    const at = offset + checksumBytes;
    this.envelopeAt = offset + headerBytes + this.view.getUint16(at + 2);
    this.end = this.envelopeAt + this.view.getUint32(at + 4);
  }

  /** Whether all of it lies within the block; nothing else may be read of one that does not. */
  get isWhole(): boolean {
    return this.end <= this.block.length;
  }

  get isIntact(): boolean {
    const { view, block, offset } = this;
    const at = offset + checksumBytes;
    return (
      view.getUint8(at) === recordVersion &&
      view.getBigUint64(offset) === Bun.hash.xxHash3(block.subarray(at, this.end))
    );
  }

  /** What it takes of its block. */
  get size(): number {
    return this.end - this.offset;
  }

  get words(): IdWords {
    const at = this.offset + checksumBytes + 8;
    const { view } = this;
    return [
      view.getUint32(at),
      view.getUint32(at + 4),
      view.getUint32(at + 8),
      view.getUint32(at + 12),
    ];
  }

  get preview(): Uint8Array {
    return this.block.subarray(this.offset + headerBytes, this.envelopeAt);
  }

  get envelope(): Uint8Array {
    return this.block.subarray(this.envelopeAt, this.end);
  }

  /** A part in memory of its own. */
  copyOf(part: "envelope" | "preview"): Uint8Array {
    return part === "envelope"
      ? this.block.slice(this.envelopeAt, this.end)
      : this.block.slice(this.offset + headerBytes, this.envelopeAt);
  }
}

/** The body at an offset, or `null` when none lies within the block there. */
export function bodyAt(block: Uint8Array, offset: number): FoundBody | null {
  if (offset + headerBytes > block.length) return null;
  const body = new FoundBody(block, offset);
  return body.isWhole ? body : null;
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
