/**
 * Counters, gauges and histograms in the Prometheus text format. Label values come from fixed sets
 * (routes, codes, channels), never from requests; a family still holds at most `seriesMax` series, so
 * that a mistake costs a number and not the memory of the node.
 */

type Counter = { readonly add: (labels: readonly string[], by?: number) => void };
type Histogram = { readonly observe: (labels: readonly string[], value: number) => void };
export type GaugeReading = number | readonly (readonly [labels: readonly string[], value: number])[];

/** Name without the `waypost_` prefix, the help line, and the names of the labels in order. */
type Family = {
  readonly name: string;
  readonly help: string;
  readonly labels?: readonly string[];
};

/** One number, under the name that it has in the text without the prefix. */
type Reading = {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
};

export type Metrics = {
  readonly counter: (family: Family) => Counter;
  /** `read` is called when `/metrics` is read; it must be cheap. */
  readonly gauge: (family: Family, read: () => GaugeReading | Promise<GaugeReading>) => void;
  readonly histogram: (family: Family, buckets: readonly number[]) => Histogram;
  readonly render: () => Promise<string>;
};

const seriesMax = 2_000;
const prefix = "waypost_";

type Registered = Family & { readonly type: string; readonly read: () => Reading[] | Promise<Reading[]> };

export function createMetrics(): Metrics {
  const families = new Map<string, Registered>();
  const register = (family: Registered): void => {
    if (families.has(family.name)) throw new Error(`metric ${family.name} is registered twice`);
    families.set(family.name, family);
  };
  return {
    render: async () => {
      const read = await Promise.all([...families.values()].map(({ read }) => read()));
      return [...families.values()].map((family, i) => render(family, read[i] ?? [])).join("");
    },
    counter: (family) => {
      const series = new Map<string, { value: number }>();
      const read = () => [...series].map(([key, { value }]) => reading(family, key.split("\0"), value));
      register({ ...family, type: "counter", read });
      return {
        add: (labels, by = 1) => {
          seriesOf(series, labels, () => ({ value: 0 })).value += by;
        },
      };
    },
    gauge: (family, readGauge) => {
      const read = async () => {
        const found = await Promise.resolve()
          .then(readGauge)
          .catch((): GaugeReading => []);
        const rows = typeof found === "number" ? [[[], found] as const] : found;
        return rows.map(([labels, value]) => reading(family, labels, value));
      };
      register({ ...family, type: "gauge", read });
    },
    histogram: (family, buckets) => {
      const series = new Map<string, Distribution>();
      const read = () => [...series].flatMap(([key, one]) => readDistribution(family, key.split("\0"), one));
      register({ ...family, type: "histogram", read });
      const empty = () => ({ buckets, counts: new Array<number>(buckets.length).fill(0), sum: 0, count: 0 });
      return { observe: (labels, value) => observe(seriesOf(series, labels, empty), value) };
    },
  };
}

// ------------------------------------------------------------------------------------------------ series

/** Values by bucket, each in the first bucket that holds it. */
type Distribution = { readonly buckets: readonly number[]; readonly counts: number[]; sum: number; count: number };

/** The series of these labels. Beyond the bound it is not kept. */
function seriesOf<T>(family: Map<string, T>, labels: readonly string[], empty: () => T): T {
  const key = labels.length === 1 ? (labels[0] as string) : labels.join("\0");
  const known = family.get(key);
  if (known !== undefined) return known;
  const fresh = empty();
  if (family.size < seriesMax) family.set(key, fresh);
  return fresh;
}

/** Cost: one comparison for each bucket below the value. */
function observe(series: Distribution, value: number): void {
  series.sum += value;
  series.count += 1;
  const bucket = series.buckets.findIndex((bound) => value <= bound);
  if (bucket >= 0) series.counts[bucket] = (series.counts[bucket] as number) + 1;
}

function reading({ name, labels = [] }: Family, values: readonly string[], value: number): Reading {
  return { name, labels: Object.fromEntries(labels.map((label, i) => [label, values[i] ?? ""])), value };
}

function readDistribution(family: Family, values: readonly string[], one: Distribution): Reading[] {
  let within = 0;
  const named = (suffix: string, value: number, more: Readonly<Record<string, string>> = {}): Reading => {
    const { name, labels } = reading(family, values, value);
    return { name: `${name}_${suffix}`, labels: { ...labels, ...more }, value };
  };
  return [
    ...one.buckets.map((bound, i) => {
      within += one.counts[i] as number;
      return named("bucket", within, { le: String(bound) });
    }),
    named("bucket", one.count, { le: "+Inf" }),
    named("sum", one.sum),
    named("count", one.count),
  ];
}

function render({ name, help, type }: Registered, readings: readonly Reading[]): string {
  const head = `# HELP ${prefix}${name} ${help}\n# TYPE ${prefix}${name} ${type}\n`;
  return head + readings.map((one) => `${prefix}${one.name}${labelText(one.labels)} ${one.value}\n`).join("");
}

function labelText(labels: Reading["labels"]): string {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escapeLabel(value)}"`);
  return pairs.length === 0 ? "" : `{${pairs.join(",")}}`;
}

function escapeLabel(value: string): string {
  return value.replace(/[\\"\n]/g, (c) => (c === "\n" ? "\\n" : `\\${c}`));
}

// ---------------------------------------------------------------------------------------------- of requests

export type HttpMetrics = {
  readonly requests: Counter;
  readonly seconds: Histogram;
  readonly refusals: Counter;
};

/** Registers what every listener measures; one set for all apps of a process. */
export function httpMetrics(metrics: Metrics): HttpMetrics {
  const latency = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
  return {
    requests: metrics.counter({
      name: "http_requests_total",
      help: "Answered requests.",
      labels: ["method", "route", "status"],
    }),
    seconds: metrics.histogram(
      { name: "http_request_seconds", help: "Time from the request's head to the answer's head.", labels: ["route"] },
      latency,
    ),
    refusals: metrics.counter({ name: "http_refusals_total", help: "Refusals by code.", labels: ["code"] }),
  };
}
