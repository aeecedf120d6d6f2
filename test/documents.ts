/**
 * The contract in docs/ against the program: every code and every route is in `docs/interface.md`,
 * every citation in the source has its heading or entry, and every decision has one number. What
 * any page names (files, commands, scripts, settings) exists.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { createProgram } from "../src/cli/program.ts";
import { listSettings } from "../src/config/reference.ts";
import { describeFault, faultCodes } from "../src/core/fault.ts";
import type { InterfaceDescription } from "../src/nodes/http/openapi.ts";
import { keyFiles, testKey, vkeyOf } from "./support/logs.ts";
import { startTestNodes, type TestNodes } from "./support/nodes.ts";
import { scratchPaths } from "./support/scratch.ts";

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
    .map(async (name) => ({
      name,
      text: (await read(name)).replace(/\s*\n\s*(?:\*|\/\/)? ?/g, " "),
    })),
);

const headings = (text: string): string[] =>
  [...text.matchAll(/^#{1,4} (.+)$/gm)].map((m) => m[1] as string);
const numbersOf = (text: string): Set<string> =>
  new Set(headings(text).flatMap((heading) => /^(\d+(?:\.\d+)?)\.? /.exec(heading)?.[1] ?? []));

/** Every match of a pattern in every source, with where it stands. */
function cited(pattern: RegExp): { readonly at: string; readonly match: RegExpExecArray }[] {
  return sources.flatMap(({ name, text }) =>
    [...text.matchAll(pattern)].map((match) => ({ at: name, match })),
  );
}

const list = String.raw`\d+(?:\.\d+)?(?: \((?:[^()]|\([^()]*\))*\)| "[^"]*")?`;
const listed = (before: string): RegExp =>
  new RegExp(`${before} ((?:${list}(?:, | and | to )?)+)`, "g");
const withoutWords = (text: string): string =>
  text.replace(/\((?:[^()]|\([^()]*\))*\)|"[^"]*"/g, "");

const pathOf = scratchPaths("documents");
const files = keyFiles();

