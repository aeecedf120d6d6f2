/**
 * Writes `signatures.json` and `keys.json`: edge cases of Ed25519 with two expected verdicts each.
 * `native` comes from a model of RFC 8032 without the cofactor over the points of @noble/curves,
 * not from the verifier under test; `zip215` from the rules of ZIP-215, which the chain follows.
 * Run it by hand: `bun test/vectors/ed25519/generate.ts`. Its output is the same every time.
 */
import { createHash } from "node:crypto";
import { ed25519 } from "@noble/curves/ed25519.js";
import { concatBytes, equalBytes, utf8 } from "../../../src/core/codec/bytes.ts";

const { Point } = ed25519;
type Point = InstanceType<typeof Point>;
const order = Point.Fn.ORDER;
const prime = Point.Fp.ORDER;

export type SignatureVector = {
  readonly class: string;
  readonly public_key: string;
  readonly message: string;
  readonly signature: string;
  readonly native: boolean;
  readonly zip215: boolean;
};
export type KeyVector = {
  readonly class: string;
  readonly public_key: string;
  readonly admissible: boolean;
};

const littleEndian = (value: bigint) =>
  Uint8Array.from({ length: 32 }, (_, i) => Number((value >> BigInt(8 * i)) & 0xffn));
const fromLittleEndian = (bytes: Uint8Array) =>
  bytes.reduceRight((value, byte) => (value << 8n) | BigInt(byte), 0n);

function challenge(r: Uint8Array, a: Uint8Array, message: Uint8Array): bigint {
  const digest = createHash("sha512")
    .update(concatBytes(r, a, message))
    .digest();
  return fromLittleEndian(new Uint8Array(digest)) % order;
}

const times = (point: Point, scalar: bigint): Point =>
  scalar === 0n ? Point.ZERO : point.multiplyUnsafe(scalar);

/** The point of an encoding by the lenient rule, or `null` when it lies off the curve. */
function lenientPoint(bytes: Uint8Array): Point | null {
  try {
    return Point.fromBytes(bytes, true);
  } catch {
    return null;
  }
}

function verdicts(
  a: Uint8Array,
  message: Uint8Array,
  signature: Uint8Array,
): { native: boolean; zip215: boolean } {
  const s = fromLittleEndian(signature.subarray(32));
  const key = lenientPoint(a);
  if (s >= order || key === null) return { native: false, zip215: false };
  const rBytes = signature.subarray(0, 32);
  const expected = times(Point.BASE, s).subtract(times(key, challenge(rBytes, a, message)));
  const r = lenientPoint(rBytes);
  const zip215 = r !== null && times(expected.subtract(r), 8n).equals(Point.ZERO);
  return { native: equalBytes(expected.toBytes(), rBytes), zip215 };
}

const signatures: SignatureVector[] = [];

function add(name: string, a: Uint8Array, message: Uint8Array, signature: Uint8Array): void {
  signatures.push({
    class: name,
    public_key: a.toHex(),
    message: message.toHex(),
    signature: signature.toHex(),
    ...verdicts(a, message, signature),
  });
}

const seeds = [1, 2, 3].map((n) => new Uint8Array(32).fill(n));
const messages = [
  utf8(""),
  utf8("did:svc:1111111111111111111111|2026-07-16T12:00:00Z"),
  new Uint8Array(300).fill(7),
];
const scalarOf = (seed: Uint8Array) => ed25519.utils.getExtendedPublicKey(seed).scalar;

/**
 * The eight points of small order, and all their encodings: eight canonical ones and six that are
 * not.
 */
const torsion = Array.from({ length: 8 }, (_, i) =>
  times(Point.fromHex(smallOrderGenerator()), BigInt(i)),
);

function smallOrderGenerator(): string {
  return "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a";
}

function smallEncodings(): { bytes: Uint8Array; canonical: boolean }[] {
  const canonical = torsion.map((point) => ({ bytes: point.toBytes(), canonical: true }));
  const seen = new Set(canonical.map(({ bytes }) => bytes.toHex()));
  const others: { bytes: Uint8Array; canonical: boolean }[] = [];
  for (const y of [0n, 1n, prime - 1n, prime, prime + 1n]) {
    for (const sign of [0n, 1n]) {
      const bytes = littleEndian(y | (sign << 255n));
      if (lenientPoint(bytes)?.isSmallOrder() === true && !seen.has(bytes.toHex())) {
        others.push({ bytes, canonical: false });
      }
    }
  }
  return [...canonical, ...others];
}

