/**
 * A chain for a developer: the reference runtime with a block within a second of a call, and in the
 * folder `data` the key file of its first account and a configuration, `chain.toml`. The chain
 * lives in memory: with a new one begins a new `data` folder.
 *
 *   bun run chain:dev [--port 9944]
 */
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { chainExampleAt } from "./example.ts";

const folder = join(process.env["WAYPOST_CHAIN_FOLDER"] ?? process.cwd(), "data");
const port = process.argv.includes("--port")
  ? (process.argv[process.argv.indexOf("--port") + 1] ?? "9944")
  : "9944";

mkdirSync(folder, { recursive: true, mode: 0o700 });
const key = join(folder, "operator.key");
// A phrase that everybody knows: the first development account, which the genesis block endows.
if (!existsSync(key)) writeFileSync(key, "//Alice\n", { mode: 0o600 });
const config = chainExampleAt(folder, "http://127.0.0.1:7400").replace(":9944", `:${port}`);
writeFileSync(join(folder, "chain.toml"), config);

const child = Bun.spawn(
  [process.execPath, "run", "node.ts", "--port", port, "--interval", "1000", "--idle", "6000"],
  {
    cwd: import.meta.dir,
    env: { ...process.env, LOG_LEVEL: "warn", POLKADOTJS_DISABLE_ESM_CJS_WARNING: "1" },
    stdio: ["ignore", "inherit", "inherit"],
  },
);
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => child.kill(signal));
process.exit(await child.exited);
