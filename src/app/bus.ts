/**
 * The bus of the process as `[bus]` names it: its options, which belong to the driver, and its metrics.
 */
import type { Config } from "../config/schema.ts";
import type { Metrics } from "../nodes/http/metrics.ts";
import { openLocalBus } from "../plugins/bus/local.ts";
import { type NatsBusOptions, natsOptions, openNatsBus } from "../plugins/bus/nats.ts";
import { type ParsedOptions, parseWith } from "../plugins/options.ts";
import type { Bus, BusEnvironment } from "../storage/bus.ts";
import type { InputProblem } from "../storage/contract.ts";
import { failed } from "./failure.ts";

/** Every problem of the bus's options, found without connecting. Options of the bus that is not used may stay. */
export function checkBus({ bus }: Config): InputProblem[] {
  const parsed = parseOptions(bus);
  const problems = parsed.ok ? [] : parsed.problems;
  const counting = bus.plugin === "nats" ? problems : problems.filter(({ setting }) => setting !== "servers");
  return counting.map(({ setting, message }) => ({ setting: `bus.${setting}`, message }));
}

function parseOptions({ plugin: _, ...options }: Config["bus"]): ParsedOptions<NatsBusOptions> {
  return parseWith(natsOptions, options);
}

export async function openConfiguredBus({ bus }: Config, environment: BusEnvironment): Promise<Bus> {
  if (bus.plugin === "local") return openLocalBus(environment);
  const parsed = parseOptions(bus);
  if (parsed.ok) return openNatsBus(parsed.options, environment);
  throw failed(parsed.problems.map(({ setting, message }) => `bus.${setting}: ${message}`).join("\n"));
}

export function registerBusMetrics(metrics: Metrics, bus: Bus): void {
  const gauge = (name: string, help: string, read: () => number): void => metrics.gauge({ name, help }, read);
  gauge("bus_connected", "1 while messages reach other processes.", () => Number(bus.stats().connected));
  gauge("bus_subscriptions", "Subjects that this process listens to.", () => bus.stats().subscriptions);
  gauge("bus_messages_dropped", "Messages lost here since the start.", () => bus.stats().dropped);
}
