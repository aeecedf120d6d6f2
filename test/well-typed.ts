/**
 * Checks the types of everything in one program: of the chain's tests too where their packages are
 * installed (`bun run chain:setup`). Ends as the compiler does.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dir, "..");
const isWhole = existsSync(join(root, "test", "chain", "node_modules"));
const program = ["--project", isWhole ? join("test", "chain") : "."];
const kept = ["--incremental", "--tsBuildInfoFile", "node_modules/.cache/check.tsbuildinfo"];
// Four checkers, the usual number, look at what they share four times.
const frugal = ["--checkers", "1"];
const compiler = join(root, "node_modules", ".bin", "tsc");
const { exitCode } = Bun.spawnSync([compiler, "--noEmit", ...program, ...kept, ...frugal], {
  cwd: root,
  stdio: ["ignore", "inherit", "inherit"],
  // The compiler's collector runs less often.
  env: { ...process.env, GOGC: "400" },
});
process.exit(exitCode);
