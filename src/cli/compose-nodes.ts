/**
 * From settings to nodes: the one place where the names of the configuration become the options of the
 * Directory, the Relay and the Cache, and where they are given their stores and their recipients.
 */
import type { Config } from "../config.ts";
import type { Route } from "../nodes/http.ts";
import type { Upgrade } from "../nodes/listen.ts";
import type { Log } from "../nodes/log.ts";
import type { Metrics } from "../nodes/metrics.ts";
import type { OpenStores } from "../storage/bind.ts";

/** What differs between running for real and running in a test. */
export type NodeOverrides = Record<never, never>;

export type ComposeParts = NodeOverrides & {
  readonly stores: OpenStores;
  readonly now: () => number;
  readonly log: Log;
  readonly metrics: Metrics;
};

export type ComposedNodes = {
  readonly routes: readonly Route[];
  /** What `/limits` answers. */
  readonly limits: Readonly<Record<string, unknown>>;
  readonly upgrade?: Upgrade<unknown>;
  readonly stop?: () => Promise<void>;
};

export async function composeNodes(_config: Config, _parts: ComposeParts): Promise<ComposedNodes> {
  return { routes: [], limits: {} };
}
