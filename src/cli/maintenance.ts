/** `waypost maintenance`: has the running node refuse writes for a time, over its Unix socket. */
import type { Command } from "commander";
import { createReport, printable } from "./command.ts";
import { addNodeFlags, askNode, type NodeFlags } from "./operations.ts";

type BeginFlags = NodeFlags & { readonly message?: string };

export function registerMaintenanceCommand(program: Command): void {
  const maintenance = program
    .command("maintenance")
    .description("refuse writes for a time; reads and acknowledgements go on");
  addNodeFlags(
    maintenance
      .command("on")
      .description("refuse writes from the next request on")
      .option("--message <text>", "for members, such as how long it will take"),
  ).action(({ message, ...flags }: BeginFlags) =>
    setMaintenance({ on: true, message: message ?? null }, flags),
  );
  addNodeFlags(maintenance.command("off").description("take writes again")).action(
    (flags: NodeFlags) => setMaintenance({ on: false, message: null }, flags),
  );
}

type Wanted = { readonly on: boolean; readonly message: string | null };

async function setMaintenance(asked: Wanted, flags: NodeFlags): Promise<void> {
  const answer = await askNode(flags, "/operations/maintenance", asked);
  const since = answer["since"];
  const text = since === null ? "writes are taken" : `writes are refused since ${since}`;
  createReport(flags.json === true).result(answer, printable(text));
}
