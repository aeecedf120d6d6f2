/**
 * The outbound requests of a process. Each purpose has places and slots of its own, so that
 * hosts that hang in one take nothing from another: pushes go out while confirmations of
 * new devices wait, and deliveries while bundles are asked for. Together they stay below
 * the 256 requests that Bun sends at once, but for the Relay's own.
 */
import type { Config } from "../config/schema.ts";
import { createEgress, type Egress, type Resolver } from "../nodes/egress/egress.ts";
import { hostLimits } from "../nodes/egress/host-limiter.ts";

/** Tests set these; a running node has none. */
export type NodeOverrides = {
  /** How names of destinations become addresses. */
  readonly resolve?: Resolver;
  /** Certificates that outbound requests trust besides those of the system, in PEM. */
  readonly ca?: readonly string[];
};

/** Each call makes one more, which its user closes. */
export type Outbound = {
  /** Envelopes to inboxes, other Relays and other Caches. */
  readonly deliveries: () => Egress;
  /** What wakes devices, and what asks a new device whether it wants that. */
  readonly pushes: () => { readonly egress: Egress; readonly confirmations: Egress };
  /** Key bundles of people whose Caches are elsewhere. */
  readonly bundles: () => Egress;
  /** Key proofs at the homes of people who are at home elsewhere. */
  readonly homes: () => Egress;
};

const [pushesMax, confirmationsMax, bundlesMax] = [64, 32, 128];
/** Most devices of the world are behind three push services. */
const pushHosts = { ...hostLimits, concurrent: 32, queued: 128 };
/** A group may have all its members at one Cache. */
const bundleHosts = { ...hostLimits, concurrent: 16, queued: 128 };
/** Requests to one home at once. */
const homeRequestsMax = 4;

export function outboundOf({ relay }: Pick<Config, "relay">, overrides: NodeOverrides): Outbound {
  const { resolve, ca } = overrides;
  const given = {
    ...(resolve === undefined ? {} : { resolve }),
    ...(ca === undefined ? {} : { ca }),
  };
  // An envelope for this Relay itself would come back; a question may go to this process.
  const questions = { ...relay, public_endpoints: [] };
  const pushing = (requestsMax: number) =>
    createEgress({
      ...given,
      settings: relay,
      hosts: pushHosts,
      requestsMax,
      byRegisteredName: true,
    });
  return {
    deliveries: () => createEgress({ ...given, settings: relay }),
    pushes: () => ({ egress: pushing(pushesMax), confirmations: pushing(confirmationsMax) }),
    bundles: () =>
      createEgress({
        ...given,
        settings: questions,
        hosts: bundleHosts,
        requestsMax: bundlesMax,
      }),
    homes: () =>
      createEgress({
        ...given,
        settings: { ...questions, destination_requests_max: homeRequestsMax },
      }),
  };
}
