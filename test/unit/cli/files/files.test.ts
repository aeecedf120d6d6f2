/**
 * Files of the client: names from strangers, placing without replacing, identities with mode 0600, the
 * journal of what was received, and the state of a chunk set that is on its way.
 */
import { afterAll, describe, expect, test } from "bun:test";
import {
  chmodSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  createDurably,
  placeFile,
  safeFileName,
  sweepLeftovers,
  writeDurably,
} from "../../../../src/cli/files/files.ts";
import { openJournal } from "../../../../src/cli/files/journal.ts";
import {
  forgetIdentity,
  identityPath,
  listIdentities,
  loadIdentity,
  saveIdentity,
  saveNewIdentity,
} from "../../../../src/cli/files/key-files.ts";
import { ClientError } from "../../../../src/client/http.ts";
import { createIdentity, heldSeed, signingSeed } from "../../../../src/client/keys.ts";
import { isDid } from "../../../../src/core/codec/did.ts";

const scratch = mkdtempSync(join(tmpdir(), "waypost-client-"));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));
let folders = 0;
const freshFolder = () => {
  const folder = join(scratch, `f${folders++}`);
  writeFileSync(join(scratch, "keep"), "");
  return folder;
};

async function codeOf(work: Promise<unknown>): Promise<string> {
  try {
    await work;
    return "nothing was refused";
  } catch (error) {
    return error instanceof ClientError ? error.code : String(error);
  }
}

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
    test(`${JSON.stringify(given)} becomes ${JSON.stringify(safe)}`, () => expect(safeFileName(given)).toBe(safe));
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

