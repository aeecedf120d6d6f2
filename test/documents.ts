/**
 * The contract in docs/ against the program: every code and every route is in `docs/interface.md`, every citation in
 * the source has its heading or entry, and every decision has one number.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { describeFault, faultCodes } from "../src/core/fault.ts";
import type { InterfaceDescription } from "../src/nodes/http/openapi.ts";
import { startTestNodes, type TestNodes } from "./support/nodes.ts";

const root = `${import.meta.dir}/..`;
const read = (name: string): Promise<string> => Bun.file(`${root}/${name}`).text();
const [rules, decisions, contract, ledger] = await Promise.all(
  ["docs/rules.md", "docs/decisions.md", "docs/interface.md", "docs/ledger.md"].map(read),
).then((texts) => texts as [string, string, string, string]);

/** The text of all comments that cite, with line breaks and comment marks made spaces. */
const sources = await Promise.all(
  [...new Bun.Glob("{src,test,bench}/**/*.{ts,json}").scanSync(root)]
    .filter((name) => !name.includes("node_modules") && !name.endsWith("documents.ts"))
    .sort()
    .map(async (name) => ({ name, text: (await read(name)).replace(/\s*\n\s*(?:\*|\/\/)? ?/g, " ") })),
);

const headings = (text: string): string[] => [...text.matchAll(/^#{1,4} (.+)$/gm)].map((m) => m[1] as string);
const numbersOf = (text: string): Set<string> =>
  new Set(headings(text).flatMap((heading) => /^(\d+(?:\.\d+)?)\.? /.exec(heading)?.[1] ?? []));

/** Every match of a pattern in every source, with where it stands. */
function cited(pattern: RegExp): { readonly at: string; readonly match: RegExpExecArray }[] {
  return sources.flatMap(({ name, text }) => [...text.matchAll(pattern)].map((match) => ({ at: name, match })));
}

const list = String.raw`\d+(?:\.\d+)?(?: \((?:[^()]|\([^()]*\))*\)| "[^"]*")?`;
const listed = (before: string): RegExp => new RegExp(`${before} ((?:${list}(?:, | and | to )?)+)`, "g");
const withoutWords = (text: string): string => text.replace(/\((?:[^()]|\([^()]*\))*\)|"[^"]*"/g, "");

describe("docs/interface.md", () => {
  test("has every code of the catalogue with its status", () => {
    for (const code of faultCodes) expect(contract).toContain(`| ${describeFault(code).status} | \`${code}\` |`);
  });

  test("has no code that the catalogue lacks", () => {
    const rows = [...contract.matchAll(/^\| \d{3} \| `(\w+)` \|/gm)].map((m) => m[1] as string);
    expect(rows).toEqual([...faultCodes]);
  });

  describe("and the running composition", () => {
    let nodes: TestNodes;
    let routes: string[];
    beforeAll(async () => {
      nodes = await startTestNodes();
      const description = (await (await fetch(`${nodes.url}/openapi.json`)).json()) as InterfaceDescription;
      routes = Object.entries(description.paths).flatMap(([path, methods]) =>
        Object.keys(methods).map((method) => anonymous(`${method.toUpperCase()} ${path}`)),
      );
    });
    afterAll(() => nodes.stop());

    /** Names of path values may differ. */
    const anonymous = (route: string): string => route.replace(/\{[^}]+\}/g, "{}");
    const tabled = [...contract.matchAll(/^\| (GET|POST|PUT|PATCH|DELETE) \| `([^`]+)` \|/gm)].map((m) =>
      anonymous(`${m[1]} ${m[2]}`),
    );

    test("agree on every route", () => {
      expect(routes.length).toBeGreaterThan(40);
      // Live sessions are no route: the listener takes them before.
      expect(tabled.filter((route) => route !== "GET /ws/{}/{}").sort()).toEqual([...routes].sort());
      expect(tabled).toContain("GET /ws/{}/{}");
    });
  });
});

describe("docs/decisions.md", () => {
  const numbers = [...decisions.matchAll(/^\*\*((?:D\d+)(?:, D\d+)*)\./gm)].flatMap((m) =>
    (m[1] as string).split(", "),
  );

  test("gives each decision one number of its own", () => {
    expect(numbers.length).toBeGreaterThan(40);
    expect(new Set(numbers).size).toBe(numbers.length);
    // Every entry begins so: nothing stands between them without a number.
    expect(decisions.match(/^(?!#|\*\*D\d|$).+/gm)?.length).toBe(1);
  });

  test("has every entry that the source and the other documents name", () => {
    const known = new Set(numbers);
    const named = [
      ...cited(/\bD\d{1,3}\b/g),
      ...[rules, contract, ledger].flatMap((text) =>
        [...text.matchAll(/\(D\d+\)/g)].map((match) => ({ at: "docs", match })),
      ),
    ];
    expect(named.length).toBeGreaterThan(20);
    for (const { at, match } of named) {
      const number = match[0].replace(/[()]/g, "");
      expect([at, number, known.has(number)]).toEqual([at, number, true]);
    }
  });
});

describe("docs/rules.md", () => {
  test("has the ten sections, in order", () => {
    expect([...numbersOf(rules)]).toEqual(["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
  });

  test("has every section that the source cites", () => {
    const sections = numbersOf(rules);
    const citations = cited(listed("rules sections?"));
    expect(citations.length).toBeGreaterThan(80);
    for (const { at, match } of citations)
      for (const [number] of withoutWords(match[1] as string).matchAll(/\d+(?:\.\d+)?/g))
        expect([at, number, sections.has(number)]).toEqual([at, number, true]);
  });

  test("has every title that the source cites by name", () => {
    const titles = new Set([...rules.matchAll(/^- \*\*(.+?)\*\*/gm)].map((m) => (m[1] as string).replace(/\.$/, "")));
    for (const name of ["JSON bounds", "Streams", "Wake hook"]) expect(titles).toContain(name);
    for (const { at, match } of cited(/docs\/rules\.md` \("([^"]+)"\)/g))
      expect([at, match[1], titles.has(match[1] as string)]).toEqual([at, match[1], true]);
  });

  test("speaks of everything that the source names beside a section", () => {
    const said = rules.toLowerCase();
    for (const { at, match } of cited(listed("rules sections?")))
      for (const [, words] of (match[1] as string).matchAll(/"([^"]+)"/g)) {
        const named = (words as string).replace(/, …$/, "").toLowerCase();
        expect([at, named, said.includes(named)]).toEqual([at, named, true]);
      }
  });
});

