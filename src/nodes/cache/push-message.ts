/**
 * The request to a push service: its content, encrypted to the device (RFC 8291), and the header
 * that names this node's operator (RFC 8292). WebCrypto computes both.
 */
import { concatBytes, encodeBase64Url, utf8 } from "../../core/codec/bytes.ts";
import { hourMs, secondMs } from "../../core/codec/time.ts";

/**
 * What a device's browser or distributor gave it: where to push, and how to
 * encrypt (RFC 8030, RFC 8291).
 */
export type PushTarget = {
  readonly endpoint: string;
  /** The device's public key, an uncompressed point of P-256. */
  readonly p256dh: Uint8Array;
  readonly auth: Uint8Array;
};

/** The key of this installation that push services know it by. */
export type PushKey = {
  /** Uncompressed, in base64url: the `applicationServerKey` of browsers. */
  readonly publicKey: string;
  readonly sign: (text: Uint8Array) => Promise<Uint8Array>;
};

/** `null` when the text is neither form of base64url. */
export function parseBase64url(text: string): Uint8Array | null {
  try {
    return Uint8Array.fromBase64(text, { alphabet: "base64url" });
  } catch {
    return null;
  }
}

const recordBytes = 4_096;
/** All content has this length, so that none says what it is. */
const paddedBytes = 1_280;

type Bytes = Uint8Array<ArrayBuffer>;
type Drawn = { readonly keys: CryptoKeyPair; readonly salt: Uint8Array; readonly padTo?: number };

const curve = { name: "ECDH", namedCurve: "P-256" } as const;

/** `null` when the bytes are not a point of the curve. */
export async function deviceKey(p256dh: Uint8Array): Promise<CryptoKey | null> {
  return crypto.subtle.importKey("raw", p256dh as Bytes, curve, false, []).catch(() => null);
}

async function draw(): Promise<Drawn> {
  const keys = (await crypto.subtle.generateKey(curve, true, ["deriveBits"])) as CryptoKeyPair;
  return { keys, salt: crypto.getRandomValues(new Uint8Array(16)) };
}

/** One record of `aes128gcm` (RFC 8188). Tests give what is drawn. */
export async function encryptPush(
  { p256dh, auth }: PushTarget,
  content: Uint8Array,
  drawn?: Drawn,
): Promise<Uint8Array> {
  const { keys, salt, padTo = paddedBytes } = drawn ?? (await draw());
  const theirs = await deviceKey(p256dh);
  if (theirs === null) throw new Error("a key of a device was not checked");
  const own = new Uint8Array(await crypto.subtle.exportKey("raw", keys.publicKey));
  const shared = await crypto.subtle.deriveBits(
    { name: "ECDH", public: theirs },
    keys.privateKey,
    256,
  );
  const input = await hkdf(
    new Uint8Array(shared),
    auth,
    concatBytes(utf8("WebPush: info\0"), p256dh, own),
    32,
  );
  const [key, nonce] = await Promise.all([
    hkdf(input, salt, utf8("Content-Encoding: aes128gcm\0"), 16),
    hkdf(input, salt, utf8("Content-Encoding: nonce\0"), 12),
  ]);
  const padding = new Uint8Array(Math.max(1, padTo - content.length));
  padding[0] = 2;
  const cipher = await crypto.subtle.importKey("raw", key, "AES-GCM", false, ["encrypt"]);
  const plain = concatBytes(content, padding) as Bytes;
  const sealed = await crypto.subtle.encrypt({ name: "AES-GCM", iv: nonce }, cipher, plain);
  const header = new Uint8Array(5);
  new DataView(header.buffer).setUint32(0, recordBytes);
  header[4] = own.length;
  return concatBytes(salt, header, own, new Uint8Array(sealed));
}

async function hkdf(
  key: Uint8Array,
  salt: Uint8Array,
  info: Uint8Array,
  length: number,
): Promise<Bytes> {
  const from = await crypto.subtle.importKey("raw", key as Bytes, "HKDF", false, ["deriveBits"]);
  const how = { name: "HKDF", hash: "SHA-256", salt: salt as Bytes, info: info as Bytes };
  return new Uint8Array(await crypto.subtle.deriveBits(how, from, 8 * length));
}

/** Push services accept at most a day. */
const tokenMs = 12 * hourMs;

type Claims = { readonly endpoint: string; readonly contact: string; readonly nowMs: number };

export async function pushAuthorization(
  key: PushKey,
  { endpoint, contact, nowMs }: Claims,
): Promise<string> {
  const json = (value: unknown): string => encodeBase64Url(utf8(JSON.stringify(value)));
  const claims = {
    aud: new URL(endpoint).origin,
    exp: Math.floor((nowMs + tokenMs) / secondMs),
    sub: contact,
  };
  const text = `${json({ typ: "JWT", alg: "ES256" })}.${json(claims)}`;
  return `vapid t=${text}.${encodeBase64Url(await key.sign(utf8(text)))}, k=${key.publicKey}`;
}
