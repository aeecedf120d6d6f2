/**
 * The house rules that a program can check: who may import whom, what no file may hold, how long
 * files may be, that nothing lies around unused, and that versions are exact. Exceptions are listed
 * with their reason and may only become fewer.
 */
import { describe, expect, test } from "bun:test";
import { dirname, join, normalize } from "node:path";
import { Glob } from "bun";
// Declare these tests, so that anyone who checks the house checks them too.
import "./comments.ts";
import "./documents.ts";
import "./images.ts";
import "./names.ts";

const root = join(import.meta.dir, "..");
const files = new Map<string, string>();
for (const pattern of ["{src,test,bench,packaging,examples}/**/*.{ts,tsx}", "*.ts"]) {
  for (const path of new Glob(pattern).scanSync({ cwd: root })) {
    if (path.includes("node_modules/")) continue;
    files.set(path, await Bun.file(join(root, path)).text());
  }
}
const sources = [...files].filter(([path]) => path.startsWith("src/"));

type Import = {
  readonly from: string;
  readonly to: string;
  readonly typeOnly: boolean;
  readonly isLazy: boolean;
};

function resolve(from: string, name: string): string {
  if (name.startsWith(".")) return normalize(join(dirname(from), name));
  // `#crypto`, `#sha256` and `#blake2` stand for two modules each: `native.ts` in nodes, and this
  // one in clients outside Bun.
  if (name === "#sha256") return "@noble/hashes/sha2.js";
  if (name === "#web") return "packaging/web.ts";
  return name.startsWith("#") ? `src/core/codec/${name.slice(1)}-portable.ts` : name;
}

/** Static and dynamic imports with literal names; ours as paths from the root. */
function importsOf(path: string, text: string): Import[] {
  const found: Import[] = [];
  const pattern =
    /^\s*(?:import|export)\s+(type\s)?(?:[^;"']*?\sfrom\s+)?["']([^"']+)["']|\bimport\(\s*["']([^"']+)["']\s*\)/gm;
  for (const [, typeOnly, name, dynamic] of text.matchAll(pattern)) {
    const to = resolve(path, (name ?? dynamic) as string);
    found.push({ from: path, to, typeOnly: typeOnly !== undefined, isLazy: dynamic !== undefined });
  }
  return found;
}

const imports = [...files].flatMap(([path, text]) => importsOf(path, text));
const fromSource = imports.filter(({ from }) => from.startsWith("src/"));
const show = ({ from, to }: Import): string => `${from} -> ${to}`;

