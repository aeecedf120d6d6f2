/**
 * Helpers of the tests of drivers: options as the plugin's own schema parses them, and capabilities
 * with replaced methods.
 */
import type { Capabilities, StoragePlugin } from "../../src/storage/contract.ts";
import { capabilityMethods } from "./methods.ts";

export function optionsOf<Options>(plugin: StoragePlugin<Options>, input: unknown): Options {
  const parsed = plugin.parseOptions(input);
  if (!parsed.ok)
    throw new Error(
      parsed.problems.map(({ setting, message }) => `${setting}: ${message}`).join("; "),
    );
  return parsed.options;
}

/** The capability, which may be an instance of a class, with some of its methods replaced. */
export function withMethods<Name extends "mailbox" | "replay" | "receipts">(
  name: Name,
  real: NonNullable<Capabilities[Name]>,
  replaced: Partial<NonNullable<Capabilities[Name]>>,
): NonNullable<Capabilities[Name]> {
  const bound = Object.keys(capabilityMethods[name]).map((method) => {
    const operation: unknown = Reflect.get(real, method);
    return [method, typeof operation === "function" ? operation.bind(real) : operation];
  });
  return { ...(Object.fromEntries(bound) as typeof real), ...replaced };
}
