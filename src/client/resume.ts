/**
 * A message in chunks that was interrupted goes on where it stopped: sent again, the same content to the same recipient
 * continues its set of chunks instead of beginning a second one. The newest sets are remembered beside the keys until all of
 * each is sent or its time has ended. A local store has an outbox.
 */
import { equalBytes } from "../core/codec/bytes.ts";
import { parseDuration, parseTimestamp } from "../core/codec/time.ts";
import { inOrder } from "../core/std/order.ts";
import { parseKept, renderKept, sendingShape } from "./answers.ts";
import type { MemoryStore } from "./key-stores.ts";
import { chunkCount, parsePlan, renderPlan, type SavedPlan, type SendPlan, type UnsignedPlan } from "./send.ts";

type Resumed = {
  readonly plan: SendPlan;
  /** Chunks that an earlier run has delivered. */
  readonly delivered: number;
  /** Awaited after each chunk. */
  readonly save: (delivered: number) => Promise<void>;
};

/** Of more, those that went on last. */
const keptMax = 16;
const key = "sending";

const changes = inOrder<MemoryStore>();

/**
 * Keeps the key that an unfinished set was sealed to: all of its chunks need the same one, and a recipient that has replaced
 * its key keeps the old secret for longer than the set lives.
 */
export async function resume(memory: MemoryStore, wanted: SendPlan): Promise<Resumed> {
  const kept = (await dropExpired(memory)).find((saved) => isSameSend(saved, wanted)) ?? null;
  const plan = kept === null ? wanted : { ...wanted, ...kept.plan, name: wanted.name, trust: wanted.trust };
  // Another process that saves at the same moment may take this out: it comes back with the next chunk.
  const save = async (delivered: number) =>
    void (await change(memory, (texts) => {
      const others = texts.filter((text) => parsePlan(text)?.plan.id !== plan.id);
      return delivered === chunkCount(plan) ? others : [...others, renderPlan(plan, delivered)];
    }));
  if (kept === null) await save(0);
  return { plan, delivered: kept?.delivered ?? 0, save };
}

/** Removes what can't be continued any more, since it holds the seeds of messages, and returns the rest. */
export async function dropExpired(memory: MemoryStore): Promise<SavedPlan[]> {
  const texts = await change(memory, (texts) => texts);
  return texts.map(parsePlan).filter((saved) => saved !== null);
}

function change(
  memory: MemoryStore,
  edit: (texts: readonly string[]) => readonly string[],
): Promise<readonly string[]> {
  return changes(memory, async () => {
    const text = await memory.load(key);
    const before = parseKept(text ?? "", sendingShape)?.plans ?? [];
    const isValid = (text: string) => endsMs(parsePlan(text)?.plan ?? null) > Date.now();
    const plans = edit(before.filter(isValid)).slice(-keptMax);
    const next = plans.length === 0 ? null : renderKept({ plans });
    if (next !== text) await memory.save(key, next);
    return plans;
  });
}

function endsMs(plan: UnsignedPlan | null): number {
  return (parseTimestamp(plan?.timestamp ?? "") ?? 0) + (parseDuration(plan?.ttl ?? "") ?? 0);
}

function isSameSend({ plan, senderKeyId }: SavedPlan, wanted: SendPlan): boolean {
  const { file, recipient } = plan;
  const same = (["to", "chunkBytes", "ttl", "tag", "hint"] as const).every((name) => plan[name] === wanted[name]);
  const sameFile = (["name", "mediaType", "sizeBytes"] as const).every((name) => file[name] === wanted.file[name]);
  const sameKeys = recipient.keyId === wanted.recipient.keyId && senderKeyId === (wanted.sender?.keyId ?? null);
  return same && sameFile && sameKeys && equalBytes(file.sha256, wanted.file.sha256);
}
