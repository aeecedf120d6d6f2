/**
 * JSON pointers (RFC 6901): where in a body something stands.
 */

/** The pointer to the value that the names and list indices lead to; none is the whole document, "". */
export function jsonPointer(...steps: readonly (string | number)[]): string {
  return steps.map((step) => `/${typeof step === "number" ? step : escapeName(step)}`).join("");
}

function escapeName(name: string): string {
  return name.replaceAll("~", "~0").replaceAll("/", "~1");
}
