/**
 * The text of something that was thrown, which need not be an `Error`.
 */

/** Its message alone: for operators, in a sentence that says what failed. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** With its stack where there is one: for logs of bugs. */
export function errorStack(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
