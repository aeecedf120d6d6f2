/**
 * A message in chunks that was interrupted goes on where it stopped: sent again, the same content
 * to the same recipient continues its set of chunks, with the key that it was sealed to. The
 * newest sets are remembered next to the keys until all of each is sent or its time has ended. A
 * local store has an outbox.
 */
import { parseDuration, parseTimestamp } from "../../core/codec/time.ts";
import { inOrder } from "../../core/std/order.ts";
import { array, object, parseKept, renderKept } from "../base/shapes.ts";
import type { TextStore } from "../keys/key-stores.ts";
import { withoutId } from "../mail/content.ts";
import { chunkCount, keptPlan, planShape, type SendPlan } from "../mail/send.ts";

const sendingShape = object({ plans: array(planShape) });

type KeptPlan = ReturnType<typeof keptPlan>;
type Resumed = {
  readonly plan: SendPlan;
  /** Chunks that an earlier run has delivered. */
  readonly delivered: number;
  /** Awaited after each chunk. */
  readonly save: (delivered: number) => Promise<unknown>;
};

/** Of more, those that went on last. */
const keptMax = 16;
const changes = inOrder<TextStore>();

export async function resume(memory: TextStore, wanted: SendPlan): Promise<Resumed> {
  const subject = sameSendKey(keptPlan(wanted, 0));
  const kept = (await changePlans(memory, (sets) => sets)).find(
    (set) => sameSendKey(set) === subject,
  );
  const plan = kept === undefined ? wanted : { ...wanted, ...kept.plan };
  // Another process that saves at the same moment may take this out: it comes
  // back with the next chunk.
  const save = (delivered: number) =>
    changePlans(memory, (sets) => {
      const others = sets.filter((set) => set.plan.id !== plan.id);
      return delivered === chunkCount(plan) ? others : [...others, keptPlan(plan, delivered)];
    });
  if (kept === undefined) await save(0);
  return { plan, delivered: kept?.delivered ?? 0, save };
}

/** What can't be continued any more goes each time, since it holds the seeds of messages. */
export function changePlans(
  memory: TextStore,
  edit: (sets: readonly KeptPlan[]) => readonly KeptPlan[],
) {
  return changes(memory, async () => {
    const text = await memory.load("sending");
    const valid = (parseKept(text ?? "", sendingShape)?.plans ?? []).filter(
      (set) => endsMs(set) > Date.now(),
    );
    const plans = edit(valid).slice(-keptMax);
    const next = plans.length === 0 ? null : renderKept({ plans });
    if (next !== text) await memory.save("sending", next);
    return plans;
  });
}

const endsMs = ({ plan }: KeptPlan) =>
  (parseTimestamp(plan.timestamp) ?? 0) + (parseDuration(plan.ttl) ?? 0);

/** What is sent, to whom and how; each call gives its message another name. */
function sameSendKey({
  plan: { to, chunkBytes, ttl, tag, hint, file, recipient },
  senderKeyId,
}: KeptPlan): string {
  const { name, mediaType, sizeBytes, sha256 } = file;
  const how = [to, chunkBytes, ttl, tag, hint, recipient.keyId, senderKeyId];
  return renderKept([...how, name, withoutId(mediaType), sizeBytes, sha256]);
}
