/**
 * Which settings a running process takes over from a changed file, and how. Nodes hold the sections of the
 * configuration and read a setting where they use it; so taking over a setting is writing it into the
 * section that everybody holds. All other settings shape listeners, stores or tables that are made once.
 */
import { figures } from "./figures.ts";
import { listSettings } from "./reference.ts";
import type { Config, SectionName } from "./schema.ts";

type ReloadableSettings = { readonly [Name in SectionName]?: readonly (keyof Config[Name] & string)[] };

const admissionLists = [
  "require_sender_signature",
  "allow_recipients",
  "deny_recipients",
  "allow_senders",
  "deny_senders",
] as const;

/** `test/http/reload.test.ts` changes every one of them on a running node. */
export const reloadable: ReloadableSettings = {
  server: ["log_level", "trusted_proxies", "tls_cert_file", "tls_key_file"],
  relay: admissionLists,
  cache: admissionLists,
};

export type ReloadPlan = {
  /** Settings that change now, as `section.name`. */
  readonly changed: readonly string[];
  /** Settings that differ and need a restart. */
  readonly needsRestart: readonly string[];
};

/** Compares two configurations; changes nothing. */
export function decideReload(current: Config, next: Config): ReloadPlan {
  const changed: string[] = [];
  const needsRestart: string[] = [];
  for (const { section, name } of listSettings()) {
    const names: readonly string[] = reloadable[section] ?? [];
    const [before, after] = [current, next].map((config): unknown => Reflect.get(config[section], name));
    if (JSON.stringify(before) === JSON.stringify(after)) continue;
    const isTaken = names.includes(name) && !(name.startsWith("tls_") && [before, after].includes(null));
    (isTaken ? changed : needsRestart).push(`${section}.${name}`);
  }
  if (JSON.stringify(current.stores) !== JSON.stringify(next.stores)) needsRestart.push("stores");
  return { changed, needsRestart };
}

/** Writes the settings of `plan.changed`, and the figures that follow from them, into the sections that nodes hold. */
export function applyReload(current: Config, next: Config, plan: ReloadPlan): void {
  for (const setting of plan.changed) {
    const [section, name] = setting.split(".") as [SectionName, string];
    Reflect.set(current[section], name, Reflect.get(next[section], name));
    for (const figure of Object.keys(Reflect.get(figures, section) ?? {}))
      Reflect.set(current[section], figure, Reflect.get(next[section], figure));
  }
}
