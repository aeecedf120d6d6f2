/**
 * Remembers the answers of a slow source for a short time: one load in flight per key, values and
 * failures kept for their own spans, every table bounded.
 * Source: rules section 7.
 */
import { BoundedMap } from "../core/std/bounded.ts";
import { StoreError } from "../storage/contract.ts";

type MemoOptions<T> = {
  readonly load: (key: string) => Promise<T>;
  /** How long a value may be used after its load began. */
  readonly valueMs: number | ((value: T) => number);
  /** How long a failure is answered again without another try. */
  readonly failureMs: number;
  readonly entriesMax: number;
  /** Values whose size strangers choose: what they may take of memory together, and what one takes. */
  readonly bytes?: { readonly max: number; readonly of: (value: T) => number };
  /** Loads at one time; over it, `unavailable` at once. */
  readonly loadsMax: number;
  /** A clock that never steps back: it decides ages only. */
  readonly now: () => number;
};

export type Memo<T> = {
  get(key: string): Promise<T>;
  /** Asks again the next time, also when an answer is on its way: it may be older than what made the caller forget. */
  forget(key: string): void;
  clear(): void;
  readonly size: number;
};

type Remembered<T> = {
  readonly outcome: { value: T } | { failure: unknown };
  readonly untilMs: number;
  readonly bytes: number;
};

export function createMemo<T>(options: MemoOptions<T>): Memo<T> {
  const { max, of } = options.bytes ?? { max: Number.POSITIVE_INFINITY, of: () => 0 };
  const kept = new BoundedMap<string, Remembered<T>>(options.entriesMax, { max, of: ({ bytes }) => bytes });
  const loading = new Map<string, { readonly begun: symbol; readonly value: Promise<T> }>();

  const load = async (key: string, begun: symbol): Promise<T> => {
    // A value is as old as its request: time counts from here, not from the answer.
    const startMs = options.now();
    try {
      const value = await options.load(key);
      const valueMs = typeof options.valueMs === "number" ? options.valueMs : options.valueMs(value);
      keep(key, begun, { outcome: { value }, untilMs: startMs + valueMs, bytes: of(value) });
      return value;
    } catch (failure) {
      keep(key, begun, { outcome: { failure }, untilMs: options.now() + options.failureMs, bytes: 0 });
      throw failure;
    } finally {
      if (loading.get(key)?.begun === begun) loading.delete(key);
    }
  };
  /** The answer to a question that was forgotten meanwhile is answered, and not remembered. */
  const keep = (key: string, begun: symbol, entry: Remembered<T>) => {
    if (loading.get(key)?.begun === begun) kept.set(key, entry);
  };

  return {
    async get(key) {
      const entry = kept.get(key);
      if (entry !== undefined && options.now() < entry.untilMs) {
        if ("failure" in entry.outcome) throw entry.outcome.failure;
        return entry.outcome.value;
      }
      const running = loading.get(key);
      if (running !== undefined) return running.value;
      if (loading.size >= options.loadsMax) throw new StoreError("unavailable", "too many lookups at once");
      const begun = Symbol(key);
      const value = Promise.resolve().then(() => load(key, begun));
      loading.set(key, { begun, value });
      return value;
    },
    forget(key) {
      kept.delete(key);
      loading.delete(key);
    },
    clear() {
      kept.clear();
      loading.clear();
    },
    get size() {
      return kept.size;
    },
  };
}
