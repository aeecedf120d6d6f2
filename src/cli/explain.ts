/**
 * `waypost explain <target>`: why an envelope would or would not reach a recipient now. Asks the Directory
 * for record and policy and every published service for its node, in the order in which a Relay tries them.
 */
import type { Command } from "commander";
import { orNull } from "../client/http.ts";
import type { Did } from "../core/codec/did.ts";
import { addConnectionFlags, type ConnectionFlags, runSession, type Session, targetDid } from "./connection.ts";
import { checkEndpoint } from "./health.ts";
import { printable } from "./report.ts";

export function registerExplainCommand(program: Command): void {
  const command = program
    .command("explain <target>")
    .description("why an envelope would or would not reach a DID, an alias, or an identity of this machine");
  addConnectionFlags(command).action((target: string, flags: ConnectionFlags) =>
    runSession(flags, (session) => explain(session, target)),
  );
}

/** `stops`: no envelope reaches the recipient while this holds. */
type Step = { readonly what: string; readonly state: "ok" | "note" | "stops"; readonly detail: string };

async function explain(session: Session, target: string): Promise<void> {
  const did = await targetDid(session, target);
  const steps = await stepsOf(session, did);
  const reachable = !steps.some(({ state }) => state === "stops") && steps.some(isWayIn);
  const verdict = reachable ? `An envelope to ${did} is accepted.` : `No envelope reaches ${did} now.`;
  const lines = steps.map(({ what, state, detail }) => `${stateLabels[state]}  ${what}: ${detail}`);
  session.report.result({ ok: true, did, reachable, steps }, [verdict, ...lines.map(printable)].join("\n"));
}

const stateLabels = { ok: "ok   ", note: "note ", stops: "STOPS" } as const;
const isWayIn = ({ what, state }: Step): boolean => state === "ok" && what.startsWith("service ");

async function stepsOf({ client }: Session, did: Did): Promise<Step[]> {
  const record = await orNull(client.directory.resolve(did), "did_not_found");
  if (record === null) return [{ what: "record", state: "stops", detail: "the ledger has no such DID" }];
  if (record.deactivated) return [{ what: "record", state: "stops", detail: "the DID is deactivated" }];
  const services = record.document?.service ?? [];
  const [policy, ways] = await Promise.all([policyStep(client, did), Promise.all(destinationsOf(services).map(wayIn))]);
  const steps: Step[] = [
    { what: "record", state: "ok", detail: `version ${record.version}, changed ${record.updated_at}` },
    keyStep(record.document?.keyAgreement.length ?? 0),
    ...policy,
    ...linkSteps(record.delivery_policy_links),
    ...ways,
  ];
  if (ways.length === 0) steps.push({ what: "services", state: "stops", detail: "the document publishes none" });
  return steps;
}

function keyStep(count: number): Step {
  if (count > 0) return { what: "key agreement", state: "ok", detail: `${count} to seal to` };
  return { what: "key agreement", state: "stops", detail: "the document lists no key to seal to" };
}

async function policyStep(client: Session["client"], did: Did): Promise<Step[]> {
  const found = await orNull(client.directory.recipientPolicy(did), "policy_not_found");
  if (found === null) return [{ what: "policy", state: "ok", detail: "none; the limits of each node hold" }];
  const { effective_ttl, max_message_bytes, cache_eligible } = found.policy;
  const cache = cache_eligible ? "Caches may hold envelopes" : "no Cache may hold envelopes: only live delivery counts";
  const detail = `at most ${max_message_bytes} bytes, ${effective_ttl} blocks; ${cache}`;
  return [{ what: "policy", state: cache_eligible ? "ok" : "note", detail }];
}

type Links = { readonly tag_policies: readonly string[]; readonly persona_policies: readonly string[] } | null;

function linkSteps(links: Links): Step[] {
  const steps: Step[] = [];
  if (links !== null && links.tag_policies.length > 0)
    steps.push({ what: "tags", state: "note", detail: `only ${links.tag_policies.join(", ")}, or none` });
  if (links !== null && links.persona_policies.length > 0) {
    const detail = `${links.persona_policies.join(", ")} may restrict which Relays are allowed`;
    steps.push({ what: "personas", state: "note", detail });
  }
  return steps;
}

// ---------------------------------------------------------------------------------------------- destinations

type Service = {
  readonly type: string;
  readonly serviceEndpoint: string | readonly string[];
  readonly priority?: unknown;
};
type Destination = { readonly type: string; readonly endpoint: string };

/** The order of delivery: inbox, Relay, Cache; within a type by priority. */
const order = ["SvcInboxService", "SvcRelayService", "SvcCacheService"];

function destinationsOf(services: readonly Service[]): Destination[] {
  const priorityOf = ({ priority }: Service): number => (typeof priority === "number" ? priority : 2 ** 32);
  return order.flatMap((type) =>
    services
      .filter((service) => service.type === type)
      .sort((a, b) => priorityOf(a) - priorityOf(b))
      .flatMap((service) => [service.serviceEndpoint].flat().map((endpoint) => ({ type, endpoint }))),
  );
}

async function wayIn({ type, endpoint }: Destination): Promise<Step> {
  const what = `service ${type} ${endpoint}`;
  // An inbox belongs to the recipient and need not be a node; asking it anything would be a delivery.
  if (type === "SvcInboxService") return { what, state: "note", detail: "not tried: only a delivery shows" };
  const check = await checkEndpoint(endpoint, type === "SvcRelayService" ? "relay" : "cache");
  if (check.state === "ok") return { what, state: "ok", detail: "answers and names itself so" };
  if (check.state === "unknown") return { what, state: "ok", detail: "answers; it does not say who it is" };
  const effect = type === "SvcCacheService" ? "it refuses what is stored for this address" : "nobody is met there";
  return { what, state: "note", detail: check.state === "wrong" ? `${check.reason}: ${effect}` : check.reason };
}