describe("import walls", () => {
  /** Which rooms the files of a room may import; a room of its own is always allowed. */
  const arrows: Readonly<Record<string, readonly string[]>> = {
    core: [],
    storage: ["core"],
    nodes: ["storage", "core"],
    plugins: ["storage", "core"],
    client: ["core"],
    web: ["client", "core"],
    config: ["storage", "core"],
    app: ["config", "plugins", "nodes", "storage", "core", "."],
    cli: ["app", "config", "plugins", "nodes", "storage", "client", "core", "."],
    testing: ["app", "config"],
    ".": ["cli", "app"],
  };
  const roomOf = (path: string): string => {
    const [, room = "", rest] = path.split("/");
    return rest === undefined ? "." : room;
  };

  test("every arrow between rooms is an allowed one", () => {
    const wrong = fromSource.filter(({ from, to, typeOnly }) => {
      if (!to.startsWith("src/")) return false;
      const [room, target] = [roomOf(from), roomOf(to)];
      // Nodes take their section of the parsed configuration itself.
      if (room === "nodes" && target === "config" && typeOnly) return false;
      return room !== target && !(arrows[room] ?? []).includes(target);
    });
    expect(wrong.map(show)).toEqual([]);
  });

  test("the SDK runs anywhere: nothing it reaches needs one runtime, a file system or eval", () => {
    const reached = new Set<string>();
    const reach = (path: string): void => {
      if (reached.has(path)) return;
      reached.add(path);
      for (const { from, to, typeOnly } of imports) if (from === path && !typeOnly) reach(to);
    };
    for (const [path] of sources) if (path.startsWith("src/client/")) reach(path);
    const packages =
      /^(@noble\/(curves|ciphers|hashes|post-quantum)|canonicalize|shamir-secret-sharing)(\/|$)/;
    const others = [...reached].filter((name) => !name.startsWith("src/") && !packages.test(name));
    expect(others).toEqual([]);
    const banned = /\b(Bun|Buffer|process|Deno|eval)\b[.(]|\bnew Function\b/;
    expect(
      [...reached].filter((path) => banned.test(withoutComments(files.get(path) ?? ""))),
    ).toEqual([]);
  });

  test("no files import each other in a circle, types included; only an import at run time may close one", () => {
    const targets = new Map<string, string[]>();
    for (const { from, to, isLazy } of fromSource) {
      if (!isLazy) targets.set(from, [...(targets.get(from) ?? []), to]);
    }
    const path: string[] = [];
    const done = new Set<string>();
    const circles: string[] = [];
    const visit = (file: string): void => {
      if (path.includes(file)) circles.push([...path.slice(path.indexOf(file)), file].join(" -> "));
      if (done.has(file)) return;
      done.add(file);
      path.push(file);
      for (const target of targets.get(file) ?? []) visit(target);
      path.pop();
    };
    for (const [file] of sources) visit(file);
    expect(circles).toEqual([]);
  });

  test("no two folders import each other, types included; only an import at run time may", () => {
    const arrowsBetween = new Set(
      fromSource
        // `main.ts` is an entry; the folder it stands in holds only the version besides.
        .filter(
          ({ from, to, isLazy }) => from !== "src/main.ts" && to.startsWith("src/") && !isLazy,
        )
        .map(({ from, to }) => `${dirname(from)} -> ${dirname(to)}`),
    );
    const both = [...arrowsBetween].flatMap((arrow) => {
      const [from = "", to = ""] = arrow.split(" -> ");
      return from > to && arrowsBetween.has(`${to} -> ${from}`) ? [`${from} <-> ${to}`] : [];
    });
    expect(both.sort()).toEqual([]);
  });

  test("the folders of the SDK stand on nine floors: no chain of imports between them is longer", () => {
    const below = new Map<string, Set<string>>();
    for (const { from, to, isLazy } of fromSource) {
      const [upper, lower] = [dirname(from), dirname(to)];
      if (isLazy || upper === lower || !lower.startsWith("src/client")) continue;
      if (upper.startsWith("src/client"))
        below.set(upper, (below.get(upper) ?? new Set<string>()).add(lower));
    }
    const floorsUnder = (folder: string): number =>
      1 + Math.max(0, ...[...(below.get(folder) ?? [])].map(floorsUnder));
    expect(floorsUnder("src/client")).toBe(9);
  });

  test("only main and the version stand outside the rooms", () => {
    const outside = sources.map(([path]) => path).filter((path) => roomOf(path) === ".");
    expect(outside.sort()).toEqual(["src/main.ts", "src/version.ts"]);
  });

  /** Packages that one place owns; `typeOnly` places may use their types. */
  const owners: readonly { package: RegExp; owner: RegExp; typeOnly?: RegExp }[] = [
    { package: /^elysia(\/|$)/, owner: /^src\/nodes\/http\/app\.ts$/ },
    { package: /^lmdb(\/|$)/, owner: /^src\/plugins\/lmdb/ },
    { package: /^@polkadot\//, owner: /^src\/plugins\/chain/ },
    { package: /^smoldot$/, owner: /^src\/plugins\/chain\/light/ },
    {
      package: /^zod(\/|$)/,
      owner: /^src\/(config\/|plugins\/|cli\/chain\.ts)/,
    },
    { package: /^toml-eslint-parser$/, owner: /^src\/config\/source\.ts$/ },
    { package: /^fastest-levenshtein$/, owner: /^src\/storage\/setting-problem\.ts$/ },
    {
      package: /^@sinclair\/typebox/,
      owner: /^src\/(core\/schema|storage\/transfer)/,
      typeOnly: /^src\/(core|nodes)\//,
    },
    // Certificates and the key of pushes do not belong to the domain.
    {
      package: /^node:crypto$/,
      owner: /^src\/(core\/codec\/native|app\/(certificate|keys)|testing\/(runtime|sockets))\.ts$/,
    },
    { package: /^commander$/, owner: /^src\/cli\// },
    { package: /^@noble\/ciphers/, owner: /^src\/client\// },
    { package: /^@noble\/post-quantum/, owner: /^src\/client\/keys\/xwing\.ts$/ },
    { package: /^@nats-io\//, owner: /^src\/plugins\/bus\/nats\.ts$/ },
    { package: /^@scure\/base$/, owner: /^src\/core\/codec\/texts\.ts$/ },
    { package: /^ipaddr\.js$/, owner: /^src\/core\/message\/address\.ts$/ },
    { package: /^canonicalize$/, owner: /^src\/core\/message\/proof\.ts$/ },
    { package: /^shamir-secret-sharing$/, owner: /^src\/client\/identity\/guardians\.ts$/ },
    { package: /^@js-sdsl\//, owner: /^src\/plugins\/memory\// },
    { package: /^tinyqueue$/, owner: /^src\/storage\// },
    { package: /^preact(\/|$)/, owner: /^src\/web\// },
    { package: /^uqr$/, owner: /^src\/(web\/|cli\/(serve|invite)\.ts)/ },
  ];

  test.each(owners)("$package stays behind its wall", ({ package: name, owner, typeOnly }) => {
    const wrong = fromSource.filter(
      (one) =>
        name.test(one.to) && !owner.test(one.from) && !(one.typeOnly && typeOnly?.test(one.from)),
    );
    expect(wrong.map(show)).toEqual([]);
  });

  test("the core does no input or output and reads neither clock nor chance", () => {
    const banned =
      /\b(Date\.now|performance\.now|Math\.random|randomUUID|getRandomValues|setTimeout|setInterval|fetch\(|console\.|process\.|Bun\.(?!hash|SHA256))/;
    const wrong = sources
      // The one timer: every race of a promise against time goes through it.
      .filter(([path]) => path.startsWith("src/core/") && path !== "src/core/std/bounded.ts")
      .flatMap(([path, text]) => (banned.test(withoutComments(text)) ? [path] : []));
    expect(wrong).toEqual([]);
    const outside = fromSource.filter(
      ({ from, to }) =>
        from.startsWith("src/core/") && /^(node:|bun)/.test(to) && !/node:crypto/.test(to),
    );
    expect(outside.map(show)).toEqual([]);
  });

  test("imports of our own files have the file extension", () => {
    const wrong = imports.filter(
      ({ to }) => /^(src|test|bench)\//.test(to) && !/\.(tsx?|json|html|sql|txt)$/.test(to),
    );
    expect(wrong.map(show)).toEqual([]);
  });
});

describe("exports", () => {
  /** What a runtime or a stranger imports by the name of the file. */
  const faces = new Set([
    "src/client/package.ts",
    "src/client/parts.ts",
    "src/client/pushed.ts",
    "src/cli/files/package.ts",
    "src/testing/package.ts",
    // `packaging/testing.ts` puts it in the place of Bun.
    "src/testing/runtime.ts",
    "src/storage/contract.ts",
    "src/plugins/load.ts",
    // The two sides of `#crypto` and `#blake2`, and one of `#sha256`.
    "src/core/codec/native.ts",
    "src/core/codec/blake2-portable.ts",
    "src/core/codec/crypto-portable.ts",
    // And of `#texts`.
    "src/core/codec/texts.ts",
    "src/core/codec/texts-portable.ts",
  ]);

  /** Parts that tests alone reach: what is around them is given no such input. May only shrink. */
  const testedAlone: Readonly<Record<string, readonly string[]>> = {
    // Pure decisions and texts.
    "cli/init.ts": ["filesOf", "nextSteps"],
    "cli/serve.ts": ["devConfig"],
    "nodes/cache/entries.ts": ["planWhole"],
    // Rules of own devices and groups, which the model attacks before the SDK goes by them.
    "client/devices/keyring.ts": ["removalsToRepeat"],
    "client/groups/statements.ts": ["heal"],
    // Texts that people bring, which tests change letter by letter.
    "client/store/invitations.ts": ["openInvitation"],
    // A table over an environment that a test opens, fails and fills by itself.
    "plugins/lmdb/store.ts": ["DiskTable"],
    // Parsers, which fuzzing and tables of bad inputs call.
    "plugins/chain/rpc.ts": ["withoutSecrets"],
    // Steps of a longer course, stopped between two; and requests as an attacker changes them.
    "app/keys.ts": ["openPushKey"],
    "client/identity/change.ts": ["replaceDocument", "signOwnerUpdate"],
    // Pure: the bytes and the text that vectors and other languages make too.
    "client/mail/seal-hybrid.ts": ["sealHybrid"],
    // Of another suite, of which there are published examples.
    "client/keys/hpke.ts": ["hpkeKeys"],
    "client/trust/fingerprint.ts": ["fingerprintOf"],
    "plugins/chain/driver.ts": ["openLedger", "readOperatorKey"],
    // Pure parts that the virtual chain uses too, or that are tried at every moment of a run.
    "plugins/chain/trie.ts": ["orderedRoot", "orderedRootNode"],
    // Of a key that tests make.
    "core/message/bundle.ts": ["bundleKeyBytes"],
    // Tables that tests go through row by row.
    "core/ledger/refusals.ts": ["ledgerErrors"],
    "client/identity/opening.ts": ["optionShapes"],
    "cli/program.ts": ["createProgram"],
  };

  /** Who imports `file name`: by name, or as `.name` of a file imported whole or when needed. */
  const importers = new Map<string, string[]>();
  const exported = sources
    .filter(([path]) => !faces.has(path))
    .flatMap(([path, text]) =>
      [
        ...text.matchAll(/^export (?:async )?(function\*?|const|let|class|type|interface) (\w+)/gm),
      ].map(([, kind, name]) => ({ path, kind, name, key: `${path} ${name}` })),
    );
  for (const [path, text] of files) {
    const pattern =
      /\{([^{}]*)\}\s*(?:from\s*|=\s*await (?:loadNative\(\(\) => )?import\(\s*)"([.#][^"]+)"/g;
    const named = new Set(
      [...text.matchAll(pattern)].flatMap(([, names = "", from = ""]) =>
        names
          .split(",")
          .map((name) => `${resolve(path, from)} ${/^\s*(?:type\s)?\s*(\w+)/.exec(name)?.[1]}`),
      ),
    );
    const targets = new Set(importsOf(path, text).map(({ to }) => to));
    for (const { path: target, name, key } of exported) {
      if (target === path || !targets.has(target)) continue;
      if (named.has(key) || new RegExp(`\\.${name}\\b`).test(text))
        importers.set(key, [...(importers.get(key) ?? []), path]);
    }
  }

  test("every export has an importer", () => {
    expect(exported.map(({ key }) => key).filter((key) => !importers.has(key))).toEqual([]);
  });

  test("tests import what the program imports; types, and the parts in the list, excepted", () => {
    const alone = exported.filter(
      ({ kind, key }) =>
        kind !== "type" && importers.get(key)?.every((path) => path.startsWith("test/")),
    );
    const listed = Object.entries(testedAlone).flatMap(([path, names]) =>
      names.map((name) => `src/${path} ${name}`),
    );
    expect(alone.map(({ key }) => key).sort()).toEqual(listed.sort());
  });
});

/** A comment follows the start of a line, a space or a bracket: no address or pattern does. */
function withoutComments(text: string): string {
  return text.replace(/(^|[\s({,])\/\*[\s\S]*?\*\//gm, "$1").replace(/(^|\s)\/\/.*$/gm, "$1");
}

describe("what no file may hold", () => {
  /** Code without its comments is searched, except where the rule is about comments. */
  const banned: readonly {
    name: string;
    pattern: RegExp;
    where?: RegExp;
    isInComments?: boolean;
  }[] = [
    { name: "unfinished marks", pattern: /\b(TODO|FIXME|XXX|HACK)\b/, isInComments: true },
    {
      name: "silenced checks",
      pattern: /@ts-(ignore|expect-error|nocheck)|\bbiome-ignore\b/,
      isInComments: true,
    },
    { name: "forced types", pattern: /\bas unknown as\b/ },
    {
      name: "tests that do not run",
      pattern:
        /\b(test|it|describe)\.(?:(?:skip|todo|only|failing)\b|skipIf\(true\)|if\(false\))|\bmock\.module\b/,
    },
    { name: "re-exports of whole modules", pattern: /^export \* from/m, where: /^src\// },
    // The rule on importers reads the names behind `export`.
    {
      name: "lists of exports",
      pattern: /^export (?:\{[^}]*\};|(?:const|let) [[{])/m,
      where: /^src\//,
    },
    {
      name: "types that a signature takes from another function",
      pattern: /\b(?:Constructor)?Parameters<|\): (?:Promise<)?(?:Awaited<)?ReturnType</,
      where: /^src\/(?!web\/)/,
    },
    {
      name: "state of a module in the core",
      pattern:
        /^(?:export )?(?:let|var)\b|^(?:export )?const [^=\n]+ = new (?:(?:Weak|Bounded)\w+|(?:Map|Set)\b[^(\n]*\(\))/m,
      where: /^src\/core\//,
    },
    {
      name: "a registry's address",
      pattern: /registry\.npmjs|registry\.yarnpkg|npmmirror|pkg\.github/,
      isInComments: true,
    },
  ];
  test.each(banned)("$name", ({ pattern, where = /./, isInComments = false }) => {
    const wrong = [...files]
      .filter(([path]) => path !== "test/tidy.test.ts" && where.test(path))
      .filter(([, text]) => pattern.test(isInComments ? text : withoutComments(text)))
      .map(([path]) => path);
    expect(wrong).toEqual([]);
  });

  // Of what is promised of sealing and mailboxes: more than it is.
  const tooMuch: readonly RegExp[] = [
    /servers?[^.]{0,20}(?:don't|do not|never) know who writes/i,
    /always gets? through/i,
    /constant[- ]time/i,
    /(?<!@noble\/)post-quantum(?! against recording|\b[^.\n]{0,40}\bagainst recording)/i,
    /(?<!not )\baudited(?! \| no)\b/i,
  ];
  test("pages and texts of the app promise no more of sealing than there is", async () => {
    const pages = ["*.md", "docs/*.md", "src/**/*.md", "packaging/**/*.md"].flatMap((pattern) => [
      ...new Glob(pattern).scanSync({ cwd: root }),
    ]);
    const texts = await Promise.all(
      pages.map(async (path) => [path, await Bun.file(join(root, path)).text()] as const),
    );
    const words = [...files].filter(([path]) => path.startsWith("src/web/words/"));
    expect([texts.length > 20, words.length > 1]).toEqual([true, true]);
    const wrong = [...texts, ...words].flatMap(([path, text]) =>
      tooMuch.filter((pattern) => pattern.test(text)).map((pattern) => `${path} ${pattern}`),
    );
    expect(wrong).toEqual([]);
  });

  test("the lockfile and the other files of the root name no registry either", async () => {
    const names = ["bun.lock", "bunfig.toml", "package.json", "Dockerfile", ".ci/run", "README.md"];
    for (const name of names) {
      const text = await Bun.file(join(root, name)).text();
      expect(text.includes("registry.") ? name : null).toBeNull();
    }
  });
});

const indentOf = (line: string): number => line.search(/\S|$/);

/**
 * Numbers of lines that wait for a fixed time. What encloses a line shows in the formatter's
 * indentation.
 */
function fixedSleeps(text: string): number[] {
  const lines = text.split("\n");
  const isRepeated = (at: number): boolean => {
    let inner = indentOf(lines[at] ?? "");
    for (const line of lines.slice(0, at).reverse()) {
      const own = indentOf(line);
      if (line === "" || own >= inner) continue;
      if (/\b(for|while|do|until)\b.*[({]/.test(line)) return true;
      if (/^\s*test\b/.test(line)) return false;
      // The end of a header that takes several lines, which begins at the same place.
      inner = line.trim().startsWith(")") ? own + 1 : own;
    }
    return false;
  };
  return lines.flatMap((line, at) =>
    /^\s*await Bun\.sleep\([1-9][\d_]*\);/.test(line) && !isRepeated(at) ? [at + 1] : [],
  );
}

describe("the shape of files", () => {
  test("no file of the source is longer than 500 lines, and no other one longer than 600", () => {
    const long = [...files]
      .filter(([path, text]) => text.split("\n").length > (path.startsWith("src/") ? 501 : 601))
      .map(([path]) => path);
    expect(long).toEqual([]);
  });

  test("every file begins with what it is for", () => {
    const bare = [...files]
      .filter(([, text]) => !/^(#!.*\n)?\/\*\*[\s\S]{20,}?\*\//.test(text))
      .map(([path]) => path);
    expect(bare).toEqual([]);
  });

  /** Longer than that, with the reason. May only shrink. */
  const longOnes: Readonly<Record<string, string>> = {
    "src/client/keys/locks.ts lockedKeys": "stands for a class: nine short functions over one lock",
  };

  test("no function is longer than 80 lines", () => {
    const long = [...files].flatMap(([path, text]) =>
      longFunctions(text).map((name) => `${path} ${name}`),
    );
    const outsideTests = long.filter((one) => !one.startsWith("test/"));
    expect(outsideTests.sort()).toEqual(Object.keys(longOnes).sort());
    const body = "  a();\n".repeat(79);
    const samples = [
      `function one() {\n${body}}\n`,
      `function two() {\n${body}  return {\n  };\n}\n`,
    ];
    expect(samples.flatMap(longFunctions)).toEqual(["two"]);
  });

  test("tests wait for events: a fixed time that no loop repeats is a `pause` with its reason", () => {
    const waits = "  await Bun.sleep(50);";
    const polls = `  while (\n    !isThere()\n  )\n  ${waits}`;
    const text = `test("x", async () => {\n${waits}\n${polls}\n});`;
    expect(fixedSleeps(text)).toEqual([2]);
    const tests = [...files].filter(([path]) =>
      /\.(test|chain)\.ts$|^test\/conformance/.test(path),
    );
    expect(
      tests.flatMap(([path, text]) => fixedSleeps(text).map((line) => `${path}:${line}`)),
    ).toEqual([]);
  });

  test("every source file is imported by another or is an entry", () => {
    const entries = new Set([
      "src/main.ts",
      "src/client/package.ts",
      "src/client/parts.ts",
      "src/client/pushed.ts",
      "src/cli/files/package.ts",
      "src/testing/package.ts",
      // The thread of that one's node, and what its bundle has in the place of Bun.
      "src/testing/worker.ts",
      "src/testing/runtime.ts",
      "src/core/codec/native.ts",
      "src/core/codec/texts.ts",
      // `packaging/web.ts` bundles them.
      "src/web/main.tsx",
      "src/web/worker.ts",
    ]);
    const imported = new Set(fromSource.map(({ to }) => to));
    const unused = ([path]: readonly [string, unknown]) =>
      !imported.has(path) && !entries.has(path) && !path.endsWith(".d.ts");
    expect(sources.filter(unused).map(([path]) => path)).toEqual([]);
  });
});

describe("where tests stand", () => {
  const units = [...files.keys()].filter((path) => path.startsWith("test/unit/"));

  test("a unit test stands where its source does: unit/<folder>/<file>.test.ts, or <file>.<aspect>.test.ts", () => {
    const sourceOf = (path: string): string =>
      path.replace(/^test\/unit\//, "src/").replace(/(\.[\w-]+)?\.test\.ts$/, ".ts");
    expect(
      units.filter((path) => !path.endsWith(".test.ts") || !files.has(sourceOf(path))),
    ).toEqual([]);
  });

  test("a unit test opens no socket, no process and no store on disk", () => {
    const banned =
      /\bBun\.(serve|listen|connect|spawn|spawnSync)\b|\bnew Worker\(|\bfetch\(|\b(openLmdb|startTestNodes)\(/;
    const wrong = units.filter((path) => banned.test(withoutComments(files.get(path) ?? "")));
    expect(wrong).toEqual([]);
  });
});

/**
 * Names of top-level functions whose body spans more than 80 lines. The formatter puts the end at
 * column 0.
 */
function longFunctions(text: string): string[] {
  const lines = text.split("\n");
  const found: string[] = [];
  lines.forEach((line, start) => {
    const m = /^(?:export )?(?:async )?function\*? (\w+)/.exec(line);
    if (m === null) return;
    const length = lines.slice(start).indexOf("}");
    if (length > 80) found.push(m[1] as string);
  });
  return found;
}

describe("packages", () => {
  test("every version is exact", async () => {
    const manifest = (await Bun.file(join(root, "package.json")).json()) as Record<
      string,
      Record<string, string>
    >;
    const versions = { ...manifest["dependencies"], ...manifest["devDependencies"] };
    const loose = Object.entries(versions).filter(
      ([, version]) => !/^\d+\.\d+\.\d+(-[\w.]+)?$/.test(version),
    );
    expect(loose).toEqual([]);
  });

  /** Not imported by name, with the reason. May only shrink. */
  const unnamed: Readonly<Record<string, string>> = {};

  test("every dependency at run time is used, and has its line in docs/architecture.md", async () => {
    const manifest = (await Bun.file(join(root, "package.json")).json()) as {
      dependencies: Record<string, string>;
    };
    const page = await Bun.file(join(root, "docs", "architecture.md")).text();
    for (const name of Object.keys(manifest.dependencies)) {
      const uses = imports.filter(({ to }) => to === name || to.startsWith(`${name}/`));
      const [row] = page.split("\n").filter((line) => line.startsWith(`| \`${name}\` `));
      expect([name, name in unnamed || uses.length > 0, row !== undefined]).toEqual([
        name,
        true,
        true,
      ]);
      // The last column names every file that imports it, or its folder.
      const places = [...(row?.split("|").at(-2) ?? "").matchAll(/`([^`]+)`/g)].map(
        (match) => `src/${match[1]}`,
      );
      const unlisted = uses
        .filter(({ from, typeOnly }) => from.startsWith("src/") && !typeOnly)
        .map(({ from }) => from)
        .filter((from) => !places.some((place) => from.startsWith(place)));
      expect([name, unlisted]).toEqual([name, []]);
    }
  });

  test("documents name no path of the machine they were written on", async () => {
    const named = ["docs/*.md", "*.md", "examples/*", "Dockerfile", ".ci/run"].map((pattern) => [
      ...new Glob(pattern).scanSync({ cwd: root, dot: true }),
    ]);
    expect(named.map((paths) => paths.length > 0)).toEqual([true, true, true, true, true]);
    for (const path of named.flat()) {
      const text = await Bun.file(join(root, path)).text();
      expect(/\/work\/|\/home\/\w+\/|\/root\//.test(text) ? path : null).toBeNull();
    }
  });
});