describe("docs/ledger.md", () => {
  test("has every section that the source cites", () => {
    const sections = numbersOf(ledger);
    for (const { at, match } of cited(listed(String.raw`docs/ledger\.md`)))
      for (const [number] of withoutWords(match[1] as string).matchAll(/\d+(?:\.\d+)?/g))
        expect([at, number, sections.has(number)]).toEqual([at, number, true]);
  });
});

describe("the documents among each other", () => {
  test("refer to sections and titles that exist", () => {
    const [inRules, inLedger] = [numbersOf(rules), numbersOf(ledger)];
    for (const text of [rules, decisions, contract, ledger]) {
      for (const [, number] of text.matchAll(/`ledger\.md` (\d+(?:\.\d+)?)/g))
        expect(inLedger).toContain(number as string);
      for (const [, number] of text.matchAll(/`rules\.md` section (\d+)/g)) expect(inRules).toContain(number as string);
      for (const [, title] of text.matchAll(/`interface\.md`, "([^"]+)"/g))
        expect(headings(contract)).toContain(title as string);
    }
  });

  test("keep the titles of the interface that the source cites", () => {
    const said = contract.replaceAll("`", "");
    const citations = cited(/[Ii]nterface,? ("[^"]+"(?:(?:, | and | to )"[^"]+")*)/g);
    expect(citations.length).toBeGreaterThan(20);
    for (const { at, match } of citations)
      for (const [, title] of (match[1] as string).matchAll(/"([^"]+)"/g))
        expect([at, title, said.includes(title as string)]).toEqual([at, title, true]);
  });
});
