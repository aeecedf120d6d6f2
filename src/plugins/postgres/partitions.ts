/**
 * The partitions: made before the first entry of their span of time, dropped when the span is over and the
 * clocks of all nodes are past it. Several nodes may try both at once: the database lets one do it.
 */
import type { MailboxEntry } from "../../storage/contract.ts";
import type { Pool } from "./pool.ts";

export type PartitionSettings = {
  readonly partitionMs: number;
  /** How long a span must be over: more than clocks of nodes differ, and than a write takes. */
  readonly graceMs: number;
};

type Kind = "held" | "acked" | "kept";

const dayMs = 86_400_000;
const idleMailboxesAtOnce = 1_000;

export class Partitions {
  private readonly known = new Set<string>();
  /** Idle mailboxes are looked for from this number on. */
  private idleAfter = 0;
  private idleLookedAtMs = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly pool: Pool,
    private readonly settings: PartitionSettings,
  ) {}

  async ensure(entries: readonly MailboxEntry[]): Promise<void> {
    const missing = new Map<string, { kind: Kind; upperMs: number }>();
    const need = (kind: Kind, ms: number): void => {
      const upperMs = Math.ceil(ms / this.settings.partitionMs) * this.settings.partitionMs;
      const name = `${kind} ${upperMs}`;
      if (!this.known.has(name)) missing.set(name, { kind, upperMs });
    };
    for (const { expiresAtMs, keptUntilMs, onExpiry } of entries) {
      need("held", expiresAtMs);
      need("acked", expiresAtMs);
      if (onExpiry !== "DeleteOnExpiry" && keptUntilMs > expiresAtMs) need("kept", keptUntilMs);
    }
    for (const [name, { kind, upperMs }] of missing) {
      await this.pool.query("select {s}.add_part($1, $2)", [kind, upperMs]);
      this.known.add(name);
    }
  }

  /** Another node dropped a partition that this one knows. */
  forget(): void {
    this.known.clear();
  }

  async expire(nowMs: number, limit: number): Promise<number> {
    const [row] = await this.pool.query("select {s}.expire($1, $2, $3) as freed", [
      nowMs,
      this.settings.graceMs,
      limit,
    ]);
    const freed = Number(row?.["freed"]);
    if (freed > 0) this.known.clear();
    await this.dropIdle(nowMs);
    return freed;
  }

  /** A page of mailboxes a second: ten million are gone through in three hours. */
  private async dropIdle(nowMs: number): Promise<void> {
    if (nowMs - this.idleLookedAtMs < 1_000 && nowMs >= this.idleLookedAtMs) return;
    this.idleLookedAtMs = nowMs;
    const [row] = await this.pool.query("select {s}.drop_idle($1, $2, $3) as last", [
      this.idleAfter,
      nowMs - dayMs,
      idleMailboxesAtOnce,
    ]);
    this.idleAfter = Number(row?.["last"] ?? 0);
  }
}
