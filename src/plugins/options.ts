/**
 * What the drivers' option schemas share: how problems are reported, and the bounds of texts and values
 * that the contract states.
 */
import type { z } from "zod";
import type { InputProblem } from "../storage/contract.ts";
import { describeFinding, problemsOfIssue } from "../storage/setting-problem.ts";

export type ParsedOptions<Options> =
  | { readonly ok: true; readonly options: Options }
  | { readonly ok: false; readonly problems: InputProblem[] };

export function parseWith<Schema extends z.ZodType>(schema: Schema, input: unknown): ParsedOptions<z.output<Schema>> {
  const parsed = schema.safeParse(input ?? {}, { error: describeFinding });
  return parsed.success
    ? { ok: true, options: parsed.data }
    : { ok: false, problems: parsed.error.issues.flatMap(problemsOfIssue) };
}

export const textLengthMax = 512;
export const receiptBytesMax = 64 * 1024;

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
