/**
 * Who uses a store: entries and bytes of each recipient, and of each label that entries carry (senders and
 * client networks, as digests).
 */
import type { StoreRecord } from "../storage/contract.ts";

export type Usage = { readonly name: string; readonly entries: number; readonly bytes: number };
export type UsageReport = {
  readonly entries: number;
  readonly bytes: number;
  readonly recipients: readonly Usage[];
  readonly labels: readonly Usage[];
};

type Sum = { entries: number; bytes: number };

export function createUsage(nowMs: number) {
  const [recipients, labels] = [new Map<string, Sum>(), new Map<string, Sum>()];
  const all: Sum = { entries: 0, bytes: 0 };
  const count = (sums: Map<string, Sum>, name: string, bytes: number) => {
    const sum = sums.get(name) ?? { entries: 0, bytes: 0 };
    sums.set(name, { entries: sum.entries + 1, bytes: sum.bytes + bytes });
  };
  return {
    add(record: StoreRecord): void {
      if (record.kind !== "message" || record.state !== "active" || record.entry.expiresAtMs <= nowMs) return;
      const { recipient, envelope } = record.entry;
      all.entries++;
      all.bytes += envelope.length;
      count(recipients, recipient, envelope.length);
      for (const label of record.entry.labels) count(labels, label, envelope.length);
    },
    top: (limit: number): UsageReport => ({
      ...all,
      recipients: largest(recipients, limit),
      labels: largest(labels, limit),
    }),
  };
}

function largest(sums: ReadonlyMap<string, Sum>, limit: number): Usage[] {
  const usages = [...sums].map(([name, sum]) => ({ name, ...sum }));
  return usages.sort((a, b) => b.bytes - a.bytes || (a.name < b.name ? -1 : 1)).slice(0, limit);
}

export function renderUsage({ entries, bytes, recipients, labels }: UsageReport): string {
  const lines = [`${entries} entries, ${bytes} bytes`];
  for (const [title, usages] of [
    ["recipients", recipients],
    ["labels", labels],
  ] as const) {
    if (usages.length > 0) lines.push("", title);
    for (const usage of usages)
      lines.push(`  ${String(usage.entries).padStart(9)} ${String(usage.bytes).padStart(14)}  ${usage.name}`);
  }
  return lines.join("\n");
}