describe("docs/interface.md", () => {
  test("has every code of the catalogue with its status", () => {
    for (const code of faultCodes)
      expect(contract).toContain(`| ${describeFault(code).status} | \`${code}\` |`);
  });

  test("has no code that the catalogue lacks", () => {
    const rows = [...contract.matchAll(/^\| \d{3} \| `(\w+)` \|/gm)].map((m) => m[1] as string);
    expect(rows).toEqual([...faultCodes]);
  });

  describe("and the running composition", () => {
    let nodes: TestNodes;
    let routes: string[];
    beforeAll(async () => {
      const keyFile = pathOf();
      await Bun.write(keyFile, "5b".repeat(32));
      const [log, cosigner] = [
        testKey("contract.example/log", "log"),
        testKey("contract.example/witness", "witness"),
      ];
      nodes = await startTestNodes({
        cache: {
          enabled: true,
          public_endpoints: ["https://cache.example"],
          signing_key_file: keyFile,
        },
        push: { enabled: true, contact: "mailto:a@b.example" },
        directory: { enabled: true, log_key_file: files.fileOf(log) },
        witness: {
          key_file: files.fileOf(cosigner),
          logs: [`${vkeyOf(log)} https://contract.example/log`],
        },
      });
      const description = (await (
        await fetch(`${nodes.url}/openapi.json`)
      ).json()) as InterfaceDescription;
      routes = Object.entries(description.paths).flatMap(([path, methods]) =>
        Object.keys(methods).map((method) => anonymous(`${method.toUpperCase()} ${path}`)),
      );
    });
    afterAll(async () => {
      await nodes.stop();
      files.remove();
    });

    /** Names of path values may differ, and the index of a tile has one to four segments. */
    const anonymous = (route: string): string =>
      route.replace(/\{[^}]+\}/g, "{}").replace(/(\/tile\/\{\}\/\{\})(\/\{\})+$/, "$1");
    const tabled = [...contract.matchAll(/^\| (GET|POST|PUT|PATCH|DELETE) \| `([^`]+)` \|/gm)].map(
      (m) => anonymous(`${m[1]} ${m[2]}`),
    );

    test("agree on every route", () => {
      expect(routes.length).toBeGreaterThan(40);
      expect([...tabled].sort()).toEqual([...new Set(routes)].sort());
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

  test("has at most 100 entries of at most 90 words", () => {
    const entries = decisions.match(/^\*\*D\d.+/gm) ?? [];
    expect(entries.length).toBeLessThanOrEqual(100);
    expect(entries.filter((entry) => entry.split(" ").length > 90)).toEqual([]);
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
    const titles = new Set(
      [...rules.matchAll(/^- \*\*(.+?)\*\*/gm)].map((m) => (m[1] as string).replace(/\.$/, "")),
    );
    for (const name of ["JSON bounds", "Further reads", "Push"]) expect(titles).toContain(name);
    for (const { at, match } of cited(/docs\/rules\.md` \("([^"]+)"\)/g))
      expect([at, match[1], titles.has(match[1] as string)]).toEqual([at, match[1], true]);
  });

  test("has what the source names beside a section in that section", () => {
    const sections = new Map(
      rules.split(/^## (?=\d)/m).map((text) => [Number.parseInt(text, 10), text.toLowerCase()]),
    );
    const one = /(\d+)(?: \(((?:[^()]|\([^()]*\))*)\)| ("[^"]*"))?/g;
    for (const { at, match } of cited(listed("rules sections?")))
      for (const [, number, words = ""] of (match[1] as string).matchAll(one))
        for (const [, name] of words.matchAll(/"([^"]+)"/g)) {
          const named = (name as string).replace(/, …$/, "").toLowerCase();
          const isSaid = sections.get(Number(number))?.includes(named) ?? false;
          expect([at, number, named, isSaid]).toEqual([at, number, named, true]);
        }
  });

  test("is cited for clients only by clients", () => {
    const wrong = cited(listed("rules sections?")).filter(
      ({ at, match }) =>
        /^src\/(?!cli|client|web)/.test(at) && /\b10\b/.test(withoutWords(match[1] as string)),
    );
    expect(wrong.map(({ at }) => at)).toEqual([]);
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
      for (const [, number] of text.matchAll(/`rules\.md` section (\d+)/g))
        expect(inRules).toContain(number as string);
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

const pages = await Promise.all(
  [
    "*.md",
    "docs/*.md",
    "{bench,runtime,test}/*.md",
    "test/*/*.md",
    "src/*/*.md",
    "examples/**/*.md",
  ]
    .flatMap((pattern) => [...new Bun.Glob(pattern).scanSync(root)])
    .map(async (name) => ({ name, text: await read(name) })),
);

describe("what the documents name", () => {
  /** Code in a line, and blocks of commands. */
  const codeOf = (text: string): string[] =>
    [...text.matchAll(/`([^`\n]+)`|^```\w+\n([\s\S]*?)^```/gm)].map((m) => m[1] ?? m[2] ?? "");
  const exists = (path: string): boolean => existsSync(join(root, path));

  test("links lead to files", () => {
    for (const { name, text } of pages)
      for (const [, link] of text.matchAll(/\]\((?!https?:|#)([^)#\s]+)/g))
        expect([name, link, exists(join(dirname(name), link as string))]).toEqual([
          name,
          link,
          true,
        ]);
  });

  test("links to a section lead to its heading", () => {
    const anchorOf = (heading: string): string =>
      heading
        .toLowerCase()
        .replace(/[^\w\- ]/g, "")
        .replaceAll(" ", "-");
    const anchors = new Map(pages.map(({ name, text }) => [name, headings(text).map(anchorOf)]));
    let count = 0;
    for (const { name, text } of pages)
      for (const [, link, anchor] of text.matchAll(/\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)/g)) {
        count++;
        const page = link === "" ? name : join(dirname(name), link as string);
        expect([name, link, anchor, anchors.get(page)?.includes(anchor as string)]).toEqual([
          name,
          link,
          anchor,
          true,
        ]);
      }
    expect(count).toBeGreaterThan(20);
  });

  test("decisions exist", () => {
    const known = new Set(
      [...decisions.matchAll(/^\*\*((?:D\d+(?:, )?)+)\./gm)].flatMap(
        (m) => m[1]?.split(", ") ?? [],
      ),
    );
    for (const { name, text } of pages)
      for (const [number] of text.matchAll(/\bD\d{1,3}\b/g))
        expect([name, number, known.has(number)]).toEqual([name, number, true]);
  });

  test("paths of this repository exist", () => {
    const pattern =
      /(?<![\w/.-])(?:src|test|docs|bench|runtime|examples|packaging)\/[\w./-]*[\w/]/g;
    let count = 0;
    for (const { name, text } of pages)
      for (const code of codeOf(text))
        for (const [path] of code.matchAll(pattern)) {
          // A pattern such as `src/<folder>/x.ts` names no file.
          if (/[<{*]/.test(code)) continue;
          count++;
          expect([name, path, exists(path)]).toEqual([name, path, true]);
        }
    expect(count).toBeGreaterThan(100);
  });

  test("the files of a subject in docs/architecture.md exist", () => {
    const page = pages.find(({ name }) => name === "docs/architecture.md")?.text ?? "";
    const files = [
      ...page.matchAll(/`((?:nodes|core|storage|plugins)\/[\w/-]*)(?:\{([\w,-]+)\})?([\w./-]*)`/g),
    ].flatMap(([, before, names, after]) =>
      (names ?? "").split(",").map((name) => `src/${before}${name}${after}`),
    );
    expect(files.length).toBeGreaterThan(40);
    expect(files.filter((file) => !exists(file))).toEqual([]);
  });

  test("commands of `waypost` exist", async () => {
    const program = await createProgram(false);
    const named = pages.flatMap(({ name, text }) =>
      name === "CHANGELOG.md"
        ? []
        : codeOf(text).flatMap((code) =>
            [...code.matchAll(/(?:^|\s|dist\/)waypost ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?/gm)].map(
              (match) => ({
                name,
                match,
              }),
            ),
          ),
    );
    expect(named.length).toBeGreaterThan(50);
    for (const { name, match } of named) {
      const [text, first, second] = match;
      const command = program.commands.find((one) => one.name() === first);
      const isGroup = (command?.commands.length ?? 0) > 0;
      const isKnown =
        command !== undefined &&
        (!isGroup || second === undefined || command.commands.some((one) => one.name() === second));
      expect([name, text.trim(), isKnown]).toEqual([name, text.trim(), true]);
    }
  });

  test("scripts of `bun run` exist", async () => {
    const { scripts } = JSON.parse(await read("package.json")) as {
      readonly scripts: Readonly<Record<string, string>>;
    };
    const inChain = JSON.parse(await read("test/chain/package.json")) as {
      readonly scripts: typeof scripts;
    };
    const known = { ...scripts, ...inChain.scripts };
    for (const { name, text } of pages)
      for (const [, script] of text.matchAll(/(?:bun|bun@1\.4\.5) run ([a-z][a-z:]*)/g))
        expect([name, script, Object.hasOwn(known, script as string)]).toEqual([
          name,
          script,
          true,
        ]);
  });

  test("settings exist", () => {
    const listed = listSettings();
    const settings = new Set(listed.map(({ section, name }) => `${section}.${name}`));
    const sections = [...new Set(listed.map(({ section }) => section))];
    const pattern = new RegExp(`\`((?:${sections.join("|")})\\.(?!ts\\b)[a-z_]+)\\b[^\`]*\``, "g");
    for (const { name, text } of pages)
      for (const [, setting] of text.matchAll(pattern))
        if (name !== "CHANGELOG.md")
          expect([name, setting, settings.has(setting as string)]).toEqual([name, setting, true]);
  });
});

