/**
 * `waypost explain <target>`: why an envelope would or would not reach a recipient now, as
 * the running node sees it: it alone knows blocks, shares, sessions and the last results.
 * Source: rules sections 2 and 5.
 */
import type { Command } from "commander";
import { isDid } from "../core/codec/did.ts";
import { clientCommand, printable } from "./command.ts";
import { addPlaceFlags, askNode, type NodeFlags } from "./operations.ts";

/** `stops`: no envelope can reach the recipient because of this. */
type Step = {
  readonly what: string;
  readonly state: "ok" | "note" | "stops";
  readonly detail: string;
};

type NodeAnswer = {
  readonly reachable: boolean;
  readonly digest: string;
  readonly steps: readonly Step[];
  readonly results: readonly Readonly<Record<string, string | number | null>>[];
};

type ExplainFlags = NodeFlags & { readonly sender?: string; readonly client?: string };

export function registerExplainCommand(program: Command): void {
  const command = program
    .command("explain <target>")
    .description(
      "explain why an envelope would or would not reach a DID, an alias, or an identity of this machine",
    )
    .option("--sender <target>", "envelopes of this sender, named in the same ways")
    .option("--client <address>", "envelopes that come from this address");
  clientCommand(addPlaceFlags(command), async (session, flags: ExplainFlags, target: string) => {
    const didOf = async (name: string) => (isDid(name) ? name : session.find(name));
    const did = await didOf(target);
    const answer = await askNode(flags, "/operations/explain", {
      recipient: did,
      sender: flags.sender === undefined ? null : await didOf(flags.sender),
      client: flags.client ?? null,
    });
    const { reachable, digest, steps, results } = answer as NodeAnswer;
    const label = (state: Step["state"]) => (state === "stops" ? "STOPS" : state.padEnd(5));
    const lines = [
      `${verdictText(reachable, steps)} ${did}${reachable ? "" : " now"}.`,
      ...steps.map(({ what, state, detail }) => `${label(state)}  ${what}: ${detail}`),
      `In the log: ${digest}`,
      ...(results.length === 0 ? ["No result since the start of the process."] : ["Last results:"]),
      ...results.map(renderResult),
    ];
    session.report.result(answer, lines.map(printable).join("\n"));
  });
}

function verdictText(reachable: boolean, steps: readonly Step[]): string {
  if (reachable) return "This node takes envelopes to";
  const isRefused = steps.some(({ state }) => state === "stops");
  return isRefused ? "This node refuses envelopes to" : "This node brings no envelope to";
}

function renderResult(result: NodeAnswer["results"][number]): string {
  const { time, status, route, message_id: id, sender, code, detail } = result;
  const of = sender === null ? "unsigned" : `of ${sender}`;
  const outcome = [code, detail].filter((text) => text !== null).join(": ");
  return `${time}  ${status}  ${route}  ${id} ${of}  ${outcome}`;
}
