/**
 * The last hour of a process in memory: one sample of its own metrics every ten seconds, and the newest
 * warnings. The metrics are read as any scraper reads them, so that the page shows nothing else than
 * `/metrics` does. Cost: one rendering of the metrics per sample, about 100 KiB of memory in all.
 */
import type { Log } from "../http/log.ts";

type Sample = {
  readonly atMs: number;
  /** Per second since the sample before. */
  readonly requests: number;
  readonly refusals: number;
  readonly serverErrors: number;
  readonly stored: number;
  readonly delivered: number;
  /** Seconds, over all routes since the sample before; `null` without requests. */
  readonly p50: number | null;
  readonly p99: number | null;
  readonly inFlight: number;
  readonly residentBytes: number;
  readonly loopLagSeconds: number;
  readonly entries: number;
  readonly entryBytes: number;
  readonly liveSessions: number;
};

type Warning = { readonly atMs: number; readonly level: "warn" | "error"; readonly message: string };

export type HistoryView = { readonly samples: readonly Sample[]; readonly warnings: readonly Warning[] };

export type History = {
  readonly samples: () => readonly Sample[];
  readonly warnings: () => readonly Warning[];
  /** Takes a sample now; the timer calls it, and tests do. */
  readonly sample: () => Promise<void>;
  /** A log that also remembers warnings and errors. Fields are not kept: they can name recipients. */
  readonly watch: (log: Log) => Log;
  readonly close: () => void;
};

const sampleEveryMs = 10_000;
export const samplesMax = 360;
const warningsMax = 50;

type Parts = {
  readonly readMetrics: () => Promise<string>;
  readonly now: () => number;
  /** Largest delay of the event loop since it was asked before, in seconds. */
  readonly loopLagSeconds: () => number;
};

export function createHistory(parts: Parts): History {
  const samples: Sample[] = [];
  const warnings: Warning[] = [];
  let before: Reading | null = null;
  const sample = async (): Promise<void> => {
    const reading = { atMs: parts.now(), values: parseMetrics(await parts.readMetrics()) };
    if (before !== null) samples.push(sampleOf(before, reading, parts.loopLagSeconds()));
    if (samples.length > samplesMax) samples.shift();
    before = reading;
  };
  const timer = setInterval(() => void sample().catch(() => undefined), sampleEveryMs);
  timer.unref();
  return {
    samples: () => samples,
    warnings: () => warnings,
    sample,
    watch: (log) => (level, message, fields) => {
      log(level, message, fields);
      if (level !== "warn" && level !== "error") return;
      warnings.push({ atMs: parts.now(), level, message });
      if (warnings.length > warningsMax) warnings.shift();
    },
    close: () => clearInterval(timer),
  };
}

// ------------------------------------------------------------------------------------------------ reading

type Series = { readonly labels: Readonly<Record<string, string>>; readonly value: number };
type Reading = { readonly atMs: number; readonly values: ReadonlyMap<string, readonly Series[]> };

/** Series by family name, from the Prometheus text format. */
export function parseMetrics(text: string): Map<string, Series[]> {
  const families = new Map<string, Series[]>();
  for (const line of text.split("\n")) {
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (match === null) continue;
    const [, name = "", labelText = "", number = ""] = match;
    const labels: Record<string, string> = {};
    for (const [, label = "", value = ""] of labelText.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[label] = value;
    const series = families.get(name) ?? [];
    series.push({ labels, value: Number(number) });
    families.set(name, series);
  }
  return families;
}

type Filter = (labels: Series["labels"]) => boolean;
const everything: Filter = () => true;

function sum({ values }: Reading, name: string, filter: Filter = everything): number {
  let total = 0;
  for (const { labels, value } of values.get(`waypost_${name}`) ?? []) if (filter(labels)) total += value;
  return total;
}

function sampleOf(before: Reading, now: Reading, loopLagSeconds: number): Sample {
  const seconds = Math.max(0.001, (now.atMs - before.atMs) / 1_000);
  const rate = (name: string, filter?: Filter): number =>
    Math.max(0, sum(now, name, filter) - sum(before, name, filter)) / seconds;
  const byStatus =
    (test: (status: number) => boolean): Filter =>
    ({ status }) =>
      test(Number(status));
  const isStore: Filter = ({ route, status }) => route === "/cache/store" && status === "202";
  const isDelivery: Filter = ({ route, status }) => (route ?? "").startsWith("/relay") && /^20[02]$/.test(status ?? "");
  return {
    atMs: now.atMs,
    requests: rate("http_requests_total"),
    refusals: rate(
      "http_requests_total",
      byStatus((status) => status >= 400 && status < 500),
    ),
    serverErrors: rate(
      "http_requests_total",
      byStatus((status) => status >= 500),
    ),
    stored: rate("http_requests_total", isStore),
    delivered: rate("http_requests_total", isDelivery),
    p50: quantile(before, now, 0.5),
    p99: quantile(before, now, 0.99),
    inFlight: sum(now, "http_requests_in_flight"),
    residentBytes: sum(now, "process_resident_memory_bytes"),
    loopLagSeconds,
    entries: sum(now, "mailbox_entries"),
    entryBytes: sum(now, "mailbox_bytes"),
    liveSessions: sum(now, "relay_live_sockets"),
  };
}

/** The upper bound of the bucket that holds the quantile, over the requests between two readings. */
function quantile(before: Reading, now: Reading, part: number): number | null {
  const name = "http_request_seconds_bucket";
  const bounds = new Map<number, number>();
  for (const { labels, value } of now.values.get(`waypost_${name}`) ?? [])
    bounds.set(boundOf(labels), (bounds.get(boundOf(labels)) ?? 0) + value);
  for (const { labels, value } of before.values.get(`waypost_${name}`) ?? [])
    bounds.set(boundOf(labels), (bounds.get(boundOf(labels)) ?? 0) - value);
  const sorted = [...bounds].sort(([a], [b]) => a - b);
  const total = sorted.at(-1)?.[1] ?? 0;
  if (total <= 0) return null;
  const found = sorted.find(([, within]) => within >= part * total)?.[0] ?? null;
  const largestFinite = sorted.filter(([bound]) => Number.isFinite(bound)).at(-1)?.[0] ?? null;
  return found === null || Number.isFinite(found) ? found : largestFinite;
}

function boundOf(labels: Series["labels"]): number {
  return labels["le"] === "+Inf" ? Number.POSITIVE_INFINITY : Number(labels["le"]);
}
