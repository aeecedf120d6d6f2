/**
 * What several drivers share: how options are parsed and their problems reported, the bounds of texts and values that
 * the contract states, and the embedded ledger over a driver's table.
 * The operator account of an embedded ledger is drawn once and kept in its table. It signs nothing, since the
 * driver itself is the authority that a chain would be.
 */
import type { z } from "zod";
import { type InputProblem, StoreError } from "../storage/contract.ts";
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

/** What a new ledger has: its head, its operator, its genesis and the first batch of its log. */
const freshRecordsMax = 7;

/** Writes the pairs of an exported ledger over the table of a new one. Throws `unavailable` when it is in use. */
export function ledgerImport(table: Table): (pairs: readonly (readonly [string, Uint8Array])[]) => Promise<void> {
  let isBegun = false;
  return async (pairs) => {
    const fresh = isBegun ? [] : table.range("", { limit: freshRecordsMax + 1 });
    if (fresh.length > freshRecordsMax) {
      throw new StoreError("unavailable", "the ledger is not empty: import into a new store");
    }
    isBegun = true;
    await table.commit((view) => {
      for (const [key] of fresh) view.remove(key);
      for (const [key, value] of pairs) view.put(key, value);
    });
  };
}
