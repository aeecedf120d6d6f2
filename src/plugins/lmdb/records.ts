/**
 * Bytes of records: the seal that every record on disk has, and bodies. LMDB has no checksums and returns a flipped bit as
 * data.
 * A seal is 9 bytes in front: the version, then XXH3 of the content, xor that of the key. Without the key, a
 * flipped bit in it would make the record absent under its own name.
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

/** The content of a record that `sealed` made. Throws `corrupt` when it is not what was written; `what` names it. */
export function unsealed(key: Uint8Array, record: Uint8Array, what: string): Uint8Array {
  const content = record.subarray(sealBytes);
  const isSealed = record.length >= sealBytes && record[0] === recordVersion;
  if (isSealed && dataViewOf(record).getBigUint64(1) === checksum(key, content)) return content;
  throw new StoreError("corrupt", `${what} does not match its checksum${howToGoOn}`);
}

/** Eight bytes in the order of the number. */
export function orderedKey(number: number): Buffer {
  const key = Buffer.allocUnsafe(8);
  key.writeUInt32BE(Math.floor(number / 2 ** 32), 0);
  key.writeUInt32BE(number >>> 0, 4);
  return key;
}

export function orderedNumber(key: Uint8Array): number {
  const view = dataViewOf(key);
  return view.getUint32(0) * 2 ** 32 + view.getUint32(4);
}

// -------------------------------------------------------------------------------------------------------------- bodies

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
 * Writes a body at an offset of its block: checksum 8, version 1, zero 1, preview length 2, envelope length 4, id 16,
 * preview, envelope.
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

/** A body as it is found in its block, where it takes so many bytes. */
export type FoundBody = StoredBody & {
  readonly size: number;
  readonly isIntact: boolean;
};

/** The body at an offset, or `null` when none lies within the block there. */
export function bodyAt(block: Uint8Array, offset: number): FoundBody | null {
  const view = dataViewOf(block);
  if (offset + headerBytes > block.length) return null;
  const at = offset + checksumBytes;
  const preview = offset + headerBytes;
  const envelope = preview + view.getUint16(at + 2);
  const end = envelope + view.getUint32(at + 4);
  if (end > block.length) return null;
  const isIntact = view.getBigUint64(offset) === Bun.hash.xxHash3(block.subarray(at, end));
  return {
    size: end - offset,
    words: [
      view.getUint32(at + 8),
      view.getUint32(at + 12),
      view.getUint32(at + 16),
      view.getUint32(at + 20),
    ],
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
