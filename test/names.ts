/** What names must say: a thing, and only one thing in the whole source. */
import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { Glob } from "bun";

const root = join(import.meta.dir, "..");
const paths = [
  ...new Glob("{src,test,bench,packaging,examples}/**/*.{ts,tsx}").scanSync(root),
].filter((path) => !path.includes("node_modules/"));
const sources = await Promise.all(
  paths
    .filter((path) => path.startsWith("src/"))
    .sort()
    .map(async (path) => [path, await Bun.file(join(root, path)).text()] as const),
);

/** Names of the functions at the top level of a file, declared as such or as a constant arrow. */
function topFunctions(text: string): string[] {
  const declared = text.matchAll(/^(?:export )?(?:async )?function\*? (\w+)/gm);
  const arrows = text.matchAll(
    /^(?:export )?const (\w+) = (?:async )?(?:\w+|(?:<[^=]*?>)?\([^;{]*?\)(?:: [^=\n]+)?) =>/gm,
  );
  return [...declared, ...arrows].map(([, name = ""]) => name);
}

/** Names that more than `filesMax` files declare at their top level, each with its files. */
function sharedNames(
  namesIn: (text: string) => readonly string[],
  filesMax: number,
  among = sources,
): string[][] {
  const places = new Map<string, Set<string>>();
  for (const [path, text] of among)
    for (const name of namesIn(text)) places.set(name, (places.get(name) ?? new Set()).add(path));
  const shared = [...places].filter(([, files]) => files.size > filesMax);
  return shared.map(([name, files]) => [name, ...files]);
}

const namesBy =
  (form: RegExp) =>
  (text: string): string[] =>
    [...text.matchAll(form)].map(([, name = ""]) => name);

describe("names", () => {
  /** `process` of the platform and words inside texts are not names. */
  test("names say what they name", () => {
    const vague =
      /^(?:export )?(?:async )?(?:function|const|let|class|type|interface)\s+(?:\w*(?:Manager|Helper|Util|Utils|Handler)|handler|helper|manager|util|data|info|doIt|tmp)\b/m;
    const wrong = sources.flatMap(([path, text]) => {
      const found = vague.exec(text);
      return found === null ? [] : [`${path}: ${found[0]}`];
    });
    expect(wrong).toEqual([]);
  });

  test("no two files export a type by one name", () => {
    const exported = namesBy(/^export (?:abstract )?(?:type|interface|class) (\w+)/gm);
    expect(sharedNames(exported, 1)).toEqual([]);
  });

  /**
   * Two files may have a `Row` of their own; what three call by one name, a reader takes for one
   * thing.
   */
  test("no name of a type is declared in more than two files", () => {
    const declared = namesBy(/^(?:export )?(?:abstract )?(?:type|interface|class) (\w+)/gm);
    expect(sharedNames(declared, 2)).toEqual([]);
  });

  /**
   * A function of one name in three files does three things, of which each deserves a name of its
   * own.
   */
  test("no name of a function is declared at the top of more than two files", () => {
    expect(sharedNames(topFunctions, 2)).toEqual([]);
    const sample =
      "async function one() {}\nexport const two = <T>(\n  a: T,\n): T => a;\nconst no = 1;\n";
    expect(topFunctions(sample)).toEqual(["one", "two"]);
  });

  /** Handed on under the name of a parameter: everywhere the same thing. */
  const parameters: readonly string[] = ["change", "edited"];

  /** `save`, `begin` or `look` in eight files: a reader must open each to learn what is saved. */
  test("no name of a function inside of another stands in more than three files of the SDK and the app", () => {
    const inner = (text: string): string[] =>
      namesBy(/^\s+const (\w+) = (?:async )?(?:\w+|\([^;{]*?\)(?:: [^=\n]+)?) =>/gm)(text);
    const rooms = sources.filter(([path]) => /^src\/(client|web)\//.test(path));
    const shared = sharedNames(inner, 3, rooms).filter(([name = ""]) => !parameters.includes(name));
    expect(shared).toEqual([]);
    const sample = "  const one = async () => {\n    const two = (a: T): T =>\n  const no = 1;\n";
    expect(inner(sample)).toEqual(["one", "two"]);
  });

  test("no file is called by its kind", () => {
    const wrong = paths.filter((path) =>
      /(^|\/)(utils?|helpers?|types|common|misc|index)\.ts$/.test(path),
    );
    expect(wrong).toEqual([]);
  });
});
