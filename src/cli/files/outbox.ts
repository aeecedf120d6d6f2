/**
 * Chunk sets that are on their way, on disk: what is needed to build every chunk again and how many were
 * delivered, so that an interrupted send goes on where it stopped instead of starting a second set. The
 * files hold the seed of the set and are removed once it is complete.
 */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { groupIdOf, type SendPlan } from "../../client/send.ts";
import { isRecord } from "../../client/shape.ts";
import { equalBytes } from "../../core/codec/bytes.ts";
import { type Did, isDid } from "../../core/codec/did.ts";
import { parseDuration, parseTimestamp } from "../../core/codec/time.ts";
import { isSystemError, readText, removeIfThere, sweepLeftovers, writeDurably } from "./files.ts";

/** What a plan is without its sender's seed, which stays in the key file. */
type Unsigned = Omit<SendPlan, "sender">;

export type Unfinished = {
  readonly path: string;
  readonly plan: Unsigned;
  readonly senderKeyId: string | null;
  readonly delivered: number;
};

export function outboxFolder(keysFolder: string): string {
  return join(keysFolder, ".state", "outbox");
}

export async function saveProgress(folder: string, plan: SendPlan, delivered: number): Promise<string> {
  const path = join(folder, `${groupIdOf(plan)}.json`);
  const { seed, to, recipient, file, chunkBytes, timestamp, ttl, tag, hint, sender } = plan;
  const state = {
    version: 1,
    seed: seed.toHex(),
    to,
    recipient_key_id: recipient.keyId,
    recipient_key: recipient.publicKey.toHex(),
    name: file.name,
    media_type: file.mediaType,
    size_bytes: file.sizeBytes,
    sha256: file.sha256.toHex(),
    chunk_bytes: chunkBytes,
    timestamp,
    ttl,
    tag,
    hint,
    sender_key_id: sender?.keyId ?? null,
    delivered,
  };
  await writeDurably(path, `${JSON.stringify(state, null, 2)}\n`);
  return path;
}

/**
 * The unfinished set for the same file, recipient, key and sender that is still worth going on with.
 * Sets whose time is over are removed on the way.
 */
export async function findUnfinished(folder: string, wanted: SendPlan, nowMs: number): Promise<Unfinished | null> {
  await sweepLeftovers(folder, nowMs);
  let found: Unfinished | null = null;
  for (const path of await stateFiles(folder)) {
    const state = parseState((await readText(path)) ?? "", path);
    if (state === null) continue;
    if (endsMs(state.plan) <= nowMs) await removeIfThere(path);
    else if (isSameSend(state, wanted)) found = state;
  }
  return found;
}

async function stateFiles(folder: string): Promise<string[]> {
  try {
    return (await readdir(folder)).filter((file) => file.endsWith(".json")).map((file) => join(folder, file));
  } catch (error) {
    if (isSystemError(error, "ENOENT")) return [];
    throw error;
  }
}

function endsMs(plan: Unsigned): number {
  return (parseTimestamp(plan.timestamp) ?? 0) + (parseDuration(plan.ttl) ?? 0);
}

function isSameSend(state: Unfinished, wanted: SendPlan): boolean {
  const { plan } = state;
  return (
    plan.to === wanted.to &&
    plan.recipient.keyId === wanted.recipient.keyId &&
    equalBytes(plan.recipient.publicKey, wanted.recipient.publicKey) &&
    plan.file.name === wanted.file.name &&
    plan.file.mediaType === wanted.file.mediaType &&
    plan.file.sizeBytes === wanted.file.sizeBytes &&
    equalBytes(plan.file.sha256, wanted.file.sha256) &&
    plan.chunkBytes === wanted.chunkBytes &&
    plan.ttl === wanted.ttl &&
    plan.tag === wanted.tag &&
    plan.hint === wanted.hint &&
    state.senderKeyId === (wanted.sender?.keyId ?? null)
  );
}

function parseState(text: string, path: string): Unfinished | null {
  const json = parseRecord(text);
  if (json === null || json["version"] !== 1) return null;
  const string = (name: string) => (typeof json[name] === "string" ? json[name] : "");
  const count = (name: string) => (Number.isSafeInteger(json[name]) ? (json[name] as number) : -1);
  const hex = (name: string) => (/^[0-9a-f]{64}$/.test(string(name)) ? Uint8Array.fromHex(string(name)) : null);
  const [seed, publicKey, sha256] = [hex("seed"), hex("recipient_key"), hex("sha256")];
  const [sizeBytes, chunkBytes, delivered] = [count("size_bytes"), count("chunk_bytes"), count("delivered")];
  if (seed === null || publicKey === null || sha256 === null || !isDid(string("to"))) return null;
  if (sizeBytes < 0 || chunkBytes < 1 || delivered < 0) return null;
  const hint = json["hint"] === "direct" || json["hint"] === "cache" ? json["hint"] : null;
  return {
    path,
    plan: {
      seed,
      to: string("to") as Did,
      recipient: { keyId: string("recipient_key_id"), publicKey },
      file: { name: string("name"), mediaType: string("media_type"), sizeBytes, sha256 },
      chunkBytes,
      timestamp: string("timestamp"),
      ttl: string("ttl"),
      tag: typeof json["tag"] === "string" ? json["tag"] : null,
      hint,
    },
    senderKeyId: typeof json["sender_key_id"] === "string" ? json["sender_key_id"] : null,
    delivered,
  };
}

function parseRecord(text: string): Record<string, unknown> | null {
  try {
    const json: unknown = JSON.parse(text);
    return isRecord(json) ? json : null;
  } catch {
    return null;
  }
}
