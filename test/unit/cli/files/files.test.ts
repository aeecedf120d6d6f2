/**
 * Files of the client: names from strangers, placing without replacing, and what a killed process
 * left.
 */
import { describe, expect, test } from "bun:test";
import { readdirSync, readFileSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createDurably, writeDurably } from "../../../../src/app/files.ts";
import { fileKeys, placeFile, safeFileName } from "../../../../src/cli/files/files.ts";
import { createIdentity, renderIdentity } from "../../../../src/client/keys/keys.ts";
import { scratchPaths } from "../../../support/scratch.ts";

const freshFolder = scratchPaths("client");

describe("names from strangers", () => {
  const rows: [given: string, safe: string][] = [
    ["photo.jpg", "photo.jpg"],
    ["Übersicht 1.pdf", "Übersicht 1.pdf"],
    ["../../etc/passwd", "passwd"],
    ["/etc/passwd", "passwd"],
    ["C:\\Windows\\system.ini", "system.ini"],
    ["..", "message"],
    [".", "message"],
    ["", "message"],
    ["///", "message"],
    [".bashrc", "bashrc"],
    ["...hidden", "hidden"],
    ["-rf", "rf"],
    ["--help", "help"],
    ["-.profile", "profile"],
    ["a-b-.txt", "a-b-.txt"],
    ["-", "message"],
    ["a\u0000b\n.txt", "ab.txt"],
    ["\u202Egpj.exe", "gpj.exe"],
    ["trailing. . ", "trailing"],
    ['a<b>:"|?*c', "abc"],
    ["CON", "message-CON"],
    ["nul.txt", "message-nul.txt"],
    ["\ud800x", "\ufffdx"],
  ];
  for (const [given, safe] of rows) {
    test(`${JSON.stringify(given)} becomes ${JSON.stringify(safe)}`, () =>
      expect(safeFileName(given)).toBe(safe));
  }
  test("a long name is cut before its extension, within what file systems take", () => {
    for (const stem of ["x".repeat(5_000), "ü".repeat(5_000), "😀".repeat(5_000)]) {
      const name = safeFileName(`${stem}.tar`);
      expect(Buffer.byteLength(name)).toBeLessThanOrEqual(240);
      expect(name).toEndWith(".tar");
      expect(name.isWellFormed()).toBe(true);
    }
  });
});

describe("a name of a million characters", () => {
  const million = 1_000_000;
  const rows: [what: string, given: string, safe: string][] = [
    ["spaces before an ending", `a${" ".repeat(million)}b.txt`, `a${" ".repeat(235)}.txt`],
    ["spaces at its end", `note.txt${" ".repeat(million)}`, "note.txt"],
    ["nothing but spaces", " ".repeat(million), "message"],
    ["dots", `x${".".repeat(million)}`, "x"],
    ["slashes", "/a".repeat(million), "a"],
    ["what other systems refuse", "?".repeat(million), "message"],
  ];
  for (const [what, given, safe] of rows) {
    test(`${what}: it is cut in linear time`, () => {
      const begunMs = performance.now();
      expect(safeFileName(given)).toBe(safe);
      // Quadratic time would be minutes.
      expect(performance.now() - begunMs).toBeLessThan(30_000);
    });
  }
});

