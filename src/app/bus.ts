/**
 * The bus of the process as `[bus]` names it, and its metrics.
 */
import type { Config } from "../config/schema.ts";
import type { Metrics } from "../nodes/http/metrics.ts";
import { openLocalBus } from "../plugins/bus/local.ts";
import { openNatsBus } from "../plugins/bus/nats.ts";
import type { Bus, BusEnvironment } from "../storage/bus.ts";

export async function openConfiguredBus({ bus }: Config, environment: BusEnvironment): Promise<Bus> {
  return bus.plugin === "nats" ? openNatsBus(bus, environment) : openLocalBus(environment);
}

export function registerBusMetrics(metrics: Metrics, bus: Bus): void {
  const gauge = (name: string, help: string, read: () => number): void => metrics.gauge({ name, help }, read);
  gauge("bus_connected", "1 while messages reach other processes.", () => Number(bus.stats().connected));
  gauge("bus_subscriptions", "Subjects that this process listens to.", () => bus.stats().subscriptions);
  gauge("bus_messages_dropped", "Messages lost here since the start.", () => bus.stats().dropped);
}
