/**
 * A program with the local store of the SDK in a file, for `client-store.test.ts`: prints what
 * `messages` hands over, and dies right after the commit of a message, before it can acknowledge
 * it, or of another row. `URL FOLDER DIES ROW` (the number of the commit).
 */
import { fileKeys } from "../../src/cli/files/files.ts";
import { fileStore } from "../../src/cli/files/store.ts";
import type { StoreDriver } from "../../src/client/store/driver.ts";
import { Waypost } from "../../src/client/waypost.ts";

const [url = "", folder = "", dies = "0", row = "/m/"] = process.argv.slice(2);
const driver = fileStore(`${folder}/store.sqlite`);
let commits = 0;
const store: StoreDriver = {
  ...driver,
  apply: async (batch) => {
    await driver.apply(batch);
    if (
      batch.some(([key, bytes]) => bytes !== null && key.includes(row)) &&
      ++commits === Number(dies)
    )
      process.kill(process.pid, "SIGKILL");
  },
};
const me = await Waypost.open({ url, keys: fileKeys(`${folder}/keys`), store });
console.log(`did ${me.did}`);
for await (const message of me.messages()) console.log(`got ${message.text}`);
