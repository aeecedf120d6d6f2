/**
 * What is left of a file when the settings that are wrong are taken out of it. The rest is looked at as
 * well, so that one run tells everything that is wrong; what would only be found because of a setting
 * that was taken out is not told.
 */
import type { InputProblem } from "../storage/contract.ts";

type Path = readonly PropertyKey[];

/** Stands where a store names no plugin: a store that others may refer to must not seem to be missing. */
const unknownPlugin = "(unknown)";

/** A copy of `input` without what `paths` point at. Inside a section a setting goes as a whole. */
export function withoutWrong(input: unknown, paths: readonly Path[]): unknown {
  const copy: unknown = structuredClone(input);
  if (!isTable(copy)) return {};
  for (const [section, name, ...inner] of paths.map((path) => path.map(String))) {
    if (section === undefined) continue;
    const table = copy[section];
    if (name === undefined || !isTable(table)) delete copy[section];
    else if (section !== "stores") delete table[name];
    else if (inner.length === 0 && isTable(table[name])) delete table[name];
    else table[name] = { ...(isTable(table[name]) ? table[name] : {}), plugin: unknownPlugin };
  }
  return copy;
}

/** Whether a setting is one of those that were told already, a part of one, or holds one. */
export function isTold(setting: string, told: readonly InputProblem[]): boolean {
  return told.some((one) => {
    const [longer, shorter] = one.setting.length > setting.length ? [one.setting, setting] : [setting, one.setting];
    return longer === shorter || longer.startsWith(`${shorter}.`);
  });
}

function isTable(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
