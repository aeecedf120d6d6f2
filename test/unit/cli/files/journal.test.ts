/** The journal of what was received: what survives a crash at every place, and who holds it. */
import { describe, expect, test } from "bun:test";
import { linkSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { writeDurably } from "../../../../src/app/files.ts";
import { openJournal } from "../../../../src/cli/files/journal.ts";
import { clientCode } from "../../../support/client-code.ts";
import { scratchPaths } from "../../../support/scratch.ts";

const freshFolder = scratchPaths("client");

describe("the journal of what was received", () => {
  const untilMs = Date.now() + 60_000;
  const entryOf = (folder: string, id: string) => ({
    messageIds: [id],
    digests: [`digest ${id}`],
    untilMs,
    temporary: join(folder, `${id}.part`),
    folder,
    name: "note.txt",
  });

  test("remembers across runs, until the message has expired", async () => {
    const [state, out] = [freshFolder(), freshFolder()];
    const journal = await openJournal(state, Date.now());
    await writeDurably(join(out, "a.part"), "a");
    expect(await journal.has("digest a")).toBe(false);
    expect(await journal.place(entryOf(out, "a"))).toBe(join(out, "note.txt"));
    await journal.close();
    const again = await openJournal(state, Date.now());
    expect(await again.has("digest a")).toBe(true);
    await again.close();
    const later = await openJournal(state, untilMs + 1);
    expect(await later.has("digest a")).toBe(false);
    await later.close();
  });

  test("gives a message that comes twice at once one file", async () => {
    const [state, out] = [freshFolder(), freshFolder()];
    const journal = await openJournal(state, Date.now());
    for (const id of ["a", "b"]) await writeDurably(join(out, `${id}.part`), "content");
    const twice = ["a", "b"].map((id) => journal.place({ ...entryOf(out, id), digests: ["the same"] }));
    expect(await Promise.all(twice)).toEqual([join(out, "note.txt"), null]);
    await journal.close();
    expect(readdirSync(out)).toEqual(["note.txt"]);
  });

  test("finishes a file that a crash kept from getting its name", async () => {
    const [state, out] = [freshFolder(), freshFolder()];
    const missing = join(out, "missing");
    await writeDurably(join(out, "a.part"), "content");
    const journal = await openJournal(state, Date.now());
    const entry = { ...entryOf(out, "a"), folder: missing };
    expect(await journal.place(entry).catch((error: unknown) => String(error))).toContain("ENOENT");
    await journal.close();
    mkdirSync(missing);
    await (await openJournal(state, Date.now())).close();
    expect(readdirSync(missing)).toEqual(["note.txt"]);
    expect(readdirSync(out)).toEqual(["missing"]);
  });

  test("does not give a file a second name when the crash came after the first", async () => {
    const [state, out] = [freshFolder(), freshFolder()];
    await writeDurably(join(out, "a.part"), "content");
    const before = await openJournal(state, Date.now());
    await before.place(entryOf(out, "a"));
    await before.close();
    linkSync(join(out, "note.txt"), join(out, "a.part"));
    const journal = await openJournal(state, Date.now());
    expect(await journal.has("digest a")).toBe(true);
    await journal.close();
    expect(readdirSync(out)).toEqual(["note.txt"]);
  });

  test("is held by one run at a time", async () => {
    const state = freshFolder();
    const first = await openJournal(state, Date.now());
    expect(await clientCode(() => openJournal(state, Date.now()))).toBe("busy");
    await first.close();
    await (await openJournal(state, Date.now())).close();
  });

  test("in a folder that can't be used says so", async () => {
    const state = freshFolder();
    mkdirSync(join(state, "received.sqlite"), { recursive: true });
    expect(await clientCode(() => openJournal(state, Date.now()))).toBe("unusable");
  });
});
