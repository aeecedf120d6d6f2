/**
 * A message in chunks that was interrupted goes on where it stopped: sent again, the same content to the same recipient
 * continues its set of chunks instead of beginning a second one. The last set to each recipient is remembered beside the
 * keys until all of it is sent. Loaded only for messages in chunks; a local store has an outbox.
 */
import { equalBytes } from "../core/codec/bytes.ts";
import { parseDuration, parseTimestamp } from "../core/codec/time.ts";
import { chunkCount, parsePlan, renderPlan, type SavedPlan, type SendPlan, type UnsignedPlan } from "./send.ts";
import type { MemoryStore } from "./trust/trust.ts";

type Resumed = {
  readonly plan: SendPlan;
  /** Chunks that an earlier run has delivered. */
  readonly delivered: number;
  /** Awaited after each chunk. */
  readonly save: (delivered: number) => Promise<void>;
};

/**
 * Keeps the key that an unfinished set was sealed to: all of its chunks need the same one, and a recipient that has replaced
 * its key keeps the old secret for longer than the set lives.
 */
export async function resume(memory: MemoryStore, wanted: SendPlan): Promise<Resumed> {
  const key = `sending/${wanted.to}`;
  const kept = parsePlan((await memory.load(key)) ?? "");
  const isOpen = kept !== null && endsMs(kept.plan) > Date.now() && isSameSend(kept, wanted);
  const plan = isOpen ? { ...wanted, ...kept.plan, name: wanted.name, trust: wanted.trust } : wanted;
  const save = (delivered: number) =>
    memory.save(key, delivered === chunkCount(plan) ? null : renderPlan(plan, delivered));
  if (!isOpen) await save(0);
  return { plan, delivered: isOpen ? kept.delivered : 0, save };
}

function endsMs({ timestamp, ttl }: UnsignedPlan): number {
  return (parseTimestamp(timestamp) ?? 0) + (parseDuration(ttl) ?? 0);
}

function isSameSend({ plan, senderKeyId }: SavedPlan, wanted: SendPlan): boolean {
  const { file, recipient } = plan;
  const same = (["to", "chunkBytes", "ttl", "tag", "hint"] as const).every((name) => plan[name] === wanted[name]);
  const sameFile = (["name", "mediaType", "sizeBytes"] as const).every((name) => file[name] === wanted.file[name]);
  const sameKeys = recipient.keyId === wanted.recipient.keyId && senderKeyId === (wanted.sender?.keyId ?? null);
  return same && sameFile && sameKeys && equalBytes(file.sha256, wanted.file.sha256);
}
