/** `smoke.ts` as a test; it is a process of its own, because it ends as one. */
import { expect, test } from "bun:test";

test("the kept runtime runs as its specification starts it", async () => {
  const output = { stdout: "inherit", stderr: "inherit" } as const;
  const child = Bun.spawn([process.execPath, "run", "smoke"], { cwd: import.meta.dir, ...output });
  expect(await child.exited).toBe(0);
});
