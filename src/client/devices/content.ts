/**
 * Content of files between own devices: blocks, sealed under the seed of the root key in force, so
 * that a Directory that lies about the DID of a device reads no file. A message has one content, so
 * its key seals the same blocks each time, and what was interrupted goes on.
 * Source: docs/trust.md ("Own devices").
 */
import { sha256 } from "#sha256";
import { concatBytes, utf8 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { hkdf, openBlock, sealBlock } from "../keys/crypto.ts";
import { measured, type Source } from "../mail/content.ts";

const purpose = "waypost:content:v1";
const blockBytes = 65_536;
const tagBytes = 16;
const sealedBytes = blockBytes + tagBytes;

/** Of which message; an own one has no digest. */
type ContentSubject = { readonly id: string; readonly digest: string };
type Way = { readonly from: Did; readonly to: Did };

export const contentKey = (seed: Uint8Array, { from, to }: Way, { id, digest }: ContentSubject) =>
  hkdf(seed, sha256(utf8(`${id.toLowerCase()}|${digest}`)), utf8(`${purpose}|${from}|${to}`), 32);

export const sealedSize = (sizeBytes: number): number =>
  sizeBytes + tagBytes * Math.ceil(sizeBytes / blockBytes);

/** The same content in sealed blocks. */
export function sealedContent(key: Uint8Array, { file, read }: Source): Promise<Source> {
  const block = async (number: number) => {
    const from = number * blockBytes;
    const plain = await read(from, Math.min(from + blockBytes, file.sizeBytes));
    return sealBlock(key, number, plain);
  };
  const { name, mediaType } = file;
  const facts = { name, mediaType, sizeBytes: sealedSize(file.sizeBytes) };
  return measured(facts, async (from, to) => {
    const first = Math.floor(from / sealedBytes);
    const blocks: Uint8Array[] = [];
    for (let number = first; number * sealedBytes < to; number++) blocks.push(await block(number));
    const start = first * sealedBytes;
    return concatBytes(...blocks).subarray(from - start, to - start);
  });
}

/** Opens blocks as they come, in parts of any size. */
export class ContentOpener {
  readonly #key: Uint8Array;
  #held: Uint8Array = new Uint8Array(0);
  #number = 0;
  #isBroken = false;

  constructor(key: Uint8Array) {
    this.#key = key;
  }

  /** A block was sealed with another key, or isn't the next one: nothing further is opened. */
  get isBroken(): boolean {
    return this.#isBroken;
  }

  /** What can be opened by now. */
  push(data: Uint8Array): Uint8Array {
    this.#held = concatBytes(this.#held, data);
    const opened: Uint8Array[] = [];
    while (this.#held.length >= sealedBytes) opened.push(this.#next(sealedBytes));
    return concatBytes(...opened);
  }

  /** The rest. */
  end(): Uint8Array {
    return this.#held.length === 0 ? this.#held : this.#next(this.#held.length);
  }

  #next(length: number): Uint8Array {
    const block = this.#held.subarray(0, length);
    this.#held = this.#held.subarray(length);
    const plain = this.#isBroken ? null : openBlock(this.#key, this.#number++, block);
    this.#isBroken = plain === null;
    return plain ?? new Uint8Array(0);
  }
}
