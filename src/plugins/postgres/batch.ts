/**
 * Group commit: operations that arrive while others are under way wait and go together, so that they share
 * a round trip and a sync. A batch starts at once when none is under way, so an idle store adds no delay.
 */
import { StoreError } from "../../storage/contract.ts";

export type BatchLimits = {
  readonly operationsMax: number;
  readonly bytesMax: number;
  /** Batches under way at once: enough to keep the connection busy, few enough to let batches grow. */
  readonly runningMax: number;
};

export const batchLimits: BatchLimits = { operationsMax: 256, bytesMax: 8 * 1024 ** 2, runningMax: 2 };

/** Operations that wait; beyond them the store is overloaded. */
const waitingMax = 20_000;

type Operation<Given> = {
  readonly given: Given;
  readonly bytes: number;
  /** At most `perKeyMax` operations of one key go in one batch. */
  readonly key: string;
};

type Waiting<Given, Answer> = Operation<Given> & {
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
};

export class Batcher<Given, Answer> {
  private waiting: Waiting<Given, Answer>[] = [];
  private running = 0;
  private scheduled = false;

  constructor(
    /** Answers in the order of what was given. */
    private readonly run: (given: readonly Given[]) => Promise<readonly Answer[]>,
    private readonly perKeyMax: number,
    private readonly limits: BatchLimits = batchLimits,
  ) {}

  add(operation: Operation<Given>): Promise<Answer> {
    if (this.waiting.length >= waitingMax) {
      return Promise.reject(new StoreError("unavailable", "too many operations wait for the database"));
    }
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    this.waiting.push({ ...operation, resolve, reject });
    this.schedule();
    return promise;
  }

  private schedule(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    queueMicrotask(() => {
      this.scheduled = false;
      while (this.waiting.length > 0 && this.running < this.limits.runningMax) void this.runBatch(this.next());
    });
  }

  /** In order of arrival; what has no room stays before what came later. */
  private next(): Waiting<Given, Answer>[] {
    const batch: Waiting<Given, Answer>[] = [];
    const left: Waiting<Given, Answer>[] = [];
    const perKey = new Map<string, number>();
    let bytes = 0;
    for (const [at, one] of this.waiting.entries()) {
      if (batch.length >= this.limits.operationsMax || (batch.length > 0 && bytes + one.bytes > this.limits.bytesMax)) {
        left.push(...this.waiting.slice(at));
        break;
      }
      const count = perKey.get(one.key) ?? 0;
      perKey.set(one.key, count + 1);
      if (count >= this.perKeyMax) {
        left.push(one);
        continue;
      }
      bytes += one.bytes;
      batch.push(one);
    }
    this.waiting = left;
    return batch;
  }

  private async runBatch(batch: readonly Waiting<Given, Answer>[]): Promise<void> {
    this.running++;
    try {
      const answers = await this.run(batch.map(({ given }) => given));
      for (const [i, { resolve }] of batch.entries()) resolve(answers[i]!);
    } catch (error) {
      for (const { reject } of batch) reject(error);
    } finally {
      this.running--;
      if (this.waiting.length > 0) this.schedule();
    }
  }
}
