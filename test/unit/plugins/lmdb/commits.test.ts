/** Group commits of `lmdb` over a disk that the test holds: what goes together, and what waits. */
import { expect, test } from "bun:test";
import { type CommitHost, GroupCommits, type WriteSize } from "../../../../src/plugins/lmdb/commits.ts";
import { StoreError } from "../../../../src/storage/contract.ts";

const size = { kind: "removal", bytes: 0 } as const;
const mib = 1024 * 1024;
const turn = () => new Promise<void>((next) => void setImmediate(next));
const turns = async (count = 3) => {
  for (let n = 0; n < count; n++) await turn();
};

/** Commits that end when the test says so. */
function heldDisk(checkRoom: CommitHost["checkRoom"] = () => {}) {
  const writes: { readonly keys: string[]; readonly end: () => void }[] = [];
  const host: CommitHost = {
    checkRoom,
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
  const put = (key: string, of: WriteSize = size) =>
    commits.join(of, (batch) => batch.put("meta", Buffer.from(key), new Uint8Array(1)));
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
  expect(writes[0]!.keys.length).toBeGreaterThanOrEqual(24);
  expect(writes[0]!.keys.length).toBeLessThanOrEqual(60);
});

test("turns that bring few are not waited for", async () => {
  const { writes, put } = heldDisk();
  // Before the commit looks what a turn brought, the turn brings one.
  const oneATurn = (n: number): void => {
    setImmediate(() => {
      void put(`${n}`);
      if (n < 8) oneATurn(n + 1);
    });
  };
  oneATurn(1);
  void put("0");
  await turns(12);
  expect(writes[0]?.keys.length).toBeLessThanOrEqual(2);
});

test("what is too much for one commit goes into the next ones at once", async () => {
  const { writes, put } = heldDisk();
  for (let n = 0; n < 3_000; n++) void put(`${n}`);
  await turns(6);
  expect(writes.map(({ keys }) => keys.length)).toEqual([2_048]);
  writes[0]!.end();
  await turns();
  expect(writes.map(({ keys }) => keys.length)).toEqual([2_048, 952]);
  writes[1]!.end();
  await turns();
  for (const key of ["a", "b", "c"]) void put(key, { kind: "removal", bytes: 5 * mib });
  await turns();
  writes[2]!.end();
  await turns();
  expect(writes.slice(2).map(({ keys }) => keys)).toEqual([["a", "b"], ["c"]]);
});

test("bytes that wait are bounded, and free again once their commit begins", async () => {
  const { put } = heldDisk();
  const large = { kind: "removal", bytes: 60 * mib } as const;
  void put("a", large);
  expect(await put("b", large).catch((error: unknown) => error)).toMatchObject({ code: "unavailable" });
  await turns();
  let refused = false;
  put("c", large).catch(() => {
    refused = true;
  });
  await turns();
  expect(refused).toBe(false);
});

test("a read waits for the commit that is under way, and 4,096 can", async () => {
  const { commits, writes, put } = heldDisk();
  void put("a");
  await turns();
  let ran = 0;
  const reads = Array.from({ length: 4_096 }, () => commits.read(() => ++ran));
  expect(await commits.read(() => ++ran).catch((error: unknown) => error)).toMatchObject({ code: "unavailable" });
  await turns();
  expect(ran).toBe(0);
  writes[0]!.end();
  await Promise.all(reads);
  expect(ran).toBe(4_096);
});

test("a commit of removals alone needs no room for what is stored", async () => {
  const { commits } = heldDisk((kind, bytes) => {
    if (kind === "store" && bytes > mib) throw new StoreError("full", "no room");
  });
  const take = (kind: WriteSize["kind"]) => commits.join({ kind, bytes: mib }, () => kind);
  const [removal, store] = await Promise.allSettled([take("removal"), take("store")]);
  expect(removal).toMatchObject({ value: "removal" });
  expect(store).toMatchObject({ reason: { code: "full" } });
});

test("a failed commit is an error for all that it held, and nothing else is answered", async () => {
  const { commits, put } = heldDisk();
  const failing = new GroupCommits({
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
