/**
 * Which settings a running process takes over from a changed file, and how. Nodes hold the sections of the
 * configuration and read a setting where they use it; so taking over a setting is writing it into the
 * section that everybody holds. All other settings shape listeners, stores or tables that are made once.
 */
import { figures } from "./figures.ts";
import { listSettings } from "./reference.ts";
import type { Config, SectionName } from "./schema.ts";

/** What is made once at the start: listeners, stores, the bus, who the nodes are and where they learn and send. */
const fixed: { readonly [Name in SectionName]?: readonly (keyof Config[Name] & string)[] } = {
  server: ["listen", "admin_listen", "share_port", "workers"],
  // A page of a stranger could change policies in the moment between the two.
  directory: ["enabled", "store", "ledger", "unsigned_updates"],
  relay: [
    "enabled",
    "store",
    "recipients",
    "public_id",
    "public_endpoints",
    "allow_http",
    "allow_private",
    "ignore_proxy_variables",
    "destination_requests_max",
  ],
  cache: ["enabled", "store", "recipients", "public_endpoints", "signing_key_file", "wake_url"],
};

/** `test/http/settings.test.ts` sees that a running node reads every one of them again. */
export function isReloadable(section: SectionName, name: string): boolean {
  const names: readonly string[] = fixed[section] ?? [];
  return section !== "bus" && !names.includes(name);
}

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
    const [before, after] = [current, next].map((config): unknown => Reflect.get(config[section], name));
    if (JSON.stringify(before) === JSON.stringify(after)) continue;
    const isTaken = isReloadable(section, name) && !(name.startsWith("tls_") && [before, after].includes(null));
    (isTaken ? changed : needsRestart).push(`${section}.${name}`);
  }
  for (const section of ["stores", "bus"] as const)
    if (JSON.stringify(current[section]) !== JSON.stringify(next[section])) needsRestart.push(section);
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
