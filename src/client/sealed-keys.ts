/**
 * An identity as text that may be stored or sent anywhere: sealed with a passphrase, to move it to another
 * device or to keep a copy. Whoever has the text and the passphrase is the identity.
 */
import { chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { scryptAsync } from "@noble/hashes/scrypt.js";
import { decodeBase64, decodeUtf8, encodeBase64, utf8 } from "../core/codec/bytes.ts";
import { localError } from "./http.ts";
import type { KeyStore } from "./key-stores.ts";
import { parseIdentity } from "./keys.ts";
import { parseRecord } from "./shape.ts";

const format = "waypost-keys:v1";
/** 32 MiB of memory and about half a second. */
const cost = { N: 2 ** 15, r: 8, p: 1 };
const saltBytes = 16;
const nonceBytes = 12;

/** Throws `no_identity` when the store holds none of this name. */
export async function exportKeys(keys: KeyStore, name: string, passphrase: string): Promise<string> {
  const text = await keys.load(name);
  if (text === null) throw localError("no_identity", `there is no identity called ${name}`);
  const salt = crypto.getRandomValues(new Uint8Array(saltBytes));
  const nonce = crypto.getRandomValues(new Uint8Array(nonceBytes));
  const sealed = chacha20poly1305(await keyOf(passphrase, salt), nonce, utf8(format)).encrypt(utf8(text));
  const [saltText, nonceText, sealedText] = [salt, nonce, sealed].map(encodeBase64);
  return JSON.stringify({
    format,
    kdf: "scrypt",
    ...cost,
    salt_b64: saltText,
    nonce_b64: nonceText,
    sealed_b64: sealedText,
  });
}

/** Throws `wrong_passphrase`, `keys_unreadable`, or `name_taken` when the store holds that name already. */
export async function importKeys(
  keys: KeyStore,
  name: string,
  { sealed, passphrase }: { readonly sealed: string; readonly passphrase: string },
): Promise<void> {
  const parts = parseSealed(sealed);
  if ((await keys.load(name)) !== null) throw localError("name_taken", `an identity called ${name} already exists`);
  const text = await decrypt(parts, passphrase);
  if (parseIdentity(text, name) === null) throw localError("keys_unreadable", "the sealed text holds no identity");
  await keys.save(name, text);
}

function keyOf(passphrase: string, salt: Uint8Array): Promise<Uint8Array> {
  return scryptAsync(passphrase.normalize("NFKC"), salt, { ...cost, dkLen: 32 });
}

type Sealed = { readonly salt: Uint8Array; readonly nonce: Uint8Array; readonly sealed: Uint8Array };

/** The cost is fixed: a stranger's text must not choose how much memory it takes. */
function parseSealed(text: string): Sealed {
  const json = parseRecord(text);
  const bytes = (name: string) => (typeof json?.[name] === "string" ? decodeBase64(json[name]) : null);
  const [salt, nonce, sealed] = [bytes("salt_b64"), bytes("nonce_b64"), bytes("sealed_b64")];
  const known = json?.["format"] === format && json["N"] === cost.N && json["r"] === cost.r && json["p"] === cost.p;
  if (!known || salt?.length !== saltBytes || nonce?.length !== nonceBytes || sealed === null || sealed === undefined)
    throw localError("keys_unreadable", "not an exported identity of this version");
  return { salt, nonce, sealed };
}

async function decrypt({ salt, nonce, sealed }: Sealed, passphrase: string): Promise<string> {
  const key = await keyOf(passphrase, salt);
  let plain: Uint8Array;
  try {
    plain = chacha20poly1305(key, nonce, utf8(format)).decrypt(sealed);
  } catch {
    throw localError("wrong_passphrase", "the passphrase does not open this");
  }
  return decodeUtf8(plain) ?? "";
}