function honest(): void {
  for (const seed of seeds) {
    const a = ed25519.getPublicKey(seed);
    for (const message of messages) {
      const signature = ed25519.sign(message, seed);
      add("honest", a, message, signature);
      const s = fromLittleEndian(signature.subarray(32));
      const withS = (value: bigint) => concatBytes(signature.subarray(0, 32), littleEndian(value));
      add("S plus the order", a, message, withS(s + order));
      add("S with bit 255", a, message, withS(s | (1n << 255n)));
      add("S equal to the order", a, message, withS(order));
      add("another message", a, concatBytes(message, utf8("!")), signature);
      for (const bit of [0, 100, 255, 256, 400, 511])
        add("flipped bit of the signature", a, message, flip(signature, bit));
      add("flipped sign of the key", flip(a, 255), message, signature);
    }
  }
}

function flip(bytes: Uint8Array, bit: number): Uint8Array {
  const out = bytes.slice();
  out[bit >> 3] = (out[bit >> 3] as number) ^ (1 << (bit & 7));
  return out;
}

function smallOrder(): void {
  const small = smallEncodings();
  const seed = seeds[0] as Uint8Array;
  const a = ed25519.getPublicKey(seed);
  const nonce = 0x1234567890abcdefn;
  for (const { bytes, canonical } of small) {
    const kind = canonical ? "canonical" : "non-canonical";
    for (const message of messages) {
      const s = (challenge(bytes, a, message) * scalarOf(seed)) % order;
      add(`honest key, small R, ${kind}`, a, message, concatBytes(bytes, littleEndian(s)));
      const r = times(Point.BASE, nonce).toBytes();
      add(`small key, ${kind}, honest R`, bytes, message, concatBytes(r, littleEndian(nonce)));
    }
    for (const r of small)
      add("small key, small R", bytes, utf8("Zcash"), concatBytes(r.bytes, new Uint8Array(32)));
  }
  add("all zero", new Uint8Array(32), new Uint8Array(0), new Uint8Array(64));
}

function mixedOrder(): void {
  const seed = seeds[1] as Uint8Array;
  const scalar = scalarOf(seed);
  const nonce = 0xfedcba0987654321n;
  for (const twist of torsion.slice(1)) {
    const a = times(Point.BASE, scalar).add(twist).toBytes();
    const honestKey = ed25519.getPublicKey(seed);
    for (const message of messages) {
      const r = times(Point.BASE, nonce).toBytes();
      const s = (nonce + challenge(r, a, message) * scalar) % order;
      add("mixed-order key", a, message, concatBytes(r, littleEndian(s)));
      const mixedR = times(Point.BASE, nonce).add(twist).toBytes();
      const t = (nonce + challenge(mixedR, honestKey, message) * scalar) % order;
      add("mixed-order R", honestKey, message, concatBytes(mixedR, littleEndian(t)));
    }
  }
}

function offCurve(): void {
  const signature = ed25519.sign(messages[0] as Uint8Array, seeds[0] as Uint8Array);
  for (const y of [2n, 7n, prime + 2n])
    add("key off the curve", littleEndian(y), messages[0] as Uint8Array, signature);
}

function keyVectors(): KeyVector[] {
  const keys: KeyVector[] = [];
  const put = (name: string, bytes: Uint8Array, admissible: boolean) =>
    keys.push({ class: name, public_key: bytes.toHex(), admissible });
  for (const seed of seeds) put("honest", ed25519.getPublicKey(seed), true);
  for (const { bytes, canonical } of smallEncodings()) {
    put(canonical ? "small order" : "small order, non-canonical", bytes, false);
  }
  for (const twist of torsion.slice(1)) put("mixed order", Point.BASE.add(twist).toBytes(), true);
  for (const y of [2n, 7n]) put("off the curve", littleEndian(y), false);
  for (let y = prime + 2n; y < 1n << 255n; y++) {
    if (lenientPoint(littleEndian(y)) !== null)
      put("non-canonical of large order", littleEndian(y), false);
  }
  put("31 bytes", new Uint8Array(31).fill(9), false);
  put("33 bytes", new Uint8Array(33).fill(9), false);
  return keys;
}

const lines = (rows: readonly object[]) =>
  `[\n${rows.map((row) => JSON.stringify(row)).join(",\n")}\n]\n`;

honest();
smallOrder();
mixedOrder();
offCurve();
await Bun.write(new URL("signatures.json", import.meta.url), lines(signatures));
await Bun.write(new URL("keys.json", import.meta.url), lines(keyVectors()));
