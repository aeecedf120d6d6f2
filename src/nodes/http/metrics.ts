/**
 * Counters, gauges and histograms in the Prometheus text format. Label values come from
 * fixed sets (routes, codes, channels), never from requests; a family still holds at most
 * `seriesMax` series, so that a mistake costs a number and not the memory of the node.
 */
import { faultCodes } from "../../core/fault.ts";

type Counter = { readonly add: (labels: readonly string[], by?: number) => void };
type Histogram = { readonly observe: (labels: readonly string[], value: number) => void };
export type GaugeReading =
  | number
  | readonly (readonly [labels: readonly string[], value: number])[];

/** Name without the `waypost_` prefix, the help line, and the names of the labels in order. */
type Family = {
  readonly name: string;
  readonly help: string;
  readonly labels?: readonly string[];
};

/**
 * `start`: the series that are there at 0 from the beginning. What makes a new series is
 * not an increase to Prometheus, so an alert would miss the first burst.
 */
type CounterFamily = Family & { readonly start?: readonly (readonly string[])[] };

export type Metrics = {
  readonly counter: (family: CounterFamily) => Counter;
  /** A counter that something else keeps; `read` as of a gauge. */
  readonly count: (family: Family, read: () => number) => void;
  /** `read` is called when `/metrics` is read; it must be cheap. */
  readonly gauge: (family: Family, read: () => GaugeReading | Promise<GaugeReading>) => void;
  readonly histogram: (family: Family, buckets: readonly number[]) => Histogram;
  readonly render: () => Promise<string>;
};

const seriesMax = 2_000;
const prefix = "waypost_";

export function createMetrics(): Metrics {
  const families = new Map<string, () => Promise<string>>();
  const register = (
    { name, help }: Family,
    type: string,
    read: () => string[] | Promise<string[]>,
  ): void => {
    if (families.has(name)) throw new Error(`metric ${name} is registered twice`);
    const head = `# HELP ${prefix}${name} ${help}\n# TYPE ${prefix}${name} ${type}\n`;
    families.set(name, async () => head + (await read()).join(""));
  };
  return {
    render: async () => (await Promise.all([...families.values()].map((read) => read()))).join(""),
    counter: (family) => {
      const { name, labels = [], start = labels.length === 0 ? [[]] : [] } = family;
      const series = new Map<string, { value: number }>();
      for (const values of start) seriesOf(series, values, () => ({ value: 0 }));
      register(family, "counter", () =>
        [...series].map(([key, { value }]) => sampleLine(name, labels, key.split("\0"), value)),
      );
      return {
        add: (values, by = 1) => {
          seriesOf(series, values, () => ({ value: 0 })).value += by;
        },
      };
    },
    count: (family, read) =>
      register(family, "counter", () => [sampleLine(family.name, [], [], read())]),
    gauge: (family, read) => {
      const { name, labels = [] } = family;
      register(family, "gauge", async () => {
        // What can't be read now is left out.
        const found = await Promise.try(read).catch((): GaugeReading => []);
        const rows = typeof found === "number" ? [[[], found] as const] : found;
        return rows.map(([values, value]) => sampleLine(name, labels, values, value));
      });
    },
    histogram: (family, buckets) => {
      const series = new Map<string, Distribution>();
      register(family, "histogram", () =>
        [...series].flatMap(([key, one]) => linesOf(family, buckets, key.split("\0"), one)),
      );
      const empty = () => ({ counts: new Array<number>(buckets.length).fill(0), sum: 0, count: 0 });
      return {
        observe: (values, value) => observe(seriesOf(series, values, empty), buckets, value),
      };
    },
  };
}

// ------------------------------------------------------------------------------------------ series

/** Values by bucket, each in the first bucket that holds it. */
type Distribution = { readonly counts: number[]; sum: number; count: number };

/** The series of these labels. Beyond the bound it is not kept. */
function seriesOf<T>(family: Map<string, T>, values: readonly string[], empty: () => T): T {
  const key = values.length === 1 ? (values[0] as string) : values.join("\0");
  const known = family.get(key);
  if (known !== undefined) return known;
  const fresh = empty();
  if (family.size < seriesMax) family.set(key, fresh);
  return fresh;
}

/** Cost: one comparison for each bucket below the value. */
function observe(series: Distribution, buckets: readonly number[], value: number): void {
  series.sum += value;
  series.count += 1;
  const bucket = buckets.findIndex((bound) => value <= bound);
  if (bucket >= 0) series.counts[bucket] = (series.counts[bucket] as number) + 1;
}

function linesOf(
  { name, labels = [] }: Family,
  buckets: readonly number[],
  values: readonly string[],
  { counts, sum, count }: Distribution,
): string[] {
  let within = 0;
  const bucketLine = (le: string, held: number) =>
    sampleLine(`${name}_bucket`, [...labels, "le"], [...values.slice(0, labels.length), le], held);
  return [
    ...buckets.map((bound, i) => {
      within += counts[i] as number;
      return bucketLine(String(bound), within);
    }),
    bucketLine("+Inf", count),
    sampleLine(`${name}_sum`, labels, values, sum),
    sampleLine(`${name}_count`, labels, values, count),
  ];
}

function sampleLine(
  name: string,
  labels: readonly string[],
  values: readonly string[],
  value: number,
): string {
  const pairs = labels.map((label, i) => `${label}="${escapeLabel(values[i] ?? "")}"`);
  return `${prefix}${name}${pairs.length === 0 ? "" : `{${pairs.join(",")}}`} ${value}\n`;
}

function escapeLabel(value: string): string {
  return value.replace(/[\\"\n]/g, (c) => (c === "\n" ? "\\n" : `\\${c}`));
}

// ------------------------------------------------------------------------------------- of requests

export type HttpMetrics = {
  readonly requests: Counter;
  readonly seconds: Histogram;
  readonly refusals: Counter;
  /** Requests that met a damaged record. */
  readonly damage: Counter;
  /** Refused requests without a line in the log, which has one of a hundred. */
  readonly unlogged: Counter;
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
      {
        name: "http_request_seconds",
        help: "Time from the request's head to the answer's head.",
        labels: ["route"],
      },
      latency,
    ),
    refusals: metrics.counter({
      name: "http_refusals_total",
      help: "Refusals by code.",
      labels: ["code"],
      start: faultCodes.map((code) => [code]),
    }),
    damage: metrics.counter({
      name: "store_damage_total",
      help: "Requests that met a damaged record of a store.",
    }),
    unlogged: metrics.counter({
      name: "http_refusals_unlogged_total",
      help: "Requests refused by a rate or the capacity that the log leaves out.",
    }),
  };
}
