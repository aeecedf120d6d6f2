#!/usr/bin/env bun
/** The entry of the executable: arguments in, exit code out. */
import { runProgram } from "./cli/program.ts";

process.exitCode = await runProgram(process.argv);
// When everything is written: a look-up that the system's resolver still works on would hold
// the process for a minute.
process.stdout.end(() => process.exit());
