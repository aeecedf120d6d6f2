/**
 * Claims in memory: the law of `Replay`, beside a list of them, and what the collector has to read.
 */
import { heapStats } from "bun:jsc";
import { describe, expect, test } from "bun:test";
import { Claims } from "../../../src/storage/claims.ts";
import type { TagClaim } from "../../../src/storage/contract.ts";

const max = 5_000;

/** The same as a list: every claim until it is forgotten. */
class Listed {
  private claims: TagClaim[] = [];

  claim(claim: TagClaim, nowMs: number): boolean {
    if (this.claims.some(({ tag, untilMs }) => tag === claim.tag && untilMs > nowMs)) return false;
    this.claims.push(claim);
    return true;
  }

  /** How many tags end with it. */
  expire(nowMs: number): number {
    const tags = new Set(this.claims.map(({ tag }) => tag));
    this.claims = this.claims.filter(({ untilMs }) => untilMs > nowMs);
    return tags.size - new Set(this.claims.map(({ tag }) => tag)).size;
  }
}

describe("claims in memory", () => {
  test("one of those who claim a tag wins it until it ends, among thousands of others", () => {
    const claims = new Claims(max);
    const listed = new Listed();
    let random = 1;
    const below = (bound: number): number => {
      random = (random * 48_271) % 2_147_483_647;
      return random % bound;
    };
    let won = 0;
    for (let nowMs = 1_000; nowMs < 7_000; nowMs++) {
      const claim = { tag: `tag ${below(4_000)}`, untilMs: nowMs + 1 + below(3_000) };
      const isWon = listed.claim(claim, nowMs);
      expect(claims.claim(claim, nowMs)).toBe(isWon);
      if (isWon) won++;
      if (nowMs % 500 === 0) expect(claims.expire(nowMs, max)).toBe(listed.expire(nowMs));
    }
    expect(won).toBeGreaterThan(2_000);
    expect(claims.expire(20_000, max)).toBe(listed.expire(20_000));
    expect(claims.firstEndMs).toBe(Number.POSITIVE_INFINITY);
  });

  test("texts that only differ where UTF-8 has no character are different tags", () => {
    const claims = new Claims(max);
    expect(claims.claim({ tag: "\ud800", untilMs: 2 }, 1)).toBe(true);
    expect(claims.claim({ tag: "\ud801", untilMs: 2 }, 1)).toBe(true);
    expect(claims.claim({ tag: "\ud800", untilMs: 2 }, 1)).toBe(false);
  });

  test("a full memory refuses new tags, and knows one that has ended", () => {
    const claims = new Claims(2);
    for (const tag of ["a", "b"]) claims.claim({ tag, untilMs: 10 }, 1);
    expect(() => claims.claim({ tag: "c", untilMs: 20 }, 11)).toThrow("knows 2 claims");
    expect(claims.claim({ tag: "a", untilMs: 20 }, 11)).toBe(true);
    expect(claims.expire(11, 1)).toBe(1);
    expect(claims.claim({ tag: "a", untilMs: 20 }, 11)).toBe(false);
  });

  test("the collector has no object for a claim to read", () => {
    const claims = new Claims(100_000);
    Bun.gc(true);
    const before = heapStats().objectCount;
    for (let n = 0; n < 50_000; n++) claims.claim({ tag: `proof:${n}`, untilMs: n + 2 }, 1);
    Bun.gc(true);
    expect(heapStats().objectCount - before).toBeLessThan(5_000);
    expect(claims.expire(50_001, 100_000)).toBe(50_000);
  });
});
