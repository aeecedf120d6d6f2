/**
 * A bounded map whose pairs end at a time: what replay claims and receipts stand on in memory.
 * A pair that has ended is absent at once and freed by `expire`, in order of time. Cost: O(log n).
 */
import { Heap } from "../../core/std/heap.ts";
import { StoreError } from "../../storage/contract.ts";

type Pair<V> = { readonly value: V; readonly untilMs: number };
type Turn = { readonly key: string; readonly untilMs: number };

export class ExpiringMap<V> {
  private readonly pairs = new Map<string, Pair<V>>();
  /** By time. A turn whose pair was replaced or removed is stale and passed over. */
  private readonly turns = new Heap<Turn>((a, b) => a.untilMs < b.untilMs);

  constructor(private readonly pairsMax: number) {}

  get(key: string, nowMs: number): V | null {
    const pair = this.pairs.get(key);
    return pair !== undefined && pair.untilMs > nowMs ? pair.value : null;
  }

  set(key: string, value: V, untilMs: number): void {
    if (!this.pairs.has(key) && this.pairs.size >= this.pairsMax) {
      throw new StoreError("full", `the memory store holds ${this.pairsMax} records`);
    }
    this.pairs.set(key, { value, untilMs });
    this.turns.push({ key, untilMs });
    if (this.turns.size > 2 * this.pairs.size + 1024) this.dropStale();
  }

  remove(key: string): void {
    this.pairs.delete(key);
  }

  expire(nowMs: number, limit: number): number {
    let freed = 0;
    for (let turn = this.turns.first(); freed < limit && turn !== undefined && turn.untilMs <= nowMs; ) {
      this.turns.pop();
      if (this.current(turn)) {
        this.pairs.delete(turn.key);
        freed++;
      }
      turn = this.turns.first();
    }
    return freed;
  }

  private current(turn: Turn): boolean {
    return this.pairs.get(turn.key)?.untilMs === turn.untilMs;
  }

  /** Replacing a pair leaves a turn behind; they are dropped when they outnumber the pairs. */
  private dropStale(): void {
    this.turns.replace([...this.pairs].map(([key, { untilMs }]) => ({ key, untilMs })));
  }
}