describe("placing files", () => {
  test("never replaces one that is there", async () => {
    const folder = freshFolder();
    await writeDurably(join(folder, "note.txt"), "first");
    const names = [];
    for (const text of ["second", "third"]) {
      await writeDurably(join(folder, "t"), text);
      names.push(await placeFile(join(folder, "t"), folder, "note.txt"));
    }
    expect(names).toEqual([join(folder, "note (1).txt"), join(folder, "note (2).txt")]);
    expect(readFileSync(join(folder, "note.txt"), "utf8")).toBe("first");
    expect(readFileSync(join(folder, "note (2).txt"), "utf8")).toBe("third");
    expect(readdirSync(folder).sort()).toEqual(["note (1).txt", "note (2).txt", "note.txt"]);
  });
  test("two files that want one name at the same time both get one", async () => {
    const folder = freshFolder();
    const temporaries = Array.from({ length: 10 }, (_, i) => join(folder, `t${i}`));
    for (const temporary of temporaries) await writeDurably(temporary, temporary);
    const paths = await Promise.all(temporaries.map((temporary) => placeFile(temporary, folder, "a.b")));
    expect(new Set(paths).size).toBe(10);
    expect(readdirSync(folder).length).toBe(10);
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

  test("goes once it can't be in work any more, and nothing else does", async () => {
    const folder = freshFolder();
    const names = [leftover("alice.json"), leftover("old.json"), "note.tmp", "alice.json"];
    for (const name of names) await writeDurably(join(folder, name), "secret");
    const longAgo = new Date(Date.now() - 120_000);
    for (const name of names.slice(1)) utimesSync(join(folder, name), longAgo, longAgo);
    await sweepLeftovers(folder, Date.now());
    expect(readdirSync(folder).sort()).toEqual([names[0] as string, "alice.json", "note.tmp"].sort());
    await sweepLeftovers(folder, Date.now() + 120_000);
    expect(readdirSync(folder).sort()).toEqual(["alice.json", "note.tmp"]);
    await sweepLeftovers(join(folder, "nowhere"), Date.now());
  });

  test("goes with the identity that it was a copy of", async () => {
    const folder = freshFolder();
    await saveNewIdentity(folder, createIdentity("alice"));
    const copy = join(folder, leftover("alice.json"));
    writeFileSync(copy, readFileSync(identityPath(folder, "alice")));
    const longAgo = new Date(Date.now() - 120_000);
    utimesSync(copy, longAgo, longAgo);
    await forgetIdentity(folder, "alice");
    expect(readdirSync(folder)).toEqual([]);
  });
});

describe("identities", () => {
  test("are written with mode 0600 and read back the same", async () => {
    const folder = freshFolder();
    const identity = createIdentity("alice");
    expect(isDid(identity.did)).toBe(true);
    await saveNewIdentity(folder, identity);
    expect(statSync(identityPath(folder, "alice")).mode & 0o777).toBe(0o600);
    expect(await loadIdentity(folder, "alice")).toEqual(identity);
    expect(await listIdentities(folder)).toEqual(["alice"]);
  });
  test("are not overwritten by a new one of the same name", async () => {
    const folder = freshFolder();
    const first = createIdentity("alice");
    await saveNewIdentity(folder, first);
    expect(await codeOf(saveNewIdentity(folder, createIdentity("alice")))).toBe("name_taken");
    expect(await loadIdentity(folder, "alice")).toEqual(first);
  });
  test("keep a root key that is not in force yet", async () => {
    const folder = freshFolder();
    const identity = { ...createIdentity("a"), nextRootSeed: new Uint8Array(32).fill(1) };
    await saveIdentity(folder, identity);
    expect((await loadIdentity(folder, "a")).nextRootSeed).toEqual(identity.nextRootSeed);
  });
  test("that others can read are refused", async () => {
    const folder = freshFolder();
    await saveNewIdentity(folder, createIdentity("a"));
    chmodSync(identityPath(folder, "a"), 0o644);
    expect(await codeOf(loadIdentity(folder, "a"))).toBe("keys_exposed");
  });
  test("that are missing, broken or oddly named are told apart", async () => {
    const folder = freshFolder();
    await writeDurably(join(folder, "bad.json"), "{");
    await writeDurably(join(folder, "half.json"), JSON.stringify({ version: 1, did: "did:svc:x", root_seed: "00" }));
    expect(await codeOf(loadIdentity(folder, "nobody"))).toBe("no_identity");
    expect(await codeOf(loadIdentity(folder, "bad"))).toBe("keys_unreadable");
    expect(await codeOf(loadIdentity(folder, "half"))).toBe("keys_unreadable");
    expect(await codeOf(Promise.resolve().then(() => identityPath(folder, "../x")))).toBe("invalid_name");
    expect(await codeOf(Promise.resolve().then(() => createIdentity(".x")))).toBe("invalid_name");
  });
  test("find the seed of a key by the key itself, and only their own", () => {
    const [mine, other] = [createIdentity("a"), createIdentity("b")];
    expect(signingSeed(mine, "root")).toEqual(mine.rootSeed);
    expect(signingSeed(mine, `${mine.did}#root`)).toEqual(mine.rootSeed);
    expect(heldSeed(mine, new Uint8Array(32))).toBeNull();
    expect(() => signingSeed(mine, `${other.did}#root`)).toThrow(ClientError);
  });
});

describe("the journal of what was received", () => {
  const untilMs = Date.now() + 60_000;
  const entryOf = (folder: string, id: string) => ({
    messageIds: [id],
    untilMs,
    temporary: join(folder, `${id}.part`),
    folder,
    name: "note.txt",
  });

  test("remembers across runs, until the message has expired", async () => {
    const [state, out] = [freshFolder(), freshFolder()];
    const journal = await openJournal(state, Date.now());
    await writeDurably(join(out, "a.part"), "a");
    expect(journal.has("a")).toBe(false);
    expect(await journal.place(entryOf(out, "a"))).toBe(join(out, "note.txt"));
    await journal.close();
    const again = await openJournal(state, Date.now());
    expect(again.has("a")).toBe(true);
    await again.close();
    const later = await openJournal(state, untilMs + 1);
    expect(later.has("a")).toBe(false);
    await later.close();
  });

  test("finishes a file that a crash kept from getting its name", async () => {
    const [state, out] = [freshFolder(), freshFolder()];
    await writeDurably(join(out, "a.part"), "content");
    await writeDurably(join(state, "received.jsonl"), `${JSON.stringify(entryOf(out, "a"))}\n`);
    await (await openJournal(state, Date.now())).close();
    expect(readdirSync(out)).toEqual(["note.txt"]);
  });

  test("does not give a file a second name when the crash came after the first", async () => {
    const [state, out] = [freshFolder(), freshFolder()];
    await writeDurably(join(out, "a.part"), "content");
    linkSync(join(out, "a.part"), join(out, "note.txt"));
    await writeDurably(join(state, "received.jsonl"), `${JSON.stringify(entryOf(out, "a"))}\n{"cut off`);
    const journal = await openJournal(state, Date.now());
    expect(journal.has("a")).toBe(true);
    await journal.close();
    expect(readdirSync(out)).toEqual(["note.txt"]);
  });

  test("is held by one run at a time, and taken over from a run that died", async () => {
    const state = freshFolder();
    const first = await openJournal(state, Date.now());
    expect(await codeOf(openJournal(state, Date.now()))).toBe("busy");
    await first.close();
    await (await openJournal(state, Date.now())).close();
    const script = `
      import { openJournal } from ${JSON.stringify(join(import.meta.dir, "../../../../src/cli/files/journal.ts"))};
      await openJournal(${JSON.stringify(state)}, Date.now());
      console.log("open");
      await new Promise(() => setInterval(() => {}, 1_000));`;
    const other = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe" });
    const { value } = await other.stdout.getReader().read();
    expect(new TextDecoder().decode(value)).toContain("open");
    expect(await codeOf(openJournal(state, Date.now()))).toBe("busy");
    other.kill("SIGKILL");
    await other.exited;
    await (await openJournal(state, Date.now())).close();
  });

  test("in a folder that can't be used says so", async () => {
    const state = freshFolder();
    mkdirSync(join(state, "receiver.lock"), { recursive: true });
    expect(await codeOf(openJournal(state, Date.now()))).toBe("unusable");
  });
});
