/**
 * A log whose last head can't be kept, because the disk next to its key is full: nothing is signed
 * meanwhile.
 */
import { expect, test } from "bun:test";
import { parseCheckpoint, parseNote } from "../../../../src/core/trust/note.ts";
import { createLog } from "../../../../src/nodes/directory/log.ts";
import type { Call } from "../../../../src/nodes/http/route.ts";
import { failOn, openMemory } from "../../../support/directory.ts";
import { alice, bob, register, startMs, until } from "../../../support/embedded-stage.ts";
import { testKey } from "../../../support/logs.ts";

test("says so once, shows the head before, and signs when there is room again", async () => {
  const store = await openMemory(10)({ now: () => startMs, log: () => {}, fatal: failOn });
  const { logs, ledger } = store.capabilities;
  let [isFull, tries, kept] = [false, 0, ""];
  const said: unknown[] = [];
  const publisher = createLog({
    logs: logs!,
    logKey: {
      ...testKey("full.example/log", "log"),
      readSigned: async () => kept,
      writeSigned: async (note) => {
        tries++;
        if (isFull) throw new Error("ENOSPC: no space left on device");
        kept = note;
      },
    },
    witnesses: [],
    now: () => startMs,
    log: (...line) => void said.push(line),
    times: { lookMs: 5, renewMs: 60_000, patienceMs: 60_000 },
  });
  const head = publisher.routes.find(({ path }) => path === "/log/checkpoint")!;
  const sizeOf = async (): Promise<number> => {
    const answer = await head.handle({} as Call);
    const text = "body" in answer ? String(answer.body?.content) : "";
    return parseCheckpoint(parseNote(text)?.text ?? "")?.size ?? 0;
  };
  await register(ledger as never, alice);
  const before = await until(async () =>
    (await sizeOf()) === (await logs!.head(""))?.size ? sizeOf() : null,
  );
  isFull = true;
  await register(ledger as never, bob);
  const triesBefore = tries;
  await until(async () => (tries > triesBefore + 2 ? true : null));
  expect([await sizeOf(), parseCheckpoint(parseNote(kept)?.text ?? "")?.size]).toEqual([
    before,
    before,
  ]);
  expect(said).toEqual([
    ["error", "the log is not signed", { reason: "ENOSPC: no space left on device" }],
  ]);
  isFull = false;
  await until(async () => ((await sizeOf()) > before ? true : null));
  publisher.close();
  await store.close();
});
