/**
 * The settings as text: the reference in `docs/operating.md` and the effective values of `config show`,
 * both made from the schema, so that they can't say anything else.
 */

import { renderDurationSetting, renderSizeSetting } from "./forms.ts";
import { type Config, configSchema } from "./schema.ts";

export type Setting = {
  readonly section: string;
  readonly name: string;
  readonly doc: string;
  readonly form: "duration" | "size" | "plain";
  /** As it would be written in the file; `null` when there is none. */
  readonly defaultText: string | null;
};

/** What is read from a zod schema here; nothing else of its inside is relied on. */
type Described = {
  readonly meta: () => { readonly description?: string; readonly form?: string } | undefined;
  readonly _zod: { readonly def: { readonly type: string; readonly defaultValue?: unknown } };
};
type Section = Described & { readonly unwrap: () => { readonly shape: Readonly<Record<string, Described>> } };

const sectionNames = ["server", "bus", "limits", "directory", "relay", "cache"] as const;

export function listSettings(): Setting[] {
  return sectionNames.flatMap((section) => {
    const { shape } = (configSchema.shape[section] as Section).unwrap();
    return Object.entries(shape).map(([name, schema]) => describeSetting(section, name, schema));
  });
}

function describeSetting(section: string, name: string, schema: Described): Setting {
  const { description = "", form } = schema.meta() ?? {};
  const value = schema._zod.def.type === "prefault" ? schema._zod.def.defaultValue : undefined;
  return {
    section,
    name,
    doc: description,
    form: form === "duration" || form === "size" ? form : "plain",
    defaultText: value === undefined || value === null ? null : JSON.stringify(value),
  };
}

/** The table of one section after the other, in Markdown. */
export function renderReference(): string {
  const settings = listSettings();
  const sections = sectionNames.map((section) => {
    const rows = settings
      .filter((setting) => setting.section === section)
      .map(
        ({ name, doc, defaultText }) =>
          `| \`${name}\` | ${defaultText === null ? "none" : `\`${defaultText}\``} | ${doc} |`,
      );
    return [`### \`[${section}]\``, "", "| setting | default | meaning |", "|---|---|---|", ...rows, ""].join("\n");
  });
  return sections.join("\n");
}

/** Every setting with the value that holds, defaults included, as a file that says the same. */
export function renderEffective(config: Config): string {
  const settings = listSettings();
  const sections = sectionNames.map((section) => {
    const values = config[section] as Readonly<Record<string, unknown>>;
    const lines = settings
      .filter((setting) => setting.section === section)
      .map((setting) => renderLine(setting, values[setting.name]));
    return [`[${section}]`, ...lines, ""].join("\n");
  });
  const stores = Object.entries(config.stores).map(([name, options]) => {
    const lines = Object.entries(options).map(([key, value]) => `${key} = ${JSON.stringify(value)}`);
    return [`[stores.${name}]`, ...lines, ""].join("\n");
  });
  return [...sections, ...stores].join("\n");
}

function renderLine(setting: Setting, value: unknown): string {
  if (value === null) return `# ${setting.name} is not set`;
  if (setting.form === "duration" && typeof value === "number")
    return `${setting.name} = "${renderDurationSetting(value)}"`;
  if (setting.form === "size" && typeof value === "number") return `${setting.name} = "${renderSizeSetting(value)}"`;
  return `${setting.name} = ${JSON.stringify(value)}`;
}
