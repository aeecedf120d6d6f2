/**
 * The settings as text: the reference in the documentation, the effective values, and the JSON
 * Schema of editors.
 */
import { describe, expect, test } from "bun:test";
import { z } from "zod";
import { parseConfig } from "../../../src/config/config.ts";
import {
  listSettings,
  renderEffective,
  renderJsonSchema,
  renderReference,
} from "../../../src/config/reference.ts";
import { natsOptions } from "../../../src/plugins/bus/nats.ts";
import { optionSchemas } from "../../../src/plugins/load.ts";

const file = `
[stores.main]
plugin = "memory"
[directory]
enabled = true
[cache]
enabled = true
public_endpoints = ["https://cache.example.org"]
`;

describe("the JSON Schema", () => {
  const schema = JSON.parse(
    renderJsonSchema({ stores: optionSchemas, bus: { nats: natsOptions } }),
  );
  const read = z.fromJSONSchema(schema);
  const holds = (text: string): boolean => read.safeParse(Bun.TOML.parse(text)).success;

  test("knows every setting and its form", () => {
    for (const { section, name, doc } of listSettings()) {
      expect([name, schema.properties[section].properties[name].description]).toEqual([name, doc]);
    }
    expect(schema.properties.server.properties.drain_timeout).toMatchObject({
      type: "string",
      default: "30s",
    });
    expect(schema.properties.limits.properties.body_bytes_max).toMatchObject({
      type: ["string", "integer"],
    });
    expect(schema.properties.server.additionalProperties).toBe(false);
    expect(JSON.stringify(schema)).not.toContain('"form"');
  });

  test.each([
    ['[server]\nlisten = ["127.0.0.1:7400", "unix:/run/w.sock"]', '[server]\nlisten = ["7400"]'],
    [
      '[server]\ntrusted_proxies = ["unix", "10.0.0.0/8", "::1"]',
      '[server]\ntrusted_proxies = ["localhost"]',
    ],
    [
      '[server]\ncors_origins = ["*", "https://a.example"]',
      '[server]\ncors_origins = ["https://a.example/"]',
    ],
    ['[relay]\nallow_private = ["10.0.0.0/8"]', '[relay]\nallow_private = ["home"]'],
    [
      '[relay]\npublic_endpoints = ["https://r.example"]',
      '[relay]\npublic_endpoints = ["ws://r.example"]',
    ],
    ['[server]\nrecipients = "ledger:main"', '[server]\nrecipients = "directory.example"'],
    ['[push]\ncontact = "https://a.example/us"', '[push]\ncontact = "a@a.example"'],
    ['[stores.main]\nplugin = "lmdb"\npath = "d"', '[stores.main]\nplugin = "lmdb"\npth = "d"'],
    [
      '[stores.main]\nplugin = "postgres"\npassword_file = "p"',
      '[stores.main]\nplugin = "postgres"\nurls = "x"',
    ],
    ['[stores.main]\nplugin = "./mine.ts"\nanything = 1', '[stores.main]\npath = "d"'],
    [
      '[bus]\nplugin = "nats"\nservers = ["nats://h:4222"]\ntoken_file = "t"',
      '[bus]\nserver = "nats://h:4222"',
    ],
  ])("takes %j and refuses %j", (right, wrong) =>
    expect([holds(right), holds(wrong)]).toEqual([true, false]),
  );

  test("is the one beside the examples, which name it and hold to it", async () => {
    const examples = `${import.meta.dir}/../../../examples`;
    expect(JSON.parse(await Bun.file(`${examples}/waypost.schema.json`).text())).toEqual(schema);
    const files = [...new Bun.Glob("**/*.toml").scanSync({ cwd: examples })];
    expect(files.length).toBeGreaterThan(5);
    for (const file of files) {
      const text = await Bun.file(`${examples}/${file}`).text();
      const path = `${"../".repeat(file.split("/").length - 1)}waypost.schema.json`;
      expect([file, text.split("\n")[0], holds(text)]).toEqual([file, `#:schema ${path}`, true]);
    }
  });
});

describe("what is said about settings", () => {
  test("every setting has a text, and a default where it is not null", () => {
    for (const setting of listSettings()) {
      expect(setting.doc.endsWith(".")).toBe(true);
      expect(setting.section).not.toBe("");
    }
    expect(listSettings().find((one) => one.name === "body_bytes_max")?.defaultText).toBe(
      '"25MiB"',
    );
  });

  test("the effective configuration reads back as itself", () => {
    const first = parseConfig(file);
    if (!first.ok) throw new Error("the file is good");
    const text = renderEffective(first.config);
    expect(text).toContain('drain_timeout = "30s"');
    expect(text).not.toContain("body_deadline");
    expect(parseConfig(text)).toMatchObject({ ok: true, config: first.config });
  });

  test("there are at most 75 settings", () => {
    expect(listSettings().length).toBeLessThanOrEqual(75);
  });

  test("docs/settings.md lists exactly the settings of the schema", async () => {
    const page = await Bun.file(`${import.meta.dir}/../../../docs/settings.md`).text();
    const [written, printed] = [
      partOf(page, "### `[server]`", "### `[stores.<name>]`"),
      renderReference().split("\n"),
    ];
    // First what differs, because a failed comparison of the whole prints both.
    const missing = printed.filter((line) => !written.includes(line));
    const outdated = written.filter((line) => !printed.includes(line));
    expect({ missing, outdated }).toEqual({ missing: [], outdated: [] });
    expect(page.includes(renderReference())).toBe(true);
  });

  test("it has the options of a tier, by which members are given limits", () => {
    const rows = partOf(`${renderReference()}### end`, "### `[tiers.<name>]`", "### end");
    for (const name of ["recipient_entries_max", "recipient_bytes_max", "recipient_rate"])
      expect(rows.some((row) => row.startsWith(`| \`${name}\` |`))).toBe(true);
  });
});

function partOf(page: string, from: string, to: string): string[] {
  return page.slice(page.indexOf(from), page.indexOf(to)).split("\n");
}
