/** What a node publishes about itself (`GET /node`), as far as its configuration says it. */
import type { Config } from "../config/schema.ts";
import type { AboutAnswer } from "../core/schema/schema.ts";
import { version } from "../version.ts";
import type { ComposedNodes, ComposeParts } from "./nodes.ts";

function rolesOf(config: Config): AboutAnswer["roles"] {
  const nodes = (["directory", "relay", "cache"] as const).filter((node) => config[node].enabled);
  return config.witness.key_file === null ? nodes : [...nodes, "witness"];
}

/** What a configuration alone says of its node. */
export function publishedOf(config: Config) {
  const { directory, relay, cache } = config;
  const home = directory.enabled ? directory.public_endpoint : null;
  return {
    roles: rolesOf(config),
    relay_endpoints: relay.enabled ? relay.public_endpoints : [],
    relay_public_id: relay.enabled ? relay.public_id : null,
    cache_endpoints: cache.enabled ? cache.public_endpoints : [],
    directory_endpoints: home === null ? [] : [home],
  } satisfies Partial<AboutAnswer>;
}

export function aboutOf(
  config: Config,
  { eventKey, pushKey, now }: ComposeParts,
  nodes: Pick<ComposedNodes, "maintenance" | "notices">,
): AboutAnswer {
  const maintenance = nodes.maintenance.state();
  const { cache, operator } = config;
  return {
    ...publishedOf(config),
    version,
    event_proof_key: eventKey.publicKey,
    push_key: pushKey?.publicKey ?? null,
    passes: cache.enabled,
    key_bundles: cache.enabled,
    operator: {
      did: operator.did,
      contact: operator.contact,
      rules: operator.rules,
      welcome: operator.welcome,
    },
    maintenance:
      maintenance === null
        ? null
        : { since: new Date(maintenance.sinceMs).toISOString(), message: maintenance.message },
    notice: nodes.notices.current(),
    previous_event_proof_keys: eventKey.previous
      .filter((key) => key.untilMs > now() && key.publicKey !== eventKey.publicKey)
      .map(({ publicKey, untilMs }) => ({
        key: publicKey,
        valid_until: new Date(untilMs).toISOString(),
      })),
  };
}
