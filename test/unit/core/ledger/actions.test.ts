/** The table of actions and the documents that list it say the same. */
import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { actionNames, actionRows, isDocumentAction } from "../../../../src/core/ledger/actions.ts";
import { fillPath, memberOf } from "../../../../src/core/ledger/intents.ts";
import { componentOf } from "../../../../src/core/ledger/key-proof.ts";

const page = (name: string) =>
  readFileSync(new URL(`../../../../docs/${name}`, import.meta.url), "utf8").split("\n");
const interfaceRows = page("interface.md");
const ledgerRows = page("ledger.md");

describe("docs/interface.md has the route of", () => {
  test.each(actionNames)("%s", (action) => {
    const { route, items } = actionRows[action];
    const path = route.path.replace(/:([A-Za-z]+)/g, "{$1}");
    const line = interfaceRows.find((text) =>
      text.startsWith(`| ${route.method} | \`${path}\` | \`${action}\``),
    );
    expect(line).toBeDefined();
    for (const item of items) expect(line).toContain(`\`${memberOf(item)}\``);
  });
});

describe("docs/ledger.md has the discriminant of", () => {
  const names = actionNames.filter((name) => actionRows[name].discriminant !== null);
  test.each(names)("%s", (name) => {
    const { counter, discriminant } = actionRows[name];
    if (counter === "document") {
      const numbers = ledgerRows
        .filter((text) => text.includes(name))
        .flatMap((text) => text.match(/\b\d+\b/g) ?? []);
      return expect(numbers).toContain(String(discriminant));
    }
    // `add_alias` is `Add` there, `delete_did` is `DeleteDid`.
    const structure = counter === "alias" ? "AliasAction" : "ControlAction";
    const words = name.split("_").map((word) => `${word.charAt(0).toUpperCase()}${word.slice(1)}`);
    const variant = counter === "alias" ? words[0] : words.join("");
    const line = ledgerRows.find((text) => text.startsWith(`- **${structure}**`)) ?? "";
    expect(line).toMatch(new RegExp(`\\b${variant} ${discriminant}\\b`));
  });
});

test("the names of component calls say what they do", () => {
  const verbs = { POST: "Add", PUT: "Update", PATCH: "Update", DELETE: "Remove" };
  for (const name of actionNames.filter(isDocumentAction)) {
    const { items, route } = actionRows[name];
    const { verb, list } = componentOf(name);
    expect(verb).toBe(verbs[route.method]);
    expect(items).toEqual([verb === "Remove" || list === "authentication" ? "id" : list]);
  }
});

test("no two actions share a route, a discriminant of one structure, or a call other than that of control actions", () => {
  const rows = Object.values(actionRows);
  const routes = rows.map(({ route }) => `${route.method} ${fillPath(route.path)}`);
  expect(new Set(routes).size).toBe(routes.length);
  const bytes = rows.map(({ counter, discriminant }) => `${counter} ${discriminant}`);
  expect(new Set(bytes).size).toBe(rows.length);
  const calls = rows
    .filter(({ counter }) => counter !== "control")
    .map(({ callIndex }) => callIndex);
  expect(new Set(calls).size).toBe(calls.length);
});
