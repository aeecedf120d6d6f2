/**
 * `@waypost/client/node` of the packed SDK in every runtime with files: an identity in `fileKeys`,
 * found again by a second opening; a file sent from disk in chunks and received into a store and
 * written as a file, twice, so that nothing is written twice. Prints one line of JSON.
 */
import { mkdtemp, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ClientError, Waypost } from "@waypost/client";
import { fileKeys, fileSource, fileStore, receivedFiles } from "@waypost/client/node";

const url = globalThis.Deno?.env.get("WAYPOST_URL") ?? globalThis.process?.env.WAYPOST_URL;
const folder = await mkdtemp(join(tmpdir(), "waypost-files-"));
const keys = join(folder, "keys");
const alice = await Waypost.open({ url, keys: fileKeys(keys), name: "alice" });
const bob = await Waypost.open({ url, keys: fileKeys(keys), name: "bob" });
const again = await Waypost.open({ url, keys: fileKeys(keys), name: "bob" });
const keyFile = (await readdir(keys)).find((name) => name.startsWith("bob"));

const bytes = crypto.getRandomValues(new Uint8Array(50_000));
await writeFile(join(folder, "data.bin"), bytes);
const source = await fileSource(join(folder, "data.bin"), "application/octet-stream");
const sent = await alice.send(bob.did, source, { chunkBytes: 20_000 });

const out = join(folder, "received");
const withStore = () =>
  Waypost.open({
    url,
    keys: fileKeys(keys),
    name: "bob",
    store: fileStore(join(folder, "store")),
    acknowledge: "by-hand",
  });
const inbox = await withStore();
const busy = await withStore().catch((error) => error);
await inbox.receiveWaiting();
const [first, second] = [
  await Array.fromAsync(receivedFiles(inbox, out)),
  await Array.fromAsync(receivedFiles(inbox, out)),
];
await inbox.close();
const stored = await readFile(first[0].path);

console.log(
  JSON.stringify({
    sameDid: again.did === bob.did,
    mode: ((await stat(join(keys, keyFile))).mode & 0o777).toString(8),
    chunks: sent.chunks,
    received: first.map(({ message: { name, from, verified } }) => [
      name,
      from === alice.did,
      verified,
    ]),
    same: stored.length === bytes.length && stored.every((byte, i) => byte === bytes[i]),
    again: second.length,
    files: await readdir(out),
    busy: [busy instanceof ClientError, busy.code],
  }),
);
