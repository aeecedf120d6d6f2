/**
 * What several drivers share: how options are parsed and their problems reported, and the embedded
 * ledger over a driver's table.
 * The operator account of an embedded ledger is drawn once and kept in its table. It signs nothing,
 * since the driver itself is the authority that a chain would be.
 */
import { z } from "zod";
import {
  type EmbeddedLedger,
  type EmbeddedOptions,
  openEmbeddedLedger,
} from "../../storage/embedded.ts";
import {
  type InputProblem,
  meant,
  type ParsedOptions,
  parseSizeSetting,
  problemsOfIssue,
  renderSizeSetting,
  wording,
} from "../../storage/setting-problem.ts";
import type { OrderedTable, SharedTable } from "../../storage/table.ts";

// ----------------------------------------------------------------------------------------- options

export function parseWith<Schema extends z.ZodType>(
  schema: Schema,
  input: unknown,
): ParsedOptions<z.output<Schema>> {
  const parsed = schema.safeParse(input ?? {}, wording);
  return parsed.success
    ? { ok: true, options: parsed.data }
    : { ok: false, problems: parsed.error.issues.flatMap(problemsOfIssue).map(withMeant(schema)) };
}

/** Bytes, written as a number or as text with a unit: `256MiB`. */
export function sizeOption(standard: number, min: number) {
  const transform = (value: unknown, context: z.RefinementCtx): number => {
    const parsed = parseSizeSetting(value);
    if (parsed !== null && parsed >= min) return parsed;
    context.addIssue(
      parsed === null
        ? 'must be a size such as "25MiB" or a number of bytes'
        : `must be at least ${renderSizeSetting(min)}`,
    );
    return z.NEVER;
  };
  return z
    .unknown()
    .transform(transform)
    .prefault(renderSizeSetting(standard))
    .meta({
      type: ["string", "integer"],
      pattern: "^[0-9]+(B|KiB|MiB|GiB|TiB)$",
      minimum: min,
    });
}

/** Names the option that was probably meant. */
function withMeant(schema: z.ZodType): (problem: InputProblem) => InputProblem {
  const known = "shape" in schema ? Object.keys(schema.shape as object) : [];
  return (problem) =>
    problem.message === "unknown setting"
      ? { ...problem, message: `unknown setting${meant(problem.setting, known)}` }
      : problem;
}

/** The first key after all that begin with the prefix, or `null` when there is none. */
export function endOfPrefix(prefix: Buffer): Buffer | null {
  const end = Buffer.from(prefix);
  for (let i = end.length - 1; i >= 0; i--) {
    if (end[i] === 0xff) continue;
    end[i] = end[i]! + 1;
    return end.subarray(0, i + 1);
  }
  return null;
}

// --------------------------------------------------------------------------------- embedded ledger

/** No record of the ledger begins with this letter sequence. */
const operatorKey = "driver/operator";

export async function openLedger(
  table: OrderedTable | SharedTable,
  blockTimeMs: number,
  environment: Pick<EmbeddedOptions, "now" | "log" | "checkRoom">,
): Promise<EmbeddedLedger> {
  const operator = await table.commit((view) => {
    const known = view.get(operatorKey);
    if (known !== null) return known;
    const drawn = crypto.getRandomValues(new Uint8Array(32));
    view.put(operatorKey, drawn);
    return drawn;
  });
  return openEmbeddedLedger({ ...environment, table, blockTimeMs, operator });
}
