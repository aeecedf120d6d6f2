/**
 * Chunk sets that are on their way, on disk: what is needed to build every chunk again and how many were
 * delivered, so that an interrupted send goes on where it stopped instead of starting a second set. The
 * files hold the seed of the set and are removed once it is complete.
 */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { parsePlan, renderPlan, type SavedPlan, type UnsignedPlan } from "../../client/plan-text.ts";
import { groupIdOf, type SendPlan } from "../../client/send.ts";
import { equalBytes } from "../../core/codec/bytes.ts";
import { parseDuration, parseTimestamp } from "../../core/codec/time.ts";
import { isSystemError, readText, removeIfThere, sweepLeftovers, writeDurably } from "./files.ts";

export type Unfinished = SavedPlan & { readonly path: string };

export function outboxFolder(keysFolder: string): string {
  return join(keysFolder, ".state", "outbox");
}

export async function saveProgress(folder: string, plan: SendPlan, delivered: number): Promise<string> {
  const path = join(folder, `${groupIdOf(plan)}.json`);
  await writeDurably(path, renderPlan(plan, delivered));
  return path;
}

/**
 * The unfinished set for the same file, recipient and sender that is still worth going on with. It keeps the
 * key that it was sealed to: chunks of one set must be sealed alike, and a recipient that has replaced its
 * key since holds the old secret for longer than the set lives. Sets whose time is over are removed on the way.
 */
export async function findUnfinished(folder: string, wanted: SendPlan, nowMs: number): Promise<Unfinished | null> {
  await sweepLeftovers(folder, nowMs);
  let found: Unfinished | null = null;
  for (const path of await stateFiles(folder)) {
    const state = parsePlan((await readText(path)) ?? "");
    if (state === null) continue;
    if (endsMs(state.plan) <= nowMs) await removeIfThere(path);
    else if (isSameSend(state, wanted)) found = { ...state, path };
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

function endsMs(plan: UnsignedPlan): number {
  return (parseTimestamp(plan.timestamp) ?? 0) + (parseDuration(plan.ttl) ?? 0);
}

function isSameSend(state: SavedPlan, wanted: SendPlan): boolean {
  const { plan } = state;
  return (
    plan.to === wanted.to &&
    plan.recipient.keyId === wanted.recipient.keyId &&
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
