/**
 * Sends texts to somebody who was written to before, and prints in which files of the SDK's source
 * functions ran from each call of `send` until the Relay had the message: `[["<file>", …], …]`.
 * What opens the identity runs before. Arguments: the root of the sources, the address of the
 * nodes, the DID of the recipient.
 */
import { Session } from "node:inspector/promises";

const [root, url, friend] = process.argv.slice(2);
const { memoryKeys } = await import(`${root}/src/client/keys/key-stores.ts`);
const { memoryStore } = await import(`${root}/src/client/store/driver.ts`);
const { Waypost } = await import(`${root}/src/client/waypost.ts`);

const session = new Session();
session.connect();
await session.post("Profiler.enable");
await session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });

/**
 * Since it was last called. A module itself is a function without a name that begins with its text.
 */
async function takeFiles() {
  const { result } = await session.post("Profiler.takePreciseCoverage");
  return result.flatMap(({ url: module, functions }) => {
    const [, path] = /\/src\/client\/(.+)$/.exec(module) ?? [];
    const hasRun = functions.some(
      ({ functionName, ranges: [range] }) =>
        range.count > 0 && (functionName !== "" || range.startOffset > 0),
    );
    return path !== undefined && hasRun ? [path] : [];
  });
}

/** Until nothing of the SDK has run for a while. */
async function untilQuiet() {
  for (let quiet = 0; quiet < 4; ) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    quiet = (await takeFiles()).length === 0 ? quiet + 1 : 0;
  }
}

const me = await Waypost.open({ url, keys: memoryKeys(), store: memoryStore() });
await (await me.send(friend, "first")).delivered;
const ran = [];
for (const text of ["second", "third", "fourth"]) {
  await untilQuiet();
  await (await me.send(friend, text)).delivered;
  ran.push(await takeFiles());
}
console.log(JSON.stringify(ran));
await me.close();
process.exit(0);
