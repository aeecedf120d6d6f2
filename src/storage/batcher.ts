/**
 * Group commit: operations that arrive while others are under way wait and go together, so
 * that they share a round trip and a sync. A batch begins with all that its turn of the
 * event loop has brought.
 */
import { StoreError } from "./contract.ts";

export type BatchLimits = {
  /** Of one batch; one operation may be larger. */
  readonly operationsMax: number;
  readonly bytesMax: number;
  /** Batches under way at once: enough to keep a database busy, few enough to let batches grow. */
  readonly runningMax: number;
  /**
   * Further turns of the event loop for which a batch may wait: where a batch costs much
   * however small it is. Callers whose batch has just ended mostly come again at once.
   */
  readonly turnsMax: number;
};

/** A turn that brings so many operations is worth another one, */
const busyTurnMin = 4;
/** but not to a batch of so many, whose cost is shared by enough: over it waiting only delays. */
const enoughMin = 64;

/** Beyond these the store is overloaded. */
const waitingMax = 4_096;
const waitingBytesMax = 64 * 1024 ** 2;

type BatchedOperation<Given> = {
  readonly given: Given;
  readonly bytes: number;
  /** At most `perKeyMax` operations of one key go in one batch; without a key, any number. */
  readonly key?: string;
};

type WaitingOperation<Given, Answer> = {
  readonly given: Given;
  readonly bytes: number;
  readonly key: string | undefined;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
};

/** In the place of an operation's answer: why there is none. */
export class Refusal {
  constructor(readonly cause: unknown) {}
}

export class Batcher<Given, Answer> {
  private waiting: WaitingOperation<Given, Answer>[] = [];
  private waitingBytes = 0;
  private running = 0;
  private isScheduled = false;

  constructor(
    /** Answers in the order of the operations. */
    private readonly run: (given: readonly Given[]) => Promise<readonly (Answer | Refusal)[]>,
    private readonly perKeyMax: number,
    private readonly limits: BatchLimits,
  ) {}

  get isIdle(): boolean {
    return this.running === 0 && this.waiting.length === 0;
  }

  add({ given, bytes, key }: BatchedOperation<Given>): Promise<Answer> {
    if (this.waiting.length >= waitingMax || this.waitingBytes + bytes > waitingBytesMax) {
      return Promise.reject(new StoreError("unavailable", "too many operations are waiting"));
    }
    return new Promise((resolve, reject) => {
      this.waiting.push({ given, bytes, key, resolve, reject });
      this.waitingBytes += bytes;
      this.schedule();
    });
  }

  private schedule(): void {
    if (this.isScheduled || this.running >= this.limits.runningMax) return;
    this.isScheduled = true;
    this.gather(0, this.limits.turnsMax);
  }

  /** Begins after this turn, or waits for another one; `before` have waited at its beginning. */
  private gather(before: number, turnsLeft: number): void {
    setImmediate(() => {
      const { length } = this.waiting;
      if (turnsLeft > 0 && length < enoughMin && length - before >= busyTurnMin) {
        this.gather(length, turnsLeft - 1);
        return;
      }
      this.isScheduled = false;
      while (this.waiting.length > 0 && this.running < this.limits.runningMax)
        void this.runBatch(this.next());
    });
  }

  /** In order of arrival; an operation without room stays ahead of later ones. */
  private next(): WaitingOperation<Given, Answer>[] {
    const { operationsMax, bytesMax } = this.limits;
    const batch: WaitingOperation<Given, Answer>[] = [];
    const left: WaitingOperation<Given, Answer>[] = [];
    const perKey = new Map<string, number>();
    let bytes = 0;
    for (let at = 0; at < this.waiting.length; at++) {
      const one = this.waiting[at]!;
      if (batch.length >= operationsMax || (batch.length > 0 && bytes + one.bytes > bytesMax)) {
        left.push(...this.waiting.slice(at));
        break;
      }
      if (one.key !== undefined) {
        const count = perKey.get(one.key) ?? 0;
        perKey.set(one.key, count + 1);
        if (count >= this.perKeyMax) {
          left.push(one);
          continue;
        }
      }
      bytes += one.bytes;
      batch.push(one);
    }
    this.waiting = left;
    this.waitingBytes -= bytes;
    return batch;
  }

  private async runBatch(batch: readonly WaitingOperation<Given, Answer>[]): Promise<void> {
    this.running++;
    try {
      const answers = await this.run(batch.map(({ given }) => given));
      for (let i = 0; i < batch.length; i++) settleWith(batch[i]!, answers[i]!);
    } catch (error) {
      for (const { reject } of batch) reject(error);
    } finally {
      this.running--;
      if (this.waiting.length > 0) this.schedule();
    }
  }
}

function settleWith<Answer>(
  { resolve, reject }: WaitingOperation<unknown, Answer>,
  answer: Answer | Refusal,
): void {
  if (answer instanceof Refusal) reject(answer.cause);
  else resolve(answer);
}
