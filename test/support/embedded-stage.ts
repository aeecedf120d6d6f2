/**
 * The setup of the embedded ledger's tests: a table in memory that counts and fails on request, a
 * clock that only tests move, and the calls of a few identities.
 */

import { expect } from "bun:test";
import { isFault } from "../../src/core/fault.ts";
import type { Intent } from "../../src/core/ledger/actions.ts";
import type { LedgerCall } from "../../src/core/ledger/calls.ts";
import { MemoryTable } from "../../src/plugins/memory/table.ts";
import type { StoreError, Submission } from "../../src/storage/contract.ts";
import { type EmbeddedLedger, openEmbeddedLedger } from "../../src/storage/embedded.ts";
import type { EmbeddedLimits } from "../../src/storage/embedded-records.ts";
import { type OrderedTable, Overlay, type TableChange } from "../../src/storage/table.ts";
import { authorizedCall, type Identity, identityOf, registrationOf } from "./identity.ts";
import { operatorAccount } from "./world.ts";

/** A memory table that counts its commits, and fails or waits on request. */
export class TestTable implements OrderedTable {
  private readonly table = new MemoryTable(1 << 30);
  commits = 0;
  /** Every commit fails with this. */
  failure: StoreError | null = null;
  /** The change is made, and then nothing of it stands. */
  failureBehind: StoreError | null = null;
  /** Inside a change no account can be read. */
  accountFailure: StoreError | null = null;
  /** The next commit begins when this does. */
  gate: Promise<void> | null = null;
  /** The next commit has made its change and stands only when this does. */
  gateBehind: Promise<void> | null = null;

  get = (key: string) => this.table.get(key);
  range: OrderedTable["range"] = (prefix, options) => this.table.range(prefix, options);
  prefetch = (): void => {};

  async commit<T>(change: (view: TableChange) => T): Promise<T> {
    this.commits++;
    if (this.failure !== null) throw this.failure;
    const { gate } = this;
    this.gate = null;
    if (gate !== null) await gate;
    if (this.gateBehind !== null) return this.commitLate(change, this.gateBehind);
    return this.table.commit((view) => {
      const result = change({
        get: (key) => this.read(view, key),
        range: (prefix, options) => view.range(prefix, options),
        prefetch: this.prefetch,
        put: (key, value) => view.put(key, value),
        remove: (key) => view.remove(key),
      });
      if (this.failureBehind !== null) throw this.failureBehind;
      return result;
    });
  }

  private async commitLate<T>(change: (view: TableChange) => T, gate: Promise<void>): Promise<T> {
    this.gateBehind = null;
    const changes = new Overlay(this);
    const result = change(changes);
    await gate;
    await this.table.commit((view) => {
      for (const [key, value] of changes.written)
        value === null ? view.remove(key) : view.put(key, value);
    });
    return result;
  }

  private read(view: TableChange, key: string): Uint8Array | null {
    if (this.accountFailure !== null && key.startsWith("a/")) throw this.accountFailure;
    return view.get(key);
  }
}

export const startMs = 1_800_000_000_000;

export type Stage = {
  readonly table: TestTable;
  readonly logged: string[];
  nowMs: number;
  blockTimeMs: number;
  open(limits?: Partial<EmbeddedLimits>): Promise<EmbeddedLedger>;
};

/** `blockTimeMs` is real time for the timer; the clock stands still unless a test moves it. */
export function stage(blockTimeMs = 2): Stage {
  const made: Stage = {
    table: new TestTable(),
    logged: [],
    nowMs: startMs,
    blockTimeMs,
    open: (limits) =>
      openEmbeddedLedger({
        table: made.table,
        blockTimeMs: made.blockTimeMs,
        now: () => made.nowMs,
        log: (level, message) => made.logged.push(`${level} ${message}`),
        operator: operatorAccount,
        ...(limits && { limits }),
      }),
  };
  return made;
}

/** Long enough that no test sees a block by itself. */
export const never = 3_600_000;

export async function until<T>(ask: () => Promise<T | null>): Promise<T> {
  for (const end = Date.now() + 60_000; Date.now() < end; await Bun.sleep(1)) {
    const answer = await ask();
    if (answer !== null) return answer;
  }
  throw new Error("the condition did not come");
}

export function taken(outcome: unknown): Submission {
  if (isFault(outcome)) throw new Error(`refused: ${outcome.code} ${outcome.detail}`);
  return outcome as Submission;
}

export async function settled(ledger: EmbeddedLedger, outcome: unknown): Promise<Submission> {
  const { txHash } = taken(outcome);
  return until(async () => {
    const submission = await ledger.submission(txHash);
    return submission !== null && submission.state !== "pending" ? submission : null;
  });
}

export const alice = identityOf("alice");
export const bob = identityOf("bob");
export const registration = (identity: Identity, timestampMs = startMs) =>
  registrationOf(identity, { timestamp: String(timestampMs) });

export async function register(ledger: EmbeddedLedger, identity: Identity): Promise<void> {
  expect(
    (await settled(ledger, await ledger.submit(registration(identity), "register"))).state,
  ).toBe("finalized");
}

export function signed(
  identity: Identity,
  intent: Intent,
  nonce: bigint,
  validUntilMs = startMs + 60_000,
): LedgerCall {
  return authorizedCall(
    intent,
    { nonce, validUntilMs: BigInt(validUntilMs), signerKeyId: "root" },
    identity.root,
  );
}

export const addAlias = (identity: Identity, alias: string, nonce = 0n) =>
  signed(identity, { action: "add_alias", did: identity.did, alias }, nonce);