const app = await Promise.all(
  [...new Bun.Glob("src/web/**/*.{ts,tsx,css,html,json}").scanSync(root)].map(async (name) => ({
    name,
    text: await read(name),
  })),
);

describe("what no page, app or guide claims", () => {
  /** Each is more than this program does, or can show. */
  const claims: readonly (readonly [name: string, pattern: RegExp])[] = [
    ["ignorance", /servers? (?:do not|don't|does not|doesn't) know who writes/i],
    ["anonymity", /\banonym/i],
    ["future safety", /post-quantum(?! against recording)/i],
    ["delivery", /always gets? through/i],
    ["timing", /constant[- ]time/i],
    ["an audit", /(?<!not )\baudited\b(?! \| no\b)/i],
  ];
  /** Code names options and packages. */
  const proseOf = (text: string): string =>
    text.replace(/^```[\s\S]*?^```/gm, "").replace(/`[^`\n]*`/g, "");
  test.each(claims)("%s", (_, pattern) => {
    expect(app.length).toBeGreaterThan(20);
    const said = [...pages.map(({ name, text }) => ({ name, text: proseOf(text) })), ...app];
    expect(said.filter(({ text }) => pattern.test(text)).map(({ name }) => name)).toEqual([]);
  });

  test("and each is found where it is made", () => {
    const made = [
      "Servers don't know who writes to whom.",
      "Write anonymously.",
      "It is post-quantum.",
      "Mail always gets through.",
      "Compared in constant time.",
      "The code was audited.",
    ];
    for (const [i, [, pattern]] of claims.entries()) expect(made[i]).toMatch(pattern);
    const [, , future, , , audit] = claims.map(([, pattern]) => pattern) as RegExp[];
    expect("post-quantum against recording").not.toMatch(future as RegExp);
    expect("0.x, not audited.").not.toMatch(audit as RegExp);
  });
});
