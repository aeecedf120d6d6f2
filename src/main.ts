#!/usr/bin/env bun
/** The entry of the executable: arguments in, exit code out. Its worker threads begin here as well. */
import { isMainThread } from "node:worker_threads";

if (isMainThread) {
  const { runProgram } = await import("./cli/program.ts");
  process.exitCode = await runProgram(process.argv);
} else {
  const { runWorker } = await import("./app/worker.ts");
  await runWorker();
}
