/**
 * The keys of a process, each in a file: 32 bytes in hex, for event proofs (Ed25519) and
 * for pushes (P-256, RFC 8292); for logs and witnesses the form of Go's `note` package. A
 * file that other users may read is a warning, not a failure, because some systems mount
 * secrets that way. Two keys have a file next to them: of event proofs the previous public
 * keys, of a log the head that was signed last, which a restored store has forgotten.
 */
import { createECDH } from "node:crypto";
import { existsSync, statSync } from "node:fs";
import { ed25519 } from "@noble/curves/ed25519.js";
import type { Config } from "../config/schema.ts";
import { decodeHex, encodeBase64Url, renderPublicKey } from "../core/codec/bytes.ts";
import { createSigner } from "../core/codec/native.ts";
import { errorText } from "../core/fault.ts";
import { type NoteKey, noteKey, parseNamedAddress, parseSignerKey } from "../core/trust/note.ts";
import type { CacheParts } from "../nodes/cache/cache.ts";
import type { PushKey } from "../nodes/cache/push-message.ts";
import type { LogKey } from "../nodes/directory/log.ts";
import type { Log } from "../nodes/http/log.ts";
import type { NamedAddress } from "../nodes/witness/exchange.ts";
import type { WitnessParts } from "../nodes/witness/witness.ts";
import type { InputProblem } from "../storage/setting-problem.ts";
import { failed } from "./failure.ts";
import { createDurably, readText, writeInTurn } from "./files.ts";

type NoteSigner = Pick<WitnessParts, "key" | "sign">;

/** What a process signs with; `null` where it does not. */
export type Keys = {
  readonly eventKey: EventKey;
  readonly pushKey: PushKey | null;
  readonly logKey: LogKey | null;
  readonly witnessKey: NoteSigner | null;
};

/** The files that are used, by the setting that names them. */
function filesOf({ cache, push, directory, witness }: Config) {
  const event = cache.enabled ? cache.signing_key_file : null;
  return {
    "cache.signing_key_file": event,
    "push.enabled": push.enabled && event !== null ? `${event}.push` : null,
    "directory.log_key_file": directory.enabled ? directory.log_key_file : null,
    "witness.key_file": witness.key_file,
  };
}

export async function openKeys(config: Config, log: Log): Promise<Keys> {
  const files = filesOf(config);
  const [push, logFile, witness] = [
    files["push.enabled"],
    files["directory.log_key_file"],
    files["witness.key_file"],
  ];
  return {
    eventKey: await openEventKey(files["cache.signing_key_file"]),
    pushKey: push === null ? null : await openPushKey(push, log),
    logKey: logFile === null ? null : await openLogKey(logFile),
    witnessKey: witness === null ? null : await readNoteSigner(witness, "witness"),
  };
}

/** What is wrong with the files, found without making one. */
export async function keyProblems(config: Config): Promise<InputProblem[]> {
  const files = filesOf(config);
  const found: InputProblem[] = [];
  const lookAtFile = async (
    setting: keyof typeof files,
    read: (file: string) => Promise<unknown>,
  ) => {
    const file = files[setting];
    const message = file === null ? null : await read(file).then(() => null, errorText);
    if (message !== null) found.push({ setting, message });
  };
  await lookAtFile("cache.signing_key_file", readSeed);
  await lookAtFile("directory.log_key_file", (file) => readNoteSigner(file, "log"));
  await lookAtFile("witness.key_file", (file) => readNoteSigner(file, "witness"));
  return found;
}

/** Files that others than the owner may read or write; none on systems without such modes. */
export function keyWarnings(config: Config): InputProblem[] {
  if (process.platform === "win32") return [];
  return Object.entries(filesOf(config)).flatMap(([setting, file]) => {
    if (file === null || !existsSync(file) || (statSync(file).mode & 0o077) === 0) return [];
    return [{ setting, message: `other users may read ${file}; run: chmod 600 ${file}` }];
  });
}

/** `make`: what is written before the name to make one. */
async function readKeyFile(file: string, make = ""): Promise<string> {
  const text = await readText(file).catch((error: unknown) => {
    throw failed(`${file} can't be read: ${errorText(error)}`);
  });
  if (text === null)
    throw failed(`${file}: there is no such file; create one: waypost key new ${make}${file}`);
  return text.trim();
}

/** The 32 bytes of a key file. */
export async function readSeed(file: string): Promise<Uint8Array> {
  const seed = decodeHex(await readKeyFile(file));
  if (seed?.length === 32) return seed;
  throw failed(`${file} must contain 32 bytes in hex`);
}

// ------------------------------------------------------------------------------------ event proofs

/** A former key; clients accept its signatures until `untilMs`. */
type PreviousKey = { readonly publicKey: string; readonly untilMs: number };

