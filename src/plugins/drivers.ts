/**
 * What several drivers share: how options are parsed and their problems reported, the bounds of texts and values that
 * the contract states, and the embedded ledger over a driver's table.
 * The operator account of an embedded ledger is drawn once and kept in its table. It signs nothing, since the
 * driver itself is the authority that a chain would be.
 */
import type { z } from "zod";
import type { InputProblem } from "../storage/contract.ts";
import { type EmbeddedLedger, type EmbeddedOptions, openEmbeddedLedger } from "../storage/embedded.ts";
import { describeFinding, firstFindings, meant, problemsOfIssue } from "../storage/setting-problem.ts";
import type { SharedTable, Table } from "../storage/table.ts";

// ----------------------------------------------------------------------------------------- options and bounds

export type ParsedOptions<Options> =
  | { readonly ok: true; readonly options: Options }
  | { readonly ok: false; readonly problems: InputProblem[] };

export function parseWith<Schema extends z.ZodType>(schema: Schema, input: unknown): ParsedOptions<z.output<Schema>> {
  const parsed = schema.safeParse(input ?? {}, { error: describeFinding });
  return parsed.success
    ? { ok: true, options: parsed.data }
    : { ok: false, problems: firstFindings(parsed.error.issues).flatMap(problemsOfIssue).map(withMeant(schema)) };
}

/** Names the option that was probably meant. */
function withMeant(schema: z.ZodType): (problem: InputProblem) => InputProblem {
  const known = "shape" in schema ? Object.keys(schema.shape as object) : [];
  return (problem) =>
    problem.message === "unknown setting"
      ? { ...problem, message: `unknown setting${meant(problem.setting, known)}` }
      : problem;
}

const textLengthMax = 512;
const receiptBytesMax = 64 * 1024;

/** A breach is a mistake of the caller, not a refusal. */
export function checkText(name: string, text: string): void {
  if (text.length === 0 || text.length > textLengthMax) {
    throw new RangeError(`a ${name} has 1 to ${textLengthMax} characters`);
  }
}

export function checkReceipt(key: string, value: Uint8Array): void {
  checkText("key", key);
  if (value.length > receiptBytesMax) throw new RangeError(`a receipt has at most ${receiptBytesMax} bytes`);
}

/** Whether a receipt's key is among those that `scan` finds. */
export const isScanned = (key: string): boolean => key.startsWith("/");

export function checkPrefix(prefix: string): void {
  checkText("prefix", prefix);
  if (!isScanned(prefix)) throw new RangeError("a prefix begins with a slash");
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

// -------------------------------------------------------------------------------------------- embedded ledger

/** No record of the ledger begins with this letter sequence. */
const operatorKey = "driver/operator";

export async function openLedger(
  table: Table | SharedTable,
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