describe("placing files", () => {
  test("leaves a name alone that is a link to nothing", async () => {
    const folder = freshFolder();
    await writeDurably(join(folder, "t"), "content");
    symlinkSync("nowhere", join(folder, "note.txt"));
    expect(await placeFile(join(folder, "t"), folder, "note.txt")).toMatch(
      /\/note \([0-9a-f]{8}\)\.txt$/,
    );
  });
  test("never replaces one that is there", async () => {
    const folder = freshFolder();
    await writeDurably(join(folder, "note.txt"), "first");
    const paths = [join(folder, "note.txt")];
    for (const text of ["second", "third"]) {
      await writeDurably(join(folder, "t"), text);
      paths.push(await placeFile(join(folder, "t"), folder, "note.txt"));
    }
    expect(paths.map((path) => readFileSync(path, "utf8"))).toEqual(["first", "second", "third"]);
    expect(readdirSync(folder).length).toBe(4);
  });
  test("two files that want one name at the same time both get one", async () => {
    const folder = freshFolder();
    const temporaries = Array.from({ length: 10 }, (_, i) => join(folder, `t${i}`));
    for (const temporary of temporaries) await writeDurably(temporary, temporary);
    const paths = await Promise.all(
      temporaries.map((temporary) => placeFile(temporary, folder, "a.b")),
    );
    expect(new Set(paths).size).toBe(10);
    expect(readdirSync(folder).length).toBe(20);
  });
  test("a file that can't be written leaves nothing behind", async () => {
    const folder = freshFolder();
    const failed = writeDurably(join(folder, "k"), 1 as never).catch(() => "failed");
    expect([await failed, readdirSync(folder)]).toEqual(["failed", []]);
  });
  test("creating answers false when the file exists, and leaves it alone", async () => {
    const file = join(freshFolder(), "k");
    expect(await createDurably(file, "a")).toBe(true);
    expect(await createDurably(file, "b")).toBe(false);
    expect(readFileSync(file, "utf8")).toBe("a");
  });
});

describe("what a killed process left while it was writing", () => {
  const leftover = (name: string) => `${name}.${crypto.randomUUID()}.tmp`;

  test("is removed once nobody can still write it, and nothing else is", async () => {
    const folder = freshFolder();
    const names = [leftover("alice.json"), leftover("old.json"), "note.tmp", "alice.json"];
    for (const name of names) await writeDurably(join(folder, name), "secret");
    const longAgo = new Date(Date.now() - 120_000);
    for (const name of names.slice(1)) utimesSync(join(folder, name), longAgo, longAgo);
    await fileKeys(folder).save("alice", "secret");
    expect(readdirSync(folder).sort()).toEqual(
      [names[0] as string, "alice.json", "note.tmp"].sort(),
    );
    utimesSync(join(folder, names[0] as string), longAgo, longAgo);
    await fileKeys(folder).save("alice", "secret");
    expect(readdirSync(folder).sort()).toEqual(["alice.json", "note.tmp"]);
    await fileKeys(join(folder, "nowhere")).save("alice", null);
  });

  test("goes with the identity that it was a copy of", async () => {
    const folder = freshFolder();
    await fileKeys(folder).save("alice", renderIdentity(createIdentity("alice")));
    const copy = join(folder, leftover("alice.json"));
    writeFileSync(copy, readFileSync(join(folder, "alice.json")));
    const longAgo = new Date(Date.now() - 120_000);
    utimesSync(copy, longAgo, longAgo);
    await fileKeys(folder).save("alice", null);
    expect(readdirSync(folder, { recursive: true })).toEqual([".state", join(".state", ".lock")]);
  });

  test("is removed where the identity remembers others, by the next save of either", async () => {
    const folder = freshFolder();
    const keys = fileKeys(folder);
    await keys.save("alice/did/bob", "{}");
    const known = join(folder, ".state", "alice", "known");
    const [remembered = ""] = readdirSync(known);
    for (const [key, text] of [
      ["alice/did/bob", "{}"],
      ["alice/did/carol", null],
      ["alice", "secret"],
    ] as const) {
      const copy = join(known, leftover(remembered));
      writeFileSync(copy, "a seed");
      const longAgo = new Date(Date.now() - 120_000);
      utimesSync(copy, longAgo, longAgo);
      await keys.save(key, text);
      expect([key, readdirSync(known)]).toEqual([key, [remembered]]);
    }
  });
});

test("what an identity remembers goes with it, and that of others stays", async () => {
  const folder = freshFolder();
  const keys = fileKeys(folder);
  for (const name of ["alice", "alice2"]) {
    await keys.save(name, "secret");
    await keys.save(`${name}/sending/0`, "a seed");
  }
  await keys.save("alice", null);
  expect(readdirSync(folder).sort()).toEqual([".state", "alice2.json"]);
  expect(await keys.load("alice/sending/0")).toBeNull();
  expect(readdirSync(join(folder, ".state")).sort()).toEqual([".lock", "alice2"]);
  expect(await keys.load("alice2/sending/0")).toBe("a seed");
});
