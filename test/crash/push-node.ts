/**
 * All three nodes in a process that a test kills: the configuration is the first argument, in JSON.
 */
import { startNodes } from "../../src/app/compose.ts";
import { checkConfig } from "../../src/config/config.ts";

const checked = checkConfig(JSON.parse(process.argv[2] ?? "null"));
if (!checked.ok) throw new Error(JSON.stringify(checked.problems));
// No one waits half a minute for the next look.
checked.config.cache.push_interval = 200;
await startNodes(checked.config, { log: () => {}, onFatal: () => process.exit(1) });
console.log("ready");
