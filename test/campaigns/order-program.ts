/**
 * One of two programs that write to each other, for `order.ts`: `URL FOLDER TO NEXT`. Prints each
 * number when its message is safe in the store, and when `messages` hands one over.
 */
import { fileKeys } from "../../src/cli/files/files.ts";
import { fileStore } from "../../src/cli/files/store.ts";
import { Waypost } from "../../src/client/waypost.ts";

const [url = "", folder = "", to = "", next = "0"] = process.argv.slice(2);
const store = fileStore(`${folder}/store.sqlite`);
const me = await Waypost.open({ url, keys: fileKeys(`${folder}/keys`), store, pollMs: 1_000 });
console.log(`did ${me.did}`);

async function write(): Promise<void> {
  for (let number = Number(next); to !== ""; number++) {
    await me.send(to, String(number));
    console.log(`sent ${number}`);
    await Bun.sleep(Math.random() * 60);
  }
}
void write();
for await (const message of me.messages()) console.log(`got ${message.text} ${+message.sentAt}`);
