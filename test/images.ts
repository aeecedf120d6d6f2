/**
 * What the Dockerfiles copy is in the context that `.dockerignore` leaves, and what the program
 * imports is copied.
 */
import { describe, expect, test } from "bun:test";
import { readFileSync, statSync } from "node:fs";
import { join, normalize } from "node:path";
import { Glob } from "bun";

const root = join(import.meta.dir, "..");
const read = (path: string) => readFileSync(join(root, path), "utf8");

/** Whether a build gets the file: the last line that matches it, or a folder above it, decides. */
function isInContext(path: string): boolean {
  const steps = path.split("/");
  const above = steps.map((_, at) => steps.slice(0, at + 1).join("/"));
  const rules = read(".dockerignore").split("\n").filter(Boolean);
  const last = rules.findLast((rule) =>
    above.some((one) => new Glob(rule.replace(/^!/, "")).match(one)),
  );
  return last?.startsWith("!") ?? true;
}

/** What a Dockerfile copies from the context. */
function copiedBy(dockerfile: string): string[] {
  const copies = read(dockerfile).matchAll(/^COPY (?!--from)(.+) \S+$/gm);
  return [...copies].flatMap(([, sources = ""]) => sources.split(" "));
}

/** The files of a source, without what was made in it. */
function filesOf(source: string): string[] {
  if (!statSync(join(root, source)).isDirectory()) return [source];
  return [...new Glob("**").scanSync({ cwd: join(root, source), dot: true })]
    .map((name) => join(source, name))
    .filter((path) => !/(^|\/)(node_modules|target)\//.test(path));
}

describe("images", () => {
  test.each(["Dockerfile", "packaging/waypost-node.Dockerfile"])(
    "%s copies only what its build gets",
    (dockerfile) => {
      const copied = copiedBy(dockerfile).flatMap(filesOf);
      expect(copied.length).toBeGreaterThan(0);
      expect(copied.filter((path) => !isInContext(path))).toEqual([]);
    },
  );

  test("the image's build has every file that the program imports from outside of src", () => {
    const copied = copiedBy("Dockerfile");
    const imported = filesOf("src")
      .filter((path) => path.endsWith(".ts"))
      .flatMap((path) =>
        [...read(path).matchAll(/(?:from |import\()"(\.\.?\/[^"]+)"/g)].map(([, name = ""]) =>
          normalize(join(path, "..", name)),
        ),
      )
      .filter((path) => !path.startsWith("src/"));
    expect(imported.length).toBeGreaterThan(3);
    const isCopied = (path: string) =>
      copied.some((source) => path === source || path.startsWith(`${source}/`));
    expect(imported.filter((path) => !isCopied(path))).toEqual([]);
  });

  test("an image gets nothing else: no keys, data or modules of the folder", () => {
    const secrets = [
      "signing.key",
      ".waypost/data.mdb",
      ".git/config",
      "waypost.toml",
      "dist/waypost",
    ];
    const made = ["node_modules/lmdb/index.js", "runtime/target/a", "runtime/node/target/a"];
    expect([...secrets, ...made, "examples/vite/node_modules/a"].filter(isInContext)).toEqual([]);
  });
});
