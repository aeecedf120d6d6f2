/**
 * Counters, gauges and histograms in the Prometheus text format. Label values come from fixed sets
 * (routes, codes, channels), never from requests; a family still holds at most `seriesMax` series, so
 * that a mistake costs a number and not the memory of the node.
 */

/** One number of a family. A hot path gets it once and adds to it. */
export type CounterSeries = { value: number };
type Counter = {
  readonly add: (labels: readonly string[], by?: number) => void;
  readonly series: (labels: readonly string[]) => CounterSeries;
};
/** Values by bucket, each in the first bucket that holds it. */
export type HistogramSeries = {
  readonly buckets: readonly number[];
  readonly counts: number[];
  sum: number;
  count: number;
};
export type Histogram = {
  readonly observe: (labels: readonly string[], value: number) => void;
  readonly series: (labels: readonly string[]) => HistogramSeries;
};
export type GaugeReading = number | readonly (readonly [labels: readonly string[], value: number])[];

/** Name without the `waypost_` prefix, the help line, and the names of the labels in order. */
type Family = {
  readonly name: string;
  readonly help: string;
  readonly labels?: readonly string[];
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

export function createMetrics(): Metrics {
  /** Each renders its family as it is now. */
  const families = new Map<string, () => Promise<string> | string>();
  const register = (family: Family, render: () => Promise<string> | string): void => {
    if (families.has(family.name)) throw new Error(`metric ${family.name} is registered twice`);
    families.set(family.name, render);
  };
  return {
    render: async () => (await Promise.all([...families.values()].map((render) => render()))).join(""),
    counter: (family) => {
      const series = new Map<string, CounterSeries>();
      const values = () => new Map([...series].map(([key, { value }]) => [key, value]));
      register(family, () => `${head(family, "counter")}${lines(family, values())}`);
      const one = (labels: readonly string[]) => seriesOf(series, labels, () => ({ value: 0 }));
      return {
        add: (labels, by = 1) => {
          one(labels).value += by;
        },
        series: one,
      };
    },
    gauge: (family, read) =>
      register(family, async () => {
        const reading = await Promise.resolve()
          .then(read)
          .catch((): GaugeReading => []);
        const rows = typeof reading === "number" ? [[[], reading] as const] : reading;
        const values = new Map(rows.map(([labels, value]) => [labels.join("\0"), value]));
        return `${head(family, "gauge")}${lines(family, values)}`;
      }),
    histogram: (family, buckets) => {
      const series = new Map<string, HistogramSeries>();
      register(family, () => renderHistogram(family, series));
      const empty = () => ({ buckets, counts: new Array<number>(buckets.length).fill(0), sum: 0, count: 0 });
      const one = (labels: readonly string[]) => seriesOf(series, labels, empty);
      return { observe: (labels, value) => observe(one(labels), value), series: one };
    },
  };
}

// ------------------------------------------------------------------------------------------------ series

/** The series of these labels. Beyond the bound it is not kept. */
function seriesOf<T>(family: Map<string, T>, labels: readonly string[], empty: () => T): T {
  const key = labels.length === 1 ? (labels[0] as string) : labels.join("\0");
  const known = family.get(key);
  if (known !== undefined) return known;
  const fresh = empty();
  if (family.size < seriesMax) family.set(key, fresh);
  return fresh;
}

/** Adds a value. Cost: one comparison for each bucket below it. */
export function observe(series: HistogramSeries, value: number): void {
  series.sum += value;
  series.count += 1;
  const { buckets, counts } = series;
  for (let i = 0; i < buckets.length; i++) {
    if (value > (buckets[i] as number)) continue;
    counts[i] = (counts[i] as number) + 1;
    return;
  }
}

function renderHistogram(family: Family, series: ReadonlyMap<string, HistogramSeries>): string {
  let text = head(family, "histogram");
  for (const [key, one] of series) {
    let within = 0;
    one.buckets.forEach((bound, i) => {
      within += one.counts[i] as number;
      text += `${prefix}${family.name}_bucket${labelText(family, key, `le="${bound}"`)} ${within}\n`;
    });
    text += `${prefix}${family.name}_bucket${labelText(family, key, `le="+Inf"`)} ${one.count}\n`;
    text += `${prefix}${family.name}_sum${labelText(family, key)} ${one.sum}\n`;
    text += `${prefix}${family.name}_count${labelText(family, key)} ${one.count}\n`;
  }
  return text;
}

function head(family: Family, type: string): string {
  return `# HELP ${prefix}${family.name} ${family.help}\n# TYPE ${prefix}${family.name} ${type}\n`;
}

function lines(family: Family, series: ReadonlyMap<string, number>): string {
  let text = "";
  for (const [key, value] of series) text += `${prefix}${family.name}${labelText(family, key)} ${value}\n`;
  return text;
}

function labelText(family: Family, key: string, extra?: string): string {
  const names = family.labels ?? [];
  const values = names.length === 0 ? [] : key.split("\0");
  const pairs = names.map((name, i) => `${name}="${escapeLabel(values[i] ?? "")}"`);
  if (extra !== undefined) pairs.push(extra);
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
