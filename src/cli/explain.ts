/**
 * `waypost explain <target>`: why an envelope would or would not reach a recipient now. It reads record and policies from
 * the Directory and asks every published service for its node; with `--config` or `--socket` a running node says what it
 * knows itself. Source: rules sections 2 and 5.
 */
import type { Command } from "commander";
import type { Resolved } from "../client/answers.ts";
import { type Client, documentOf } from "../client/client.ts";
import { orNull } from "../client/http.ts";
import { type Did, isDid } from "../core/codec/did.ts";
import { checkEndpoint, clientCommand, countOf, printable, type Session } from "./command.ts";
import { askNode, type NodeFlags } from "./operations.ts";

/** `stops`: no envelope can reach the recipient because of this. */
type Step = { readonly what: string; readonly state: "ok" | "note" | "stops"; readonly detail: string };

const ok = (what: string, detail: string): Step => ({ what, state: "ok", detail });
const note = (what: string, detail: string): Step => ({ what, state: "note", detail });
const stops = (what: string, detail: string): Step => ({ what, state: "stops", detail });

/**
 * `accepted`: a Cache answers, and stores the envelope. `unknown`: nothing stops the envelope, but only an inbox or a Relay
 * is left, and only a delivery shows whether the recipient is there.
 */
type Conclusion = "accepted" | "stopped" | "unknown";

export function registerExplainCommand(program: Command): void {
  const command = program
    .command("explain <target>")
    .description("explain why an envelope would or would not reach a DID, an alias, or an identity of this machine")
    .option("-c, --config <file>", "ask the running node of this configuration file, which knows more")
    .option("--socket <path>", "the same by the Unix socket of the node's admin_listen")
    .option("--sender <did>", "envelopes of this sender, with --config or --socket");
  clientCommand(command, async (session, flags: NodeFlags & { readonly sender?: string }, target: string) => {
    const did = isDid(target) ? target : (await session.find(target)).did;
    if (flags.config !== undefined || flags.socket !== undefined) return explainAtNode(session, flags, did);
    const steps = await explainRecipient(session.client, did);
    const sentences = {
      accepted: `An envelope to ${did} is accepted.`,
      stopped: `No envelope reaches ${did} now.`,
      unknown: `Only a delivery shows whether an envelope reaches ${did}.`,
    };
    const conclusion = concludeFrom(steps);
    const reachable = conclusion === "accepted";
    session.report.result({ ok: true, did, reachable, steps }, render(sentences[conclusion], steps));
  });
}

type NodeAnswer = {
  readonly reachable: boolean;
  readonly digest: string;
  readonly steps: readonly Step[];
  readonly results: readonly Readonly<Record<string, string | number | null>>[];
};

/** What the running node knows and would decide. */
async function explainAtNode(session: Session, flags: NodeFlags & { readonly sender?: string }, did: Did) {
  const answer = await askNode(flags, "/operations/explain", { recipient: did, sender: flags.sender ?? null });
  const { reachable, digest, steps, results } = answer as NodeAnswer;
  const sentence = reachable ? `This node takes envelopes to ${did}.` : `This node brings no envelope to ${did} now.`;
  const lines = results.map((result) => {
    const of = result["sender"] === null ? "unsigned" : `of ${result["sender"]}`;
    const outcome = [result["code"], result["detail"]].filter((text) => text !== null).join(": ");
    return printable(
      `${result["time"]}  ${result["status"]}  ${result["route"]}  ${result["message_id"]} ${of}  ${outcome}`,
    );
  });
  const last = lines.length === 0 ? ["No result since the start of the process."] : ["Last results:", ...lines];
  session.report.result(answer, [render(sentence, steps), `In the log: ${digest}`, ...last].join("\n"));
}

function concludeFrom(steps: readonly Step[]): Conclusion {
  if (steps.some(({ state }) => state === "stops")) return "stopped";
  const offers = (type: string, state: Step["state"]): boolean =>
    steps.some((step) => step.what.startsWith(`service ${type} `) && step.state === state);
  if (offers("SvcCacheService", "ok")) return "accepted";
  return offers("SvcRelayService", "ok") || offers("SvcInboxService", "note") ? "unknown" : "stopped";
}

