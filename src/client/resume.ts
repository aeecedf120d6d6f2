/**
 * A message in chunks that was interrupted goes on where it stopped: sent again, the same content to the same recipient
 * continues its set of chunks instead of beginning a second one. The newest sets are remembered beside the keys until all of
 * each is sent or its time has ended. A local store has an outbox.
 */
import { equalBytes } from "../core/codec/bytes.ts";
import { parseDuration, parseTimestamp } from "../core/codec/time.ts";
import { inOrder } from "../core/std/order.ts";
import { chunkCount, parsePlan, renderPlan, type SavedPlan, type SendPlan, type UnsignedPlan } from "./send.ts";
import type { MemoryStore } from "./trust/trust.ts";

type Resumed = {
  readonly plan: SendPlan;
  /** Chunks that an earlier run has delivered. */
  readonly delivered: number;
  /** Awaited after each chunk. */
  readonly save: (delivered: number) => Promise<void>;
};

type Slot = { readonly key: string; readonly saved: SavedPlan | null };

/** A memory has no list of its keys, so that the keys are fixed: none is ever overlooked. */
const slotKeys = Array.from({ length: 16 }, (_, n) => `sending/${n}`);

const changes = inOrder<MemoryStore>();

/**
 * Keeps the key that an unfinished set was sealed to: all of its chunks need the same one, and a recipient that has replaced
 * its key keeps the old secret for longer than the set lives.
 */
export async function resume(memory: MemoryStore, wanted: SendPlan): Promise<Resumed> {
  const slots = await changes(memory, () => readSlots(memory));
  const found = slots.find(({ saved }) => saved !== null && isSameSend(saved, wanted));
  const kept = found?.saved ?? null;
  const plan = kept === null ? wanted : { ...wanted, ...kept.plan, name: wanted.name, trust: wanted.trust };
  let key = found?.key ?? null;
  const save = (delivered: number) =>
    changes(memory, async () => {
      // Another process may have taken the slot at the same moment, or finished the same set.
      const isHeld = key !== null && (await loadSlot(memory, key))?.plan.id === plan.id;
      if (delivered === chunkCount(plan)) {
        if (isHeld && key !== null) await memory.save(key, null);
        return;
      }
      if (key === null || !isHeld) key = chooseSlot(await readSlots(memory), plan);
      await memory.save(key, renderPlan(plan, delivered));
    });
  if (kept === null) await save(0);
  return { plan, delivered: kept?.delivered ?? 0, save };
}

/** Removes what can't be continued any more: it holds the seeds of messages. */
export async function dropExpired(memory: MemoryStore): Promise<void> {
  await changes(memory, () => readSlots(memory));
}

const loadSlot = async (memory: MemoryStore, key: string) => parsePlan((await memory.load(key)) ?? "");

/** Without what has expired, which it removes. */
function readSlots(memory: MemoryStore): Promise<Slot[]> {
  return Promise.all(
    slotKeys.map(async (key) => {
      const text = await memory.load(key);
      const saved = parsePlan(text ?? "");
      if (saved !== null && endsMs(saved.plan) > Date.now()) return { key, saved };
      if (text !== null) await memory.save(key, null);
      return { key, saved: null };
    }),
  );
}

/** A free one, or that of the oldest set. Drawn by the seed, so that processes at the same step rarely meet. */
function chooseSlot(slots: readonly Slot[], { seed }: SendPlan): string {
  const free = slots.filter(({ saved }) => saved === null);
  const begunMs = ({ saved }: Slot) => parseTimestamp(saved?.plan.timestamp ?? "") ?? 0;
  const chosen = free[(seed[0] ?? 0) % free.length] ?? slots.toSorted((a, b) => begunMs(a) - begunMs(b))[0];
  return chosen?.key ?? "sending/0";
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
