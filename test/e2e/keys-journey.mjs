/**
 * `fileKeys` of the packed SDK in every runtime with files: the key that others seal to is replaced
 * and found again, one of several replacements at once counts, and a message in chunks leaves
 * nothing behind. Prints one line of JSON.
 */
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Waypost } from "@waypost/client";
import { fileKeys } from "@waypost/client/node";

const url = globalThis.Deno?.env.get("WAYPOST_URL") ?? globalThis.process?.env.WAYPOST_URL;
const keys = join(await mkdtemp(join(tmpdir(), "waypost-keys-")), "keys");
const events = [];
const open = () =>
  Waypost.open({
    url,
    keys: fileKeys(keys),
    rotateMs: 0,
    onEvent: (event) => events.push(event.type),
  });

const alice = await open();
await alice.rotate();
const sent = await alice.send(alice.did, new Uint8Array(50_000), { chunkBytes: 20_000 });
const again = await open();
const store = fileKeys(keys);
await store.save("default/raced", "0");
const raced = await Promise.all(
  ["1", "2", "3", "4"].map((text) => store.replace("default/raced", "0", text)),
);
const secretOf = ({ identity }) => identity.agreements.at(-1).secret.toString();
console.log(
  JSON.stringify({
    failed: events.filter((type) => type === "failed"),
    rotated: events.includes("rotated"),
    chunks: sent.chunks,
    sameDid: again.did === alice.did,
    replaced: raced.filter((isReplaced) => isReplaced).length,
    isNewer: secretOf(again) !== secretOf(alice),
  }),
);
await Promise.all([alice.close(), again.close()]);
