/**
 * What the drivers' option schemas share: how problems are told, and the bounds of texts and values
 * that the contract states.
 */
import type { z } from "zod";
import type { InputProblem } from "../storage/contract.ts";

export function problemsOf(error: z.ZodError): InputProblem[] {
  return error.issues.flatMap((issue) => {
    const at = issue.path.map(String).join(".");
    if (issue.code !== "unrecognized_keys") return [{ setting: at, message: issue.message }];
    return issue.keys.map((key) => ({ setting: at === "" ? key : `${at}.${key}`, message: "unknown setting" }));
  });
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
