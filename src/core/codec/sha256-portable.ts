/**
 * SHA-256 in JavaScript, of bytes at once or in parts: `#sha256` outside Bun. WebCrypto can't hash in parts, and the
 * module of @noble/hashes also has SHA-512, which alone is larger than this file. A test compares it with the native
 * one.
 * Source: FIPS 180-4.
 */
export type Sha256 = { readonly update: (bytes: Uint8Array) => void; readonly digest: () => Uint8Array };

const blockBytes = 64;
const roundConstants = new Int32Array(64);
const initialState = new Int32Array(8);

/** The first 32 bits behind the point of the square and cube roots of the first primes (FIPS 180-4, 4.2.2 and 5.3.3). */
function fillConstants(): void {
  const fraction = (root: number) => (root - Math.floor(root)) * 2 ** 32;
  const primes: number[] = [];
  for (let number = 2; primes.length < roundConstants.length; number++)
    if (primes.every((prime) => number % prime !== 0)) primes.push(number);
  for (const [i, prime] of primes.entries()) {
    if (i < initialState.length) initialState[i] = fraction(Math.sqrt(prime));
    roundConstants[i] = fraction(Math.cbrt(prime));
  }
}
fillConstants();

/** One schedule for all hashes: compressing a block is synchronous. */
const schedule = new Int32Array(64);
const at = (words: Int32Array, i: number): number => words[i] as number;
const rotate = (word: number, bits: number): number => (word >>> bits) | (word << (32 - bits));

function compress(state: Int32Array, view: DataView, offset: number): void {
  for (let i = 0; i < 16; i++) schedule[i] = view.getInt32(offset + 4 * i);
  for (let i = 16; i < 64; i++) {
    const [x, y] = [at(schedule, i - 15), at(schedule, i - 2)];
    const s0 = rotate(x, 7) ^ rotate(x, 18) ^ (x >>> 3);
    const s1 = rotate(y, 17) ^ rotate(y, 19) ^ (y >>> 10);
    schedule[i] = at(schedule, i - 16) + s0 + at(schedule, i - 7) + s1;
  }
  let [a, b, c, d] = [at(state, 0), at(state, 1), at(state, 2), at(state, 3)];
  let [e, f, g, h] = [at(state, 4), at(state, 5), at(state, 6), at(state, 7)];
  for (let i = 0; i < 64; i++) {
    const s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
    const t1 = h + s1 + ((e & f) ^ (~e & g)) + at(roundConstants, i) + at(schedule, i);
    const s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
    const t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = (d + t1) | 0;
    d = c;
    c = b;
    b = a;
    a = (t1 + t2) | 0;
  }
  state[0] = at(state, 0) + a;
  state[1] = at(state, 1) + b;
  state[2] = at(state, 2) + c;
  state[3] = at(state, 3) + d;
  state[4] = at(state, 4) + e;
  state[5] = at(state, 5) + f;
  state[6] = at(state, 6) + g;
  state[7] = at(state, 7) + h;
}

const viewOf = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** Hashes bytes that come in parts. Nothing may follow `digest`. */
export function createSha256(): Sha256 {
  const state = initialState.slice();
  const block = new Uint8Array(blockBytes);
  let length = 0;
  const update = (bytes: Uint8Array): void => {
    const held = length % blockBytes;
    length += bytes.length;
    if (held + bytes.length < blockBytes) {
      block.set(bytes, held);
      return;
    }
    let from = held === 0 ? 0 : blockBytes - held;
    if (held > 0) {
      block.set(bytes.subarray(0, from), held);
      compress(state, viewOf(block), 0);
    }
    const view = viewOf(bytes);
    for (; from + blockBytes <= bytes.length; from += blockBytes) compress(state, view, from);
    block.set(bytes.subarray(from));
  };
  const digest = (): Uint8Array => {
    const bits = length * 8;
    // A one, zeros, and the length in bits as the last eight bytes of a block.
    const padding = new Uint8Array(1 + ((2 * blockBytes - 9 - (length % blockBytes)) % blockBytes) + 8);
    padding[0] = 0x80;
    viewOf(padding).setUint32(padding.length - 8, Math.floor(bits / 2 ** 32));
    viewOf(padding).setUint32(padding.length - 4, bits % 2 ** 32);
    update(padding);
    const out = new Uint8Array(32);
    for (const [i, word] of state.entries()) viewOf(out).setInt32(4 * i, word);
    return out;
  };
  return { update, digest };
}

export function sha256(bytes: Uint8Array): Uint8Array {
  const hash = createSha256();
  hash.update(bytes);
  return hash.digest();
}
