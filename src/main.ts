#!/usr/bin/env bun
/** The entry of the executable: arguments in, exit code out. */
import { runProgram } from "./cli/program.ts";

process.exitCode = await runProgram(process.argv);
