#!/usr/bin/env node
/*
 * Starts the executable of this platform, which npm installed as an optional dependency, and ends as it ends.
 */
"use strict";
const { spawn } = require("node:child_process");
const { constants } = require("node:os");

function packageName() {
  const { platform, arch } = process;
  const isMusl = platform === "linux" && !process.report.getReport().header.glibcVersionRuntime;
  return `@waypost/cli-${platform}-${arch}${isMusl ? "-musl" : ""}`;
}

function findProgram() {
  const name = packageName();
  try {
    return require.resolve(`${name}/bin/waypost${process.platform === "win32" ? ".exe" : ""}`);
  } catch {
    console.error(
      `waypost: the package ${name} is not installed. It is an optional dependency: install without`,
    );
    console.error(
      "--omit=optional, or there is none for this platform (see the list in docs/install.md).",
    );
    process.exit(1);
  }
}

const child = spawn(findProgram(), process.argv.slice(2), { stdio: "inherit" });
const signals = ["SIGINT", "SIGTERM", "SIGHUP"];
for (const signal of signals) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`waypost: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  process.exit(signal === null ? code : 128 + constants.signals[signal]);
});
