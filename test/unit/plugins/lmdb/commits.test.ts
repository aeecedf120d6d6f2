/** Group commits of `lmdb` over a disk that the test holds: what goes together, and what waits. */
import { expect, test } from "bun:test";
import { type CommitHost, GroupCommits } from "../../../../src/plugins/lmdb/commits.ts";
import { StoreError } from "../../../../src/storage/contract.ts";

const size = { kind: "removal", bytes: 0 } as const;
const nothing: CommitHost["committed"] = { get: () => null, range: () => [] };
const turn = () => new Promise<void>((next) => void setImmediate(next));

/** Commits that end when the test says so. */
function heldDisk() {
  const writes: { readonly keys: string[]; readonly end: () => void }[] = [];
  const host: CommitHost = {
    committed: nothing,
    checkRoom: () => {},
    checkOpen: () => {},
    checkFailure: () => {},
    write(batch) {
      const { promise, resolve } = Promise.withResolvers<void>();
      writes.push({ keys: batch.map(({ key }) => key.toString()), end: resolve });
      return promise;
    },
    fail: (reason, cause) => new StoreError("unavailable", reason, { cause }),
  };
  const commits = new GroupCommits(host);
  const put = (key: string) => commits.join(size, (batch) => batch.put("meta", Buffer.from(key), new Uint8Array(1)));
  return { commits, writes, put };
}

test("a commit begins at the end of the turn, with all that the turn brought", async () => {
  const { writes, put } = heldDisk();
  void put("a");
  void put("b");
  expect(writes).toEqual([]);
  await turn();
  await turn();
  expect(writes.map(({ keys }) => keys)).toEqual([["a", "b"]]);
});

test("what arrives while a commit is under way goes into the next one, together", async () => {
  const { writes, put, commits } = heldDisk();
  const first = put("a");
  await turn();
  await turn();
  const later: Promise<void>[] = [];
  for (const key of ["b", "c", "d"]) {
    later.push(put(key));
    await turn();
  }
  expect(writes.length).toBe(1);
  writes[0]!.end();
  await first;
  // A read that follows the answer at once sees no commit under way.
  expect(await commits.read(() => writes.length)).toBe(1);
  await turn();
  await turn();
  expect(writes.map(({ keys }) => keys)).toEqual([["a"], ["b", "c", "d"]]);
  writes[1]!.end();
  await Promise.all(later);
});

test("turns that bring many are waited for, until there are enough for one commit", async () => {
  const { writes, put } = heldDisk();
  for (let round = 0; round < 20 && writes.length === 0; round++) {
    for (let n = 0; n < 20; n++) void put(`${round} ${n}`);
    await turn();
  }
  expect(writes.length).toBe(1);
  expect(writes[0]!.keys.length).toBeGreaterThanOrEqual(128);
  expect(writes[0]!.keys.length).toBeLessThanOrEqual(200);
});

test("what nobody waits for goes with the next commit, and begins one only after a while or when somebody waits", async () => {
  const { commits, writes, put } = heldDisk();
  const putLazily = (key: string) =>
    commits.joinLazily(size, (batch) => batch.put("meta", Buffer.from(key), new Uint8Array(1)));
  const turns = async () => {
    for (let n = 0; n < 3; n++) await turn();
  };
  void putLazily("a");
  expect(commits.isIdle).toBe(false);
  await turns();
  expect(writes).toEqual([]);
  void put("b");
  await turns();
  void putLazily("c");
  writes[0]!.end();
  await turns();
  expect(writes.map(({ keys }) => keys)).toEqual([["a", "b"]]);
  commits.begin();
  await turns();
  expect(writes.map(({ keys }) => keys)).toEqual([["a", "b"], ["c"]]);
  writes[1]!.end();
  await turns();
  void putLazily("d");
  while (writes.length < 3) await Bun.sleep(1);
  expect(writes[2]!.keys).toEqual(["d"]);
  writes[2]!.end();
  await turns();
  expect(commits.isIdle).toBe(true);
});

test("a failed commit is an error for all that it held, and nothing else is answered", async () => {
  const { commits, put } = heldDisk();
  const failing = new GroupCommits({
    committed: nothing,
    checkRoom: () => {},
    checkOpen: () => {},
    checkFailure: () => {},
    write: () => Promise.reject(new Error("the disk is gone")),
    fail: (reason, cause) => new StoreError("unavailable", reason, { cause }),
  });
  const both = [1, 2].map(() => failing.join(size, (batch) => batch.put("meta", Buffer.from("x"), new Uint8Array(1))));
  for (const one of await Promise.allSettled(both)) expect(one.status).toBe("rejected");
  void put("a");
  expect(commits.isIdle).toBe(false);
});
