/**
 * The settings as text, rendered from the schema: the reference in `docs/settings.md`, the effective values
 * of `config show`, and the JSON Schema that editors use.
 */
import { z } from "zod";

import {
  type Config,
  configSchema,
  renderDurationSetting,
  renderSizeSetting,
  type SectionName,
  sectionNames,
} from "./schema.ts";

type Setting = {
  readonly section: SectionName;
  readonly name: string;
  readonly doc: string;
  readonly form: "duration" | "size" | "plain";
  /** As it would be written in the file; `null` when there is none. */
  readonly defaultText: string | null;
};

/** The members of a zod schema that are read here. */
type Described = {
  readonly meta: () => { readonly description?: string; readonly form?: string } | undefined;
  readonly _zod: { readonly def: { readonly type: string; readonly defaultValue?: unknown } };
};
type Shape = { readonly shape: Readonly<Record<string, Described>> };
/** A section, or one whose constants are put beside its settings. */
type Section = Described & { readonly unwrap: () => Shape | { readonly in: Shape } };

export function listSettings(): Setting[] {
  return sectionNames.flatMap((section) => {
    const inner = (configSchema.shape[section] as Section).unwrap();
    const { shape } = "in" in inner ? inner.in : inner;
    return Object.entries(shape).map(([name, schema]) => describeSetting(section, name, schema));
  });
}

function describeSetting(section: SectionName, name: string, schema: Described): Setting {
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

/** Every setting with the value that holds, defaults included, as a file with the same values. */
export function renderEffective(config: Config): string {
  const settings = listSettings();
  const sections = sectionNames.map((section) => {
    const values = config[section] as Readonly<Record<string, unknown>>;
    const lines = settings
      .filter((setting) => setting.section === section)
      .map((setting) => renderLine(setting, values[setting.name]));
    const ofDriver = section === "bus" ? optionLines(config.bus, ["plugin"]) : [];
    return [`[${section}]`, ...lines, ...ofDriver, ""].join("\n");
  });
  const stores = Object.entries(config.stores).map(([name, options]) => {
    return [`[stores.${name}]`, ...optionLines(options, []), ""].join("\n");
  });
  return [...sections, ...stores].join("\n");
}

function optionLines(options: Readonly<Record<string, unknown>>, except: readonly string[]): string[] {
  const own = Object.entries(options).filter(([key]) => !except.includes(key));
  return own.map(([key, value]) => `${key} = ${JSON.stringify(value)}`);
}

function renderLine(setting: Setting, value: unknown): string {
  if (value === null) return `# ${setting.name} is not set`;
  if (setting.form === "duration" && typeof value === "number")
    return `${setting.name} = "${renderDurationSetting(value)}"`;
  if (setting.form === "size" && typeof value === "number") return `${setting.name} = "${renderSizeSetting(value)}"`;
  return `${setting.name} = ${JSON.stringify(value)}`;
}

/** JSON Schema of the file (draft 2020-12). Options of a store belong to its plugin and are not described here. */
export function renderJsonSchema(): string {
  const schema = z.toJSONSchema(configSchema, {
    io: "input",
    unrepresentable: "any",
    override: ({ zodSchema, jsonSchema }) => {
      const { form } = z.globalRegistry.get(zodSchema) ?? {};
      if (form === "duration") Object.assign(jsonSchema, { type: "string", pattern: "^([0-9]+(ms|[smhdw]))+$" });
      if (form === "size") Object.assign(jsonSchema, { type: ["string", "integer"], pattern: sizePattern, minimum: 0 });
      Reflect.deleteProperty(jsonSchema, "form");
    },
  });
  return JSON.stringify({ title: "Waypost configuration", ...schema }, null, 2);
}

const sizePattern = "^[0-9]+(B|KiB|MiB|GiB|TiB)$";
