/**
 * A bounded map whose pairs end at a time: what replay claims and receipts stand on in memory.
 * A pair that has ended is absent at once and freed by `expire`, in order of time. Cost: O(log n).
 */
import { StoreError } from "../../storage/contract.ts";

type Pair<V> = { readonly value: V; readonly untilMs: number };
type Turn = { readonly key: string; readonly untilMs: number };

export class ExpiringMap<V> {
  private readonly pairs = new Map<string, Pair<V>>();
  /** A heap by time. A turn whose pair was replaced or removed is stale and passed over. */
  private turns: Turn[] = [];

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
    this.push({ key, untilMs });
    if (this.turns.length > 2 * this.pairs.size + 1024) this.dropStale();
  }

  remove(key: string): void {
    this.pairs.delete(key);
  }

  expire(nowMs: number, limit: number): number {
    let freed = 0;
    while (freed < limit && this.turns.length > 0 && this.turns[0]!.untilMs <= nowMs) {
      const turn = this.pop();
      if (this.current(turn)) {
        this.pairs.delete(turn.key);
        freed++;
      }
    }
    return freed;
  }

  private current(turn: Turn): boolean {
    return this.pairs.get(turn.key)?.untilMs === turn.untilMs;
  }

  /** Replacing a pair leaves a turn behind; they are dropped when they outnumber the pairs. */
  private dropStale(): void {
    this.turns = [...this.pairs].map(([key, { untilMs }]) => ({ key, untilMs }));
    // A sorted list is a heap.
    this.turns.sort((a, b) => a.untilMs - b.untilMs);
  }

  private push(turn: Turn): void {
    const heap = this.turns;
    let at = heap.push(turn) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (heap[parent]!.untilMs <= turn.untilMs) break;
      heap[at] = heap[parent]!;
      at = parent;
    }
    heap[at] = turn;
  }

  private pop(): Turn {
    const heap = this.turns;
    const first = heap[0]!;
    const last = heap.pop()!;
    if (heap.length === 0) return first;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && heap[child + 1]!.untilMs < heap[child]!.untilMs) child++;
      if (heap[child]!.untilMs >= last.untilMs) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = last;
    return first;
  }
}
