/**
 * Fills the local store of a page with a long conversation, in its rows as the SDK writes them. The
 * test bundles it and evaluates it in a page of the app: sending ten thousand messages would take
 * minutes.
 */

import { parseIdentity } from "../../src/client/keys/keys.ts";
import { indexedDbKeys, indexedDbStore } from "../../src/client/package.ts";
import { addMessage, type MessageRow } from "../../src/client/store/rows.ts";
import { Table } from "../../src/client/store/table.ts";
import { encodeBase64, utf8 } from "../../src/core/codec/bytes.ts";
import type { Did } from "../../src/core/codec/did.ts";

/** The newest message is as old as the time between two. */
async function fill(from: Did, count: number, everyMs: number): Promise<void> {
  const identity = parseIdentity((await indexedDbKeys().load("default")) ?? "", "default");
  if (!identity?.storeKey) throw new Error("there is no identity");
  const driver = indexedDbStore();
  // Messages and their places by id are new here: none is looked for before it is written.
  const read = async (key: string) => (/\/[im]\//.test(key) ? null : driver.read(key));
  const table = await Table.open({ ...driver, read }, identity.storeKey);
  const startMs = Date.now() - count * everyMs;
  for (let first = 0; first < count; first += 500)
    await table.change(async (batch) => {
      for (let n = first; n < Math.min(count, first + 500); n++) {
        const at = startMs + n * everyMs;
        const id = crypto.randomUUID();
        const text = utf8(`message ${n} ${"words ".repeat(n % 30)}`);
        const row: MessageRow = {
          ...{
            id,
            conversation: from,
            isOwn: false,
            from,
            verified: true,
            trust: "proven",
            distrusted: null,
          },
          ...{
            sentMs: at,
            arrivedMs: at,
            name: "",
            mediaType: "text/plain",
            sizeBytes: text.length,
            replyTo: null,
            group: null,
          },
          ...{ wantsReceipt: false, messageIds: [id], reaction: null, to: [] },
          target: null,
          digest: id,
          body: { is: "inline", base64: encodeBase64(text) },
        };
        await addMessage(table, batch, row);
      }
    });
}

Object.assign(globalThis, { fill });