function render(sentence: string, steps: readonly Step[]): string {
  const label = (state: Step["state"]) => (state === "stops" ? "STOPS" : state.padEnd(5));
  return [sentence, ...steps.map(({ what, state, detail }) => printable(`${label(state)}  ${what}: ${detail}`))].join(
    "\n",
  );
}

// ------------------------------------------------------------------------------------------------- recipient

async function explainRecipient({ directory }: Client, did: Did): Promise<readonly Step[]> {
  const record = await orNull(directory.resolve(did), "did_not_found");
  if (record === null) return [stops("record", "the ledger has no such DID")];
  if (record.deactivated) return [stops("record", "the DID is deactivated")];
  const { keyAgreement, service } = documentOf(record, did);
  const links = record.delivery_policy_links;
  const policy = (await orNull(directory.recipientPolicy(links?.recipient_policy ?? did), "policy_not_found"))?.policy;
  const services = await Promise.all(destinationsOf(service, policy?.cache_eligible !== false).map(serviceStep));
  return [
    ok("record", `version ${record.version}, changed ${record.updated_at}`),
    keyAgreement.length > 0
      ? ok("key agreement", `${countOf(keyAgreement.length, "key")} to seal to`)
      : stops("key agreement", "the document lists no key to seal to"),
    policyStep(policy),
    ...linkSteps(links),
    ...(services.length === 0 ? [stops("services", "the document publishes none that the policy allows")] : services),
  ];
}

type Policy = { readonly effective_ttl: number; readonly max_message_bytes: number; readonly cache_eligible: boolean };

function policyStep(policy: Policy | undefined): Step {
  if (policy === undefined) return ok("policy", "none; each node's own limits apply");
  const bounds = `at most ${policy.max_message_bytes} bytes, ${countOf(policy.effective_ttl, "block")}`;
  if (policy.cache_eligible) return ok("policy", `${bounds}; Caches may store envelopes`);
  return note("policy", `${bounds}; no Cache may store envelopes: only live delivery works`);
}

function linkSteps(links: Resolved["delivery_policy_links"]): Step[] {
  const { tag_policies: tags = [], persona_policies: personas = [] } = links ?? {};
  return [
    ...(tags.length > 0 ? [note("tags", `only ${tags.join(", ")}, or none`)] : []),
    ...(personas.length > 0 ? [note("personas", `${personas.join(", ")} may restrict which Relays are allowed`)] : []),
  ];
}

type Service = { readonly type: string; readonly serviceEndpoint: readonly string[]; readonly priority: number | null };
type Destination = { readonly type: string; readonly endpoint: string };

/** The order of delivery: inbox, Relay, Cache; within a type by priority. A policy may leave out Caches. */
function destinationsOf(services: readonly Service[], isCacheEligible: boolean): Destination[] {
  const priorityOf = ({ priority }: Service): number => priority ?? Number.MAX_SAFE_INTEGER;
  const types = ["SvcInboxService", "SvcRelayService", ...(isCacheEligible ? ["SvcCacheService"] : [])];
  return types.flatMap((type) =>
    services
      .filter((service) => service.type === type)
      .sort((a, b) => priorityOf(a) - priorityOf(b))
      .flatMap((service) => service.serviceEndpoint.map((endpoint) => ({ type, endpoint }))),
  );
}

async function serviceStep({ type, endpoint }: Destination): Promise<Step> {
  const what = `service ${type} ${endpoint}`;
  // An inbox belongs to the recipient and need not be a node; asking it anything would be a delivery.
  if (type === "SvcInboxService") return note(what, "not tried: only a delivery shows");
  const check = await checkEndpoint(endpoint, type === "SvcRelayService" ? "relay" : "cache");
  if (check.state === "ok") return ok(what, "answers under this address");
  if (check.state === "unknown") return ok(what, "answers, but does not state its public address");
  if (check.state === "unreachable") return note(what, check.reason);
  const isCache = type === "SvcCacheService";
  const effect = isCache ? "it refuses envelopes for this address" : "live sessions do not work there";
  return note(what, `${check.reason}: ${effect}`);
}
