/**
 * Settings that are valid and probably not meant: `config check` prints a warning for each, and the start
 * logs it. A warning never keeps a node from starting.
 */
import { isDid } from "../core/codec/did.ts";
import type { InputProblem } from "../storage/contract.ts";
import type { Config } from "./schema.ts";

export function configWarnings(config: Config): InputProblem[] {
  return [
    ...proxyWarnings(config),
    ...listWarnings(config),
    ...exampleWarnings(config),
    ...volatileWarnings(config),
    ...listenerWarnings(config),
  ];
}

function proxyWarnings({ server }: Config): InputProblem[] {
  return server.trusted_proxies.flatMap((network, index) =>
    /\/0+$/.test(network)
      ? [
          {
            setting: `server.trusted_proxies.${index}`,
            message: `${network} trusts every client: anybody can choose the address that rate limits see`,
          },
        ]
      : [],
  );
}

const listNames = ["allow_recipients", "deny_recipients", "allow_senders", "deny_senders"] as const;

function listWarnings(config: Config): InputProblem[] {
  return (["relay", "cache"] as const).flatMap((node) =>
    listNames.flatMap((list) =>
      config[node][list].flatMap((entry, index) =>
        isDid(entry)
          ? []
          : [{ setting: `${node}.${list}.${index}`, message: `${entry} is not a DID: the entry matches nobody` }],
      ),
    ),
  );
}

/** Names of examples (RFC 2606) that were left in a file. */
function exampleWarnings(config: Config): InputProblem[] {
  return (["relay", "cache"] as const).flatMap((node) =>
    !config[node].enabled
      ? []
      : config[node].public_endpoints.flatMap((endpoint, index) =>
          /(^|\.)example(\.(org|com|net))?$/.test(new URL(endpoint).hostname)
            ? [
                {
                  setting: `${node}.public_endpoints.${index}`,
                  message: `${endpoint} is a name from an example: nobody can reach this node by it`,
                },
              ]
            : [],
        ),
  );
}

function volatileWarnings({ cache, directory, stores }: Config): InputProblem[] {
  const isMemory = (store: string): boolean => stores[store]?.plugin === "memory";
  const warnings: InputProblem[] = [];
  if (cache.enabled && isMemory(cache.store)) {
    const message = "keeps envelopes in memory: every envelope is lost when the process ends";
    warnings.push({ setting: "cache.store", message });
  }
  if (directory.enabled && isMemory(directory.ledger)) {
    const message = "keeps identities in memory: every identity is lost when the process ends";
    warnings.push({ setting: "directory.ledger", message });
  }
  return warnings;
}

function listenerWarnings({ server, relay, cache }: Config): InputProblem[] {
  const isPublic = (relay.enabled || cache.enabled) && server.admin_listen.length === 0;
  const open = server.listen.some((address) => /^(0\.0\.0\.0|\[::\]):/.test(address));
  if (!isPublic || !open) return [];
  return [{ setting: "server.admin_listen", message: "is empty: /metrics is public on the addresses of listen" }];
}
