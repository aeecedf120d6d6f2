/**
 * From settings to nodes: the one place where the names of the configuration become the options of the
 * Directory, the Relay and the Cache, and where they are given their stores and their recipients.
 */
import type { Config } from "../config.ts";
import { createDirectory } from "../nodes/directory.ts";
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
  readonly limits: () => Promise<Readonly<Record<string, unknown>>>;
  readonly upgrade?: Upgrade<unknown>;
  readonly stop?: () => Promise<void>;
};

export async function composeNodes(config: Config, parts: ComposeParts): Promise<ComposedNodes> {
  const nodes = [config.directory.enabled ? composeDirectory(config, parts) : null].filter((node) => node !== null);
  return {
    routes: nodes.flatMap((node) => node.routes),
    limits: async () => Object.assign({}, ...(await Promise.all(nodes.map((node) => node.limits())))),
  };
}

type Node = { readonly routes: readonly Route[]; readonly limits: () => object | Promise<object> };

function composeDirectory({ directory }: Config, { stores }: ComposeParts): Node {
  return createDirectory({
    ledger: stores.capability("directory.ledger", "ledger"),
    receipts: stores.capability("directory.store", "receipts"),
    replay: stores.capability("directory.store", "replay"),
    options: {
      registrationProofs: directory.registration_proofs,
      unsignedUpdates: directory.unsigned_updates,
      skewMs: directory.clock_skew,
      authorizationAheadMsMax: directory.authorization_max_ahead,
      preparedLifeMs: directory.prepared_life,
      pendingBlocks: directory.pending_blocks,
    },
  });
}
