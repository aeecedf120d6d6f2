/** The policy of a log that a person names: whose log it is, and which witnesses must have seen it. Source: docs/trust.md "Log". */
import { readFileSync } from "node:fs";
import { failed } from "../../app/failure.ts";
import { parseLogPolicy } from "../../client/trust/log.ts";
import { errorText } from "../../core/fault.ts";

/** Throws `policy_invalid`. */
export function readPolicy(file: string): string {
  let policy: string;
  try {
    policy = readFileSync(file, "utf8");
  } catch (error) {
    throw failed(`${file} can't be read: ${errorText(error)}`);
  }
  parseLogPolicy(policy);
  return policy;
}
