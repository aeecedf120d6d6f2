/**
 * Settings of earlier versions. A file or a variable that names one does not keep a node from starting: the
 * value is taken out or moved before the schema sees it, and a warning says what counts now.
 */
import { minuteMs, secondMs } from "../core/codec/time.ts";
import type { InputProblem } from "../storage/contract.ts";
import { figures } from "./figures.ts";
import { type Config, parseDurationSetting, renderDurationSetting } from "./schema.ts";
import { isTable, type Table } from "./source.ts";

/** Several durations of earlier versions that are one now. */
type Merged = {
  readonly from: readonly string[];
  readonly to: string;
  readonly defaultMs: number;
  readonly minMs: number;
};

const merged: readonly Merged[] = [
  {
    from: ["directory.clock_skew", "relay.clock_skew", "cache.clock_skew", "limits.clock_ahead"],
    to: "limits.clock_skew",
    defaultMs: 5 * minuteMs,
    minMs: secondMs,
  },
];

/** Settings that went with what they set, and what counts now. */
const removed: Readonly<Record<string, string>> = {
  "server.reserved_requests_max": "a quarter of server.requests_max counts",
  "server.arriving_max": "16384 bodies may arrive at once",
  "server.refusals_max": "4096 refusals may wait at once",
  "server.refusal_delay": "500ms counts",
  "relay.cache_reserve": "two fifths of relay.delivery_budget are kept for the Cache",
  "relay.destination_queue_max": "32 requests may wait for one destination",
  "relay.outbound_requests_max": "256 requests may be under way at once",
  "relay.peer_listen": "processes reach each other as [bus] says",
  "relay.peers": "processes reach each other as [bus] says",
  "cache.summary_entries_max": "1000 counts",
  "cache.ack_ids_max": "1000 counts",
};

type Retired = {
  /** `input` without the retired settings. */
  readonly input: unknown;
  /** What counts now, once the configuration is known. */
  readonly warnings: (config: Config) => InputProblem[];
};

/** Takes retired settings out of a value of the shape of the file, which is left as it is. */
export function takeRetired(input: unknown): Retired {
  if (!isTable(input)) return { input, warnings: () => [] };
  const rest: Table = structuredClone(input);
  const replaced = merged.flatMap((one) => merge(rest, one));
  const unused = Object.keys(removed).filter((setting) => take(rest, setting) !== undefined);
  const dropped = figureNames().filter((setting) => take(rest, setting) !== undefined);
  return {
    input: rest,
    warnings: (config) => [
      ...replaced.map(({ setting, to }) => ({
        setting,
        message: `is no longer a setting: ${to} = "${renderSetting(config, to)}" counts`,
      })),
      ...unused.map((setting) => ({ setting, message: withoutEffect(removed[setting] ?? "") })),
      ...dropped.map((setting) => ({
        setting,
        message: withoutEffect(`${renderSetting(config, setting)} counts`),
      })),
    ],
  };
}

function withoutEffect(instead: string): string {
  return `is no longer a setting and has no effect: ${instead}`;
}

/** Every setting that is taken without effect, as `section.name`. */
export function settingsWithoutEffect(): string[] {
  return [...Object.keys(removed), ...figureNames()];
}

/** The shortest of several values counts, unless the new setting is there. */
function merge(input: Table, { from, to, defaultMs, minMs }: Merged): { setting: string; to: string }[] {
  const found = from.map((setting) => ({ setting, value: take(input, setting) }));
  const present = found.filter(({ value }) => value !== undefined);
  const [section = "", name = ""] = to.split(".");
  const table = isTable(input[section]) ? input[section] : {};
  if (present.length > 0 && table[name] === undefined) {
    const values = present.map(({ value }) => (typeof value === "string" ? parseDurationSetting(value) : null));
    const shortestMs = Math.max(minMs, Math.min(...values.map((ms) => ms ?? defaultMs)));
    input[section] = { ...table, [name]: renderDurationSetting(shortestMs) };
  }
  return present.map(({ setting }) => ({ setting, to }));
}

function take(input: Table, setting: string): unknown {
  const [section = "", name = ""] = setting.split(".");
  const table = input[section];
  if (!isTable(table) || !Object.hasOwn(table, name)) return undefined;
  const value = table[name];
  delete table[name];
  return value;
}

function figureNames(): string[] {
  return Object.entries(figures).flatMap(([section, own]) => Object.keys(own).map((name) => `${section}.${name}`));
}

function renderSetting(config: Config, setting: string): string {
  const [section = "", name = ""] = setting.split(".");
  const value: unknown = Reflect.get(Reflect.get(config, section), name);
  const figure: unknown = Reflect.get(Reflect.get(figures, section) ?? {}, name);
  const isCount = isTable(figure) && figure["form"] === "count";
  return typeof value === "number" && !isCount ? renderDurationSetting(value) : String(value);
}
