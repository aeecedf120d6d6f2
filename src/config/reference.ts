/**
 * The settings as text, rendered from the schema: the reference in `docs/settings.md`, the
 * effective values of `config show`, and the JSON Schema that editors use.
 */
import { z } from "zod";
import { renderSizeSetting } from "../storage/setting-problem.ts";
import { renderDurationSetting } from "./kinds.ts";
import { type Config, configSchema, sectionNames } from "./schema.ts";
import { secretSettings, type TomlTable } from "./source.ts";

/** A JSON Schema, and in `form` the unit of a setting. */
type Json = {
  readonly description?: string;
  readonly default?: unknown;
  readonly form?: string;
  readonly properties?: Readonly<Record<string, Json>>;
  /** Of a table of tables: what each has. */
  readonly additionalProperties?: Json;
};

const jsonSchemaOf = (schema: z.ZodType): Json =>
  z.toJSONSchema(schema, { io: "input", unrepresentable: "any", target: "draft-7" }) as Json;
const described = jsonSchemaOf(configSchema);

const settings = sectionNames.flatMap((section) =>
  Object.entries(described.properties?.[section]?.properties ?? {}).map(([name, json]) => {
    const { description: doc = "", default: value = null, form = "plain" } = json;
    /** As it would be written in the file; `null` when there is none. */
    const defaultText = value === null ? null : JSON.stringify(value);
    return { section, name, doc, form, defaultText };
  }),
);
type Setting = (typeof settings)[number];

export const listSettings = (): readonly Setting[] => settings;

/** The table of one section after the other, in Markdown. */
export function renderReference(): string {
  const sections = sectionNames.map((section) => {
    const rows = settings
      .filter((setting) => setting.section === section)
      .map(
        ({ name, doc, defaultText: text }) =>
          `| \`${name}\` | ${text === null ? "none" : `\`${text}\``} | ${doc} |`,
      );
    return [
      `### \`[${section}]\``,
      "",
      "| setting | default | meaning |",
      "|---|---|---|",
      ...rows,
      "",
    ].join("\n");
  });
  return [...sections, renderTierReference()].join("\n");
}

/** Options of a tier have no default of their own. */
function renderTierReference(): string {
  const options = described.properties?.["tiers"]?.additionalProperties?.properties ?? {};
  const rows = Object.entries(options).map(
    ([name, { description = "" }]) => `| \`${name}\` | ${description} |`,
  );
  return [
    "### `[tiers.<name>]`",
    "",
    "Limits of members to whom `waypost members set-tier` gives this name. What a table lacks is as in `[cache]` and `[relay]`; where the table itself is gone, so is all.",
    "",
    "| option | meaning |",
    "|---|---|",
    ...rows,
    "",
  ].join("\n");
}

/** Every setting with the value that holds, defaults included, as a file with the same values. */
export function renderEffective(config: Config): string {
  const sections = sectionNames.map((section) => {
    const values = config[section] as Readonly<Record<string, unknown>>;
    const lines = settings
      .filter((setting) => setting.section === section)
      .map((setting) => renderLine(setting, values[setting.name]));
    const { plugin: _, ...options } = section === "bus" ? config.bus : { plugin: "" };
    return [`[${section}]`, ...lines, ...optionLines(options), ""].join("\n");
  });
  const stores = Object.entries(config.stores).map(([name, options]) =>
    [`[stores.${name}]`, ...optionLines(options), ""].join("\n"),
  );
  const tiers = Object.entries(config.tiers).map(([name, values]) =>
    [`[tiers.${name}]`, ...optionLines(values), ""].join("\n"),
  );
  return [...sections, ...stores, ...tiers].join("\n");
}

function optionLines(options: Readonly<Record<string, unknown>>): string[] {
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  return given.map(([key, value]) => `${key} = ${JSON.stringify(value)}`);
}

/** As it would be written in the file. */
export function renderValue(form: string, value: unknown): string {
  const render = { duration: renderDurationSetting, size: renderSizeSetting }[form];
  return tomlOf(render !== undefined && typeof value === "number" ? render(value) : value);
}

/** Texts, numbers and lists are written as in JSON; a table in a line of its own form. */
function tomlOf(value: unknown): string {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return JSON.stringify(value);
  const members = Object.entries(value).map(
    ([name, member]) => `${JSON.stringify(name)} = ${tomlOf(member)}`,
  );
  return members.length === 0 ? "{}" : `{ ${members.join(", ")} }`;
}

const renderLine = ({ name, form }: Setting, value: unknown): string =>
  value === null ? `# ${name} is not set` : `${name} = ${renderValue(form, value)}`;

/** The schemas of the options that plugins take, by the name of the plugin. */
type OptionSchemas = {
  readonly stores: Readonly<Record<string, z.ZodType>>;
  readonly bus: Readonly<Record<string, z.ZodType>>;
};

/**
 * JSON Schema of the file, with the options of the plugins. An external plugin's options
 * may be anything.
 */
export function renderJsonSchema(plugins: OptionSchemas): string {
  const json = structuredClone(described) as TomlTable;
  const properties = json["properties"] as Record<string, TomlTable>;
  const own = Object.entries(plugins.stores).map(([plugin, schema]) => ({
    type: "object",
    ...optionsOf(schema, { plugin: { const: plugin } }),
    additionalProperties: false,
    required: ["plugin"],
  }));
  const isModule = { plugin: { type: "string", pattern: "^(\\.{0,2}/|[A-Za-z]:)" } };
  const external = { type: "object", properties: isModule, required: ["plugin"] };
  (properties["stores"] ?? {})["additionalProperties"] = { oneOf: [...own, external] };
  const bus = properties["bus"] ?? {};
  for (const schema of Object.values(plugins.bus))
    Object.assign(bus, optionsOf(schema, bus["properties"] as TomlTable), {
      additionalProperties: false,
    });
  const withoutForms = (key: string, value: unknown) => (key === "form" ? undefined : value);
  return JSON.stringify({ title: "Waypost configuration", ...json }, withoutForms, 2);
}

/**
 * The options of a plugin that are not `others`, and for each secret the one that names its
 * file.
 */
function optionsOf(schema: z.ZodType, others: TomlTable): { readonly properties: TomlTable } {
  const { properties = {} } = jsonSchemaOf(schema);
  const file = { type: "string", description: "File with this secret." };
  const files = secretSettings
    .filter((name) => name in properties)
    .map((name) => [`${name}_file`, file] as const);
  return { properties: { ...others, ...properties, ...Object.fromEntries(files) } };
}
