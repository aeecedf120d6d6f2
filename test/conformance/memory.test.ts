/** The memory driver keeps the contract. */
import { memoryPlugin } from "../../src/plugins/memory/memory.ts";
import { runConformance } from "./kit.ts";
import { optionsOf } from "./options.ts";

runConformance({
  name: "memory",
  provides: memoryPlugin.provides,
  reopen: null,
  open: (environment) =>
    memoryPlugin.open(optionsOf(memoryPlugin, { block_time_ms: 20 }), environment),
});
