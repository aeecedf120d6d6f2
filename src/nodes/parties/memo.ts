/**
 * Remembers the answers of a slow source for a short time: one load in flight per key, values and
 * failures kept for their own spans, every table bounded.
 * Source: rules section 7.
 */
import { BoundedMap } from "../../core/std/bounded.ts";
import { StoreError } from "../../storage/contract.ts";

type MemoOptions<T> = {
  /** What a `get` without a load of its own asks. */
  readonly load?: (key: string) => Promise<T>;
  /** How long a value may be used after its load began. */
  readonly valueMs: (value: T, key: string) => number;
  /** How long a failure is answered again without another try. */
  readonly failureMs: number;
  readonly entriesMax: number;
  /**
   * Values whose size strangers choose: what they may take of memory together, and what one takes.
   */
  readonly bytes?: { readonly max: number; readonly of: (value: T) => number };
  /** Loads at one time; over it, `unavailable` at once. */
  readonly loadsMax: number;
  /** A clock that never steps back: it decides ages only. */
  readonly now: () => number;
};

export type Memo<T> = {
  get(key: string, load?: () => Promise<T>): Promise<T>;
  /**
   * Asks again the next time, also when an answer is on its way: it may be older than
   * what made the caller forget.
   */
  forget(key: string): void;
  clear(): void;
  readonly size: number;
};

/** An answer, also one that is still on its way: then it has no end yet. */
type MemoEntry<T> = {
  readonly answer: Promise<T>;
  readonly untilMs: number;
  readonly bytes: number;
};

export function createMemo<T>(options: MemoOptions<T>): Memo<T> {
  const { load, valueMs, failureMs, entriesMax, loadsMax, now } = options;
  const { max, of } = options.bytes ?? { max: Number.POSITIVE_INFINITY, of: () => 0 };
  const kept = new BoundedMap<string, MemoEntry<T>>(entriesMax, { max, of: ({ bytes }) => bytes });
  let loading = 0;
  const loadBounded = (key: string, given?: () => Promise<T>): Promise<T> => {
    if (loading >= loadsMax) throw new StoreError("unavailable", "too many lookups at once");
    loading += 1;
    // A value is as old as its request: time counts from here, not from the answer.
    const startMs = now();
    const answer = Promise.resolve().then(given ?? (() => (load as NonNullable<typeof load>)(key)));
    const begun = { answer, untilMs: Number.POSITIVE_INFINITY, bytes: 0 };
    kept.set(key, begun);
    const endLoad = (untilMs: number, bytes: number): void => {
      loading -= 1;
      // The answer to a question that was forgotten meanwhile is not remembered.
      if (kept.get(key) !== begun) return;
      // A value that ends at once serves only those who waited for it.
      if (now() < untilMs) kept.set(key, { answer, untilMs, bytes });
      else kept.delete(key);
    };
    answer.then(
      (value) => endLoad(startMs + valueMs(value, key), of(value)),
      () => endLoad(now() + failureMs, 0),
    );
    return answer;
  };
  return {
    async get(key, given) {
      const known = kept.get(key);
      return known !== undefined && now() < known.untilMs ? known.answer : loadBounded(key, given);
    },
    forget: (key) => void kept.delete(key),
    clear: () => kept.clear(),
    get size() {
      return kept.size;
    },
  };
}
