/** Comments are as wide as the code, which the formatter doesn't see to. For `tidy.test.ts`. */
import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { Glob } from "bun";

const root = join(import.meta.dir, "..");
const widthMax = 100;

/** Lines of comments that are too wide, by file and number; a word alone can't be broken. */
function wideComments(path: string, text: string): string[] {
  return text.split("\n").flatMap((line, i) => {
    const [, words = ""] = /^\s*(?:\/\/|\/?\*+) (.*?)(?: \*\/)?$/.exec(line) ?? [];
    return line.length > widthMax && words.includes(" ") ? [`${path}:${i + 1}`] : [];
  });
}

describe("comments", () => {
  test("are at most 100 wide", async () => {
    const wide: string[] = [];
    for (const path of new Glob("{src,bench,packaging,test,examples}/**/*.{ts,tsx,mjs}").scanSync(
      root,
    ))
      if (!path.includes("node_modules/"))
        wide.push(...wideComments(path, await Bun.file(join(root, path)).text()));
    expect(wide).toEqual([]);
  });

  test("that are wider are found, but for a word alone", () => {
    const long = "x".repeat(widthMax);
    const text = [`// a ${long}`, ` * a ${long}`, `/** a ${long} */`, `// ${long}`, `a("${long}")`];
    expect(wideComments("a", text.join("\n"))).toEqual(["a:1", "a:2", "a:3"]);
  });
});
