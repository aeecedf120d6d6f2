/**
 * What an external plugin hands over at run time is checked before anything relies on it, because no
 * type checker saw it beside this program: an older contract, a forgotten method or a missing `await`
 * is reported when the node starts, by the name of the plugin, and not at the first request as a 500.
 */
import { errorText } from "../core/std/error-text.ts";
import type { Capabilities, CapabilityName, InputProblem } from "./contract.ts";

/** What a capability may lack. */
type Optional = "version";

/** Every method of every capability; a method that the contract gains or loses is a type error here. */
export const capabilityMethods = {
  mailbox: { store: 1, list: 1, summary: 1, read: 1, group: 1, message: 1, remove: 1, expire: 1, stats: 1 },
  replay: { claim: 1, expire: 1 },
  receipts: { put: 1, putIfAbsent: 1, get: 1, remove: 1, expire: 1 },
  ledger: {
    head: 1,
    bounds: 1,
    account: 1,
    aliasHolder: 1,
    policy: 1,
    submit: 1,
    submission: 1,
    operator: 1,
    proofs: 1,
  },
} as const satisfies {
  readonly [Name in CapabilityName]: Record<Exclude<keyof NonNullable<Capabilities[Name]>, Optional>, 1>;
};

const capabilityNames = Object.keys(capabilityMethods) as CapabilityName[];

/** What keeps an opened store from being one, or `null`. */
export function storeShapeProblem(opened: unknown): string | null {
  if (!isRecord(opened)) return "open answered no store";
  const missing = ["probe", "close"].find((method) => typeof opened[method] !== "function");
  if (missing !== undefined) return `the store has no ${missing}()`;
  if (typeof opened["plugin"] !== "string") return "the store does not say its plugin";
  const { durability, capabilities } = opened;
  if (durability !== "volatile" && durability !== "committed" && durability !== "flushed") {
    return `the store says durability "${String(durability)}", which is none of volatile, committed and flushed`;
  }
  if (!isRecord(capabilities)) return "the store has no capabilities";
  return capabilityProblem(capabilities);
}

function capabilityProblem(capabilities: { readonly [Name in keyof Capabilities]: unknown }): string | null {
  for (const name of capabilityNames) {
    const capability = capabilities[name];
    if (capability === undefined) continue;
    if (!isRecord(capability)) return `its ${name} is no object`;
    const missing = Object.keys(capabilityMethods[name]).find((method) => typeof capability[method] !== "function");
    if (missing !== undefined) return `its ${name} has no ${missing}()`;
  }
  return null;
}

export type ParsedOptions =
  | { readonly ok: true; readonly options: unknown }
  | { readonly ok: false; readonly problems: InputProblem[] };

/** What `parse` answers; when it throws or answers something else, that is the problem of the whole table. */
export function parsedOptions(parse: () => unknown): ParsedOptions {
  const wrong = (message: string): ParsedOptions => ({ ok: false, problems: [{ setting: "", message }] });
  let answer: unknown;
  try {
    answer = parse();
  } catch (error) {
    return wrong(`parseOptions of the plugin threw: ${errorText(error)}`);
  }
  if (answer instanceof Promise) {
    answer.catch(() => {});
    return wrong("parseOptions of the plugin answered a promise; it must answer at once");
  }
  if (isRecord(answer) && answer["ok"] === true) return { ok: true, options: answer["options"] };
  const problems = isRecord(answer) && answer["ok"] === false ? answer["problems"] : undefined;
  if (Array.isArray(problems) && problems.length > 0 && problems.every(isProblem)) return { ok: false, problems };
  return wrong("parseOptions of the plugin answered neither options nor problems");
}

function isProblem(value: unknown): value is InputProblem {
  return isRecord(value) && typeof value["setting"] === "string" && typeof value["message"] === "string";
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}