/** Read at the start: `waypost key rotate` changes the file. */
type EventKey = {
  /** `null` without a file. */
  readonly sign: CacheParts["sign"];
  readonly publicKey: string | null;
  readonly previous: readonly PreviousKey[];
};

/** The public key that signs events, and those before it; none without a file. */
export async function eventKeysOf({ cache }: Config): Promise<string[]> {
  const { publicKey, previous } = await openEventKey(cache.enabled ? cache.signing_key_file : null);
  return publicKey === null ? [] : [publicKey, ...previous.map((key) => key.publicKey)];
}

async function openEventKey(file: string | null): Promise<EventKey> {
  if (file === null) return { sign: null, publicKey: null, previous: [] };
  const [seed, previous] = await Promise.all([readSeed(file), readPreviousKeys(file)]);
  return {
    sign: createSigner(seed),
    publicKey: renderPublicKey(ed25519.getPublicKey(seed)),
    previous,
  };
}

/**
 * Next to the key: one line for each previous key, its public form and the time until which
 * it counts.
 */
export function previousKeysFile(file: string): string {
  return `${file}.previous`;
}

export async function readPreviousKeys(file: string): Promise<PreviousKey[]> {
  const text = await readText(previousKeysFile(file)).catch((error: unknown) => {
    throw failed(`${previousKeysFile(file)} can't be read: ${errorText(error)}`);
  });
  return (text ?? "").split("\n").flatMap((line) => {
    const [publicKey = "", until = ""] = line.trim().split(" ");
    const untilMs = Date.parse(until);
    return publicKey === "" || Number.isNaN(untilMs) ? [] : [{ publicKey, untilMs }];
  });
}

export function renderPreviousKeys(keys: readonly PreviousKey[]): string {
  return keys
    .map(({ publicKey, untilMs }) => `${publicKey} ${new Date(untilMs).toISOString()}\n`)
    .join("");
}

// ------------------------------------------------------------------------------------------ pushes

/** Made once: subscriptions are bound to it. All nodes of an installation need the same file. */
export async function openPushKey(file: string, log: Log): Promise<PushKey> {
  return pushKeyOf(file, await pushSecret(file, log));
}

export async function pushKeyOf(file: string, secret: Uint8Array): Promise<PushKey> {
  const pair = createECDH("prime256v1");
  try {
    pair.setPrivateKey(secret);
  } catch {
    throw failed(`${file} must contain a key of P-256, 32 bytes in hex`);
  }
  const point = new Uint8Array(pair.getPublicKey());
  const [x, y, d] = [
    encodeBase64Url(point.subarray(1, 33)),
    encodeBase64Url(point.subarray(33)),
    encodeBase64Url(secret),
  ];
  const how = { name: "ECDSA", namedCurve: "P-256" } as const;
  const key = await crypto.subtle.importKey(
    "jwk",
    { kty: "EC", crv: "P-256", x, y, d },
    how,
    false,
    ["sign"],
  );
  const sign: PushKey["sign"] = async (message) =>
    new Uint8Array(
      await crypto.subtle.sign(
        { name: "ECDSA", hash: "SHA-256" },
        key,
        message as Uint8Array<ArrayBuffer>,
      ),
    );
  return { publicKey: encodeBase64Url(point), sign };
}

/** Made whole or not at all, also when two processes start together. */
async function pushSecret(file: string, log: Log): Promise<Uint8Array> {
  if (!existsSync(file)) {
    const pair = createECDH("prime256v1");
    pair.generateKeys();
    const made = createDurably(file, `${pair.getPrivateKey("hex").padStart(64, "0")}\n`);
    const isMade = await made.catch((error: unknown) => {
      throw failed(`${file} can't be made: ${errorText(error)}`);
    });
    if (isMade)
      log("warn", "the key for pushes was made; keep it: subscriptions are bound to it", { file });
  }
  return readSeed(file);
}

// ------------------------------------------------------------------------------ logs and witnesses

export async function readNoteSigner(file: string, type: NoteKey["type"]): Promise<NoteSigner> {
  const parsed = parseSignerKey(await readKeyFile(file, `--${type} <name> `));
  const key =
    parsed === null ? null : noteKey(parsed.name, parsed.type, ed25519.getPublicKey(parsed.bytes));
  const sign = parsed === null ? null : createSigner(parsed.bytes);
  if (key !== null && sign !== null && key.id === parsed?.id && key.type === type)
    return { key, sign };
  throw failed(`${file} must hold a key that waypost key new --${type} <name> has made`);
}

async function openLogKey(file: string): Promise<LogKey> {
  const signedFile = `${file}.head`;
  return {
    ...(await readNoteSigner(file, "log")),
    readSigned: async () => (await readText(signedFile)) ?? "",
    writeSigned: (note) => writeInTurn(signedFile, note),
  };
}

/** The schema has checked them. */
export function addressesOf(texts: readonly string[]): NamedAddress[] {
  return texts.map(parseNamedAddress).filter((one) => one !== null);
}
